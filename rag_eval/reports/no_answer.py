"""What each configuration of a run returns for the questions that are declared unanswerable."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.formatting import counted, percent
from rag_eval.metrics.metric import Values, higher_is_better
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.results.run_scores import RunScores
from rag_eval.stats.abstention import NO_THRESHOLD, Abstention, RiskPoint, ScoreThreshold, Share

FALSE_HIT_RATE = 0.05
"""The false-hit rate that the threshold in a report keeps."""

COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Where a table shows the risk–coverage curve."""

AFTER_SELECTION = ("selected", "reranked")
"""The stages behind the threshold of a selection, which compares the scores of the stage before them."""


@dataclass(frozen=True)
class Unanswered:
    """One configuration: what it returns for unanswerable questions, and the threshold that keeps a rate.

    ``returned`` are the unanswerable questions for which it returns anything as it is, ``threshold`` is None where
    there are too few of them for the rate.
    """

    name: str
    returned: Share
    threshold: ScoreThreshold | None
    abstention: Abstention

    @property
    def curve(self) -> list[RiskPoint]:
        """The risk–coverage curve at ``COVERAGES``: the last point that covers no more, each once."""
        points = self.abstention.curve
        found = [next((p for p in reversed(points) if p.coverage <= share + 1e-9), None) for share in COVERAGES]
        return list(dict.fromkeys(point for point in found if point is not None))


@dataclass(frozen=True)
class NoAnswer:
    """The configurations of a run on its unanswerable questions, in their order of rank.

    ``metric`` is what risk is measured by.
    """

    metric: str
    questions: int
    configurations: list[Unanswered]

    TITLES = ("configuration", "false hits", "score_threshold", "false hits with it", "answerable kept")

    @property
    def sentences(self) -> list[str]:
        """What the table says, and what it takes to name a threshold."""
        told = [
            f"{counted(self.questions, 'questions')} declared unanswerable: a false hit is one for which anything is "
            f"returned. score_threshold is the one that keeps the false-hit rate of other such questions at "
            f"{100 * FALSE_HIT_RATE:g} % in the mean; the brackets are 95 % intervals."
        ]
        if any(one.threshold is None for one in self.configurations):
            told.append(f"That takes {int(np.ceil(1 / FALSE_HIT_RATE)) - 1:,} unanswerable questions at the least.")
        return told

    def rows(self) -> Iterable[tuple[str, ...]]:
        """The cells of the table, by ``TITLES``."""
        for one in self.configurations:
            found = one.threshold
            named = ("–", "–", "–")
            if found is not None:
                false = _with_interval(found.false_hits.value, found.interval)
                named = (repr(found.score), false, percent(found.kept.value, 1))
            yield one.name, _with_interval(one.returned.value, one.returned.interval), *named

    @property
    def curve_note(self) -> str:
        return (
            f"Risk and coverage of {self.configurations[0].name}: the mean of 1 − {self.metric} over the questions "
            "that are answered, best score first; an unanswerable question counts as 1."
        )

    CURVE_TITLES = ("questions answered", "risk", "false hits", "answerable kept", "score_threshold")

    def curve_rows(self) -> Iterable[tuple[str, ...]]:
        """The cells of the risk–coverage curve of the first configuration, by ``CURVE_TITLES``."""
        for point in self.configurations[0].curve:
            shares = (point.coverage, point.risk, point.false_hits, point.kept)
            yield *(percent(share, 1) for share in shares), repr(point.score) if point.score > NO_THRESHOLD else "–"


def _with_interval(share: float, interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{percent(share, 1)} [{100 * low:.1f}, {100 * high:.1f}]"


def no_answer(workspace: Workspace, outcome: BenchmarkOutcome, scores: RunScores) -> NoAnswer | None:
    """Return what the configurations of a run return for unanswerable questions; None where it has none.

    A configuration whose scores are not numbers is left out. Raises ``ArtifactError`` when a table is gone.
    """
    if not outcome.unanswerable or not outcome.configurations:
        return None
    queries = workspace.read_table(outcome.inputs.truth.queries)
    declared = queries.column("unanswerable").to_numpy(zero_copy_only=False)
    found = []
    for one in outcome.ranked():
        best = _best_scores(workspace, one, queries)
        if np.isnan(best).any():
            continue
        gains = scores.paired(outcome.ranking_metric).values[scores.configurations.index(one.name)]
        final = workspace.read_table(one.hits).column("query_id")
        returned = pc.is_in(queries.column("query_id"), value_set=pc.unique(final)).to_numpy(zero_copy_only=False)
        abstention = Abstention(best[~declared], _in_unit(gains, outcome.ranking_metric), best[declared])
        false = Share(int(returned[declared].sum()), int(declared.sum()))
        found.append(Unanswered(one.name, false, abstention.threshold(FALSE_HIT_RATE), abstention))
    return NoAnswer(outcome.ranking_metric, outcome.unanswerable, found) if found else None


def _in_unit(gains: Values, metric: str) -> Values:
    """What a metric gives as a share of what could be: a metric of which less is better, such as tokens, gives none."""
    return np.clip(gains, 0.0, 1.0) if higher_is_better(metric) else np.zeros(len(gains))


def _best_scores(workspace: Workspace, one: ConfigurationOutcome, queries: pa.Table) -> Values:
    """The best score of every query where a threshold would see it; -inf where it has no hit."""
    stages = [stage for stage in one.hits_by_stage if stage.partition(" ")[0] not in AFTER_SELECTION]
    hits = workspace.read_table(one.hits_by_stage[stages[-1]] if stages else one.hits)
    best = hits.select(["query_id", "score"]).group_by("query_id").aggregate([("score", "max")])
    places = pc.index_in(queries.column("query_id"), value_set=best.column("query_id").combine_chunks())
    scores = best.column("score_max").fill_null(np.nan).take(places)
    return np.asarray(scores.fill_null(-np.inf).to_numpy(), np.float64)
