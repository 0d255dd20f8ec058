"""Pages in a report: which page or other place a text is on, and pictures of the pages with relevant text.

A picture is drawn from the file itself, where it is still there as it was read, and kept in the workspace. A report
carries as many as it can bear, those of the questions that are listed first.
"""

import json
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_eval.documents import FILE_DIGEST, PLACES
from rag_eval.documents.boxes import COLUMNS, words_at
from rag_eval.documents.reading import page_picture
from rag_eval.errors import ArtifactError, RagEvalError
from rag_eval.metrics.metric import Counts
from rag_eval.pipeline.document_steps import StoredDocuments
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.html import Section
from rag_eval.reports.text_ranges import Ranges
from rag_eval.storage.files import data_sha256, kept_sha256, stays_inside
from rag_eval.storage.rows import KEY, KeyedRows, Row
from rag_eval.tables import schema_of
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

MOST_BYTES = 4_000_000
"""What all pictures of a page may have together."""
WIDTH = 640
"""Of a picture, in pixels: a column of the page on a desk, and a phone."""
MOST_SECONDS, MOST_SPENT = 5.0, 60.0
"""A document of which a page took longer to draw gets no further pictures, and none does after so long in all."""
MOST_NAME = 100
PICTURES = schema_of(picture_key=KEY, picture=pa.large_binary())

PlaceRow = tuple[int, int, str]
"""Where a place begins and ends, and what it is called."""


class Sheet(NamedTuple):
    """A page that the report has a picture of: the number of its document, its own, and where its text is."""

    document: int
    page: int
    start: int
    end: int


