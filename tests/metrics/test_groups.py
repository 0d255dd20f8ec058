"""Evidence that stands in several places counts once, at the place that is covered best."""

import pyarrow as pa
import pytest

from rag_eval import ChunkLevelGroundTruth, Document, DocumentId, Query, TokenLevelGroundTruth, generate_chunk_id
from rag_eval.metrics.losses import LOSS_PARTS, HitStages, chunk_level_losses, token_level_losses
from rag_eval.metrics.score_tables import score_chunk_level, score_token_level
from rag_eval.tables import PASSAGES, as_passages, chunks_to_table, truth_to_tables
from rag_eval.types.chunks import Chunk
from tests.made_tables import placed_chunks, placed_hits, placed_passages, plain_hits, plain_passages

DOC = Document(DocumentId("a.md"), "the ferry leaves at noon; the ferry leaves at noon; coffee is served")
FIRST, COPY, COFFEE = DOC.span(0, 24), DOC.span(26, 50), DOC.span(52, 58)
ASKED, OTHER = Query.from_text("when?"), Query.from_text("what?")
TRUTH = truth_to_tables(
    [
        TokenLevelGroundTruth(ASKED, [FIRST, COFFEE], False, {FIRST: [COPY]}),
        TokenLevelGroundTruth(OTHER, [COFFEE]),
    ]
)


def recalls(*places: tuple[int, int], ks: list[int], metrics: tuple[str, ...] = ("span_recall",)) -> list[float]:
    """The recall of the first query at each k, the other one finding nothing."""
    passages = placed_passages([(ASKED.id, rank, DOC.id, *place) for rank, place in enumerate(places, start=1)])
    scores = score_token_level(passages, TRUTH, metrics, ks, documents=[DOC])
    assert scores.column("query_id").to_pylist() == [ASKED.id, OTHER.id] * (scores.num_rows // 2)
    return [row["value"] for row in scores.to_pylist() if row["query_id"] == ASKED.id]


def test_a_group_is_covered_by_its_best_covered_member_and_counts_once() -> None:
    assert recalls((26, 50), ks=[1]) == [24 / 30]
    assert recalls((0, 24), (26, 50), ks=[1, 2]) == [24 / 30, 24 / 30]
    assert recalls((0, 12), (26, 50), (52, 58), ks=[1, 2, 3]) == [12 / 30, 24 / 30, 1.0]


def test_the_member_is_chosen_anew_for_every_cut_and_the_first_of_equal_ones() -> None:
    places = (0, 20), (26, 47), (44, 50)
    assert recalls(*places, ks=[3, 1, 2]) == [24 / 30, 20 / 30, 21 / 30]
    # Half of each: the second half of the first member is what is missing.
    assert recalls((0, 12), (38, 50), (12, 24), ks=[2, 3]) == [12 / 30, 24 / 30]


def test_overlapping_hits_cover_a_character_once() -> None:
    # Twice the same ten characters of the first are less than fifteen of its copy.
    assert recalls((0, 10), (0, 10), (26, 41), ks=[3]) == [15 / 30]


def test_a_budget_of_tokens_has_its_own_choice() -> None:
    whole = recalls((0, 12), (26, 50), ks=[], metrics=("span_recall@3tokens", "span_recall@100tokens"))
    assert whole == [12 / 30, 24 / 30]


def test_a_budget_chooses_by_the_tokens_that_the_passages_have() -> None:
    places = [(ASKED.id, 1, DOC.id, 0, 12), (ASKED.id, 2, DOC.id, 26, 50)]
    passages = placed_passages(places)

    def at(budget: int, column: str, values: pa.Array, documents: list[Document] | None) -> float:
        table = passages.set_column(passages.column_names.index(column), PASSAGES.field(column), values)
        scores = score_token_level(table, TRUTH, [f"span_recall@{budget}tokens"], documents=documents)
        return float(scores.column("value")[0].as_py())

    tokens = pa.array([500, 500], pa.int32())
    assert [at(budget, "tokens", tokens, None) for budget in (499, 500, 999, 1_000)] == [0, 12 / 30, 12 / 30, 24 / 30]
    texts = pa.array([None, "word " * 50], pa.large_string())
    assert [at(budget, "text", texts, [DOC]) for budget in (40, 100)] == [12 / 30, 24 / 30]


def test_metrics_come_back_in_the_order_asked() -> None:
    passages = placed_passages([(ASKED.id, 1, DOC.id, 26, 50)])
    scores = score_token_level(passages, TRUTH, ["span_recall", "span_precision"], [2, 1])
    names = [(row["metric"], row["size"]) for row in scores.to_pylist()[::2]]
    assert names == [("span_recall", 2), ("span_recall", 1), ("span_precision", 2), ("span_precision", 1)]


def test_losses_of_grouped_truth_add_up() -> None:
    chunks = placed_chunks([(f"c{start}", DOC.id, start, end, "…") for start, end in ((0, 24), (26, 50), (52, 68))])
    hits = placed_hits([(ASKED.id, 1, 1.0, DOC.id, 26, 50, "c26")])
    row = token_level_losses(chunks, TRUTH, HitStages(hits), [1]).to_pylist()[0]
    assert row["final_recall"] == 24 / 30
    assert sum(row[part] for part in LOSS_PARTS) == pytest.approx(6 / 30)


def test_chunk_ids_have_groups_too() -> None:
    one, copy, two = (generate_chunk_id(text) for text in ("one", "ONE", "two"))
    truth = truth_to_tables([ChunkLevelGroundTruth(ASKED, [one, two], False, {one: [copy]})])
    passages = plain_passages([(ASKED.id, 1, copy), (ASKED.id, 2, one)])
    scores = score_chunk_level(passages, truth, ["chunk_recall"], [1, 2])
    assert scores.column("value").to_pylist() == [0.5, 0.5]
    texts = {one: "one", copy: "ONE", two: "two"}
    chunks = chunks_to_table(Chunk(chunk_id, text, DOC.id) for chunk_id, text in texts.items())
    within = score_chunk_level(passages, truth, ["chunk_recall@1tokens"], chunks=chunks)
    assert within.column("value").to_pylist() == [0.5]
    hits = plain_hits([(ASKED.id, 1, 1.0, DOC.id, 1, copy)])
    assert as_passages(hits).num_rows == 1
    assert chunk_level_losses(chunks, truth, HitStages(hits), [1]).column("final_recall").to_pylist() == [0.5]
