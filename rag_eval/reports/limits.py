"""How many questions, configurations and scores one page carries, and what it says where that is not all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rag_eval.reports.ranking import hits_of
from rag_eval.reports.sides import Side, score_columns
from rag_eval.stats.directions import higher_is_better
from rag_eval.types.ids import EvaluationType

MOST_QUERIES = 50_000
MOST_HITS = 5_000_000
MOST_SCORES = 10_000_000


@dataclass(frozen=True)
class Questions:
    """What is laid over what: the dataset, the sides, best first, and what they are compared by."""

    evaluation_type: EvaluationType
    documents: pa.Table
    queries: pa.Table
    truth: pa.Table
    sides: Sequence[Side]
    ks: Sequence[int]
    metrics: Sequence[str]
    """Full names, such as ``span_recall@5``."""
    ranking_metric: str

    @property
    def depth(self) -> int:
        """How many hits are looked at."""
        return max(self.ks)


def affordable(
    questions: Questions,
    most_queries: int = MOST_QUERIES,
    most_hits: int = MOST_HITS,
    most_scores: int = MOST_SCORES,
) -> tuple[Questions, list[str]]:
    """As much of the questions as a page can hold, and a sentence for everything that was left out.

    Of too many questions, those stay that the best configuration answers worst; of too many configurations, the best;
    of too many scores, first those at the ranking's number of hits, then the ranking metric alone.
    """
    notes: list[str] = []
    total = questions.queries.num_rows
    if total > most_queries:
        questions = replace(questions, queries=_worst(questions, most_queries))
        notes.append(f"{most_queries:,} of {total:,} questions are shown: those that the best answers worst.")
    count = questions.queries.num_rows
    sides = max(2, most_hits // max(1, count * questions.depth))
    if sides < len(questions.sides):
        notes.append(f"The questions of the best {sides} of {len(questions.sides)} configurations are shown.")
        questions = replace(questions, sides=questions.sides[:sides])
    cut = hits_of(questions.ranking_metric)
    at_cut = [name for name in questions.metrics if hits_of(name) in (cut, None)]
    for metrics in (at_cut, [questions.ranking_metric]):
        if len(questions.metrics) * count * len(questions.sides) > most_scores:
            questions = replace(questions, metrics=metrics)
            notes.append(f"Of each question's scores the page carries {', '.join(metrics)}.")
    return questions, notes


def _worst(questions: Questions, most: int) -> pa.Table:
    """The queries with the worst scores of the best configuration, in the order of the dataset."""
    ids = questions.queries.column("query_id").combine_chunks()
    scores = score_columns(questions.sides[0], ids, [questions.ranking_metric])[0]
    worst = np.argsort(scores if higher_is_better(questions.ranking_metric) else -scores, kind="stable")[:most]
    return questions.queries.take(pa.array(np.sort(worst)))
