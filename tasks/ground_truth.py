"""Ground truth: load it from a file, pull it from a service or generate it, join the sources, and credit copies."""

from typing import Any

from prefect import task, unmapped
from prefect.cache_policies import NO_CACHE

from rag_eval.ground_truth.copies import Copies
from rag_eval.pipeline import ground_truth_steps as steps
from rag_eval.pipeline.ground_truth_steps import Observation
from rag_eval.pipeline.references import Effort, TableRef, TruthRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.unchanged import source_digest
from rag_eval.types.ids import EvaluationType
from tasks.caching import cached
from tasks.network import RETRIES


@task(cache_policy=NO_CACHE, tags=["ground-truth"], task_run_name="pull {source.title}", **RETRIES)
def pull_ground_truth(source: Any, level: EvaluationType, *, workspace: Workspace) -> Observation:
    """Read the digest of a source of ground truth, and pull its content if it is a service.

    What was pulled is stored in the workspace, for runs that cannot reach the service.

    Args:
        source: The source, as a benchmark file names it: a file, a LangSmith dataset, or a model that writes questions.
        level: Whether it has spans or chunk ids.
        workspace: Where to store what was pulled.
    """
    return steps.observe(workspace, source, level)


@task(
    **cached(steps.load_ground_truth), **RETRIES, tags=["ground-truth"], task_run_name="load {observation.source.title}"
)
def load_ground_truth(
    observation: Observation,
    documents: list[TableRef],
    level: EvaluationType,
    reanchor: bool = False,
    alone: bool = True,
    *,
    workspace: Workspace,
) -> TruthRef:
    """Read the ground truth of one source, and check it against the documents.

    A model that writes questions is first asked about new documents.

    Args:
        observation: The source, from ``pull_ground_truth``.
        documents: All documents.
        level: Whether spans or chunk ids are scored.
        reanchor: Move spans to where their text is in changed documents.
        alone: Whether this is the only source.
        workspace: Where tables are read and written.
    """
    truth = steps.load_ground_truth.run(workspace, observation, documents, level, reanchor, alone)
    return truth.model_copy(update={"source": observation.digest})


@task(**cached(steps.join_ground_truth), tags=["ground-truth"], task_run_name="join ground truth")
def join_ground_truth(
    truth: list[TruthRef], titles: list[str], level: EvaluationType, source: str | None = None, *, workspace: Workspace
) -> TruthRef:
    """Join the ground truth of several sources, each query once.

    Args:
        truth: The truth of each source, from ``load_ground_truth``.
        titles: The titles of the sources.
        level: Whether spans or chunk ids are scored.
        source: The digest of all sources, which the result carries and the cache key includes.
        workspace: Where tables are read and written.
    """
    joined = steps.join_ground_truth.run(workspace, truth, titles, level)
    efforts = [part.effort for part in truth if part.effort is not None]
    return joined.model_copy(update={"source": source, "effort": Effort.total_of(efforts)})


@task(**cached(steps.find_copies), tags=["ground-truth"], task_run_name="find copies")
def find_copies(documents: TableRef, truth: TruthRef, *, workspace: Workspace) -> TableRef:
    """Find the copies of relevant spans in one shard of the documents."""
    return steps.find_copies.run(workspace, documents, truth)


@task(**cached(steps.join_copies), tags=["ground-truth"], task_run_name="join copies")
def join_copies(
    truth: TruthRef, copies: list[TableRef], source: str | None = None, *, workspace: Workspace
) -> TruthRef:
    """Credit the copies of relevant spans as alternatives to them; ``source`` as in ``join_ground_truth``."""
    credited = steps.join_copies.run(workspace, truth, copies)
    return credited.model_copy(update={"source": source, "effort": truth.effort})


def ground_truth(
    sources: list[Any],
    documents: list[TableRef],
    level: EvaluationType,
    reanchor: bool = False,
    copies: Copies = "off",
    *,
    workspace: Workspace,
) -> TruthRef:
    """Run the tasks that load every source of the ground truth, join them, and credit copies."""
    titles = [source.title for source in sources]
    observations = [pull_ground_truth(source, level, workspace=workspace) for source in sources]
    alone = len(sources) == 1
    loaded = [
        load_ground_truth(observation, documents, level, reanchor, alone, workspace=workspace)
        for observation in observations
    ]
    # The digest of a growing source is not that of the questions read from it.
    is_known = all(observation.is_cacheable for observation in observations)
    source = source_digest([observation.digest for observation in observations]) if is_known else None
    truth = loaded[0] if alone else join_ground_truth(loaded, titles, level, source, workspace=workspace)
    if copies == "exact" and level == "token-level":  # chunks with the same text share one id
        places = find_copies.map(documents, unmapped(truth), workspace=unmapped(workspace))
        truth = join_copies(truth, places.result(), source, workspace=workspace)
    return truth
