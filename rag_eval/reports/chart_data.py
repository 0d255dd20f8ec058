"""The rows of a run's charts, from its scores and tables."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rag_eval.benchmark.config import DEFAULTS
from rag_eval.benchmark.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.benchmark.scores import RunScores
from rag_eval.benchmark.workspace import Workspace
from rag_eval.metrics.budget import BUDGETS, RecallWithinTokens, TokensWithinBudget
from rag_eval.metrics.losses import LOSS_PARTS, HitStages, average_losses, chunk_level_losses, token_level_losses
from rag_eval.metrics.metric import higher_is_better
from rag_eval.reports.charts import Chart, Rows, by_budget, by_document, by_k, by_loss, trade_off
from rag_eval.reports.ranking import hits_of, without_hits
from rag_eval.stats.bootstrap import Estimate
from rag_eval.tables import TruthTables

PARTS = {
    "found": "",
    "search": "ranked below the first k",
    "reranker": "moved out of the first k",
    "index": "missed by the approximate index",
    "boundary": "needs more than k chunks",
    "uncovered": "in no chunk",
}
"""What is found and each loss with what it means, in the order in which they are stacked."""


def loss_rows(
    workspace: Workspace, outcome: BenchmarkOutcome, configurations: Sequence[ConfigurationOutcome]
) -> Iterable[dict[str, Any]]:
    """For each configuration, k and part its share of the relevant text, mean over the queries; they add up to 1."""
    truth = outcome.inputs.truth
    tables = TruthTables(workspace.read_table(truth.queries), workspace.read_table(truth.answers))
    losses_of = token_level_losses if truth.evaluation_type == "token-level" else chunk_level_losses
    for one in configurations:
        chunks, stages = workspace.read_tables(one.chunk_tables), _stages(workspace, outcome, one)
        for means in average_losses(losses_of(chunks, tables, stages, outcome.config.k)).to_pylist():
            shares = {"found": means["final_recall"], **{part: means[part] for part in LOSS_PARTS}}
            for order, part in enumerate(PARTS):
                yield {
                    "configuration": one.name,
                    "k": means["k"],
                    "part": part,
                    "share": round(shares[part], 5),
                    "order": order,
                }


def _stages(workspace: Workspace, outcome: BenchmarkOutcome, one: ConfigurationOutcome) -> HitStages:
    """The hits of exact search, as far as the run has them, of the index that was used, and after reranking."""
    before = [hits for stage, hits in one.hits_by_stage.items() if stage != "reranked"][-1]
    exact = None
    if one.configuration.store is not None:
        exact = _sibling(outcome, one, {kind: DEFAULTS[kind] for kind in ("reranker", "store")})
    tables = (exact.hits if exact else before, before, one.hits)
    return HitStages(*map(workspace.read_table, tables))


def _sibling(
    outcome: BenchmarkOutcome, one: ConfigurationOutcome, labels: dict[str, str]
) -> ConfigurationOutcome | None:
    """The configuration of the run with other parts, by their labels."""
    parts = {
        kind: getattr(one.configuration, kind).model_copy(update={"label": label}) for kind, label in labels.items()
    }
    name = one.configuration.model_copy(update=parts).name
    return next((other for other in outcome.configurations if other.name == name), None)


MOST_CHARTED = 24
"""The most configurations that a chart can tell apart."""

MOST_DOCUMENTS = 40


def charts_of(
    workspace: Workspace, outcome: BenchmarkOutcome, ranked: Sequence[ConfigurationOutcome], scores: RunScores
) -> list[Chart]:
    """The charts that the measured metrics allow, of the best configurations; ``ranked`` are all, best first."""
    charted = ranked[:MOST_CHARTED]
    if not charted:
        return []
    names = [one.name for one in charted]
    k = hits_of(outcome.ranking_metric) or max(outcome.config.k)
    level = "span" if outcome.config.evaluation_type == "token-level" else "chunk"
    unit = "relevant text" if level == "span" else "relevant chunks"
    estimates = scores.estimates()
    charts = []
    if {f"{level}_recall", f"{level}_precision"} <= set(outcome.config.metrics):
        charts.append(trade_off(_trade_off_rows(charted, level, outcome.config.k), k, unit))
    charts.append(by_budget(_budget_rows(charted, estimates), BUDGETS))
    by_hits = _k_rows(charted, estimates)
    if by_hits and len(outcome.config.k) > 1:
        metrics = [row["metric"] for row in by_hits]
        ranking = without_hits(outcome.ranking_metric)
        charts.append(by_k(by_hits, ranking if ranking in metrics else metrics[0], outcome.config.k))
    rows = list(loss_rows(workspace, outcome, charted))
    charts.append(by_loss(rows, k, names, _parts_of(rows), unit))
    if higher_is_better(outcome.ranking_metric):
        documents = len({query.document for query in scores.queries})
        rows = _document_rows(scores, outcome, names)
        charts.append(by_document(rows, outcome.ranking_metric, names, documents))
    return charts


def _series(one: ConfigurationOutcome) -> dict[str, str]:
    """The configuration of a row, its chunker, and the rest of its name."""
    chunker = one.configuration.chunker.label
    return {"configuration": one.name, "chunker": chunker, "search": one.name.removeprefix(f"{chunker}, ")}


def _trade_off_rows(charted: Sequence[ConfigurationOutcome], level: str, ks: Sequence[int]) -> Rows:
    rows = [
        _series(one)
        | {"k": k}
        | {name: round(one.metrics[f"{level}_{name}@{k}"], 5) for name in ("recall", "precision")}
        for one in charted
        for k in ks
    ]
    return _ringed(rows, lambda row: row["k"], ("recall", "precision"))


def _k_rows(charted: Sequence[ConfigurationOutcome], estimates: dict[str, dict[str, Estimate]]) -> Rows:
    rows: Rows = []
    for one in charted:
        for metric in one.metrics:
            k = hits_of(metric)
            if k is not None:
                name = without_hits(metric)
                rows.append(_series(one) | {"metric": name, "k": k} | _interval(estimates[one.name][metric]))
    return _ringed(rows, lambda row: row["metric"], ("k", "value"))


def _budget_rows(charted: Sequence[ConfigurationOutcome], estimates: dict[str, dict[str, Estimate]]) -> Rows:
    """Recall by budget; a curve ends where the hits that were kept no longer fill half of the budget."""
    rows: Rows = []
    for one in charted:
        found = estimates[one.name]
        for budget in BUDGETS:
            if budget == BUDGETS[0] or found[TokensWithinBudget(budget).name].mean >= budget / 2:
                recall = _interval(found[RecallWithinTokens(budget).name], "recall")
                rows.append(_series(one) | {"tokens": budget} | recall)
    return _ringed(rows, lambda row: None, ("tokens", "recall"))


def _ringed(rows: Rows, drawing: Callable[[dict[str, Any]], object], fields: Sequence[str]) -> Rows:
    """Add to each row how many configurations have the same values in a drawing, and its number among them, from 0."""
    series: dict[tuple[object, str], Rows] = {}
    for row in rows:
        series.setdefault((drawing(row), row["configuration"]), []).append(row)
    equal: dict[object, list[Rows]] = {}
    for (drawn, _), of_one in series.items():
        equal.setdefault((drawn, *(row[field] for row in of_one for field in fields)), []).append(of_one)
    for group in equal.values():
        for ring, of_one in enumerate(group):
            for row in of_one:
                row |= {"ring": ring, "equal": len(group)}
    return rows


def _interval(estimate: Estimate, name: str = "value") -> dict[str, float]:
    """The mean and the ends of its interval; where there is none, they are the mean."""
    ends = {"low": estimate.low, "high": estimate.high}
    return {name: round(estimate.mean, 5)} | {
        end: round(estimate.mean if value is None else value, 5) for end, value in ends.items()
    }


def _document_rows(scores: RunScores, outcome: BenchmarkOutcome, names: Sequence[str]) -> Rows:
    """The mean of each configuration over the questions of each document; of many documents, those asked about most."""
    paired = scores.paired(outcome.ranking_metric).subset(names)
    documents, number, counts = np.unique(np.array(paired.documents), return_inverse=True, return_counts=True)
    shown = sorted(np.argsort(-counts, kind="stable")[:MOST_DOCUMENTS].tolist())
    sums = np.stack([np.bincount(number, row, len(documents)) for row in paired.values])
    return [
        {
            "configuration": name,
            "document": str(documents[place]),
            "value": round(float(sums[row, place] / counts[place]), 5),
            "questions": int(counts[place]),
        }
        for row, name in enumerate(names)
        for place in shown
    ]


def _parts_of(rows: Rows) -> dict[str, str]:
    """The parts that are more than nothing anywhere, with what they mean: others would only lengthen the legend."""
    some = {row["part"] for row in rows if abs(row["share"]) > 0}
    return {part: meaning for part, meaning in PARTS.items() if part in some}
