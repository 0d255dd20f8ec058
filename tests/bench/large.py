"""``make bench-large``: millions of chunks through the stages of the pipeline, written to ``RESULTS-large.md``.

A corpus of real text, repeated with edits, is cut, embedded with the local model, stored in LanceDB, counted by words
and searched by both, and the report is written; then one document is edited and all is run again. Each size runs in a
process of its own. Figures are CPU seconds of all threads, peak memory (without files mapped from the disk) and bytes
written. With numbers as arguments, those sizes are run in place of ``SIZES`` and the file is left alone.
"""

import gc
import json
import math
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
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
MAKING = ("load-corpus", "chunk", "embed", "index", "count-words")
MOST_MEMORY = {1_000_000: 1.5, 5_000_000: 2.0}
"""In GB, by the number of chunks."""
OUTLOOK = 100_000_000


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


class Measured:
    """Runs stages in a workspace, and notes the CPU seconds, the real seconds and the peak memory of each."""

    def __init__(self, workspace: Any) -> None:
        self.workspace = workspace
        self.taken: dict[str, dict[str, float]] = {}

    def __call__(self, stage: Any, *inputs: Any) -> Any:
        from rag_eval.benchmark.records import do_once

        return self.measured(stage.name, lambda: do_once(self.workspace, stage, inputs).result)

    def measured(self, name: str, work: Callable[[], Any]) -> Any:
        cpu, real, peak, done = time.process_time(), time.perf_counter(), [0], threading.Event()

        def watch() -> None:
            while not done.wait(0.05):
                peak[0] = max(peak[0], memory())

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            made = work()
        finally:
            peak[0] = max(peak[0], memory())
            done.set()
            watching.join()
        before = self.taken.get(name, {"cpu": 0.0, "seconds": 0.0, "peak": 0})
        self.taken[name] = {
            "cpu": before["cpu"] + time.process_time() - cpu,
            "seconds": before["seconds"] + time.perf_counter() - real,
            "peak": max(before["peak"], peak[0]),
        }
        print(f"{name}: {self.taken[name]}", file=sys.stderr, flush=True)
        return made


def measure(size: int, folder: Path) -> dict[str, Any]:
    """What the work on so many chunks takes, and what it takes after an edit."""
    from rag_eval.benchmark.engine import evaluate

    from rag_eval.benchmark import stages
    from rag_eval.benchmark.config_files import load_config
    from rag_eval.benchmark.inputs import BenchmarkInputs
    from rag_eval.benchmark.outcome import keep_outcome, summarise
    from rag_eval.cli.main import GARBAGE
    from rag_eval.pipeline.document_steps import CorpusSource
    from rag_eval.pipeline.ground_truth_steps import ground_truth
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.reports.write import keep_report

    gc.set_threshold(*GARBAGE)
    text = write_corpus(folder, size)
    (folder / "benchmark.yaml").write_text(
        "corpus: corpus\nground_truth: truth.jsonl\nretrieval: [vector, bm25]\nk: 5\nshards: 64\n"
        f"chunkers: {{type: recursive-token, chunk_size: {CHUNK_TOKENS}}}\n"
    )
    config, workspace = load_config(folder / "benchmark.yaml"), Workspace(root=folder / "work")

    def run() -> tuple[dict[str, Any], Any]:
        measured = Measured(workspace)
        source = measured.measured("look at the files", lambda: CorpusSource.of(config.corpus, config.glob))
        documents = measured(stages.load_corpus, source, config.shards)
        truth = ground_truth(
            measured, config.ground_truth, documents, config.evaluation_type, reanchor=False, copies=config.copies
        )
        inputs = BenchmarkInputs.of(config, documents, truth)
        made = [(one, evaluate(measured, one, inputs)) for one in config.configurations()]

        def report() -> None:
            done = [summarise(workspace, one, found, {}, inputs) for one, found in made]
            keep_report(workspace, keep_outcome(workspace, datetime.now(UTC), config, source, inputs, done, {}, {}))

        measured.measured("report", report)
        return measured.taken, made[0][1].chunks

    first, chunks = run()
    written = files(workspace.root)
    edited = folder / "corpus" / "000007.md"
    edited.write_text(edited.read_text("utf-8") + "\n\nA sentence that was not there before, about a new ferry.\n")
    second, _ = run()
    now = files(workspace.root)
    return {
        "text": text,
        "chunks": sum(shard.rows for shard in chunks),
        "shards": len(chunks),
        "megabytes": sum(path.stat().st_size for path in (folder / "corpus").iterdir()) / 1e6,
        "written": sum(written.values()),
        "written_after_edit": sum(now[name] for name in now.keys() - written.keys()),
        "stages": first,
        "stages_after_edit": second,
    }


def files(folder: Path) -> dict[str, int]:
    """What the stages have written, which is all but the reports."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "runs" not in path.relative_to(folder).parts)
    return {str(path): path.stat().st_size for path in paths}


def memory() -> int:
    """The memory of this process without the files that it maps, which the system takes back when it needs room."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])


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


