"""The loss decomposition, with its exact oracle, on a large corpus with seeded inputs, in CPU seconds of one run.

The oracle is held against a dynamic programme of the textbook kind, written for one query and one document at a time.
"""

import sys
import time
from bisect import bisect_left, bisect_right

import numpy as np
import pyarrow as pa

from rag_eval.metrics.losses import HitStages, losses_of
from rag_eval.tables import CHUNKS, HITS, QUERIES, TRUTH, TruthTables, table_with

QUERY_COUNT, TRUTHS_EACH, HITS_EACH = 5_000, 3, 20
DOCUMENTS, CHUNKS_EACH, CHUNK_SIZE, CHUNK_STEP = 500, 200, 800, 400
KS = (1, 3, 5, 10, 20)
CHECKED = 500

Span = tuple[int, int]


def make_tables(seed: int = 20240711) -> tuple[pa.Table, TruthTables, list[pa.Table]]:
    """100 k chunks that overlap by half, long answers, and the hits of three stages, half of them near an answer."""
    rng = np.random.default_rng(seed)
    length = CHUNKS_EACH * CHUNK_STEP
    doc_ids = pa.array([f"guides/part_{number % 40:02d}/page_{number:04d}.md" for number in range(DOCUMENTS)])
    query_ids = pa.array([f"query_{number:08x}" for number in range(QUERY_COUNT)])
    chunk_doc = np.repeat(np.arange(DOCUMENTS), CHUNKS_EACH)
    chunk_start = np.tile(np.arange(CHUNKS_EACH) * CHUNK_STEP, DOCUMENTS)
    text, blank = pa.scalar("…", pa.large_string()), pa.scalar("{}")
    chunk_ids = pa.array([f"pa_chunk_{number:012x}" for number in range(len(chunk_doc))])
    chunks = {
        "chunk_id": chunk_ids,
        "doc_id": doc_ids.take(pa.array(chunk_doc)),
        "start": chunk_start,
        "end": chunk_start + CHUNK_SIZE,
        "ordinal": np.tile(np.arange(CHUNKS_EACH), DOCUMENTS),
        "content": text,
        "metadata": "{}",
    }

    truth_doc = rng.integers(0, DOCUMENTS, (QUERY_COUNT, TRUTHS_EACH))
    truth_doc[:, 1] = truth_doc[:, 0]
    truth_start = rng.integers(0, length - 4_000, (QUERY_COUNT, TRUTHS_EACH))
    truth_end = truth_start + rng.integers(40, 4_000, (QUERY_COUNT, TRUTHS_EACH))
    spans = {
        "query_id": query_ids.take(pa.array(np.repeat(np.arange(QUERY_COUNT), TRUTHS_EACH))),
        "group": np.tile(np.arange(TRUTHS_EACH), QUERY_COUNT),
        "member": 0,
        "doc_id": doc_ids.take(pa.array(truth_doc.ravel())),
        "start": truth_start.ravel(),
        "end": truth_end.ravel(),
    }
    queries = [query_ids, query_ids, pa.repeat(pa.scalar(False), QUERY_COUNT), pa.repeat(blank, QUERY_COUNT)]

    hits = []
    shape = (QUERY_COUNT, HITS_EACH)
    rank = np.tile(np.arange(1, HITS_EACH + 1, dtype=np.int32), QUERY_COUNT)
    for _ in range(3):
        aim = rng.integers(0, TRUTHS_EACH, shape)
        near = np.take_along_axis(truth_start, aim, 1) // CHUNK_STEP + rng.integers(-2, 10, shape)
        near = np.take_along_axis(truth_doc, aim, 1) * CHUNKS_EACH + np.clip(near, 0, CHUNKS_EACH - 1)
        chosen = np.where(rng.random(shape) < 0.5, near, rng.integers(0, len(chunk_doc), shape)).ravel()
        columns = {
            "query_id": query_ids.take(pa.array(np.repeat(np.arange(QUERY_COUNT), HITS_EACH))),
            "variant": 0,
            "rank": rank,
            "score": 1 / rank,
            "doc_id": doc_ids.take(pa.array(chunk_doc[chosen])),
            "start": chunk_start[chosen],
            "end": chunk_start[chosen] + CHUNK_SIZE,
            "chunk_id": chunk_ids.take(pa.array(chosen)),
            "stage": "made",
        }
        hits.append(table_with(HITS, columns, len(rank)))
    truth = TruthTables(pa.table(queries, schema=QUERIES), table_with(TRUTH, spans, truth_doc.size))
    return table_with(CHUNKS, chunks, len(chunk_doc)), truth, hits


