"""What the configurations of a run retrieved and nobody judged: how much it is, and what it leaves open."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.formatting import counted, number, percent
from rag_eval.ground_truth.holes import Truth, pool
from rag_eval.metrics.metric import Cut, MetricName, OwnMetric, Values, metric_of, score_name, split_name
from rag_eval.metrics.passage_tokens import TokenCount
from rag_eval.metrics.score_tables import held_shares, score_passages
from rag_eval.pipeline.document_steps import StoredDocuments
from rag_eval.pipeline.step import Context
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.stats.estimates import Estimate, PredictionPowered, prediction_powered
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

BOUND = "if all of it were relevant"


@dataclass(frozen=True)
class ConfigurationHoles:
    """One configuration: the unjudged share of what it retrieves by cut, the ranking metric as it is and at most.

    ``most`` is None where all unjudged text being relevant bounds nothing. ``precision`` is that of the cut of the
    ranking metric if people had judged all pooled passages; None where they judged none, or no model all.
    """

    name: str
    unjudged: Mapping[str, float]
    value: float
    most: float | None
    precision: PredictionPowered | None


@dataclass(frozen=True)
class Holes:
    """The unjudged text of a run, by configuration in their order of rank, and what is known of its relevance.

    ``pooled`` counts passages: all, those without a grade, and those of each judge. ``relevance`` is the share of the
    pooled passages that is relevant, by the sample of people and the judgements of ``judge``.
    """

    metric: str
    precision_metric: str
    configurations: list[ConfigurationHoles]
    pooled: Mapping[str, int]
    judge: str | None
    relevance: PredictionPowered | None

    @property
    def titles(self) -> tuple[str, ...]:
        first = self.configurations[0]
        bound = (BOUND,) if first.most is not None else ()
        powered = (f"{self.precision_metric}, estimated", "people alone", "model alone") if first.precision else ()
        return "configuration", *first.unjudged, self.metric, *bound, *powered

    @property
    def needed(self) -> tuple[str, ...]:
        """Of ``titles``, those that a narrow table keeps: unjudged at the cut of the metric, the metric, its bound."""
        first, cut = self.configurations[0], split_name(self.metric)[1]
        unjudged = [name for name in first.unjudged if split_name(name)[1] == cut]
        return *unjudged, self.metric, *([BOUND] if first.most is not None else [])

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The cells of the table, by ``titles``."""
        for one in self.configurations:
            found = one.precision
            means = () if found is None else tuple(map(with_interval, (found.powered, found.human, found.model)))
            most = () if one.most is None else (number(one.most),)
            shares = (percent(share, 1) for share in one.unjudged.values())
            yield one.name, *shares, number(one.value), *most, *means

    @property
    def sentences(self) -> list[str]:
        """What the table says, what holds of the bounds, and what the judgements come to."""
        told = [
            "What was retrieved and is neither in the ground truth nor judged is unjudged, and counts as irrelevant"
        ]
        told[0] += ", which it need not be."
        if self.configurations[0].most is not None:
            is_both = metric_of(self.metric).bounds == "both"
            least = "nor less than it is" if is_both else "but less where relevant text was not retrieved"
            told.append(f"{self.metric} cannot be more than if all of it were relevant, {least}.")
        if found := self.relevance:
            told.append(
                f"People judged {found.human.n:,} passages drawn from {found.model.n:,} that were pooled, {self.judge} "
                f"all of them: {with_interval(found.powered)} are relevant, by the model corrected with the people. "
                f"By the people alone it is {with_interval(found.human)}, by the model alone "
                f"{with_interval(found.model)}. The brackets are 95 % intervals, by {found.powered.unit}."
            )
        elif self.pooled:
            told.append(f"{counted(self.pooled['passages'], 'passages')} were pooled; {self.pooled['waiting']:,} wait.")
        return told

    def as_data(self) -> dict[str, Any]:
        bounds = metric_of(self.metric).bounds
        return asdict(self) | {"bounds": bounds, "configurations": [asdict(one) for one in self.configurations]}


def with_interval(found: Estimate) -> str:
    """Such as ``12.0 % [9.1, 14.9]``."""
    if found.low is None or found.high is None:
        return percent(found.mean, 1)
    return f"{percent(found.mean, 1)} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