def report(measured: dict[int, dict[str, Any]]) -> tuple[str, int]:
    """The figures as Markdown, and how many targets were missed."""
    sizes = list(measured)
    counts = " | ".join(f"{one['chunks']:,} chunks" for one in measured.values())
    lines = [f"| | {counts} |", "|---|" + "---:|" * len(sizes)]

    def add(name: str, cell: Callable[[dict[str, Any]], str]) -> None:
        lines.append(f"| {name} | {' | '.join(cell(measured[size]) for size in sizes)} |")

    add("corpus, MB", lambda one: f"{one['megabytes']:.0f}")
    add("shards", lambda one: f"{one['shards']}")
    for stage in measured[sizes[0]]["stages"]:
        add(f"{stage}, ms CPU a chunk", lambda one, stage=stage: f"{1_000 * cpu(one, stage) / one['chunks']:.3f}")
    for stage in measured[sizes[0]]["stages"]:
        add(f"{stage}, GB at most", lambda one, stage=stage: f"{one['stages'][stage]['peak'] / 2**30:.2f}")
    for stage in measured[sizes[0]]["stages_after_edit"]:
        add(f"{stage} after an edit, s CPU", lambda one, stage=stage: f"{one['stages_after_edit'][stage]['cpu']:.2f}")
    add("minutes of the first run", lambda one: f"{sum(stage['seconds'] for stage in one['stages'].values()) / 60:.1f}")

    targets = []
    for size in sizes:
        one = measured[size]
        edit, most = total(one["stages_after_edit"]) / total(one["stages"]), 0.05 if size < 1_000_000 else 0.03
        targets.append(
            (f"{size:,}: the stages after an edit, of the first run's CPU", f"{edit:.3f}", most, edit <= most)
        )
        share = one["written_after_edit"] / one["written"]
        targets.append((f"{size:,}: bytes written after it, of the first run's", f"{share:.3f}", most, share <= most))
        both = [*one["stages"].values(), *one["stages_after_edit"].values()]
        peak = max(stage["peak"] for stage in both) / 2**30
        limit = MOST_MEMORY.get(size, min(MOST_MEMORY.values()))
        targets.append((f"{size:,}: peak memory, GB", f"{peak:.2f}", limit, peak <= limit))
    growth = cost(measured[sizes[-1]]) / cost(measured[sizes[0]])
    targets.append((f"cost a chunk at {sizes[-1]:,} against {sizes[0]:,}", f"{growth:.2f}", 1.2, growth <= 1.2))
    verdicts = [f"| {name} | {seen} | {most} | {'reached' if ok else 'missed'} |" for name, seen, most, ok in targets]
    heading = (
        "# Millions of chunks\n\n"
        f"Seen on {datetime.now(UTC):%Y-%m-%d} with Python {platform.python_version()} on {platform.system()} "
        f"{platform.machine()}, by `make bench-large`: real text ({measured[sizes[-1]]['text']}), repeated with edits, "
        f"cut into chunks of {CHUNK_TOKENS} tokens, embedded by the local model, stored in LanceDB, and asked "
        f"{QUERIES} questions, by vectors and by words. Memory is that of the process "
        f"without files mapped from the disk.\nThe cost of a chunk is the CPU time of {', '.join(MAKING)}. The report, "
        "which every run writes, is apart from the stages.\n"
    )
    targets_table = "\n".join(["| figure | seen | at most | |", "|---|---:|---:|---|", *verdicts])
    told = f"{heading}\n{targets_table}\n\n{outlook([*measured.values()])}\n\n"
    return told + "\n".join(lines) + "\n", sum(not ok for *_, ok in targets)


def outlook(every: list[dict[str, Any]]) -> str:
    """What the figures mean for a hundred million chunks."""
    first, last = every[0], every[-1]
    line = ", ".join(f"{1_000 * cost(one):.3f} ms at {one['chunks']:,}" for one in every)
    hours, shards = cost(last) * OUTLOOK / 3_600, 2 ** math.ceil(math.log2(OUTLOOK / 100_000))
    peak = max(last["stages"][stage]["peak"] for stage in (*MAKING, "retrieve-by-vector")) / 2**30
    words, vectors = (1e6 * cpu(last, f"retrieve-by-{what}") / last["chunks"] for what in ("words", "vector"))
    peaks = [one["stages"]["retrieve-by-words"]["peak"] for one in (first, last)]
    grows = max(0.0, peaks[1] - peaks[0]) / max(1, last["chunks"] - first["chunks"])
    return (
        f"The cost of a chunk against the size: {line}. So {OUTLOOK:,} chunks take about {hours:.0f} hours of a core "
        f"until they can be searched: {hours / 8:.1f} hours on 8 workers, {60 * hours / 64:.0f} minutes on 64, with "
        f"`shards: {shards}`, each as large as those of {last['chunks']:,} chunks here, in {peak:.1f} GB a worker.\n"
        f"{QUERIES} questions by vectors take {vectors:.1f} s of a core a million chunks, shared by all workers; by "
        f"words {words:.1f} s a million, on one worker, whose memory grew by {grows:.0f} bytes a chunk: about "
        f"{grows * OUTLOOK / 2**30:.0f} GB for {OUTLOOK:,}."
    )


def total(taken: dict[str, dict[str, float]]) -> float:
    return sum(stage["cpu"] for name, stage in taken.items() if name != "report")


def cpu(one: dict[str, Any], stage: str) -> float:
    return float(one["stages"][stage]["cpu"])


def cost(one: dict[str, Any]) -> float:
    """CPU seconds a chunk until it can be searched."""
    return sum(cpu(one, stage) for stage in MAKING) / float(one["chunks"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        json.dump(measure(int(sys.argv[2]), Path(sys.argv[3])), sys.stdout)
    else:
        sys.exit(main([int(size) for size in sys.argv[1:]]))
