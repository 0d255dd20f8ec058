"""Metrics on character spans, counted in characters or in tokens, and what the retrieved context costs.

The spans of one side are merged before anything is counted, so a character counts once. The gain of a hit is what it
newly covers of the truth. Values are in [0, 1], and 0 on empty truth or retrieval unless the class says otherwise.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError, SpanMismatchError
from rag_eval.metrics import formulas
from rag_eval.metrics.chunk_metrics import ChunkMetric
from rag_eval.metrics.coverage import SpanCoverage, SpanRows, touching_chunks
from rag_eval.metrics.groups import coverage_of_places, ungrouped
from rag_eval.metrics.intervals import Place
from rag_eval.metrics.metric import DEFAULT_ENCODING, MAX_MIN_K, MIN, Cut, MetricName, RetrievalMetric, Values, needed
from rag_eval.tokens import check_encoding, count_tokens, token_ends
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk
from rag_eval.types.documents import Documents, by_id
from rag_eval.types.ids import EvaluationType

COMPLETE = 0.9
"""The share of a piece of evidence that is as good as all of it: a boundary may cut off a word or a line end."""

MOST_STARTS = 2**23
"""Of how many tokens it is remembered where they start."""

SpanOrGroup = CharacterSpan | tuple[CharacterSpan, ...]


class TokenUnit:
    """Counts the tokens of whole documents: a span holds the tokens that start in it.

    A token starts at the character that holds its first byte. As each token of a document starts at one character,
    it belongs to exactly one of two spans that touch, and counts once however the spans overlap. A span inside one
    token, past its first character, holds none. Documents are tokenised when first asked for, and the last remembered.
    Raises ``ConfigurationError`` on an unknown encoding.
    """

    def __init__(self, encoding: str, documents: Documents) -> None:
        check_encoding(encoding)
        self.name = encoding
        self._documents = by_id(documents)
        self._known: dict[str, tuple[NDArray[np.int64], int]] = {}

    def places(self, spans: Sequence[CharacterSpan]) -> list[Place]:
        """Return the spans as intervals of token numbers; raises as ``tokens_before`` does."""
        places: list[Place] = []
        for span in spans:
            first, last = self.tokens_before(span.doc_id, np.array([span.start, span.end])).tolist()
            places.append((span.doc_id, first, last))
        return places

    def tokens_before(self, doc_id: str, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many tokens of the document start before each position; raises as ``places`` does."""
        starts, length = self._known.get(doc_id) or self._token_starts(doc_id)
        if positions.size and positions.max() > length:
            raise SpanMismatchError(
                f"a span reaches to {positions.max()} in {doc_id!r}, which has {length} characters: "
                "give the documents that the spans were taken from"
            )
        return np.searchsorted(starts, positions, side="left").astype(np.int64, copy=False)

    def _token_starts(self, doc_id: str) -> tuple[NDArray[np.int64], int]:
        """Return where the tokens of a document start, and its length."""
        if doc_id not in self._documents:
            raise ConfigurationError(
                f"the tokens of {doc_id!r} cannot be counted, the document was not given: give the whole corpus"
            )
        text = self._documents[doc_id].content
        ends = token_ends(text, self.name)
        if sum(len(starts) for starts, _ in self._known.values()) > MOST_STARTS:
            self._known.clear()
        self._known[doc_id] = np.concatenate([[0], ends[:-1]]) if len(ends) else ends, len(text)
        return self._known[doc_id]


class ChunkedCorpus:
    """All chunks of a corpus, to be asked which of them touch a reference: share a character or a border with it."""

    def __init__(self, chunks: Iterable[PositionAwareChunk]) -> None:
        self._places: dict[str, list[tuple[int, int]]] = {}
        for chunk in chunks:
            self._places.setdefault(chunk.doc_id, []).append((chunk.start, chunk.end))

    def touching(self, references: Sequence[CharacterSpan]) -> list[Place]:
        """Return the places of the chunks that touch a reference, each chunk once."""
        doc_ids = sorted({reference.doc_id for reference in references} & self._places.keys())
        chunks = [(number, *place) for number, doc_id in enumerate(doc_ids) for place in self._places[doc_id]]
        spans = [(doc_ids.index(one.doc_id), one.start, one.end) for one in references if one.doc_id in doc_ids]
        sides = (np.array(side, dtype=np.int64).reshape(-1, 3).T for side in (spans, chunks))
        found = touching_chunks(*(SpanRows(np.array([0, side.shape[1]]), *side) for side in sides))
        columns = (found.doc.tolist(), found.start.tolist(), found.end.tolist())
        return [(doc_ids[doc], start, end) for doc, start, end in zip(*columns, strict=True)]

    def min_k(self, references: Sequence[CharacterSpan]) -> int:
        """Return how many chunks touch a reference, at most 20: what k = "min" stands for."""
        return min(len(self.touching(references)), MAX_MIN_K)


