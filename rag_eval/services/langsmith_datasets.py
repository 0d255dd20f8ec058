"""Read ground truth from LangSmith datasets."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from rag_eval.errors import ConfigurationError, GroundTruthError, InvalidSpanError, RagEvalError, preview
from rag_eval.ground_truth.importing.importer import ImportedTruth, ImportNotes, imported
from rag_eval.services.langsmith_client import LangSmithService
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.ground_truth import (
    ChunkLevelGroundTruth,
    ChunkLevelRunOutput,
    Query,
    TokenLevelGroundTruth,
    TokenLevelRunOutput,
)
from rag_eval.types.ids import ChunkId, DocumentId, EvaluationType, QueryId, QueryText, encode_utf8, generate_query_id

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Dataset, Example, Run

Item = TypeVar("Item")

RELEVANT_CHUNK_IDS = ("relevant_chunk_ids", "relevantChunkIds", "chunk_ids")
RELEVANT_SPANS = ("relevant_spans", "relevantSpans")
# LangSmith keeps what a target returns as it is when it is a dict, and under "output" otherwise.
RETRIEVED_CHUNK_IDS = ("retrieved_chunk_ids", "retrievedChunkIds", "chunk_ids", "output", "outputs")
RETRIEVED_SPANS = ("retrieved_spans", "retrievedSpans", "spans", "output", "outputs")
METADATA_SPELLINGS = {
    "sourceDocs": "source_docs",
    "generationModel": "generation_model",
    "generationType": "generation_type",
    "queryType": "query_type",
    "queryId": "query_id",
}
# Not metadata of the query: its id, what the item itself says, and the split that LangSmith gives every example.
OWN_KEYS = ("query_id", "unanswerable")
DEFAULT_SPLIT = ["base"]


class _SpanRecord(BaseModel):
    model_config = ConfigDict(strict=True)

    doc_id: str = Field(validation_alias=AliasChoices("doc_id", "docId"))
    start: int
    end: int
    text: str
    origin: str | None = None
    alternatives: list["_SpanRecord"] = []

    @property
    def span(self) -> CharacterSpan:
        return CharacterSpan(DocumentId(self.doc_id), self.start, self.end, self.text)


class _ChunkGroups(BaseModel):
    model_config = ConfigDict(strict=True)

    alternatives: dict[str, list[str]] = {}
    origins: dict[str, str] = {}


def query_of(example: "Example") -> Query:
    """Return the query of an example: ``inputs.query``, its id from the metadata or made from the text.

    Raises ``GroundTruthError`` when there is none, ``TextEncodingError`` when UTF-8 cannot hold it.
    """
    text = (example.inputs or {}).get("query")
    if not isinstance(text, str) or not text.strip():
        raise GroundTruthError("it has no inputs.query: add the question")
    encode_utf8(text, "the query")
    metadata = metadata_of(example)
    given = metadata.get("query_id")
    if metadata.get("dataset_split") == DEFAULT_SPLIT:
        del metadata["dataset_split"]
    kept = {key: value for key, value in metadata.items() if key not in OWN_KEYS}
    query_id = given if isinstance(given, str) and given else generate_query_id(text)
    return Query(QueryId(query_id), QueryText(text), kept)


def metadata_of(example: "Example") -> dict[str, object]:
    """Return the metadata of an example, of its outputs too, in snake_case; what is written so already wins."""
    inner = (example.outputs or {}).get("metadata")
    found = (dict(inner) if isinstance(inner, Mapping) else {}) | dict(example.metadata or {})
    renamed = {METADATA_SPELLINGS[key]: value for key, value in found.items() if key in METADATA_SPELLINGS}
    return renamed | {key: value for key, value in found.items() if key not in METADATA_SPELLINGS}


def is_unanswerable(example: "Example | None") -> bool:
    """Tell whether an example is declared unanswerable: in its metadata, its outputs, or the metadata of these."""
    if example is None:
        return False
    outputs = example.outputs if isinstance(example.outputs, Mapping) else {}
    sides = (example.metadata, outputs, outputs.get("metadata"))
    return any(isinstance(side, Mapping) and side.get("unanswerable") is True for side in sides)


def relevant_chunk_ids(example: "Example | None") -> list[str]:
    """Return the relevant chunk ids of an example, [] without; raises ``GroundTruthError`` on anything but ids."""
    return _relevant(example, RELEVANT_CHUNK_IDS, _chunk_id)


def relevant_spans(example: "Example | None") -> list[CharacterSpan]:
    """Return the relevant spans of an example, [] without; raises ``GroundTruthError`` on anything but spans."""
    return _relevant(example, RELEVANT_SPANS, _span)


def retrieved_chunk_ids(run: "Run") -> list[str]:
    """Return the chunk ids of a run, [] without outputs; raises ``ConfigurationError`` on anything but ids."""
    return _retrieved(run, RETRIEVED_CHUNK_IDS, _chunk_id)


def retrieved_spans(run: "Run") -> list[CharacterSpan]:
    """Return the spans of a run, [] without outputs; raises ``ConfigurationError`` on anything but spans."""
    return _retrieved(run, RETRIEVED_SPANS, _span)


def _relevant(example: "Example | None", keys: Sequence[str], read: Callable[[object], Item]) -> list[Item]:
    outputs = None if example is None else example.outputs
    if not isinstance(outputs, Mapping):
        return []
    for key in keys:
        if key in outputs:
            return _items(outputs[key], key, read, GroundTruthError)
    return []


def _retrieved(run: "Run", keys: Sequence[str], read: Callable[[object], Item]) -> list[Item]:
    found: object = run.outputs
    if not found:
        return []
    where = "outputs"
    while isinstance(found, Mapping):
        key = next((key for key in keys if key in found), None)
        if key is None:
            raise ConfigurationError(
                f"the {where} of the run have {preview(', '.join(map(str, found)))}, and none of {', '.join(keys)}: "
                "return a list or one of these, or override the extraction"
            )
        found, where = found[key], key
    if isinstance(found, ChunkLevelRunOutput):
        found = found.retrieved_chunk_ids
    elif isinstance(found, TokenLevelRunOutput):
        found = found.retrieved_spans
    return _items(found, where, read, ConfigurationError)


def _items(found: object, key: str, read: Callable[[object], Item], error: type[RagEvalError]) -> list[Item]:
    if not isinstance(found, list | tuple):
        raise error(f"{key!r} is {preview(repr(found))}, not a list: give a list, [] when there is nothing")
    items = []
    for number, item in enumerate(found):
        try:
            items.append(read(item))
        except (TypeError, ValidationError, InvalidSpanError) as reason:
            raise error(f"{key!r}, item {number}: {_sentence(reason)}") from None
    return items


def _chunk_id(item: object) -> str:
    if isinstance(item, str):
        return item
    raise TypeError(f"{preview(repr(item))} is not a chunk id: use texts, or override the extraction")


def _span(item: object) -> CharacterSpan:
    if isinstance(item, CharacterSpan):
        return item
    return _SpanRecord.model_validate(item).span


def _group(item: object) -> tuple[CharacterSpan, list[CharacterSpan], dict[CharacterSpan, str]]:
    """Return a relevant span with its alternatives, and the origins of those that have one."""
    if isinstance(item, CharacterSpan):
        return item, [], {}
    record = _SpanRecord.model_validate(item)
    members = [record, *record.alternatives]
    origins = {member.span: member.origin for member in members if member.origin}
    return record.span, [member.span for member in record.alternatives], origins


def _sentence(reason: Exception) -> str:
    if not isinstance(reason, ValidationError):
        return str(reason)
    first = reason.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the span"
    return f"{place}: {first['msg']}"


GroundTruth = list[TokenLevelGroundTruth] | list[ChunkLevelGroundTruth]

TRUTH_KEYS: Mapping[EvaluationType, Sequence[str]] = {"token-level": RELEVANT_SPANS, "chunk-level": RELEVANT_CHUNK_IDS}


def find_dataset(service: LangSmithService, dataset_name: str) -> "Dataset | None":
    """Return the dataset of this name, None when there is none; raises ``ServiceError`` when LangSmith fails."""
    from langsmith.schemas import Dataset
    from langsmith.utils import LangSmithNotFoundError

    def read(client: "Client") -> Dataset | None:
        try:
            found: Dataset = client.read_dataset(dataset_name=dataset_name)
        except LangSmithNotFoundError:
            return None
        return found

    return service.ask(f"the LangSmith dataset {dataset_name!r} could not be read", read)


def list_examples(service: LangSmithService, dataset: "Dataset") -> "list[Example]":
    """Return all examples of a dataset, in the order of their ids; raises ``ServiceError`` when LangSmith fails."""
    return service.ask(
        f"the LangSmith dataset {dataset.name!r} could not be read",
        lambda client: sorted(client.list_examples(dataset_id=dataset.id), key=lambda example: str(example.id)),
    )


def read_examples(service: LangSmithService, dataset_name: str) -> "list[Example]":
    """Return all examples of the dataset of this name, in the order of their ids.

    Raises ``GroundTruthError`` when there is no such dataset or it is empty, ``ServiceError`` when LangSmith fails.
    """
    dataset = find_dataset(service, dataset_name)
    if dataset is None:
        raise GroundTruthError(
            f"there is no LangSmith dataset {dataset_name!r}: check its name and the workspace of the key"
        )
    examples = list_examples(service, dataset)
    if not examples:
        raise GroundTruthError(f"the LangSmith dataset {dataset_name!r} has no examples: add some")
    return examples


def pull_truth(service: LangSmithService, dataset_name: str) -> GroundTruth:
    """Return the ground truth of a dataset, of either type, in the order of the query ids.

    Raises ``GroundTruthError`` when there is no such dataset, or an example of it cannot be used; ``ServiceError`` when
    LangSmith fails.
    """
    examples = read_examples(service, dataset_name)
    truth: GroundTruth
    if type_of(examples, dataset_name) == "token-level":
        truth = sorted(token_level_truth(examples, dataset_name), key=lambda item: item.query.id)
    else:
        truth = sorted(chunk_level_truth(examples, dataset_name), key=lambda item: item.query.id)
    for first, second in pairwise(item.query.id for item in truth):
        if first == second:
            raise GroundTruthError(
                f"two examples of the LangSmith dataset {dataset_name!r} are the query {first}: "
                "merge what is relevant to it into one"
            )
    return truth


def read_langsmith(dataset_name: str) -> ImportedTruth:
    """Import the ground truth of a dataset, with the key and the endpoint of the environment.

    Raises ``ConfigurationError`` without a key, ``GroundTruthError`` when the dataset cannot be used and
    ``ServiceError`` when LangSmith fails.
    """
    service = LangSmithService.connect()
    try:
        return imported(pull_truth(service, dataset_name), ImportNotes())
    finally:
        service.close()


def type_of(examples: "Sequence[Example]", dataset_name: str) -> EvaluationType:
    """Return the type of ground truth that examples hold; raises ``GroundTruthError`` when it is both or neither."""
    found = {kind for example in examples for kind, keys in TRUTH_KEYS.items() if _has(example, keys)}
    if len(found) == 1:
        return found.pop()
    problem = "both token-level and chunk-level" if found else "neither token-level nor chunk-level"
    raise GroundTruthError(
        f"the LangSmith dataset {dataset_name!r} holds {problem} ground truth: its examples need "
        "outputs.relevant_spans, or all of them outputs.relevant_chunk_ids"
    )


def token_level_truth(examples: "Sequence[Example]", dataset_name: str) -> list[TokenLevelGroundTruth]:
    """Return the examples as token-level ground truth; raises ``GroundTruthError`` naming the example."""

    def read(example: "Example") -> TokenLevelGroundTruth:
        groups = _relevant(example, RELEVANT_SPANS, _group)
        alternatives = {span: members for span, members, _ in groups if members}
        origins = {span: origin for _, _, found in groups for span, origin in found.items()}
        spans = [span for span, _, _ in groups]
        return TokenLevelGroundTruth(query_of(example), spans, is_unanswerable(example), alternatives, origins)

    check_type(examples, "token-level", dataset_name)
    return [_named(read, example, dataset_name) for example in examples]


def chunk_level_truth(examples: "Sequence[Example]", dataset_name: str) -> list[ChunkLevelGroundTruth]:
    """Return the examples as chunk-level ground truth; raises ``GroundTruthError`` naming the example."""

    def read(example: "Example") -> ChunkLevelGroundTruth:
        ids = [ChunkId(name) for name in relevant_chunk_ids(example)]
        try:
            groups = _ChunkGroups.model_validate(example.outputs or {})
        except ValidationError as reason:
            raise GroundTruthError(_sentence(reason)) from None
        return ChunkLevelGroundTruth(
            query_of(example),
            ids,
            is_unanswerable(example),
            {ChunkId(seed): [ChunkId(name) for name in members] for seed, members in groups.alternatives.items()},
            {ChunkId(name): origin for name, origin in groups.origins.items()},
        )

    check_type(examples, "chunk-level", dataset_name)
    return [_named(read, example, dataset_name) for example in examples]


def query_ids(examples: "Sequence[Example]", dataset_name: str) -> list[QueryId]:
    """Return the ids of the examples' queries; raises ``GroundTruthError`` naming the example."""
    return [_named(query_of, example, dataset_name).id for example in examples]


