"""What is searched for a question: by a model, by a function, in one text or in several whose hits are fused."""

import json
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pyarrow as pa
import pytest

from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import ConfigurationError
from rag_eval.evaluation.in_memory import EvaluatedTables, InMemoryInputs, evaluate
from rag_eval.ground_truth.truth_files import read_token_level
from rag_eval.parts import label
from rag_eval.pipeline.search_steps import SearchDepth, prepare_queries
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.question_data import searched_texts_of
from rag_eval.retrieval import REWRITER
from rag_eval.retrieval.queries import HypotheticalAnswers, QueryVariants, RewrittenQueries
from rag_eval.retrieval.selection import Selection
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.tables import documents_to_table, truth_to_tables
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ids import DocumentId
from tests.doubles.openai_chat import refusal
from tests.doubles.openai_server import OpenAIServer

TRUTH = truth_to_tables(read_token_level(GROUND_TRUTH))
QUERIES = TRUTH.queries.slice(0, 4)
QUESTIONS = QUERIES.column("text").to_pylist()
AS_ASKED = "questions are searched unchanged, because the model gave no usable rewrite"


def rewritten(part: Any, root: Path | None = None) -> tuple[list[tuple[int, str]], Any]:
    workspace = None if root is None else Workspace(root=root)
    (made, _), effort = prepare_queries(QUERIES, part, None, [], workspace=workspace)
    return list(zip(made.column("variant").to_pylist(), made.column("text").to_pylist(), strict=True)), effort


@pytest.mark.parametrize("cls", [RewrittenQueries, HypotheticalAnswers])
def test_a_model_gives_another_text_and_else_the_question_is_searched_and_counted(tmp_path: Path, cls: Any) -> None:
    with OpenAIServer() as server:
        server.reply = lambda body: json.dumps({"text": " Better. "})
        server.faults += [refusal("no"), refusal("no")]
        part = cls("m", base_url=server.base_url, input_price=1.0, output_price=1.0, concurrency=1)
        rows, effort = rewritten(part, tmp_path)
        assert rows == [(0, QUESTIONS[0]), *[(0, "Better.")] * 3]
        assert (effort.total, effort.unit, effort.fallbacks) == (4, "queries", {AS_ASKED: 1})
        assert effort.cost > 0
        assert effort.query_seconds > 0
        assert rewritten(part, tmp_path)[0] == rows
        assert len(server.requests) == 5


def test_variants_stand_beside_the_question_each_once(tmp_path: Path) -> None:
    with OpenAIServer() as server:
        server.reply = lambda body: json.dumps({"texts": ["One", "One ", "", "Two", "Three"]})
        part = QueryVariants("m", base_url=server.base_url, count=2)
        rows, effort = rewritten(part, tmp_path)
        assert rows[:3] == [(0, QUESTIONS[0]), (1, "One"), (2, "Two")]
        assert effort.fallbacks == {}
        server.reply = lambda body: json.dumps({"texts": []})
        rows, effort = rewritten(QueryVariants("n", base_url=server.base_url), tmp_path)
        assert ([text for _, text in rows], effort.fallbacks) == (QUESTIONS, {AS_ASKED: 4})


def test_a_function_rewrites_and_anything_but_texts_is_refused() -> None:
    assert rewritten(REWRITER.take(str.upper))[0] == [(0, text.upper()) for text in QUESTIONS]
    rows, effort = rewritten(REWRITER.take(lambda text: [text, "ferry"] if text == QUESTIONS[0] else None))
    assert rows == [(0, QUESTIONS[0]), (1, "ferry"), *((0, text) for text in QUESTIONS[1:])]
    assert effort.fallbacks == {AS_ASKED: 3}
    with pytest.raises(ConfigurationError, match="returned '3': return a text or a list"):
        rewritten(REWRITER.take(lambda text: 3))


def evaluated(**parts: Any) -> EvaluatedTables:
    config = BenchmarkConfig.model_validate(
        {"corpus": CORPUS, "ground_truth": GROUND_TRUTH, "stores": ["memory"]}
        | {"chunkers": [{"type": "recursive-token", "chunk_size": 100}], "rerankers": ["lexical"]}
        | {name: [part] for name, part in parts.items()}
    )
    documents = documents_to_table(Corpus.from_folder(CORPUS))
    inputs = InMemoryInputs("token-level", documents, TRUTH, ["span_recall"], [5], SearchDepth(candidates=50))
    return evaluate(config.configurations()[0], inputs)


