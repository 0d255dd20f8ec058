"""How much of each document is truth."""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_eval.metrics.intervals import merge_places
from rag_eval.types.document import Corpus
from rag_eval.types.ids import DocumentId


@dataclass(frozen=True, slots=True)
class Coverage:
    """A document, how many queries and spans ask about it, and how many of its characters answer one of them."""

    doc_id: DocumentId
    characters: int
    queries: int
    spans: int
    truth_characters: int

    @property
    def share(self) -> float:
        """The share of the document that is truth, each character counted once; 0 for an empty document."""
        return self.truth_characters / self.characters if self.characters else 0.0


def coverage_of(spans: Sequence[tuple[int, DocumentId, int, int]], corpus: Corpus) -> list[Coverage]:
    """The coverage of every document, in the corpus's order, from valid spans as (query, document, start, end)."""
    merged = merge_places((doc_id, start, end) for _, doc_id, start, end in spans)
    queries: dict[DocumentId, set[int]] = {}
    counts: dict[DocumentId, int] = {}
    for query, doc_id, _, _ in spans:
        queries.setdefault(doc_id, set()).add(query)
        counts[doc_id] = counts.get(doc_id, 0) + 1
    return [
        Coverage(
            document.id,
            len(document.content),
            len(queries.get(document.id, ())),
            counts.get(document.id, 0),
            sum(end - start for start, end in merged.get(document.id, [])),
        )
        for document in corpus
    ]
