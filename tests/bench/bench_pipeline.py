"""What a run costs on Prefect: the sample, a run that finds nothing changed, a large corpus, and an edit of it.

Each figure is the CPU time of whole processes with their children, the temporary Prefect server among them. The sample
is compared with a Prefect flow of the same subflows and tasks that do nothing, and with the same configurations
evaluated in memory. The large corpus is compared with the plain library on the same work; both have a fixed start-up,
that of the same benchmark on a corpus of one or two short documents. Of each time the least over the rounds counts:
whatever else the machine does can only add to it.
"""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.distinct_texts import distinct_texts

DOCUMENTS, CHARACTERS = 100, 19_000_000
ROUNDS = 2
BENCHMARK = "corpus: {corpus}\nground_truth: {truth}\nchunkers: {{type: recursive-token, chunk_size: [200, 400]}}\n"
LIBRARY = """
import sys
from pathlib import Path
from rag_eval import Corpus, LanceDBVectorStore, LocalEmbedder, RecursiveTokenChunker, TokenLevelEvaluation
evaluation = TokenLevelEvaluation(Corpus.from_folder(sys.argv[1]), sys.argv[2])
metrics = ["span_recall", "span_precision", "span_iou", "recall_within_tokens@16000"]
for size in (200, 400):
    store = LanceDBVectorStore(Path(sys.argv[3]) / str(size))
    evaluation.run(RecursiveTokenChunker(chunk_size=size), LocalEmbedder(), k=5, vector_store=store, metrics=metrics)
"""


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        return [*sample_figures(Path(folder)), *large_figures(Path(folder))]


def sample_figures(root: Path) -> list[dict[str, Any]]:
    command = [str(Path(sys.executable).with_name("rag-eval")), "run", "--workspace"]
    empty, memory, cold, unchanged = [], [], [], []
    for number in range(ROUNDS):
        place = str(root / f"sample-{number}")
        empty.append(cpu_of([sys.executable, "-m", "tests.bench.empty_flow", f"{place}-empty"], root)[0])
        memory.append(cpu_of([sys.executable, "-m", "tests.bench.sample_in_memory"], root)[0])
        cold.append(cpu_of([*command, place], root)[0])
        unchanged.append(cpu_of([*command, place], root)[0])
    ratio = min(cold) / (min(empty) + min(memory))
    return [
        figure("sample: a flow of the same tasks that do nothing", min(empty), None, "s CPU"),
        figure("sample: the same configurations in memory", min(memory), None, "s CPU"),
        figure("sample: the first run", min(cold), None, "s CPU"),
        figure("sample: the first run, of both together (at most)", ratio, 1.3, "x"),
        figure("sample: a run that finds nothing changed (at most)", min(unchanged), 2.5, "s CPU"),
    ]


def large_figures(root: Path) -> list[dict[str, Any]]:
    large, small = write_corpus(root / "large", DOCUMENTS, CHARACTERS), write_corpus(root / "small", 2, 1_000)
    base = min(pipeline(root, f"small-{number}", small)[0] for number in range(ROUNDS))
    start = min(library(root, small) for _ in range(ROUNDS))
    work = library(root, large) - start
    cold, _ = pipeline(root, "work", large)
    edited = large[0] / "050.md"
    edited.write_text("One more line.\n\n" + edited.read_text(encoding="utf-8"), encoding="utf-8")
    edit, outcome = pipeline(root, "work", large)
    return [
        figure("pipeline: a cold run of two documents", base, None, "s CPU"),
        figure("pipeline: the library, 19 MB, two configurations, beyond its start-up", work, None, "s CPU"),
        figure("pipeline: the first run of them, less the run of two documents", cold - base, None, "s CPU"),
        figure("pipeline: of the library's", (cold - base) / work, None, "x"),
        figure("pipeline: an edit of 1 of 100 documents (at most)", (edit - base) / (cold - base), 0.1, "of the first"),
        figure("pipeline: texts embedded after it (at most)", fresh_texts(outcome), None, "texts"),
        figure("pipeline: shards", len(outcome["inputs"]["documents"]), None, ""),
    ]


def library(root: Path, corpus: tuple[Path, Path]) -> float:
    shutil.rmtree(root / "lance", ignore_errors=True)
    return cpu_of([sys.executable, "-c", LIBRARY, *map(str, corpus), str(root / "lance")], root)[0]


def figure(name: str, value: float, most: float | None, unit: str) -> dict[str, Any]:
    return {"name": name, "value": value, "target": most, "unit": unit, "ok": most is None or value <= most}


def pipeline(root: Path, workspace: str, corpus: tuple[Path, Path]) -> tuple[float, dict[str, Any]]:
    config = root / f"{workspace}.yaml"
    config.write_text(BENCHMARK.format(corpus=corpus[0], truth=corpus[1]))
    command = str(Path(sys.executable).with_name("rag-eval"))
    seconds, output = cpu_of([command, "run", str(config), "--workspace", str(root / workspace), "--json"], root)
    outcome: dict[str, Any] = json.loads(output)
    return seconds, outcome


def cpu_of(command: list[str], cwd: Path) -> tuple[float, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def fresh_texts(outcome: dict[str, Any]) -> int:
    return sum(int(one["steps"]["embed"]["effort"]["fresh"]) for one in outcome["configurations"])


def write_corpus(folder: Path, documents: int, characters: int) -> tuple[Path, Path]:
    (folder / "docs").mkdir(parents=True)
    text = "\n\n".join(distinct_texts(characters, seed=5))[:characters]
    size = -(-len(text) // documents)
    rng = random.Random(5)  # noqa: S311  # for places, not for secrets
    lines = []
    for number in range(documents):
        content = text[number * size : (number + 1) * size]
        (folder / "docs" / f"{number:03}.md").write_text(content, encoding="utf-8", newline="")
        if number == 50 and documents > 50:
            continue  # edited later, so nothing is asked of it
        start = rng.randrange(len(content) - 150)
        span = {"doc_id": f"{number:03}.md", "start": start, "end": start + 120, "text": content[start : start + 120]}
        lines.append(json.dumps({"query": f"{number} {content[start + 20 : start + 100]}", "relevant_spans": [span]}))
    (folder / "truth.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder / "docs", folder / "truth.jsonl"
