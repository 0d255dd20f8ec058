"""Read the tables behind the questions of a page: the dataset and the hits of as many configurations as fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.documents import PLACES
from rag_eval.errors import ArtifactError
from rag_eval.metrics.metric import ALL, MIN, Cut, split_name
from rag_eval.pipeline.document_steps import read_chunks
from rag_eval.pipeline.references import digest_of
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.compare import RunComparison
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.results.run_scores import RunScores
from rag_eval.tables import CHUNKS, PLACE, table_of
from rag_eval.types.ids import EvaluationType

MOST_HITS = 5_000_000
MOST_SCORES = 500_000


@dataclass(frozen=True)
class ConfigurationTables:
    """The tables of a configuration.

    Attributes:
        name: Its name in the page.
        outcome: The configuration in its run.
        scores: The scores of its run.
        hits: The hits, or the passages if those were returned.
        chunks: The chunks, or the passages if those were returned.
        chunks_digest: Of the chunks, which configurations share. searches: What was searched; None for the questions as
            asked.
    """

    name: str
    outcome: ConfigurationOutcome
    scores: RunScores
    hits: pa.Table
    chunks: pa.Table
    chunks_digest: str
    searches: pa.Table | None = None


@dataclass(frozen=True)
class Questions:
    """The dataset, the configurations, best first, and the metrics to compare them by."""

    evaluation_type: EvaluationType
    documents: pa.Table
    queries: pa.Table
    truth: pa.Table
    configurations: Sequence[ConfigurationTables]
    ks: Sequence[int]
    metrics: Sequence[str]
    """Full names, such as ``span_recall@5``."""
    ranking_metric: str
    notes: list[str] = field(default_factory=list)
    """Sentences about omissions."""
    opened: tuple[int, int] | None = None
    """The two configurations to open; None opens the first, and the best one that finds something else."""
    paged: Mapping[str, str] = field(default_factory=dict)
    """Metadata, as JSON, of the documents that have pages or other places, by id."""

    @property
    def cuts(self) -> list[Cut]:
        """The cuts to choose from: the cut of the ranking metric, then the first k hits for each k."""
        cut = split_name(self.ranking_metric)[1]
        return list(dict.fromkeys([*([cut] if cut.size else []), *(Cut("hits", k) for k in self.ks)]))


def questions_of(
    workspace: Workspace, outcome: BenchmarkOutcome, scores: RunScores, compared: RunComparison | None = None
) -> Questions:
    """Return the questions of a run with its configurations, best first, then those of the compared run.

    The latter are left out if they belong to other data, or if their tables are missing.
    """
    truth, level = outcome.inputs.truth, outcome.inputs.evaluation_type
    tables = [_tables_of(workspace, scores, configuration) for configuration in outcome.ranked()]
    documents = workspace.read_tables(outcome.inputs.documents)
    metadata = documents.select(["doc_id", "metadata"])
    paged = metadata.filter(pc.match_substring(metadata.column("metadata"), f'"{PLACES}"')).to_pylist()
    notes: list[str] = []
    sides, opened = None, None
    if compared is not None:
        try:
            sides = _with_chunks(workspace, level, [*tables, *_tables_before(workspace, compared)])
            opened = _opened(compared, sides, len(tables))
        except ArtifactError as error:
            notes.append(f"The hits of {compared.before.run} are not shown: {error}.")
    return Questions(
        evaluation_type=level,
        documents=documents,
        queries=workspace.read_table(truth.queries),
        truth=workspace.read_table(truth.answers),
        configurations=sides or _with_chunks(workspace, level, tables),
        ks=outcome.config.k,
        metrics=outcome.measured,
        ranking_metric=outcome.ranking_metric,
        notes=notes,
        opened=opened,
        paged={row["doc_id"]: row["metadata"] for row in paged},
    )


def _tables_before(workspace: Workspace, compared: RunComparison) -> list[ConfigurationTables]:
    """Return the tables of the compared configurations of the earlier run; raises ``ArtifactError``."""
    if compared.differences:
        raise ArtifactError("they were found in other data")
    before, pairs = compared.before, {row.before for row in compared.rows}
    earlier = [configuration for configuration in before.ranked() if configuration.name in pairs]
    return [_tables_of(workspace, compared.scores.before, run, f" (in {before.run})") for run in earlier]


def _opened(compared: RunComparison, sides: Sequence[ConfigurationTables], new: int) -> tuple[int, int] | None:
    """Return the numbers of the configuration to open and its earlier version; the first ``new`` are current."""
    row = compared.to_open_with(sides[0].name)
    names = [side.outcome.name for side in sides]
    return None if row is None else (names.index(row.after), names.index(row.before, new))


def _tables_of(
    workspace: Workspace, scores: RunScores, configuration: ConfigurationOutcome, suffix: str = ""
) -> ConfigurationTables:
    """Return the tables of a configuration, without the chunks that it shares with others."""
    hits, name = workspace.read_table(configuration.returned), f"{configuration.name}{suffix}"
    searches = None if configuration.searches is None else workspace.read_table(configuration.searches)
    chunks, digest = CHUNKS.empty_table(), digest_of(configuration.chunk_tables)
    if not configuration.chunk_tables or configuration.passages is not None:
        (hits, chunks), digest = returned_chunks(hits), configuration.returned.digest
    return ConfigurationTables(name, configuration, scores, hits, chunks, digest, searches)


def _with_chunks(
    workspace: Workspace, level: EvaluationType, sides: Sequence[ConfigurationTables]
) -> list[ConfigurationTables]:
    """Read the chunks that were hit, once for all configurations that share them."""
    shards = {digest_of(side.outcome.chunk_tables): side.outcome.chunk_tables for side in sides}
    chunks = {}
    for digest in {side.chunks_digest for side in sides} & shards.keys():
        hits = [side.hits for side in sides if side.chunks_digest == digest]
        chunks[digest] = read_chunks(workspace, shards[digest], level, hits)
    return [replace(side, chunks=chunks.get(side.chunks_digest, side.chunks)) for side in sides]


def affordable(questions: Questions, most_hits: int = MOST_HITS, most_scores: int = MOST_SCORES) -> Questions:
    """Return as much as a page can hold, with a note about what was left out.

    If there are too many configurations, the best stay; if there are too many scores, those at the ranking's cut, else
    the ranking metric.
    """
    queries, configurations, metrics = questions.queries, questions.configurations, questions.metrics
    by, notes = questions.ranking_metric, list(questions.notes)
    best = max(2, most_hits // max(1, queries.num_rows * max(questions.ks)))
    if best < len(configurations):
        notes.append(f"The questions show the best {best} of {len(configurations)} configurations.")
        configurations = configurations[:best]
    at_cut = [name for name in metrics if split_name(name)[1] in (split_name(by)[1], ALL, MIN)]
    for fewer in (at_cut, [by]):
        if len(metrics) * queries.num_rows * len(configurations) > most_scores:
            metrics = fewer
            notes.append(f"The questions show these scores only: {', '.join(metrics)}.")
    return replace(questions, configurations=configurations, metrics=metrics, notes=notes)


def returned_chunks(hits: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return what a system returned, or passages, as hits and as chunks, each chunk once.

    At token level those with a place; at chunk level all, numbered as chunks of one document.
    """
    if hits.column("chunk_id").null_count:
        hits = hits.filter(pc.is_valid(hits.column("start")))
        places = sorted(set(zip(*(hits.column(name).to_pylist() for name in PLACE), strict=True)))
        rows = [("", *place, number, "") for number, place in enumerate(places)]
        names = ("chunk_id", *PLACE, "ordinal", "content")
        return hits, table_of(CHUNKS, rows, names, metadata="{}")
    ids = pc.unique(hits.column("chunk_id"))
    numbers = pc.index_in(hits.column("chunk_id"), value_set=ids).cast(pa.int64())
    for name, column in (("ordinal", numbers), ("doc_id", pa.repeat(_RETURNED, hits.num_rows))):
        hits = hits.set_column(hits.schema.get_field_index(name), hits.schema.field(name), column)
    texts = dict(zip(hits.column("chunk_id").to_pylist(), hits.column("text").to_pylist(), strict=True))
    rows = [(chunk_id, _RETURNED, n, texts[chunk_id] or "") for n, chunk_id in enumerate(ids.to_pylist())]
    return hits, table_of(CHUNKS, rows, ("chunk_id", "doc_id", "ordinal", "content"), metadata="{}")


_RETURNED = "returned by the system"
