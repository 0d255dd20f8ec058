"""What the configurations of a run retrieved and nobody judged: how much it is, and what it leaves open."""

from collections import Counter
from collections.abc import Iterator, Mapping
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

BOUND = "if all of it were relevant"


@dataclass(frozen=True)
class ConfigurationUnjudged:
    """One configuration: the unjudged share of what it retrieves by cut, and the ranking metric as it is and at most.

    ``most`` is None where all unjudged text being relevant bounds nothing. ``precision`` is that of the cut of the
    ranking metric if people had judged all pooled passages; None without a sample that people and a model judged.
    """

    name: str
    unjudged: Mapping[str, float]
    value: float
    most: float | None
    precision: PredictionPowered | None


@dataclass(frozen=True)
class UnjudgedReport:
    """The unjudged text of a run, by configuration in their order of rank, and what is known of its relevance.

    ``pooled`` counts passages: all, those without a grade, and those of each judge. ``relevance`` is the share of the
    pooled passages that is relevant, by the sample of people and the grades of ``judge``.
    """

    metric: str
    precision_metric: str
    configurations: list[ConfigurationUnjudged]
    pooled: Mapping[str, int]
    judge: str | None
    relevance: PredictionPowered | None

    @property
    def titles(self) -> tuple[str, ...]:
        first = self.configurations[0]
        bound = (BOUND,) if first.most is not None else ()
        powered = (f"{self.precision_metric}, estimated", "people alone", "model alone") if first.precision else ()
        return "configuration", *first.unjudged, self.metric, *bound, *powered

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Return the cells of the table, by ``titles``."""
        for row in self.configurations:
            shares = [percent(share, 1) for share in row.unjudged.values()]
            most = [] if row.most is None else [number(row.most)]
            estimates = [row.precision.powered, row.precision.human, row.precision.model] if row.precision else []
            yield row.name, *shares, number(row.value), *most, *map(with_interval, estimates)

    @property
    def sentences(self) -> list[str]:
        """What the table shows, which bounds hold, and what the grades come to."""
        sentences = [
            "What was retrieved and is neither in the ground truth nor judged is unjudged, and counts as irrelevant, "
            "which it need not be."
        ]
        if self.configurations[0].most is not None:
            is_both = metric_of(self.metric).bounds == "both"
            least = "nor less than it is" if is_both else "but less where relevant text was not retrieved"
            sentences.append(f"{self.metric} cannot be more than if all of it were relevant, {least}.")
        if found := self.relevance:
            sentences.append(
                f"People judged {found.human.n:,} passages drawn from {found.model.n:,} that were pooled, {self.judge} "
                f"all of them: {with_interval(found.powered)} are relevant, by the model corrected with the people. "
                f"By the people alone it is {with_interval(found.human)}, by the model alone "
                f"{with_interval(found.model)}. The brackets are 95 % intervals, by {found.powered.unit}."
            )
        elif self.pooled:
            count = counted(self.pooled["passages"], "passages")
            sentences.append(f"{count} were pooled; {self.pooled['waiting']:,} wait.")
        return sentences


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

    def precision_name(self, cut: Cut) -> str:
        """Return the name of the precision at a cut."""
        return score_name("span_precision" if self.is_placed else "chunk_precision", cut.kind, cut.size)

    def returned(self, one: ConfigurationOutcome) -> pa.Table:
        return as_passages(self.workspace.read_table(one.returned))

    def chunks(self, one: ConfigurationOutcome) -> pa.Table:
        return self.workspace.read_tables(one.chunk_tables) if one.chunk_tables else CHUNKS.empty_table()

    def means(
        self,
        one: ConfigurationOutcome,
        names: list[str],
        passages: pa.Table | None = None,
        unjudged: UnjudgedAs = "irrelevant",
    ) -> list[float]:
        """Return the mean of each metric, by its full name, over what was returned or over these passages."""
        metrics = [MetricName.parse(name) for name in names]
        needs_chunks = not self.is_placed or any("chunks" in metric.needs for metric in metrics)
        scores = score_passages(
            self.outcome.inputs.evaluation_type,
            self.returned(one) if passages is None else passages,
            self.truth,
            metrics,
            documents=self.documents if self.is_placed else None,
            chunks=self.chunks(one) if needs_chunks else None,
            count=self.count,
            unjudged=unjudged,
        )
        return [float(part.mean()) for part in np.split(scores.column("value").to_numpy(), len(metrics))]

    def held(self, one: ConfigurationOutcome, passages: pa.Table, cut: Cut) -> Values:
        """Return the share of what is returned that each passage holds, of the mean over the queries."""
        queries, names = self.truth.queries, passages.column("query_id").unique()
        # A query without passages counts in the mean, and has no share.
        without = pc.invert(pc.is_in(queries.column("query_id"), value_set=names))
        place = queries.schema.get_field_index("unanswerable")
        some = TruthTables(queries.set_column(place, queries.schema.field(place), without), passages)
        chunks = None if self.is_placed else self.chunks(one)
        level, documents = self.outcome.inputs.evaluation_type, self.documents if self.is_placed else None
        shares = held_shares(level, self.returned(one), some, cut, documents, chunks, self.count)
        return shares / max(1, self.outcome.answerable)


def unjudged_of(workspace: Workspace, outcome: BenchmarkOutcome) -> UnjudgedReport | None:
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
        rows = []
        for one in outcome.ranked():
            shares = dict(zip(names, run.means(one, names), strict=True))
            most = run.means(one, [outcome.ranking_metric], unjudged="relevant")[0] if has_bound else None
            value = one.metrics[outcome.ranking_metric]
            rows.append(ConfigurationUnjudged(one.name, shares, value, most, pooled.precision(run, one, cut)))
        return UnjudgedReport(
            outcome.ranking_metric,
            run.precision_name(cut),
            rows,
            pooled.counts,
            pooled.judge,
            pooled.estimate(np.ones(len(pooled.passages))) if pooled.is_sampled else None,
        )


def pooled_truth(
    workspace: Workspace, outcome: BenchmarkOutcome, k: int, truth: list[Truth] | None = None
) -> list[Truth]:
    """Return ground truth, by default that of the run, with what its configurations retrieved and nobody judged.

    Raises ``ArtifactError`` when a table is gone.
    """
    with opened_run(workspace, outcome) as run:
        if truth is None:
            truth = truth_from_tables(run.truth, TRUTH_KINDS[outcome.inputs.evaluation_type])
        retrieved = {one.name: run.returned(one) for one in outcome.ranked()}
        return pool(truth, retrieved, k, run.documents if run.is_placed else {})


def passage_texts(workspace: Workspace, outcome: BenchmarkOutcome) -> dict[ChunkId, str]:
    """Return the texts of the chunks of a run, by their ids; none for a run of character spans."""
    if outcome.inputs.evaluation_type == "token-level":
        return {}
    tables = [shard for one in outcome.configurations for shard in one.chunk_tables]
    read = [workspace.read_table(shard) for shard in dict.fromkeys(tables)]
    return {ChunkId(row["chunk_id"]): row["content"] for table in read for row in table.to_pylist()}


@contextmanager
def opened_run(workspace: Workspace, outcome: BenchmarkOutcome) -> Iterator[RunTables]:
    """Open the tables of a run; token counts are stored in the workspace."""
    with token_counts(workspace) as count:
        yield RunTables(workspace, outcome, count)


@dataclass(frozen=True)
class _Pooled:
    """The passages that a model judged, with the ids of their queries, and which of them are in the ground truth."""

    counts: Mapping[str, int]
    judge: str | None
    passages: list[tuple[str, JudgedPassage]]
    is_held: Values

    @classmethod
    def of(cls, run: RunTables) -> "_Pooled":
        every = [
            (str(query.id), one)
            for query in queries_from_table(run.truth.queries)
            for one in judgements(query)
            if one.is_pooled
        ]
        judges = Counter(judge for _, one in every for judge in one.grades)
        waiting = sum(one.grade is None for _, one in every)
        counts = {"passages": len(every), "waiting": waiting, **judges} if every else {}
        judge = next((judge for judge, _ in judges.most_common() if judge != PERSON), None)
        names = PLACE if run.is_placed else ("chunk_id",)
        passages = [(name, one) for name, one in every if judge in one.grades and one.place.keys() == set(names)]
        rows = zip(*(run.truth.answers.column(name).to_pylist() for name in ("query_id", *names)), strict=True)
        held = set(rows) if passages else set()
        is_held = np.array([(name, *one.place.values()) in held for name, one in passages], float)
        return cls(counts, judge, passages, is_held)

    @property
    def is_sampled(self) -> bool:
        """Whether people judged some of what was drawn for them and the model judged too."""
        return any(one.sampled and PERSON in one.grades for _, one in self.passages)

    def estimate(self, weights: Values) -> PredictionPowered:
        """Return the mean of relevance times its weight over the passages."""
        by_model, by_person = (
            np.array([one.grades.get(judge or "", 0) >= RELEVANT_GRADE for _, one in self.passages], float)
            for judge in (self.judge, PERSON)
        )
        is_drawn = np.array([one.sampled and PERSON in one.grades for _, one in self.passages])
        return prediction_powered(by_model, np.where(is_drawn, by_person, np.nan), self.units, weights)

    @cached_property
    def units(self) -> Units:
        """The documents of the passages, or with too few of them the queries."""
        documents = [one.passage.doc_id if isinstance(one.passage, CharacterSpan) else "" for _, one in self.passages]
        by_document = len(set(documents)) >= FEWEST_DOCUMENTS
        names = documents if by_document else [name for name, _ in self.passages]
        unique, numbers = np.unique(names, return_inverse=True)
        return Units("documents" if by_document else "queries", numbers, len(unique))

    def precision(self, run: RunTables, one: ConfigurationOutcome, cut: Cut) -> PredictionPowered | None:
        """Return the precision of a configuration if people had judged all passages; None without a sample of them."""
        if not self.is_sampled:
            return None
        rows = [(name, number, 0, *judged.place.values()) for number, (name, judged) in enumerate(self.passages)]
        passages = table_of(TRUTH, rows, ("query_id", "group", "member", *self.passages[0][1].place))
        shares = run.held(one, passages, cut)
        known = run.means(one, [run.precision_name(cut)])[0] - float(shares @ self.is_held)
        estimate = self.estimate(shares * len(shares))
        powered, human, model = (_raised(mean, known) for mean in (estimate.powered, estimate.human, estimate.model))
        return PredictionPowered(powered, human, model, estimate.weight)


def _raised(estimate: Estimate, by: float) -> Estimate:
    """Return the estimate of a share to which something is added that is known."""
    low, high = (None if end is None else float(np.clip(end + by, 0.0, 1.0)) for end in (estimate.low, estimate.high))
    return replace(estimate, mean=estimate.mean + by, low=low, high=high)
