"""This version against the first one, checked out from the history into a temporary folder, in CPU seconds of one run.

Both use the same packages; what only the first version needs is installed beside it, by name. Seconds are those of
whole processes with all their children, or where a script measures itself, of its work without imports. The two take
turns, and the least of each counts: whatever else the machine does can only add to it.
"""

import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.ground_truth.truth_files import truth_text
from tests.bench.chroma_data import FOLDER, chroma_dataset
from tests.bench.distinct_texts import distinct_texts

FIRST = "ce6dc70f1e6e1af9b9ad5285b13dcaa614dbee31"
"""The last commit of the first version."""

ROOT = Path(__file__).parents[2]
ONLY_FIRST = ("altair", "narwhals")
ROUNDS = 3
SIZES = [100, 200, 300, 400, 800]
TEXTS, TEXT_CHARACTERS, QUERIES = 300_000, 250, 200

GRID = """
corpus: {corpus}
ground_truth: {truth}
chunkers: {{type: recursive-token, chunk_size: {sizes}}}
retrieval: [vector, bm25, hybrid]
k: [1, 3, 5, 10]
metrics: [span_recall, span_precision, span_iou, span_ndcg, tokens_retrieved]
"""

WORDS = """
import gc, hashlib, json, sys, time
import psutil
from rag_eval.retrieval.bm25 import BM25Index, best_first
texts, queries = json.load(open(sys.argv[1]))
BM25Index(texts[:100]).scores("warm up")
gc.collect()
before, began = psutil.Process().memory_info().rss, time.process_time()
index = BM25Index(texts)
indexed = time.process_time() - began
gc.collect()
memory, began = psutil.Process().memory_info().rss - before, time.process_time()
hits = [best_first(index.scores(query), 10).tolist() for query in queries]
asked = time.process_time() - began
print(json.dumps([indexed, asked, memory, hashlib.sha256(json.dumps(hits).encode()).hexdigest()]))
"""

VECTORS = """
import json, sys, time
import numpy as np
from rag_eval.embedding.local import LocalEmbedder
configurations = json.load(open(sys.argv[1]))
embedder = LocalEmbedder()
embedder.embed(["load the model"])
began = time.process_time()
found = [embedder.embed(texts) for texts in configurations]
seconds = time.process_time() - began
np.save(sys.argv[2], np.concatenate(found))
print(json.dumps(seconds))
"""


class Version(NamedTuple):
    """A version of the package: where it is, and what its processes find besides what is installed."""

    name: str
    folder: Path
    path: tuple[Path, ...]

    def run(self, *arguments: str, state: Path) -> tuple[float, str]:
        """CPU seconds of Python with these arguments, and what it printed; ``state`` is in the place of the home."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's code is compiled once
        environment["PYTHONPATH"] = os.pathsep.join(map(str, self.path))
        environment |= {f"XDG_{kind}_HOME": str(state / self.name / kind) for kind in ("STATE", "CACHE")}
        command = [sys.executable, *arguments]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(arguments)[:200]} ended with {done.stderr[-2_000:]}")
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


@contextmanager
def both_versions() -> Iterator[tuple[Version, Version, Path] | str]:
    """The first version, this one and a folder for both; or the sentence that says why the first is not to be had."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first, extra = folder / "first-version", folder / "only-first"
        first.mkdir()
        git = ["git", "archive", FIRST]
        archived = subprocess.run(git, cwd=ROOT, capture_output=True, check=False)
        if archived.returncode:
            yield f"the first version is not in the history of {ROOT}: fetch it whole, with its commit {FIRST[:7]}"
            return
        with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as packed:
            packed.extractall(first, filter="data")
        if missing := [package for package in ONLY_FIRST if find_spec(package) is None]:
            install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(extra)]
            constraints = ["--constraint", str(first / "constraints.txt")]
            if subprocess.run([sys.executable, *install, *constraints, *missing], check=False).returncode:
                yield f"{' and '.join(missing)}, which only the first version needs, cannot be installed"
                return
        yield Version("first", first, (first, extra)), Version("this", ROOT, (ROOT,)), folder


def run() -> list[dict[str, Any]]:
    """The figures; none, with a sentence, where the first version or Chroma's dataset is absent."""
    with both_versions() as found:
        if isinstance(found, str) or not FOLDER.is_dir():
            print(f"skipped: {found if isinstance(found, str) else f'there is no dataset in {FOLDER}'}", flush=True)
            return []
        first, this, folder = found
        return [row for measure in (sample, grid, words, vectors) for row in measure(first, this, folder)]


def sample(first: Version, this: Version, folder: Path) -> list[dict[str, Any]]:
    """``rag-eval run`` of the sample of each version, cold and with all kept."""
    cold: dict[str, list[float]] = {}
    kept: dict[str, list[float]] = {}
    for number in range(ROUNDS + 1):
        for version in (first, this):
            command = ("-m", "rag_eval.cli", "run", "--workspace", str(folder / f"{version.name}-{number}"))
            seconds = [version.run(*command, state=folder)[0] for _ in range(2)]
            if number:  # in the first turn code is compiled and a database migrated
                cold.setdefault(version.name, []).append(seconds[0])
                kept.setdefault(version.name, []).append(seconds[1])
    return [
        *compared("the sample, all kept", kept, 0.25),
        *compared("the sample, cold", cold, 0.7),
    ]


