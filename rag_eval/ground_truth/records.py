"""Parse one line of a ground-truth file: its shape, its faults, and its ground truth."""

import json
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from rag_eval.errors import PREVIEW_CHARACTERS, InvalidSpanError, RagEvalError, preview
from rag_eval.formatting import suggestion
from rag_eval.ground_truth.quotes import NAMES
from rag_eval.tables import metadata_to_json
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.evidence import (
    ChunkLevelGroundTruth,
    Query,
    SpanRecord,
    TokenLevelGroundTruth,
    judgements,
)
from rag_eval.types.ids import ChunkId, DocumentId, EvaluationType, QueryId, QueryText, encode_utf8, generate_query_id

T = TypeVar("T", TokenLevelGroundTruth, ChunkLevelGroundTruth)
Text = TypeVar("Text", bound=str)


def _encodable(text: Text) -> Text:
    encode_utf8(text)
    return text


EncodableText = Annotated[str, AfterValidator(_encodable)]
_ChunkId = Annotated[ChunkId, AfterValidator(_encodable)]
_Offset = Annotated[int, Field(lt=2**63)]  # the largest offset that a table can hold
NotEmpty = Annotated[str, Field(min_length=1), AfterValidator(_encodable)]

JsonObject = dict[str, Any]

Place = tuple[str, int, int]
"""Document id, start and end."""


