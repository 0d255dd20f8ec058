"""Ground truth in LangSmith datasets: read it, and write it so that pushing it again never creates duplicates."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar
from uuid import uuid5

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
    outputs: dict[str, Any]
    metadata: dict[str, Any]


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
# Not metadata of the query: its id, and what the item itself has.
ITEM_KEYS = ("query_id", "unanswerable")
DEFAULT_SPLIT = ["base"]
DEFAULT_DATASETS: Mapping[EvaluationType, str] = {
    "token-level": "rag-eval-token-level-v1",
    "chunk-level": "rag-eval-chunk-level-v1",
}
BATCH = 100
ATTEMPTS = 4


class SpanOutput(SpanLine):
    """A span in the outputs of an example or a run: a record, or an object that has the same attributes."""

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
        """Return the groups, none without an example; raises ``GroundTruthError`` on what is no group."""
        try:
            return cls.model_validate((example.outputs if example else None) or {})
        except ValidationError as reason:
            raise GroundTruthError(_sentence(reason)) from None


def _query_of(example: "Example") -> Query:
    """Return the query of an example: ``inputs.query``, its id from the metadata or made from the text.

    Metadata is that of the example and of its outputs, in snake_case; a key written so already wins.
    """
    text = (example.inputs or {}).get("query")
    if not isinstance(text, str) or not text.strip():
        raise GroundTruthError("it has no inputs.query: add the question")
    encode_utf8(text, "the query")
    of_outputs = (example.outputs or {}).get("metadata")
    spelled = (dict(of_outputs) if isinstance(of_outputs, Mapping) else {}) | dict(example.metadata or {})
    renamed = {METADATA_SPELLINGS[key]: value for key, value in spelled.items() if key in METADATA_SPELLINGS}
    metadata = renamed | {key: value for key, value in spelled.items() if key not in METADATA_SPELLINGS}
    if metadata.get("dataset_split") == DEFAULT_SPLIT:  # which LangSmith gives every example
        del metadata["dataset_split"]
    query_id = metadata.get("query_id")
    if not isinstance(query_id, str) or not query_id:
        query_id = generate_query_id(text)
    others = {key: value for key, value in metadata.items() if key not in ITEM_KEYS}
    return Query(QueryId(query_id), QueryText(text), others)


def is_unanswerable(example: "Example | None") -> bool:
    """Tell whether an example is declared unanswerable: in its metadata, its outputs, or the metadata of these."""
    if example is None:
        return False
    outputs = example.outputs if isinstance(example.outputs, Mapping) else {}
    sides = (example.metadata, outputs, outputs.get("metadata"))
    return any(isinstance(side, Mapping) and side.get("unanswerable") is True for side in sides)


def relevant_items(example: "Example | None", keys: Sequence[str], read: Callable[[object], Item]) -> list[Item]:
    """Return the items under the first of the keys that the outputs have, else []; raises ``GroundTruthError``."""
    outputs = None if example is None else example.outputs
    key = next((key for key in keys if key in outputs), None) if isinstance(outputs, Mapping) else None
    return [] if key is None or outputs is None else read_items(outputs[key], key, read, GroundTruthError)


def read_items(values: object, key: str, read: Callable[[object], Item], error: type[RagEvalError]) -> list[Item]:
    """Return the values of a list, each read; raises ``error`` with the key and the number of an unreadable value."""
    if not isinstance(values, list | tuple):
        raise error(f"{key!r} is {preview(repr(values))}, not a list: give a list, [] when there is nothing")
    items = []
    for number, item in enumerate(values):
        try:
            items.append(read(item))
        except (TypeError, ValidationError, InvalidSpanError) as reason:
            raise error(f"{key!r}, item {number}: {_sentence(reason)}") from None
    return items


def as_chunk_id(item: object) -> str:
    """Return a chunk id unchanged; raises ``TypeError`` on anything else."""
    if isinstance(item, str):
        return item
    raise TypeError(f"{preview(repr(item))} is not a chunk id: use texts, or override the extraction")


def as_span(item: object) -> CharacterSpan:
    """Return the span of a record; raises ``ValidationError`` or ``InvalidSpanError`` on anything else."""
    return SpanOutput.model_validate(item).span()


def span_and_alternatives(item: object) -> list[CharacterSpan]:
    """Return the span of a record and its alternatives; nothing without alternatives: its shape may be the user's."""
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
    """Return the dataset of this name, None when it does not exist; raises ``ServiceError`` when LangSmith fails."""
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
    """Return all examples of a dataset, by id; raises ``GroundTruthError`` when there are none, ``ServiceError``."""
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
    """Return the examples as token-level ground truth; raises ``GroundTruthError`` naming the example."""

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
    """Return the examples as chunk-level ground truth; raises ``GroundTruthError`` naming the example."""

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
    """Return the example of each query, by id or text, or None; and the examples that belong to no query.

    An example that was made elsewhere has no id of ours and is recognised by its text. Of two examples of one query the
    second belongs to none. Raises ``GroundTruthError`` naming an example that has no query.
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
    """Raise ``GroundTruthError`` when an example is of the other type."""
    other: EvaluationType = "chunk-level" if wanted == "token-level" else "token-level"
    for example in examples:
        if not has_truth(example, wanted) and has_truth(example, other):
            raise GroundTruthError(
                f"the LangSmith dataset {dataset_name!r} holds {other} ground truth "
                f"({preview(', '.join(example.outputs or {}))}) and the evaluation is {wanted}: "
                "use the one that fits the other"
            )


def has_truth(example: "Example", kind: EvaluationType) -> bool:
    """Tell whether an example has a key of such ground truth."""
    return any(key in (example.outputs or {}) for key in TRUTH_KEYS[kind])


def _named(read: "Callable[[Example], Item]", example: "Example", dataset_name: str) -> Item:
    try:
        return read(example)
    except RagEvalError as error:
        raise GroundTruthError(f"example {example.id} of the LangSmith dataset {dataset_name!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class PushReport:
    """What a push did to the examples; ``others`` are those that the ground truth does not have and that were kept."""

    dataset: str
    url: str | None
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    others: int = 0


def record_of(item: TokenLevelGroundTruth | ChunkLevelGroundTruth) -> ExampleRecord:
    """Return an item of ground truth as an example of a dataset.

    Where the metadata does not have them, ``source_docs`` are the documents of the spans and ``generation_type`` is
    ``manual``. Raises ``TextEncodingError`` on a lone surrogate.
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
    """Make a dataset hold this ground truth; it is created when it does not exist.

    An example is that of a query when it has the query's id, or no id and its text. Examples that the ground truth does
    not have are kept unless ``delete_others``. With ``only_if_new`` a dataset that has examples is left alone, unless
    it was made from this very ground truth, holds nothing else, and is to be completed.

    Raises:
        GroundTruthError: The ground truth is empty, or the dataset is of the other type.
        ServiceError: LangSmith fails.
    """
    if not truth:
        raise GroundTruthError(f"there is no ground truth to push to {dataset_name!r}: give at least one query")
    level: EvaluationType = "token-level" if isinstance(truth[0], TokenLevelGroundTruth) else "chunk-level"
    records = [record_of(item) for item in truth]
    digest = data_sha256(records)
    dataset = find_dataset(service, dataset_name) or _create(service, dataset_name, level, digest)
    if dataset.data_type is not None and dataset.data_type.value != "kv":
        raise GroundTruthError(
            f"the LangSmith dataset {dataset_name!r} is of the type {dataset.data_type.value!r}: "
            "ground truth needs one of the type 'kv', give another name"
        )
    queries = [(item.query.id, item.query.text) for item in truth]
    for attempt in range(ATTEMPTS):
        examples = _list_examples(service, dataset)
        check_type(examples, level, dataset_name)
        matches, others = match_queries(examples, queries, dataset_name)
        changes = _changes(dataset, records, matches, attempt)
        is_partial = (dataset.metadata or {}).get("ground_truth") == digest and not changes.updated and not others
        if only_if_new and examples and not is_partial:
            return PushReport(dataset_name, dataset.url, others=len(examples))
        if _write(service, dataset, changes, others if delete_others else []):
            created, updated = len(changes.created), len(changes.updated)
            counts = {"created": created, "updated": updated, "unchanged": len(records) - created - updated}
            rest = {"deleted" if delete_others else "others": len(others)}
            return PushReport(dataset_name, dataset.url, **counts, **rest)
    raise GroundTruthError(
        f"the LangSmith dataset {dataset_name!r} keeps refusing examples as known that it does not list: "
        "push to another name"
    )


