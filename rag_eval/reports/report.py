"""The data of a report, from the tables that a run left in the workspace, and what it was made from and with."""

from dataclasses import dataclass
from typing import Any

from rag_eval.formatting import asked, counted
from rag_eval.pipeline.references import digest_of
from rag_eval.pipeline.step import Context
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.against import other_metrics_sentence, recommendation_sentence, verdict_sentence
from rag_eval.reports.charts import charts_of
from rag_eval.reports.no_answer import NoAnswer, no_answer
from rag_eval.reports.question_data import Overlay, pack_overlay, questions_of
from rag_eval.reports.ranking import ConfigurationRanking
from rag_eval.reports.unjudged import Holes, holes_of
from rag_eval.reports.verdict import RunVerdict, judged
from rag_eval.reports.why import Why, why
from rag_eval.results.compare import RunComparison, compare_runs
from rag_eval.results.outcome import BenchmarkOutcome, StageWork
from rag_eval.results.run_losses import drop_sentences
from rag_eval.results.run_scores import SEED, RunScores, read_scores
from rag_eval.stats.estimates import RESAMPLES
from rag_eval.storage.files import data_sha256, patterns_of


@dataclass(frozen=True)
class Report:
    """A run's verdict, why, its ranking, charts and questions, and how it compares with an earlier run if asked for."""

    outcome: BenchmarkOutcome
    verdict: RunVerdict
    why: Why
    no_answer: NoAnswer | None
    holes: Holes | None
    ranking: ConfigurationRanking
    charts: dict[str, Any]
    overlay: Overlay | None
    compared: RunComparison | None
    since: list[str]
    """Whether the recommendation changed since that run, and how many configurations are better or worse."""
    drops: list[str]
    """The stage that each drop since that run is in, in a sentence."""


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
    placed, verdict = judged(known, outcome)
    ranking = ConfigurationRanking.of(outcome, placed)
    compared, since, drops = None, [], []
    if against is not None:
        compared = compare_runs(workspace, against, outcome, allow_different=allow_different)
        before = judged(read_scores(workspace, against), against)[1]
        since = [recommendation_sentence(compared, before, verdict), verdict_sentence(compared)]
        since += filter(None, [other_metrics_sentence(compared)])
        drops = drop_sentences(workspace, compared)
    overlay = None
    if ranking.rows:
        with Context(workspace).token_counts() as count:
            overlay = pack_overlay(questions_of(workspace, outcome, known, compared), count=count)
    return Report(
        outcome=outcome,
        verdict=verdict,
        why=why(workspace, outcome, known, verdict),
        no_answer=no_answer(workspace, outcome, known),
        holes=holes_of(workspace, outcome),
        ranking=ranking,
        charts=charts_of(workspace, outcome, [row.outcome for row in ranking.rows], verdict),
        overlay=overlay,
        compared=compared,
        since=since,
        drops=drops,
    )


def facts(outcome: BenchmarkOutcome) -> dict[str, str]:
    """What identifies a run, by name."""
    computed, reused = outcome.work()
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
        "work": f"{counted(computed, 'stages')} computed, {reused:,} reused",
        "statistics": f"{RESAMPLES:,} resamples, seed {SEED}",
        "versions": ", ".join(f"{name} {version}" for name, version in outcome.versions.items()),
    }


def ledger(outcome: BenchmarkOutcome) -> list[tuple[str, ...]]:
    """A row for every stage of every configuration, those that all share first, those that failed last.

    Each has the configuration, the stage, its work, the seconds, tokens and dollars it took, and the digest of the
    table it made where that is kept.
    """
    everything = {"all configurations": outcome.stages}
    everything |= {one.name: one.stages for one in outcome.configurations}
    everything |= {name: failure.stages for name, failure in outcome.failures.items()}
    digests = {(one.name, "chunk"): digest_of(one.chunk_tables) for one in outcome.configurations}
    digests |= {(one.name, "score"): one.scores.digest for one in outcome.configurations}
    rows: list[tuple[str, ...]] = []
    for name, stages in everything.items():
        for stage, done in stages.items():
            tokens = "–" if done.effort is None or done.effort.tokens is None else f"{done.effort.tokens:,}"
            cost = "–" if done.effort is None or done.effort.cost is None else f"{done.effort.cost:.4f}"
            digest = digests.get((name, stage), "–")[:12]
            rows.append((name, stage, work_in_words(done), f"{done.seconds:.2f}", tokens, cost, digest))
    return rows


def work_in_words(stage: StageWork) -> str:
    """Such as ``computed (3 of 100 documents)``."""
    if stage.effort is None or stage.work != "computed":
        return stage.work
    return f"{stage.work} ({stage.effort.fresh:,} of {stage.effort.total:,} {stage.effort.unit})"
