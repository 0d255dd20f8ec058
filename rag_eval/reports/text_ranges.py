"""Ranges of text in documents, as columns of numbers, and which text a report carries for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.metrics.intervals import merge_sorted
from rag_eval.metrics.metric import Counts
from rag_eval.tables import has_places


@dataclass(frozen=True)
class TextRanges:
    """Ranges ``[start, end)`` in code points of documents by number, one a row."""

    document: Counts
    start: Counts
    end: Counts

    def __len__(self) -> int:
        return len(self.document)

    @classmethod
    def together(cls, parts: Sequence["TextRanges"]) -> "TextRanges":
        """Concatenate ranges."""
        columns = zip(*((part.document, part.start, part.end) for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns)) if parts else cls(*np.zeros((3, 0), np.int64))

    @property
    def characters(self) -> int:
        """The summed length."""
        return int((self.end - self.start).sum())

    @property
    def longest(self) -> int:
        """The length of the longest."""
        return int((self.end - self.start).max(initial=0))

    def rows(self) -> Counts:
        """Document, start and end, one range a row."""
        return np.stack([self.document, self.start, self.end], axis=1)

    def taken(self, rows: Counts) -> "TextRanges":
        """The ranges at these rows."""
        return TextRanges(self.document[rows], self.start[rows], self.end[rows])

    def merged(self) -> "TextRanges":
        """Sort by document and start, and join ranges that overlap or touch."""
        # All documents on one line with a position between them: one sort and one pass merge them all.
        size = int(self.end.max(initial=0)) + 1
        start, end = self.document * size + self.start, self.document * size + self.end
        order = np.argsort(start, kind="stable")
        start, end, first = merge_sorted(start[order], end[order])
        document = self.document[order][first]
        return TextRanges(document, start - document * size, end - document * size)

    def touching(self, others: "TextRanges") -> Counts:
        """The rows that share a character with one of ``others``, which are merged."""
        size = int(max(self.end.max(initial=0), others.end.max(initial=0))) + 1
        begins = np.append(others.document * size + others.start, np.iinfo(np.int64).max)
        after = np.searchsorted(others.document * size + others.end, self.document * size + self.start, side="right")
        # Documents that are not looked at have the number -1.
        return np.flatnonzero((self.document >= 0) & (begins[after] < self.document * size + self.end))


@dataclass(frozen=True)
class TextUnits:
    """Texts by number, documents or chunks: their ids, titles and contents."""

    ids: pa.Array
    titles: list[str]
    contents: pa.ChunkedArray

    @cached_property
    def lengths(self) -> Counts:
        """The number of characters of each."""
        lengths: Counts = pc.utf8_length(self.contents).to_numpy().astype(np.int64)
        return lengths

    def ranges(self, rows: pa.Table) -> TextRanges:
        """The ranges of chunks or truth; a chunk without a place is the whole of its own text."""
        if has_places(rows):
            start, end = (rows.column(name).to_numpy() for name in ("start", "end"))
            return TextRanges(numbers_of(rows.column("doc_id"), self.ids), start, end)
        number = numbers_of(rows.column("chunk_id"), self.ids)
        return TextRanges(number, np.zeros_like(number), self.lengths[number])


def document_units(documents: pa.Table) -> TextUnits:
    """Documents as texts by number."""
    ids = documents.column("doc_id").combine_chunks()
    return TextUnits(ids, ids.to_pylist(), documents.column("content"))


def chunk_units(chunks: Sequence[pa.Table]) -> TextUnits:
    """Chunks as texts by number, equal ones once; a title names the document and the place of the first copy."""
    together = pa.concat_tables(chunks)
    ids = together.column("chunk_id").combine_chunks()
    distinct = pc.unique(ids)
    firsts = together.take(pc.index_in(distinct, value_set=ids))
    doc_ids, ordinals = (firsts.column(name).to_pylist() for name in ("doc_id", "ordinal"))
    titles = [f"{doc_id}, chunk {ordinal + 1}" for doc_id, ordinal in zip(doc_ids, ordinals, strict=True)]
    return TextUnits(distinct, titles, firsts.column("content"))


def numbers_of(ids: pa.ChunkedArray, known: pa.Array) -> Counts:
    """The index of each id among the known ones; -1 where it is unknown."""
    numbers: Counts = pc.fill_null(pc.index_in(ids, value_set=known), -1).to_numpy().astype(np.int64)
    return numbers


MOST_CHARACTERS = 12_000_000
"""Text that makes a page of about ten megabytes, which a phone still opens."""

CONTEXT = 400
"""Characters carried on each side of a span where whole documents are not."""


@dataclass(frozen=True)
class CarriedTexts:
    """The text in the report: ranges by document and start, none overlapping, and a note on what was left out."""

    ranges: TextRanges
    note: str | None


def choose_texts(lengths: Counts, truth: TextRanges, hits: TextRanges, most: int = MOST_CHARACTERS) -> CarriedTexts:
    """Choose the text to carry for these spans, at most about ``most`` characters.

    All documents with a span if they fit; else the text around truth and hits; else around truth alone; else around as
    many spans of the truth, in the order given, as fit.
    """
    spans = TextRanges.together([truth, hits])
    documents = np.unique(spans.document)
    whole = TextRanges(documents, np.zeros_like(documents), lengths[documents])
    if whole.characters <= most:
        return CarriedTexts(whole, None)
    about = f"The documents concerned have {whole.characters:,} characters, too many for one page"
    for chosen, what in ((spans, "truth and hits"), (truth, "truth")):
        around = _around(chosen, lengths)
        if around.characters <= most:
            return CarriedTexts(around, f"{about}: only the text around {what} is shown.")
    afford = int(np.searchsorted(np.cumsum(truth.end - truth.start + 2 * CONTEXT), most, side="right"))
    note = f"{about}: only the text around the first {afford:,} of {len(truth):,} spans of truth is shown."
    return CarriedTexts(_around(truth.taken(np.arange(afford)), lengths), note)


def cut_texts(contents: pa.ChunkedArray, ranges: TextRanges) -> list[bytes]:
    """The text of each range, in UTF-8."""
    texts: list[bytes] = []
    current, content = -1, ""
    for number, start, end in ranges.rows().tolist():
        if number != current:
            current, content = number, contents[number].as_py()
        texts.append(content[start:end].encode())
    return texts


def _around(spans: TextRanges, lengths: Counts) -> TextRanges:
    """The spans with their context, merged."""
    start = np.maximum(spans.start - CONTEXT, 0)
    end = np.minimum(spans.end + CONTEXT, lengths[spans.document])
    return TextRanges(spans.document, start, end).merged()
