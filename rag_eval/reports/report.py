"""The data of a report, from the tables that a run left in the workspace."""

from dataclasses import dataclass

from rag_eval.benchmark.compare import RunComparison, compare_runs
from rag_eval.benchmark.outcome import BenchmarkOutcome
from rag_eval.benchmark.scores import RunScores, read_scores
from rag_eval.benchmark.workspace import Workspace
from rag_eval.reports.against import verdict_sentence
from rag_eval.reports.charts import Chart, charts_of
from rag_eval.reports.questions import Overlay, pack_overlay, questions_of
from rag_eval.reports.ranking import ConfigurationRanking, placed_configurations
from rag_eval.reports.recommendation import Recommendation, recommend


@dataclass(frozen=True)
class Report:
    """A run's recommendation, ranking, charts and questions, and its comparison with an earlier run if asked for."""

    outcome: BenchmarkOutcome
    recommendation: Recommendation
    ranking: ConfigurationRanking
    charts: list[Chart]
    overlay: Overlay | None
    compared: RunComparison | None


def build_report(
    workspace: Workspace,
    outcome: BenchmarkOutcome,
    scores: RunScores | None = None,
    against: BenchmarkOutcome | None = None,
    *,
    allow_different: bool = False,
) -> Report:
    """Build the report of a run from its tables, compared with an earlier run if one is given.

    Raises ``ArtifactError`` when a table is gone, and ``ConfigurationError`` when the runs cannot be compared.
    """
    known = read_scores(workspace, outcome) if scores is None else scores
    placed = placed_configurations(outcome, known)
    ranking = ConfigurationRanking.of(outcome, placed)
    compared = None
    if against is not None:
        compared = compare_runs(workspace, against, outcome, allow_different=allow_different)
    said = recommend(outcome, placed)
    if compared is not None:
        said = Recommendation(said.headline, [*said.sentences, verdict_sentence(compared)])
    return Report(
        outcome=outcome,
        recommendation=said,
        ranking=ranking,
        charts=charts_of(workspace, outcome, [row.outcome for row in ranking.rows], known),
        overlay=pack_overlay(questions_of(workspace, outcome, known, compared)) if ranking.rows else None,
        compared=compared,
    )