def merged(spans: list[Span]) -> list[Span]:
    """The spans sorted, and those that meet made one."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def best_in_document(starts: list[int], truth: list[Span], k: int) -> list[int]:
    """The most of the truth that 0, 1, … k chunks of one document cover; all have one size, so none is nested."""
    bounds = [border for span in truth for border in span]

    def before(position: int) -> int:
        number = bisect_right(bounds, position)
        whole = sum(bounds[i + 1] - bounds[i] for i in range(0, number - number % 2, 2))
        return whole + (position - bounds[number - 1] if number % 2 else 0)

    firsts = {bisect_left(starts, start - CHUNK_SIZE + 1) for start, _ in truth}
    picked = [s for s in starts[min(firsts) :] if any(s < end and start < s + CHUNK_SIZE for start, end in truth)]
    intervals = [(before(start), before(start + CHUNK_SIZE)) for start in picked]
    best = [0] * (k + 1)
    ending = [0] * len(intervals)
    for chosen in range(1, k + 1):
        now = []
        for number, (start, end) in enumerate(intervals):
            # The last chunk of the choice is this one; the one before it, if any, is an earlier one.
            earlier = [ending[i] + end - max(start, intervals[i][1]) for i in range(number)] if chosen > 1 else []
            now.append(max([end - start, *earlier]))
        ending = now
        best[chosen] = max([best[chosen - 1], *ending])
    return best


def oracle_by_query(truth: pa.Table, query: int, k: int) -> list[float]:
    """The best recall of 0, 1, … k chunks: document by document, then the best split of k over the documents."""
    rows = truth.slice(query * TRUTHS_EACH, TRUTHS_EACH).to_pylist()
    starts = [number * CHUNK_STEP for number in range(CHUNKS_EACH)]
    total, length = [0] * (k + 1), 0
    for doc_id in sorted({row["doc_id"] for row in rows}):
        spans = merged([(row["start"], row["end"]) for row in rows if row["doc_id"] == doc_id])
        more = best_in_document(starts, spans, k)
        total = [max(total[j - i] + more[i] for i in range(j + 1)) for j in range(k + 1)]
        length += sum(end - start for start, end in spans)
    return [covered / length for covered in total]


def run() -> list[dict[str, object]]:
    """The figures: the time of the whole decomposition, of the textbook's oracle, and whether the two agree."""
    chunks, truth, hits = make_tables()
    started = time.process_time()
    stages = HitStages({"vector": hits[1], "reranked": hits[2]}, {"vector": hits[0]})
    losses = losses_of("token-level", chunks, truth, stages, KS).parts
    seconds = time.process_time() - started
    values = {name: losses.column(name).to_numpy().reshape(len(KS), QUERY_COUNT) for name in losses.column_names[2:]}
    oracle = 1 - values["uncovered"] - values["boundary"]
    started = time.process_time()
    expected = np.array([oracle_by_query(truth.answers, query, max(KS)) for query in range(CHECKED)])
    loop_seconds = (time.process_time() - started) * QUERY_COUNT / CHECKED
    difference = float(np.abs(oracle[:, :CHECKED].T - expected[:, KS]).max())
    astray = float(np.abs(sum(values.values()) - 1).max())
    return [
        _figure("losses: 5 k queries, 100 k chunks, 3 stages of 20 hits, 5 k", seconds, 5, "s CPU", seconds <= 5),
        _figure("losses: the oracle alone, by query and document", loop_seconds, None, "s CPU"),
        _figure("losses: largest difference between the oracles", difference, 1e-12, "", difference <= 1e-12),
        _figure("losses: largest distance of the parts' sum from 1", astray, 1e-12, "", astray <= 1e-12),
    ]


def _figure(name: str, value: float, target: float | None, unit: str, ok: bool = True) -> dict[str, object]:
    return {"name": name, "value": value, "target": target, "unit": unit, "ok": ok}


def main() -> int:
    """Print the figures; 1 when one misses its target."""
    figures = run()
    for figure in figures:
        target = "" if figure["target"] is None else f"(target {figure['target']:g})"
        line = f"{figure['name']:<72} {figure['value']:>12.4g} {figure['unit']:<6} {target:<18}"
        print(line, "ok" if figure["ok"] else "MISSED")
    return 0 if all(figure["ok"] for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
