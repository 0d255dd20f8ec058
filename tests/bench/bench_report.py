"""What a report costs for each question as questions grow, and how the page behaves in a browser at that size.

A run of ten configurations is made up from seeded numbers: five ways to cut 200 documents, two searches each. The cost
is CPU seconds of writing all files of the report; the browser is headless Chromium, and what is measured is the CPU
time of the page's main thread, which is how long the page stands still on a machine that has nothing else to do, and
the longest task by the wall clock, which is how long it stood still on this one.
"""

import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.pipeline.document_steps import CorpusSource, write_chunks
from rag_eval.pipeline.hits import hits_at
from rag_eval.pipeline.inputs import BenchmarkInputs
from rag_eval.pipeline.references import ChunksRef, HitsRef, TruthRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.write import keep_report, page_of
from rag_eval.results.outcome import BenchmarkOutcome, Evaluated, StepRecorder, keep_outcome
from rag_eval.stores.rankings import Ranking
from rag_eval.tables import CHUNKS, as_searches, documents_to_table, table_of, truth_to_tables
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from tasks.score import score

DOCUMENTS, LENGTH, DEPTH = 200, 20_000, 20
SIZES = (400, 600, 800, 1_000, 1_200)
FEW, MANY = 500, 5_000
TURNS = 3
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FREEZE_MS = 200.0
LARGEST_MB = 5.0


