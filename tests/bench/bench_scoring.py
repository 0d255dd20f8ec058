"""Scoring from tables against a loop over the queries, with seeded inputs, in CPU seconds of one run.

Both start from the same Arrow tables. The loop reads them into lists by query, and computes every k of a query in one
go. Ours also checks every row, and its scores are a table again.
"""

import math
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
import pyarrow as pa

from rag_eval.metrics.score_tables import score_passages
from rag_eval.tables import PASSAGES, QUERIES, TRUTH, TruthTables, table_with

QUERY_COUNT, HITS_EACH, TRUTHS_EACH = 100_000, 10, 3
DOCUMENTS, DOCUMENT_LENGTH, CHUNK_SIZE, CHUNK_STEP = 2_000, 40_000, 800, 400
KS = (1, 3, 5, 10)
METRICS = ("span_recall", "span_precision", "span_iou", "span_hit_rate", "span_mrr", "span_map", "span_ndcg")
LOOP_QUERIES, TURNS = 10_000, 9

Place = tuple[str, int, int]


def make_tables(queries: int, seed: int = 20240711) -> tuple[pa.Table, TruthTables]:
    """Overlapping chunks of long documents; four hits in ten are near a truth of their query."""
    rng = np.random.default_rng(seed)
    truth_doc = rng.integers(0, DOCUMENTS, (queries, TRUTHS_EACH))
    truth_doc[:, 1] = truth_doc[:, 0]
    truth_start = rng.integers(0, DOCUMENT_LENGTH - 600, (queries, TRUTHS_EACH))
    truth_end = truth_start + rng.integers(40, 600, (queries, TRUTHS_EACH))
    aim = rng.integers(0, TRUTHS_EACH, (queries, HITS_EACH))
    near = rng.random((queries, HITS_EACH)) < 0.4
    aimed = np.take_along_axis(truth_start, aim, 1) // CHUNK_STEP + rng.integers(-2, 2, (queries, HITS_EACH))
    anywhere = rng.integers(0, DOCUMENT_LENGTH // CHUNK_STEP, (queries, HITS_EACH))
    hit_doc = np.where(near, np.take_along_axis(truth_doc, aim, 1), rng.integers(0, DOCUMENTS, near.shape))
    hit_start = np.maximum(np.where(near, aimed, anywhere), 0) * CHUNK_STEP
    ids = pa.array([f"query_{number:08x}" for number in range(queries)])
    doc_ids = pa.array([f"guides/part_{number % 40:02d}/page_{number:04d}.md" for number in range(DOCUMENTS)])
    rank = np.tile(np.arange(1, HITS_EACH + 1, dtype=np.int32), queries)
    hits = {
        "query_id": ids.take(pa.array(np.repeat(np.arange(queries), HITS_EACH))),
        "rank": rank,
        "doc_id": doc_ids.take(pa.array(hit_doc.ravel())),
        "start": hit_start.ravel(),
        "end": hit_start.ravel() + CHUNK_SIZE,
    }
    spans = {
        "query_id": ids.take(pa.array(np.repeat(np.arange(queries), TRUTHS_EACH))),
        "group": np.tile(np.arange(TRUTHS_EACH), queries),
        "member": 0,
        "doc_id": doc_ids.take(pa.array(truth_doc.ravel())),
        "start": truth_start.ravel(),
        "end": truth_end.ravel(),
    }
    blank = pa.array(["{}"]).take(pa.array(np.zeros(queries, dtype=np.int64)))
    questions = pa.Table.from_arrays([ids, ids, pa.array(np.zeros(queries, dtype=bool)), blank], schema=QUERIES)
    truth = TruthTables(questions, table_with(TRUTH, spans, truth_doc.size))
    return table_with(PASSAGES, hits, len(rank)), truth


def grouped(table: pa.Table, by: str) -> dict[str, list[Place]]:
    """The places of each query, in the order of the column ``by``."""
    ids, docs = table.column("query_id").to_pylist(), table.column("doc_id").to_pylist()
    starts, ends = table.column("start").to_pylist(), table.column("end").to_pylist()
    rows: dict[str, list[tuple[int, Place]]] = {}
    for query, order, doc, start, end in zip(ids, table.column(by).to_pylist(), docs, starts, ends, strict=True):
        rows.setdefault(query, []).append((order, (doc, start, end)))
    return {query: [place for _, place in sorted(found)] for query, found in rows.items()}


def merge(places: Sequence[Place]) -> list[Place]:
    """The places sorted and merged."""
    merged: list[Place] = []
    for doc, start, end in sorted(places):
        if merged and merged[-1][0] == doc and start <= merged[-1][2]:
            if end > merged[-1][2]:
                merged[-1] = (doc, merged[-1][1], end)
        else:
            merged.append((doc, start, end))
    return merged


def shared(place: Place, merged: Sequence[Place]) -> list[Place]:
    """What one place has in common with merged places."""
    doc, start, end = place
    return [(doc, max(start, s), min(end, e)) for d, s, e in merged if d == doc and s < end and start < e]


def length(places: Sequence[Place]) -> int:
    """The summed length."""
    return sum([end - start for _, start, end in places])


def score_in_a_loop(
    hits: Mapping[str, list[Place]], truths: Mapping[str, list[Place]]
) -> dict[tuple[str, int], list[float]]:
    """The same scores with plain Python: what is covered grows hit by hit, and every k reads it off on the way."""
    scores: dict[tuple[str, int], list[float]] = {(metric, k): [] for metric in METRICS for k in KS}
    discounts = [1 / math.log2(rank + 1) for rank in range(1, HITS_EACH + 1)]
    for query, spans in truths.items():
        found = hits[query]
        truth = merge(spans)
        total = length(truth)
        by_document: dict[str, int] = {}
        for doc, start, end in truth:
            by_document[doc] = by_document.get(doc, 0) + end - start
        amounts = sorted(by_document.values(), reverse=True)
        pieces: list[Place] = []
        covered = useful = first_rank = 0
        weighted = gained = ideal = 0.0
        for rank, hit in enumerate(found, start=1):
            common = shared(hit, truth)
            if common:
                pieces = merge(pieces + common)
                now = length(pieces)
                if now > covered:
                    useful += 1
                    first_rank = first_rank or rank
                    weighted += (now - covered) * (useful / rank)
                    gained += (now - covered) * discounts[rank - 1]
                    covered = now
            if rank <= len(amounts):
                ideal += amounts[rank - 1] * discounts[rank - 1]
            if rank in KS:
                retrieved = length(merge(found[:rank]))
                scores["span_recall", rank].append(covered / total)
                scores["span_precision", rank].append(covered / retrieved)
                scores["span_iou", rank].append(covered / (retrieved + total - covered))
                scores["span_hit_rate", rank].append(1.0 if covered else 0.0)
                scores["span_mrr", rank].append(1 / first_rank if first_rank else 0.0)
                scores["span_map", rank].append(weighted / total)
                scores["span_ndcg", rank].append(gained / ideal)
    return scores


def run() -> list[dict[str, object]]:
    """The figures: speed against the loop, agreement with it, and memory.

    Tables and loop take turns, so that a busy machine slows both; the loop takes another share of the queries each
    turn, and its time is scaled to all. The ratios are medians over the turns.
    """
    hits, truth = make_tables(QUERY_COUNT)
    before = _peak_megabytes()
    table_seconds, loop_seconds, bare_seconds, difference = [], [], [], 0.0
    for turn in range(TURNS):
        started = time.process_time()
        scores = score_passages("token-level", hits, truth, METRICS, KS)
        table_seconds.append(time.process_time() - started)
        first = turn * LOOP_QUERIES
        some_hits = hits.slice(first * HITS_EACH, LOOP_QUERIES * HITS_EACH)
        some_spans = truth.answers.slice(first * TRUTHS_EACH, LOOP_QUERIES * TRUTHS_EACH)
        started = time.process_time()
        hit_lists, truth_lists = grouped(some_hits, "rank"), grouped(some_spans, "start")
        grouped_at = time.process_time()
        expected = score_in_a_loop(hit_lists, truth_lists)
        ended = time.process_time()
        loop_seconds.append((ended - started) * QUERY_COUNT / LOOP_QUERIES)
        bare_seconds.append((ended - grouped_at) * QUERY_COUNT / LOOP_QUERIES)
        values = scores.column("value").to_numpy().reshape(-1, QUERY_COUNT)[:, first : first + LOOP_QUERIES]
        difference = max(difference, float(np.abs(values - np.array(list(expected.values()))).max()))
    after = _peak_megabytes()
    speedup, bare_speedup = _ratio(loop_seconds, table_seconds), _ratio(bare_seconds, table_seconds)
    return [
        _figure("scoring 100 k queries, 10 hits, 3 truths, 4 k, 7 metrics", median(table_seconds), None, "s CPU"),
        _figure("scoring: a loop over the queries, from the same tables", median(loop_seconds), None, "s CPU"),
        _figure("scoring: times the speed of the loop", speedup, 15, "x", speedup >= 15),
        _figure("scoring: times the loop's speed, its reading of the tables not counted", bare_speedup, None, "x"),
        _figure("scoring: largest difference from the loop", difference, 1e-12, "", difference <= 1e-12),
        _figure("scoring: peak memory of the process", after, 1000, "MB", after <= 1000),
        _figure("scoring: of that, added by scoring", after - before, None, "MB"),
    ]


def _ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    return median(one / other for one, other in zip(slow, fast, strict=True))


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _figure(name: str, value: float, target: float | None, unit: str, ok: bool = True) -> dict[str, object]:
    return {"name": name, "value": value, "target": target, "unit": unit, "ok": ok}


def main() -> int:
    """Print the figures; 1 when one misses its target."""
    figures = run()
    for figure in figures:
        target = "" if figure["target"] is None else f"(target {figure['target']:g})"
        verdict = "ok" if figure["ok"] else "MISSED"
        print(f"{figure['name']:<72} {figure['value']:>10.4g} {figure['unit']:<6} {target:<16} {verdict}")
    return 0 if all(figure["ok"] for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
