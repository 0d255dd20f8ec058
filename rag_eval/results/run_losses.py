"""Compute where configurations lose recall, and in which stage a configuration loses more than in another run.

For every stage that both runs have, the loss of each query is compared with that in the other run, with a stage for
each retriever. The sign-flip test asks whether the loss grew, over documents (over queries if there are few
documents), with Holm's correction over the stages. What a stage loses, later ones cannot find: of the stages whose loss
grew significantly, the first is named. If nothing is wrong, a stage is named in at most 5 % of the comparisons.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.config.models import SECTIONS, ConfigurationRecord
from rag_eval.errors import ArtifactError
from rag_eval.metrics.losses import LOSS_PARTS, HitStages, Losses, losses_of
from rag_eval.metrics.metric import Values, split_name
from rag_eval.pipeline.caches import token_counts
from rag_eval.pipeline.document_steps import StoredDocuments, read_chunks
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.compare import ComparedConfigurations, RunComparison
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.results.run_scores import SEED
from rag_eval.stats.paired_scores import Units
from rag_eval.stats.significance import flips_for, holm, is_significant, sign_flip_p_values, without_rounding

SEARCHED_WITH = ("chunker", "context", "embedder", "queries", "selection")
"""Parts besides the store that affect the hits of a vector search."""


def configuration_losses(
    workspace: Workspace,
    outcome: BenchmarkOutcome,
    configuration: ConfigurationOutcome,
    ks: Sequence[int],
    kind: Literal["hits", "tokens"] = "hits",
) -> Losses | None:
    """Return the losses of a configuration from the hits of its run; None for a whole system, which has no stages.

    ``ks`` are numbers of hits, or budgets of tokens. The hits of exact search are those of a configuration with the
    same chunks, vectors and searches and the exact store, if the run has one. A search engine loses against it: its
    vector search in the index, its hybrid search in the fusion.
    """
    if configuration.configuration.system is not None:
        return None
    truth, level = workspace.read_truth(outcome.inputs.truth), outcome.inputs.evaluation_type
    hits = {stage: workspace.read_table(table) for stage, table in configuration.hits_by_stage.items()}
    hits, exact = _beside_exact_search(workspace, outcome, configuration.configuration, hits)
    passages = None if configuration.passages is None else workspace.read_table(configuration.passages)
    # Chunks of documents without truth cannot reach it.
    retrieved, relevant = [*hits.values(), *exact.values()], truth.answers.column("doc_id").unique()
    chunks = read_chunks(workspace, configuration.chunk_tables, level, retrieved, relevant)
    documents = None
    if kind == "tokens" and level == "token-level":
        doc_ids = [relevant, *(table.column("doc_id").unique() for table in retrieved)]
        shards = [workspace.read_table(shard) for shard in outcome.inputs.documents]
        documents = StoredDocuments(shards, pa.concat_arrays(doc_ids).drop_null())
    stages = HitStages(hits, exact, passages, _allowed(workspace, configuration))
    with token_counts(workspace) as counts:
        return losses_of(level, chunks, truth, stages, ks, kind, documents, counts)


def _beside_exact_search(
    workspace: Workspace, outcome: BenchmarkOutcome, parts: ConfigurationRecord, hits: dict[str, pa.Table]
) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """Return the hits by stage, and those of exact search, if the run has the search that this one approximates."""
    plain, engine = SECTIONS["stores"].plain, parts.retrieval if parts.store is None else None
    query = "vector" if engine is None else engine.settings.get("query")
    stage = {"vector": "vector", "hybrid": "fused"}.get(str(query))
    if stage is None or (parts.store is not None and parts.store.label == plain):
        return hits, {}
    own = stage if engine is None else engine.label
    for other in outcome.configurations:
        same = all(getattr(other.configuration, name) == getattr(parts, name) for name in SEARCHED_WITH)
        store = other.configuration.store
        if same and store is not None and store.label == plain and stage in other.hits_by_stage:
            exact = workspace.read_table(other.hits_by_stage[stage])
            if stage == "vector":
                return hits, {own: exact}
            return {"hybrid": exact, "fused": hits[own]} | {name: hits[name] for name in hits if name != own}, {}
    return hits, {}


def _allowed(workspace: Workspace, configuration: ConfigurationOutcome) -> dict[str, pa.Array]:
    """Return the documents that the filters of queries leave."""
    if configuration.allowed is None or configuration.searches is None:
        return {}
    table = workspace.read_table(configuration.allowed)
    by_filter = {row: table.column("doc_ids")[n].values for n, row in enumerate(table.column("filter").to_pylist())}
    searches = workspace.read_table(configuration.searches).select(["query_id", "filter"]).to_pylist()
    return {row["query_id"]: by_filter[row["filter"]] for row in searches if row["filter"] is not None}


def losses_cut(outcome: BenchmarkOutcome) -> tuple[int, Literal["hits", "tokens"]]:
    """Return the cut at which losses are reported: the cut of the objective, or else the largest k."""
    cut = split_name(outcome.ranking_metric)[1]
    if cut.kind == "tokens":
        return cut.size, "tokens"
    return cut.hits or max(outcome.config.k), "hits"


def stage_losses(losses: Losses, k: int) -> dict[str, Values]:
    """Return the loss of every stage at one k, by query; each retriever has its own, such as ``search (words)``."""
    parts = losses.parts.filter(pc.field("k") == k)
    searches = losses.searches.filter(pc.field("k") == k)
    stages: dict[str, Values] = {}
    for part in LOSS_PARTS:
        if part != "search":
            stages[part] = parts.column(part).to_numpy()
            continue
        for name in pc.unique(searches.column("search")).to_pylist():
            stages[f"search ({name})"] = searches.filter(pc.field("search") == name).column("loss").to_numpy()
    return stages


@dataclass(frozen=True, slots=True)
class StageChange:
    """The mean loss of a stage in two runs, as a share of the relevant text.

    ``p`` tests the hypothesis that the loss did not grow; ``p_adjusted`` is corrected by Holm's method.
    """

    stage: str
    before: float
    after: float
    p: float
    p_adjusted: float

    @property
    def growth(self) -> float:
        """How much more is lost."""
        return self.after - self.before


def compare_stages(
    before: dict[str, Values], after: dict[str, Values], units: Units, rng: np.random.Generator
) -> list[StageChange]:
    """Test for every stage that both runs have whether it loses more, in the order of the stages.

    The losses are those of the same queries in the same order.
    """
    stages = [stage for stage in after if stage in before]
    changes = np.stack([without_rounding(after[stage] - before[stage]) for stage in stages])
    # A stage in which no query changed is not tested: it cannot be named, and needs no correction.
    changed = np.flatnonzero(changes.any(axis=1))
    p_values, adjusted = np.ones(len(stages)), np.ones(len(stages))
    if len(changed):
        sums = units.sums(changes[changed])
        p_values[changed] = sign_flip_p_values(sums, rng, "greater", flips=flips_for(len(changed)))
        adjusted[changed] = holm(p_values[changed])
    return [
        StageChange(stage, float(before[stage].mean()), float(after[stage].mean()), float(p), float(corrected))
        for stage, p, corrected in zip(stages, p_values, adjusted, strict=True)
    ]


def stage_changes(workspace: Workspace, compared: RunComparison, row: ComparedConfigurations) -> list[StageChange]:
    """Return how much more a configuration loses in each stage than in the run before, on the queries of both runs.

    At the cut that the run is ranked by; empty if a run does not show its stages.
    """
    k, kind = losses_cut(compared.after)
    losses_by_stage = []
    for outcome, name in ((compared.before, row.before), (compared.after, row.after)):
        configuration = next(found for found in outcome.configurations if found.name == name)
        losses = configuration_losses(workspace, outcome, configuration, [k], kind)
        if losses is None:
            return []
        place = {query_id: number for number, query_id in enumerate(losses.parts.column("query_id").to_pylist())}
        rows = np.array([place[query_id] for query_id in compared.scores.query_ids])
        losses_by_stage.append({stage: values[rows] for stage, values in stage_losses(losses, k).items()})
    units = compared.scores.paired(row.metric, {row.before: row.after})[1].units
    before, after = losses_by_stage
    return compare_stages(before, after, units, np.random.default_rng(SEED))


def drop_sentences(workspace: Workspace, compared: RunComparison) -> list[str]:
    """Name the stage of the drop for each configuration that is worse by the first metric, if it can be determined."""
    sentences = []
    for row in compared.by_metric(compared.metrics[0]):
        if row.comparison.verdict != "worse":
            continue
        try:
            stage = named_stage(stage_changes(workspace, compared, row))
        except ArtifactError as error:
            sentences.append(f"{row.name}: the stage of the drop is unknown: {error}.")
            continue
        if stage is not None:
            more = f"which loses {stage.growth:.3f} more"
            sentences.append(f"{row.name}: the drop is in: {stage.stage}, {more} (p = {stage.p_adjusted:.2g}).")
    return sentences


def named_stage(changes: Sequence[StageChange]) -> StageChange | None:
    """Return the first stage that loses significantly more, or None."""
    return next((change for change in changes if change.growth > 0 and is_significant(change.p_adjusted)), None)