def grid(first: Version, this: Version, folder: Path) -> list[dict[str, Any]]:
    """15 configurations on Chroma's 472 questions, cold, by the command line."""
    file, truth = folder / "grid.yaml", folder / "truth.jsonl"
    dataset = chroma_dataset()
    assert dataset is not None  # which run has seen
    truth.write_text(truth_text(dataset[1]), encoding="utf-8")
    written = GRID.format(corpus=FOLDER / "corpora", truth=truth, sizes=SIZES)
    found: dict[str, list[float]] = {}
    means: dict[str, dict[str, float]] = {}
    for number in range(ROUNDS - 1):
        for version in (first, this):
            work = ("--workspace", str(folder / f"grid-{version.name}-{number}"), "--json")
            # The first version knew of no copies.
            file.write_text(written if version is first else f"{written}copies: off\n", encoding="utf-8")
            seconds, printed = version.run("-m", "rag_eval.cli", "run", str(file), *work, state=folder)
            found.setdefault(version.name, []).append(seconds)
            outcome = json.loads(printed)["configurations"]
            # Hybrid search is another one now.
            alike = [one for one in outcome if "hybrid" not in one["name"]]
            means[version.name] = {one["name"]: one["metrics"]["span_recall@5"] for one in alike}
    pairs = zip(means["first"].values(), means["this"].values(), strict=True)
    apart = max(abs(mine - theirs) for mine, theirs in pairs)
    return [
        *compared("15 configurations, 472 questions, cold", found, 0.5),
        figure("15 configurations: largest difference of span_recall@5 by vectors and words", apart, 1e-9, ""),
    ]


def words(first: Version, this: Version, folder: Path) -> list[dict[str, Any]]:
    """BM25 over 300,000 chunks."""
    text = "\n".join(distinct_texts(TEXTS * TEXT_CHARACTERS, seed=6))
    texts = [text[begin : begin + TEXT_CHARACTERS] for begin in range(0, TEXTS * TEXT_CHARACTERS, TEXT_CHARACTERS)]
    queries = [one[50:110] for one in texts[:: TEXTS // QUERIES]][:QUERIES]
    (folder / "texts.json").write_text(json.dumps([texts, queries]), encoding="utf-8")
    found: dict[str, list[list[Any]]] = {}
    for _ in range(ROUNDS - 1):
        for version in (first, this):
            printed = version.run("-c", WORDS, str(folder / "texts.json"), state=folder)[1]
            found.setdefault(version.name, []).append(json.loads(printed))
    targets = {"index": 0.6, "query": 0.3, "memory": 0.5}
    figures = []
    for place, (name, most) in enumerate(targets.items()):
        seen = {version: [float(one[place]) for one in rows] for version, rows in found.items()}
        figures.append(ratio(f"BM25, 300,000 chunks: {name}", seen, most))
    hits = {one[3] for rows in found.values() for one in rows}
    return [*figures, figure("BM25, 300,000 chunks: versions whose hits differ", len(hits) - 1, 0, "")]


def vectors(first: Version, this: Version, folder: Path) -> list[dict[str, Any]]:
    """The local embedder over the chunks of a grid on Chroma."""
    dataset = chroma_dataset()
    assert dataset is not None  # which run has seen
    chunkers = [RecursiveTokenChunker(size) for size in SIZES]
    chunks = [[text for one in dataset[0] for text in chunker.chunk(one.content)] for chunker in chunkers]
    (folder / "chunks.json").write_text(json.dumps(chunks), encoding="utf-8")
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for version in (first, this):
            made = (str(folder / "chunks.json"), str(folder / f"{version.name}.npy"))
            found.setdefault(version.name, []).append(json.loads(version.run("-c", VECTORS, *made, state=folder)[1]))
    apart = float(np.abs(np.load(folder / "first.npy") - np.load(folder / "this.npy")).max())
    return [
        *compared(f"local embedder, {sum(map(len, chunks)):,} chunks of 5 configurations", found, 0.5),
        figure("local embedder: largest difference of a number", apart, 1e-6, ""),
    ]


def compared(name: str, found: dict[str, list[float]], most: float) -> list[dict[str, Any]]:
    """The least seconds of each version, and the share."""
    seconds = [figure(f"{name}: {one} version", min(found[one]), None, "s CPU") for one in ("first", "this")]
    return [*seconds, ratio(name, found, most)]


def ratio(name: str, found: dict[str, list[float]], most: float) -> dict[str, Any]:
    return figure(f"{name} (at most)", min(found["this"]) / min(found["first"]), most, "of the first version")


def figure(name: str, value: float, most: float | None, unit: str) -> dict[str, Any]:
    return {"name": name, "value": value, "target": most, "unit": unit, "ok": most is None or value <= most}