@pytest.mark.parametrize("retrieval", ["vector", "bm25", "hybrid"])
def test_variants_are_fused_to_one_ranking_and_equal_ones_change_nothing(retrieval: str) -> None:
    alone = evaluated(retrieval=retrieval)
    same = evaluated(retrieval=retrieval, queries=REWRITER.take(lambda text: text))
    twice = evaluated(retrieval=retrieval, queries=REWRITER.take(lambda text: [text, f"{text} "]))
    other = evaluated(retrieval=retrieval, queries=REWRITER.take(lambda text: [text, "ferry"]))
    first = list(alone.hits)[-2]

    def places(table: pa.Table) -> list[Any]:
        return table.select(["query_id", "rank", "doc_id", "start", "end"]).sort_by("query_id").to_pylist()

    assert list(same.hits)[-2:] == ["variants", "reranked"]
    for made in (same, twice):
        assert places(made.hits["variants"]) == places(alone.hits[first])
        assert made.scores.equals(alone.scores)
    assert set(other.hits[first].column("variant").to_pylist()) == {0, 1}
    ranks = [row["rank"] for row in other.hits["variants"].to_pylist() if row["query_id"] == QUERIES[0][0].as_py()]
    assert ranks == list(range(1, len(ranks) + 1))
    assert places(other.hits["variants"]) != places(alone.hits[first])


@pytest.mark.parametrize("fusion", ["rrf", "z-score"])
def test_variants_are_fused_by_the_fusion_that_they_are_given(fusion: str) -> None:
    with OpenAIServer() as server:
        server.reply = lambda body: json.dumps({"texts": ["the last ferry"]})
        made = evaluated(retrieval="bm25", queries=QueryVariants("n", base_url=server.base_url, fusion=fusion))
    by_variant: dict[tuple[str, int], list[str]] = {}
    for row in made.hits["words"].to_pylist():
        by_variant.setdefault((row["query_id"], row["variant"]), []).append(str((row["doc_id"], row["start"])))
    for query in QUERIES.column("query_id").to_pylist():
        lists = [by_variant.get((query, variant), []) for variant in (0, 1)]
        found = sorted({one for each in lists for one in each})

        def scored(chunk: str, lists: list[list[str]] = lists, count: int = len(found)) -> float:
            ranks = [(each.index(chunk) + 1 if chunk in each else 0, len(each)) for each in lists]
            if fusion == "rrf":
                return sum(1 / (60 + rank) for rank, _ in ranks if rank)
            at = [(rank - 0.5 if rank else (size + count) / 2) / count for rank, size in ranks]
            return sum(NormalDist().inv_cdf(1 - min(one, 1 - 0.5 / count)) / 2 for one in at)

        rows = [row for row in made.hits["variants"].to_pylist() if row["query_id"] == query]
        assert [row["score"] for row in rows] == pytest.approx(sorted(map(scored, found), reverse=True)[:50])
        assert [row["score"] for row in rows] == pytest.approx([scored(str((r["doc_id"], r["start"]))) for r in rows])
    assert label(QueryVariants(fusion=fusion)) == "variants gpt-4.1-mini/3" + f" fusion=({fusion})" * (fusion != "rrf")


def test_the_report_shows_what_was_searched_beside_the_question() -> None:
    (made, _), _ = prepare_queries(QUERIES, REWRITER.take(lambda text: [text, "ferry"]), None, [])
    assert searched_texts_of(made, QUERIES) == [["ferry"]] * 4
    documents = [documents_to_table(Corpus([Document(DocumentId("a.md"), "A text.", {"lang": "en"})]))]
    (filtered, _), _ = prepare_queries(QUERIES, None, Selection(where={"lang": "en"}), documents)
    assert searched_texts_of(filtered, QUERIES) == [[f'{text} (where {{"lang":"en"}})'] for text in QUESTIONS]
