"""The numbers behind a page's charts, from a run's scores and tables. What was not measured is None."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import pyarrow.compute as pc

from rag_eval.metrics.formulas import BUDGET
from rag_eval.metrics.losses import LOSS_PARTS, average_losses
from rag_eval.metrics.metric import Values, higher_is_better, split_name
from rag_eval.parts import label
from rag_eval.pipeline.document_steps import read_chunks
from rag_eval.pipeline.references import digest_of
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.verdict import RunVerdict
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.results.run_losses import configuration_losses, losses_cut

MOST_CHARTED = 100
"""The most configurations that the charts show, the best ones."""

LOSS_MEANINGS = {
    "uncovered": "in no chunk",
    "boundary": "in more or larger chunks than the cut has room for",
    "search": "ranked too low by every search",
    "index": "missed by the approximate index",
    "fusion": "moved down by the fusion",
    "selection": "dropped by a filter, a threshold or as a duplicate",
    "reranker": "moved down by the reranker",
    "return": "not in what is handed on",
}
"""Each loss and what it means, in the order in which they occur."""

BINS = 40
"""Of the distribution of chunk sizes."""


class ChunkSizes(TypedDict):
    """How many chunks of a chunker have which length in characters, in bins of ``step`` from 0."""

    name: str
    bins: list[int]
    step: float
    median: float
    count: int


def charts_of(workspace: Workspace, verdict: RunVerdict) -> dict[str, object]:
    """Return what the page draws of the best configurations; nothing if none finished."""
    outcome, strip, charted = verdict.outcome, verdict.strip, verdict.contenders[:MOST_CHARTED]
    if not charted:
        return {}
    names = [contender.name for contender in charted]
    roles = {"ship": names[0], "second": verdict.runner_up, "cheap": verdict.cheapest}
    configurations = [contender.outcome for contender in charted]
    return {
        "configurations": names,
        "unit": "relevant text" if outcome.config.evaluation_type == "token-level" else "relevant chunks",
        "objective": verdict.objective,
        "share": verdict.is_share,
        "lower": not higher_is_better(verdict.objective),
        "within": strip is not None and split_name(verdict.objective)[0] == strip.metric,
        "budget": verdict.budget or outcome.config.budget or BUDGET,
        "shipped": verdict.shipped is not None,
        "roles": {role: names.index(name) for role, name in roles.items() if name in names},
        "curves": {"budgets": strip.budgets if strip else [], "lines": strip.lines(names) if strip else []},
        "strip": strip.lanes(names[0]) if strip else [],
        "safe": strip and strip.safe_budgets(names[0], verdict.budget),
        "losses": losses_of_run(workspace, outcome, configurations),
        "meanings": LOSS_MEANINGS,
        "sizes": chunk_sizes(workspace, outcome, configurations),
    }


def losses_of_run(
    workspace: Workspace, outcome: BenchmarkOutcome, configurations: Sequence[ConfigurationOutcome]
) -> list[list[float] | None]:
    """Return the mean share that each part of each configuration loses at the cut of the objective.

    None for a whole system, which shows no stages. With the recall the shares add up to 1.
    """
    size, kind = losses_cut(outcome)
    shares: list[list[float] | None] = []
    for configuration in configurations:
        losses = configuration_losses(workspace, outcome, configuration, [size], kind)
        means = [] if losses is None else average_losses(losses.parts).to_pylist()
        shares.append([round(means[0][part], 5) for part in LOSS_PARTS] if means else None)
    return shares


def chunk_sizes(
    workspace: Workspace, outcome: BenchmarkOutcome, configurations: Sequence[ConfigurationOutcome]
) -> list[ChunkSizes]:
    """Return how long the chunks of each chunker are; chunkers that make the same chunks are one."""
    lengths: dict[str, tuple[str, Values]] = {}
    level = outcome.config.evaluation_type
    for configuration in configurations:
        digest = digest_of(configuration.chunk_tables) if configuration.chunk_tables else ""
        if digest and digest not in lengths:
            chunks = read_chunks(workspace, configuration.chunk_tables, level)
            start, end, content = (chunks.column(name) for name in ("start", "end", "content"))
            column = pc.subtract(end, start) if level == "token-level" else pc.utf8_length(content)
            lengths[digest] = label(configuration.configuration.chunker), column.to_numpy()
    # A few very long ones would leave the others no room: they share the last bin.
    top = max((float(np.quantile(values, 0.99)) for _, values in lengths.values() if len(values)), default=0.0)
    edges = np.append(np.linspace(0, max(top, 1.0), BINS + 1)[:-1], np.inf)
    return [
        {
            "name": name,
            "bins": np.histogram(values, edges)[0].tolist(),
            "step": float(edges[1]),
            "median": float(np.median(values)) if len(values) else 0.0,
            "count": len(values),
        }
        for name, values in lengths.values()
    ]
