"""Data for the overlay view: every question with its truth, and the hits and scores of each configuration.

All is packed as numbers. What configurations share, such as texts and chunks, is carried once, and only the documents
that are truth or were retrieved are carried.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_eval.errors import TableError
from rag_eval.metrics.formulas import Recall
from rag_eval.metrics.metric import Counts, Values, higher_is_better, metric_of, score_name
from rag_eval.reports.html import Section, numbers, records
from rag_eval.reports.ranking import hits_of, without_hits
from rag_eval.reports.text_ranges import (
    MOST_CHARACTERS,
    TextRanges,
    TextUnits,
    choose_texts,
    chunk_units,
    cut_texts,
    document_units,
    numbers_of,
)
from rag_eval.tables import has_places
from rag_eval.types.ids import EvaluationType


@dataclass(frozen=True)
class ConfigurationTables:
    """The tables of a configuration; the chunks have their digest too, since configurations share them."""

    name: str
    hits: pa.Table
    chunks: pa.Table
    chunks_digest: str
    scores: pa.Table


@dataclass(frozen=True)
class ShownChunks:
    """The chunks of a table that the page shows, by document and start, and the index of each table row among them."""

    ranges: TextRanges
    index: Counts

    @classmethod
    def of(cls, chunks: TextRanges, used: Counts, texts: TextRanges) -> "ShownChunks":
        """The chunks at the rows in ``used``, and those that touch the carried texts."""
        rows = np.union1d(used, chunks.touching(texts))
        rows = rows[np.lexsort((chunks.end[rows], chunks.start[rows], chunks.document[rows]))]
        index = np.full(len(chunks), -1, dtype=np.int64)
        index[rows] = np.arange(len(rows))
        return cls(chunks.taken(rows), index)

    def hits(self, rows: Counts) -> Counts:
        """Turn hits by row of the table into hits by index in the page; -1 stays."""
        return np.where(rows < 0, -1, self.index[rows])


def hit_rows(one: ConfigurationTables, query_ids: pa.Array, depth: int) -> Counts:
    """The chunk rows of the first ``depth`` hits of each query, one query a row; -1 where there are fewer.

    Hits of other queries are left out. Raises ``TableError`` on a hit that is not one of the chunks.
    """
    import polars as pl  # here, because it takes long to import

    place = ["doc_id", "start", "end"] if has_places(one.chunks) else ["doc_id", "ordinal"]
    chunks = pl.DataFrame(one.chunks.select(place)).with_row_index("chunk")
    first = one.hits.filter(pc.field("rank") <= depth)
    found = pl.DataFrame(first.select(place)).join(chunks, on=place, how="left", maintain_order="left")["chunk"]
    if found.null_count():
        raise TableError(f"hits of {one.name!r} are not among its chunks: run again to make both anew")
    query = numbers_of(first.column("query_id"), query_ids)
    known = np.flatnonzero(query >= 0)
    rows = np.full((len(query_ids), depth), -1, dtype=np.int64)
    rows[query[known], first.column("rank").to_numpy()[known] - 1] = found.to_numpy()[known]
    return rows


def score_columns(one: ConfigurationTables, query_ids: pa.Array, names: Sequence[str]) -> NDArray[np.float32]:
    """The score of each query by each metric, one metric a row; NaN where there is none."""
    query = numbers_of(one.scores.column("query_id"), query_ids)
    value: Values = one.scores.column("value").to_numpy()
    columns = np.full((len(names), len(query_ids)), np.nan, dtype=np.float32)
    labels, code = _codes(one.scores.column("metric"))
    kinds, kind = _codes(one.scores.column("cut"))
    # Metric and cut in one number: sorting rows of three takes ten times as long.
    heads = (code * len(kinds) + kind) << 32 | one.scores.column("size").to_numpy()
    for head in np.unique(heads).tolist():
        label, cut = divmod(head >> 32, len(kinds))
        name = score_name(labels[label], kinds[cut], head & 0xFFFFFFFF)
        if name in names:
            rows = np.flatnonzero((heads == head) & (query >= 0))
            columns[names.index(name), query[rows]] = value[rows]
    return columns


def _codes(column: pa.ChunkedArray) -> tuple[list[Any], Counts]:
    """The different texts of a column, and the number of each row's text."""
    encoded = column.combine_chunks().dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


MOST_TAG_VALUES = 30
"""Metadata with more values is not offered as a filter."""


