"""A benchmark's configurations as LangSmith experiments."""

from collections.abc import Mapping, Sequence
from typing import Any

from rag_eval.config.benchmark import Configuration
from rag_eval.metrics.table import score_name
from rag_eval.pipeline.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.publishing.langsmith_outbox import (
    CHANNEL,
    ExperimentPayload,
    QueryOutcome,
    experiment_key,
    put_experiment,
    put_truth,
)
from rag_eval.publishing.publications import note_publications, outbox_of
from rag_eval.tables import (
    ChunkLevelTruthTables,
    TokenLevelTruthTables,
    chunk_truth_from_tables,
    documents_from_table,
    token_truth_from_tables,
)
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, TokenLevelGroundTruth

Truth = list[TokenLevelGroundTruth] | list[ChunkLevelGroundTruth]


def put_benchmark(workspace: Workspace, outcome: BenchmarkOutcome, dataset: str) -> None:
    """Put every configuration of a run for an experiment on a dataset, and note it beside the run.

    A configuration that failed is put as failed: its queries have an error and no scores. The ground truth goes first,
    for a dataset that is not there yet. What waits or was sent is not put again.
    Raises ``ArtifactError`` when tables of the run are gone.
    """
    new = unpublished(workspace, outcome, dataset)
    # Before anything is put: an address without a note would not be shown.
    note_publications(workspace, outcome.run, _names(outcome), dataset)
    if not new:
        return
    outbox = outbox_of(workspace)
    truth = _truth(workspace, outcome)
    put_truth(outbox, dataset, truth, only_if_new=True)
    contents = _contents(workspace, outcome)
    for done in outcome.configurations:
        if done.name in new:
            queries = _scored(workspace, outcome, done, truth, contents)
            put_experiment(outbox, _payload(outcome, dataset, done.configuration, queries))
    for name, failure in outcome.failures.items():
        if name in new:
            failed = [QueryOutcome(id=one.query.id, text=one.query.text, error=failure.reason) for one in truth]
            put_experiment(outbox, _payload(outcome, dataset, failure.configuration, failed))


def unpublished(workspace: Workspace, outcome: BenchmarkOutcome, dataset: str) -> dict[str, str]:
    """The configurations of a run that were not put for this dataset, with the keys of their parcels to be."""
    outbox = outbox_of(workspace)
    waiting = {parcel.key for parcel in outbox.waiting(CHANNEL)}
    keys = {name: experiment_key(outcome.run, name, dataset) for name in _names(outcome)}
    return {name: key for name, key in keys.items() if key not in waiting and outbox.receipt(CHANNEL, key) is None}


def _names(outcome: BenchmarkOutcome) -> list[str]:
    return [*(done.name for done in outcome.configurations), *outcome.failures]


def _truth(workspace: Workspace, outcome: BenchmarkOutcome) -> Truth:
    kept = outcome.inputs.truth
    queries, answers = workspace.read_table(kept.queries), workspace.read_table(kept.answers)
    if kept.evaluation_type == "token-level":
        return token_truth_from_tables(TokenLevelTruthTables(queries, answers))
    return chunk_truth_from_tables(ChunkLevelTruthTables(queries, answers))


def _contents(workspace: Workspace, outcome: BenchmarkOutcome) -> Mapping[str, str]:
    documents = documents_from_table(workspace.read_table(outcome.inputs.documents))
    return {document.id: document.content for document in documents}


def _scored(
    workspace: Workspace,
    outcome: BenchmarkOutcome,
    done: ConfigurationOutcome,
    truth: Truth,
    contents: Mapping[str, str],
) -> list[QueryOutcome]:
    scores: dict[str, dict[str, float]] = {one.query.id: {} for one in truth}
    for row in workspace.read_table(done.scores).to_pylist():
        scores[row["query_id"]][score_name(row["metric"], row["k"])] = row["value"]
    hits: dict[str, list[object]] = {one.query.id: [] for one in truth}
    by_chunk = outcome.inputs.truth.evaluation_type == "chunk-level"
    for row in workspace.read_table(done.hits).sort_by("rank").to_pylist():
        found = hits[row["query_id"]]
        if len(found) < outcome.inputs.deepest_k:
            found.append(row["chunk_id"] if by_chunk else _span(row, contents))
    key = "retrieved_chunk_ids" if by_chunk else "retrieved_spans"
    return [
        QueryOutcome(id=query.id, text=query.text, outputs={key: hits[query.id]}, scores=scores[query.id])
        for query in (one.query for one in truth)
    ]


def _span(row: Mapping[str, Any], contents: Mapping[str, str]) -> dict[str, object]:
    place = {key: row[key] for key in ("doc_id", "start", "end")}
    return {**place, "text": contents[row["doc_id"]][row["start"] : row["end"]]}


def _payload(
    outcome: BenchmarkOutcome, dataset: str, configuration: Configuration, queries: Sequence[QueryOutcome]
) -> ExperimentPayload:
    failure = outcome.failures.get(configuration.name)
    metadata = {
        "run": outcome.run,
        "configuration": configuration.model_dump(mode="json"),
        "evaluation_type": outcome.config.evaluation_type,
        "k": outcome.inputs.ks,
        "corpus": outcome.corpus.digest,
        "ground_truth": outcome.ground_truth.digest,
        "versions": outcome.versions,
        "state": "failed" if failure else "completed",
    }
    return ExperimentPayload(
        dataset=dataset,
        evaluation_type=outcome.config.evaluation_type,
        run=outcome.run,
        configuration=configuration.name,
        at=outcome.started,
        metadata=metadata,
        queries=list(queries),
    )
