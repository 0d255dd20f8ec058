"""Store the scores of a run in ``scores.parquet``, readable without the workspace's tables.

A row for each metric, configuration and query, in this order, with the query's text and the document it belongs to.
Any tool that reads Parquet can use it.
"""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rag_eval.errors import ArtifactError, ConfigurationError, TableError, preview
from rag_eval.formatting import choices, suggestion
from rag_eval.metrics.metric import Counts, Values, higher_is_better, score_name, split_name
from rag_eval.pipeline.document_steps import read_chunks
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.stats.comparison import Placed, rank
from rag_eval.stats.paired_scores import PairedScores
from rag_eval.tables import CHUNKS, PLACE, TRUTH, TruthTables, check_schema, schema_of

SEED = 0
"""The seed of every test and probability: the same scores give the same p-values."""


@dataclass(frozen=True, slots=True)
class ScoredQuery:
    """An answerable query, and the document it belongs to."""

    query_id: str
    text: str
    document: str


@dataclass(frozen=True)
class RunScores:
    """The scores of a run: ``values[i, j, l]`` is that of configuration j by metric i on query l.

    ``metrics`` are their full names, such as ``span_recall@5``.
    """

    run: str
    metrics: tuple[str, ...]
    configurations: tuple[str, ...]
    queries: tuple[ScoredQuery, ...]
    values: NDArray[np.float64]

    def paired(self, metric: str) -> PairedScores:
        """Return the scores of all configurations by one metric.

        Raises ``ConfigurationError`` when the run was not scored by it, or has no scores.
        """
        known = self.metrics
        if metric not in known:
            has = choices(known, metric) if known else "every configuration failed"
            raise ConfigurationError(f"{self.run} has no scores by {preview(metric)}{suggestion(metric, known)}: {has}")
        query_ids = tuple(query.query_id for query in self.queries)
        documents = tuple(query.document for query in self.queries)
        return PairedScores(self.configurations, query_ids, documents, self.values[known.index(metric)])

    def ranking(self, metric: str, order: Sequence[str] | None = None) -> list[Placed]:
        """Return the configurations, best first, with intervals and the group of those that may be the best.

        Equal ones are in the order of ``order``, or else of the run. Raises like ``paired``.
        """
        paired = self.paired(metric).subset(order or self.configurations)
        return rank(paired, np.random.default_rng(SEED), higher_is_better=higher_is_better(metric))


def collect_scores(workspace: Workspace, outcome: BenchmarkOutcome) -> RunScores:
    """Collect every score from the tables of a run; raises ``ArtifactError`` if one is missing."""
    queries = _scored_queries(workspace, outcome, workspace.read_truth(outcome.inputs.truth))
    query_ids = pa.array([query.query_id for query in queries], pa.string())
    metrics: list[str] = []
    parts = []
    for configuration in outcome.configurations:
        metrics, part = _by_metric(workspace.read_table(configuration.scores), query_ids, configuration.name)
        parts.append(part)
    values = np.stack(parts, axis=1) if parts else np.zeros((0, 0, len(queries)))
    names = tuple(configuration.name for configuration in outcome.configurations)
    return RunScores(outcome.run, tuple(metrics), names, tuple(queries), values)


def main_documents(truth: pa.Table, chunks: pa.Table | None = None) -> dict[str, str]:
    """Return for each query the document that holds most of its ground truth; of equal ones, the first by name.

    Spans count by their characters, with the first member of each group; given all ``chunks``, relevant chunks count. A
    chunk whose text occurs in several documents counts in each. A query without a known chunk belongs to the document
    with the empty name.
    """
    check_schema(truth, TRUTH, "truth", PLACE if chunks is None else ["chunk_id"])
    truth = truth.filter(pc.field("member") == 0)
    if chunks is None:
        query, document = truth.column("query_id"), truth.column("doc_id")
        amount = pc.subtract(truth.column("end"), truth.column("start"))
    else:
        check_schema(chunks, CHUNKS, "chunks")
        held = truth.select(["query_id", "chunk_id"]).join(chunks.select(["chunk_id", "doc_id"]), "chunk_id")
        query, document = held.column("query_id"), pc.fill_null(held.column("doc_id"), "")
        amount = pa.repeat(1, held.num_rows)
    rows = pa.table({"query": query, "document": document, "amount": amount}).group_by(["query", "document"])
    sums = rows.aggregate([("amount", "sum")]).sort_by([("amount_sum", "ascending"), ("document", "descending")])
    # The last row of a query stays.
    return dict(zip(sums.column("query").to_pylist(), sums.column("document").to_pylist(), strict=True))


def _scored_queries(workspace: Workspace, outcome: BenchmarkOutcome, truth: TruthTables) -> list[ScoredQuery]:
    """Return the answerable queries in the order of the dataset, which is that of the scores."""
    # Members of a group are equivalent: the first of each decides.
    answers = truth.answers.filter(pc.field("member") == 0)
    documents: Mapping[str, str] = {}
    if outcome.inputs.evaluation_type == "token-level":
        documents = main_documents(answers)
    elif shards := next((run.chunk_tables for run in outcome.configurations if run.chunk_tables), None):
        # Ground truth in chunk ids fits only one chunker, so all configurations have the same chunks.
        documents = main_documents(answers, read_chunks(workspace, shards, "chunk-level"))
    rows = [row for row in truth.queries.to_pylist() if not row["unanswerable"]]
    return [ScoredQuery(row["query_id"], row["text"], documents.get(row["query_id"], "")) for row in rows]


