"""A second, overlapping configuration with and without the embedding cache, in CPU seconds of one run.

Chroma's five corpora are cut into 400 tokens with an overlap of 200, and then without overlap: about two thirds of
the second configuration's texts are texts of the first. Each turn begins with a cache that holds the first.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.embedding.cache import CachedEmbedder, VectorRows
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.storage.files import read_text

CORPORA = Path(__file__).parents[2] / ".." / "shared" / "data" / "chroma" / "corpora"
TURNS = 7
LOOKUPS, DIMENSION = 100_000, 256


def chunk_texts(chunk_overlap: int) -> list[str]:
    """The chunks of all corpora."""
    chunker = RecursiveTokenChunker(400, chunk_overlap)
    return [text for path in sorted(CORPORA.iterdir()) for text in chunker.chunk(read_text(path))]


def cpu_seconds(work: Callable[[], object]) -> float:
    """How long all threads of this process worked."""
    started = time.process_time()
    work()
    return time.process_time() - started


def forget(folder: Path) -> None:
    """Let everything be checked anew, as in another process: a file with another time of change is."""
    for path in folder.rglob("*.arrow"):
        os.utime(path)


def run() -> list[dict[str, object]]:
    """The figures of the second configuration, and of looking up many texts; none without Chroma's dataset."""
    return [*(_second_configuration() if CORPORA.is_dir() else []), *_many_lookups()]


def _second_configuration() -> list[dict[str, object]]:
    first, second = chunk_texts(200), chunk_texts(0)
    plain = LocalEmbedder()
    plain.embed_query("load the model")
    without, with_cache, again, different = [], [], [], 0.0
    for _ in range(TURNS):
        with tempfile.TemporaryDirectory() as folder:
            CachedEmbedder(LocalEmbedder(), folder).embed(first)
            forget(Path(folder))
            cached = CachedEmbedder(LocalEmbedder(), folder)
            without.append(cpu_seconds(lambda: plain.embed(second)))
            with_cache.append(cpu_seconds(lambda embedder=cached: embedder.embed(second)))
            misses = cached.statistics.misses
            forget(Path(folder))
            third = CachedEmbedder(LocalEmbedder(), folder)
            again.append(cpu_seconds(lambda embedder=third: embedder.embed(second)))
            different = max(different, float(np.abs(third.embed(second) - plain.embed(second)).max()))
    new = len(set(second) - set(first))
    ratio = median(mine / theirs for mine, theirs in zip(with_cache, without, strict=True))
    rerun = median(mine / theirs for mine, theirs in zip(again, without, strict=True))
    # Hashing, looking up and keeping the new vectors may cost a tenth of embedding everything.
    target = new / len(second) + 0.1
    return [
        _figure(f"cache: second configuration, {len(second)} chunks, without", median(without), None, "s CPU"),
        _figure(f"cache: the same with a cache of the first, {misses} new", median(with_cache), None, "s CPU"),
        _figure("cache: share of the CPU seconds without", ratio, target, "", ratio <= target),
        _figure("cache: share of the CPU seconds without, run again", rerun, 0.1, "", rerun <= 0.1),
        _figure("cache: texts embedded that the first had", misses - new, 0, "", misses == new),
        _figure("cache: largest difference of a vector", different, 0, "", different == 0),
    ]


def _many_lookups() -> list[dict[str, object]]:
    rng = np.random.default_rng(20240711)
    digests = rng.integers(0, 256, (LOOKUPS, 32), dtype=np.uint8)
    vectors = rng.random((LOOKUPS, DIMENSION), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        kept = VectorRows(Path(folder) / "bench")
        keeping = cpu_seconds(lambda: kept.keep(digests, vectors))
        forget(Path(folder))
        opening = cpu_seconds(lambda: VectorRows(Path(folder) / "bench").sized())
        finding = median(cpu_seconds(lambda: kept.find(digests)) for _ in range(TURNS))
        right = np.array_equal(kept.find(digests)[1], vectors)
    return [
        _figure("cache: keeping 100 k vectors of 256 numbers", keeping, None, "s CPU"),
        _figure("cache: opening and checking them", opening, None, "s CPU"),
        _figure("cache: finding all of them", finding, 1, "s CPU", finding <= 1 and right),
    ]


def _figure(name: str, value: float, target: float | None, unit: str, ok: bool = True) -> dict[str, object]:
    return {"name": name, "value": value, "target": target, "unit": unit, "ok": ok}


def main() -> int:
    """Print the figures; 1 when one misses its target."""
    figures = run()
    for figure in figures:
        target = "" if figure["target"] is None else f"(target {figure['target']:.3g})"
        verdict = "ok" if figure["ok"] else "MISSED"
        print(f"{figure['name']:<72} {figure['value']:>12.4g} {figure['unit']:<6} {target:<18} {verdict}")
    return 0 if all(figure["ok"] for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
