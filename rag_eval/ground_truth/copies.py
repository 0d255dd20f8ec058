"""Find copies of evidence: other occurrences of a relevant text become alternatives of its span.

Texts shorter than ``LEAST_CHARACTERS`` have no copies: they may mean something else elsewhere. Copies that overlap
spans of the query are not added.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, groupby
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.ground_truth.folding import MOST_PLACES, starts_of
from rag_eval.parts.part_settings import value_in_words
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.evidence import TokenLevelGroundTruth

LEAST_CHARACTERS = 20
MOST_COPIES = 100
COPY = "copy"
"""The origin of a copy."""

Copies = Literal["exact", "off"]
"""Which copies count as evidence."""


def read_copies(value: object) -> Copies:
    """Parse the setting; raise ``ValueError`` if it is invalid."""
    if isinstance(value, bool):  # because YAML reads the word off as false
        return "exact" if value else "off"
    if value == "exact" or value == "off":
        return value
    raise ValueError(f"expected exact or off, found {value_in_words(value)}")


def credit_copies(
    truth: Iterable[TokenLevelGroundTruth], documents: Iterable[Document], copies: Copies = "exact"
) -> list[TokenLevelGroundTruth]:
    """Add copies of spans as their alternatives, with one document in memory at a time."""
    items = list(truth)
    if copies == "off":
        return items
    return with_copies(items, places_of_texts((span.text for item in items for span in item.relevant_spans), documents))


def with_copies(truth: Iterable[TokenLevelGroundTruth], places: Iterable[CharacterSpan]) -> list[TokenLevelGroundTruth]:
    """Add the occurrences of the texts of spans as alternatives, ordered by document and start."""
    by_text: dict[str, list[CharacterSpan]] = {}
    for place in sorted(places, key=lambda place: (place.doc_id, place.start)):
        by_text.setdefault(place.text, []).append(place)
    return [_with_copies(item, by_text) for item in truth]


def _with_copies(item: TokenLevelGroundTruth, places: dict[str, list[CharacterSpan]]) -> TokenLevelGroundTruth:
    taken = [member for group in item.groups for member in group]
    alternatives, origins = {**item.alternatives}, {**item.origins}
    for span in dict.fromkeys(item.relevant_spans):
        added: list[CharacterSpan] = []
        for place in places.get(span.text, ()):
            if len(added) < MOST_COPIES and not any(map(place.overlaps, taken)):
                added.append(place)
                taken.append(place)
        if added:
            alternatives[span] = [*alternatives.get(span, ()), *added]
            origins |= dict.fromkeys(added, COPY)
    return replace(item, alternatives=alternatives, origins=origins) if origins != item.origins else item


def count_copies(answers: pa.Table) -> tuple[int, int]:
    """Count the questions and the spans with copies in a truth table."""
    copies = answers.filter(pc.equal(answers.column("origin"), COPY))
    groups = copies.group_by(["query_id", "group"]).aggregate([])
    return len(pc.unique(groups.column("query_id"))), groups.num_rows


def places_of_texts(texts: Iterable[str], documents: Iterable[Document]) -> list[CharacterSpan]:
    """Return the first ``MOST_PLACES`` occurrences of each text, ordered by document and start."""
    long = sorted({text for text in texts if len(text) >= LEAST_CHARACTERS})
    by_head = {head: list(some) for head, some in groupby(long, key=lambda text: text[:LEAST_CHARACTERS])}
    places: dict[str, list[CharacterSpan]] = {text: [] for text in long}
    for document in documents if long else ():
        content, counts = document.content, Counter[str]()
        for start in starts_of(by_head.keys(), content):
            for text in by_head[content[start : start + LEAST_CHARACTERS]]:
                if counts[text] < MOST_PLACES and content.startswith(text, start):
                    counts[text] += 1
                    places[text].append(document.span(start, start + len(text)))
        for text in counts:
            places[text] = sorted(places[text], key=lambda span: (span.doc_id, span.start))[:MOST_PLACES]
    return list(chain(*places.values()))
