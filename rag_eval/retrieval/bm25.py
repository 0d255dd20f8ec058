"""Retrieval by words: BM25 over counted words.

S. E. Robertson, H. Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond*, 2009: the score of a text is
Σ over the query's words of idf · tf / (tf + k1 · (1 − b + b · length / mean length)), with
idf = ln(1 + (n − having + ½) / (having + ½)).
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError
from rag_eval.parts import label
from rag_eval.retrieval.retriever import AnyChunker, C, ChunkRetriever, Numbers, Ranking
from rag_eval.retrieval.scoring import Moments, moments_of
from rag_eval.retrieval.tokenizers import Tokenizer, WordTokenizer
from rag_eval.tables import WORDS, check_schema, postings_schema, table_of
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.evidence import Query
from rag_eval.types.ids import EvaluationType

WORDS_AT_ONCE = 2**20
"""How many words are sorted at once, and frequencies added: what bounds the memory, and changes no result."""

TEXTS_AT_ONCE = 2**17
"""How many texts of several shards are searched at once: their scores fit the processor's cache."""

FREQUENT, MOST_WEIGHTS = 8, 2**23
"""A word that more than an eighth of the texts have has a weight for all. So many stay from query to query."""

SCORES_A_LOOK = 32
"""Of so many scores a first look for the highest takes one."""


