"""``make bench-large``: a million chunks through the stages of the pipeline, written to ``RESULTS-large.md``.

A seeded corpus is written, cut, embedded with the local model, stored in LanceDB and searched, exactly and by an index.
Each size runs in a process of its own. Figures are CPU seconds of all threads and peak memory (files mapped from the
disk count too). With numbers as arguments, those sizes are run in place of 100,000 and 1,000,000 and the file is left
alone.
"""

import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

SIZES = [100_000, 1_000_000]
MOST_MEMORY = 6 * 2**30
QUERIES, DEPTH = 200, 10
CHUNK_TOKENS, CHUNKS_A_DOCUMENT = 64, 50
CHARACTERS_A_CHUNK = 250  # what such a chunk of this corpus has
CHARACTERS_A_WORD = 6.87
RESULTS = Path(__file__).parent / "RESULTS-large.md"
MAKING = ("load", "chunk", "embed", "store")


def main(sizes: list[int]) -> int:
    measured = {}
    for size in sizes or SIZES:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "tests.bench.large", "--measure", str(size), folder]
            measured[size] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        print(json.dumps(measured[size], indent=2), flush=True)
    text, missed = report(measured)
    print(text)
    if not sizes:
        RESULTS.write_text(text, encoding="utf-8")
    return min(missed, 1)


def measure(size: int, folder: Path) -> dict[str, Any]:
    """What the work on so many chunks takes."""
    from rag_eval.benchmark import stages
    from rag_eval.benchmark.references import CorpusSource
    from rag_eval.benchmark.workspace import Workspace
    from rag_eval.chunking.recursive import RecursiveTokenChunker
    from rag_eval.embedding.local import LocalEmbedder
    from rag_eval.stores.lance import IvfPq, LanceDBVectorStore
    from rag_eval.tables import QUERIES as QUERY_TABLE
    from rag_eval.tables import table_of

    texts = write_corpus(folder / "corpus", size)
    workspace, embedder = Workspace(root=folder / "work"), LocalEmbedder()
    exact, approximate = LanceDBVectorStore(), LanceDBVectorStore(index=IvfPq(refine_factor=10))
    questions = [(f"q{number}", text, False, "{}") for number, text in enumerate(texts)]
    queries = workspace.write_table("queries", table_of(QUERY_TABLE, questions))
    taken: dict[str, dict[str, float]] = {}

    with measuring(taken, "load"):
        documents = stages.load_corpus(workspace, CorpusSource.of(folder / "corpus", "**/*.md"))
    with measuring(taken, "chunk"):
        chunks = stages.chunk(workspace, documents, RecursiveTokenChunker(chunk_size=CHUNK_TOKENS), None)
    with measuring(taken, "embed"):
        embeddings = stages.embed(workspace, chunks, embedder)
    with measuring(taken, "store"):
        stored = stages.index(workspace, chunks, embeddings, exact)
    with measuring(taken, "search exactly"):
        hits = stages.retrieve_by_vector(workspace, chunks, stored, queries, embedder, exact, DEPTH)
    with measuring(taken, "store with ivf-pq"):
        indexed = stages.index(workspace, chunks, embeddings, approximate)
    with measuring(taken, "search by ivf-pq"):
        found = stages.retrieve_by_vector(workspace, chunks, indexed, queries, embedder, approximate, DEPTH)

    true, seen = (places(workspace.read_table(ref).to_pylist()) for ref in (hits, found))
    return {
        "chunks": sum(shard.rows for shard in chunks),
        "texts": sum(shard.rows for shard in embeddings),
        "megabytes": sum(path.stat().st_size for path in (folder / "corpus").iterdir()) / 1e6,
        "query_seconds": {"exact": hits.effort.query_seconds, "ivf-pq": found.effort.query_seconds},
        "index_recall": len(true & seen) / len(true),
        "stages": taken,
    }


def places(rows: list[dict[str, Any]]) -> set[tuple[str, str, int]]:
    return {(row["query_id"], row["doc_id"], row["start"]) for row in rows}


