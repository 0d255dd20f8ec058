"""Read ground truth from LangSmith datasets, and write it without creating duplicates."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag_eval.errors import GroundTruthError, InvalidSpanError, RagEvalError, preview
from rag_eval.ground_truth.records import SpanLine, chunk_level_outputs, token_level_outputs
from rag_eval.services.langsmith_client import LangSmithService
from rag_eval.storage.files import data_sha256
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, EvaluationType, QueryId, QueryText, encode_utf8, generate_query_id

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Dataset, Example

Item = TypeVar("Item")
GroundTruth = list[TokenLevelGroundTruth] | list[ChunkLevelGroundTruth]


class ExampleRecord(TypedDict):
    """An example as plain data; its metadata has the ``query_id``."""

    inputs: dict[str, str]
    outputs: dict[str, object]
    metadata: dict[str, object]


RELEVANT_CHUNK_IDS = ("relevant_chunk_ids", "relevantChunkIds", "chunk_ids")
RELEVANT_SPANS = ("relevant_spans", "relevantSpans")
TRUTH_KEYS: Mapping[EvaluationType, Sequence[str]] = {"token-level": RELEVANT_SPANS, "chunk-level": RELEVANT_CHUNK_IDS}
METADATA_SPELLINGS = {
    "sourceDocs": "source_docs",
    "generationModel": "generation_model",
    "generationType": "generation_type",
    "queryType": "query_type",
    "queryId": "query_id",
}
ITEM_KEYS = ("query_id", "unanswerable")
DEFAULT_SPLIT = ["base"]
DEFAULT_DATASETS: Mapping[EvaluationType, str] = {
    "token-level": "rag-eval-token-level-v1",
    "chunk-level": "rag-eval-chunk-level-v1",
}
BATCH = 100


class SpanOutput(SpanLine):
    """A span in the outputs of an example or a run: a record, or an object with the same attributes."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)

    origin: str | None = None
    alternatives: list["SpanOutput"] = Field(default_factory=list)  # type: ignore[assignment]  # as lenient


class ChunkGroups(BaseModel):
    """The groups of chunk ids in the outputs of an example; other keys are ignored."""

    model_config = ConfigDict(strict=True)

    alternatives: dict[str, list[str]] = {}
    origins: dict[str, str] = {}

    @classmethod
    def of(cls, example: "Example | None") -> "ChunkGroups":
        """Read the groups of an example; raises ``GroundTruthError``."""
        try:
            return cls.model_validate((example.outputs if example else None) or {})
        except ValidationError as reason:
            raise GroundTruthError(_sentence(reason)) from None


def _query_of(example: "Example") -> Query:
    """Return the query of an example, with its id from the metadata or derived from the text."""
    text = (example.inputs or {}).get("query")
    if not isinstance(text, str) or not text.strip():
        raise GroundTruthError("it has no inputs.query: add the question")
    encode_utf8(text, "the query")
    metadata = _metadata_of(example)
    query_id = metadata.get("query_id")
    if not isinstance(query_id, str) or not query_id:
        query_id = generate_query_id(text)
    others = {key: value for key, value in metadata.items() if key not in ITEM_KEYS}
    return Query(QueryId(query_id), QueryText(text), others)


def _metadata_of(example: "Example") -> dict[str, object]:
    """Return the metadata of the outputs and of the example, in snake_case, which takes precedence over camelCase."""
    of_outputs = (example.outputs or {}).get("metadata")
    spelled = (dict(of_outputs) if isinstance(of_outputs, Mapping) else {}) | dict(example.metadata or {})
    metadata = {METADATA_SPELLINGS[key]: spelled.pop(key) for key in METADATA_SPELLINGS if key in spelled} | spelled
    if metadata.get("dataset_split") == DEFAULT_SPLIT:  # LangSmith gives it to every example
        del metadata["dataset_split"]
    return metadata


def is_unanswerable(example: "Example | None") -> bool:
    """Return whether an example is declared unanswerable, in its metadata, its outputs, or their metadata."""
    if example is None:
        return False
    outputs = example.outputs if isinstance(example.outputs, Mapping) else {}
    sides = (example.metadata, outputs, outputs.get("metadata"))
    return any(isinstance(side, Mapping) and side.get("unanswerable") is True for side in sides)


