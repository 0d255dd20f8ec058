"""What a result was made from and with: digests, versions, seeds, and the work of every stage."""

from typing import NamedTuple

from rag_eval.benchmark.outcome import BenchmarkOutcome, StageWork
from rag_eval.benchmark.references import digest_of
from rag_eval.benchmark.scores import SEED
from rag_eval.disk.files import data_sha256
from rag_eval.formatting import counted
from rag_eval.stats.bootstrap import RESAMPLES


def facts(outcome: BenchmarkOutcome) -> dict[str, str]:
    """What identifies a run, by name."""
    computed, reused = outcome.work()
    return {
        "run": outcome.run,
        "started": outcome.started.isoformat(timespec="seconds"),
        "took": f"{outcome.seconds:.1f} seconds",
        "corpus": f"{outcome.corpus.folder} ({outcome.corpus.glob})",
        "corpus, sha256": outcome.corpus.digest,
        "ground truth": str(outcome.ground_truth.path),
        "ground truth, sha256": outcome.ground_truth.digest,
        "benchmark, sha256": data_sha256(outcome.config.model_dump(mode="json", exclude={"corpus", "ground_truth"})),
        "work": f"{counted(computed, 'stages')} computed, {reused:,} reused",
        "statistics": f"{RESAMPLES:,} resamples, seed {SEED}",
        "versions": ", ".join(f"{name} {version}" for name, version in outcome.versions.items()),
    }


class LedgerRow(NamedTuple):
    """A stage of a configuration: its work, in writing, and the digest of the table it made where that is kept."""

    configuration: str
    stage: str
    work: str
    seconds: str
    tokens: str
    cost: str
    digest: str


def ledger(outcome: BenchmarkOutcome) -> list[LedgerRow]:
    """A row for every stage of every configuration, those that all share first, those that failed last."""
    everything = {"all configurations": outcome.stages}
    everything |= {one.name: one.stages for one in outcome.configurations}
    everything |= {name: failure.stages for name, failure in outcome.failures.items()}
    digests = {
        one.name: {"chunk": digest_of(one.chunk_tables), "score": one.scores.digest} for one in outcome.configurations
    }
    return [
        _row(name, stage, work, digests.get(name, {}).get(stage))
        for name, stages in everything.items()
        for stage, work in stages.items()
    ]


def work_in_words(stage: StageWork) -> str:
    """Such as ``computed (3 of 100 documents)``."""
    if stage.effort is None or stage.work != "computed":
        return stage.work
    return f"{stage.work} ({stage.effort.fresh} of {stage.effort.total} {stage.effort.unit})"


def _row(name: str, stage: str, work: StageWork, digest: str | None) -> LedgerRow:
    tokens, cost = (None, None) if work.effort is None else (work.effort.tokens, work.effort.cost)
    return LedgerRow(
        name,
        stage,
        work_in_words(work),
        f"{work.seconds:.2f}",
        "–" if tokens is None else f"{tokens:,}",
        "–" if cost is None else f"{cost:.4f}",
        digest[:12] if digest else "–",
    )