def _by_metric(scores: pa.Table, query_ids: pa.Array, name: str) -> tuple[list[str], Values]:
    """Return the metrics of a scores table and its values, metrics × queries."""
    count = len(query_ids)
    heads = scores.select(["metric", "cut", "size"]).take(pa.array(range(0, scores.num_rows, count))).to_pylist()
    metrics = [score_name(*head.values()) for head in heads]
    expected = pa.chunked_array([query_ids] * len(metrics), pa.string())
    if not scores.column("query_id").equals(expected):
        raise ArtifactError(f"the scores of {name} do not match the queries of the run: run the benchmark again")
    return metrics, scores.column("value").to_numpy().reshape(len(metrics), count)


SCORES_FILE = "scores.parquet"

# Texts repeat in every row, so they are stored once, as dictionaries.
_TEXT = pa.dictionary(pa.int32(), pa.string())
RUN_SCORES = schema_of(
    metric=_TEXT,
    cut=_TEXT,
    size=pa.int32(),
    configuration=_TEXT,
    query_id=_TEXT,
    query=_TEXT,
    document=_TEXT,
    value=pa.float64(),
)

# Row groups: a reader of one metric skips the groups of others.
_ROW_GROUP = 65_536


def keep_scores(workspace: Workspace, outcome: BenchmarkOutcome) -> RunScores:
    """Collect the scores of a run and write them to its folder; raises ``ArtifactError`` if a table is missing."""
    scores = collect_scores(workspace, outcome)
    heads, queries = [split_name(metric) for metric in scores.metrics], scores.queries
    by_metric, by_configuration, by_query = np.indices(scores.values.shape).reshape(3, scores.values.size)
    columns = [
        _texts([metric for metric, _ in heads], by_metric),
        _texts([cut.kind for _, cut in heads], by_metric),
        np.array([cut.size for _, cut in heads], dtype=np.int32)[by_metric],
        _texts(scores.configurations, by_configuration),
        *(_texts([getattr(query, name) for query in queries], by_query) for name in ("query_id", "text", "document")),
        scores.values.ravel(),
    ]
    buffer = io.BytesIO()
    cell = max(1, len(scores.configurations) * len(queries))
    group = cell * max(1, _ROW_GROUP // cell)
    pq.write_table(pa.table(columns, schema=RUN_SCORES), buffer, compression="zstd", row_group_size=group)
    workspace.write_file(workspace.runs / outcome.run / SCORES_FILE, buffer.getvalue())
    return scores


def _texts(values: Sequence[str], rows: Counts) -> pa.Array:
    return pa.array(list(values), pa.string()).dictionary_encode().take(pa.array(rows))


def read_scores(workspace: Workspace, outcome: BenchmarkOutcome, metric: str | None = None) -> RunScores:
    """Read the scores of a run from its folder, or else from the workspace's tables.

    With ``metric``, those of others may be left out, which is faster. Raises ``ArtifactError`` if neither can be read.
    """
    path = workspace.fetch(workspace.runs / outcome.run / SCORES_FILE)
    if not path.exists():
        return collect_scores(workspace, outcome)
    try:
        return _read_scores(path, metric)
    except ArtifactError as damaged:
        try:
            return collect_scores(workspace, outcome)
        except ArtifactError:
            raise damaged from None


def _read_scores(path: Path, metric: str | None) -> RunScores:
    """Read the scores in the file of a run; raises ``ArtifactError`` if it is damaged."""
    try:
        table = _read_rows(path, metric)
        check_schema(table, RUN_SCORES, "run's scores")
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{str(path)!r} cannot be read ({error}): run the benchmark again") from None
    except TableError as error:
        raise ArtifactError(f"{str(path)!r} cannot be used: {error}") from None
    label, labels = _numbers(table.column("metric"))
    cut, kinds = _numbers(table.column("cut"))
    configuration, configurations = _numbers(table.column("configuration"))
    query, query_ids = _numbers(table.column("query_id"))
    step = max(1, len(configurations) * len(query_ids))
    heads = np.stack([label, cut, table.column("size").to_numpy()])
    firsts = heads[:, ::step]
    metrics = tuple(score_name(labels[name], kinds[kind], size) for name, kind, size in firsts.T.tolist())
    shape = (len(metrics), len(configurations), len(query_ids))
    expected = np.indices(shape).reshape(3, math.prod(shape))
    is_whole = expected.shape[1] == table.num_rows and len(set(metrics)) == len(metrics)
    if not is_whole or not (
        np.array_equal([configuration, query], expected[1:]) and np.array_equal(heads, firsts.repeat(step, axis=1))
    ):
        raise ArtifactError(f"{str(path)!r} is damaged (scores are missing or out of order): run the benchmark again")
    first = table.slice(0, len(query_ids)).select(["query_id", "query", "document"])
    queries = tuple(ScoredQuery(*row.values()) for row in first.to_pylist())
    values = table.column("value").to_numpy().reshape(shape)
    return RunScores(path.parent.name, metrics, tuple(configurations), queries, values)


def _read_rows(path: Path, metric: str | None) -> pa.Table:
    if metric is None:
        return pq.read_table(path)
    name, at = split_name(metric)
    rows = (pc.field("metric") == name) & (pc.field("cut") == at.kind) & (pc.field("size") == at.size)
    table = pq.read_table(path, filters=rows)
    # If the run lacks the metric, read everything: the error names its other metrics.
    return table if table.num_rows else pq.read_table(path)


def _numbers(column: pa.ChunkedArray) -> tuple[Counts, list[str]]:
    """Number the texts in the order in which they first occur; return the numbers, and the texts by number."""
    encoded = column.unify_dictionaries().combine_chunks()
    occurring = encoded.indices.unique()
    numbers = pc.index_in(encoded.indices, value_set=occurring).to_numpy()
    return numbers, encoded.dictionary.take(occurring).to_pylist()