def relevant_items(example: "Example | None", keys: Sequence[str], read: Callable[[object], Item]) -> list[Item]:
    """Return the items under the first of the keys in the outputs, or []; raises ``GroundTruthError``."""
    outputs = None if example is None else example.outputs
    key = next((key for key in keys if key in outputs), None) if isinstance(outputs, Mapping) else None
    return [] if key is None or outputs is None else read_items(outputs[key], key, read, GroundTruthError)


def read_items(values: object, key: str, read: Callable[[object], Item], error: type[RagEvalError]) -> list[Item]:
    """Read the values of a list; raises ``error`` with the key and the number of an invalid value."""
    if not isinstance(values, list | tuple):
        raise error(f"{key!r} is {preview(repr(values))}, not a list: give a list, or [] if there are none")
    items = []
    for number, item in enumerate(values):
        try:
            items.append(read(item))
        except (TypeError, ValidationError, InvalidSpanError) as reason:
            raise error(f"{key!r}, item {number}: {_sentence(reason)}") from None
    return items


def as_chunk_id(item: object) -> str:
    """Return a chunk id; raises ``TypeError`` for other values."""
    if isinstance(item, str):
        return item
    raise TypeError(f"{preview(repr(item))} is not a chunk id: use texts, or override the extraction")


def as_span(item: object) -> CharacterSpan:
    """Read a span from a record; raises ``ValidationError`` or ``InvalidSpanError``."""
    return SpanOutput.model_validate(item).span()


def span_and_alternatives(item: object) -> list[CharacterSpan]:
    """Return the span of a record with its alternatives; [] if it has none, because users may have other shapes."""
    if not isinstance(item, Mapping) or not item.get("alternatives"):
        return []
    return [member.span() for member in SpanOutput.model_validate(item).members]


def _sentence(reason: Exception) -> str:
    if not isinstance(reason, ValidationError):
        return str(reason)
    first = reason.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the span"
    return f"{place}: {first['msg']}"


def find_dataset(service: LangSmithService, dataset_name: str) -> "Dataset | None":
    """Return the dataset of this name, or None; raises ``ServiceError``."""
    from langsmith.schemas import Dataset
    from langsmith.utils import LangSmithNotFoundError

    def read(client: "Client") -> Dataset | None:
        try:
            dataset: Dataset = client.read_dataset(dataset_name=dataset_name)
        except LangSmithNotFoundError:
            return None
        return dataset

    return service.ask(f"the LangSmith dataset {dataset_name!r} could not be read", read)


def _list_examples(service: LangSmithService, dataset: "Dataset") -> "list[Example]":
    return service.ask(
        f"the LangSmith dataset {dataset.name!r} could not be read",
        lambda client: sorted(client.list_examples(dataset_id=dataset.id), key=lambda example: str(example.id)),
    )


def read_examples(service: LangSmithService, dataset_name: str) -> "list[Example]":
    """Return all examples of a dataset by id; raises ``GroundTruthError`` if there are none, and ``ServiceError``."""
    dataset = find_dataset(service, dataset_name)
    if dataset is None:
        raise GroundTruthError(
            f"there is no LangSmith dataset {dataset_name!r}: check its name and the workspace of the key"
        )
    examples = _list_examples(service, dataset)
    if not examples:
        raise GroundTruthError(f"the LangSmith dataset {dataset_name!r} has no examples: add some")
    return examples


def token_level_truth(examples: "Sequence[Example]", dataset_name: str) -> list[TokenLevelGroundTruth]:
    """Read token-level ground truth from examples; raises ``GroundTruthError``."""

    def read(example: "Example") -> TokenLevelGroundTruth:
        records = relevant_items(example, RELEVANT_SPANS, SpanOutput.model_validate)
        groups = [[member.span() for member in record.members] for record in records]
        members = [member for record in records for member in record.members]
        return TokenLevelGroundTruth(
            _query_of(example),
            [span for span, *_ in groups],
            is_unanswerable(example),
            {span: others for span, *others in groups if others},
            {member.span(): member.origin for member in members if member.origin},
        )

    check_type(examples, "token-level", dataset_name)
    return [_named(read, example, dataset_name) for example in examples]


