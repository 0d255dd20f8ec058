"""One line of a ground-truth file: its shape, and what can be wrong with it before any document is looked at."""

import json
from functools import cached_property
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from rag_eval.errors import PREVIEW_CHARACTERS, GroundTruthError, RagEvalError, preview
from rag_eval.formatting import suggestion
from rag_eval.tables import metadata_to_json
from rag_eval.types.chunks import CharacterSpan, bounds_fault, length_fault
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth, unanswerable_fault
from rag_eval.types.ids import ChunkId, DocumentId, EvaluationType, QueryId, QueryText, encode_utf8, generate_query_id

VERSION = 1


def _encodable(text: str) -> str:
    encode_utf8(text)
    return text


_Text = Annotated[str, AfterValidator(_encodable)]
_Offset = Annotated[int, Field(lt=2**63)]  # what a table can hold


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Header(_Strict):
    """The line that names the format."""

    format: Literal["rag-eval/token-level", "rag-eval/chunk-level"]
    version: int

    def check(self, evaluation_type: EvaluationType) -> None:
        """Raise ``GroundTruthError`` unless the file is of this version and of the evaluation's type."""
        if self.version != VERSION:
            raise GroundTruthError(f"this is version {self.version} of the format, which is not known: use {VERSION}")
        found = self.format.removeprefix("rag-eval/")
        if found != evaluation_type:
            raise GroundTruthError(
                f"this is {found} ground truth and the evaluation is {evaluation_type}: use the one that fits the other"
            )


class SpanLine(_Strict):
    """A span as it is written; its numbers may still be nonsense."""

    doc_id: _Text
    start: _Offset
    end: _Offset
    text: _Text

    def fault(self) -> str | None:
        """What is wrong with the numbers themselves, whatever the document holds; None if nothing is."""
        if not 0 <= self.start < self.end:
            return bounds_fault(self.doc_id, self.start, self.end)
        if len(self.text) == self.end - self.start:
            return None
        return length_fault(self.doc_id, self.start, self.end, self.text)


class _Record(_Strict):
    id: Annotated[str, Field(min_length=1), AfterValidator(_encodable)] | None = None
    query: _Text
    unanswerable: bool = False
    metadata: dict[str, object] = Field(default_factory=dict)

    @cached_property
    def query_id(self) -> QueryId:
        """The id given, or the one made from the text."""
        return QueryId(self.id or generate_query_id(self.query))

    def _query_faults(self, answers: int, kind: str) -> list[str]:
        faults = [] if self.query.strip() else ["the query is empty: write the question"]
        if not answers and not self.unanswerable:
            faults.append(f'it has no relevant {kind}: add them, or declare it with "unanswerable": true')
        if self.unanswerable and (fault := unanswerable_fault(answers, kind)):
            faults.append(fault)
        if self.metadata:
            try:
                metadata_to_json(self.metadata, "the query")
            except RagEvalError as error:
                faults.append(str(error))
        return faults

    def _query(self) -> Query:
        return Query(self.query_id, QueryText(self.query), self.metadata)


class TokenLevelRecord(_Record):
    """A query and the spans that answer it."""

    relevant_spans: list[SpanLine] = Field(default_factory=list)

    def faults(self) -> list[str]:
        """All that is wrong with the line by itself."""
        spans = (span.fault() for span in self.relevant_spans)
        return self._query_faults(len(self.relevant_spans), "spans") + [fault for fault in spans if fault]

    def ground_truth(self) -> TokenLevelGroundTruth:
        """The record of a line without faults as ground truth."""
        spans = [CharacterSpan(DocumentId(s.doc_id), s.start, s.end, s.text) for s in self.relevant_spans]
        return TokenLevelGroundTruth(self._query(), spans, self.unanswerable)


class ChunkLevelRecord(_Record):
    """A query and the ids of the chunks that answer it."""

    relevant_chunk_ids: list[_Text] = Field(default_factory=list)

    def faults(self) -> list[str]:
        """All that is wrong with the line by itself."""
        return self._query_faults(len(self.relevant_chunk_ids), "chunk ids")

    def ground_truth(self) -> ChunkLevelGroundTruth:
        """The record of a line without faults as ground truth."""
        return ChunkLevelGroundTruth(
            self._query(), [ChunkId(name) for name in self.relevant_chunk_ids], self.unanswerable
        )


def parsed_line(line: str) -> Any:
    """The JSON of a line; raises ``ValueError`` or ``RecursionError``, which ``line_faults`` puts into words."""
    return _DECODER.decode(line)


def line_faults(error: ValueError | RecursionError | RagEvalError) -> list[str]:
    """Why a line has not even the shape of a record, a sentence each."""
    if isinstance(error, ValidationError):
        return [f"{_place(fault['loc'])}: {_said(fault)}" for fault in error.errors()]
    if isinstance(error, json.JSONDecodeError):
        return [f"not JSON ({error.msg} at character {error.colno}); write one JSON object a line"]
    if isinstance(error, RecursionError):
        return ["objects or lists stand too deep in each other: write one flat object a line"]
    return [str(error)]


def _said(fault: ErrorDetails) -> str:
    if fault["type"] != "extra_forbidden":
        return fault["msg"]
    kinds = (SpanLine,) if len(fault["loc"]) > 1 else (TokenLevelRecord, ChunkLevelRecord)
    known = list(dict.fromkeys(name for kind in kinds for name in kind.model_fields))
    written = fault["loc"][-1]
    if written in known:
        return "it belongs to the other evaluation type: choose that, or remove it"
    return f"there is no such key{suggestion(written, known)}: use {', '.join(known)}"


def _place(keys: tuple[int | str, ...]) -> str:
    name = ".".join(str(key) for key in keys) or "the line"
    return name if name.isprintable() and len(name) <= PREVIEW_CHARACTERS else preview(name)


def query_name(query_id: str, text: str) -> str:
    """How a query is called in a message: its id and its text, cut, with nothing that would steer a terminal."""
    return f"{query_id if query_id.isprintable() else preview(query_id)} {preview(text)}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {preview(repeated)} stands twice in one object: keep one")
    return found


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON has: leave it out")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_not_a_number)