@dataclass(frozen=True, slots=True)
class _Changes:
    """The examples to create and to update, as the SDK takes them."""

    created: list[dict[str, object]]
    updated: list[dict[str, object]]


def _changes(
    dataset: "Dataset", records: Sequence[ExampleRecord], matches: "Sequence[Example | None]", attempt: int
) -> _Changes:
    # Ids that are taken though nothing is listed under them are those of deleted examples: others are used then.
    salt = "" if attempt < 2 else str(attempt)
    changes = _Changes([], [])
    for record, match in zip(records, matches, strict=True):
        if match is None:
            example_id = uuid5(dataset.id, record["metadata"]["query_id"] + salt)
            sent = {"inputs": record["inputs"], "reference_outputs": record["outputs"], "metadata": record["metadata"]}
            changes.created.append({"id": example_id, **sent})
            continue
        existing = dict(match.metadata or {})
        split = {key: existing[key] for key in ("dataset_split",) if key in existing}  # LangSmith's own
        wanted = {**record, "metadata": {**record["metadata"], **split}}
        if wanted != {"inputs": match.inputs, "outputs": match.outputs, "metadata": existing}:
            changes.updated.append({"id": match.id, **wanted})
    return changes


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
        except LangSmithConflictError:  # somebody else made it, or an answer got lost
            dataset = client.read_dataset(dataset_name=name)
        return dataset

    return service.ask(f"the LangSmith dataset {name!r} could not be created", create)


def _write(service: LangSmithService, dataset: "Dataset", changes: _Changes, deleted: "Sequence[Example]") -> bool:
    """Create, update and delete; False when an example to be created exists by now: look again then."""
    from langsmith.utils import LangSmithConflictError

    def create(batch: Sequence[Any], client: "Client") -> bool:
        try:
            client.create_examples(dataset_id=dataset.id, examples=batch)
        except LangSmithConflictError:
            return False
        return True

    def update(batch: Sequence[Any], client: "Client") -> bool:
        client.update_examples(dataset_id=dataset.id, updates=batch)
        return True

    def delete(batch: Sequence[Any], client: "Client") -> bool:
        client.delete_examples([example.id for example in batch])
        return True

    problem = f"the LangSmith dataset {dataset.name!r} could not be written"
    return all(
        service.ask(problem, partial(send, items[start : start + BATCH]))
        for send, items in ((create, changes.created), (update, changes.updated), (delete, deleted))
        for start in range(0, len(items), BATCH)
    )
