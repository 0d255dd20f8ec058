"""The numbers behind a report's charts, from a run's scores and tables; the page draws them.

A value that was not measured, or that says nothing, is None: no line is drawn through it.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from math import sqrt
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from rag_eval.formatting import counted
from rag_eval.metrics.budget import BUDGET
from rag_eval.metrics.losses import LOSS_PARTS, average_losses
from rag_eval.metrics.metric import DEFAULT_ENCODING, higher_is_better, metric_of, split_name
from rag_eval.parts import label
from rag_eval.pipeline.document_steps import StoredDocuments, read_chunks
from rag_eval.pipeline.references import digest_of
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.contenders import Contender
from rag_eval.reports.strip import Strip
from rag_eval.reports.verdict import RunVerdict
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.results.run_losses import configuration_losses, losses_cut
from rag_eval.tokens import count_slices, count_tokens

MOST_CHARTED = 100
"""The most configurations that the charts show, the best ones."""

MOST_LANES = 6
"""The most configurations in the strip of those that are first at some budget."""

PARTS = {
    "uncovered": "in no chunk",
    "boundary": "in more or larger chunks than the cut has room for",
    "search": "ranked too low by every search",
    "index": "missed by the approximate index",
    "fusion": "moved down by the fusion",
    "selection": "dropped by a filter, a threshold or as a duplicate",
    "reranker": "moved down by the reranker",
    "return": "not in what is handed on",
}
"""Each loss and what it means, in the order in which they come about."""

BINS = 40
"""Of the distribution of chunk sizes."""

SAMPLED = 300
"""So many chunks of a chunker are counted in tokens, spread over all of them."""


def charts_of(
    workspace: Workspace, outcome: BenchmarkOutcome, ranked: Sequence[ConfigurationOutcome], verdict: RunVerdict
) -> dict[str, Any]:
    """What the page draws of the best configurations; ``ranked`` are all, best first."""
    charted = list(ranked[:MOST_CHARTED])
    if not charted:
        return {}
    numbers = {one.name: number for number, one in enumerate(charted)}
    chosen = {"ship": charted[0].name, "second": verdict.runner_up, "cheap": verdict.cheapest}
    by = outcome.ranking_metric
    return {
        "configurations": [_series(*pair) for pair in zip(charted, verdict.contenders, strict=False)],
        "unit": "relevant text" if outcome.config.evaluation_type == "token-level" else "relevant chunks",
        "objective": by,
        "share": metric_of(by).measures == "share",
        "lower": not higher_is_better(by),
        "within": verdict.strip is not None and split_name(by)[0] == verdict.strip.metric,
        "budget": verdict.budget or outcome.config.budget or BUDGET,
        "lossesAt": counted(*losses_cut(outcome)),
        "shipped": verdict.shipped is not None,
        "roles": {role: numbers[name] for role, name in chosen.items() if name in numbers},
        "curves": curves_of(verdict.strip, numbers),
        "strip": [] if verdict.strip is None else lanes_of(verdict.strip, charted[0].name),
        "safe": None if verdict.strip is None else safe_budgets(verdict.strip, charted[0].name, verdict.budget),
        "losses": losses_of_run(workspace, outcome, charted),
        "meanings": PARTS,
        "sizes": sizes_of(workspace, outcome, charted),
    }


def curves_of(strip: Strip | None, names: Iterable[str]) -> dict[str, Any]:
    """Recall by budget: the budgets, and for each configuration its mean at each, with the ends of its interval."""
    if strip is None:
        return {"budgets": [], "lines": []}
    series = [zip(strip.means[name], strip.low[name], strip.high[name], strict=True) for name in names]
    return {"budgets": strip.budgets, "lines": [[None if one[0] is None else one for one in line] for line in series]}


def lanes_of(strip: Strip, shipped: str) -> list[dict[str, Any]]:
    """A lane for each configuration that is first at some budget: where it is first, and where it is tied.

    The shipped one and those that are first over the most budgets, in the order of where they are. A stretch reaches to
    the middle between its budgets and the next ones, on a scale of doublings.
    """
    edges = [strip.budgets[0], *(sqrt(one * other) for one, other in pairwise(strip.budgets)), strip.budgets[-1]]

    def stretches(holds: Sequence[bool]) -> list[tuple[float, float]]:
        return [(round(edges[first], 1), round(edges[last + 1], 1)) for first, last in _runs(holds)]

    budgets = {name: [at for at, one in enumerate(strip.first) if one == name] for name in strip.first if name}
    kept = sorted(budgets, key=lambda name: (name != shipped, -len(budgets[name])))[:MOST_LANES]
    return [
        {
            "name": name,
            "first": stretches([one == name for one in strip.first]),
            "tied": stretches([name in among for among in strip.among]),
        }
        for name in sorted(kept, key=lambda name: sum(budgets[name]) / len(budgets[name]))
    ]


def safe_budgets(strip: Strip, name: str, budget: int | None) -> tuple[int, int] | None:
    """The budgets around this one over which nothing is surely better than a configuration."""
    runs = _runs([name in among for among in strip.among])
    found = ((strip.budgets[first], strip.budgets[last]) for first, last in runs)
    return next(((low, high) for low, high in found if budget is not None and low <= budget <= high), None)


def _runs(holds: Sequence[bool]) -> list[tuple[int, int]]:
    """The first and the last place of each run of true ones."""
    runs = [list(run) for is_on, run in groupby(range(len(holds)), key=holds.__getitem__) if is_on]
    return [(run[0], run[-1]) for run in runs]


def losses_of_run(
    workspace: Workspace, outcome: BenchmarkOutcome, charted: Sequence[ConfigurationOutcome]
) -> dict[str, Any]:
    """For the cut of the objective, each k and every configuration the share that each part loses, a mean over queries.

    None for a whole system, which shows no stages. With the recall the shares add up to 1.
    """
    size, kind = losses_cut(outcome)
    cuts: dict[Literal["hits", "tokens"], list[int]] = {"tokens": [size]} if kind == "tokens" else {}
    found: dict[str, list[list[float] | None]] = {}
    cuts["hits"] = outcome.config.k
    for unit, ks in cuts.items():
        for one in charted:
            losses = configuration_losses(workspace, outcome, one, ks, unit)
            means = [None] * len(ks) if losses is None else average_losses(losses.parts).to_pylist()
            for k, row in zip(ks, means, strict=True):
                shares = None if row is None else [round(row[part], 5) for part in LOSS_PARTS]
                found.setdefault(counted(k, unit), []).append(shares)
    return found


def sizes_of(
    workspace: Workspace, outcome: BenchmarkOutcome, charted: Sequence[ConfigurationOutcome]
) -> list[dict[str, Any]]:
    """How many chunks of each chunker have which length in characters, in bins from 0 to the longest of all.

    The median in tokens is that of a sample.
    """
    found: dict[str, tuple[str, Any, float]] = {}
    is_placed = outcome.config.evaluation_type == "token-level"
    documents = [workspace.read_table(shard) for shard in outcome.inputs.documents] if is_placed else []
    for one in charted:
        digest = digest_of(one.chunk_tables) if one.chunk_tables else ""
        if digest and digest not in found:
            chunks = read_chunks(workspace, one.chunk_tables, outcome.config.evaluation_type)
            lengths = (
                pc.subtract(chunks.column("end"), chunks.column("start"))
                if is_placed
                else pc.utf8_length(chunks.column("content"))
            )
            picked = np.unique(np.linspace(0, max(len(chunks) - 1, 0), SAMPLED, dtype=int))[: len(chunks)]
            sampled = chunks.select(["doc_id", "start", "end", "content"]).take(picked)
            read, tokens = StoredDocuments(documents, sampled.column("doc_id").unique()), []
            for doc_id, rows in groupby(sampled.to_pylist(), itemgetter("doc_id")):
                if is_placed:
                    places = np.array([(row["start"], row["end"]) for row in rows])
                    tokens += count_slices(read[doc_id].content, places, DEFAULT_ENCODING).tolist()
                else:
                    tokens += [count_tokens(row["content"], DEFAULT_ENCODING) for row in rows]
            found[digest] = label(one.configuration.chunker), lengths.to_numpy(), float(np.median(tokens or [0]))
    # A few very long ones would leave the others no room: they share the last bin.
    top = max((float(np.quantile(lengths, 0.99)) for _, lengths, _ in found.values() if len(lengths)), default=0.0)
    edges = np.append(np.linspace(0, max(top, 1.0), BINS + 1)[:-1], np.inf)
    return [
        {
            "name": name,
            "bins": np.histogram(lengths, edges)[0].tolist(),
            "step": float(edges[1]),
            "median": float(np.median(lengths)) if len(lengths) else 0.0,
            "tokens": tokens,
            "count": len(lengths),
        }
        for name, lengths, tokens in found.values()
    ]


def _series(one: ConfigurationOutcome, contender: Contender) -> dict[str, Any]:
    """The name of a configuration, its chunker and the rest of its name, its score, and what it costs."""
    chunker = label(one.configuration.system or one.configuration.chunker)
    costs = {
        "ms a search": contender.latency_ms,
        "texts to embed": contender.texts,
        "index bytes": contender.index_bytes,
        "cost $": contender.cost,
        "tokens a question": contender.tokens,
    }
    value = [None if end is None else round(end, 5) for end in (contender.mean, contender.low, contender.high)]
    search = one.name.removeprefix(f"{chunker}, ")
    return {"name": one.name, "chunker": chunker, "search": search, "value": value, "costs": costs}
