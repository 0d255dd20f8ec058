"""Real runs without a Prefect server, searching by words."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.inputs import BenchmarkInputs
from rag_eval.pipeline.references import HitsRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import (
    BenchmarkOutcome,
    ConfigurationFailure,
    ConfigurationOutcome,
    Evaluated,
    StepRecorder,
    keep_outcome,
)
from rag_eval.results.run_scores import keep_scores
from tasks.score import score
from tests.chain import evaluate, load_inputs

SMALL, LARGE = RecursiveTokenChunker(chunk_size=30), RecursiveTokenChunker(chunk_size=90)
SMALL_NAME, LARGE_NAME = "recursive-token 30/0, bm25", "recursive-token 90/0, bm25"
ODD = "<b>Ugly</b> [red]\x1b[31m \u202e☃ | *"


@dataclass(frozen=True)
class Store:
    """A workspace, the benchmark that was run in it, and its runs."""

    workspace: Workspace
    config: BenchmarkConfig
    good: BenchmarkOutcome
    slightly_worse: BenchmarkOutcome
    much_worse: BenchmarkOutcome
    partly_failed: BenchmarkOutcome

    @property
    def runs(self) -> tuple[BenchmarkOutcome, ...]:
        """The runs, oldest first."""
        return (self.good, self.slightly_worse, self.much_worse, self.partly_failed)


def write_data(folder: Path, documents: int = 12, queries: int = 5) -> BenchmarkConfig:
    """A corpus with so many questions on each document, one of them in a language of its own, and one unanswerable."""
    (folder / "docs").mkdir(parents=True)
    lines = []
    for number in range(documents):
        text, spans = f"# Ship {number}\n\n", []
        for deck in range(queries):
            start = len(text)
            text += f"Deck {deck} of ship {number} has cabin{number}x{deck} and {'berths ' * (deck + 3)}for guests.\n\n"
            spans.append((start, len(text) - 2))
        name = f"{number:02}.md"
        (folder / "docs" / name).write_text(text, encoding="utf-8")
        for deck, (start, end) in enumerate(spans):
            query = f"Where is cabin{number}x{deck}{ODD if deck == 0 else ''}?"
            span = {"doc_id": name, "start": start, "end": end, "text": text[start:end]}
            lines.append(json.dumps({"id": f"q{number}-{deck}", "query": query, "relevant_spans": [span]}))
    lines.append(json.dumps({"id": "nobody", "query": "Who?", "relevant_spans": [], "unanswerable": True}))
    (folder / "truth.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return BenchmarkConfig(
        corpus=folder / "docs",
        ground_truth=folder / "truth.jsonl",
        chunkers=[SMALL, LARGE],
        retrieval=["bm25"],
        k=[1, 3],
        metrics=["span_recall", "span_precision", "tokens_retrieved"],
        objective="span_recall@3",
    )


def make_run(
    workspace: Workspace,
    config: BenchmarkConfig,
    *,
    lost: float = 0,
    losing: Sequence[str] | None = None,
    failing: Sequence[str] = (),
    with_scores: bool = True,
) -> BenchmarkOutcome:
    """Run the benchmark and keep it; a share of queries finds nothing, in those losing or in all; failing ones fail."""
    started = datetime.now(UTC)
    corpus = CorpusSource.of(config.corpus, config.glob)
    inputs = load_inputs(workspace, config)
    done: list[ConfigurationOutcome] = []
    failures = {}
    for configuration in config.configurations():
        if configuration.name in failing:
            record = configuration.record()
            failures[configuration.name] = ConfigurationFailure(configuration=record, reason="no key")
            continue
        evaluated = evaluate(workspace, configuration, inputs)
        if losing is None or configuration.name in losing:
            evaluated = _lose(workspace, evaluated, inputs, lost)
        done.append(evaluated.summary(StepRecorder(begun=started), inputs.truth.queries.rows))
    outcome = keep_outcome(workspace, started, config, corpus, inputs, done, failures, {})
    if with_scores:
        keep_scores(workspace, outcome)
    return outcome


def _lose(workspace: Workspace, evaluated: Evaluated, inputs: BenchmarkInputs, share: float) -> Evaluated:
    queries = workspace.read_table(inputs.truth.queries)
    ids = queries.column("query_id").to_pylist()
    gone = np.random.default_rng(1).choice(len(ids), round(share * len(ids)), replace=False)
    table = workspace.read_table(evaluated.hits.last)
    left = pc.invert(pc.is_in(table.column("query_id"), pa.array([ids[place] for place in gone], pa.string())))
    hits = HitsRef(stages={"words": workspace.write_table("hits", table.filter(left))}, chunks=list(evaluated.chunks))
    given = hits, inputs.truth, inputs.documents, inputs.metrics, inputs.ks
    return replace(evaluated, steps={}, hits=hits, scores=score.fn(*given, workspace=workspace))
