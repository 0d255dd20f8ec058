"""Rank by BM25, with an index of counted words.

S. E. Robertson, H. Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond*, 2009: the score of a text is
Σ over the query's words of idf · tf / (tf + k1 · (1 − b + b · length / mean length)), with
idf = ln(1 + (n − having + ½) / (having + ½)).
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.scoring import Moments, moments_of
from rag_eval.retrieval.tokenizers import Tokenizer, WordTokenizer
from rag_eval.stores.rankings import Mask, Numbers, Ranking, Scores
from rag_eval.tables import WORDS, check_schema, postings_schema, table_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

WORDS_AT_ONCE = 2**20
"""Number of words that are sorted, and frequencies that are added, at once, to limit the memory."""

TEXTS_AT_ONCE = 2**17
"""Number of texts of several shards that are scored at once, so that their scores fit the processor's cache."""

FREQUENT, MOST_WEIGHTS = 8, 2**23
"""A word in more than an eighth of the texts has a weight for each text. At most this many weights are cached."""

SAMPLE = 32
"""The first estimate of the k-th highest score looks at the highest of this many scores each."""

Texts = NDArray[np.signedinteger]
Frequencies = NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Postings:
    """How often each word occurs in each of a list of texts, as one sparse matrix.

    The word of row r is in ``sizes[r]`` texts, listed in increasing order from ``texts[starts[r]]`` on, and in each as
    often as the same slice of ``frequencies`` says.
    """

    rows: Mapping[str, int]
    starts: Numbers
    sizes: Numbers
    texts: Texts
    frequencies: Frequencies
    count: int
    """The number of texts."""

    @classmethod
    def of(cls, texts: Iterable[str], words: Callable[[str], list[str]]) -> "Postings":
        """Count the words of texts."""
        rows: defaultdict[str, int] = defaultdict()
        rows.default_factory = rows.__len__
        blocks, found, ends = [], array("i"), array("i", [0])
        for text in texts:
            found.extend(map(rows.__getitem__, words(text)))
            ends.append(len(found))
            if len(found) >= WORDS_AT_ONCE:
                blocks.append(_counted(found, ends))
                found, ends = array("i"), array("i", [0])
        blocks.append(_counted(found, ends))
        rows.default_factory = None
        return cls._of_blocks(rows, blocks)

    @classmethod
    def _of_blocks(cls, rows: Mapping[str, int], blocks: "list[csr_array]") -> "Postings":
        """Join the counts of consecutive texts, which have a row for each text."""
        from scipy.sparse import csr_array, vstack

        size = len(rows)
        joined = vstack([csr_array((one.data, one.indices, one.indptr), (one.shape[0], size)) for one in blocks], "csr")
        blocks.clear()  # before they are copied again
        counts = joined.tocsc()
        starts = counts.indptr[:-1].astype(np.int64)
        return cls(rows, starts, np.diff(counts.indptr).astype(np.int64), counts.indices, counts.data, counts.shape[0])

    @classmethod
    def joined(cls, shards: Sequence["Postings"]) -> "Postings":
        """Join shards that have the same words in the same rows."""
        return shards[0] if len(shards) == 1 else cls._of_blocks(shards[0].rows, [shard._by_text() for shard in shards])

    def _by_text(self) -> "csr_array":
        from scipy.sparse import csc_array

        begins = np.cumsum(self.sizes) - self.sizes
        places = np.repeat(self.starts - begins, self.sizes) + np.arange(self.sizes.sum())
        ends = np.append(begins, len(places)).astype(np.int32)
        return csc_array((self.frequencies[places], self.texts[places], ends), (self.count, len(self.rows))).tocsr()

    @classmethod
    def from_table(cls, table: pa.Table, count: int, words: Mapping[str, int]) -> "Postings":
        """Read the postings of these words, given with their rows, from a table, which is not copied."""
        texts, frequencies = (_whole(table.column(name)) for name in ("texts", "frequencies"))
        offsets, found = texts.offsets.to_numpy(), _find(words, table.column("word"))
        sizes = np.where(found < 0, 0, offsets[found + 1] - offsets[found])
        return cls(words, offsets[found], sizes, texts.values.to_numpy(), frequencies.values.to_numpy(), count)

    def to_table(self) -> pa.Table:
        """Return a row for each word, with the texts that have it and how often."""
        schema = postings_schema(pa.from_numpy_dtype(self.frequencies.dtype))
        offsets = pa.array(np.append(self.starts, len(self.texts)))
        lists = [pa.LargeListArray.from_arrays(offsets, pa.array(column)) for column in (self.texts, self.frequencies)]
        columns = [pa.array(list(self.rows), pa.string()), *lists]
        return pa.Table.from_arrays(
            [column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
        )

    @cached_property
    def lengths(self) -> Scores:
        lengths = np.zeros(self.count)
        for begin in range(0, len(self.texts), WORDS_AT_ONCE):
            part = slice(begin, begin + WORDS_AT_ONCE)
            lengths += np.bincount(self.texts[part], self.frequencies[part], self.count)
        return lengths

    def of_word(self, word: str) -> tuple[Texts, Frequencies]:
        """Return the texts that have a word, and how often."""
        row = self.rows.get(word)
        part = slice(0, 0) if row is None else slice(self.starts[row], self.starts[row] + self.sizes[row])
        return self.texts[part], self.frequencies[part]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array, without a copy if possible."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _counted(found: "array[int]", ends: "array[int]") -> "csr_array":
    """Count the words of texts, given by their rows; ``ends`` has 0 and then the end of each text."""
    from scipy.sparse import csr_array

    ones, rows = np.ones(len(found), np.int32), np.frombuffer(found, np.int32)
    counts = csr_array((ones, rows, np.frombuffer(ends, np.int32)), (len(ends) - 1, int(rows.max(initial=0)) + 1))
    counts.sum_duplicates()
    counts.data = counts.data.astype(np.min_scalar_type(counts.data.max(initial=0)))
    return counts


def _find(wanted: Iterable[str], words: pa.ChunkedArray) -> Numbers:
    """Return the row of each wanted word, or -1 if it is missing."""
    few = pa.array(list(wanted), words.type)
    # Looking up all words among a few is faster than the reverse, which hashes all words.
    places, found = pc.index_in(words, value_set=few).combine_chunks(), np.full(len(few), -1, np.int64)
    found[places.drop_null().to_numpy()] = pc.indices_nonzero(places.is_valid()).to_numpy()
    return found


def word_statistics(postings: Sequence[pa.Table], counts: Sequence[int]) -> pa.Table:
    """Sum the postings of all shards, which have this many texts, as a ``WORDS`` table."""
    sizes = pa.concat_tables(
        pa.table(
            {
                "word": table.column("word"),
                "texts": pc.list_value_length(table.column("texts")).cast(pa.int64()),
                "occurrences": _sums(table.column("frequencies")),
            }
        )
        for table in postings
    )
    summed = sizes.group_by("word", use_threads=False).aggregate([("texts", "sum"), ("occurrences", "sum")])
    totals = table_of(WORDS, [(None, sum(counts), pc.sum(sizes.column("occurrences")).as_py() or 0)])
    renamed = summed.select(["word", "texts_sum", "occurrences_sum"]).rename_columns(WORDS.names)
    return pa.concat_tables([totals, renamed.cast(WORDS)]).combine_chunks()


def _sums(lists: pa.ChunkedArray) -> pa.Array:
    """Return the sum of each list, none of which is empty."""
    array = _whole(lists)
    starts, values = array.offsets.to_numpy()[:-1], array.values.to_numpy()
    return pa.array(np.add.reduceat(values, starts, dtype=np.int64) if len(starts) else np.empty(0, np.int64))


@dataclass(frozen=True)
class WordStatistics:
    """Statistics of a whole corpus for BM25: the number of its texts and words, and how many texts have a word."""

    texts: int
    words: int
    having: Mapping[str, int]

    @classmethod
    def from_table(cls, table: pa.Table, wanted: Collection[str]) -> "WordStatistics":
        """Read the statistics of these words from a ``WORDS`` table."""
        words, texts = check_schema(table, WORDS, "words").column("word"), table.column("texts").to_numpy()
        having = {word: int(texts[row]) for word, row in zip(wanted, _find(wanted, words), strict=True) if row >= 0}
        return cls(int(texts[0]), table.column("occurrences")[0].as_py(), having)


@dataclass
class _Block:
    """Consecutive texts that are scored together."""

    begin: int
    postings: Postings
    damping: Scores
    """k1 · (1 − b + b · length / mean length) of each text."""
    weights: dict[str, tuple[Texts | slice, Scores]] = field(default_factory=dict)
    """Cached: the texts to whose scores a word adds, and the amounts."""


class BM25Index:
    """The words of a list of texts, with their weights; raises ``ConfigurationError`` on k1 < 0 or b outside [0, 1].

    >>> BM25Index(["rye bread", "the ferry"]).scores("bread").tolist()
    [0.2772588722239781, 0.0]
    """

    def __init__(
        self, texts: Iterable[str], k1: float = 1.5, b: float = 0.75, tokenizer: Tokenizer | None = None
    ) -> None:
        check_parameters(k1, b)
        self._words = (tokenizer or WordTokenizer()).words
        postings = Postings.of(texts, self._words)
        having = dict(zip(postings.rows, postings.sizes.tolist(), strict=True))
        statistics = WordStatistics(postings.count, int(postings.lengths.sum()), having)
        self._fill([postings], statistics, k1, b)

    @classmethod
    def of_tables(
        cls,
        postings: Sequence[pa.Table],
        counts: Sequence[int],
        statistics: pa.Table,
        searched: Iterable[str],
        k1: float,
        b: float,
        tokenizer: Tokenizer,
    ) -> "BM25Index":
        """Return the index of shards with these numbers of texts, for these searches only.

        ``statistics`` are those of the corpus: of the texts in the shards, or of more.
        """
        index = cls.__new__(cls)
        index._words = tokenizer.words
        words = dict.fromkeys(word for text in searched for word in tokenizer.words(text))
        wanted = {word: row for row, word in enumerate(words)}
        shards = [Postings.from_table(table, count, wanted) for table, count in zip(postings, counts, strict=True)]
        index._fill(shards, WordStatistics.from_table(statistics, wanted), k1, b)
        return index

    def _fill(self, shards: Sequence[Postings], statistics: WordStatistics, k1: float, b: float) -> None:
        """Join the shards to blocks of at least ``TEXTS_AT_ONCE`` texts."""
        self._statistics, self._room, self._blocks = statistics, MOST_WEIGHTS, list[_Block]()
        average = statistics.words / statistics.texts if statistics.texts else 1.0
        first = begin = 0
        for last in range(1, len(shards) + 1):
            block = shards[first:last]
            if last == len(shards) or sum(shard.count for shard in block) >= TEXTS_AT_ONCE:
                lengths = np.concatenate([shard.lengths for shard in block])
                damping = k1 * (1 - b + b * lengths / (average or 1.0))
                self._blocks.append(_Block(begin, Postings.joined(block), damping))
                first, begin = last, begin + len(lengths)

    def scores(self, query: str) -> Scores:
        """Return the score of every text; 0 if it shares no word with the query."""
        words = self._words(query)
        scores = [self._block_scores(block, words) for block in self._blocks]
        return scores[0] if len(scores) == 1 else np.concatenate(scores)

    def _block_scores(self, block: _Block, words: Iterable[str]) -> Scores:
        scores = np.zeros(len(block.damping))
        for word in words:
            texts, weights = block.weights.get(word) or self._weighted(block, word)
            scores[texts] += weights
        return scores

    def _weighted(self, block: _Block, word: str) -> tuple[Texts | slice, Scores]:
        """Return the texts to whose scores a word adds, and the amounts; cached while there is room."""
        texts, frequencies = block.postings.of_word(word)
        weighted: tuple[Texts | slice, Scores] = texts, self._weights(word, block.damping[texts], frequencies)
        if len(texts) > len(block.damping) // FREQUENT:  # adding to all texts is faster than adding to many
            every = np.bincount(texts, weighted[1], len(block.damping)).astype(np.float64, copy=False)
            weighted = slice(None), every
        if len(weighted[1]) <= self._room:
            block.weights[word], self._room = weighted, self._room - len(weighted[1])
        return weighted

    def _weights(self, word: str, damping: Scores, frequencies: Frequencies) -> Scores:
        having = self._statistics.having.get(word, 0)
        idf = np.log1p((self._statistics.texts - having + 0.5) / (having + 0.5))
        tf = frequencies.astype(np.float64)
        weights: Scores = idf * tf / (tf + damping)
        return weights

    def scores_of(self, query: str, texts: Numbers) -> Scores:
        """Return the scores of some texts, by their numbers, equal bit for bit to those of ``scores``."""
        scores, words = np.zeros(len(texts)), self._words(query)
        for block in self._blocks:
            places = np.flatnonzero((texts >= block.begin) & (texts < block.begin + len(block.damping)))
            inside = texts[places] - block.begin
            for word in words if len(inside) else ():
                having, frequencies = block.postings.of_word(word)
                if len(having):
                    rows = np.minimum(np.searchsorted(having, inside), len(having) - 1)
                    found = np.flatnonzero(having[rows] == inside)
                    scores[places[found]] += self._weights(word, block.damping[inside[found]], frequencies[rows[found]])
        return scores

    def search(self, texts: Iterable[str], k: int, among: Mask | None = None, order: Numbers | None = None) -> Ranking:
        """Return the k best texts of the index for every query; texts that share no word with it are not found.

        Args:
            texts: The queries.
            k: How many texts to find.
            among: Which texts may be found.
            order: The numbers of the texts in the order that breaks ties; by default their own.
        """
        place = np.arange(sum(len(block.damping) for block in self._blocks))
        if order is not None:
            place[order] = place.copy()
        searched = [self._words(text) for text in texts]
        found = [(np.empty(0, np.int64), np.empty(0))] * len(searched)
        for block in self._blocks:
            here = slice(block.begin, block.begin + len(block.damping))
            for search, words in enumerate(searched):
                before, known = found[search]
                scores = self._block_scores(block, words)
                if among is not None:
                    scores = np.where(among[here], scores, 0)
                best = best_first(scores, k, place[here], known[-1] if len(known) == k else 0.0)
                numbers, values = np.concatenate([before, best + block.begin]), np.concatenate([known, scores[best]])
                first = np.lexsort((place[numbers], -values))[:k]
                found[search] = numbers[first], values[first]
            if len(self._blocks) > 1:  # another block is scored before the weights are used again
                block.weights, self._room = {}, MOST_WEIGHTS
        return Ranking.of(found)


def check_parameters(k1: float, b: float) -> None:
    """Raise ``ConfigurationError`` unless k1 is finite and at least 0, and 0 <= b <= 1."""
    if not (math.isfinite(k1) and k1 >= 0 and 0 <= b <= 1):
        raise ConfigurationError(f"BM25 has k1 = {k1} and b = {b}: k1 must be 0 or more, b between 0 and 1")


def best_first(scores: Scores, k: int, place: Numbers | None = None, least: float = 0.0) -> Numbers:
    """Return the numbers of the k highest scores above 0, highest first, equal ones by place (default: by number).

    Scores below ``least`` are left out.
    """
    # The k-th highest score of a sample is at most that of all scores, and leaves few to sort.
    width = len(scores) // SAMPLE
    highest = scores[: width * SAMPLE].reshape(SAMPLE, width).max(axis=0)
    if width >= k:
        least = max(least, np.partition(highest, width - k)[width - k])
    matching = np.flatnonzero(scores >= least if least else scores > 0)
    if len(matching) > k:
        found = scores[matching]
        matching = matching[found >= np.partition(found, len(found) - k)[len(found) - k]]
    order = np.lexsort((matching if place is None else place[matching], -scores[matching]))
    best: Numbers = matching[order]
    return best[:k]


class WordScoring:
    """The BM25 scores of any text for these queries."""

    def __init__(self, index: BM25Index, texts: Sequence[str]) -> None:
        self._index, self._texts = index, texts
        self._all: tuple[int, Scores] | None = None  # of the search whose moments were last requested

    def scores(self, search: int, chunks: Numbers) -> Scores:
        if self._all is not None and self._all[0] == search:
            return self._all[1][chunks]
        return self._index.scores_of(self._texts[search], chunks)

    def moments(self, search: int) -> Moments:
        if self._all is None or self._all[0] != search:
            self._all = search, self._index.scores(self._texts[search])
        return moments_of(self._all[1])
