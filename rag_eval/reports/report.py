"""The data of a report, from the tables that a run left in the workspace."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rag_eval.benchmark.compare import RunComparison, compare_runs
from rag_eval.benchmark.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.benchmark.references import digest_of
from rag_eval.benchmark.scores import RunScores, read_scores
from rag_eval.benchmark.workspace import Workspace
from rag_eval.errors import ArtifactError
from rag_eval.reports.against import verdict_sentence
from rag_eval.reports.chart_data import charts_of
from rag_eval.reports.charts import Chart
from rag_eval.reports.questions import ConfigurationTables, Overlay, Questions, pack_overlay
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
    ranked = [row.outcome for row in ranking.rows]
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
        charts=charts_of(workspace, outcome, ranked, known),
        overlay=_overlay(workspace, outcome, ranked, compared) if ranked else None,
        compared=compared,
    )


def questions_of(
    workspace: Workspace,
    outcome: BenchmarkOutcome,
    ranked: Sequence[ConfigurationOutcome],
    earlier: Sequence[ConfigurationTables] = (),
) -> Questions:
    """The questions of a run with its configurations, best first, and then those of an earlier run."""
    truth = outcome.inputs.truth
    return Questions(
        evaluation_type=truth.evaluation_type,
        documents=workspace.read_tables(outcome.inputs.documents),
        queries=workspace.read_table(truth.queries),
        truth=workspace.read_table(truth.answers),
        configurations=[*(_tables(workspace, one) for one in ranked), *earlier],
        ks=outcome.config.k,
        metrics=list(ranked[0].metrics),
        ranking_metric=outcome.ranking_metric,
    )


def _overlay(
    workspace: Workspace,
    outcome: BenchmarkOutcome,
    ranked: Sequence[ConfigurationOutcome],
    compared: RunComparison | None,
) -> Overlay:
    notes: list[str] = []
    earlier = _earlier_tables(workspace, compared, notes) if compared else []
    packed = pack_overlay(questions_of(workspace, outcome, ranked, earlier))
    return replace(packed, notes=notes + packed.notes)


def _earlier_tables(workspace: Workspace, compared: RunComparison, notes: list[str]) -> list[ConfigurationTables]:
    """The configurations of the earlier run, where its hits are of the same text and still there."""
    if compared.differences:
        notes.append(f"The hits of {compared.before.run} are not shown: they were found in other data.")
        return []
    try:
        return [
            _tables(workspace, one, f"{one.name} (in {compared.before.run})")
            for one in compared.before.ranked()
            if any(row.before == one.name for row in compared.rows)
        ]
    except ArtifactError as error:
        notes.append(f"The hits of {compared.before.run} are not shown: {error}.")
        return []


def _tables(workspace: Workspace, one: ConfigurationOutcome, name: str | None = None) -> ConfigurationTables:
    hits, scores = workspace.read_table(one.hits), workspace.read_table(one.scores)
    chunks = workspace.read_tables(one.chunk_tables)
    return ConfigurationTables(name or one.name, hits, chunks, digest_of(one.chunk_tables), scores)