def chunk_level_truth(examples: "Sequence[Example]", dataset_name: str) -> list[ChunkLevelGroundTruth]:
    """Read chunk-level ground truth from examples; raises ``GroundTruthError``."""

    def read(example: "Example") -> ChunkLevelGroundTruth:
        ids = [ChunkId(name) for name in relevant_items(example, RELEVANT_CHUNK_IDS, as_chunk_id)]
        groups = ChunkGroups.of(example)
        return ChunkLevelGroundTruth(
            _query_of(example),
            ids,
            is_unanswerable(example),
            {ChunkId(seed): [ChunkId(name) for name in members] for seed, members in groups.alternatives.items()},
            {ChunkId(name): origin for name, origin in groups.origins.items()},
        )

    check_type(examples, "chunk-level", dataset_name)
    return [_named(read, example, dataset_name) for example in examples]


def match_queries(
    examples: "Sequence[Example]", queries: Sequence[tuple[str, str]], dataset_name: str
) -> "tuple[list[Example | None], list[Example]]":
    """Return the example of each query, or None, and the other examples.

    Examples created elsewhere have no id of ours and are matched by text. A second example of a query counts among the
    others. Raises ``GroundTruthError`` for an example without a query.
    """
    by_id: dict[str, Example] = {}
    duplicates: list[Example] = []
    for example in examples:
        query_id = _named(_query_of, example, dataset_name).id
        if by_id.setdefault(query_id, example) is not example:
            duplicates.append(example)
    matches = [by_id.pop(query_id, None) for query_id, _ in queries]
    for number, (_, text) in enumerate(queries):
        if matches[number] is None:
            matches[number] = by_id.pop(generate_query_id(text), None)
    return matches, [*by_id.values(), *duplicates]


def check_type(examples: "Sequence[Example]", wanted: EvaluationType, dataset_name: str) -> None:
    """Raise ``GroundTruthError`` if an example is of the other type."""
    other: EvaluationType = "chunk-level" if wanted == "token-level" else "token-level"
    for example in examples:
        if not has_truth(example, wanted) and has_truth(example, other):
            raise GroundTruthError(
                f"the LangSmith dataset {dataset_name!r} has {other} ground truth "
                f"({preview(', '.join(example.outputs or {}))}) and the evaluation is {wanted}: "
                "use the one that fits the other"
            )


def has_truth(example: "Example", kind: EvaluationType) -> bool:
    """Return whether an example has ground truth of this type."""
    return any(key in (example.outputs or {}) for key in TRUTH_KEYS[kind])


def _named(read: "Callable[[Example], Item]", example: "Example", dataset_name: str) -> Item:
    try:
        return read(example)
    except RagEvalError as error:
        raise GroundTruthError(f"example {example.id} of the LangSmith dataset {dataset_name!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class PushReport:
    """Numbers of examples by what a push did; ``others`` are not in the ground truth and were kept."""

    dataset: str
    url: str | None
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    others: int = 0


def record_of(item: TokenLevelGroundTruth | ChunkLevelGroundTruth) -> ExampleRecord:
    """Return an item of ground truth as an example of a dataset.

    By default ``source_docs`` are the documents of the spans, and ``generation_type`` is ``manual``. Raises
    ``TextEncodingError`` on a lone surrogate.
    """
    metadata = dict(item.query.metadata)
    if isinstance(item, TokenLevelGroundTruth):
        outputs = token_level_outputs(item)
        metadata.setdefault("source_docs", sorted({span.doc_id for span in item.relevant_spans}))
    else:
        outputs = chunk_level_outputs(item)
    metadata.setdefault("generation_type", "manual")
    metadata["query_id"] = item.query.id
    if item.unanswerable:
        metadata["unanswerable"] = True
    record = ExampleRecord(inputs={"query": item.query.text}, outputs=outputs, metadata=metadata)
    encode_utf8(json.dumps(record, ensure_ascii=False), f"the ground truth of {item.query.id}")
    return record


def push_truth(
    service: LangSmithService,
    dataset_name: str,
    truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth],
    *,
    delete_others: bool = False,
    only_if_new: bool = False,
) -> PushReport:
    """Create or update a dataset with this ground truth.

    An example belongs to the query with its id or, if it has no id, with its text.

    Args:
        service: LangSmith.
        dataset_name: The dataset, which is created if it does not exist.
        truth: The ground truth.
        delete_others: Delete examples that are not in the ground truth.
        only_if_new: Leave a dataset with examples alone, unless an earlier push of this ground truth was cut short.

    Raises:
        GroundTruthError: The ground truth is empty, or the dataset is of the other type.
        ServiceError: LangSmith fails.
    """
    if not truth:
        raise GroundTruthError(f"there is no ground truth to push to {dataset_name!r}: give at least one query")
    level: EvaluationType = "token-level" if isinstance(truth[0], TokenLevelGroundTruth) else "chunk-level"
    records = [record_of(item) for item in truth]
    digest = data_sha256(records)
    dataset = _dataset_for(service, dataset_name, level, digest)
    examples = _list_examples(service, dataset)
    check_type(examples, level, dataset_name)
    created, updated, others = _changes(examples, records, dataset_name)
    is_partial = (dataset.metadata or {}).get("ground_truth") == digest and not updated and not others
    if only_if_new and examples and not is_partial:
        return PushReport(dataset_name, dataset.url, others=len(examples))
    deleted = [example.id for example in others] if delete_others else []
    _write(service, dataset, created, updated, deleted)
    unchanged, left = len(records) - len(created) - len(updated), len(others) - len(deleted)
    return PushReport(dataset_name, dataset.url, len(created), len(updated), unchanged, len(deleted), left)