@dataclass(frozen=True)
class RunTables:
    """The tables of a run, each read when it is needed."""

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

    def returned(self, one: ConfigurationOutcome) -> pa.Table:
        return as_passages(self.workspace.read_table(one.returned))

    def chunks(self, one: ConfigurationOutcome) -> pa.Table:
        return self.workspace.read_tables(one.chunk_tables) if one.chunk_tables else CHUNKS.empty_table()

    def means(
        self, one: ConfigurationOutcome, names: list[str], passages: pa.Table | None = None, **settings: Any
    ) -> list[float]:
        """The mean of each metric, by its full name, over what was returned or over these passages."""
        asked, hits = [MetricName.parse(name) for name in names], self.returned(one) if passages is None else passages
        given: dict[str, Any] = {"count": self.count, **settings}
        if any("chunks" in name.needs for name in asked) or not self.is_placed:
            given["chunks"] = self.chunks(one)
        level, documents = self.outcome.inputs.evaluation_type, self.documents if self.is_placed else None
        scores = score_passages(level, hits, self.truth, asked, documents=documents, **given)
        return [float(part.mean()) for part in np.split(scores.column("value").to_numpy(), len(asked))]

    def held(self, one: ConfigurationOutcome, passages: pa.Table, cut: Cut) -> Values:
        """The share of what is returned that each passage holds, of the mean over the questions."""
        queries, names = self.truth.queries, passages.column("query_id").unique()
        # A question without passages counts in the mean, and has no share.
        without = pc.invert(pc.is_in(queries.column("query_id"), value_set=names))
        place = queries.schema.get_field_index("unanswerable")
        some = TruthTables(queries.set_column(place, queries.schema.field(place), without), passages)
        chunks = None if self.is_placed else self.chunks(one)
        level, documents = self.outcome.inputs.evaluation_type, self.documents if self.is_placed else None
        shares = held_shares(level, self.returned(one), some, cut, documents, chunks, self.count)
        return shares / max(1, self.outcome.answerable)


def holes_of(workspace: Workspace, outcome: BenchmarkOutcome) -> Holes | None:
    """Return what the configurations of a run retrieved and nobody judged; None for a run without any.

    Raises ``ArtifactError`` when a table is gone.
    """
    if not outcome.configurations:
        return None
    column, cut = split_name(outcome.ranking_metric)
    metric = metric_of(column)
    cut = cut if cut.size else Cut("hits", max(outcome.config.k))
    names = [score_name("unjudged", "hits", k) for k in sorted(outcome.config.k)]
    names = list(dict.fromkeys([*names, score_name("unjudged", cut.kind, cut.size)]))
    has_bound = metric.bounds != "neither" and not issubclass(metric, OwnMetric)
    with opened_run(workspace, outcome) as run:
        pooled = _Pooled.of(run)
        found = []
        for one in outcome.ranked():
            shares = dict(zip(names, run.means(one, names), strict=True))
            most = run.means(one, [outcome.ranking_metric], unjudged="relevant")[0] if has_bound else None
            value = one.metrics[outcome.ranking_metric]
            found.append(ConfigurationHoles(one.name, shares, value, most, pooled.precision(run, one, cut)))
        label = "span_precision" if run.is_placed else "chunk_precision"
        return Holes(
            outcome.ranking_metric,
            score_name(label, cut.kind, cut.size),
            found,
            pooled.counts,
            pooled.judge,
            pooled.estimate(np.ones(len(pooled.things))) if pooled.is_sampled else None,
        )


def pooled_truth(
    workspace: Workspace, outcome: BenchmarkOutcome, k: int, truth: list[Any] | None = None
) -> list[Truth]:
    """Return the truth of a run, or that which it has become, with what its configurations retrieved and nobody judged.

    Raises ``ArtifactError`` when a table is gone.
    """
    with opened_run(workspace, outcome) as run:
        kind = TRUTH_KINDS[outcome.inputs.evaluation_type]
        items = truth_from_tables(run.truth, kind) if truth is None else truth
        retrieved = {one.name: run.returned(one) for one in outcome.ranked()}
        return pool(items, retrieved, k, run.documents if run.is_placed else {})