class MetricOnSpans(RetrievalMetric):
    """A metric on character spans, which are counted in its unit, and on the chunks of the corpus where it has them."""

    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level",)
    unit: TokenUnit | None = None
    chunks: ChunkedCorpus | None = None

    @classmethod
    def from_name(
        cls, name: MetricName, documents: Documents | None, chunks: Iterable[PositionAwareChunk] | None
    ) -> Self:
        """Return the metric of a full name; raises ``ConfigurationError`` without documents or chunks it needs."""
        settings: dict[str, Any] = {} if name.k is None else {"k": name.k}
        if "chunks" in name.needs:
            settings["chunks"] = ChunkedCorpus(needed(chunks, str(name), "chunks"))
        if name.unit is not None and "hits" in cls.reads:
            settings["unit"] = TokenUnit(
                name.unit, needed(None if documents is None else by_id(documents), str(name), "documents")
            )
        elif name.unit is not None:
            settings["encoding"] = name.unit
        return cls(**settings)

    @property
    def unit_name(self) -> str | None:
        return None if self.unit is None else self.unit.name

    def _places(self, spans: Sequence[CharacterSpan]) -> list[Place]:
        if self.unit is not None:
            return self.unit.places(spans)
        return [(span.doc_id, span.start, span.end) for span in spans]

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[SpanOrGroup]) -> float:
        """Return the metric for one query; a tuple of spans among the truth is a group of evidence."""
        return float(self.calculate_many([(retrieved, ground_truth)])[0])

    def calculate_many(self, cases: Sequence[tuple[Sequence[CharacterSpan], Sequence[SpanOrGroup]]]) -> Values:
        """Return the metric for several queries, each with what was retrieved, best first, and what is relevant."""
        firsts = [[group[0] if isinstance(group, tuple) else group for group in truth] for _, truth in cases]
        if self.chunks is not None and "chunks" in self.reads:
            touching = [self.chunks.touching(spans) for spans in firsts]
            return self.score(coverage_of_places(touching, [self._places(spans) for spans in firsts]), self.cut)
        retrieved, members = [hits[: self.cut.hits] for hits, _ in cases], [ungrouped(truth) for _, truth in cases]
        coverage = coverage_of_places(
            [self._places(spans) for spans in retrieved],
            [self._places(spans) for spans, _ in members],
            self._tokens(retrieved),
            [self.chunks.min_k(spans) for spans in firsts] if self.cut == MIN and self.chunks is not None else None,
            [numbers for _, numbers in members],
        )
        return self.score(coverage, self.cut)

    def _tokens(self, retrieved: Sequence[Sequence[CharacterSpan]]) -> list[list[int]] | None:
        if self.cut.kind != "tokens" and "tokens" not in self.reads:
            return None
        encoding = self.unit_name or DEFAULT_ENCODING
        return [[count_tokens(span.text, encoding) for span in spans] for spans in retrieved]


@dataclass(frozen=True)
class SpanMetric(MetricOnSpans):
    """A metric on the first k spans retrieved (None: all), counted in characters or in tokens of a ``TokenUnit``.

    k is a number of hits, or a ``Cut`` for a budget of tokens. The tokens of a budget are those of each hit's own text,
    by the unit's tokenizer or else by cl100k_base. Raises ``ConfigurationError`` on a cut that the metric has not.
    """

    has_unit = True
    k: int | Cut | None = None
    unit: TokenUnit | None = None


class SpanRecall(formulas.Recall, SpanMetric):
    """|retrieved ∩ truth| / |truth|; 0 on empty truth."""

    label = "span_recall"
    meaning = "finds {} of the relevant text"


class SpanPrecision(formulas.Precision, SpanMetric):
    """|retrieved ∩ truth| / |retrieved|; 0 on empty retrieval."""

    label = "span_precision"
    meaning = "retrieves text of which {} is relevant"


class SpanIoU(formulas.IoU, SpanMetric):
    """|retrieved ∩ truth| / |retrieved ∪ truth|; 1 when both are empty, 0 when one is."""

    label = "span_iou"


