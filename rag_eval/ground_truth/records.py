"""One line of a ground-truth file: its shape, what can be wrong with it by itself, and the truth it holds.

Version 1 of the format has spans or chunk ids. Version 2 adds groups of evidence: a span or chunk id may list
alternatives that say the same, and an origin.
"""

import json
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NoReturn

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
    group_fault,
    judgements,
    span_name,
    unanswerable_fault,
)
from rag_eval.types.ids import ChunkId, DocumentId, EvaluationType, QueryId, QueryText, encode_utf8, generate_query_id


def _encodable(text: str) -> str:
    encode_utf8(text)
    return text


_Text = Annotated[str, AfterValidator(_encodable)]
_Offset = Annotated[int, Field(lt=2**63)]  # what a table can hold
NotEmpty = Annotated[str, Field(min_length=1), AfterValidator(_encodable)]


JsonObject = dict[str, Any]
"""An object as JSON has it."""

Place = tuple[str, int, int]
"""A document's id, and a start and an end in it."""


class LineModel(BaseModel):
    """The shape of an object in a file: other keys are refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, validate_by_name=True, validate_by_alias=True)


class Header(LineModel):
    """The line that names the format."""

    format: Literal["rag-eval/token-level", "rag-eval/chunk-level"]
    version: int


class AlternativeLine(LineModel):
    """A span that says the same as another; its numbers may still be nonsense. Without a text, the corpus has it."""

    doc_id: _Text = Field(validation_alias=AliasChoices("doc_id", "docId"))
    start: _Offset
    end: _Offset
    text: _Text = ""
    origin: NotEmpty | None = None

    @property
    def place(self) -> Place:
        return self.doc_id, self.start, self.end

    def fault(self) -> str | None:
        """Return what is wrong with the numbers themselves, whatever the document holds; None if nothing is."""
        try:
            self.span()
        except InvalidSpanError as error:
            return str(error)
        return None

    def span(self) -> CharacterSpan:
        """Return the span; raises ``InvalidSpanError`` when the numbers are nonsense."""
        return CharacterSpan(DocumentId(self.doc_id), self.start, self.end, self.text)


class SpanLine(AlternativeLine):
    """A relevant span as it is written, with its alternatives."""

    alternatives: list[AlternativeLine] = Field(default_factory=list)

    @property
    def members(self) -> list[AlternativeLine]:
        return [self, *self.alternatives]


class _QueryLine(LineModel):
    id: NotEmpty | None = None
    query: _Text
    unanswerable: bool = False
    metadata: dict[str, object] = Field(default_factory=dict)

    @cached_property
    def query_id(self) -> QueryId:
        return QueryId(self.id or generate_query_id(self.query))

    def to_query(self) -> Query:
        """Return the query; raises ``GroundTruthError`` when its text is empty."""
        return Query(self.query_id, QueryText(self.query), self.metadata)

    def _faults(self, answers: int, kind: str) -> list[str]:
        """Return all that is wrong with the query as one that has so many answers of a kind."""
        faults = [] if self.query.strip() else ["the query is empty: write the question"]
        if not answers and not self.unanswerable:
            faults.append(f'it has no relevant {kind}: add them, or declare it with "unanswerable": true')
        if self.unanswerable and (fault := unanswerable_fault(answers, kind)):
            faults.append(fault)
        if self.metadata:
            try:
                metadata_to_json(self.metadata, "the query")
                judgements(self.to_query())
            except RagEvalError as error:
                faults.append(str(error))
        return faults


class TokenLevelLine(_QueryLine):
    """A query and the spans that answer it."""

    evaluation_type: ClassVar[EvaluationType] = "token-level"
    relevant_spans: list[SpanLine] = Field(
        default_factory=list, validation_alias=AliasChoices("relevant_spans", "relevantSpans")
    )

    @property
    def has_groups(self) -> bool:
        """Whether the line has something that only version 2 of the format knows."""
        return any(span.origin or span.alternatives for span in self.relevant_spans)

    def read(self) -> tuple[TokenLevelGroundTruth | None, list[str]]:
        """Return the truth of the line, None where something is wrong with it, and all that is by itself."""
        faults = self._faults(len(self.relevant_spans), "spans")
        spans: list[CharacterSpan] = []
        alternatives: dict[CharacterSpan, list[CharacterSpan]] = {}
        origins: dict[CharacterSpan, str] = {}
        is_broken = False
        for line in self.relevant_spans:
            group = []
            for member in (line, *line.alternatives):
                try:
                    group.append(member.span())
                except InvalidSpanError as error:
                    faults.append(str(error))
                    is_broken = True
                    continue
                if member.origin:
                    origins[group[-1]] = member.origin
            spans += group[:1]
            if len(group) > 1:
                alternatives.setdefault(group[0], []).extend(group[1:])
        if not is_broken and (fault := group_fault(spans, alternatives, origins, span_name)):
            faults.append(fault)
        if faults:
            return None, faults
        return TokenLevelGroundTruth(self.to_query(), spans, self.unanswerable, alternatives, origins), []


class ChunkLevelLine(_QueryLine):
    """A query and the ids of the chunks that answer it; alternatives and origins are by chunk id."""

    evaluation_type: ClassVar[EvaluationType] = "chunk-level"
    relevant_chunk_ids: list[_Text] = Field(
        default_factory=list, validation_alias=AliasChoices("relevant_chunk_ids", "relevantChunkIds", "chunk_ids")
    )
    alternatives: dict[_Text, list[_Text]] = Field(default_factory=dict)
    origins: dict[_Text, NotEmpty] = Field(default_factory=dict)

    @property
    def has_groups(self) -> bool:
        """Whether the line has something that only version 2 of the format knows."""
        return bool(self.alternatives or self.origins)

    def read(self) -> tuple[ChunkLevelGroundTruth | None, list[str]]:
        """Return the truth of the line, None where something is wrong with it, and all that is by itself."""
        faults = self._faults(len(self.relevant_chunk_ids), "chunk ids")
        ids = [ChunkId(name) for name in self.relevant_chunk_ids]
        alternatives = {ChunkId(seed): [ChunkId(name) for name in names] for seed, names in self.alternatives.items()}
        origins = {ChunkId(name): origin for name, origin in self.origins.items()}
        if fault := group_fault(ids, alternatives, origins, repr):
            faults.append(fault)
        if faults:
            return None, faults
        return ChunkLevelGroundTruth(self.to_query(), ids, self.unanswerable, alternatives, origins), []


def token_level_outputs(item: TokenLevelGroundTruth) -> JsonObject:
    """Return what answers a query as plain data, as files and datasets hold it."""
    records, written = [], set()
    for span in item.relevant_spans:
        record = _span_record(span, item)
        # A span that is given twice has one group.
        if span in item.alternatives and span not in written:
            record["alternatives"] = [_span_record(member, item) for member in item.alternatives[span]]
        written.add(span)
        records.append(record)
    return {"relevant_spans": records}


def chunk_level_outputs(item: ChunkLevelGroundTruth) -> JsonObject:
    """Return what answers a query as plain data, as files and datasets hold it."""
    outputs: JsonObject = {"relevant_chunk_ids": list(item.relevant_chunk_ids)}
    if item.alternatives:
        outputs["alternatives"] = {seed: list(members) for seed, members in item.alternatives.items()}
    if item.origins:
        outputs["origins"] = dict(item.origins.items())
    return outputs


def _span_record(span: CharacterSpan, item: TokenLevelGroundTruth) -> SpanRecord:
    record: SpanRecord = {"doc_id": span.doc_id, "start": span.start, "end": span.end, "text": span.text}
    if span in item.origins:
        record["origin"] = item.origins[span]
    return record


def line_faults(error: ValueError | RecursionError | RagEvalError) -> list[str]:
    """Say why a line does not even have the shape of a query, a sentence each."""
    if isinstance(error, ValidationError):
        return [f"{_place(fault['loc'])}: {_said(fault)}" for fault in error.errors()]
    if isinstance(error, json.JSONDecodeError):
        return [f"not JSON ({error.msg} at character {error.colno}); write one JSON object a line"]
    if isinstance(error, RecursionError):
        return ["objects or lists are nested too deep: write one flat object a line"]
    return [str(error)]


def _said(fault: ErrorDetails) -> str:
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
        return "it belongs to the other evaluation type: choose that, or remove it"
    known += NAMES if SpanLine in kinds or AlternativeLine in kinds else ()
    return f"there is no such key{suggestion(written, known)}: use {', '.join(known)}"


def _place(keys: tuple[int | str, ...]) -> str:
    name = ".".join(str(key) for key in keys) or "the line"
    return name if name.isprintable() and len(name) <= PREVIEW_CHARACTERS else preview(name)


def query_name(query_id: str, text: str) -> str:
    """Name a query for a message: its id and its text, cut, with nothing that would steer a terminal."""
    return f"{query_id if query_id.isprintable() else preview(query_id)} {preview(text)}"


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {preview(repeated)} is twice in one object: keep one")
    return found


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON has: leave it out")


parsed_line = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_not_a_number).decode
"""Parse the JSON of a line; raises ``ValueError`` or ``RecursionError``, which ``line_faults`` puts into words."""
