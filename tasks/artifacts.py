"""Prefect artifacts: the comparison, each configuration, and how far a run is, to look at in the UI."""

import re

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from rag_eval.pipeline.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.reports.markdown import comparison_rows, configuration_markdown


def show_comparison(outcome: BenchmarkOutcome) -> None:
    """The ranked table of a benchmark."""
    create_table_artifact(
        table=comparison_rows(outcome), key="comparison", description=f"Ranked by {outcome.ranking_metric}"
    )


def show_configuration(outcome: ConfigurationOutcome) -> None:
    """One configuration: its averages and its work."""
    slug = re.sub(r"[^a-z0-9]+", "-", outcome.name.lower()).strip("-")
    create_markdown_artifact(markdown=configuration_markdown(outcome), key=f"configuration-{slug}")