@contextmanager
def measuring(taken: dict[str, dict[str, float]], name: str) -> Iterator[None]:
    """Note the CPU seconds, the real seconds and the peak memory of the block."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    cpu, real = time.process_time(), time.perf_counter()
    yield
    taken[name] = {
        "cpu": time.process_time() - cpu,
        "seconds": time.perf_counter() - real,
        "peak": peak_memory(),
    }
    print(f"{name}: {taken[name]}", file=sys.stderr, flush=True)


def peak_memory() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def write_corpus(folder: Path, chunks: int) -> list[str]:
    """Documents of words from the sample, about so many chunks in all; gives sentences of them as questions."""
    from rag_eval.sample import CORPUS

    folder.mkdir()
    rng = np.random.default_rng(20_240_501)
    seen = {word.strip("#*|`_().,:;") for path in CORPUS.rglob("*.md") for word in path.read_text("utf-8").split()}
    words = np.array(sorted(word for word in seen if word.isalpha()))
    rng.shuffle(words)
    weights = 1 / np.arange(10, len(words) + 10)  # Zipf's law, as words have it
    share = np.cumsum(weights / weights.sum())
    questions: list[str] = []
    documents = -(-chunks // CHUNKS_A_DOCUMENT)
    for number in range(documents):
        text = document(rng, words, share, CHUNKS_A_DOCUMENT * CHARACTERS_A_CHUNK)
        (folder / f"{number:06}.md").write_text(text, encoding="utf-8")
        if number % max(1, documents // QUERIES) == 0 and len(questions) < QUERIES:
            questions.append(text.split(". ")[3])
    return questions


def document(rng: np.random.Generator, words: Any, share: Any, characters: int) -> str:
    picked = words[
        np.minimum(np.searchsorted(share, rng.random(int(characters / CHARACTERS_A_WORD))), len(words) - 1)
    ].tolist()
    parts, begin = [], 0
    while begin < len(picked):
        length = int(rng.integers(6, 18))
        end = "\n\n" if rng.random() < 0.2 else " "
        parts.append(" ".join(picked[begin : begin + length]).capitalize() + "." + end)
        begin += length
    return "".join(parts)


def report(measured: dict[int, dict[str, Any]]) -> tuple[str, int]:
    """The figures as Markdown, and how many targets were missed."""
    sizes = list(measured)
    counts = [f"{one['chunks']:,} chunks" for one in measured.values()]
    lines = [f"| | {' | '.join(counts)} |", "|---|" + "---:|" * len(sizes)]

    def add(name: str, cell: Callable[[dict[str, Any]], str]) -> None:
        lines.append(f"| {name} | {' | '.join(cell(measured[size]) for size in sizes)} |")

    add("corpus, MB", lambda one: f"{one['megabytes']:.0f}")
    for stage in measured[sizes[0]]["stages"]:
        add(f"{stage}, ms CPU a chunk", lambda one, stage=stage: f"{1_000 * cpu(one, stage) / one['chunks']:.3f}")
    for stage in measured[sizes[0]]["stages"]:
        add(f"{stage}, GB at most", lambda one, stage=stage: f"{one['stages'][stage]['peak'] / 2**30:.2f}")
    for way in ("exact", "ivf-pq"):
        add(f"{way} search, ms a query", lambda one, way=way: f"{1_000 * one['query_seconds'][way] / QUERIES:.2f}")
    add("building ivf-pq alone, ms CPU a chunk", lambda one: f"{building(one):.3f}")
    add(f"what ivf-pq finds of the exact {DEPTH}", lambda one: f"{one['index_recall']:.3f}")
    add("minutes in all", lambda one: f"{sum(stage['seconds'] for stage in one['stages'].values()) / 60:.1f}")

    peak = max(stage["peak"] for stage in measured[sizes[-1]]["stages"].values())
    growth = cost(measured[sizes[-1]]) / cost(measured[sizes[0]])
    targets = [
        (f"peak memory at {sizes[-1]:,}", f"{peak / 2**30:.2f} GB", "6 GB at most", peak <= MOST_MEMORY),
        (f"cost a chunk against {sizes[0]:,}", f"{growth:.2f}", "1 at most", growth <= 1.0),
    ]
    verdicts = [f"| {name} | {seen} | {most} | {'reached' if ok else 'missed'} |" for name, seen, most, ok in targets]
    heading = (
        "# A million chunks\n\n"
        f"Seen on {datetime.now(UTC):%Y-%m-%d} with Python {platform.python_version()} on {platform.system()} "
        f"{platform.machine()}, by `make bench-large`: the pipeline's stages on a seeded corpus, cut into chunks of "
        f"{CHUNK_TOKENS} tokens, embedded by the local model, stored in LanceDB, and asked {QUERIES} questions.\n"
        f"The cost of a chunk is the CPU time of {', '.join(MAKING[:-1])} and {MAKING[-1]}.\n"
    )
    targets_table = "\n".join(["| figure | seen | target | |", "|---|---:|---:|---|", *verdicts])
    return f"{heading}\n{targets_table}\n\n" + "\n".join(lines) + "\n", sum(not ok for *_, ok in targets)


def cpu(one: dict[str, Any], stage: str) -> float:
    return float(one["stages"][stage]["cpu"])


def cost(one: dict[str, Any]) -> float:
    """CPU seconds a chunk until it can be searched."""
    return sum(cpu(one, stage) for stage in MAKING) / float(one["chunks"])


def building(one: dict[str, Any]) -> float:
    return 1_000 * (cpu(one, "store with ivf-pq") - cpu(one, "store")) / float(one["chunks"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        json.dump(measure(int(sys.argv[2]), Path(sys.argv[3])), sys.stdout)
    else:
        sys.exit(main([int(size) for size in sys.argv[1:]]))
