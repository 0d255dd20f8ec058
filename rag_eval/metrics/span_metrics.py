"""What the retrieved context costs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError, SpanMismatchError
from rag_eval.metrics.intervals import Place, measure, merge_places, shared_length, take_away
from rag_eval.metrics.metric import (
    Counts,
    MetricName,
    Values,
    average_precision,
    check_cut,
    discounted_gain,
    hit_rate,
    ratio,
    reciprocal_rank,
)
from rag_eval.tokens import check_encoding, count_tokens, token_ends
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document


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


class SpanCounts(Protocol):
    """Lengths of spans, one entry a query; k counts the first k hits, None all of them.

    The unit is the character unless the places were given in tokens.
    """

    @property
    def truth(self) -> Counts:
        """The length of the merged truth."""

    @property
    def truth_total(self) -> Counts:
        """The summed length of the truth spans as given: an overlap counts again."""

    def covered(self, k: int | None) -> Counts:
        """How much of the merged truth the hits cover."""

    def uncovered_total(self, k: int | None) -> Counts:
        """How much the hits leave uncovered, summed over the truth spans as given."""

    def gains(self, k: int | None) -> Counts:
        """For each rank what the hit newly covers of the merged truth."""

    def retrieved(self, k: int | None) -> Counts:
        """The length of the merged hits."""

    def retrieved_total(self, k: int | None) -> Counts:
        """The summed length of the hits as given: an overlap counts again."""

    def ideal_gain(self, k: int | None) -> Values:
        """The largest discounted gain that any ranking of spans can reach."""


class SpanCase:
    """``SpanCounts`` of one query."""

    def __init__(self, retrieved: Sequence[Place], truth: Sequence[Place]) -> None:
        self._retrieved = retrieved
        self._truth_places = truth

    @cached_property
    def _truth(self) -> dict[str, list[tuple[int, int]]]:
        return merge_places(self._truth_places)

    @property
    def truth(self) -> Counts:
        """As in ``SpanCounts``."""
        return _one(measure(self._truth))

    @property
    def truth_total(self) -> Counts:
        """As in ``SpanCounts``."""
        return _one(_summed(self._truth_places))

    def covered(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        return _one(shared_length(merge_places(self._retrieved[:k]), self._truth))

    def uncovered_total(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        hits = merge_places(self._retrieved[:k])
        covered = sum(shared_length(hits, merge_places([place])) for place in self._truth_places)
        return self.truth_total - covered

    def gains(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        left = dict(self._truth)
        gains = []
        for doc_id, start, end in self._retrieved[:k]:
            left[doc_id], gain = take_away(left.get(doc_id, []), start, end)
            gains.append(gain)
        return np.array(gains, dtype=np.int64).reshape(-1, 1)

    def retrieved(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        return _one(measure(merge_places(self._retrieved[:k])))

    def retrieved_total(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        return _one(_summed(self._retrieved[:k]))

    def ideal_gain(self, k: int | None) -> Values:
        """As in ``SpanCounts``."""
        by_document = sorted((sum(e - s for s, e in spans) for spans in self._truth.values()), reverse=True)
        return discounted_gain(np.array(by_document[:k], dtype=np.int64).reshape(-1, 1))


def _one(value: int) -> Counts:
    return np.array([value], dtype=np.int64)


def _summed(places: Sequence[Place]) -> int:
    return sum(end - start for _, start, end in places)


@dataclass(frozen=True)
class SpanMetric(ABC):
    """A metric on the first k spans retrieved (None: all), counted in characters or in tokens of a ``TokenUnit``.

    Raises ``ConfigurationError`` when k is not a whole number of 1 or more.
    """

    label: ClassVar[str]
    k: int | None = None
    unit: SpanUnit = CHARACTERS

    def __post_init__(self) -> None:
        check_cut(self.k, self.label)

    @property
    def name(self) -> str:
        """Such as ``span_recall``, ``span_recall@5`` or ``span_recall(cl100k_base)@5``."""
        return str(MetricName(self.label, self.unit.name, self.k))

    @staticmethod
    @abstractmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """The metric for every query that was counted."""

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        """The metric for one query."""
        case = SpanCase(self.unit.places(retrieved[: self.k]), self.unit.places(ground_truth))
        return float(self.formula(case, self.k)[0])


class SpanRecall(SpanMetric):
    """|retrieved ∩ truth| / |truth|; 0 on empty truth."""

    label = "span_recall"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """|retrieved ∩ truth| / |truth|."""
        return ratio(counts.covered(k), counts.truth)


class SpanPrecision(SpanMetric):
    """|retrieved ∩ truth| / |retrieved|; 0 on empty retrieval."""

    label = "span_precision"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """|retrieved ∩ truth| / |retrieved|."""
        return ratio(counts.covered(k), counts.retrieved(k))


class SpanIoU(SpanMetric):
    """|retrieved ∩ truth| / |retrieved ∪ truth|; 1 when both are empty, 0 when one is."""

    label = "span_iou"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """|retrieved ∩ truth| / |retrieved ∪ truth|."""
        covered = counts.covered(k)
        return ratio(covered, counts.retrieved(k) + counts.truth - covered, empty=1.0)


class SpanHitRate(SpanMetric):
    """1 when a hit has a gain, else 0; 0 on empty truth or retrieval."""

    label = "span_hit_rate"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """1 when a hit has a gain, else 0."""
        return hit_rate(counts.gains(k))


class SpanMRR(SpanMetric):
    """1 / rank of the first hit that has a gain; 0 when none has, also on empty truth or retrieval.

    E. M. Voorhees, *The TREC-8 Question Answering Track Report*, 1999. The mean over queries is the MRR.
    """

    label = "span_mrr"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """1 / rank of the first gain."""
        return reciprocal_rank(counts.gains(k))


class SpanMAP(SpanMetric):
    """Σᵢ gain(i) · P(i) / T, P(i) being the share of the first i hits that have a gain; 0 on empty truth or retrieval.

    1 when all truth is covered and no hit without a gain comes before one with a gain. How much else a hit holds is
    left to ``SpanPrecision``. Where the truth is whole chunks of one length it is the average precision of
    C. Buckley, E. M. Voorhees, *Evaluating Evaluation Measure Stability*, 2000. The mean over queries is the MAP.
    """

    label = "span_map"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """Σᵢ gain(i) · P(i) / T."""
        return average_precision(counts.gains(k), counts.truth)


class SpanNDCG(SpanMetric):
    """DCG / ideal DCG, where DCG = Σᵢ gain(i) / log₂(i + 1); 0 on empty truth or retrieval.

    A hit lies in one document, so the first m hits cover at most the truth of the m documents that hold most of it.
    The ideal is that bound reached at every m ≤ k: the truth of each document at one rank, the largest first.
    As the discounts fall, no ranking of spans has a larger DCG, whatever the chunks are.
    K. Järvelin, J. Kekäläinen, *Cumulated Gain-Based Evaluation of IR Techniques*, 2002.
    """

    label = "span_ndcg"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """DCG / ideal DCG."""
        return ratio(discounted_gain(counts.gains(k)), counts.ideal_gain(k))


DEFAULT_ENCODING = "cl100k_base"


@dataclass(frozen=True)
class TokensRetrieved:
    """Σ over the first k spans retrieved (None: all) of the tokens of the span's text; 0 on empty retrieval.

    Each text is tokenised on its own, as it would stand in a prompt, and overlaps are paid again. Not in [0, 1].
    Raises ``ConfigurationError`` when k is not a whole number of 1 or more, or on an unknown encoding.
    """

    label: ClassVar[str] = "tokens_retrieved"
    k: int | None = None
    encoding: str = DEFAULT_ENCODING

    def __post_init__(self) -> None:
        check_cut(self.k, self.label)
        check_encoding(self.encoding)

    @property
    def name(self) -> str:
        """Such as ``tokens_retrieved@5`` or, unless the encoding is the default, ``tokens_retrieved(o200k_base)@5``."""
        unit = None if self.encoding == DEFAULT_ENCODING else self.encoding
        return str(MetricName(self.label, unit, self.k))

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        """The metric for one query; ``ground_truth`` is not looked at."""
        return float(sum(count_tokens(span.text, self.encoding) for span in retrieved[: self.k]))