@dataclass(frozen=True)
class TruthRanges:
    """The ranges of the truth: rows ``offsets[i]:offsets[i + 1]`` are those of query i."""

    ranges: TextRanges
    offsets: Counts

    @classmethod
    def of(cls, answers: pa.Table, query_ids: pa.Array, units: TextUnits) -> "TruthRanges":
        """The truth of these queries."""
        query = numbers_of(answers.column("query_id"), query_ids)
        order = np.argsort(query, kind="stable")
        order = order[query[order] >= 0]
        counts = np.bincount(query[order], minlength=len(query_ids))
        return cls(units.ranges(answers).taken(order), np.concatenate([[0], np.cumsum(counts)]))

    def documents(self) -> list[list[int]]:
        """The documents of each query, each once."""
        numbers, bounds = self.ranges.document.tolist(), self.offsets.tolist()
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
    """The dataset, the configurations, best first, and the metrics to compare them by."""

    evaluation_type: EvaluationType
    documents: pa.Table
    queries: pa.Table
    truth: pa.Table
    configurations: Sequence[ConfigurationTables]
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
    best = max(2, most_hits // max(1, count * questions.depth))
    if best < len(questions.configurations):
        notes.append(f"The questions of the best {best} of {len(questions.configurations)} configurations are shown.")
        questions = replace(questions, configurations=questions.configurations[:best])
    cut = hits_of(questions.ranking_metric)
    at_cut = [name for name in questions.metrics if hits_of(name) in (cut, None)]
    for metrics in (at_cut, [questions.ranking_metric]):
        if len(questions.metrics) * count * len(questions.configurations) > most_scores:
            questions = replace(questions, metrics=metrics)
            notes.append(f"Of each question's scores the page carries {', '.join(metrics)}.")
    return questions, notes


def _worst(questions: Questions, most: int) -> pa.Table:
    """The queries with the worst scores of the best configuration, in the order of the dataset."""
    ids = questions.queries.column("query_id").combine_chunks()
    scores = score_columns(questions.configurations[0], ids, [questions.ranking_metric])[0]
    worst = np.argsort(scores if higher_is_better(questions.ranking_metric) else -scores, kind="stable")[:most]
    return questions.queries.take(pa.array(np.sort(worst)))


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
    ids, configurations = questions.queries.column("query_id").combine_chunks(), questions.configurations
    units = _concerned(questions)
    truth, tags = TruthRanges.of(questions.truth, ids, units), Tags.of(questions.queries)
    hits = [hit_rows(one, ids, questions.depth) for one in configurations]
    chunks = {one.chunks_digest: units.ranges(one.chunks) for one in configurations}
    used = {digest: _used(digest, configurations, hits) for digest in chunks}
    retrieved = TextRanges.together([ranges.taken(used[digest]) for digest, ranges in chunks.items()])
    texts = choose_texts(units.lengths, truth.ranges, retrieved, most_characters)
    shown = {digest: ShownChunks.of(ranges, used[digest], texts.ranges) for digest, ranges in chunks.items()}
    number = {digest: place for place, digest in enumerate(shown)}
    manifest = {
        "unit": "character" if questions.evaluation_type == "token-level" else "chunk",
        "configurations": [{"name": one.name, "chunks": number[one.chunks_digest]} for one in configurations],
        "second": _second([chunks[one.chunks_digest] for one in configurations], hits),
        "ks": list(questions.ks),
        "k": hits_of(questions.ranking_metric) or questions.depth,
        "depth": questions.depth,
        "metrics": list(questions.metrics),
        "metric": without_hits(questions.ranking_metric),
        "costs": sorted({without_hits(name) for name in questions.metrics if not higher_is_better(name)}),
        "recalls": sorted({without_hits(name) for name in questions.metrics if issubclass(metric_of(name), Recall)}),
        "longest": max((one.ranges.longest for one in shown.values()), default=0),
        "tags": tags.labels,
    }
    sections = [
        _queries_section(questions.queries, truth, tags),
        numbers("truth", truth.ranges.rows()),
        *_text_sections(units, texts.ranges),
        *(numbers(f"chunks-{number[digest]}", one.ranges.rows()) for digest, one in shown.items()),
        *(numbers(f"hits-{n}", shown[one.chunks_digest].hits(hits[n])) for n, one in enumerate(configurations)),
        *(numbers(f"scores-{n}", score_columns(one, ids, questions.metrics)) for n, one in enumerate(configurations)),
    ]
    return Overlay(manifest, sections, notes + ([texts.note] if texts.note else []))


def _concerned(questions: Questions) -> TextUnits:
    """The documents, or at chunk level the chunks, that are truth or were retrieved."""
    name = "doc_id" if questions.evaluation_type == "token-level" else "chunk_id"
    near = [one.hits.filter(pc.field("rank") <= questions.depth) for one in questions.configurations]
    columns = [table.column(name) for table in (questions.truth, *near)]
    concerned = pc.unique(pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string()))
    if name == "doc_id":
        return document_units(questions.documents.filter(pc.is_in(pc.field(name), concerned)))
    return chunk_units([one.chunks.filter(pc.is_in(pc.field(name), concerned)) for one in questions.configurations])


def _second(chunks: Sequence[TextRanges], hits: Sequence[Counts]) -> int:
    """The configuration to show beside the first: the best with other hits; -1 where there is only one."""

    def found(number: int) -> Counts:
        # The last row stands for the hits that are missing, whose number is -1.
        return np.concatenate([chunks[number].rows(), [[-1, -1, -1]]])[hits[number]]

    others, first = range(1, len(hits)), found(0)
    return next((number for number in others if not np.array_equal(found(number), first)), 1 if others else -1)


def _used(digest: str, configurations: Sequence[ConfigurationTables], hits: Sequence[Counts]) -> Counts:
    """The chunk rows of a table that some configuration retrieved."""
    rows = [found.ravel() for one, found in zip(configurations, hits, strict=True) if one.chunks_digest == digest]
    used = np.unique(np.concatenate(rows))
    return used[used >= 0]


def _queries_section(queries: pa.Table, truth: TruthRanges, tags: Tags) -> Section:
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


def _text_sections(units: TextUnits, ranges: TextRanges) -> list[Section]:
    """The carried texts one after the other, where each begins and ends, and the documents they are of."""
    texts = cut_texts(units.contents, ranges)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    starts = ends - np.diff(ends, prepend=0)
    pieces = np.stack([ranges.start, ranges.end, starts, ends], axis=1)
    first = np.searchsorted(ranges.document, np.arange(len(units.ids) + 1))
    documents = {"titles": units.titles, "lengths": units.lengths.tolist(), "pieces": first.tolist()}
    return [records("documents", documents), numbers("pieces", pieces), Section("texts", "bytes", b"".join(texts))]
