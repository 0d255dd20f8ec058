"""Copies of evidence: other places of a relevant text become alternatives of its span.

Their origin is ``copy``, or ``near copy`` if the text differs a little. Texts shorter than ``LEAST_CHARACTERS`` have no
copies: they may mean something else elsewhere. Copies that overlap spans of the query are not added.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from rag_eval.errors import preview
from rag_eval.ground_truth.folding import MOST_PLACES, FoldedDocuments, folded_form
from rag_eval.ground_truth.locating import nearest_extents
from rag_eval.parts.part_settings import Record, value_in_words
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.evidence import TokenLevelGroundTruth

LEAST_CHARACTERS = 20
MOST_COPIES = 100
COPY, NEAR_COPY = "copy", "near copy"


class NearCopies(Record):
    """Copies of at least the similarity ``near``: 1 - edits / length of the longer text."""

    near: float = Field(gt=0.5, le=1)


Copies = Literal["exact", "off"] | NearCopies
"""Which copies count as evidence."""


def read_copies(value: object) -> Copies:
    """Parse the setting; raise ``ValueError`` if it is invalid."""
    if isinstance(value, bool):  # as YAML reads the word off
        return "exact" if value else "off"
    if value == "exact" or value == "off" or isinstance(value, NearCopies):
        return value
    near = value.get("near") if isinstance(value, Mapping) and len(value) == 1 else None
    if isinstance(near, int | float) and not isinstance(near, bool) and 0.5 < near <= 1:
        return NearCopies(near=near)
    raise ValueError(
        "expected exact, off, or {near: 0.9} for a similarity above 0.5 and up to 1, "
        f"found {preview(repr(value)) if isinstance(value, Mapping) else value_in_words(value)}"
    )


def credit_copies(
    truth: Iterable[TokenLevelGroundTruth], documents: Iterable[Document], copies: Copies = "exact"
) -> list[TokenLevelGroundTruth]:
    """Add the copies of spans as their alternatives.

    Exact copies need only one document in memory at a time.
    """
    items = list(truth)
    if copies == "off":
        return items
    texts = [span.text for item in items for span in item.relevant_spans]
    if not isinstance(copies, NearCopies):
        return with_copies(items, [(place, COPY) for place in places_of_texts(texts, documents)])
    read = list(documents)
    prepared, exact = FoldedDocuments(read), places_of_texts(texts, read)
    near = {text: list(_near_places(prepared, text, copies.near)) for text in texts if len(text) >= LEAST_CHARACTERS}
    return with_copies(items, [(place, COPY) for place in exact], near)


def with_copies(
    truth: Iterable[TokenLevelGroundTruth],
    exact: Iterable[tuple[CharacterSpan, str]],
    near: Mapping[str, Sequence[tuple[CharacterSpan, str]]] = MappingProxyType({}),
) -> list[TokenLevelGroundTruth]:
    """Add places of the texts of spans, with their origins, as alternatives: exact ones first, by document."""
    places: dict[str, list[tuple[CharacterSpan, str]]] = {}
    for place, origin in sorted(exact, key=lambda pair: (pair[0].doc_id, pair[0].start)):
        places.setdefault(place.text, []).append((place, origin))
    for text, others in near.items():
        places.setdefault(text, []).extend(others)
    credited = []
    for item in truth:
        taken = [member for group in item.groups for member in group]
        alternatives, origins = {**item.alternatives}, {**item.origins}
        for span in dict.fromkeys(item.relevant_spans):
            added: list[CharacterSpan] = []
            for place, origin in places.get(span.text, ()):
                if len(added) < MOST_COPIES and not any(map(place.overlaps, taken)):
                    added.append(place)
                    taken.append(place)
                    origins[place] = origin
            if added:
                alternatives[span] = [*alternatives.get(span, ()), *added]
        is_changed = alternatives != {**item.alternatives}
        credited.append(replace(item, alternatives=alternatives, origins=origins) if is_changed else item)
    return credited


def count_copies(answers: pa.Table) -> tuple[int, int]:
    """Count the questions and the spans with copies in a truth table."""
    copies = answers.filter(pc.is_in(answers.column("origin"), pa.array([COPY, NEAR_COPY])))
    groups = copies.group_by(["query_id", "group"]).aggregate([])
    return len(pc.unique(groups.column("query_id"))), groups.num_rows


def places_of_texts(texts: Iterable[str], documents: Iterable[Document]) -> list[CharacterSpan]:
    """Return the first ``MOST_PLACES`` places of each text, by document and start."""
    by_head: dict[str, list[str]] = {}
    for text in sorted({text for text in texts if len(text) >= LEAST_CHARACTERS}):
        by_head.setdefault(text[:LEAST_CHARACTERS], []).append(text)
    places: dict[str, list[CharacterSpan]] = {text: [] for group in by_head.values() for text in group}
    for document in documents if by_head else ():
        content, counts = document.content, Counter[str]()
        for start in _starts(list(by_head), content):
            for text in by_head[content[start : start + LEAST_CHARACTERS]]:
                if counts[text] < MOST_PLACES and content.startswith(text, start):
                    counts[text] += 1
                    places[text].append(document.span(start, start + len(text)))
        for text in counts:
            if len(places[text]) > MOST_PLACES:
                places[text] = sorted(places[text], key=lambda span: (span.doc_id, span.start))[:MOST_PLACES]
    return [place for found in places.values() for place in found]


def _starts(patterns: list[str], content: str) -> list[int]:
    """Return the code points at which a pattern begins, in order."""
    found = pl.Series([content]).str.find_many(patterns, overlapping=True)[0].to_numpy()
    if content.isascii():
        return sorted(found.tolist())
    utf8 = np.frombuffer(content.encode(), np.uint8)
    points = np.flatnonzero(utf8 & 0xC0 != 0x80)  # the first byte of every code point
    return sorted(np.searchsorted(points, found).tolist())


def _near_places(documents: FoldedDocuments, text: str, near: float) -> Iterator[tuple[CharacterSpan, str]]:
    form = folded_form(text)
    for extent in nearest_extents(documents, form, 0, len(documents.text), near):
        found = documents.span(extent.start, extent.end)
        if found.text != text:
            yield found, NEAR_COPY
