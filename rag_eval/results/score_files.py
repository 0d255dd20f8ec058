"""``scores.parquet`` in a run's folder: the scores of a run, readable when the workspace's tables are gone.

A row for each metric, configuration and query, in this order, with the query's text and the document it belongs to.
Any tool that reads Parquet can use it.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rag_eval.errors import ArtifactError, TableError
from rag_eval.metrics.formulas import Counts, Values
from rag_eval.metrics.table import NO_CUT
from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.collecting import collect_scores
from rag_eval.results.runs import read_run, run_names
from rag_eval.results.sameness import truth_digests
from rag_eval.results.scores import RunScores, ScoredQuery
from rag_eval.stats.budget import budget_cuts
from rag_eval.tables import check_schema

SCORES_FILE = "scores.parquet"

# Texts repeat in every row: they are kept once, as dictionaries.
_TEXT = pa.dictionary(pa.int32(), pa.string())
RUN_SCORES = pa.schema(
    [
        pa.field(name, kind, nullable=False)
        for name, kind in {
            "metric": _TEXT,
            "k": pa.int32(),
            "configuration": _TEXT,
            "query_id": _TEXT,
            "query": _TEXT,
            "document": _TEXT,
            "value": pa.float64(),
        }.items()
    ]
)

# Rows that are read together: a reader of one metric skips the groups of others.
_ROW_GROUP = 65_536


def keep_scores(workspace: Workspace, outcome: BenchmarkOutcome) -> RunScores:
    """Collect the scores of a run and write them to its folder; raises ``ArtifactError`` when a table is gone.

    What the run before has at token budgets for the same hits is taken from there.
    """
    scores = collect_scores(workspace, outcome, _known_at_budgets(workspace, outcome))
    buffer = io.BytesIO()
    cell = max(1, len(scores.configurations) * len(scores.queries))
    group = cell * max(1, _ROW_GROUP // cell)
    pq.write_table(scores_to_table(scores), buffer, compression="zstd", row_group_size=group)
    workspace.keep(workspace.runs / outcome.run / SCORES_FILE, buffer.getvalue())
    return scores


def read_scores(workspace: Workspace, outcome: BenchmarkOutcome, metric: str | None = None) -> RunScores:
    """The scores of a run from its folder, or else from the workspace's tables.

    With ``metric``, those of others may be left out, which is faster.
    Raises ``ArtifactError`` when neither can be read.
    """
    path = workspace.kept(workspace.runs / outcome.run / SCORES_FILE)
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
    table = None if metric is None else _read(path, _rows_of(metric))
    # A run that lacks the metric is read whole: its other metrics are what an error will name.
    return scores_from_table(table if table is not None and table.num_rows else _read(path, None), path)


def scores_to_table(scores: RunScores) -> pa.Table:
    """The scores as a ``RUN_SCORES`` table."""
    by_metric, by_configuration, by_query = _row_numbers(scores.values.shape)
    columns = [
        _texts([metric for metric, _ in scores.cuts], by_metric),
        np.array([k for _, k in scores.cuts], dtype=np.int32)[by_metric],
        _texts(scores.configurations, by_configuration),
        _texts([query.query_id for query in scores.queries], by_query),
        _texts([query.text for query in scores.queries], by_query),
        _texts([query.document for query in scores.queries], by_query),
        scores.values.ravel(),
    ]
    return pa.table(columns, schema=RUN_SCORES)


def scores_from_table(table: pa.Table, path: Path) -> RunScores:
    """The scores of the run in whose folder ``path`` is.

    Raises ``ArtifactError`` when rows are missing or out of order.
    """
    try:
        check_schema(table, RUN_SCORES, "run's scores")
    except TableError as error:
        raise ArtifactError(f"{str(path)!r} cannot be used: {error}") from None
    metric, metrics = _numbers(table.column("metric"))
    configuration, configurations = _numbers(table.column("configuration"))
    query, query_ids = _numbers(table.column("query_id"))
    ks = table.column("k").to_numpy()
    step = max(1, len(configurations) * len(query_ids))
    cuts = tuple((metrics[metric[row]], int(ks[row])) for row in range(0, len(ks), step))
    shape = (len(cuts), len(configurations), len(query_ids))
    by_metric, by_configuration, by_query = _row_numbers(shape)
    firsts = np.arange(len(ks)) // step * step
    if (
        len(by_metric) != len(ks)
        or len(set(cuts)) < len(cuts)
        or not np.array_equal(configuration, by_configuration)
        or not np.array_equal(query, by_query)
        or not np.array_equal(metric, metric[firsts])
        or not np.array_equal(ks, ks[firsts])
    ):
        raise ArtifactError(f"{str(path)!r} lacks scores or has them out of order: run the benchmark again")
    heads = table.slice(0, len(query_ids)).select(["query_id", "query", "document"]).to_pylist()
    queries = tuple(ScoredQuery(row["query_id"], row["query"], row["document"]) for row in heads)
    values = table.column("value").to_numpy().reshape(shape)
    return RunScores(path.parent.name, cuts, tuple(configurations), queries, values)


def _known_at_budgets(workspace: Workspace, outcome: BenchmarkOutcome) -> dict[str, Values]:
    """The scores at token budgets of the run before, by the digest of the hits; none when its data were others."""
    earlier = [name for name in run_names(workspace) if name < outcome.run]
    if not earlier or not workspace.kept(workspace.runs / earlier[-1] / SCORES_FILE).exists():
        return {}
    try:
        before = read_run(workspace, earlier[-1])
        scores = _read_scores(workspace.runs / before.run / SCORES_FILE, None)
    except ArtifactError:
        return {}  # what is wrong with another run is no concern of this one
    same = (before.inputs.documents.digest, *truth_digests(before)) == (
        outcome.inputs.documents.digest,
        *truth_digests(outcome),
    )
    if not same or before.versions != outcome.versions or not set(budget_cuts()) <= set(scores.cuts):
        return {}
    rows = [scores.cuts.index(cut) for cut in budget_cuts()]
    return {one.hits.digest: scores.values[rows, place] for place, one in enumerate(before.configurations)}


def _read(path: Path, rows: pc.Expression | None) -> pa.Table:
    try:
        return pq.read_table(path, filters=rows)
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{str(path)!r} cannot be read ({error}): run the benchmark again") from None


def _rows_of(metric: str) -> pc.Expression:
    name, _, cut = metric.rpartition("@")
    label, k = (name, int(cut)) if cut.isdecimal() else (metric, NO_CUT)
    return (pc.field("metric") == label) & (pc.field("k") == k)


def _row_numbers(shape: tuple[int, ...]) -> tuple[Counts, Counts, Counts]:
    """The number of the metric, the configuration and the query in each row."""
    metrics, configurations, queries = shape
    return (
        np.repeat(np.arange(metrics), configurations * queries),
        np.tile(np.repeat(np.arange(configurations), queries), metrics),
        np.tile(np.arange(queries), metrics * configurations),
    )


def _texts(values: Sequence[str], rows: Counts) -> pa.Array:
    known = {value: number for number, value in enumerate(dict.fromkeys(values))}
    numbers = np.array([known[value] for value in values], dtype=np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(numbers[rows]), pa.array(list(known), pa.string()))


def _numbers(column: pa.ChunkedArray) -> tuple[Counts, list[str]]:
    """The texts as numbers in the order in which they first occur, and the texts by number."""
    if not len(column):
        return np.zeros(0, dtype=np.int64), []
    unified = column.unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in unified.chunks]).astype(np.int64)
    present, firsts, numbers = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    labels = unified.chunk(0).dictionary.to_pylist()
    return place[numbers], [labels[code] for code in present[order].tolist()]