def make_corpus(rng: np.random.Generator) -> Corpus:
    """Documents of made-up words, with an emoji here and there."""
    letters = np.array(list("etaoinshrdlu"))
    words = ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(3_000)] + ["🚢", "é"]
    documents = []
    for number in range(DOCUMENTS):
        text = " ".join(words[place] for place in rng.integers(0, len(words), LENGTH // 6))
        documents.append(Document(f"guides/page_{number:04}.md", text.ljust(LENGTH, ".")[:LENGTH]))
    return Corpus(documents)


def make_truth(corpus: Corpus, queries: int, rng: np.random.Generator) -> list[TokenLevelGroundTruth]:
    """Questions with one to three spans, all in one document."""
    truth = []
    for number in range(queries):
        document = corpus.documents[int(rng.integers(DOCUMENTS))]
        spans = []
        for start in rng.integers(0, LENGTH - 400, rng.integers(1, 4)).tolist():
            end = start + int(rng.integers(60, 300))
            spans.append(CharacterSpan(document.id, start, end, document.content[start:end]))
        kind = {"difficulty": ("easy", "hard")[number % 2]}
        truth.append(
            TokenLevelGroundTruth(Query(f"query_{number:05}", f"Question {number}: {spans[0].text[:70]}?", kind), spans)
        )
    return truth


def make_hits(
    chunks: pa.Table, truth: list[TokenLevelGroundTruth], queries: pa.Table, size: int, rng: np.random.Generator
) -> pa.Table:
    """Hits of which every third is near the truth of its question."""
    each = LENGTH // size
    document = np.array([int(one.relevant_spans[0].doc_id[-7:-3]) for one in truth])
    start = np.array([one.relevant_spans[0].start for one in truth])
    near = document * each + np.minimum(start // size, each - 1)
    number = rng.integers(0, DOCUMENTS * each, (len(truth), DEPTH))
    aimed = rng.random(number.shape) < 0.3
    aimed_at = np.clip(near[:, None] + rng.integers(-3, 4, number.shape), 0, DOCUMENTS * each - 1)
    number = np.where(aimed, aimed_at, number)
    # A chunk is retrieved once: a second time it is moved on by a step of its rank.
    for rank in range(1, DEPTH):
        while (again := (number[:, :rank] == number[:, rank : rank + 1]).any(axis=1)).any():
            number[again, rank] = (number[again, rank] + 7 * rank + 1) % (DOCUMENTS * each)
    query, rank = np.divmod(np.arange(number.size), DEPTH)
    return hits_at("words", chunks, as_searches(queries), Ranking(query, number.ravel(), 1 / (rank + 1.0)))


def make_run(workspace: Workspace, queries: int) -> BenchmarkOutcome:
    """Ten configurations in the workspace, as a benchmark leaves them."""
    rng = np.random.default_rng(20240711)
    corpus = make_corpus(rng)
    truth = make_truth(corpus, queries, rng)
    tables = truth_to_tables(truth)
    folder = workspace.root / "docs"
    config = BenchmarkConfig(
        corpus=folder,
        ground_truth=folder / "truth.jsonl",
        chunkers=[RecursiveCharacterChunker(chunk_size=size) for size in SIZES],
        retrieval=["vector", "bm25"],
        k=[1, 3, 5, 10],
        metrics=["span_recall", "span_precision", "span_iou", "span_ndcg", "tokens_retrieved"],
    )
    documents = workspace.write_table("documents", documents_to_table(corpus))
    truth_ref = TruthRef(
        evaluation_type="token-level",
        queries=workspace.write_table("queries", tables.queries),
        answers=workspace.write_table("truth", tables.answers),
    )
    inputs = BenchmarkInputs.of(config, [documents], truth_ref)
    done = []
    cut: dict[int, tuple[pa.Table, ChunksRef]] = {}
    for configuration in config.configurations():
        size = configuration.chunker.chunk_size
        if size not in cut:
            table = _windows(corpus, size)
            cut[size] = (table, write_chunks(workspace, table))
        chunks, chunk_ref = cut[size]
        table = make_hits(chunks, truth, tables.queries, size, rng)
        hits = HitsRef(stages={"words": workspace.write_table("hits", table)}, chunks=[chunk_ref])
        scores = score.fn(hits, truth_ref, inputs.documents, inputs.metrics, inputs.ks, workspace=workspace)
        evaluated = Evaluated(configuration, {}, [chunk_ref], [], None, hits, scores)
        done.append(evaluated.summary(StepRecorder(begun=datetime.now(UTC)), queries))
    source = CorpusSource(folder=folder, glob="**/*.md", digest="0" * 64)
    return keep_outcome(workspace, datetime.now(UTC), config, source, inputs, done, {}, {})


def _windows(corpus: Corpus, size: int) -> pa.Table:
    each = LENGTH // size
    rows = []
    for document in corpus.documents:
        for place in range(each):
            start, end = place * size, LENGTH if place == each - 1 else (place + 1) * size
            text = document.content[start:end]
            rows.append((f"pa_chunk_{len(rows):012x}", document.id, start, end, place, text, None, "{}"))
    return table_of(CHUNKS, rows)


ACT = """
async ([kind, id, value]) => {
  const element = document.getElementById(id);
  if (kind === "key") {
    element.dispatchEvent(new KeyboardEvent("keydown", { key: value, bubbles: true }));
  } else if (kind === "row") {
    const rows = [...element.querySelectorAll("[role=option]")];
    rows[Math.floor(rows.length / 2)].click();
  } else if (kind === "scroll") {
    element.scrollTop = value * element.scrollHeight;
  } else {
    element.value = value;
    element.dispatchEvent(new Event("input", { bubbles: true }));
  }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 60)));
}
"""
# The longest task of the page's main thread, in milliseconds; those below 50 are not told.
WATCH = """
window.longest = 0;
const note = (list) => list.getEntries().forEach(({ duration }) => (longest = Math.max(longest, duration)));
new PerformanceObserver(note).observe({ type: "longtask", buffered: true });
"""
OPENED = "() => !document.querySelector('figure:not([hidden]) .drawing:empty')"
OPENING, ANY = "opening the page", "any act"
Act = tuple[str, str, str | int | float]
ACTS: dict[str, list[Act]] = {
    "filter": [("set", "search", words) for words in ("q", "question 4", "no such", "")]
    + [("set", "shown", shown) for shown in ("nothing", "part", "better", "all")]
    + [("set", "tag", value) for value in (1, -1)]
    + [("set", "find", words) for words in ("bm25", "")],
    "sort": [("set", "order", order) for order in ("differ", "better", "lower", "best", "dataset", "worst")],
    "compare": [("set", "side-a", 4), ("set", "side-b", 7), ("set", "cut", 1), ("set", "cut", 0)],
    "read": [("set", "read", place) for place in (0, 12, 24)],
    "scroll": [("scroll", "list", turn / 12) for turn in range(12)],
    "open": [act for turn in range(12) for act in (("scroll", "list", turn / 12), ("row", "list", 0))]
    + [("key", "list", "j")] * 8,
}


def in_browser(page_file: Path) -> tuple[dict[str, float], dict[str, float]]:
    """For each thing a reader does the most CPU milliseconds of the page's main thread that one such act took; and the
    longest task, in milliseconds of the wall clock, while opening the page and in any act."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.add_init_script(WATCH)
        page.goto(page_file.as_uri())
        page.wait_for_selector("#question[data-drawn]")
        page.wait_for_function(OPENED)
        longest = {OPENING: float(page.evaluate("longest"))}
        page.evaluate("longest = 0")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def busy() -> float:
            metrics = session.send("Performance.getMetrics")["metrics"]
            return 1_000 * float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

        spent: dict[str, float] = {}
        for name, acts in ACTS.items():
            for act in acts:
                before = busy()
                page.evaluate(ACT, list(act))
                spent[name] = max(spent.get(name, 0.0), busy() - before)
        longest[ANY] = float(page.evaluate("longest"))
        browser.close()
    return spent, longest


def cost(workspace: Workspace, outcome: BenchmarkOutcome) -> float:
    """CPU seconds of writing all files of a report."""
    started = time.process_time()
    keep_report(workspace, outcome)
    return time.process_time() - started


def run() -> list[dict[str, Any]]:
    """The figures: cost per question at both sizes, the page's size, and how long it stands still in the browser."""
    with tempfile.TemporaryDirectory() as folder:
        seconds: dict[int, list[float]] = {FEW: [], MANY: []}
        runs = {}
        for size in (FEW, MANY):
            workspace = Workspace(root=Path(folder) / str(size))
            runs[size] = workspace, make_run(workspace, size)
            keep_report(*runs[size])  # what is done once, such as imports, is not counted
        for _ in range(TURNS):
            for size, (workspace, outcome) in runs.items():
                seconds[size].append(cost(workspace, outcome))
        page = page_of(*runs[MANY])
        megabytes = page.stat().st_size / 1e6
        spent, longest = in_browser(page) if Path(CHROMIUM).exists() else ({}, {})
    each = {size: 1_000 * median(times) / size for size, times in seconds.items()}
    ratio = each[MANY] / each[FEW]
    figures = [
        _figure("report, 10 x 500: for each question", each[FEW], None, "ms CPU"),
        _figure("report, 10 x 5,000: for each question", each[MANY], None, "ms CPU"),
        _figure("report: cost of a question at 5,000, of that at 500", ratio, 1, "x", ratio <= 1),
        _figure("report, 10 x 5,000: size of the page", megabytes, LARGEST_MB, "MB", megabytes <= LARGEST_MB),
    ]
    for act, milliseconds in spent.items():
        name = f"report in the browser, 10 x 5,000: most for one act, {act}"
        figures.append(_figure(name, milliseconds, FREEZE_MS, "ms CPU", milliseconds <= FREEZE_MS))
    for when, milliseconds in longest.items():
        target = FREEZE_MS if when == ANY else None
        name = f"report in the browser, 10 x 5,000: longest task, {when}"
        figures.append(_figure(name, milliseconds, target, "ms", target is None or milliseconds <= target))
    return figures


def _figure(name: str, value: float, target: float | None, unit: str, ok: bool = True) -> dict[str, Any]:
    return {"name": name, "value": value, "target": target, "unit": unit, "ok": ok}


def main() -> int:
    """Print the figures; 1 when one misses its target."""
    figures = run()
    for figure in figures:
        verdict = "ok" if figure["ok"] else "MISSED"
        print(f"{figure['name']:<72} {figure['value']:>10.4g} {figure['unit']:<6} {verdict}")
    return 0 if all(figure["ok"] for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
