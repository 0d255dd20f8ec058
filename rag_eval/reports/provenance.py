"""What a result was made from and with: digests, versions, seeds, and the ledger of the work."""

import json

from rag_eval.benchmark.outcome import BenchmarkOutcome, StageWork
from rag_eval.benchmark.references import TableRef
from rag_eval.benchmark.scores import SEED
from rag_eval.disk.files import data_sha256
from rag_eval.formatting import counted
from rag_eval.reports.html import Html, element, scrolling, together
from rag_eval.reports.wording import work_in_words
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


def provenance_html(outcome: BenchmarkOutcome) -> Html:
    """The facts, the benchmark's settings and the ledger."""
    rows = [
        element("tr", element("th", name, scope="row"), element("td", value)) for name, value in facts(outcome).items()
    ]
    settings = json.dumps(outcome.config.model_dump(mode="json"), indent=2, ensure_ascii=False)
    return together(
        scrolling(element("table", element("tbody", *rows), class_="facts"), "What the run was made from"),
        element("details", element("summary", "The benchmark's settings"), element("pre", settings)),
        element("details", element("summary", "The ledger: what was computed and what reused"), _ledger(outcome)),
    )


def _ledger(outcome: BenchmarkOutcome) -> Html:
    """A row for every stage of every configuration."""
    everything = {"all configurations": outcome.stages}
    everything |= {one.name: one.stages for one in outcome.configurations}
    everything |= {name: failure.stages for name, failure in outcome.failures.items()}
    tables = {one.name: {"chunk": one.chunk_table, "score": one.scores} for one in outcome.configurations}
    rows = [
        _ledger_row(name, stage, work, tables.get(name, {}).get(stage))
        for name, stages in everything.items()
        for stage, work in stages.items()
    ]
    names = ("configuration", "stage", "work", "seconds", "tokens", "cost, $", "table, sha256")
    headings = [element("th", name, scope="col") for name in names]
    return scrolling(element("table", element("thead", element("tr", *headings)), element("tbody", *rows)), "Ledger")


def _ledger_row(name: str, stage: str, work: StageWork, table: TableRef | None) -> Html:
    tokens, cost = (None, None) if work.effort is None else (work.effort.tokens, work.effort.cost)
    return element(
        "tr",
        element("th", name, scope="row"),
        element("td", stage),
        element("td", work_in_words(work)),
        element("td", f"{work.seconds:.2f}", class_="number"),
        element("td", "–" if tokens is None else f"{tokens:,}", class_="number"),
        element("td", "–" if cost is None else f"{cost:.4f}", class_="number"),
        element("td", element("code", table.digest[:12]) if table else "–"),
    )
