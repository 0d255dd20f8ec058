"""Report the unjudged text that configurations retrieved, and how far it could change the result."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.formatting import counted, number, percent
from rag_eval.ground_truth.pooling import pool
from rag_eval.ground_truth.truth_files import Truth
from rag_eval.metrics.metric import Cut, MetricName, OwnMetric, Values, metric_of, score_name, split_name
from rag_eval.metrics.passage_tokens import TokenCount
from rag_eval.metrics.score_tables import UnjudgedAs, held_shares, score_passages
from rag_eval.pipeline.caches import token_counts
from rag_eval.pipeline.document_steps import StoredDocuments
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.wording import with_interval
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.stats.intervals import Estimate, PredictionPowered, prediction_powered
from rag_eval.stats.paired_scores import FEWEST_DOCUMENTS, Units
from rag_eval.tables import (
    CHUNKS,
    PLACE,
    TRUTH,
    TruthTables,
    as_passages,
    queries_from_table,
    table_of,
    truth_from_tables,
)
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.evidence import PERSON, RELEVANT_GRADE, TRUTH_KINDS, JudgedPassage, judgements
from rag_eval.types.ids import ChunkId


@dataclass(frozen=True)
class ConfigurationUnjudged:
    """The unjudged text of a configuration.

    Attributes:
        name: Its name.
        unjudged: The unjudged share of what it retrieves, at the cut of the ranking metric.
        value: The ranking metric.
        most: The ranking metric if all unjudged text were relevant; None if that is no bound.
        precision: The precision at the ranking metric's cut if people had judged all pooled passages; None without a
            sample that people and a model judged.
    """

    name: str
    unjudged: float
    value: float
    most: float | None
    precision: PredictionPowered | None


@dataclass(frozen=True)
class UnjudgedReport:
    """The unjudged text of a run, by configuration, best first, and what is known of its relevance.

    ``relevance`` is the relevant share of the pooled passages, by the sample of people and the grades of ``judge``.
    """

    metric: str
    configurations: list[ConfigurationUnjudged]
    pooled: int
    waiting: int
    judge: str | None
    relevance: PredictionPowered | None

    @property
    def titles(self) -> tuple[str, ...]:
        first = self.configurations[0]
        bound = ("at most",) if first.most is not None else ()
        return "configuration", "unjudged", self.metric, *bound, *(("estimated precision",) if first.precision else ())

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of the table, by ``titles``."""
        for row in self.configurations:
            most = [] if row.most is None else [number(row.most)]
            precision = [with_interval(row.precision.powered)] if row.precision else []
            yield row.name, percent(row.unjudged, 1), number(row.value), *most, *precision

    @property
    def sentences(self) -> list[str]:
        """Describe how much of the best configuration's text is unjudged, the bounds, and the judgements."""
        first = self.configurations[0]
        sentences = [
            f"{percent(first.unjudged, 1)} of what {first.name} retrieves is unjudged: it is not in the ground truth "
            "and counts as irrelevant, although it may be relevant."
        ]
        if first.most is not None:
            is_both = metric_of(self.metric).bounds == "both"
            least = "nor lower than shown" if is_both else "but lower if relevant text was not retrieved"
            sentences.append(f"Its {self.metric} cannot be higher than {number(first.most)}, {least}.")
        if relevance := self.relevance:
            sentences += [
                f"People judged {relevance.human.n:,} of {relevance.model.n:,} pooled passages, {self.judge} all.",
                f"{with_interval(relevance.powered)} of them are relevant by the model, corrected with the people; "
                f"{with_interval(relevance.human)} by the people alone, {with_interval(relevance.model)} by the model "
                f"alone. Brackets are 95 % intervals, by {relevance.powered.unit}.",
            ]
        elif self.pooled:
            sentences.append(f"{counted(self.pooled, 'passages')} were pooled; {self.waiting:,} are not judged yet.")
        return sentences


