"""Publish a run: each configuration as an experiment on a LangSmith dataset."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from rag_eval.config.models import ConfigurationRecord
from rag_eval.errors import ArtifactError, ConfigurationError, GroundTruthError, RequestRefusedError, ServiceError
from rag_eval.parts.part_settings import Record
from rag_eval.pipeline.document_steps import StoredDocuments
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import PUBLISHED, BenchmarkOutcome
from rag_eval.retry import PATIENT, RetryPolicy
from rag_eval.services.langsmith_client import LangSmithService
from rag_eval.services.langsmith_datasets import check_type, push_truth, read_examples
from rag_eval.services.langsmith_experiments import (
    ExperimentUpload,
    RowOutcome,
    matched_rows,
    publish_experiment,
    row_outcomes,
    service_id,
)
from rag_eval.tables import truth_from_tables
from rag_eval.types.evidence import TRUTH_KINDS, Query


class Publication(Record):
    """A configuration of a run on a dataset: the address of its experiment, or the reason why it was not sent.

    ``absent`` counts the queries of the run that the dataset does not have.
    """

    configuration: str
    dataset: str
    url: str | None = None
    absent: int = 0
    reason: str | None = None


_PUBLICATIONS = TypeAdapter(list[Publication])


def read_publications(workspace: Workspace, run: str) -> list[Publication]:
    """Return the results of the last attempts to publish a run; raises ``ArtifactError`` if the file is damaged."""
    path = workspace.fetch_newest(workspace.runs / run / PUBLISHED)
    try:
        return _PUBLICATIONS.validate_json(path.read_bytes(), strict=True)
    except FileNotFoundError:
        return []
    except (OSError, ValidationError):
        raise ArtifactError(f"{str(path)!r} cannot be read: remove it, and publish the run again") from None


def publish_run(
    workspace: Workspace, outcome: BenchmarkOutcome, datasets: Sequence[str], patience: RetryPolicy = PATIENT
) -> list[str]:
    """Publish a run to datasets, and return why anything was not sent. Experiments that were already sent are skipped.

    Raises:
        ArtifactError: Tables of the run are missing.
    """
    publications = [entry for name in datasets for entry in _publish_to(workspace, outcome, name, patience)]
    return list(dict.fromkeys(entry.reason for entry in publications if entry.reason is not None))


def _publish_to(
    workspace: Workspace, outcome: BenchmarkOutcome, dataset: str, patience: RetryPolicy
) -> list[Publication]:
    """Send each configuration that was not sent before; record the results beside the run, and return them.

    A failed configuration is sent with an error for each query. A missing dataset is created from the ground truth.
    """
    previous = read_publications(workspace, outcome.run)
    publications = {
        entry.configuration: entry for entry in previous if entry.dataset == dataset and entry.url is not None
    }
    names = [*(configuration.name for configuration in outcome.configurations), *outcome.failures]
    missing = [name for name in names if name not in publications]
    reason: str | None = None
    try:
        for publication in _published(workspace, outcome, dataset, missing, patience) if missing else ():
            publications[publication.configuration] = publication
    except (ConfigurationError, GroundTruthError, ServiceError) as error:  # stops all remaining ones
        reason = str(error)
    for name in names:
        publications.setdefault(name, Publication(configuration=name, dataset=dataset, reason=reason))
    current = [publications[name] for name in names]
    others = [entry for entry in previous if entry.dataset != dataset]
    path = workspace.runs / outcome.run / PUBLISHED
    workspace.write_file(path, _PUBLICATIONS.dump_json([*others, *current], indent=2))
    return current


def _published(
    workspace: Workspace, outcome: BenchmarkOutcome, dataset: str, names: Sequence[str], patience: RetryPolicy
) -> Iterator[Publication]:
    inputs = outcome.inputs
    with closing(LangSmithService.connect(patience)) as service:
        truth = truth_from_tables(workspace.read_truth(inputs.truth), TRUTH_KINDS[inputs.evaluation_type])
        push_truth(service, dataset, truth, only_if_new=True)
        examples = read_examples(service, dataset)
        check_type(examples, inputs.evaluation_type, dataset)
        queries = [item.query for item in truth]
        for configuration, rows in _outcomes(workspace, outcome, names, queries):
            matched = matched_rows(examples, rows, dataset)
            name = configuration.name
            experiment = ExperimentUpload(
                service_id(outcome.run, name, dataset),
                name,
                _metadata(outcome, configuration),
                matched,
                outcome.started,
            )
            try:
                url, reason = publish_experiment(service, experiment), None
            except RequestRefusedError as error:
                url, reason = None, str(error)
            absent = len(rows) - len(matched)
            yield Publication(configuration=name, dataset=dataset, url=url, absent=absent, reason=reason)


def _outcomes(
    workspace: Workspace, outcome: BenchmarkOutcome, names: Sequence[str], queries: Sequence[Query]
) -> Iterator[tuple[ConfigurationRecord, list[RowOutcome]]]:
    """Yield each configuration with its hits and scores for each query, or with its failure."""
    documents = StoredDocuments([workspace.read_table(shard) for shard in outcome.inputs.documents])
    for evaluated in outcome.configurations:
        if evaluated.name in names:
            passages = workspace.read_table(evaluated.returned).filter(pc.field("rank") <= max(outcome.inputs.ks))
            scores = workspace.read_table(evaluated.scores)
            level, measured = outcome.inputs.evaluation_type, outcome.measured
            yield evaluated.configuration, row_outcomes(level, queries, passages, scores, documents, measured)
    for name, failure in outcome.failures.items():
        if name in names:
            rows = [RowOutcome(query.id, query.text, error=failure.reason) for query in queries]
            yield failure.configuration, rows


def _metadata(outcome: BenchmarkOutcome, configuration: ConfigurationRecord) -> dict[str, object]:
    return {
        "run": outcome.run,
        "configuration": configuration.model_dump(mode="json"),
        "evaluation_type": outcome.config.evaluation_type,
        "k": outcome.inputs.ks,
        "corpus": outcome.corpus.digest,
        "ground_truth": outcome.ground_truth.digest,
        "versions": outcome.versions,
        "state": "failed" if configuration.name in outcome.failures else "completed",
    }
