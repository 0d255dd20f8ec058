"""Metrics on character spans, counted in characters or in tokens, and what the retrieved context costs.

The spans of one side are merged before anything is counted, so a character counts once. The gain of a hit is what it
newly covers of the truth. Values are in [0, 1], and 0 on empty truth or retrieval unless the class says otherwise.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError, SpanMismatchError
from rag_eval.metrics.formulas import (
    AveragePrecision,
    HitRate,
    IoU,
    NormalisedGain,
    Precision,
    Recall,
    ReciprocalRank,
    TokenCost,
)
from rag_eval.metrics.intervals import Place
from rag_eval.metrics.metric import DEFAULT_ENCODING, Counts, Cut, MetricName, RetrievalMetric, Values, needed
from rag_eval.metrics.sweep import sweep_places
from rag_eval.tokens import check_encoding, count_tokens, token_ends
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import EvaluationType

SpanCase = tuple[Sequence[CharacterSpan], Sequence[CharacterSpan]]
"""What was retrieved for one query, best first, and what is relevant."""


class SpanUnit(Protocol):
    """A way to count the length of a span."""

    @property
    def name(self) -> str | None:
        """The tokenizer, or None for characters."""

    def places(self, spans: Sequence[CharacterSpan]) -> list[Place]:
        """The spans as intervals whose length is counted in this unit."""


@dataclass(frozen=True)
class CharacterUnit:
    """Counts characters (code points)."""

    name: None = None

    def places(self, spans: Sequence[CharacterSpan]) -> list[Place]:
        """The spans as they are."""
        return [(span.doc_id, span.start, span.end) for span in spans]


CHARACTERS = CharacterUnit()


class TokenUnit:
    """Counts the tokens of whole documents: a span holds the tokens that start in it.

    A token starts at the character that holds its first byte. As each token of a document starts at one character,
    it belongs to exactly one of two spans that touch, and counts once however the spans overlap. A span inside one
    token, past its first character, holds none. Documents are tokenised when first asked for.
    Raises ``ConfigurationError`` on an unknown encoding.
    """

    def __init__(self, encoding: str, documents: Iterable[Document]) -> None:
        check_encoding(encoding)
        self.name = encoding
        self._texts: dict[str, str] = {document.id: document.content for document in documents}
        self._starts: dict[str, NDArray[np.int64]] = {}

    def places(self, spans: Sequence[CharacterSpan]) -> list[Place]:
        """The spans as intervals of token numbers.

        Raises ``ConfigurationError`` on a document that was not given and ``SpanMismatchError`` past its end.
        """
        places: list[Place] = []
        for span in spans:
            first, last = self.tokens_before(span.doc_id, np.array([span.start, span.end])).tolist()
            places.append((span.doc_id, first, last))
        return places

    def tokens_before(self, doc_id: str, positions: Counts) -> Counts:
        """How many tokens of the document start before each position; raises as ``places`` does."""
        starts = self._token_starts(doc_id)
        length = len(self._texts[doc_id])
        if positions.size and positions.max() > length:
            raise SpanMismatchError(
                f"a span reaches to {positions.max()} in {doc_id!r}, which has {length} characters: "
                "give the documents that the spans were taken from"
            )
        return np.searchsorted(starts, positions, side="left").astype(np.int64, copy=False)

    def _token_starts(self, doc_id: str) -> NDArray[np.int64]:
        if doc_id not in self._starts:
            if doc_id not in self._texts:
                raise ConfigurationError(
                    f"the tokens of {doc_id!r} cannot be counted, the document was not given: give the whole corpus"
                )
            ends = token_ends(self._texts[doc_id], self.name)
            self._starts[doc_id] = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        return self._starts[doc_id]


@dataclass(frozen=True)
class SpanMetric(RetrievalMetric):
    """A metric on the first k spans retrieved (None: all), counted in characters or in tokens of a ``TokenUnit``.

    k is a number of hits, or a ``Cut`` for a budget of tokens. The tokens of a budget are those of each hit's own text,
    by the unit's tokenizer or else by cl100k_base. Raises ``ConfigurationError`` on a cut that the metric has not.
    """

    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level",)
    has_unit = True
    k: int | Cut | None = None
    unit: SpanUnit = CHARACTERS

    @classmethod
    def from_name(
        cls, name: MetricName, documents: Iterable[Document] | None, chunks: Iterable[PositionAwareChunk] | None
    ) -> Self:
        """The metric of a full name; raises ``ConfigurationError`` when its tokenizer lacks the documents."""
        unit = CHARACTERS if name.unit is None else TokenUnit(name.unit, needed(documents, str(name), "documents"))
        return cls(name.depth, unit)

    @property
    def unit_name(self) -> str | None:
        """The tokenizer that is named, if any."""
        return self.unit.name

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        """The metric for one query."""
        return float(self.calculate_many([(retrieved, ground_truth)])[0])

    def calculate_many(self, cases: Sequence[SpanCase]) -> Values:
        """The metric for several queries at once, each with what was retrieved and what is relevant."""
        hits = [retrieved[: self.cut.hits] for retrieved, _ in cases]
        tokens = token_counts(hits, self.unit.name) if self.parsed_name.reads_tokens else None
        truth = [self.unit.places(relevant) for _, relevant in cases]
        return self.score(sweep_places([self.unit.places(spans) for spans in hits], truth, tokens), self.cut)


def token_counts(hits: Sequence[Sequence[CharacterSpan]], encoding: str | None) -> list[list[int]]:
    """The tokens of each span's own text, as it would stand in a prompt; cl100k_base unless an encoding is named."""
    return [[count_tokens(span.text, encoding or DEFAULT_ENCODING) for span in spans] for spans in hits]


