"""The scores of a run from the tables that its stages left in the workspace."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from rag_eval.errors import ArtifactError
from rag_eval.metrics.formulas import Values
from rag_eval.pipeline.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.scores import RunScores, ScoredQuery
from rag_eval.stats.budget import budget_cuts, chunk_budget_scores, span_budget_scores
from rag_eval.stats.documents import documents_by_chunks, documents_by_spans
from rag_eval.tables import ChunkLevelTruthTables, TokenLevelTruthTables, documents_from_table
from rag_eval.types.document import Document


def collect_scores(
    workspace: Workspace, outcome: BenchmarkOutcome, known: Mapping[str, Values] | None = None
) -> RunScores:
    """Every score, and recall at equal token budgets; raises ``ArtifactError`` when a table is gone.

    ``known`` has scores at token budgets, budgets × queries, by the digest of the hits they were made from.
    """
    queries = _queries(workspace, outcome)
    query_ids = pa.array([query.query_id for query in queries], pa.string())
    documents: list[Document] = []
    if outcome.inputs.truth.evaluation_type == "token-level":
        documents = documents_from_table(workspace.read_table(outcome.inputs.documents))
    cuts: list[tuple[str, int]] = []
    parts = []
    for one in outcome.configurations:
        cuts, values = _by_cut(workspace.read_table(one.scores), query_ids, one.name)
        at_budgets = (known or {}).get(one.hits.digest)
        if at_budgets is None:
            _, at_budgets = _by_cut(_budget_scores(workspace, outcome, one, documents), query_ids, one.name)
        parts.append(np.concatenate([values, at_budgets]))
    cuts = [*cuts, *budget_cuts()] if parts else []
    values = np.stack(parts, axis=1) if parts else np.zeros((0, 0, len(queries)))
    names = tuple(one.name for one in outcome.configurations)
    return RunScores(outcome.run, tuple(cuts), names, tuple(queries), values)


def _queries(workspace: Workspace, outcome: BenchmarkOutcome) -> list[ScoredQuery]:
    """The answerable queries in the order of the dataset, which is that of the scores."""
    truth = outcome.inputs.truth
    answers = workspace.read_table(truth.answers)
    if truth.evaluation_type == "token-level":
        documents = documents_by_spans(answers)
    elif outcome.configurations:
        # Ground truth in chunk ids fits the chunks of one chunker, so those of all configurations are the same.
        documents = documents_by_chunks(answers, workspace.read_table(outcome.configurations[0].chunk_table))
    else:
        documents = {}
    rows = workspace.read_table(truth.queries).to_pylist()
    answerable = [(row["query_id"], row["text"]) for row in rows if not row["unanswerable"]]
    return [ScoredQuery(query_id, text, documents.get(query_id, "")) for query_id, text in answerable]


def _budget_scores(
    workspace: Workspace, outcome: BenchmarkOutcome, one: ConfigurationOutcome, documents: list[Document]
) -> pa.Table:
    truth, hits = outcome.inputs.truth, workspace.read_table(one.hits)
    queries, answers = workspace.read_table(truth.queries), workspace.read_table(truth.answers)
    if truth.evaluation_type == "token-level":
        return span_budget_scores(hits, TokenLevelTruthTables(queries, answers), documents)
    chunks = workspace.read_table(one.chunk_table)
    return chunk_budget_scores(hits, ChunkLevelTruthTables(queries, answers), chunks)


def _by_cut(scores: pa.Table, query_ids: pa.Array, name: str) -> tuple[list[tuple[str, int]], Values]:
    """The metrics and ks of a scores table and the values by them, under each of which stand all queries in order."""
    count = len(query_ids)
    heads = scores.select(["metric", "k"]).take(pa.array(range(0, scores.num_rows, count))).to_pylist()
    cuts = [(head["metric"], head["k"]) for head in heads]
    expected = pa.chunked_array([query_ids] * len(cuts), pa.string())
    if not scores.column("query_id").equals(expected):
        raise ArtifactError(f"the scores of {name} do not fit the queries of the run: run the benchmark again")
    return cuts, scores.column("value").to_numpy().reshape(len(cuts), count)
