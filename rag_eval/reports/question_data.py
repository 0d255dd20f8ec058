"""Pack the data of the questions for a page as numbers.

Texts and chunks that configurations share are included once, and only documents that are relevant or were retrieved.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_eval.errors import TableError
from rag_eval.metrics.formulas import Recall
from rag_eval.metrics.metric import DEFAULT_ENCODING, Counts, Cut, higher_is_better, metric_of, split_name
from rag_eval.metrics.passage_tokens import Slices, TokenCount, count_each
from rag_eval.metrics.span_sets import merge_sorted
from rag_eval.parts.definition import shown
from rag_eval.reports.html import Section
from rag_eval.reports.question_tables import ConfigurationTables, Questions, affordable
from rag_eval.stats.slices import PASSAGES, passages_kind
from rag_eval.tables import has_places
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

Ranges: TypeAlias = Counts
"""Ranges ``[start, end)`` of code points, one per row: the number of a document, start and end."""

MOST_CHARACTERS = 12_000_000
"""Maximum amount of text in a page: about ten megabytes, which a phone can still open."""

CONTEXT = 400
"""Characters included on each side of a span if whole documents do not fit."""

MOST_TAG_VALUES = 30
"""Metadata with more values than this is not offered as a filter."""
MOST_NAME = 100
"""Number of characters shown of the name of a place."""


@dataclass(frozen=True)
class Overlay:
    """The packed questions: data that the page needs at once, sections for later, and notes on omissions."""

    manifest: dict[str, Any]
    sections: list[Section]
    notes: list[str]


@dataclass
class _PackedChunks:
    """The chunks of a chunking: their ranges, the tokens of those within a budget (else -1), and the rows in use."""

    number: int
    ranges: Ranges
    tokens: Counts
    used: Counts

    def section(self) -> Section:
        return Section.of(f"chunks-{self.number}", np.column_stack([self.ranges[self.used], self.tokens[self.used]]))

    def places(self, rows: Counts) -> Counts:
        """Return the places of rows among those in use; -1 for -1."""
        return np.where(rows < 0, -1, np.searchsorted(self.used, rows))


def pack_overlay(
    questions: Questions, most_characters: int = MOST_CHARACTERS, count: TokenCount = count_each
) -> Overlay:
    """Pack the questions for a page; raises ``TableError`` on hits that are not among their chunks."""
    opened, questions = questions.opened, affordable(questions)
    ids, sides, cuts = questions.queries.column("query_id").combine_chunks(), questions.configurations, questions.cuts
    texts = replace(_texts_concerned(questions), count=count)
    question = _numbers(questions.truth.column("query_id"), ids)
    order = np.argsort(question, kind="stable")
    order = order[question[order] >= 0]
    truth, first_of = texts.ranges(questions.truth)[order], np.searchsorted(question[order], np.arange(len(ids) + 1))
    groups = questions.truth.column("group").to_numpy()[order].astype(np.int64)
    relevant = merged(np.column_stack([question[order] * len(texts.ids) + truth[:, 0], truth[:, 1:]]))
    chunks, hits = _packed_hits(sides, ids, relevant, texts, cuts)
    retrieved = np.concatenate([cut.ranges[cut.used] for cut in chunks.values()])
    carried, note = choose_texts(texts.lengths, truth, retrieved, most_characters)
    labels, tags = kinds_of(questions.queries, [len(set(groups[a:b].tolist())) for a, b in pairwise(first_of)])
    manifest = {
        "unit": "character" if questions.evaluation_type == "token-level" else "chunk",
        "configurations": [
            {"name": side.name, "chunks": chunks[side.chunks_digest].number, "rewritten": side.searches is not None}
            for side in sides
        ],
        "opened": opened if opened and max(opened) < len(sides) else (0, _second(hits, sides)),
        "cuts": [{"kind": cut.kind, "size": cut.size} for cut in cuts],
        "metrics": [_metric(name) for name in questions.metrics],
        "tags": labels,
    }
    queries = {
        "ids": ids.to_pylist(),
        "texts": questions.queries.column("text").to_pylist(),
        "unanswerable": questions.queries.column("unanswerable").cast(pa.int8()).to_pylist(),
        "offsets": first_of.tolist(),
        "documents": [list(dict.fromkeys(truth[a:b, 0].tolist())) for a, b in pairwise(first_of)],
        "tags": tags,
    }
    sections = [
        Section.of("queries", queries),
        Section.of("truth", np.column_stack([truth, groups])),
        *_text_sections(texts, carried, _places(questions.paged, texts, np.concatenate([truth, retrieved]))),
        *(cut.section() for cut in chunks.values()),
    ]
    for n, (side, carried_of) in enumerate(zip(sides, hits, strict=True)):
        sections += _side_sections(n, side, carried_of, chunks[side.chunks_digest], questions)
    return Overlay(manifest, sections, [*questions.notes, *note])


def _packed_hits(
    sides: Sequence[ConfigurationTables], ids: pa.Array, relevant: Ranges, texts: "TextUnits", cuts: Sequence[Cut]
) -> tuple[dict[str, _PackedChunks], list["CarriedHits"]]:
    """Choose the hits of each side, and thereby the chunks in use."""
    chunks: dict[str, _PackedChunks] = {}
    hits = []
    for side in sides:
        if side.chunks_digest not in chunks:
            ranges = texts.ranges(side.chunks)
            tokens, unused = np.full(len(ranges), -1, dtype=np.int64), np.zeros(0, np.int64)
            chunks[side.chunks_digest] = _PackedChunks(len(chunks), ranges, tokens, unused)
        cut = chunks[side.chunks_digest]
        carried = carried_hits(hit_rows(side, ids), cut.ranges, cut.tokens, relevant, texts, cuts)
        cut.used = np.union1d(cut.used, np.concatenate([carried.rows[carried.rows >= 0], carried.late[:, 2]]))
        hits.append(carried)
    return chunks, hits


def _side_sections(
    n: int, side: ConfigurationTables, hits: "CarriedHits", cut: _PackedChunks, questions: Questions
) -> Iterator[Section]:
    ids = questions.queries.column("query_id").combine_chunks()
    yield Section.of(f"hits-{n}", cut.places(hits.rows))
    yield Section.of(f"late-{n}", np.column_stack([hits.late[:, :2], cut.places(hits.late[:, 2])]))
    yield Section.of(f"reach-{n}", hits.reach)
    yield Section.of(f"scores-{n}", score_columns(side, ids, questions.metrics))
    if side.searches is not None:
        yield Section.of(f"searches-{n}", searched_texts_of(side.searches, questions.queries))


class CarriedHits(NamedTuple):
    """The hits of a configuration that the page carries, as rows of its chunks.

    Attributes:
        rows: The hits of each query, query after query; -1 for one without a place.
        reach: How many hits of each query a cut counts, a row for each cut; and a last row: how many are in ``rows``.
        late: Relevant hits below them: query, rank and row.
    """

    rows: Counts
    reach: Counts
    late: Counts


def carried_hits(
    hits: Counts, chunks: Ranges, tokens: Counts, relevant: Ranges, texts: "TextUnits", cuts: Sequence[Cut]
) -> CarriedHits:
    """Choose the hits to carry: those that a cut counts, and of the others those that touch relevant text.

    Args:
        hits: The chunk rows of the hits, a query a row; -1 where there are fewer.
        chunks: The ranges of the chunks.
        tokens: The tokens of the chunks; those that a budget may count are filled in.
        relevant: What is relevant, with the documents numbered query by query.
        texts: The texts of the chunks.
        cuts: The cuts to choose from.
    """
    largest = max((cut.size for cut in cuts if cut.kind == "tokens"), default=-1)
    ranks = np.arange(hits.shape[1])
    have = np.max((hits >= 0) * (ranks + 1), axis=1, initial=0)
    spent = np.zeros((len(hits), hits.shape[1] + 1), dtype=np.int64)
    counted, due = np.zeros_like(tokens), np.unique(hits[hits >= 0]) if largest >= 0 else np.zeros(0, np.int64)
    counted[due] = texts.tokens(chunks[due])
    for rank in range(hits.shape[1]):
        within = np.flatnonzero((rank < have) & (spent[:, rank] <= largest))
        rows = hits[within, rank]
        tokens[rows[rows >= 0]] = counted[rows[rows >= 0]]
        spent[:, rank + 1] = largest + 1  # a hit that no budget may count, or none
        spent[within, rank + 1] = spent[within, rank] + np.where(rows < 0, 0, tokens[rows])
    reach = [
        np.minimum(have, cut.size) if cut.kind == "hits" else (spent[:, 1:] <= cut.size).sum(axis=1) for cut in cuts
    ]
    most = np.max(reach, axis=0)
    query, place = np.nonzero((hits >= 0) & (ranks >= most[:, None]))
    below = chunks[hits[query, place]]
    near = touching(np.column_stack([query * len(texts.ids) + below[:, 0], below[:, 1:]]), relevant)
    late = np.column_stack([query[near], place[near] + 1, hits[query[near], place[near]]])
    return CarriedHits(hits[ranks < most[:, None]], np.stack([*reach, most]), late)


def _metric(name: str) -> dict[str, object]:
    """Return what the page needs to know of a metric: its name and cut, its direction, and whether it is a recall."""
    column, cut = split_name(name)
    metric = metric_of(name)
    return {
        "name": name,
        "label": column if cut.size else name,
        "kind": cut.kind,
        "size": cut.size,
        "cost": not higher_is_better(name),
        "share": metric.measures == "share",
        "recall": issubclass(metric, Recall),
    }


@dataclass(frozen=True)
class TextUnits:
    """Texts by number, documents or chunks: their ids, titles, contents and numbers of characters."""

    ids: pa.Array
    titles: list[str]
    contents: pa.ChunkedArray
    lengths: Counts
    digests: list[str] | None = None
    """The sha256 of each text, if known."""
    count: TokenCount = count_each

    def ranges(self, rows: pa.Table) -> Ranges:
        """Return the ranges of chunks or truth; a chunk without a place is the whole of its own text."""
        if has_places(rows):
            document = _numbers(rows.column("doc_id"), self.ids)
            return np.stack([document, *(rows.column(name).to_numpy() for name in ("start", "end"))], axis=1)
        number = _numbers(rows.column("chunk_id"), self.ids)
        return np.stack([number, np.zeros_like(number), self.lengths[number]], axis=1)

    def tokens(self, ranges: Ranges) -> Counts:
        """Count the tokens of each range; 0 for a range that is not in these texts."""
        known = np.flatnonzero(ranges[:, 0] >= 0)
        order = known[np.argsort(ranges[known, 0], kind="stable")]
        counts = np.zeros(len(ranges), np.int64)

        def slices() -> Iterator[Slices]:
            for rows in np.split(order, np.flatnonzero(np.diff(ranges[order, 0])) + 1) if len(order) else ():
                number = int(ranges[rows[0], 0])
                digest = None if self.digests is None else self.digests[number]
                yield Slices(self.contents[number].as_py, ranges[rows, 1:], digest)

        counts[order] = np.concatenate([np.empty(0, np.int64), *self.count(slices(), DEFAULT_ENCODING)])
        return counts


def _texts_concerned(questions: Questions) -> TextUnits:
    """Return the documents that are relevant or were retrieved; at chunk level, the chunks, without duplicates."""
    is_whole = questions.evaluation_type == "token-level"
    name = "doc_id" if is_whole else "chunk_id"
    hits = [side.hits for side in questions.configurations]
    concerned = pc.unique(pa.concat_tables([table.select([name]) for table in (questions.truth, *hits)]).column(name))
    if is_whole:
        known = questions.documents.column(name)
        numbers = pc.indices_nonzero(pc.is_in(known, value_set=concerned))
        ids, digests = (questions.documents.column(c).take(numbers).combine_chunks() for c in (name, "sha256"))
        # Keep each as it is on disk, because together they may exceed the memory.
        column = questions.documents.column("content")
        contents = pa.chunked_array([column.slice(row, 1).chunk(0) for row in numbers.to_pylist()], column.type)
        lengths = pc.utf8_length(contents).to_numpy().astype(np.int64)
        return TextUnits(ids, ids.to_pylist(), contents, lengths, digests.to_pylist())
    tables = [side.chunks for side in questions.configurations]
    rows = pa.concat_tables([table.filter(pc.is_in(pc.field(name), concerned)) for table in tables])
    ids = rows.column(name).combine_chunks()
    distinct = pc.unique(ids)
    rows = rows.take(pc.index_in(distinct, value_set=ids))
    places = zip(rows.column("doc_id").to_pylist(), rows.column("ordinal").to_pylist(), strict=True)
    titles = [f"{doc_id}, chunk {ordinal + 1}" for doc_id, ordinal in places]
    lengths = pc.utf8_length(rows.column("content")).to_numpy().astype(np.int64)
    return TextUnits(distinct, titles, rows.column("content"), lengths)


Places = dict[int, list[tuple[int, int, str]]]
"""Start, end and name of pages or other places, by document number."""


def _text_sections(texts: TextUnits, carried: Ranges, places: Places) -> list[Section]:
    """Return the included texts, where each begins and ends, and their documents."""
    cut = cut_texts(texts.contents, carried)
    ends = np.cumsum([len(text) for text in cut], dtype=np.int64)
    pieces = np.stack([carried[:, 1], carried[:, 2], ends - np.diff(ends, prepend=0), ends], axis=1)
    first = np.searchsorted(carried[:, 0], np.arange(len(texts.ids) + 1))
    documents = {"titles": texts.titles, "lengths": texts.lengths.tolist(), "pieces": first.tolist()}
    documents |= {"places": places} if places else {}
    return [Section.of("documents", documents), Section.of("pieces", pieces), Section.of("texts", b"".join(cut))]


def _places(metadata: Mapping[str, str], texts: TextUnits, ranges: Ranges) -> Places:
    """Return the pages or other places in which ranges begin or end, by document number."""
    places: Places = {}
    for number in np.unique(ranges[:, 0]).tolist() if metadata else ():
        if number >= 0 and (name := texts.titles[number]) in metadata:
            starts = Document(DocumentId(name), "", json.loads(metadata[name])).places
            ends = [*(start for start, _ in starts[1:]), int(texts.lengths[number])]
            rows = [(row[0], end, row[1][:MOST_NAME]) for row, end in zip(starts, ends, strict=True) if row[0] < end]
            shown = ranges[ranges[:, 0] == number]
            ends_of = np.concatenate([shown[:, 1], shown[:, 2] - 1])
            at = np.searchsorted([start for start, _, _ in rows], ends_of, side="right") - 1
            places[number] = [rows[place] for place in np.unique(at[at >= 0]).tolist()]
    return places


def _second(hits: Sequence[CarriedHits], sides: Sequence[ConfigurationTables]) -> int:
    """Return the configuration to show beside the first: the best one with other hits, or -1 if there is only one."""
    same = [
        side.chunks_digest == sides[0].chunks_digest and np.array_equal(carried.rows, hits[0].rows)
        for side, carried in zip(sides, hits, strict=True)
    ]
    return next((number for number, equal in enumerate(same) if not equal), 1 if len(hits) > 1 else -1)


def hit_rows(side: ConfigurationTables, query_ids: pa.Array) -> Counts:
    """Return the chunk rows of the hits, one row per query, padded with -1.

    Hits of other queries are left out. Raises ``TableError`` on a hit that is not one of the chunks.
    """
    import polars as pl  # imported here because it is slow to import

    place = ["doc_id", "start", "end"] if has_places(side.chunks) else ["doc_id", "ordinal"]
    chunks = pl.DataFrame(side.chunks.select(place)).with_row_index("chunk")
    hits = pl.DataFrame(side.hits.select(place)).join(chunks, on=place, how="left", maintain_order="left")["chunk"]
    if hits.null_count():
        raise TableError(f"hits of {side.name!r} are not among its chunks: run again to compute both")
    query, rank = _numbers(side.hits.column("query_id"), query_ids), side.hits.column("rank").to_numpy()
    known = np.flatnonzero(query >= 0)
    rows = np.full((len(query_ids), int(rank.max(initial=0))), -1, dtype=np.int64)
    rows[query[known], rank[known] - 1] = hits.to_numpy()[known]
    return rows


def score_columns(side: ConfigurationTables, query_ids: pa.Array, names: Sequence[str]) -> NDArray[np.float32]:
    """Return the score of each query by each metric, one row per metric; NaN if there is none."""
    scores = side.scores
    query = _numbers(pa.array([query.query_id for query in scores.queries], pa.string()), query_ids)
    place = scores.configurations.index(side.outcome.name)
    columns = np.full((len(names), len(query_ids)), np.nan, dtype=np.float32)
    for row, name in enumerate(names):
        if name in scores.metrics:
            values = scores.values[scores.metrics.index(name), place]
            columns[row, query[query >= 0]] = values[query >= 0]
    return columns


def searched_texts_of(searches: pa.Table, queries: pa.Table) -> list[list[str]]:
    """Return the texts searched for each question, without the question itself unless it has a filter."""
    questions = dict(zip(*(queries.column(name).to_pylist() for name in ("query_id", "text")), strict=True))
    texts: dict[str, list[str]] = {query_id: [] for query_id in questions}
    for row in searches.to_pylist():
        if row["query_id"] in questions and (row["filter"] or row["text"] != questions[row["query_id"]]):
            within = f" (where {' and '.join(map(shown, json.loads(row['filter'])))})" if row["filter"] else ""
            texts[row["query_id"]].append(row["text"] + within)
    return list(texts.values())


def kinds_of(queries: pa.Table, passages: Sequence[int]) -> tuple[list[str], list[list[int]]]:
    """Return the kinds of questions, such as ``difficulty: hard``, and for each question the numbers of its kinds.

    Kinds are metadata with few values that many queries share, but not all, and how many passages a question needs.
    """
    entries = [json.loads(text) for text in queries.column("metadata").to_pylist()]
    values: dict[str, dict[int, str]] = {}
    for number, (entry, count) in enumerate(zip(entries, passages, strict=True)):
        for key, value in (entry | ({PASSAGES: passages_kind(count)} if count else {})).items():
            if isinstance(value, str | bool | int):
                values.setdefault(key, {})[number] = f"{key}: {value}"
    few = [known for known in values.values() if _tells_apart(known, len(entries))]
    labels = sorted({label for known in few for label in known.values()})
    numbers = {label: number for number, label in enumerate(labels)}
    return labels, [sorted(numbers[known[row]] for known in few if row in known) for row in range(len(entries))]


def _tells_apart(labels: Mapping[int, str], queries: int) -> bool:
    """Return whether labels, by query number, have few values and are not all the same."""
    distinct = len(set(labels.values()))
    return distinct <= min(MOST_TAG_VALUES, queries / 2) and not (distinct == 1 and len(labels) == queries)


def _numbers(ids: pa.ChunkedArray | pa.Array, known: pa.Array) -> Counts:
    """Return the index of each id among the known ones; -1 for an unknown one."""
    numbers: Counts = pc.fill_null(pc.index_in(ids, value_set=known), -1).to_numpy().astype(np.int64)
    return numbers


def merged(ranges: Ranges) -> Ranges:
    """Sort by document and start, and join ranges that overlap or touch."""
    # Put all documents in a row with a position between them, so that one sort and one pass merge them all.
    size = int(ranges.max(initial=0)) + 1
    start, end = ranges[:, 0] * size + ranges[:, 1], ranges[:, 0] * size + ranges[:, 2]
    order = np.argsort(start, kind="stable")
    start, end, first = merge_sorted(start[order], end[order])
    document = ranges[order[first], 0]
    return np.stack([document, start - document * size, end - document * size], axis=1)


def touching(ranges: Ranges, others: Ranges) -> Counts:
    """Return the numbers of the ranges that share a character with one of ``others``, which are merged."""
    size = int(max(ranges.max(initial=0), others.max(initial=0))) + 1
    begins = np.append(others[:, 0] * size + others[:, 1], np.iinfo(np.int64).max)
    after = np.searchsorted(others[:, 0] * size + others[:, 2], ranges[:, 0] * size + ranges[:, 1], side="right")
    # Unknown documents have the number -1.
    return np.flatnonzero((ranges[:, 0] >= 0) & (begins[after] < ranges[:, 0] * size + ranges[:, 2]))


def choose_texts(
    lengths: Counts, truth: Ranges, hits: Ranges, most: int = MOST_CHARACTERS
) -> tuple[Ranges, Sequence[str]]:
    """Choose about ``most`` characters of text around these spans, and a note if some text is left out.

    All documents with a span are included if they fit; else the text around as many spans as fit, truth before hits.
    The ranges are sorted and do not overlap.
    """
    spans = np.concatenate([truth, hits])
    documents = np.unique(spans[:, 0])
    total = int(lengths[documents].sum())
    if total <= most:
        return np.stack([documents, np.zeros_like(documents), lengths[documents]], axis=1), []
    fits = int(np.searchsorted(np.cumsum(spans[:, 2] - spans[:, 1] + 2 * CONTEXT), most, side="right"))
    chosen = spans[:fits]
    start, end = np.maximum(chosen[:, 1] - CONTEXT, 0), np.minimum(chosen[:, 2] + CONTEXT, lengths[chosen[:, 0]])
    which = "spans of truth and hits" if fits == len(spans) else f"{fits:,} of {len(spans):,} spans of truth and hits"
    note = f"The documents have {total:,} characters, too many for one page: only the text around {which} is shown."
    return merged(np.stack([chosen[:, 0], start, end], axis=1)), [note]


def cut_texts(contents: pa.ChunkedArray, ranges: Ranges) -> list[bytes]:
    """Return the text of each range, in UTF-8."""
    texts: list[bytes] = []
    current, content = -1, ""
    for number, start, end in ranges.tolist():
        if number != current:
            current, content = number, contents[number].as_py()
        texts.append(content[start:end].encode())
    return texts
