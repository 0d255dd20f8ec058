"""Where the configurations of a run lose recall, and in which stage one loses more than it did in another run.

For every stage that both runs have, the loss of each query in one run is compared with that in the other, a search
apart for each retriever; the sign-flip test asks whether the loss grew, over documents (over queries where there are
few documents), and Holm's correction is over the stages. What a stage loses, those after it cannot find: of the stages
whose loss grew significantly, the first is named. Where nothing is wrong, a stage is named in at most 5 % of the
comparisons.
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
"""The parts on which the hits of a vector search depend beside its store."""


def configuration_losses(
    workspace: Workspace,
    outcome: BenchmarkOutcome,
    one: ConfigurationOutcome,
    ks: Sequence[int],
    kind: Literal["hits", "tokens"] = "hits",
) -> Losses | None:
    """Return the losses of a configuration from the hits of its run; None for a whole system, which shows no stages.

    ``ks`` are numbers of hits, or budgets of tokens. The hits of exact search are those of a configuration with the
    same chunks, vectors and searches and the exact store, where the run has one.
    """
    if one.configuration.system is not None:
        return None
    truth, level = workspace.read_truth(outcome.inputs.truth), outcome.inputs.evaluation_type
    hits = {stage: workspace.read_table(table) for stage, table in one.hits_by_stage.items()}
    exact = _exact_hits(workspace, outcome, one.configuration)
    passages = None if one.passages is None else workspace.read_table(one.passages)
    # Chunks of other documents than those of the truth reach none of it.
    retrieved, near = [*hits.values(), *exact.values()], truth.answers.column("doc_id").unique()
    chunks = read_chunks(workspace, one.chunk_tables, level, retrieved, near)
    documents = None
    if kind == "tokens" and level == "token-level":
        named = [near, *(table.column("doc_id").unique() for table in retrieved)]
        shards = [workspace.read_table(shard) for shard in outcome.inputs.documents]
        documents = StoredDocuments(shards, pa.concat_arrays(named).drop_null())
    stages = HitStages(hits, exact, passages, _allowed(workspace, one))
    with token_counts(workspace) as counts:
        return losses_of(level, chunks, truth, stages, ks, kind, documents, counts)


def _exact_hits(workspace: Workspace, outcome: BenchmarkOutcome, parts: ConfigurationRecord) -> dict[str, pa.Table]:
    """Return the hits of exact search in the place of an approximate index's, where the run has them."""
    plain = SECTIONS["stores"].plain
    if parts.store is None or parts.store.label == plain:
        return {}
    for other in outcome.configurations:
        same = all(getattr(other.configuration, name) == getattr(parts, name) for name in SEARCHED_WITH)
        store = other.configuration.store
        if same and store is not None and store.label == plain:
            return {"vector": workspace.read_table(other.hits_by_stage["vector"])}
    return {}


def _allowed(workspace: Workspace, one: ConfigurationOutcome) -> dict[str, pa.Array]:
    """Return the documents that the filters of queries leave."""
    if one.allowed is None or one.searches is None:
        return {}
    table = workspace.read_table(one.allowed)
    by_filter = {row: table.column("doc_ids")[n].values for n, row in enumerate(table.column("filter").to_pylist())}
    searches = workspace.read_table(one.searches).select(["query_id", "filter"]).to_pylist()
    return {row["query_id"]: by_filter[row["filter"]] for row in searches if row["filter"] is not None}


def losses_cut(outcome: BenchmarkOutcome) -> tuple[int, Literal["hits", "tokens"]]:
    """Return the cut of the losses that explain a ranking: that of its objective, or the largest k without one."""
    cut = split_name(outcome.ranking_metric)[1]
    if cut.kind == "tokens":
        return cut.size, "tokens"
    return cut.hits or max(outcome.config.k), "hits"


def stage_losses(losses: Losses, k: int) -> dict[str, Values]:
    """Return the loss of every stage at one k, by query; a search for each retriever, such as ``search (words)``."""
    parts = losses.parts.filter(pc.field("k") == k)
    searches = losses.searches.filter(pc.field("k") == k)
    found: dict[str, Values] = {}
    for part in LOSS_PARTS:
        if part != "search":
            found[part] = parts.column(part).to_numpy()
            continue
        for name in pc.unique(searches.column("search")).to_pylist():
            own = searches.filter(pc.field("search") == name)
            found[f"search ({name})"] = own.column("loss").to_numpy()
    return found


@dataclass(frozen=True, slots=True)
class StageChange:
    """How much more a stage loses than before, as a share of the relevant text, and how sure it is that it does.

    ``p`` is that of the test that the loss did not grow, ``p_adjusted`` the same after Holm's correction.
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
    """Test of every stage that both have whether it loses more, in the order of the stages; see the module.

    The losses are those of the same queries in the same order.
    """
    stages = [stage for stage in after if stage in before]
    changes = np.stack([without_rounding(after[stage] - before[stage]) for stage in stages])
    # A stage of which no query changed is not looked at: it cannot be named, and asks for no correction.
    looked_at = np.flatnonzero(changes.any(axis=1))
    p_values, adjusted = np.ones(len(stages)), np.ones(len(stages))
    if len(looked_at):
        sums = units.sums(changes[looked_at])
        p_values[looked_at] = sign_flip_p_values(sums, rng, "greater", flips=flips_for(len(looked_at)))
        adjusted[looked_at] = holm(p_values[looked_at])
    return [
        StageChange(stage, float(before[stage].mean()), float(after[stage].mean()), float(p), float(corrected))
        for stage, p, corrected in zip(stages, p_values, adjusted, strict=True)
    ]


def stage_changes(workspace: Workspace, compared: RunComparison, row: ComparedConfigurations) -> list[StageChange]:
    """Return where a configuration loses more or less than in the run before, on the queries that both have.

    At the cut that the run is ranked by. [] where a run does not show its stages.
    """
    runs = ((compared.before, row.before), (compared.after, row.after))
    k, kind = losses_cut(compared.after)
    found = []
    for outcome, name in runs:
        one = next(one for one in outcome.configurations if one.name == name)
        losses = configuration_losses(workspace, outcome, one, [k], kind)
        if losses is None:
            return []
        place = {query_id: number for number, query_id in enumerate(losses.parts.column("query_id").to_pylist())}
        rows = np.array([place[query_id] for query_id in compared.scores.query_ids])
        found.append({stage: values[rows] for stage, values in stage_losses(losses, k).items()})
    units = compared.scores.paired(row.metric, {row.before: row.after})[1].units
    return compare_stages(found[0], found[1], units, np.random.default_rng(SEED))


def drop_sentences(workspace: Workspace, compared: RunComparison) -> list[str]:
    """Name for each configuration that is worse by the first metric the stage that the drop is in, if there is one.

    Where the tables of a run are gone, the sentence says so.
    """
    told = []
    for row in compared.by_metric(compared.metrics[0]):
        if row.comparison.verdict != "worse":
            continue
        try:
            named = named_stage(stage_changes(workspace, compared, row))
        except ArtifactError as error:
            told.append(f"{row.name}: the stage that the drop is in is not known: {error}.")
            continue
        if named is not None:
            share = f"which loses {named.growth:.3f} more"
            told.append(f"{row.name}: the drop is in: {named.stage}, {share} (p = {named.p_adjusted:.2g}).")
    return told


def named_stage(changes: Sequence[StageChange]) -> StageChange | None:
    """Return the first stage that loses significantly more; None where none does."""
    return next((one for one in changes if one.growth > 0 and is_significant(one.p_adjusted)), None)
