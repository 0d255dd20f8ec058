"""Prefect artifacts: the comparison, each configuration, and how far a run is, to look at in the UI."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from rag_eval.pipeline.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.reports.markdown import comparison_rows, configuration_markdown

logger = logging.getLogger("rag_eval.pipeline")


def show_comparison(outcome: BenchmarkOutcome) -> None:
    """The ranked table of a benchmark."""
    rows = comparison_rows(outcome)
    with _as_a_convenience():
        create_table_artifact(table=rows, key="comparison", description=f"Ranked by {outcome.ranking_metric}")


def show_configuration(outcome: ConfigurationOutcome) -> None:
    """One configuration: its averages and its work."""
    slug = re.sub(r"[^a-z0-9]+", "-", outcome.name.lower()).strip("-")
    markdown = configuration_markdown(outcome)
    with _as_a_convenience():
        create_markdown_artifact(markdown=markdown, key=f"configuration-{slug}")


@contextmanager
def _as_a_convenience() -> Iterator[None]:
    """An artifact that the server does not take is said in the log; the results are kept without it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  # whatever the server or the way to it does
        logger.warning("an artifact could not be shown in Prefect: %s", error)
