"""Copies of evidence: what says the same as a span of the truth elsewhere in the corpus is found by finding either.

A text that occurs several times is one piece of evidence at several places. Its other places become alternatives of the
span, with the origin ``copy``, or ``near copy`` where a similarity was asked for and the text differs a little. A text
shorter than ``LEAST_CHARACTERS`` says too little: its occurrences need not mean the same. Places that overlap a span
the question has already are not added, and at most ``MOST_COPIES`` are added to a span.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field

from rag_eval.errors import preview
from rag_eval.ground_truth.locating import nearest_extents
from rag_eval.ground_truth.text_index import PreparedDocuments, RunIndex, folded_form
from rag_eval.parts.settings import value_in_words
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Corpus
from rag_eval.types.ground_truth import TokenLevelGroundTruth

LEAST_CHARACTERS = 20
MOST_COPIES = 100
COPY, NEAR_COPY = "copy", "near copy"


class NearCopies(BaseModel):
    """Copies that differ a little: ``near`` is the least similarity, 1 - edits / length of the longer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    near: float = Field(gt=0.5, le=1)


Copies = Literal["exact", "off"] | NearCopies
"""Which copies of evidence count as evidence."""


def read_copies(given: object) -> Copies:
    """Return which copies count, as a file or a caller says it; raises ``ValueError`` on anything else."""
    if isinstance(given, bool):  # as YAML reads the word off
        return "exact" if given else "off"
    if given == "exact" or given == "off" or isinstance(given, NearCopies):
        return given
    near = given.get("near") if isinstance(given, Mapping) and len(given) == 1 else None
    if isinstance(near, int | float) and not isinstance(near, bool) and 0.5 < near <= 1:
        return NearCopies(near=near)
    raise ValueError(
        "expected exact, off, or {near: 0.9} for a similarity above 0.5 and up to 1, "
        f"found {preview(repr(given)) if isinstance(given, Mapping) else value_in_words(given)}"
    )


def credit_copies(
    truth: Iterable[TokenLevelGroundTruth], corpus: Corpus, copies: Copies = "exact"
) -> list[TokenLevelGroundTruth]:
    """Return the truth with the copies of its spans as their alternatives; spans are those of the corpus."""
    if copies == "off":
        return list(truth)
    finder = _Finder(corpus, copies.near if isinstance(copies, NearCopies) else None)
    credited = []
    for item in truth:
        taken = [member for group in item.groups for member in group]
        alternatives, origins = {**item.alternatives}, {**item.origins}
        for span in dict.fromkeys(item.relevant_spans):
            added: list[CharacterSpan] = []
            for place, origin in finder.places(span):
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
    """Of how many questions and spans a truth table has copies."""
    copies = answers.filter(pc.is_in(answers.column("origin"), pa.array([COPY, NEAR_COPY])))
    groups = copies.group_by(["query_id", "group"]).aggregate([])
    return len(pc.unique(groups.column("query_id"))), groups.num_rows


class _Finder:
    """The places of texts in a corpus: to the letter, and nearly where a similarity is given."""

    def __init__(self, corpus: Corpus, near: float | None) -> None:
        self._documents = corpus.documents
        self._begins = [0, *accumulate(len(document.content) + 1 for document in corpus.documents)]
        self._index = RunIndex("\n".join(document.content for document in corpus.documents))
        self._near = near
        self._prepared = None if near is None else PreparedDocuments(corpus.documents)
        self._known: dict[str, list[tuple[CharacterSpan, str]]] = {}

    def places(self, span: CharacterSpan) -> list[tuple[CharacterSpan, str]]:
        """Where the text of a span is, itself among them, in the order of the documents; near places after those."""
        if len(span.text) < LEAST_CHARACTERS:
            return []
        if span.text not in self._known:
            self._known[span.text] = [*self._exact(span.text), *self._nearly(span.text)]
        return self._known[span.text]

    def _exact(self, text: str) -> Iterator[tuple[CharacterSpan, str]]:
        for place in self._index.occurrences(text, 0, len(self._index.text)):
            number = bisect_right(self._begins, place) - 1
            document, start = self._documents[number], place - self._begins[number]
            if start + len(text) <= len(document.content):  # not across two documents
                yield document.span(start, start + len(text)), COPY

    def _nearly(self, text: str) -> Iterator[tuple[CharacterSpan, str]]:
        if self._prepared is None or self._near is None:
            return
        form = folded_form(text)
        for extent in nearest_extents(self._prepared, form, 0, len(self._prepared.index.text), self._near):
            found = self._prepared.span(self._prepared.place(extent.start, extent.end))
            if found.text != text:
                yield found, NEAR_COPY
