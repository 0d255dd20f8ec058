"""The questions of a run as a page shows them: the dataset, the hits of each configuration, and how many fit."""

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
    """The tables of a configuration; the chunks have their digest too, since configurations share them.

    ``place`` is that of the configuration among those of the scores. Where passages were returned, they stand for the
    hits and for the chunks. ``searches`` are what was searched, where that is not the questions as asked.
    """

    name: str
    hits: pa.Table
    chunks: pa.Table
    chunks_digest: str
    scores: RunScores
    place: int
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
    """A sentence for everything that is left out."""
    opened: tuple[int, int] | None = None
    """The two to open; None, or one there is no room for, opens the first and the best that finds something else."""
    paged: Mapping[str, str] = field(default_factory=dict)
    """The metadata, as JSON, of the documents that have pages or other places, by id."""

    @property
    def cuts(self) -> list[Cut]:
        """What can be looked at: the hits that the ranking metric counts, then the first k for each k."""
        own = split_name(self.ranking_metric)[1]
        return list(dict.fromkeys([*([own] if own.size else []), *(Cut("hits", k) for k in self.ks)]))


def questions_of(
    workspace: Workspace, outcome: BenchmarkOutcome, scores: RunScores, compared: RunComparison | None = None
) -> Questions:
    """Return the questions of a run with its configurations, best first, and then those of the run it is compared with.

    The latter are left out where their hits are of other text, or gone.
    """
    truth, ranked = outcome.inputs.truth, outcome.ranked()
    own = [_tables_of(workspace, one, scores, one.name) for one in ranked]
    notes, opened, sides = [], None, None
    if compared is not None and compared.differences:
        notes.append(f"The hits of {compared.before.run} are not shown: they were found in other data.")
    elif compared is not None:
        before, pairs = compared.before, {row.before for row in compared.rows}
        earlier = [one for one in before.ranked() if one.name in pairs]
        try:
            others = [
                _tables_of(workspace, one, compared.scores.before, f"{one.name} (in {before.run})") for one in earlier
            ]
            sides = _with_chunks(workspace, truth.evaluation_type, [*own, *others], [*ranked, *earlier])
            if row := compared.to_open_with(ranked[0].name):
                new, old = ([one.name for one in run] for run in (ranked, earlier))
                opened = new.index(row.after), len(new) + old.index(row.before)
        except ArtifactError as error:
            notes.append(f"The hits of {before.run} are not shown: {error}.")
    documents = workspace.read_tables(outcome.inputs.documents)
    return Questions(
        evaluation_type=truth.evaluation_type,
        documents=documents,
        queries=workspace.read_table(truth.queries),
        truth=workspace.read_table(truth.answers),
        configurations=sides or _with_chunks(workspace, truth.evaluation_type, own, ranked),
        ks=outcome.config.k,
        metrics=outcome.measured,
        ranking_metric=outcome.ranking_metric,
        notes=notes,
        opened=opened,
        paged=_paged(documents),
    )


def _paged(documents: pa.Table) -> dict[str, str]:
    columns = documents.select(["doc_id", "metadata"])
    rows = columns.filter(pc.match_substring(columns.column("metadata"), f'"{PLACES}"')).to_pylist()
    return {row["doc_id"]: row["metadata"] for row in rows}


def _tables_of(workspace: Workspace, one: ConfigurationOutcome, scores: RunScores, name: str) -> ConfigurationTables:
    """Return the tables of a configuration, without the chunks that it shares with others."""
    hits, place = workspace.read_table(one.returned), scores.configurations.index(one.name)
    searches = None if one.searches is None else workspace.read_table(one.searches)
    if one.chunk_tables and one.passages is None:
        digest = digest_of(one.chunk_tables)
        return ConfigurationTables(name, hits, CHUNKS.empty_table(), digest, scores, place, searches)
    hits, chunks = returned_chunks(hits)
    return ConfigurationTables(name, hits, chunks, one.returned.digest, scores, place, searches)


def _with_chunks(
    workspace: Workspace,
    level: EvaluationType,
    sides: Sequence[ConfigurationTables],
    outcomes: Sequence[ConfigurationOutcome],
) -> list[ConfigurationTables]:
    """Read the chunks that are among the hits, once for all configurations that share them."""
    shards = {digest_of(one.chunk_tables): one.chunk_tables for one in outcomes if one.passages is None}
    chunks = {}
    for digest in {side.chunks_digest for side in sides} & shards.keys():
        hits = [side.hits for side in sides if side.chunks_digest == digest]
        chunks[digest] = read_chunks(workspace, shards[digest], level, hits)
    return [replace(side, chunks=chunks.get(side.chunks_digest, side.chunks)) for side in sides]


def affordable(questions: Questions, most_hits: int = MOST_HITS, most_scores: int = MOST_SCORES) -> Questions:
    """Return as much of the questions as a page can hold, with a note for everything that was left out.

    Of too many configurations the best stay; of too many scores, first those at the ranking's cut, then the ranking
    metric alone.
    """
    queries, configurations, metrics = questions.queries, questions.configurations, questions.metrics
    by, notes = questions.ranking_metric, list(questions.notes)
    best = max(2, most_hits // max(1, queries.num_rows * max(questions.ks)))
    if best < len(configurations):
        notes.append(f"The questions of the best {best} of {len(configurations)} configurations are shown.")
        configurations = configurations[:best]
    at_cut = [name for name in metrics if split_name(name)[1] in (split_name(by)[1], ALL, MIN)]
    for fewer in (at_cut, [by]):
        if len(metrics) * queries.num_rows * len(configurations) > most_scores:
            metrics = fewer
            notes.append(f"Of each question's scores the page carries {', '.join(metrics)}.")
    return replace(questions, configurations=configurations, metrics=metrics, notes=notes)


def returned_chunks(hits: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The hits of a whole system, or the passages, that can be drawn, and what was returned as chunks, each once.

    At token level those are the hits with a place, at chunk level all, numbered as chunks of one document.
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
    rows = [(one, _RETURNED, number, texts[one] or "") for number, one in enumerate(ids.to_pylist())]
    return hits, table_of(CHUNKS, rows, ("chunk_id", "doc_id", "ordinal", "content"), metadata="{}")


_RETURNED = "returned by the system"