@dataclass(frozen=True)
class Postings:
    """How often each word is in which of a list of texts, as one sparse matrix.

    The word of row r is in ``sizes[r]`` texts, in increasing order from ``texts[starts[r]]`` on, as often as the same
    slice of ``frequencies`` says. ``rows`` has the words' rows in the order in which they were met.
    """

    rows: Mapping[str, int]
    starts: Numbers
    sizes: Numbers
    texts: NDArray[np.signedinteger]
    frequencies: NDArray[np.unsignedinteger]
    count: int
    """How many texts there are."""

    @classmethod
    def of(cls, texts: Iterable[str], words: Callable[[str], list[str]]) -> "Postings":
        """Count the words of texts."""
        rows: defaultdict[str, int] = defaultdict()
        rows.default_factory = rows.__len__
        found, lengths, blocks, count = array("i"), array("q"), [], 0
        for text in texts:
            before = len(found)
            found.extend(map(rows.__getitem__, words(text)))
            lengths.append(len(found) - before)
            count += 1
            if len(found) >= WORDS_AT_ONCE:
                blocks.append(_counted(found, lengths, count - len(lengths)))
                found, lengths = array("i"), array("q")
        blocks.append(_counted(found, lengths, count - len(lengths)))
        rows.default_factory = None
        return cls._of_blocks(rows, blocks, count)

    @classmethod
    def _of_blocks(cls, rows: Mapping[str, int], blocks: Sequence["_Block"], count: int) -> "Postings":
        """Join the postings of consecutive texts."""
        sizes = np.zeros(len(rows), np.int64)
        for block in blocks:
            sizes[block.rows] += block.sizes
        starts = np.cumsum(sizes) - sizes
        where = np.empty(sizes.sum(), np.result_type(*(block.texts for block in blocks)))
        frequencies = np.empty(len(where), np.result_type(*(block.frequencies for block in blocks)))
        free = starts.copy()
        for block in blocks:
            places = _ranges(free[block.rows], block.sizes)
            where[places], frequencies[places] = block.texts, block.frequencies
            free[block.rows] += block.sizes
        return cls(rows, starts, sizes, where, frequencies, count)

    @classmethod
    def joined(cls, shards: Sequence["Postings"], words: Iterable[str]) -> "Postings":
        """Join those of several lists of texts; of the words, only these, which all of them know."""
        rows = {word: row for row, word in enumerate(words)}
        blocks, count = [], 0
        for shard in shards:
            theirs = np.fromiter(map(shard.rows.__getitem__, rows), np.int64, len(rows))
            places = _ranges(shard.starts[theirs], shard.sizes[theirs])
            # As whole words of the processor, by which numpy indexes several times faster.
            texts = shard.texts[places].astype(np.int64) + count
            blocks.append(_Block(np.arange(len(rows)), shard.sizes[theirs], texts, shard.frequencies[places]))
            count += shard.count
        return cls._of_blocks(rows, blocks, count)

    @classmethod
    def from_table(cls, table: pa.Table, count: int, wanted: Mapping[str, int]) -> "Postings":
        """Read the postings of so many texts from a table, which is not copied; of the words, those wanted, as rows."""
        texts, frequencies = (_whole(table.column(name)) for name in ("texts", "frequencies"))
        offsets, found = texts.offsets.to_numpy(), _found(wanted, table.column("word"))
        sizes = np.where(found < 0, 0, offsets[found + 1] - offsets[found])
        return cls(wanted, offsets[found], sizes, texts.values.to_numpy(), frequencies.values.to_numpy(), count)

    def to_table(self) -> pa.Table:
        """Return a row a word, with the texts that have it and how often they do."""
        schema = postings_schema(pa.from_numpy_dtype(self.frequencies.dtype))
        offsets = pa.array(np.append(self.starts, len(self.texts)))
        lists = [pa.LargeListArray.from_arrays(offsets, pa.array(column)) for column in (self.texts, self.frequencies)]
        columns = [pa.array(list(self.rows), pa.string()), *lists]
        return pa.Table.from_arrays(
            [column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
        )

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """How many words each text has."""
        lengths = np.zeros(self.count)
        for begin in range(0, len(self.texts), WORDS_AT_ONCE):
            part = slice(begin, begin + WORDS_AT_ONCE)
            lengths += np.bincount(self.texts[part], self.frequencies[part], self.count)
        return lengths

    def of_word(self, word: str) -> tuple[NDArray[np.signedinteger], NDArray[np.unsignedinteger]]:
        """Return the texts that have a word, and how often."""
        row = self.rows.get(word)
        part = slice(0, 0) if row is None else slice(self.starts[row], self.starts[row] + self.sizes[row])
        return self.texts[part], self.frequencies[part]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array, which is not copied where it is one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _ranges(starts: Numbers, sizes: Numbers) -> Numbers:
    """Return the numbers from each start on, so many of each."""
    numbers: Numbers = np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    return numbers


class _Block(NamedTuple):
    """The postings of some of the texts: the rows of their words, how many texts each has, and which, how often."""

    rows: Numbers
    sizes: Numbers
    texts: NDArray[np.signedinteger]
    frequencies: NDArray[np.unsignedinteger]


def _counted(found: "array[int]", lengths: "array[int]", begin: int) -> _Block:
    """Count the words of consecutive texts, the first of which has the number ``begin``."""
    count = max(1, len(lengths))
    keys = np.frombuffer(found, np.int32) * np.int64(count) + np.repeat(np.arange(len(lengths)), lengths)
    keys.sort()
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    frequencies = np.diff(firsts, append=len(keys))
    rows, texts = np.divmod(keys[firsts], count)
    begins = np.flatnonzero(np.diff(rows, prepend=-1))
    kind = np.min_scalar_type(frequencies.max(initial=0))
    sizes = np.diff(begins, append=len(rows))
    return _Block(rows[begins], sizes, (texts + begin).astype(np.int32), frequencies.astype(kind))


def _found(wanted: Iterable[str], words: pa.ChunkedArray) -> Numbers:
    """Return the row of each of the words wanted; -1 of one that is not there."""
    asked = pa.array(list(wanted), words.type)
    # All words are sooner looked up among the few that are asked for than these among all.
    places, found = pc.index_in(words, value_set=asked).combine_chunks(), np.full(len(asked), -1, np.int64)
    found[places.drop_null().to_numpy()] = pc.indices_nonzero(places.is_valid()).to_numpy()
    return found


def word_statistics(postings: Sequence[pa.Table], counts: Sequence[int]) -> pa.Table:
    """Sum up the postings of all shards, which have so many texts, as a ``WORDS`` table."""
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
    read = _whole(lists)
    starts = read.offsets.to_numpy()[:-1]
    values = read.values.to_numpy()
    return pa.array(np.add.reduceat(values, starts, dtype=np.int64) if len(starts) else np.empty(0, np.int64))


@dataclass(frozen=True)
class WordStatistics:
    """What BM25 has to know of a whole corpus: its texts, their words, and how many texts have a word."""

    texts: int
    words: int
    having: Mapping[str, int]

    @classmethod
    def from_table(cls, table: pa.Table, wanted: Collection[str]) -> "WordStatistics":
        """Read them from a ``WORDS`` table; of the words, only those wanted."""
        words, texts = check_schema(table, WORDS, "words").column("word"), table.column("texts").to_numpy()
        having = {word: int(texts[row]) for word, row in zip(wanted, _found(wanted, words), strict=True) if row >= 0}
        return cls(int(texts[0]), table.column("occurrences")[0].as_py(), having)


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
        self._begin([Postings.of(texts, self._words)], None, k1, b)

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
        """Return the index of shards of so many texts each, for these searches, with the statistics of a corpus.

        The corpus is that of the shards, or a larger one.
        """
        index = cls.__new__(cls)
        index._words = tokenizer.words
        words = dict.fromkeys(word for text in searched for word in tokenizer.words(text))
        wanted = {word: row for row, word in enumerate(words)}
        shards = [Postings.from_table(table, count, wanted) for table, count in zip(postings, counts, strict=True)]
        index._begin(shards, WordStatistics.from_table(statistics, wanted), k1, b)
        return index

    def _begin(self, shards: list[Postings], statistics: WordStatistics | None, k1: float, b: float) -> None:
        self._shards, self._statistics = shards, statistics
        self._begins = np.cumsum([0, *(shard.count for shard in shards)])
        lengths = np.concatenate([shard.lengths for shard in shards])
        count, total = (len(lengths), lengths.sum()) if statistics is None else (statistics.texts, statistics.words)
        self._corpus, average = count, total / count if count else 1.0
        self._kept, self._room = dict[str, tuple[Any, NDArray[np.float64]]](), MOST_WEIGHTS
        self._damping = k1 * (1 - b + b * lengths / (average or 1.0))

    def __len__(self) -> int:
        return len(self._damping)

    def parts(self, searched: Iterable[str]) -> Iterator[tuple[int, "BM25Index"]]:
        """Give the index in parts for these searches, each with the number of its first text."""
        if len(self._shards) == 1:
            yield 0, self
            return
        words, first = dict.fromkeys(word for text in searched for word in self._words(text)), 0
        for last in range(1, len(self._shards) + 1):
            begin, end = self._begins[first], self._begins[last]
            if end - begin >= TEXTS_AT_ONCE or last == len(self._shards):
                part = copy(self)
                part._shards = [Postings.joined(self._shards[first:last], words)]
                part._begins, part._damping = np.array([0, end - begin]), self._damping[begin:end]
                part._kept, part._room = {}, MOST_WEIGHTS
                yield int(begin), part
                first = last

    def scores(self, query: str) -> NDArray[np.float64]:
        """Return the score of every text; 0 where no word is shared."""
        scores = np.zeros(len(self))
        for word in self._words(query):
            where, weights = self._kept.get(word) or self._weighted(word)
            scores[where] += weights
        return scores

    def _weighted(self, word: str) -> tuple[Any, NDArray[np.float64]]:
        """Return the texts whose scores a word adds to, and what; kept for the next query while there is room."""
        texts, frequencies = self._postings(word)
        found: tuple[Any, Any] = texts, self._weights(word, texts, frequencies)
        if len(texts) > len(self) // FREQUENT:  # adding to all is faster than to many
            found = slice(None), np.bincount(texts, found[1], len(self))
        if len(found[1]) <= self._room:
            self._kept[word], self._room = found, self._room - len(found[1])
        return found

    def scores_of(self, query: str, texts: Numbers) -> NDArray[np.float64]:
        """Return the scores of some of the texts, by their numbers: those that ``scores`` gives, to the last bit."""
        scores = np.zeros(len(texts))
        for word in self._words(query):
            having, frequencies = self._postings(word)
            if len(having):
                places = np.minimum(np.searchsorted(having, texts), len(having) - 1)
                found = np.flatnonzero(having[places] == texts)
                scores[found] += self._weights(word, texts[found], frequencies[places[found]])
        return scores

    def _postings(self, word: str) -> tuple[NDArray[np.integer], NDArray[np.unsignedinteger]]:
        parts = [shard.of_word(word) for shard in self._shards]
        if len(parts) == 1:
            return parts[0]
        texts = [part + begin for (part, _), begin in zip(parts, self._begins[:-1], strict=True)]
        return np.concatenate(texts), np.concatenate([frequencies for _, frequencies in parts])

    def _weights(
        self, word: str, texts: NDArray[np.integer], frequencies: NDArray[np.unsignedinteger]
    ) -> NDArray[np.float64]:
        if self._statistics is None:
            having = sum(len(shard.of_word(word)[0]) for shard in self._shards)
        else:
            having = self._statistics.having.get(word, 0)
        idf = np.log1p((self._corpus - having + 0.5) / (having + 0.5))
        tf = frequencies.astype(np.float64)
        weights: NDArray[np.float64] = idf * tf / (tf + self._damping[texts])
        return weights


def check_parameters(k1: float, b: float) -> None:
    """Raise ``ConfigurationError`` unless k1 is a number of 0 or more and 0 <= b <= 1."""
    if not (math.isfinite(k1) and k1 >= 0 and 0 <= b <= 1):
        raise ConfigurationError(f"BM25 has k1 = {k1} and b = {b}: k1 must be 0 or more, b between 0 and 1")


def best_first(
    scores: NDArray[np.float64], k: int, place: Numbers | None = None, least: float = 0.0
) -> NDArray[np.int64]:
    """Return the numbers of the k highest scores above 0, highest first, equal ones by place (default: by number).

    Those below ``least`` are left out.
    """
    # The k-th highest of these is no higher than that of all, and leaves few to sort out.
    looks = len(scores) // SCORES_A_LOOK
    highest = scores[: looks * SCORES_A_LOOK].reshape(SCORES_A_LOOK, looks).max(axis=0)
    if looks >= k:
        least = max(least, np.partition(highest, looks - k)[looks - k])
    matching = np.flatnonzero(scores >= least if least else scores > 0)
    if len(matching) > k:
        found = scores[matching]
        matching = matching[found >= np.partition(found, len(found) - k)[len(found) - k]]
    order = np.lexsort((matching if place is None else place[matching], -scores[matching]))
    best: NDArray[np.int64] = matching[order]
    return best[:k]


def search_words(
    index: BM25Index,
    texts: Iterable[str],
    k: int,
    among: NDArray[np.bool_] | None = None,
    order: Numbers | None = None,
) -> Ranking:
    """Return the k best texts of the index for every text searched; one that shares no word with it is not found.

    ``among`` says which texts may be found, ``order`` has their numbers in the order that decides between equal scores.
    """
    place = None
    if order is not None:
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
    asked = list(texts)
    found = [(np.empty(0, np.int64), np.empty(0))] * len(asked)
    for begin, part in index.parts(asked):
        here = slice(begin, begin + len(part))
        for number, text in enumerate(asked):
            before, known = found[number]
            scores = part.scores(text) if among is None else np.where(among[here], part.scores(text), 0)
            best = best_first(scores, k, None if place is None else place[here], known[-1] if len(known) == k else 0.0)
            numbers, values = best + begin, scores[best]
            if len(before):
                numbers, values = np.concatenate([before, numbers]), np.concatenate([known, values])
                first = np.lexsort((numbers if place is None else place[numbers], -values))[:k]
                numbers, values = numbers[first], values[first]
            found[number] = numbers, values
    return Ranking.of(found)


class WordScoring:
    """The scores of BM25 for the searches of these texts."""

    def __init__(self, index: BM25Index, texts: Sequence[str]) -> None:
        self._index, self._texts = index, texts
        self._all: tuple[int, NDArray[np.float64]] | None = None  # of the search that was asked for all of them last

    def scores(self, search: int, chunks: Numbers) -> NDArray[np.float64]:
        """Return the scores of some chunks."""
        if self._all is not None and self._all[0] == search:
            return self._all[1][chunks]
        return self._index.scores_of(self._texts[search], chunks)

    def moments(self, search: int) -> Moments:
        """Return mean and deviation over all chunks."""
        if self._all is None or self._all[0] != search:
            self._all = search, self._index.scores(self._texts[search])
        return moments_of(self._all[1])


class BM25Retriever(ChunkRetriever[C]):
    """BM25 over the chunks' words; a chunk that shares no word with the query is not retrieved.

    Raises ``ConfigurationError`` on k1 < 0, b outside [0, 1], or what is not a chunker.
    """

    @overload
    def __init__(
        self: "BM25Retriever[PositionAwareChunk]",
        chunker: AnyChunker,
        *,
        k1: float = 1.5,
        b: float = 0.75,
        tokenizer: Tokenizer | None = None,
        evaluation_type: Literal["token-level"] = "token-level",
    ) -> None: ...

    @overload
    def __init__(
        self: "BM25Retriever[Chunk]",
        chunker: AnyChunker,
        *,
        k1: float = 1.5,
        b: float = 0.75,
        tokenizer: Tokenizer | None = None,
        evaluation_type: Literal["chunk-level"],
    ) -> None: ...

    def __init__(
        self,
        chunker: AnyChunker,
        *,
        k1: float = 1.5,
        b: float = 0.75,
        tokenizer: Tokenizer | None = None,
        evaluation_type: EvaluationType = "token-level",
    ) -> None:
        check_parameters(k1, b)
        super().__init__(chunker, evaluation_type)
        self.scores_any_chunk = True
        self._k1, self._b, self._tokenizer = k1, b, tokenizer or WordTokenizer()
        self._words = BM25Index([])

    @property
    def name(self) -> str:
        """The chunker and the parameters of BM25."""
        tokenizer = "" if self._tokenizer == WordTokenizer() else f", {label(self._tokenizer)}"
        return f"{self.chunker_name} + BM25(k1={self._k1}, b={self._b}{tokenizer})"

    def _fill(self, chunks: list[C]) -> None:
        self._words = BM25Index((chunk.content for chunk in chunks), self._k1, self._b, self._tokenizer)

    def _ranking(self, texts: Sequence[str], k: int) -> Ranking:
        return search_words(self._words, texts, k)

    def scoring(self, queries: Sequence[Query]) -> WordScoring:
        """Return how any indexed chunk scores for these queries; raises ``ConfigurationError`` before ``index``."""
        self.indexed_chunks()
        return WordScoring(self._words, [query.text for query in queries])
