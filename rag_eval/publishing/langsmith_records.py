"""Chunk ids and spans, read from what LangSmith keeps of runs and examples."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from rag_eval.errors import ConfigurationError, GroundTruthError, InvalidSpanError, RagEvalError, preview
from rag_eval.types.ids import DocumentId
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


class _SpanRecord(BaseModel):
    model_config = ConfigDict(strict=True)

    doc_id: str = Field(validation_alias=AliasChoices("doc_id", "docId"))
    start: int
    end: int
    text: str


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
