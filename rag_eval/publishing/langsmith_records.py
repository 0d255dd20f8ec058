"""What LangSmith keeps of examples and runs, in whichever spelling: queries, chunk ids and spans."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from rag_eval.errors import ConfigurationError, GroundTruthError, InvalidSpanError, RagEvalError, preview
from rag_eval.types.ground_truth import Query
from rag_eval.types.ids import DocumentId, QueryId, QueryText, encode_utf8, generate_query_id
from rag_eval.types.result import ChunkLevelRunOutput, TokenLevelRunOutput
from rag_eval.types.span import CharacterSpan

if TYPE_CHECKING:
    from langsmith.schemas import Example, Run

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


def query_of(example: "Example") -> Query:
    """The query of an example: ``inputs.query``, its id from the metadata or made from the text.

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
    """The metadata of an example, of its outputs too, in snake_case; what is written so already wins."""
    inner = (example.outputs or {}).get("metadata")
    found = (dict(inner) if isinstance(inner, Mapping) else {}) | dict(example.metadata or {})
    renamed = {METADATA_SPELLINGS[key]: value for key, value in found.items() if key in METADATA_SPELLINGS}
    return renamed | {key: value for key, value in found.items() if key not in METADATA_SPELLINGS}


def is_unanswerable(example: "Example | None") -> bool:
    """Whether an example is declared unanswerable: in its metadata, its outputs, or the metadata of these."""
    if example is None:
        return False
    outputs = example.outputs if isinstance(example.outputs, Mapping) else {}
    sides = (example.metadata, outputs, outputs.get("metadata"))
    return any(isinstance(side, Mapping) and side.get("unanswerable") is True for side in sides)


def relevant_chunk_ids(example: "Example | None") -> list[str]:
    """The relevant chunk ids of an example, [] without; raises ``GroundTruthError`` on anything but ids."""
    return _relevant(example, RELEVANT_CHUNK_IDS, _chunk_id)


def relevant_spans(example: "Example | None") -> list[CharacterSpan]:
    """The relevant spans of an example, [] without; raises ``GroundTruthError`` on anything but spans."""
    return _relevant(example, RELEVANT_SPANS, _span)


def retrieved_chunk_ids(run: "Run") -> list[str]:
    """The chunk ids of a run, [] without outputs; raises ``ConfigurationError`` on anything but ids."""
    return _retrieved(run, RETRIEVED_CHUNK_IDS, _chunk_id)


def retrieved_spans(run: "Run") -> list[CharacterSpan]:
    """The spans of a run, [] without outputs; raises ``ConfigurationError`` on anything but spans."""
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
    record = _SpanRecord.model_validate(item)
    return CharacterSpan(DocumentId(record.doc_id), record.start, record.end, record.text)


def _sentence(reason: Exception) -> str:
    if not isinstance(reason, ValidationError):
        return str(reason)
    first = reason.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the span"
    return f"{place}: {first['msg']}"