Change = dict[str, object]
"""A new example, or the update of one."""


def _changes(
    examples: "Sequence[Example]", records: Sequence[ExampleRecord], dataset_name: str
) -> "tuple[list[Change], list[Change], list[Example]]":
    """Return the examples to create and to update so that the dataset holds the records, and the other examples."""
    queries = [(str(record["metadata"]["query_id"]), record["inputs"]["query"]) for record in records]
    matches, others = match_queries(examples, queries, dataset_name)
    created: list[Change] = []
    updated: list[Change] = []
    for record, example in zip(records, matches, strict=True):
        if example is None:
            sent = {"inputs": record["inputs"], "reference_outputs": record["outputs"], "metadata": record["metadata"]}
            created.append({"id": uuid4(), **sent})
            continue
        existing = dict(example.metadata or {})
        split = {key: existing[key] for key in ("dataset_split",) if key in existing}  # LangSmith's own key
        wanted = {**record, "metadata": {**record["metadata"], **split}}
        if wanted != {"inputs": example.inputs, "outputs": example.outputs, "metadata": existing}:
            updated.append({"id": example.id, **wanted})
    return created, updated, others


def _dataset_for(service: LangSmithService, name: str, level: EvaluationType, digest: str) -> "Dataset":
    """Return the dataset of this name, and create it if it does not exist."""
    dataset = find_dataset(service, name) or _create(service, name, level, digest)
    if dataset.data_type is not None and dataset.data_type.value != "kv":
        raise GroundTruthError(
            f"the LangSmith dataset {name!r} is of the type {dataset.data_type.value!r}: "
            "ground truth needs one of the type 'kv', give another name"
        )
    return dataset


def _create(service: LangSmithService, name: str, level: EvaluationType, digest: str) -> "Dataset":
    from langsmith.schemas import Dataset
    from langsmith.utils import LangSmithConflictError

    def create(client: "Client") -> Dataset:
        try:
            dataset: Dataset = client.create_dataset(
                name,
                description=f"Ground truth for {level} evaluation of retrieval",
                metadata={"evaluation_type": level, "ground_truth": digest},
            )
        except LangSmithConflictError:  # created by somebody else, or by a request whose answer was lost
            dataset = client.read_dataset(dataset_name=name)
        return dataset

    return service.ask(f"the LangSmith dataset {name!r} could not be created", create)


def _write(
    service: LangSmithService,
    dataset: "Dataset",
    created: Sequence[dict[str, object]],
    updated: Sequence[dict[str, object]],
    deleted: "Sequence[UUID]",
) -> None:
    from langsmith.utils import LangSmithConflictError

    def create(batch: Sequence[Any], client: "Client") -> None:
        with suppress(LangSmithConflictError):  # the ids are new, so the answer to an earlier attempt was lost
            client.create_examples(dataset_id=dataset.id, examples=batch)

    def update(batch: Sequence[Any], client: "Client") -> None:
        client.update_examples(dataset_id=dataset.id, updates=batch)

    def delete(batch: "Sequence[UUID]", client: "Client") -> None:
        client.delete_examples(batch)

    problem = f"the LangSmith dataset {dataset.name!r} could not be written"
    writes: list[tuple[Callable[..., None], Sequence[Any]]] = [(create, created), (update, updated), (delete, deleted)]
    for write, items in writes:
        for start in range(0, len(items), BATCH):
            service.ask(problem, partial(write, items[start : start + BATCH]))