def match_queries(
    examples: "Sequence[Example]", queries: Sequence[tuple[str, str]], dataset_name: str
) -> "tuple[list[Example | None], list[Example]]":
    """For each query, by id and text, its example or None; and the examples that are of none.

    An example that was made elsewhere has no id of ours: it is known by its text. Raises ``GroundTruthError`` naming an
    example that has no query.
    """
    known: dict[str, Example] = {}
    for query_id, example in zip(query_ids(examples, dataset_name), examples, strict=True):
        known.setdefault(query_id, example)
    found = [known.pop(query_id, None) for query_id, _ in queries]
    for number, (_, text) in enumerate(queries):
        if found[number] is None:
            found[number] = known.pop(generate_query_id(text), None)
    return found, list(known.values())


def check_type(examples: "Sequence[Example]", wanted: EvaluationType, dataset_name: str) -> None:
    """Raise ``GroundTruthError`` when an example is of the other type."""
    other: EvaluationType = "chunk-level" if wanted == "token-level" else "token-level"
    for example in examples:
        if not _has(example, TRUTH_KEYS[wanted]) and _has(example, TRUTH_KEYS[other]):
            raise GroundTruthError(
                f"the LangSmith dataset {dataset_name!r} holds {other} ground truth "
                f"({preview(', '.join(example.outputs or {}))}) and the evaluation is {wanted}: "
                "use the one that fits the other"
            )


def _has(example: "Example", keys: Sequence[str]) -> bool:
    return any(key in (example.outputs or {}) for key in keys)


def _named(read: "Callable[[Example], Item]", example: "Example", dataset_name: str) -> Item:
    try:
        return read(example)
    except RagEvalError as error:
        raise GroundTruthError(f"example {example.id} of the LangSmith dataset {dataset_name!r}: {error}") from None
