"""Where the configurations of a run lose recall, from the hits that the run kept.

The hits before a reranker, and those of exact search beside an approximate index, are those of the configuration of
the same run that differs in this part alone. Where there is none, that part is within what was ranked too low.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from rag_eval.config.benchmark import DEFAULT_RERANKER, DEFAULT_STORE, Configuration
from rag_eval.evaluation.chunk_losses import chunk_level_losses
from rag_eval.evaluation.losses import LOSS_PARTS, HitStages, average_losses
from rag_eval.evaluation.span_losses import token_level_losses
from rag_eval.pipeline.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import ChunkLevelTruthTables, TokenLevelTruthTables

PART_NAMES = {
    "found": "found",
    "embedder": "ranked too low",
    "reranker": "moved out by reranker",
    "index": "missed by index",
    "cut": "needs more than k chunks",
    "uncovered": "in no chunk",
}
"""The parts in words, in the order in which they are stacked."""


def loss_rows(
    workspace: Workspace, outcome: BenchmarkOutcome, configurations: Sequence[ConfigurationOutcome]
) -> Iterable[dict[str, Any]]:
    """For each configuration, k and part its share of the relevant text, mean over the queries; they add up to 1."""
    truth = outcome.inputs.truth
    queries, answers = workspace.read_table(truth.queries), workspace.read_table(truth.answers)
    for one in configurations:
        chunks, stages = workspace.read_table(one.chunk_table), _stages(workspace, outcome, one)
        if truth.evaluation_type == "token-level":
            losses = token_level_losses(chunks, TokenLevelTruthTables(queries, answers), stages, outcome.config.k)
        else:
            losses = chunk_level_losses(chunks, ChunkLevelTruthTables(queries, answers), stages, outcome.config.k)
        for means in average_losses(losses).to_pylist():
            shares = {"found": means["final_recall"], **{part: means[part] for part in LOSS_PARTS}}
            for order, (part, words) in enumerate(PART_NAMES.items()):
                yield {
                    "configuration": one.name,
                    "k": means["k"],
                    "part": words,
                    "share": round(shares[part], 5),
                    "order": order,
                }


def _stages(workspace: Workspace, outcome: BenchmarkOutcome, one: ConfigurationOutcome) -> HitStages:
    """The hits of exact search, of the index that was used and after reranking, as far as the run has them."""
    plain = one.configuration.model_copy(update={"reranker": DEFAULT_RERANKER})
    approximate = _sibling(outcome, plain) or one
    exact = approximate
    if approximate.configuration.store is not None and approximate.configuration.reranker == DEFAULT_RERANKER:
        exact = _sibling(outcome, plain.model_copy(update={"store": DEFAULT_STORE})) or approximate
    return HitStages(*(workspace.read_table(stage.hits) for stage in (exact, approximate, one)))


def _sibling(outcome: BenchmarkOutcome, configuration: Configuration) -> ConfigurationOutcome | None:
    return next((one for one in outcome.configurations if one.configuration == configuration), None)