def passage_texts(workspace: Workspace, outcome: BenchmarkOutcome) -> dict[ChunkId, str]:
    """Return the texts of the chunks of a run, by their ids; none for a run of character spans."""
    if outcome.inputs.evaluation_type == "token-level":
        return {}
    tables = [shard for one in outcome.configurations for shard in one.chunk_tables]
    read = [workspace.read_table(shard) for shard in dict.fromkeys(tables)]
    return {ChunkId(row["chunk_id"]): row["content"] for table in read for row in table.to_pylist()}


@contextmanager
def opened_run(workspace: Workspace, outcome: BenchmarkOutcome) -> Iterator[RunTables]:
    """Give the tables of a run, of which token counts are kept for the next who asks."""
    with Context(workspace).token_counts() as count:
        yield RunTables(workspace, outcome, count)


@dataclass(frozen=True)
class _Pooled:
    """The passages that a model judged, with their queries, what it and people say, and which are in the truth."""

    counts: Mapping[str, int]
    judge: str | None
    things: list[tuple[str, JudgedPassage]]
    is_held: Values

    @classmethod
    def of(cls, run: RunTables) -> "_Pooled":
        every = [(str(one.id), passage) for one in queries_from_table(run.truth.queries) for passage in judgements(one)]
        judges = Counter(judge for _, passage in every for judge in passage.grades)
        counts = (
            {"passages": len(every), "waiting": sum(one.grade is None for _, one in every), **judges} if every else {}
        )
        models = [judge for judge, _ in judges.most_common() if judge != PERSON]
        judge = models[0] if models else None
        names = PLACE if run.is_placed else ("chunk_id",)
        things = [(name, one) for name, one in every if judge in one.grades and one.place.keys() == set(names)]
        rows = zip(*(run.truth.answers.column(name).to_pylist() for name in ("query_id", *names)), strict=True)
        held = set(rows) if things else ()
        is_held = np.array([(name, *one.place.values()) in held for name, one in things], float)
        return cls(counts, judge, things, is_held)

    @property
    def is_sampled(self) -> bool:
        """Whether people judged of what was drawn for them what the model judged too."""
        return any(one.sampled and PERSON in one.grades for _, one in self.things)

    def estimate(self, weights: Values) -> PredictionPowered:
        """The mean of relevance times its weight over the passages."""
        relevant = [
            [float(one.grades.get(judge or "", 0) >= RELEVANT_GRADE) for _, one in self.things]
            for judge in (self.judge, PERSON)
        ]
        drawn = np.array([one.sampled and PERSON in one.grades for _, one in self.things])
        return prediction_powered(np.array(relevant[0]), np.where(drawn, relevant[1], np.nan), self.units, weights)

    @cached_property
    def units(self) -> Units:
        """The documents of the passages, or with too few of them the questions."""
        documents = [one.passage.doc_id if isinstance(one.passage, CharacterSpan) else "" for _, one in self.things]
        by_document = len(set(documents)) >= FEWEST_DOCUMENTS
        names = documents if by_document else [name for name, _ in self.things]
        unique, numbers = np.unique(names, return_inverse=True)
        return Units("documents" if by_document else "queries", numbers, len(unique))

    def precision(self, run: RunTables, one: ConfigurationOutcome, cut: Cut) -> PredictionPowered | None:
        """The precision of a configuration if people had judged all passages; None without a sample of them."""
        if not self.is_sampled:
            return None
        rows = [(name, number, 0, *p.place.values()) for number, (name, p) in enumerate(self.things)]
        passages = table_of(TRUTH, rows, ("query_id", "group", "member", *self.things[0][1].place))
        shares = run.held(one, passages, cut)
        label = "span_precision" if run.is_placed else "chunk_precision"
        surely = run.means(one, [score_name(label, cut.kind, cut.size)])[0] - float(shares @ self.is_held)
        found = self.estimate(shares * len(shares))
        powered, human, model = (_raised(mean, surely) for mean in (found.powered, found.human, found.model))
        return PredictionPowered(powered, human, model, found.weight)


def _raised(found: Estimate, by: float) -> Estimate:
    """An estimate of a share to which something is added that is known."""
    low, high = (None if end is None else float(np.clip(end + by, 0.0, 1.0)) for end in (found.low, found.high))
    return replace(found, mean=found.mean + by, low=low, high=high)
