"""Groups of evidence: a piece of truth that stands in several places is found by finding any of them.

Before scoring, each group is represented by the member of which the hits cover the largest share, the first of equal
ones. Which one that is depends on how many hits count, so it is chosen anew for every cut. Truth whose groups have one
member each is scored as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.metrics.chroma import MAX_MIN_K
from rag_eval.metrics.metric import DEFAULT_ENCODING, Cut
from rag_eval.tables import TruthTables, has_places
from rag_eval.tokens import count_tokens

Row = Mapping[str, Any]


def has_groups(truth: TruthTables) -> bool:
    """Whether a group has more than one member."""
    return bool(pc.max(truth.answers.column("member")).as_py())


def best_members(truth: TruthTables, passages: pa.Table, cut: Cut, contents: Mapping[str, str]) -> TruthTables:
    """The truth with one member a group: the one that the passages within the cut cover best.

    ``contents`` has the texts of the documents, or of the chunks by their ids, for cuts by tokens.
    """
    rows = truth.answers.to_pylist()
    several = {(row["query_id"], row["group"]) for row in rows if row["member"]}
    queries = pa.array(sorted({query for query, _ in several}), pa.string())
    found: dict[str, list[Row]] = {}
    for row in passages.filter(pc.is_in(passages.column("query_id"), queries)).sort_by("rank").to_pylist():
        found.setdefault(row["query_id"], []).append(row)
    is_placed = has_places(truth.answers)
    within = {query: _within(hits, cut, contents, is_placed=is_placed) for query, hits in found.items()}
    best: dict[tuple[str, int], tuple[float, int]] = {}
    for number, row in enumerate(rows):
        key = row["query_id"], row["group"]
        hits = within.get(key[0], []) if key in several else []
        share = _share(row, hits) if is_placed else float(any(hit["chunk_id"] == row["chunk_id"] for hit in hits))
        if key not in best or share > best[key][0]:
            best[key] = share, number
    kept = truth.answers.take(pa.array(sorted(number for _, number in best.values()), pa.int64()))
    member = pa.array([0] * kept.num_rows, pa.int32())
    place = kept.schema.get_field_index("member")
    return TruthTables(truth.queries, kept.set_column(place, kept.schema.field("member"), member))


def _within(hits: Sequence[Row], cut: Cut, contents: Mapping[str, str], *, is_placed: bool) -> Sequence[Row]:
    """The hits of a query that count at the cut."""
    if cut.kind == "hits":
        return hits[: cut.size]
    if cut.kind != "tokens":
        return hits[:MAX_MIN_K] if cut.kind == "min" else hits
    spent, kept = 0, []
    for hit in hits:
        spent += _tokens(hit, contents, is_placed=is_placed)
        if spent > cut.size:
            break
        kept.append(hit)
    return kept


def _tokens(hit: Row, contents: Mapping[str, str], *, is_placed: bool) -> int:
    """The tokens that the passage has, or else those of its own text or of its chunk or the slice at its place."""
    if hit["tokens"] is not None:
        return int(hit["tokens"])
    if hit["text"] is not None:
        return count_tokens(hit["text"], DEFAULT_ENCODING)
    text = contents[hit["doc_id"]][hit["start"] : hit["end"]] if is_placed else contents[hit["chunk_id"]]
    return count_tokens(text, DEFAULT_ENCODING)


def _share(span: Row, hits: Sequence[Row]) -> float:
    """The share of a span's characters that hits hold; a character counts once."""
    pieces = sorted(
        (max(hit["start"], span["start"]), min(hit["end"], span["end"]))
        for hit in hits
        if hit["doc_id"] == span["doc_id"]
    )
    covered, reached = 0, span["start"]
    for start, end in pieces:
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    share: float = covered / (span["end"] - span["start"])
    return share