@dataclass(frozen=True)
class RunTables:
    """The tables of a run, each read when needed."""

    workspace: Workspace
    outcome: BenchmarkOutcome
    count: TokenCount

    @cached_property
    def truth(self) -> TruthTables:
        return self.workspace.read_truth(self.outcome.inputs.truth)

    @cached_property
    def documents(self) -> StoredDocuments:
        return StoredDocuments([self.workspace.read_table(shard) for shard in self.outcome.inputs.documents])

    @property
    def is_placed(self) -> bool:
        return self.outcome.inputs.evaluation_type == "token-level"

    def returned(self, configuration: ConfigurationOutcome) -> pa.Table:
        return as_passages(self.workspace.read_table(configuration.returned))

    def chunks(self, configuration: ConfigurationOutcome) -> pa.Table:
        shards = configuration.chunk_tables
        return self.workspace.read_tables(shards) if shards else CHUNKS.empty_table()

    def means(
        self,
        configuration: ConfigurationOutcome,
        names: list[str],
        passages: pa.Table | None = None,
        unjudged: UnjudgedAs = "irrelevant",
    ) -> list[float]:
        """Return the mean of each metric, by its full name, over these passages or over what was returned."""
        metrics = [MetricName.parse(name) for name in names]
        needs_chunks = not self.is_placed or any(metric.needs_chunks for metric in metrics)
        scores = score_passages(
            self.outcome.inputs.evaluation_type,
            self.returned(configuration) if passages is None else passages,
            self.truth,
            metrics,
            documents=self.documents if self.is_placed else None,
            chunks=self.chunks(configuration) if needs_chunks else None,
            count=self.count,
            unjudged=unjudged,
        )
        return [float(values.mean()) for values in np.split(scores.column("value").to_numpy(), len(metrics))]

    def held(self, configuration: ConfigurationOutcome, passages: pa.Table, cut: Cut) -> Values:
        """Return each passage's share of what is returned, relative to the mean over the queries."""
        queries, names = self.truth.queries, passages.column("query_id").unique()
        # A query without passages counts in the mean, but has no share.
        without = pc.invert(pc.is_in(queries.column("query_id"), value_set=names))
        place = queries.schema.get_field_index("unanswerable")
        truth = TruthTables(queries.set_column(place, queries.schema.field(place), without), passages)
        chunks = None if self.is_placed else self.chunks(configuration)
        level, documents = self.outcome.inputs.evaluation_type, self.documents if self.is_placed else None
        shares = held_shares(level, self.returned(configuration), truth, cut, documents, chunks, self.count)
        return shares / max(1, self.outcome.answerable)


@contextmanager
def opened_run(workspace: Workspace, outcome: BenchmarkOutcome) -> Iterator[RunTables]:
    """Open the tables of a run; token counts are cached in the workspace."""
    with token_counts(workspace) as count:
        yield RunTables(workspace, outcome, count)


def unjudged_of(workspace: Workspace, outcome: BenchmarkOutcome) -> UnjudgedReport | None:
    """Return the unjudged text that the configurations of a run retrieved; None without configurations.

    Raises ``ArtifactError`` if a table is missing.
    """
    if not outcome.configurations:
        return None
    objective, (column, cut) = outcome.ranking_metric, split_name(outcome.ranking_metric)
    metric = metric_of(column)
    cut = cut if cut.size else Cut("hits", max(outcome.config.k))
    has_bound = metric.bounds != "neither" and not issubclass(metric, OwnMetric)
    with opened_run(workspace, outcome) as run:
        pooled = _Pooled.of(run)
        rows = []
        for configuration in outcome.ranked():
            (share,) = run.means(configuration, [score_name("unjudged", cut.kind, cut.size)])
            most = run.means(configuration, [objective], unjudged="relevant")[0] if has_bound else None
            precision = pooled.precision(run, configuration, cut)
            value = configuration.metrics[objective]
            rows.append(ConfigurationUnjudged(configuration.name, share, value, most, precision))
        relevance = pooled.estimate(np.ones(len(pooled.passages))) if pooled.is_sampled else None
    return UnjudgedReport(objective, rows, pooled.count, pooled.waiting, pooled.judge, relevance)


def pooled_truth(
    workspace: Workspace, outcome: BenchmarkOutcome, k: int, truth: list[Truth] | None = None
) -> list[Truth]:
    """Return ground truth, by default that of the run, with the unjudged passages that its configurations retrieved.

    Raises ``ArtifactError`` if a table is missing.
    """
    with opened_run(workspace, outcome) as run:
        if truth is None:
            truth = truth_from_tables(run.truth, TRUTH_KINDS[outcome.inputs.evaluation_type])
        retrieved = {configuration.name: run.returned(configuration) for configuration in outcome.ranked()}
        return pool(truth, retrieved, k, run.documents if run.is_placed else {})


