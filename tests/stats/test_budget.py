"""Recall at equal token budgets against a plain loop, and the document each query belongs to."""

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.formulas import STRIP, RecallWithinTokens, strip_metrics
from rag_eval.metrics.metric import Cut, MetricName
from rag_eval.metrics.score_tables import score_passages
from rag_eval.results.run_scores import main_documents
from rag_eval.tables import (
    QUERIES,
    TruthTables,
    table_of,
)
from rag_eval.tokens import count_tokens
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from tests.made_tables import chunk_truth, placed_passages, plain_chunks, plain_passages, span_truth

TEXTS = ["alpha beta 🙂 gamma " * 14, "δέλτα ε <|endoftext|> ζ\r\n" * 12]
DOCUMENTS = [Document(f"{number}.md", text) for number, text in enumerate(TEXTS)]

place = st.tuples(st.integers(0, 1), st.integers(0, 199), st.integers(1, 60))


def span_of(where: tuple[int, int, int]) -> CharacterSpan:
    number, start, length = where
    return CharacterSpan(f"{number}.md", start, start + length, TEXTS[number][start : start + length])


def tables_of(rows: list[tuple[list[CharacterSpan], list[CharacterSpan]]]) -> tuple[pa.Table, TruthTables]:
    hits, spans, queries = [], [], [("nobody", "?", True, "{}")]
    for number, (found, truth) in enumerate(rows):
        queries.append((f"q{number}", "?", False, "{}"))
        hits += [(f"q{number}", rank, s.doc_id, s.start, s.end) for rank, s in enumerate(found, start=1)]
        spans += [(f"q{number}", s.doc_id, s.start, s.end, s.text) for s in truth]
    truth_tables = TruthTables(table_of(QUERIES, queries), span_truth(spans))
    return placed_passages(hits), truth_tables


def at_budgets(budgets: list[int]) -> list[MetricName]:
    """Recall and cost at each budget."""
    names = ["recall_within_tokens", "tokens_retrieved"]
    return [MetricName(name, Cut("tokens", budget)) for name in names for budget in budgets]


def values_of(scores: pa.Table, metric: str, k: int) -> list[float]:
    rows = [tuple(row.values()) for row in scores.to_pylist()]
    return [value for _, *head, value in rows if head == [metric, "tokens", k]]


def test_chunk_ids_have_a_budget_too() -> None:
    chunks = plain_chunks([("chunk_a", "a.md", 0, "one two three"), ("chunk_b", "b.md", 0, "four " * 30)])
    queries = table_of(QUERIES, [(name, "?", False, "{}") for name in ("q0", "q1", "q2")])
    truth = [("q0", "chunk_a"), ("q0", "chunk_b"), ("q1", "chunk_b"), ("q2", "chunk_a")]
    rows = [("q0", "chunk_a"), ("q0", "chunk_b"), ("q1", "chunk_b"), ("q1", "chunk_b")]
    hits = [(query, 1 + (place % 2), chunk) for place, (query, chunk) in enumerate(rows)]
    tables = TruthTables(queries, chunk_truth(truth))
    scores = score_passages("chunk-level", plain_passages(hits), tables, at_budgets([10, 100]), chunks=chunks)
    assert values_of(scores, "recall_within_tokens", 10) == [0.5, 0, 0]
    assert values_of(scores, "recall_within_tokens", 100) == [1, 1, 0]
    cost_a, cost_b = count_tokens("one two three", "cl100k_base"), count_tokens("four " * 30, "cl100k_base")
    assert values_of(scores, "tokens_retrieved", 100) == [cost_a + cost_b, 2 * cost_b, 0]
    empty = score_passages("chunk-level", plain_passages([]), tables, strip_metrics(), chunks=chunks)
    assert set(values_of(empty, "recall_within_tokens", STRIP[0])) == {0.0}
    with pytest.raises(ConfigurationError, match="'chunk_b' was retrieved and is not among the chunks"):
        score_passages("chunk-level", plain_passages(hits), tables, strip_metrics(), chunks=chunks.slice(0, 1))


@pytest.mark.parametrize(
    ("budgets", "message"), [([0, 5], "whole number of 1"), ([5, 5], "twice"), ([True], "whole number of 1")]
)
def test_budgets_that_are_none_are_refused(budgets: list[int], message: str) -> None:
    hits, truth = tables_of([([], [span_of((0, 0, 5))])])
    with pytest.raises(ConfigurationError, match=message):
        score_passages("token-level", hits, truth, at_budgets(budgets), documents=DOCUMENTS)
    with pytest.raises(ConfigurationError, match="whole number of 1"):
        RecallWithinTokens(0)


def test_a_query_belongs_to_the_document_with_most_of_its_truth() -> None:
    rows = [("q", "b", 0, 5), ("q", "a", 0, 3), ("q", "a", 10, 12), ("r", "b", 0, 5), ("r", "c", 0, 6)]
    spans = span_truth([(query, doc, start, end, "x" * (end - start)) for query, doc, start, end in rows])
    assert main_documents(spans) == {"q": "a", "r": "c"}
    chunks = [("1", "b", 0, "x"), ("2", "a", 0, "y"), ("2", "c", 0, "y"), ("3", "c", 1, "z")]
    truth = [("q", "1"), ("q", "2"), ("r", "2"), ("r", "3"), ("s", "unknown")]
    found = main_documents(chunk_truth(truth), plain_chunks(chunks))
    assert found == {"q": "a", "r": "c", "s": ""}
