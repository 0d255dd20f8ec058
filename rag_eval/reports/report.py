"""Collect the data of a report from the tables that a run left in the workspace."""

from dataclasses import dataclass

from rag_eval.formatting import asked, counted
from rag_eval.metrics.formulas import BUDGET
from rag_eval.metrics.losses import LOSS_PARTS
from rag_eval.metrics.metric import split_name
from rag_eval.pipeline.caches import token_counts
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.against import recommendation_sentence, verdict_sentence
from rag_eval.reports.no_answer import NoAnswer, no_answer
from rag_eval.reports.question_data import Overlay, pack_overlay
from rag_eval.reports.question_tables import questions_of
from rag_eval.reports.ranking import ConfigurationRanking
from rag_eval.reports.unjudged import UnjudgedReport, unjudged_of
from rag_eval.reports.verdict import RunVerdict, verdict_of
from rag_eval.reports.verdict_words import VerdictWords, words_of
from rag_eval.reports.why import LOSS_MEANINGS, Why, why
from rag_eval.results.compare import RunComparison, compare_runs
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_losses import drop_sentences
from rag_eval.results.run_scores import SEED, RunScores, read_scores
from rag_eval.stats.significance import RESAMPLES
from rag_eval.storage.files import data_sha256, patterns_of

MOST_CHARTED = 100
"""Maximum number of configurations in the charts: the best ones."""


@dataclass(frozen=True)
class Report:
    """All that the report of a run shows.

    ``since`` says whether the recommendation changed since an earlier run, and how many configurations changed;
    ``drops`` names the stage of each drop since that run.
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
    explained = why(workspace, scores, verdict, MOST_CHARTED)
    return Report(
        verdict=verdict,
        words=words_of(verdict),
        why=explained,
        no_answer=no_answer(workspace, outcome),
        unjudged=unjudged_of(workspace, outcome),
        ranking=ConfigurationRanking.of(outcome, verdict.contenders),
        charts=charts_of(verdict, explained),
        overlay=overlay,
        compared=compared,
        since=since,
        drops=drop_sentences(workspace, compared) if compared else [],
    )


def charts_of(verdict: RunVerdict, explained: Why) -> dict[str, object]:
    """Return the chart data of the best configurations; empty if none finished. None means not measured."""
    outcome, strip = verdict.outcome, verdict.strip
    names = [contender.name for contender in verdict.contenders[:MOST_CHARTED]]
    if not names:
        return {}
    roles = {"ship": names[0], "second": verdict.runner_up, "cheap": verdict.cheapest}
    losses = [explained.losses.get(name) for name in names]
    drawn: dict[str, object] = {"within": False, "budget": BUDGET, "curves": {"budgets": [], "lines": []}, "strip": []}
    if strip:
        drawn = {
            "within": split_name(verdict.objective)[0] == strip.metric,
            "budget": strip.budget,
            "curves": {"budgets": strip.budgets, "lines": strip.lines(names)},
            "strip": strip.lanes(names[0]),
            "safe": strip.safe_budgets(names[0], verdict.budget),
        }
    return drawn | {
        "configurations": names,
        "unit": "relevant text" if outcome.config.evaluation_type == "token-level" else "relevant chunks",
        "objective": verdict.objective,
        "shipped": verdict.shipped is not None,
        "roles": {role: names.index(name) for role, name in roles.items() if name in names},
        "losses": [lost and [round(lost[part], 5) for part in LOSS_PARTS] for lost in losses],
        "meanings": LOSS_MEANINGS,
        "finding": explained.finding,
    }


def facts(outcome: BenchmarkOutcome) -> dict[str, str]:
    """Return the facts that identify a run, by name."""
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