def passage_texts(workspace: Workspace, outcome: BenchmarkOutcome) -> dict[ChunkId, str]:
    """Return the texts of the chunks of a run, by their ids; none for a run of character spans."""
    if outcome.inputs.evaluation_type == "token-level":
        return {}
    shards = dict.fromkeys(shard for configuration in outcome.configurations for shard in configuration.chunk_tables)
    rows = (row for shard in shards for row in workspace.read_table(shard).to_pylist())
    return {ChunkId(row["chunk_id"]): row["content"] for row in rows}


@dataclass(frozen=True)
class _Pooled:
    """The pooled passages: their number, how many wait for a grade, and those that a model judged."""

    count: int
    waiting: int
    judge: str | None
    passages: list[tuple[str, JudgedPassage]]
    in_truth: Values

    @classmethod
    def of(cls, run: RunTables) -> "_Pooled":
        queries = queries_from_table(run.truth.queries)
        pooled = [(str(query.id), passage) for query in queries for passage in judgements(query) if passage.is_pooled]
        judges = Counter(judge for _, passage in pooled for judge in passage.grades if judge != PERSON)
        judge = max(judges, key=judges.__getitem__, default=None)
        names = PLACE if run.is_placed else ("chunk_id",)
        passages = [row for row in pooled if judge in row[1].grades and row[1].place.keys() == set(names)]
        places = zip(*(run.truth.answers.column(name).to_pylist() for name in ("query_id", *names)), strict=True)
        truth = set(places) if passages else set()
        in_truth = np.array([(query_id, *passage.place.values()) in truth for query_id, passage in passages], float)
        return cls(len(pooled), sum(passage.grade is None for _, passage in pooled), judge, passages, in_truth)

    @cached_property
    def drawn(self) -> list[bool]:
        """Whether each passage was drawn for people and has been judged by a person."""
        return [passage.sampled and PERSON in passage.grades for _, passage in self.passages]

    @property
    def is_sampled(self) -> bool:
        return any(self.drawn)

    def estimate(self, weights: Values) -> PredictionPowered:
        """Return the mean of relevance times its weight over the passages."""
        by_model, by_person = (
            np.array([passage.grades.get(judge or "", 0) >= RELEVANT_GRADE for _, passage in self.passages], float)
            for judge in (self.judge, PERSON)
        )
        return prediction_powered(by_model, np.where(self.drawn, by_person, np.nan), self.units, weights)

    @cached_property
    def units(self) -> Units:
        """The documents of the passages, or the queries if there are too few documents."""
        sources = [passage.passage for _, passage in self.passages]
        names = [source.doc_id if isinstance(source, CharacterSpan) else "" for source in sources]
        by_document = len(set(names)) >= FEWEST_DOCUMENTS
        unique, numbers = np.unique(names if by_document else [row[0] for row in self.passages], return_inverse=True)
        return Units("documents" if by_document else "queries", numbers, len(unique))

    def precision(self, run: RunTables, configuration: ConfigurationOutcome, cut: Cut) -> PredictionPowered | None:
        """Return the precision if people had judged all passages; None without a sample of them."""
        if not self.is_sampled:
            return None
        rows = [(query_id, n, 0, *passage.place.values()) for n, (query_id, passage) in enumerate(self.passages)]
        passages = table_of(TRUTH, rows, ("query_id", "group", "member", *self.passages[0][1].place))
        shares = run.held(configuration, passages, cut)
        name = score_name("span_precision" if run.is_placed else "chunk_precision", cut.kind, cut.size)
        known = run.means(configuration, [name])[0] - float(shares @ self.in_truth)
        estimate = self.estimate(shares * len(shares))
        powered, human, model = (_raised(part, known) for part in (estimate.powered, estimate.human, estimate.model))
        return PredictionPowered(powered, human, model, estimate.weight)


def _raised(estimate: Estimate, known: float) -> Estimate:
    """Add a known share to the estimate of a share."""
    ends = [None if end is None else float(np.clip(end + known, 0.0, 1.0)) for end in (estimate.low, estimate.high)]
    return replace(estimate, mean=estimate.mean + known, low=ends[0], high=ends[1])
