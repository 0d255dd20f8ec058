"""The data of a report, from the tables that a run left in the workspace."""

from dataclasses import dataclass

from rag_eval.formatting import asked, counted
from rag_eval.pipeline.caches import token_counts
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.against import recommendation_sentence, verdict_sentence
from rag_eval.reports.charts import charts_of
from rag_eval.reports.no_answer import NoAnswer, no_answer
from rag_eval.reports.question_data import Overlay, pack_overlay
from rag_eval.reports.question_tables import questions_of
from rag_eval.reports.ranking import ConfigurationRanking
from rag_eval.reports.unjudged import UnjudgedReport, unjudged_of
from rag_eval.reports.verdict import RunVerdict, verdict_of
from rag_eval.reports.verdict_words import VerdictWords, words_of
from rag_eval.reports.why import Why, why
from rag_eval.results.compare import RunComparison, compare_runs
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_losses import drop_sentences
from rag_eval.results.run_scores import SEED, RunScores, read_scores
from rag_eval.stats.intervals import RESAMPLES
from rag_eval.storage.files import data_sha256, patterns_of


@dataclass(frozen=True)
class Report:
    """All that the report of a run shows.

    ``since`` says whether the recommendation changed since an earlier run, and how many configurations did; ``drops``
    names the stage that each drop since that run is in.
    """

    verdict: RunVerdict
    words: VerdictWords
    why: Why
    no_answer: NoAnswer | None
    unjudged: UnjudgedReport | None
    ranking: ConfigurationRanking
    charts: dict[str, object]
    overlay: Overlay | None
    compared: RunComparison | None
    since: list[str]
    drops: list[str]

    @property
    def outcome(self) -> BenchmarkOutcome:
        return self.verdict.outcome


def build_report(
    workspace: Workspace,
    outcome: BenchmarkOutcome,
    scores: RunScores | None = None,
    against: BenchmarkOutcome | None = None,
    *,
    allow_different: bool = False,
) -> Report:
    """Build the report of a run from its tables, compared with an earlier run if one is given.

    Raises ``ArtifactError`` if a table is missing, and ``ConfigurationError`` if the runs cannot be compared.
    """
    scores = scores or read_scores(workspace, outcome)
    verdict, compared, since = verdict_of(outcome, scores), None, []
    if against is not None:
        compared = compare_runs(workspace, against, outcome, allow_different=allow_different)
        before = verdict_of(against, read_scores(workspace, against))
        since = [recommendation_sentence(compared, before, verdict), verdict_sentence(compared)]
    overlay = None
    if verdict.contenders:
        with token_counts(workspace) as count:
            overlay = pack_overlay(questions_of(workspace, outcome, scores, compared), count=count)
    return Report(
        verdict=verdict,
        words=words_of(verdict),
        why=why(workspace, scores, verdict),
        no_answer=no_answer(workspace, outcome, scores),
        unjudged=unjudged_of(workspace, outcome),
        ranking=ConfigurationRanking.of(outcome, verdict.contenders),
        charts=charts_of(workspace, verdict),
        overlay=overlay,
        compared=compared,
        since=since,
        drops=drop_sentences(workspace, compared) if compared else [],
    )


def facts(outcome: BenchmarkOutcome) -> dict[str, str]:
    """Return what identifies a run, by name."""
    computed, cached = outcome.work()
    return {
        "run": outcome.run,
        "started": outcome.started.isoformat(timespec="seconds"),
        "took": f"{outcome.seconds:.1f} seconds",
        "corpus": f"{outcome.corpus.folder} ({', '.join(patterns_of(outcome.corpus.glob))})",
        "corpus, sha256": outcome.corpus.digest,
        "ground truth": outcome.ground_truth.name or str(outcome.ground_truth.path),
        "questions": asked(outcome.answerable, outcome.unanswerable),
        "ground truth, sha256": outcome.ground_truth.digest,
        "benchmark, sha256": data_sha256(outcome.config.model_dump(mode="json", exclude={"corpus", "ground_truth"})),
        "work": f"{counted(computed, 'steps')} computed, {cached:,} cached",
        "statistics": f"{RESAMPLES:,} resamples, seed {SEED}",
        "versions": ", ".join(f"{name} {version}" for name, version in outcome.versions.items()),
    }