class _OfBothLevels(SpanMetric):
    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level", "chunk-level")

    def calculate_many(self, cases: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> Values:
        """Return the metric for queries of spans or of chunk ids; raises ``ConfigurationError`` on ids at a budget."""
        if any(isinstance(one, str) for case in cases for side in case for one in ungrouped(side)[0]):
            return ChunkMetric.calculate_many(cast("ChunkMetric", self), cases)
        return super().calculate_many(cases)


class CompleteEvidence(_OfBothLevels):
    """1 when every group of the truth is covered to 0.9 at least, by its best covered member; else 0, and on no truth.

    For questions that need several passages: the mean is the share of the questions that can be answered whole. It is a
    metric of both levels; a chunk id is covered where it was retrieved.
    """

    label = "complete_evidence"
    only_rises = True
    bounds = "above"
    meaning = "brings all of the evidence for {} of the questions"
    has_unit = False

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return (hits.weakest(cut) >= COMPLETE).astype(np.float64)


class Unjudged(_OfBothLevels):
    """|retrieved \\ judged| / |retrieved|, judged being the truth and all that was judged; 0 on empty retrieval.

    What was retrieved and is not in the truth counts as irrelevant, although mostly nobody has judged it. With U what
    is retrieved within a cut and unjudged, every metric has a value for U irrelevant, which is the usual one, and one
    for U relevant, each piece of it as a group of evidence of its own: ``score_passages(…, unjudged="relevant")``.
    Whatever part of what is unjudged, in U and elsewhere, is really relevant, by the ``bounds`` of a metric

    - *both* hold for what is found among the hits: precision, hit rate and reciprocal rank can only rise as a part of U
      is relevant, and nothing else matters to them;
    - the one *above* holds for what is found of the truth: recall, IoU, F1 and evidence that is complete. With T the
      truth and C what of it is covered, recall is (C + r) / (T + r + s) where r of U and s of what was not retrieved
      are relevant. It is largest at r = |U| and s = 0, and falls with s: what was not retrieved can make it less than
      the usual value, which bounds it from below only where nothing else is relevant (s = 0);
    - *neither* holds for average precision, nDCG and the area under recall: relevant text at a low rank lowers them.

    The hits within ``@min`` are those of the truth as it is. ``calculate`` is given the truth alone, and takes it as
    all that was judged. It is a metric of both levels.
    """

    label = "unjudged"
    higher_is_better = False
    meaning = "retrieves text of which {} is unjudged"
    has_unit = True
    reads = frozenset({"hits", "judged"})

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        retrieved = hits.retrieved(cut)
        return formulas.ratio(retrieved - hits.relevant(cut), retrieved, cls.empty)


class SpanHitRate(formulas.HitRate, SpanMetric):
    """1 when a hit is relevant, else 0; 0 on empty truth or retrieval."""

    label = "span_hit_rate"


class SpanMRR(formulas.ReciprocalRank, SpanMetric):
    """1 / rank of the first relevant hit; 0 when none is, also on empty truth or retrieval."""

    label = "span_mrr"


class SpanMAP(formulas.AveragePrecision, SpanMetric):
    """Σᵢ gain(i) · P(i) / T, P(i) being the share of the first i hits that have a gain; 0 on empty truth or retrieval.

    1 when all truth is covered and no hit without a gain comes before one with a gain. How much else a hit holds is
    left to ``SpanPrecision``. Where the truth is whole chunks of one length it is the usual average precision.
    """

    label = "span_map"


class SpanNDCG(formulas.NormalisedGain, SpanMetric):
    """DCG / ideal DCG, where DCG = Σᵢ gain(i) / log₂(i + 1); 0 on empty truth or retrieval.

    A hit lies in one document, so the first m hits cover at most the truth of the m documents that hold most of it.
    The ideal is that bound reached at every m ≤ k: the truth of each document at one rank, the largest first.
    As the discounts fall, no ranking of spans has a larger DCG, whatever the chunks are.
    """

    label = "span_ndcg"


@dataclass(frozen=True)
class TokensRetrieved(formulas.TokenCost, MetricOnSpans):
    """Σ over the first k spans retrieved (None: all) of the tokens of the span's text; 0 on empty retrieval.

    Each text is tokenised on its own, as it would stand in a prompt, and overlaps are paid again. Not in [0, 1].
    It is a metric of both levels; chunk ids, which tell no texts, are scored from tables.
    Raises ``ConfigurationError`` on a cut that the metric has not, or on an unknown encoding.
    """

    label = "tokens_retrieved"
    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level", "chunk-level")
    has_unit = True
    k: int | Cut | None = None
    encoding: str = DEFAULT_ENCODING

    def __post_init__(self) -> None:
        super().__post_init__()
        check_encoding(self.encoding)

    @property
    def unit_name(self) -> str | None:
        """The tokenizer, unless it is the default."""
        return None if self.encoding == DEFAULT_ENCODING else self.encoding
