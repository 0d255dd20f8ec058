"""The pipeline against the plain library on the same work, and what a second run and an edit cost.

Each figure is the CPU time of whole processes: ``rag-eval run``, and a script that does the
same with the library and LanceDB, recall within the largest budget of a report included. Both have a fixed start-up,
stated apart: that of the same benchmark on a corpus of one short document. The two sides take turns, and of each time
the least over the rounds counts: whatever else the machine does can only add to it, and on two cores it adds a third
at times.
"""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tests.bench.distinct_texts import distinct_texts

DOCUMENTS, CHARACTERS = 100, 16_000_000
ROUNDS = 3
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


@dataclass(frozen=True)
class Round:
    """CPU seconds: the start-ups, the library's work, the pipeline's, and the pipeline's again.

    A run that computes nothing imports less, so that its start-up is its own.
    """

    startup: float
    warm_startup: float
    library_startup: float
    library: float
    cold: float
    warm: float

    @property
    def work(self) -> float:
        return self.library - self.library_startup

    @property
    def overhead(self) -> float:
        return (self.cold - self.startup) / self.work - 1

    @property
    def again(self) -> float:
        return max(0.0, self.warm - self.warm_startup) / (self.cold - self.startup)


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        return figures(Path(folder))


def figures(root: Path) -> list[dict[str, Any]]:
    large, small = write_corpus(root / "large", DOCUMENTS, CHARACTERS), write_corpus(root / "small", 1, 500)
    pipeline(root, "warm-up", small)  # the first server on a machine migrates its database
    rounds, computed_again = [], 0
    for number in range(ROUNDS):
        found, first, again = one_round(root, large, small, library_first=number % 2 == 0)
        rounds.append(found)
        computed_again += computed(again)
    edited = large[0] / "050.md"
    edited.write_text("One more line.\n\n" + edited.read_text(encoding="utf-8"), encoding="utf-8")
    _, third = pipeline(root, "work", large)
    embedded = fresh_texts(third) / fresh_texts(first)

    least = Round(*(min(getattr(one, field.name) for one in rounds) for field in fields(Round)))
    return [
        figure("pipeline: fixed start-up, server included", least.startup, None, "s CPU"),
        figure("pipeline: that of a run that computes nothing", least.warm_startup, None, "s CPU"),
        figure("pipeline: the library's start-up", least.library_startup, None, "s CPU"),
        figure("pipeline: the library, 16 MB, two configurations", least.work, None, "s CPU"),
        figure("pipeline: beyond its start-up", least.cold - least.startup, None, "s CPU"),
        figure("pipeline: overhead (at most)", least.overhead, 0.15, "of the library's"),
        figure("pipeline: a second run (at most)", least.again, 0.05, "of the first"),
        figure("pipeline: stages computed by the second runs", computed_again, 0, ""),
        figure("pipeline: texts embedded after an edit of 1 of 100 documents (at most)", embedded, 0.05, "of all"),
    ]


def one_round(
    root: Path, large: tuple[Path, Path], small: tuple[Path, Path], *, library_first: bool
) -> tuple[Round, dict[str, Any], dict[str, Any]]:
    """What each side takes, and the outcomes of the pipeline's two runs on the large corpus."""
    for name in ("work", "startup", "lance", "lance-small"):
        shutil.rmtree(root / name, ignore_errors=True)
    library: list[float] = []

    def measure_library() -> None:
        for corpus, store in ((small, "lance-small"), (large, "lance")):
            arguments = [*map(str, corpus), str(root / store)]
            library.append(cpu_of([sys.executable, "-c", LIBRARY, *arguments], root)[0])

    if library_first:
        measure_library()
    startup, warm_startup = pipeline(root, "startup", small)[0], pipeline(root, "startup", small)[0]
    cold, first = pipeline(root, "work", large)
    warm, again = pipeline(root, "work", large)
    if not library_first:
        measure_library()
    return Round(startup, warm_startup, library[0], library[1], cold, warm), first, again


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
