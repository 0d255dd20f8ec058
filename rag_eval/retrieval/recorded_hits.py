"""Read recorded hits of another system: JSON lines, LangSmith retriever runs, or a TREC run."""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import isfinite
from operator import itemgetter
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

from pydantic import AfterValidator, AliasChoices, AliasPath, BaseModel, Field, ValidationError

from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import counted
from rag_eval.parts import Shown, part
from rag_eval.parts.part_settings import Place, reason_of
from rag_eval.storage.files import file_sha256, read_text
from rag_eval.types.evidence import Query

JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
RecordedHit = str | dict[str, object]


class RecordedQuery(BaseModel):
    """A line of JSON: a query, by its text or id, and its hits, best first."""

    query_id: str | None = None
    query: str | None = Field(None, validation_alias=AliasChoices("query", "user_input", AliasPath("inputs", "query")))
    hits: list[RecordedHit] = Field(
        validation_alias=AliasChoices("hits", "retrieved_contexts", AliasPath("outputs", "documents"))
    )

    @property
    def answers(self) -> list[RecordedHit]:
        """The hits, with LangChain's ``page_content`` as ``text``."""
        return [
            {"text": hit["page_content"]} if "page_content" in hit and isinstance(hit, dict) else hit
            for hit in self.hits
        ]


def _read_json_lines(text: str, path: Path) -> dict[str, list[RecordedHit]]:
    found: dict[str, list[RecordedHit]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                recorded = RecordedQuery.model_validate_json(line)
            except ValidationError as error:
                fault = error.errors()[0]
                place = Place(f"{str(path)!r}, line {number}").inside(fault["loc"][:1])
                raise ConfigurationError(f"{place.file}: {place.path}: {reason_of(fault)}") from None
            keys = [key.strip() for key in (recorded.query_id, recorded.query) if key]
            if not keys:
                raise ConfigurationError(f"{str(path)!r}, line {number}: give the text of the query, or its query_id")
            found |= dict.fromkeys(keys, recorded.answers)
    return found


_PLACE = re.compile(r"(.+):(\d+)-(\d+)")


def _read_trec(text: str, path: Path) -> dict[str, list[RecordedHit]]:
    """Read the lines of a TREC run: query id, Q0, document, rank, score, tag. A document is a place or a chunk id."""
    scored: dict[str, list[tuple[float, RecordedHit]]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                query_id, _, document, _, score, _ = line.split()
                if not isfinite(float(score)):
                    raise ValueError
            except ValueError:
                raise ConfigurationError(
                    f"{str(path)!r}, line {number}: expected six columns of a TREC run, found {preview(line)}"
                ) from None
            place = _PLACE.fullmatch(unquote(document))
            hit: dict[str, object] = {"chunk_id": unquote(document)}
            if place is not None:
                hit = {"doc_id": place[1], "start": int(place[2]), "end": int(place[3])}
            scored.setdefault(unquote(query_id), []).append((float(score), hit | {"score": float(score)}))
    return {
        query_id: [hit for _, hit in sorted(hits, key=itemgetter(0), reverse=True)] for query_id, hits in scored.items()
    }


def _check_file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"there is no file {preview(str(path))}: check the path")
    return path


@part
class RecordedHits:
    """Hits of another system, recorded in a file by the id or text of each query.

    Raises ``ConfigurationError`` if the file has no entry for a query.
    """

    path: Annotated[
        Path,
        AfterValidator(_check_file),
        Shown,
        Field(description="File with JSON lines of queries with hits, or a TREC run."),
    ]

    @property
    def identity(self) -> str:
        try:
            return file_sha256(self.path)
        except OSError as error:
            raise ConfigurationError(f"{str(self.path)!r} cannot be read ({error.strerror}): check the path") from None

    @property
    def label(self) -> str:
        return f"hits {self.path.name}"

    @cached_property
    def _by_query(self) -> Mapping[str, list[RecordedHit]]:
        read = _read_json_lines if self.path.suffix.lower() in JSON_SUFFIXES else _read_trec
        return read(read_text(self.path).removeprefix("\ufeff"), self.path)

    def search_many(self, queries: Sequence[Query], k: int) -> list[list[RecordedHit]]:
        found = [self._by_query.get(query.id, self._by_query.get(query.text.strip())) for query in queries]
        missing = [query.text for query, hits in zip(queries, found, strict=True) if hits is None]
        if missing:
            questions = f"{counted(len(missing), 'questions')} of {len(queries):,}, first {preview(missing[0])}"
            raise ConfigurationError(
                f"{self.label} has no hits for {questions}: record these too, or remove them from the ground truth"
            )
        return [hits[:k] for hits in found if hits is not None]