class SpanRecall(Recall, SpanMetric):
    """|retrieved ∩ truth| / |truth|; 0 on empty truth."""

    label = "span_recall"
    meaning = "finds {} of the relevant text"


class SpanPrecision(Precision, SpanMetric):
    """|retrieved ∩ truth| / |retrieved|; 0 on empty retrieval."""

    label = "span_precision"
    meaning = "retrieves text of which {} is relevant"


class SpanIoU(IoU, SpanMetric):
    """|retrieved ∩ truth| / |retrieved ∪ truth|; 1 when both are empty, 0 when one is."""

    label = "span_iou"


class SpanHitRate(HitRate, SpanMetric):
    """1 when a hit has a gain, else 0; 0 on empty truth or retrieval."""

    label = "span_hit_rate"


class SpanMRR(ReciprocalRank, SpanMetric):
    """1 / rank of the first hit that has a gain; 0 when none has, also on empty truth or retrieval."""

    label = "span_mrr"


class SpanMAP(AveragePrecision, SpanMetric):
    """Σᵢ gain(i) · P(i) / T, P(i) being the share of the first i hits that have a gain; 0 on empty truth or retrieval.

    1 when all truth is covered and no hit without a gain comes before one with a gain. How much else a hit holds is
    left to ``SpanPrecision``. Where the truth is whole chunks of one length it is the usual average precision.
    """

    label = "span_map"


class SpanNDCG(NormalisedGain, SpanMetric):
    """DCG / ideal DCG, where DCG = Σᵢ gain(i) / log₂(i + 1); 0 on empty truth or retrieval.

    A hit lies in one document, so the first m hits cover at most the truth of the m documents that hold most of it.
    The ideal is that bound reached at every m ≤ k: the truth of each document at one rank, the largest first.
    As the discounts fall, no ranking of spans has a larger DCG, whatever the chunks are.
    """

    label = "span_ndcg"


@dataclass(frozen=True)
class TokensRetrieved(TokenCost):
    """Σ over the first k spans retrieved (None: all) of the tokens of the span's text; 0 on empty retrieval.

    Each text is tokenised on its own, as it would stand in a prompt, and overlaps are paid again. Not in [0, 1].
    Raises ``ConfigurationError`` on a cut that the metric has not, or on an unknown encoding.
    """

    label = "tokens_retrieved"
    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level",)
    has_unit = True
    k: int | Cut | None = None
    encoding: str = DEFAULT_ENCODING

    def __post_init__(self) -> None:
        super().__post_init__()
        check_encoding(self.encoding)

    @classmethod
    def from_name(
        cls, name: MetricName, documents: Iterable[Document] | None, chunks: Iterable[PositionAwareChunk] | None
    ) -> Self:
        """The metric of a full name; it needs nothing else, as spans have their texts."""
        return cls(name.depth, name.unit or DEFAULT_ENCODING)

    @property
    def unit_name(self) -> str | None:
        """The tokenizer, unless it is the default."""
        return None if self.encoding == DEFAULT_ENCODING else self.encoding

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        """The metric for one query; ``ground_truth`` is not looked at."""
        return float(self.calculate_many([(retrieved, ground_truth)])[0])

    def calculate_many(self, cases: Sequence[SpanCase]) -> Values:
        """The metric for several queries at once."""
        hits = [retrieved[: self.cut.hits] for retrieved, _ in cases]
        places = [CHARACTERS.places(spans) for spans in hits]
        return self.score(sweep_places(places, [[] for _ in cases], token_counts(hits, self.encoding)), self.cut)
