"""The questions of a report: texts, truth, chunks, hits and scores, packed as numbers for the page to lay over another.

What many configurations share, such as texts and chunks, is carried once, and so are only the documents concerned.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_eval.errors import TableError
from rag_eval.metrics.metric import Counts, Values
from rag_eval.metrics.score_tables import score_name
from rag_eval.reports.html import Section, numbers, records
from rag_eval.reports.ranking import hits_of, without_hits
from rag_eval.stats.comparison import higher_is_better
from rag_eval.tables import has_places
from rag_eval.types.ids import EvaluationType


@dataclass(frozen=True)
class Places:
    """Stretches of documents by number, ``[start, end)`` in code points, one a row."""

    document: Counts
    start: Counts
    end: Counts

    def __len__(self) -> int:
        return len(self.document)

    @classmethod
    def together(cls, parts: Sequence["Places"]) -> "Places":
        """All of them, one after the other."""
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
        """Document, start and end, a row for each stretch."""
        return np.stack([self.document, self.start, self.end], axis=1)

    def taken(self, rows: Counts) -> "Places":
        """The stretches with these numbers."""
        return Places(self.document[rows], self.start[rows], self.end[rows])

    def merged(self) -> "Places":
        """By document and start; those that overlap or touch become one."""
        # All documents on one line with a position between them: one sort and one pass merge them all.
        size = int(self.end.max(initial=0)) + 1
        start, end = self.document * size + self.start, self.document * size + self.end
        order = np.argsort(start, kind="stable")
        start, reach = start[order], np.maximum.accumulate(end[order])
        first = np.flatnonzero(np.append(True, start[1:] > reach[:-1])[: len(start)])
        last = np.append(first[1:], len(start))[: len(first)] - 1
        document = self.document[order][first]
        return Places(document, start[first] - document * size, reach[last] - document * size)

    def touching(self, others: "Places") -> Counts:
        """The rows that share a character with one of the others, which are merged."""
        size = int(max(self.end.max(initial=0), others.end.max(initial=0))) + 1
        begins = np.append(others.document * size + others.start, np.iinfo(np.int64).max)
        after = np.searchsorted(others.document * size + others.end, self.document * size + self.start, side="right")
        # Documents that are not looked at have the number -1.
        return np.flatnonzero((self.document >= 0) & (begins[after] < self.document * size + self.end))


@dataclass(frozen=True)
class Units:
    """Texts by number: what identifies them, what they are called, and their content."""

    ids: pa.Array
    titles: list[str]
    contents: pa.ChunkedArray

    @cached_property
    def lengths(self) -> Counts:
        """The characters of each."""
        lengths: Counts = pc.utf8_length(self.contents).to_numpy().astype(np.int64)
        return lengths

    def places(self, rows: pa.Table) -> Places:
        """The places of chunks or truth; a chunk without a place is all of its own text."""
        if has_places(rows):
            start, end = (rows.column(name).to_numpy() for name in ("start", "end"))
            return Places(numbers_of(rows.column("doc_id"), self.ids), start, end)
        number = numbers_of(rows.column("chunk_id"), self.ids)
        return Places(number, np.zeros_like(number), self.lengths[number])


def document_units(documents: pa.Table) -> Units:
    """The documents."""
    ids = documents.column("doc_id").combine_chunks()
    return Units(ids, ids.to_pylist(), documents.column("content"))


def chunk_units(chunks: Sequence[pa.Table]) -> Units:
    """The chunks, those of the same text once; where one comes from is the place of its first copy."""
    together = pa.concat_tables(chunks)
    ids = together.column("chunk_id").combine_chunks()
    distinct = pc.unique(ids)
    firsts = together.take(pc.index_in(distinct, value_set=ids))
    doc_ids, ordinals = (firsts.column(name).to_pylist() for name in ("doc_id", "ordinal"))
    titles = [f"{doc_id}, chunk {ordinal + 1}" for doc_id, ordinal in zip(doc_ids, ordinals, strict=True)]
    return Units(distinct, titles, firsts.column("content"))


def numbers_of(ids: pa.ChunkedArray, known: pa.Array) -> Counts:
    """The place of each id among the known ones; -1 where it is not one of them."""
    numbers: Counts = pc.fill_null(pc.index_in(ids, value_set=known), -1).to_numpy().astype(np.int64)
    return numbers


@dataclass(frozen=True)
class Side:
    """A configuration whose questions can be looked at: its tables, the chunks by digest, since many share them."""

    name: str
    hits: pa.Table
    chunks: pa.Table
    chunks_digest: str
    scores: pa.Table


@dataclass(frozen=True)
class ShownChunks:
    """The chunks of a table that the page shows, by document and start, and where each row of the table went."""

    places: Places
    went_to: Counts

    @classmethod
    def of(cls, chunks: Places, used: Counts, texts: Places) -> "ShownChunks":
        """The chunks that are used, by row, and those that touch the texts."""
        rows = np.union1d(used, chunks.touching(texts))
        rows = rows[np.lexsort((chunks.end[rows], chunks.start[rows], chunks.document[rows]))]
        went_to = np.full(len(chunks), -1, dtype=np.int64)
        went_to[rows] = np.arange(len(rows))
        return cls(chunks.taken(rows), went_to)

    def hits(self, rows: Counts) -> Counts:
        """Hits by row of the table as hits by place in the page; -1 stays."""
        return np.where(rows < 0, -1, self.went_to[rows])


def hit_rows(side: Side, query_ids: pa.Array, depth: int) -> Counts:
    """For each query, one a row, the chunk rows of its first ``depth`` hits; -1 where there are fewer.

    Hits of other queries are left out. Raises ``TableError`` on a hit that is not one of the chunks.
    """
    import polars as pl  # here, because it takes long to import

    place = ["doc_id", "start", "end"] if has_places(side.chunks) else ["doc_id", "ordinal"]
    chunks = pl.DataFrame(side.chunks.select(place)).with_row_index("chunk")
    first = side.hits.filter(pc.field("rank") <= depth)
    found = pl.DataFrame(first.select(place)).join(chunks, on=place, how="left", maintain_order="left")["chunk"]
    if found.null_count():
        raise TableError(f"hits of {side.name!r} are not among its chunks: run again to make both anew")
    query = numbers_of(first.column("query_id"), query_ids)
    known = np.flatnonzero(query >= 0)
    rows = np.full((len(query_ids), depth), -1, dtype=np.int64)
    rows[query[known], first.column("rank").to_numpy()[known] - 1] = found.to_numpy()[known]
    return rows


def score_columns(side: Side, query_ids: pa.Array, names: Sequence[str]) -> NDArray[np.float32]:
    """For each metric name, one a row, the score of each query; not a number where it has none."""
    metric = side.scores.column("metric").combine_chunks().dictionary_encode()
    labels, code = metric.dictionary.to_pylist(), metric.indices.to_numpy()
    k = side.scores.column("k").to_numpy()
    query = numbers_of(side.scores.column("query_id"), query_ids)
    value: Values = side.scores.column("value").to_numpy()
    columns = np.full((len(names), len(query_ids)), np.nan, dtype=np.float32)
    # Metric and cut in one number: sorting pairs takes ten times as long.
    pair = code.astype(np.int64) << 32 | k
    for both in np.unique(pair).tolist():
        name = score_name(labels[both >> 32], both & 0xFFFFFFFF)
        if name in names:
            rows = np.flatnonzero((pair == both) & (query >= 0))
            columns[names.index(name), query[rows]] = value[rows]
    return columns


MOST_TAG_VALUES = 30
"""Metadata with more values than that is no kind to filter by."""


@dataclass(frozen=True)
class Truth:
    """The places of the truth by query: ``offsets[i]:offsets[i + 1]`` are those of query i."""

    places: Places
    offsets: Counts

    @classmethod
    def of(cls, answers: pa.Table, query_ids: pa.Array, units: Units) -> "Truth":
        """The truth of these queries."""
        query = numbers_of(answers.column("query_id"), query_ids)
        order = np.argsort(query, kind="stable")
        order = order[query[order] >= 0]
        counts = np.bincount(query[order], minlength=len(query_ids))
        return cls(units.places(answers).taken(order), np.concatenate([[0], np.cumsum(counts)]))

    def documents(self) -> list[list[int]]:
        """The documents of each query, each once."""
        numbers, bounds = self.places.document.tolist(), self.offsets.tolist()
        return [list(dict.fromkeys(numbers[a:b])) for a, b in pairwise(bounds)]


@dataclass(frozen=True)
class Tags:
    """Kinds of questions, such as ``difficulty: hard``, and for each question the numbers of its kinds."""

    labels: list[str]
    by_query: list[list[int]]

    @classmethod
    def of(cls, queries: pa.Table) -> "Tags":
        """What the metadata of the queries says in words, where few values are shared by many queries, and not all."""
        metadata = [json.loads(text) for text in queries.column("metadata").to_pylist()]
        values: dict[str, set[str]] = {}
        for entry in metadata:
            for key, value in entry.items():
                values.setdefault(key, set()).add(str(value)) if isinstance(value, str | bool | int) else None
        few = {key for key, found in values.items() if len(found) <= min(MOST_TAG_VALUES, len(metadata) / 2)}
        few -= {key for key in few if len(values[key]) == 1 and all(key in entry for entry in metadata)}
        labels = sorted(f"{key}: {value}" for key in few for value in values[key])
        numbers = {label: number for number, label in enumerate(labels)}
        by_query = [
            sorted(numbers[f"{key}: {value}"] for key, value in entry.items() if f"{key}: {value}" in numbers)
            for entry in metadata
        ]
        return cls(labels, by_query)


MOST_QUERIES = 50_000
MOST_HITS = 5_000_000
MOST_SCORES = 10_000_000


@dataclass(frozen=True)
class Questions:
    """What is laid over what: the dataset, the sides, best first, and what they are compared by."""

    evaluation_type: EvaluationType
    documents: pa.Table
    queries: pa.Table
    truth: pa.Table
    sides: Sequence[Side]
    ks: Sequence[int]
    metrics: Sequence[str]
    """Full names, such as ``span_recall@5``."""
    ranking_metric: str

    @property
    def depth(self) -> int:
        """How many hits are looked at."""
        return max(self.ks)


def affordable(
    questions: Questions,
    most_queries: int = MOST_QUERIES,
    most_hits: int = MOST_HITS,
    most_scores: int = MOST_SCORES,
) -> tuple[Questions, list[str]]:
    """As much of the questions as a page can hold, and a sentence for everything that was left out.

    Of too many questions, those stay that the best configuration answers worst; of too many configurations, the best;
    of too many scores, first those at the ranking's number of hits, then the ranking metric alone.
    """
    notes: list[str] = []
    total = questions.queries.num_rows
    if total > most_queries:
        questions = replace(questions, queries=_worst(questions, most_queries))
        notes.append(f"{most_queries:,} of {total:,} questions are shown: those that the best answers worst.")
    count = questions.queries.num_rows
    sides = max(2, most_hits // max(1, count * questions.depth))
    if sides < len(questions.sides):
        notes.append(f"The questions of the best {sides} of {len(questions.sides)} configurations are shown.")
        questions = replace(questions, sides=questions.sides[:sides])
    cut = hits_of(questions.ranking_metric)
    at_cut = [name for name in questions.metrics if hits_of(name) in (cut, None)]
    for metrics in (at_cut, [questions.ranking_metric]):
        if len(questions.metrics) * count * len(questions.sides) > most_scores:
            questions = replace(questions, metrics=metrics)
            notes.append(f"Of each question's scores the page carries {', '.join(metrics)}.")
    return questions, notes


def _worst(questions: Questions, most: int) -> pa.Table:
    """The queries with the worst scores of the best configuration, in the order of the dataset."""
    ids = questions.queries.column("query_id").combine_chunks()
    scores = score_columns(questions.sides[0], ids, [questions.ranking_metric])[0]
    worst = np.argsort(scores if higher_is_better(questions.ranking_metric) else -scores, kind="stable")[:most]
    return questions.queries.take(pa.array(np.sort(worst)))


MOST_CHARACTERS = 12_000_000
"""So much text makes a page of about ten megabytes, which a phone still opens."""

CONTEXT = 400
"""How much is carried on each side of a span where whole documents are not."""


@dataclass(frozen=True)
class CarriedTexts:
    """The text in the report: stretches of documents by document and start, none overlapping; and why not more."""

    places: Places
    note: str | None


def choose_texts(lengths: Counts, truth: Places, hits: Places, most: int = MOST_CHARACTERS) -> CarriedTexts:
    """The text to carry for these spans, at most about ``most`` characters.

    All documents with a span if that is affordable; else what stands around truth and hits; else around truth alone;
    else around as much of the truth, in the order given, as fits.
    """
    spans = Places.together([truth, hits])
    documents = np.unique(spans.document)
    whole = Places(documents, np.zeros_like(documents), lengths[documents])
    if whole.characters <= most:
        return CarriedTexts(whole, None)
    about = f"The documents concerned have {whole.characters:,} characters, too many for one page"
    for chosen, what in ((spans, "truth and hits"), (truth, "truth")):
        around = _around(chosen, lengths)
        if around.characters <= most:
            return CarriedTexts(around, f"{about}: it carries what stands around {what}.")
    afford = int(np.searchsorted(np.cumsum(truth.end - truth.start + 2 * CONTEXT), most, side="right"))
    note = f"{about}: it carries what stands around the first {afford:,} of {len(truth):,} spans of truth."
    return CarriedTexts(_around(truth.taken(np.arange(afford)), lengths), note)


def cut_texts(contents: pa.ChunkedArray, places: Places) -> list[bytes]:
    """The text of each stretch, in UTF-8."""
    texts: list[bytes] = []
    current, content = -1, ""
    for number, start, end in places.rows().tolist():
        if number != current:
            current, content = number, contents[number].as_py()
        texts.append(content[start:end].encode())
    return texts


def _around(spans: Places, lengths: Counts) -> Places:
    """The spans with what stands around them, merged."""
    start = np.maximum(spans.start - CONTEXT, 0)
    end = np.minimum(spans.end + CONTEXT, lengths[spans.document])
    return Places(spans.document, start, end).merged()


@dataclass(frozen=True)
class Overlay:
    """The questions packed: what the page must know at once, the rest in sections, and what was left out."""

    manifest: dict[str, Any]
    sections: list[Section]
    notes: list[str]


def pack_overlay(asked: Questions, most_characters: int = MOST_CHARACTERS) -> Overlay:
    """Pack the questions for the page, with about so much text at most.

    Raises ``TableError`` on hits that are not among their chunks.
    """
    questions, notes = affordable(asked)
    ids, sides = questions.queries.column("query_id").combine_chunks(), questions.sides
    units = _concerned(questions)
    truth, tags = Truth.of(questions.truth, ids, units), Tags.of(questions.queries)
    hits = [hit_rows(side, ids, questions.depth) for side in sides]
    chunks = {side.chunks_digest: units.places(side.chunks) for side in sides}
    used = {digest: _used(digest, sides, hits) for digest in chunks}
    retrieved = Places.together([places.taken(used[digest]) for digest, places in chunks.items()])
    texts = choose_texts(units.lengths, truth.places, retrieved, most_characters)
    shown = {digest: ShownChunks.of(places, used[digest], texts.places) for digest, places in chunks.items()}
    number = {digest: place for place, digest in enumerate(shown)}
    manifest = {
        "unit": "character" if questions.evaluation_type == "token-level" else "chunk",
        "sides": [{"name": side.name, "chunks": number[side.chunks_digest]} for side in sides],
        "beside": _beside([chunks[side.chunks_digest] for side in sides], hits),
        "ks": list(questions.ks),
        "k": hits_of(questions.ranking_metric) or questions.depth,
        "depth": questions.depth,
        "metrics": list(questions.metrics),
        "metric": without_hits(questions.ranking_metric),
        "costs": sorted({without_hits(name) for name in questions.metrics if not higher_is_better(name)}),
        "longest": max((one.places.longest for one in shown.values()), default=0),
        "tags": tags.labels,
    }
    sections = [
        _queries_section(questions.queries, truth, tags),
        numbers("truth", truth.places.rows()),
        *_text_sections(units, texts.places),
        *(numbers(f"chunks-{number[digest]}", one.places.rows()) for digest, one in shown.items()),
        *(numbers(f"hits-{n}", shown[side.chunks_digest].hits(hits[n])) for n, side in enumerate(sides)),
        *(numbers(f"scores-{n}", score_columns(side, ids, questions.metrics)) for n, side in enumerate(sides)),
    ]
    return Overlay(manifest, sections, notes + ([texts.note] if texts.note else []))


def _concerned(questions: Questions) -> Units:
    """The documents, or at chunk level the chunks, that are truth or were retrieved."""
    name = "doc_id" if questions.evaluation_type == "token-level" else "chunk_id"
    near = [side.hits.filter(pc.field("rank") <= questions.depth) for side in questions.sides]
    columns = [table.column(name) for table in (questions.truth, *near)]
    concerned = pc.unique(pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string()))
    if name == "doc_id":
        return document_units(questions.documents.filter(pc.is_in(pc.field(name), concerned)))
    return chunk_units([side.chunks.filter(pc.is_in(pc.field(name), concerned)) for side in questions.sides])


def _beside(chunks: Sequence[Places], hits: Sequence[Counts]) -> int:
    """The side to look at beside the first: the best that finds something else, -1 where there is no other at all."""

    def found(side: int) -> Counts:
        # The last row stands for the hits that are missing, whose number is -1.
        return np.concatenate([chunks[side].rows(), [[-1, -1, -1]]])[hits[side]]

    others, first = range(1, len(hits)), found(0)
    return next((side for side in others if not np.array_equal(found(side), first)), 1 if others else -1)


def _used(digest: str, sides: Sequence[Side], hits: Sequence[Counts]) -> Counts:
    """The chunk rows of a table that any side retrieved."""
    rows = [found.ravel() for side, found in zip(sides, hits, strict=True) if side.chunks_digest == digest]
    used = np.unique(np.concatenate(rows))
    return used[used >= 0]


def _queries_section(queries: pa.Table, truth: Truth, tags: Tags) -> Section:
    return records(
        "queries",
        {
            "ids": queries.column("query_id").to_pylist(),
            "texts": queries.column("text").to_pylist(),
            "unanswerable": [int(value) for value in queries.column("unanswerable").to_pylist()],
            "offsets": truth.offsets.tolist(),
            "documents": truth.documents(),
            "tags": tags.by_query,
        },
    )


def _text_sections(units: Units, places: Places) -> list[Section]:
    """The carried texts one after the other, where each begins and ends, and the documents they are of."""
    texts = cut_texts(units.contents, places)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    starts = ends - np.diff(ends, prepend=0)
    pieces = np.stack([places.start, places.end, starts, ends], axis=1)
    first = np.searchsorted(places.document, np.arange(len(units.ids) + 1))
    documents = {"titles": units.titles, "lengths": units.lengths.tolist(), "pieces": first.tolist()}
    return [records("documents", documents), numbers("pieces", pieces), Section("texts", "bytes", b"".join(texts))]