@dataclass(frozen=True)
class PagedDocuments:
    """The documents of a run that have pages or other places, what is told of them, and the folder of their files."""

    documents: Mapping[str, Document] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    workspace: Workspace | None = None

    @classmethod
    def of(cls, workspace: Workspace, documents: pa.Table, folder: Path) -> "PagedDocuments":
        """Those of a table of documents; they are read when they are asked for."""
        told = documents.select(["doc_id", "metadata"])
        told = told.filter(pc.match_substring(told.column("metadata"), f'"{PLACES}"'))
        ids, metadata = (told.column(name).combine_chunks() for name in told.column_names)
        known = dict(zip(ids.to_pylist(), metadata.to_pylist(), strict=True))
        return cls(StoredDocuments([documents], ids, workspace) if known else {}, known, folder, workspace)

    def packed(
        self, ids: Sequence[str], lengths: Counts, ranges: Ranges, spans: Iterable[Sequence[int]]
    ) -> tuple[dict[str, object], list[Section]]:
        """Return what the page is told of places, and the sections of pictures; nothing where there are no places.

        Args:
            ids: The documents of the page, which ranges and spans have by their number.
            lengths: Their numbers of characters.
            ranges: What is shown, of which the places are told.
            spans: What is relevant, of which pages pictures are drawn, as many as a report can bear.
        """
        places = self.places(ids, lengths, ranges)
        if not places:
            return {}, []
        sheets, sections = self.sheets(ids, lengths, spans)
        return {"places": places, "sheets": sheets}, sections

    def places(self, ids: Sequence[str], lengths: Counts, ranges: Ranges) -> dict[int, list[PlaceRow]]:
        """For each document, by its number among the ids, the places that one of the ranges begins or ends in."""
        found: dict[int, list[PlaceRow]] = {}
        order = ranges[np.argsort(ranges[:, 0], kind="stable")] if self.documents else ranges[:0]
        for own in np.split(order, np.flatnonzero(np.diff(order[:, 0])) + 1):
            number = int(own[0, 0]) if len(own) else -1
            if number >= 0 and ids[number] in self.metadata:
                rows = self._rows(ids[number], int(lengths[number]))
                starts = [start for start, _, _ in rows]
                at = np.searchsorted(starts, np.concatenate([own[:, 1], own[:, 2] - 1]), side="right") - 1
                found[number] = [rows[place] for place in np.unique(at[at >= 0]).tolist()]
        return found

    def sheets(
        self, ids: Sequence[str], lengths: Counts, spans: Iterable[Sequence[int]]
    ) -> tuple[list[Sheet], list[Section]]:
        """Return pictures and words of the pages that these spans are on, the first of them, as many as fit.

        A span is the number of its document among the ids, its start and its end.
        """
        found: list[Sheet] = []
        sections: list[Section] = []
        if self.workspace is None:
            return found, sections
        folder = self.workspace.root / "cache" / "pictures" / str(WIDTH)
        with suppress(ArtifactError):  # of a folder that is a link, nothing is fetched
            self.workspace.fetch_missing(folder)
        kept, drawn = KeyedRows(folder, PICTURES, self.workspace.storage), dict[str, Row]()
        size, spent, given_up = 0, 0.0, set[int]()
        for number, first, last in self._pages(ids, lengths, spans):
            document = self.documents[ids[number]]
            words = _words(document, first, last)
            if number in given_up or not len(words):
                continue
            began, page = time.monotonic(), int(words[0, 2])
            words = words[words[:, 2] == page]  # a place of somebody's loader may be on several
            picture = self._picture(document, page, kept, drawn)
            took = time.monotonic() - began
            if picture is None or took > MOST_SECONDS:
                given_up.add(number)
            size, spent = size + len(picture or b""), spent + took
            if picture is not None and size <= MOST_BYTES:
                sections.append(Section.of(f"sheet-{len(found)}", picture))
                sections.append(Section.of(f"words-{len(found)}", np.delete(words, 2, axis=1)))
                found.append(Sheet(number, page, first, last))
            if size > MOST_BYTES or spent > MOST_SPENT:
                break
        if drawn:
            with suppress(ArtifactError):  # in a workspace that is read-only
                kept.put(drawn)
        return found, sections

    def _pages(
        self, ids: Sequence[str], lengths: Counts, spans: Iterable[Sequence[int]]
    ) -> Iterator[tuple[int, int, int]]:
        """Yield the pages that spans are on, each once: the number of the document, and where the page is in it."""
        rows_of = lru_cache(64)(lambda number: self._rows(ids[number], int(lengths[number])))
        seen = set[tuple[int, int]]()
        for number, start, end in spans:
            rows = rows_of(number) if number >= 0 and ids[number] in self.metadata else []
            touched = slice(bisect_right(rows, start, key=itemgetter(1)), bisect_left(rows, end, key=itemgetter(0)))
            for first, last, _ in rows[touched]:
                if (number, first) not in seen:
                    seen.add((number, first))
                    yield number, first, last

    def _picture(self, document: Document, page: int, kept: KeyedRows, drawn: dict[str, Row]) -> bytes | None:
        """The page as it was when it was read; None where it is not kept and its file is gone, another, or no PDF."""
        digest, path = document.metadata.get(FILE_DIGEST), (self.folder or Path()) / document.id
        key = data_sha256([digest, page])
        if found := kept.get([key]):
            return bytes(found[key]["picture"])
        try:
            # The workspace, which names the file, may be anybody's.
            if not (stays_inside(document.id) and path.is_file() and kept_sha256(path) == digest):
                return None
            drawn[key] = {"picture": page_picture(path, page, WIDTH)}
        except (OSError, RagEvalError):
            return None
        return bytes(drawn[key]["picture"])

    def _rows(self, name: str, length: int) -> list[PlaceRow]:
        told = Document(DocumentId(name), "", json.loads(self.metadata[name])).places
        ends = [*(start for start, _ in told[1:]), length]
        return [
            (start, end, name[:MOST_NAME]) for (start, name), end in zip(told, ends, strict=bool(told)) if start < end
        ]


def _words(document: Document, start: int, end: int) -> NDArray[np.int32]:
    packed = document.box_map if isinstance(document.box_map, bytes) else document.box_map()
    try:
        return words_at(packed, start, end) if packed else np.empty((0, COLUMNS), np.int32)
    except ValueError:
        return np.empty((0, COLUMNS), np.int32)  # whoever wrote it, it is no map
