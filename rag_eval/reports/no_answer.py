"""Report what each configuration of a run returns for questions that are declared unanswerable."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.formatting import counted, percent
from rag_eval.metrics.metric import Values
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.stats.abstention import ScoreThreshold, Share, score_threshold

FALSE_HIT_RATE = 0.05
"""The false-hit rate that the suggested threshold keeps."""

AFTER_SELECTION = ("selected", "reranked")
"""The stages after a selection's threshold, which compares the scores of the stage before them."""


@dataclass(frozen=True)
class Unanswered:
    """One configuration on the unanswerable questions.

    Attributes:
        name: Its name.
        returned: The share of the questions for which it returns something.
        threshold: The ``score_threshold`` that keeps the rate; None if there are too few questions for the rate.
    """

    name: str
    returned: Share
    threshold: ScoreThreshold | None


@dataclass(frozen=True)
class NoAnswer:
    """The configurations of a run on its unanswerable questions, best first."""

    questions: int
    configurations: list[Unanswered]

    titles = ("configuration", "false hits", "score_threshold", "false hits with it", "answerable kept")

    @property
    def sentences(self) -> list[str]:
        """Describe what the best configuration returns, and its threshold or how many questions one needs."""
        first = self.configurations[0]
        returned = _with_interval(first.returned.value, first.returned.interval)
        sentences = [
            f"{counted(self.questions, 'questions')} declared unanswerable. {first.name} returns something for "
            f"{returned} of such questions, which are false hits. Brackets are 95 % intervals."
        ]
        if first.threshold is None:
            fewest = ceil(1 / FALSE_HIT_RATE) - 1
            sentences.append(f"A score_threshold needs at least {fewest:,} unanswerable questions.")
        else:
            rate = f"{100 * FALSE_HIT_RATE:g} % on average"
            sentences.append(f"The score_threshold keeps the false-hit rate of other such questions at {rate}.")
        return sentences

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of the table of thresholds, by ``titles``."""
        for row in self.configurations:
            if row.threshold is not None:
                returned = _with_interval(row.returned.value, row.returned.interval)
                false_hits = _with_interval(row.threshold.false_hits.value, row.threshold.interval)
                yield row.name, returned, repr(row.threshold.score), false_hits, percent(row.threshold.kept.value, 1)


def _with_interval(share: float, interval: tuple[float, float]) -> str:
    return f"{percent(share, 1)} [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"


def no_answer(workspace: Workspace, outcome: BenchmarkOutcome) -> NoAnswer | None:
    """Return what the configurations of a run return for unanswerable questions; None if it has none.

    A configuration whose scores are not numbers is left out. Raises ``ArtifactError`` if a table is missing.
    """
    if not outcome.unanswerable or not outcome.configurations:
        return None
    queries = workspace.read_table(outcome.inputs.truth.queries)
    declared = queries.column("unanswerable").to_numpy(zero_copy_only=False)
    rows = []
    for configuration in outcome.ranked():
        best = _best_scores(workspace, configuration, queries)
        if np.isnan(best).any():
            continue
        hits = workspace.read_table(configuration.hits).column("query_id")
        returned = pc.is_in(queries.column("query_id"), value_set=pc.unique(hits)).to_numpy(zero_copy_only=False)
        threshold = score_threshold(best[~declared], best[declared], FALSE_HIT_RATE)
        share = Share(int(returned[declared].sum()), int(declared.sum()))
        rows.append(Unanswered(configuration.name, share, threshold))
    return NoAnswer(outcome.unanswerable, rows) if rows else None


def _best_scores(workspace: Workspace, configuration: ConfigurationOutcome, queries: pa.Table) -> Values:
    """Return the best score of every query at the stage before the threshold; -inf without a hit."""
    stages = [stage for stage in configuration.hits_by_stage if stage.partition(" ")[0] not in AFTER_SELECTION]
    hits = workspace.read_table(configuration.hits_by_stage[stages[-1]] if stages else configuration.hits)
    best = hits.select(["query_id", "score"]).group_by("query_id").aggregate([("score", "max")])
    rows = pc.index_in(queries.column("query_id"), value_set=best.column("query_id").combine_chunks())
    scores = best.column("score_max").fill_null(np.nan).take(rows)
    return np.asarray(scores.fill_null(-np.inf).to_numpy(), np.float64)
