"""``make bench-large``: millions of chunks through ``rag-eval run``, written to ``RESULTS-large.md``.

A corpus of real text, repeated with edits, is cut, embedded with the local model, stored in LanceDB, counted by words
and searched by both, and the report is written; then one document is edited and all is run again. Settings are the
defaults. Figures are CPU seconds of all processes, the temporary Prefect server among them, less those of a run of two
documents; peak memory of the command (without files mapped from the disk); and bytes written. With numbers as
arguments, those sizes are run in place of ``SIZES`` and the file is left alone.
"""

import json
import platform
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

SIZES = [100_000, 1_000_000, 5_000_000]
QUERIES = 200
CHUNK_TOKENS, CHUNKS_A_DOCUMENT = 64, 1_000
CHARACTERS_A_CHUNK = 265  # what such a chunk of this corpus has
EDITED = 8
"""Of so many words one is another in each copy of the text."""
RESULTS = Path(__file__).parent / "RESULTS-large.md"
CHROMA = Path(__file__).parents[3] / "shared" / "data" / "chroma"
MOST_MEMORY = {1_000_000: 1.5, 5_000_000: 2.0}
"""In GB, by the number of chunks."""
BENCHMARK = f"""corpus: corpus
ground_truth: truth.jsonl
retrieval: [vector, bm25]
k: 5
chunkers: {{type: recursive-token, chunk_size: {CHUNK_TOKENS}}}
"""


@dataclass(frozen=True)
class Measured:
    """One run of the command: CPU seconds with children, real seconds, bytes of peak memory, and its summary."""

    cpu: float
    seconds: float
    peak: int
    outcome: dict[str, Any]


def main(sizes: list[int]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder), 2)
        base = run(Path(folder)).cpu
    measured = {}
    for size in sizes or SIZES:
        with tempfile.TemporaryDirectory() as folder:
            measured[size] = figures(size, Path(folder), base)
        print(json.dumps(measured[size], indent=2), flush=True)
    text, missed = report(measured, base)
    print(text)
    if not sizes:
        RESULTS.write_text(text, encoding="utf-8")
    return min(missed, 1)


def figures(size: int, folder: Path, base: float) -> dict[str, Any]:
    """What the work on so many chunks takes, and what it takes after an edit."""
    text = write_corpus(folder, size)
    first = run(folder)
    written = files(folder / ".rag-eval")
    edited = folder / "corpus" / "000007.md"
    edited.write_text(edited.read_text("utf-8") + "\n\nA sentence that was not there before, about a new ferry.\n")
    second = run(folder)
    now = files(folder / ".rag-eval")
    return {
        "text": text,
        "chunks": first.outcome["configurations"][0]["chunks"]["count"],
        "shards": len(first.outcome["inputs"]["documents"]),
        "megabytes": sum(path.stat().st_size for path in (folder / "corpus").iterdir()) / 1e6,
        "cpu": first.cpu - base,
        "cpu_after_edit": second.cpu - base,
        "minutes": first.seconds / 60,
        "minutes_after_edit": second.seconds / 60,
        "peak": max(first.peak, second.peak) / 2**30,
        "written": sum(written.values()),
        "written_after_edit": sum(now[name] for name in now.keys() - written.keys()),
    }


def run(folder: Path) -> Measured:
    """Run the benchmark of a folder."""
    (folder / "benchmark.yaml").write_text(BENCHMARK)
    command = [str(Path(sys.executable).with_name("rag-eval")), "run", "benchmark.yaml", "--json"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE)
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], memory(process.pid))

    watching = threading.Thread(target=watch)
    watching.start()
    output, _ = process.communicate()
    done.set()
    watching.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(cpu, time.perf_counter() - began, peak[0], json.loads(output))


def files(folder: Path) -> dict[str, int]:
    """What a run has written but for the reports."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "runs" not in path.relative_to(folder).parts)
    return {str(path): path.stat().st_size for path in paths}


def memory(process: int) -> int:
    """The memory of a process without the files that it maps, which the system takes back when it needs room."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    line = next((line for line in status.splitlines() if line.startswith("RssAnon")), "RssAnon: 0")
    return 1024 * int(line.split()[1])


