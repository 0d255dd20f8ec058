"""Rerankers: by words, by the vectors of tokens, a cross-encoder's interface, and Cohere's service on loopback."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from rag_eval import (
    Chunk,
    CohereReranker,
    CrossEncoderReranker,
    DocumentId,
    LexicalReranker,
    Reranker,
    generate_chunk_id,
)
from rag_eval.errors import ConfigurationError, ServiceError
from rag_eval.retrieval.rerankers import MaxSimReranker
from rag_eval.retrieval.retriever import rerank
from rag_eval.stores.rankings import Ranking
from tests.doubles.cohere_server import KEY, CohereServer

TEXTS = ["rye bread and butter", "the ferry leaves at noon", "ferry", "nothing of the kind"]
CHUNKS = [Chunk(generate_chunk_id(text), text, DocumentId("a.md")) for text in TEXTS]


@pytest.fixture
def server() -> Iterator[CohereServer]:
    with CohereServer() as server:
        yield server


def test_the_lexical_reranker_puts_shared_words_first_and_keeps_the_order_of_the_rest() -> None:
    reranker: Reranker = LexicalReranker()
    assert [chunk.content for chunk in reranker.rerank("ferry", CHUNKS, 4)] == [TEXTS[2], TEXTS[1], TEXTS[0], TEXTS[3]]
    assert len(reranker.rerank("ferry", CHUNKS, 2)) == 2
    assert reranker.rerank("ferry", [], 2) == []


def test_what_is_beyond_the_first_follows_as_it_was_found() -> None:
    chunks = [Chunk(one.id, one.content, one.doc_id, {"ordinal": place}) for place, one in enumerate(CHUNKS)]
    found = Ranking.of([(np.arange(4), np.array([4.0, 3.0, 2.0, 1.0]))])
    assert rerank(found, LexicalReranker(), ["ferry"], chunks).chunks.tolist() == [2, 1, 0, 3]
    assert rerank(found, LexicalReranker(), ["ferry"], chunks, 2).chunks.tolist() == [1, 0, 2, 3]


def test_a_cross_encoder_orders_by_its_scores() -> None:
    class ByLength:
        def predict(self, pairs: list[tuple[str, str]], /) -> Any:
            return np.array([len(text) for _, text in pairs])

    reranker = CrossEncoderReranker(ByLength(), name="length")
    assert [chunk.content for chunk in reranker.rerank("?", CHUNKS, 2)] == [TEXTS[1], TEXTS[0]]
    assert reranker.name == "CrossEncoderReranker(length)"


@pytest.mark.parametrize("scores", [[1.0], [1.0, 2.0, float("nan"), 4.0]])
def test_a_cross_encoder_with_unusable_scores_is_refused(scores: list[float]) -> None:
    class Odd:
        def predict(self, pairs: list[tuple[str, str]], /) -> Any:
            return scores

    with pytest.raises(ConfigurationError, match="scores for 4 chunks, or one that is not a number"):
        CrossEncoderReranker(Odd()).rerank("?", CHUNKS, 2)


def test_cohere_ranks_over_http(server: CohereServer) -> None:
    with closing(CohereReranker(api_key=KEY, base_url=server.url)) as reranker:
        assert [chunk.content for chunk in reranker.rerank("boat?", CHUNKS, 2)] == [TEXTS[2], TEXTS[3]]
    (request,) = server.requests
    assert request.json()["documents"] == TEXTS
    assert request.json()["query"] == "boat?"


def test_cohere_is_asked_again_after_a_passing_failure(server: CohereServer) -> None:
    server.fail("POST", "/v2/rerank", status=503, times=1)
    with closing(CohereReranker(api_key=KEY, base_url=server.url)) as reranker:
        assert len(reranker.rerank("boat?", CHUNKS, 4)) == 4


def test_cohere_is_asked_as_often_as_was_said_and_no_more(server: CohereServer) -> None:
    server.fail("POST", "/v2/rerank", status=503, times=9)
    reranker = CohereReranker(api_key=KEY, base_url=server.url, max_retries=1)
    with (
        closing(reranker),
        pytest.raises(ServiceError, match=r"failed, it answered 503: .*, after 2 attempts: see its log"),
    ):
        reranker.rerank("boat?", CHUNKS, 4)
    assert len(server.requests) == 2


def test_a_refusal_is_one_sentence_without_the_key(server: CohereServer) -> None:
    with (
        closing(CohereReranker(api_key=KEY + "-wrong", base_url=server.url)) as reranker,
        pytest.raises(ServiceError, match=r"failed, it refused the key \(401\): check the key") as caught,
    ):
        reranker.rerank("boat?", CHUNKS, 2)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "answer",
    [
        {"id": "1", "results": [{"index": 0, "relevance_score": 1.0}]},
        {"id": "1", "results": []},
        {"id": "1"},
        [1, 2],
        {"id": "1", "results": [{"index": "first", "relevance_score": 1.0}]},
    ],
)
def test_an_answer_of_too_few_chunks_or_none_is_refused(server: CohereServer, answer: object) -> None:
    server.answered = answer
    with (
        closing(CohereReranker(api_key=KEY, base_url=server.url)) as reranker,
        pytest.raises(ServiceError, match="did not rank 3 of 4 chunks"),
    ):
        reranker.rerank("boat?", CHUNKS, 3)


def test_cohere_results_count_by_their_scores_and_without_chunks_nothing_is_asked(server: CohereServer) -> None:
    server.answered = {"id": "1", "results": [{"index": n, "relevance_score": n / 10} for n in range(4)]}
    with closing(CohereReranker(api_key=KEY, base_url=server.url)) as reranker:
        assert [chunk.content for chunk in reranker.rerank("boat?", CHUNKS, 2)] == [TEXTS[3], TEXTS[2]]
        assert len(reranker.rerank("boat?", CHUNKS, 9)) == 4
        assert reranker.rerank("boat?", [], 3) == []
    assert len(server.requests) == 2


@pytest.mark.parametrize("order", [[0, 0], [9], [-1]])
def test_an_order_of_other_chunks_is_refused(server: CohereServer, order: list[int]) -> None:
    server.order = order
    with (
        closing(CohereReranker(api_key=KEY, base_url=server.url)) as reranker,
        pytest.raises(ServiceError, match="did not rank 2 of 4 chunks"),
    ):
        reranker.rerank("boat?", CHUNKS, 2)


def test_cohere_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CO_API_KEY", raising=False)
    reranker = CohereReranker()  # only its use needs one: settings are checked without
    assert reranker.rerank("which", [], 1) == []
    with pytest.raises(ConfigurationError, match="needs a key: set CO_API_KEY"):
        reranker.rerank("which", CHUNKS, 1)


def test_maxsim_lifts_what_says_the_same_and_its_weight_decides_how_far() -> None:
    texts = ["Invoices are paid within a month.", "Bread is baked before dawn.", "The last ferry sails at noon."]
    chunks = [Chunk(generate_chunk_id(text), text, DocumentId("a.md")) for text in texts]
    query = "When does the boat leave?"
    assert MaxSimReranker(weight=0.0).rerank(query, chunks, 3) == chunks
    assert MaxSimReranker(weight=1.0).rerank(query, chunks, 3)[0] == chunks[2]
    assert MaxSimReranker(weight=1.0).rerank("", chunks, 3) == chunks
    assert MaxSimReranker().rerank(query, [], 3) == []
    assert MaxSimReranker().rerank(query, chunks, 2) == MaxSimReranker().rerank(query, chunks, 3)[:2]
    with pytest.raises(ConfigurationError, match="expected a number of at most 1"):
        MaxSimReranker(weight=2.0)
