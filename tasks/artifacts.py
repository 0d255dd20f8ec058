"""What a run shows in the Prefect UI: its name and tags, the comparison, each configuration."""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID

from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from rag_eval.config.benchmark import Configuration
from rag_eval.errors import as_sentence
from rag_eval.pipeline.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.markdown import comparison_rows, configuration_markdown, escape_markdown
from rag_eval.reports.write import keep_report, page_address
from rag_eval.types.ids import text_sha256

SLUG_CHARACTERS = 80

logger = logging.getLogger("rag_eval.pipeline")


def keep_reports(workspace: Workspace, outcome: BenchmarkOutcome) -> str:
    """Write the reports of a run; gives its answer with a link to the page, as Markdown.

    What goes wrong is said in the log: the results are kept without the reports.
    """
    try:
        report = keep_report(workspace, outcome)
    except Exception as error:  # noqa: BLE001  # hours of work must not end in an error of their picture
        logger.warning("the report of %s could not be written: %s", outcome.run, as_sentence(error))
        return f"Ranked by {outcome.ranking_metric}"
    return f"{escape_markdown(str(report.answer))} [Open the report]({page_link(workspace, outcome)})"


def page_link(workspace: Workspace, outcome: BenchmarkOutcome) -> str:
    """Where a run's page is: where its folder is served, as ``RAG_EVAL_RUNS_URL`` of the environment says, or kept."""
    served = os.environ.get("RAG_EVAL_RUNS_URL")
    kept = page_address(workspace, outcome)
    return f"{served}/{outcome.run}/{kept.rpartition('/')[2]}" if served else kept


def show_comparison(outcome: BenchmarkOutcome, description: str) -> None:
    """The ranked table of a benchmark, and what it says."""
    rows = comparison_rows(outcome)
    with as_a_convenience():
        create_table_artifact(table=rows, key="comparison", description=description)


def show_configuration(outcome: ConfigurationOutcome) -> None:
    """One configuration: its averages and its work."""
    markdown = configuration_markdown(outcome)
    with as_a_convenience():
        create_markdown_artifact(markdown=markdown, key=artifact_key(outcome.name))


def artifact_key(configuration: str) -> str:
    """The key of a configuration's artifact: readable, and no other configuration's."""
    slug = re.sub(r"[^a-z0-9]+", "-", configuration.lower()).strip("-")[:SLUG_CHARACTERS]
    return f"configuration-{slug}-{text_sha256(configuration)[:8]}"


def benchmark_run_name() -> str:
    """The corpus folder and the time, as the name of the benchmark run that begins."""
    return f"{flow_run.parameters['config'].corpus.name} {datetime.now(UTC):%Y-%m-%d %H:%M:%S}"


def tag_run(*tags: str) -> None:
    """Add tags to the flow run that this is called in.

    Not by Prefect's ``tags``, which go to every task run below too, and each tag of a task run makes it ask the server
    for a concurrency slot before it may begin.
    """
    with as_a_convenience(), get_client(sync_client=True) as client:
        client.update_flow_run(UUID(flow_run.id), tags=sorted({*flow_run.tags, *tags}))


def configuration_tags(configuration: Configuration) -> list[str]:
    """What kinds of parts a configuration has, such as ``retrieval:hybrid``."""
    parts = {
        "chunker": configuration.chunker.type,
        "retrieval": configuration.retrieval,
        "embedder": configuration.embedder and configuration.embedder.type,
        "reranker": configuration.reranker.type,
    }
    return [f"{part}:{kind}" for part, kind in parts.items() if kind not in (None, "none")]


@contextmanager
def as_a_convenience() -> Iterator[None]:
    """What the server does not take is said in the log; the results are kept without it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  # whatever the server or the way to it does
        logger.warning("what a run shows in Prefect is not complete: %s", as_sentence(error))
