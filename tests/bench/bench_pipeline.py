"""The pipeline against the plain library on the same work, and what a second run and an edit cost.

Each figure is the CPU time of whole processes: ``rag-eval run`` with its temporary server, and a script that does the
same with the library and LanceDB. The fixed start-up is that of the same benchmark on a corpus of one short document.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.bench_chunking import distinct_texts

DOCUMENTS, CHARACTERS = 100, 16_000_000
SIZES = [200, 400]
BENCHMARK = "corpus: {corpus}\nground_truth: {truth}\nchunkers: {{type: recursive-token, chunk_size: [200, 400]}}\n"
LIBRARY = """
import sys
from pathlib import Path
from rag_eval import Corpus, LanceDBVectorStore, LocalEmbedder, RecursiveTokenChunker, TokenLevelEvaluation
evaluation = TokenLevelEvaluation(Corpus.from_folder(sys.argv[1]), sys.argv[2])
for size in (200, 400):
    store = LanceDBVectorStore(Path(sys.argv[3]) / str(size))
    evaluation.run(RecursiveTokenChunker(chunk_size=size), LocalEmbedder(), k=5, vector_store=store)
"""


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        return figures(Path(folder))


def figures(root: Path) -> list[dict[str, Any]]:
    large, small = write_corpus(root / "large", DOCUMENTS, CHARACTERS), write_corpus(root / "small", 1, 500)
    pipeline(root, "warm-up", small)  # the first server on a machine migrates its database
    startup, _ = pipeline(root, "startup", small)
    library_startup = cpu_of([sys.executable, "-c", LIBRARY, *map(str, small), str(root / "lance-small")], root)[0]
    library = cpu_of([sys.executable, "-c", LIBRARY, *map(str, large), str(root / "lance")], root)[0] - library_startup
    cold, first = pipeline(root, "work", large)
    warm, second = pipeline(root, "work", large)
    edited = large[0] / "050.md"
    edited.write_text("One more line.\n\n" + edited.read_text(encoding="utf-8"), encoding="utf-8")
    _, third = pipeline(root, "work", large)
    overhead = (cold - startup) / library - 1
    again = max(0.0, warm - startup) / (cold - startup)
    embedded = fresh_texts(third) / fresh_texts(first)
    return [
        figure("pipeline: fixed start-up, server included", startup, None, "s CPU"),
        figure("pipeline: the library's start-up", library_startup, None, "s CPU"),
        figure("pipeline: the library, 16 MB in 100 documents, two configurations", library, None, "s CPU"),
        figure("pipeline: the pipeline beyond its start-up", cold - startup, None, "s CPU"),
        figure("pipeline: overhead beyond the start-up (at most)", overhead, 0.15, "of the library's"),
        figure("pipeline: a second run beyond the start-up (at most)", again, 0.05, "of the first"),
        figure("pipeline: stages computed by the second run", computed(second), 0, ""),
        figure("pipeline: texts embedded after an edit of 1 of 100 documents (at most)", embedded, 0.05, "of all"),
    ]


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


def computed(outcome: dict[str, Any]) -> int:
    groups = [outcome["stages"], *(one["stages"] for one in outcome["configurations"])]
    return sum(stage["work"] == "computed" for stages in groups for stage in stages.values())


def fresh_texts(outcome: dict[str, Any]) -> int:
    return sum(int(one["stages"]["embed"]["effort"]["fresh"]) for one in outcome["configurations"])


def write_corpus(folder: Path, documents: int, characters: int) -> tuple[Path, Path]:
    (folder / "docs").mkdir(parents=True)
    text = "\n\n".join(distinct_texts(characters, seed=5))[:characters]
    size = -(-len(text) // documents)
    rng = random.Random(5)  # noqa: S311  # for places, not for secrets
    lines = []
    for number in range(documents):
        content = text[number * size : (number + 1) * size]
        (folder / "docs" / f"{number:03}.md").write_text(content, encoding="utf-8", newline="")
        if number == 50:
            continue  # edited later, so nothing is asked of it
        start = rng.randrange(len(content) - 150)
        span = {"doc_id": f"{number:03}.md", "start": start, "end": start + 120, "text": content[start : start + 120]}
        lines.append(json.dumps({"query": f"{number} {content[start + 20 : start + 100]}", "relevant_spans": [span]}))
    (folder / "truth.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder / "docs", folder / "truth.jsonl"