def write_corpus(folder: Path, chunks: int) -> str:
    """Documents of real text, each passage of it in other words every time, and questions about sentences of them.

    Gives what the text is.
    """
    from rag_eval.sample import CORPUS

    sources = [CORPUS, CHROMA / "corpora"] if CHROMA.is_dir() else [CORPUS]
    paths = [path for one in sources for path in sorted(one.rglob("*.md"))]
    text = "\n\n".join(path.read_text("utf-8") for path in paths)
    words = re.findall(r"\S+\s*", text)
    rng = np.random.default_rng(20_240_501)
    plain = [word.strip() for word in words if word.strip().isalpha()]
    (folder / "corpus").mkdir()
    documents, begin, lines = -(-chunks // CHUNKS_A_DOCUMENT), 0, []
    for number in range(documents):
        taken, length = [], 0
        while length < CHUNKS_A_DOCUMENT * CHARACTERS_A_CHUNK:
            part = words[begin : begin + 4_000]
            begin = begin + 4_000 if begin + 4_000 < len(words) else int(rng.integers(0, 4_000))
            for place in rng.integers(0, len(part), len(part) // EDITED).tolist():
                part[place] = plain[int(rng.integers(len(plain)))] + " "
            taken += part
            length += sum(map(len, part))
        content = "".join(taken)[: CHUNKS_A_DOCUMENT * CHARACTERS_A_CHUNK]
        (folder / "corpus" / f"{number:06}.md").write_text(content, encoding="utf-8")
        for start in rng.integers(0, len(content) - 500, -(-QUERIES // documents)).tolist():
            if len(lines) < QUERIES:
                span = content[start : start + 150]
                relevant = [{"doc_id": f"{number:06}.md", "start": start, "end": start + 150, "text": span}]
                lines.append(json.dumps({"query": f"{len(lines)} {span[20:100]}", "relevant_spans": relevant}))
    (folder / "truth.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "the sample's and Chroma's" if CHROMA.is_dir() else "the sample's"


def report(measured: dict[int, dict[str, Any]], base: float) -> tuple[str, int]:
    """The figures as Markdown, and how many targets were missed."""
    every = list(measured.values())
    rows = {
        "corpus, MB": [f"{one['megabytes']:.0f}" for one in every],
        "shards": [f"{one['shards']}" for one in every],
        "first run, s CPU": [f"{one['cpu']:.1f}" for one in every],
        "first run, ms CPU a chunk": [f"{1_000 * one['cpu'] / one['chunks']:.3f}" for one in every],
        "first run, minutes": [f"{one['minutes']:.1f}" for one in every],
        "after an edit, s CPU": [f"{one['cpu_after_edit']:.1f}" for one in every],
        "after an edit, minutes": [f"{one['minutes_after_edit']:.1f}" for one in every],
        "written, MB": [f"{one['written'] / 1e6:.0f}" for one in every],
        "peak memory, GB": [f"{one['peak']:.2f}" for one in every],
    }
    heads = " | ".join(f"{one['chunks']:,} chunks" for one in every)
    lines = [f"| | {heads} |", "|---|" + "---:|" * len(every)]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
    targets: list[tuple[str, float, float]] = []
    for size, one in measured.items():
        most = 0.05 if size < 1_000_000 else 0.03
        targets.append((f"{size:,}: an edit, of the first run's CPU", one["cpu_after_edit"] / one["cpu"], most))
        share = one["written_after_edit"] / one["written"]
        targets.append((f"{size:,}: bytes written after it, of the first run's", share, most))
        limit = MOST_MEMORY.get(size, min(MOST_MEMORY.values()))
        targets.append((f"{size:,}: peak memory, GB", one["peak"], limit))
    growth = (every[-1]["cpu"] / every[-1]["chunks"]) / (every[0]["cpu"] / every[0]["chunks"])
    targets.append(("cost a chunk, the largest against the smallest", growth, 1.2))
    verdicts = [
        f"| {name} | {seen:.3f} | {most} | {'reached' if seen <= most else 'missed'} |" for name, seen, most in targets
    ]
    heading = (
        "# Millions of chunks\n\n"
        f"Seen on {datetime.now(UTC):%Y-%m-%d} with Python {platform.python_version()} on {platform.system()} "
        f"{platform.machine()}, by `make bench-large`: `rag-eval run` on real text ({every[-1]['text']}), repeated "
        f"with edits, cut into chunks of {CHUNK_TOKENS} tokens, embedded by the local model, stored in LanceDB, and "
        f"asked {QUERIES} questions, by vectors and by words. CPU seconds are those of all processes, less the "
        f"{base:.1f} of a run of two documents. Memory is that of the command without files mapped from the disk.\n"
    )
    table = "\n".join(["| figure | seen | at most | |", "|---|---:|---:|---|", *verdicts])
    return f"{heading}\n{table}\n\n" + "\n".join(lines) + "\n", sum(seen > most for _, seen, most in targets)


if __name__ == "__main__":
    sys.exit(main([int(one) for one in sys.argv[1:]]))
