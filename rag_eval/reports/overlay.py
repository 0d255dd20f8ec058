"""The questions of a report: texts, truth, chunks, hits and scores, packed as numbers for the page to lay over another.

What many configurations share, such as texts and chunks, is carried once, and so are only the documents concerned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.metrics.formulas import Counts
from rag_eval.reports.dataset import Tags, Truth
from rag_eval.reports.limits import Questions, affordable
from rag_eval.reports.packing import Section, numbers, records
from rag_eval.reports.places import Places
from rag_eval.reports.ranking import hits_of, without_hits
from rag_eval.reports.sides import ShownChunks, Side, hit_rows, score_columns
from rag_eval.reports.texts import MOST_CHARACTERS, choose_texts, cut_texts
from rag_eval.reports.units import Units, chunk_units, document_units
from rag_eval.stats.directions import higher_is_better


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