class LineModel(BaseModel):
    """An object in a file; other keys and other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, validate_by_name=True, validate_by_alias=True)


class Header(LineModel):
    """The line that names the format."""

    format: Literal["rag-eval/token-level", "rag-eval/chunk-level"]
    version: Literal[1]


class AlternativeLine(LineModel):
    """A span as written: its offsets may be impossible, and its text may be missing."""

    doc_id: EncodableText = Field(validation_alias=AliasChoices("doc_id", "docId"))
    start: _Offset
    end: _Offset
    text: EncodableText = ""
    origin: NotEmpty | None = None

    @property
    def place(self) -> Place:
        return self.doc_id, self.start, self.end

    def fault(self) -> str | None:
        """Explain why no document can have these offsets; None if one can."""
        try:
            self.span()
        except InvalidSpanError as error:
            return str(error)
        return None

    def span(self) -> CharacterSpan:
        """Return the span; raise ``InvalidSpanError`` if the offsets are impossible."""
        return CharacterSpan(DocumentId(self.doc_id), self.start, self.end, self.text)


class SpanLine(AlternativeLine):
    """A relevant span as written, with alternatives that say the same."""

    alternatives: list[AlternativeLine] = Field(default_factory=list)

    @property
    def members(self) -> list[AlternativeLine]:
        return [self, *self.alternatives]


class _QueryLine(LineModel):
    noun: ClassVar[str]

    id: NotEmpty | None = None
    query: EncodableText
    unanswerable: bool = False
    metadata: dict[str, object] = Field(default_factory=dict)

    @cached_property
    def query_id(self) -> QueryId:
        return QueryId(self.id or generate_query_id(self.query))

    def to_query(self) -> Query:
        """Return the query; raise ``GroundTruthError`` if its text is empty."""
        return Query(self.query_id, QueryText(self.query), self.metadata)

    def _checked(self, answers: int, faults: list[str], make: Callable[[Query], T]) -> tuple[T | None, list[str]]:
        """Return the result of ``make`` for the query, or None if the line has faults; and all faults."""
        if not self.query.strip():
            faults = ["the query is empty: write the question", *faults]
        if not answers and not self.unanswerable:
            faults.append(f'it has no relevant {self.noun}: add them, or declare it with "unanswerable": true')
        if not self.query.strip():
            return None, faults
        try:
            metadata_to_json(self.metadata, "the query")
            query = self.to_query()
            judgements(query)
            truth = make(query)
        except RagEvalError as error:
            faults.append(str(error).removeprefix(f"{self.query_id}: "))
            return None, faults
        return (None, faults) if faults else (truth, [])


class TokenLevelLine(_QueryLine):
    """A query and the spans that answer it."""

    evaluation_type: ClassVar[EvaluationType] = "token-level"
    noun = "spans"
    relevant_spans: list[SpanLine] = Field(default_factory=list)

    def read(self) -> tuple[TokenLevelGroundTruth | None, list[str]]:
        """Return the ground truth of the line, or None if it has faults; and all faults."""
        faults, spans = list[str](), list[CharacterSpan]()
        alternatives: dict[CharacterSpan, list[CharacterSpan]] = {}
        origins: dict[CharacterSpan, str] = {}
        for line in self.relevant_spans:
            try:
                group = [member.span() for member in line.members]
            except InvalidSpanError as error:
                faults.append(str(error))
                continue
            spans.append(group[0])
            if len(group) > 1:
                alternatives.setdefault(group[0], []).extend(group[1:])
            pairs = zip(group, line.members, strict=True)
            origins |= {span: member.origin for span, member in pairs if member.origin}
        return self._checked(
            len(self.relevant_spans),
            faults,
            lambda query: TokenLevelGroundTruth(query, spans, self.unanswerable, alternatives, origins),
        )


class ChunkLevelLine(_QueryLine):
    """A query and the ids of the chunks that answer it; alternatives and origins are by chunk id."""

    evaluation_type: ClassVar[EvaluationType] = "chunk-level"
    noun = "chunk ids"
    relevant_chunk_ids: list[_ChunkId] = Field(default_factory=list)
    alternatives: dict[_ChunkId, list[_ChunkId]] = Field(default_factory=dict)
    origins: dict[_ChunkId, NotEmpty] = Field(default_factory=dict)

    def read(self) -> tuple[ChunkLevelGroundTruth | None, list[str]]:
        """Return the ground truth of the line, or None if it has faults; and all faults."""
        return self._checked(
            len(self.relevant_chunk_ids),
            [],
            lambda query: ChunkLevelGroundTruth(
                query, self.relevant_chunk_ids, self.unanswerable, self.alternatives, self.origins
            ),
        )


def token_level_outputs(item: TokenLevelGroundTruth) -> JsonObject:
    """Return the answers to a query in the form used in files and datasets."""
    # If a span is repeated, the first one has the alternatives.
    seeds = {span: number for number, span in reversed(list(enumerate(item.relevant_spans)))}
    records = []
    for number, span in enumerate(item.relevant_spans):
        record = _span_record(span, item)
        if span in item.alternatives and seeds[span] == number:
            record["alternatives"] = [_span_record(member, item) for member in item.alternatives[span]]
        records.append(record)
    return {"relevant_spans": records}


def chunk_level_outputs(item: ChunkLevelGroundTruth) -> JsonObject:
    """Return the answers to a query in the form used in files and datasets."""
    alternatives = {seed: list(members) for seed, members in item.alternatives.items()}
    groups = {"alternatives": alternatives, "origins": dict(item.origins)}
    return {"relevant_chunk_ids": list(item.relevant_chunk_ids)} | {
        key: group for key, group in groups.items() if group
    }


def _span_record(span: CharacterSpan, item: TokenLevelGroundTruth) -> SpanRecord:
    record: SpanRecord = {"doc_id": span.doc_id, "start": span.start, "end": span.end, "text": span.text}
    if span in item.origins:
        record["origin"] = item.origins[span]
    return record


def line_faults(error: ValueError | RecursionError | RagEvalError) -> list[str]:
    """Explain why a line is not a query, in one sentence per fault."""
    if isinstance(error, ValidationError):
        return [f"{_place(fault['loc'])}: {_explained(fault)}" for fault in error.errors()]
    if isinstance(error, json.JSONDecodeError):
        return [f"not JSON ({error.msg} at character {error.colno}); write one JSON object per line"]
    if isinstance(error, RecursionError):
        return ["objects or lists are nested too deep: write one flat object per line"]
    return [str(error)]


def _explained(fault: ErrorDetails) -> str:
    if fault["type"] == "missing":
        return "it is missing: add it"
    if fault["type"] != "extra_forbidden":
        return fault["msg"]
    kinds: tuple[type[LineModel], ...] = (TokenLevelLine, ChunkLevelLine)
    if len(fault["loc"]) > 1:
        kinds = (AlternativeLine,) if "alternatives" in fault["loc"][:-1] else (SpanLine,)
    known = list(dict.fromkeys(name for kind in kinds for name in kind.model_fields))
    written = fault["loc"][-1]
    if written in known:
        return "it belongs to the other evaluation type: change evaluation_type, or remove it"
    known += NAMES if SpanLine in kinds or AlternativeLine in kinds else ()
    return f"there is no such key{suggestion(written, known)}: use {', '.join(known)}"


def _place(keys: tuple[int | str, ...]) -> str:
    name = ".".join(str(key) for key in keys) or "the line"
    return name if name.isprintable() and len(name) <= PREVIEW_CHARACTERS else preview(name)


def query_name(query_id: str, text: str) -> str:
    """Describe a query in a message: its id and its shortened text, in printable characters."""
    return f"{query_id if query_id.isprintable() else preview(query_id)} {preview(text)}"


def _unique_keys(pairs: list[tuple[str, Any]]) -> JsonObject:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {preview(repeated)} occurs twice in one object: keep one")
    return record


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number: remove it")


parsed_line = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_not_a_number).decode
"""Parse a line; raises ``ValueError`` or ``RecursionError``, which ``line_faults`` explains."""
