"""Rerankers, retrievers and stores of other libraries and of users, as they are."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rag_eval.errors import ConfigurationError
from rag_eval.parts.part_settings import Place
from rag_eval.retrieval import RERANKER, RETRIEVER, SYSTEM
from rag_eval.retrieval.foreign_retrieval import ForeignReranker, ForeignRetriever, ForeignSystem
from rag_eval.stores import STORE
from rag_eval.stores.foreign_stores import ForeignStore
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import Query
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id

TEXT = "The ferry leaves at noon. Bread is baked at night. The ferry is full. The museum is closed."


def chunk(start: int, end: int) -> PositionAwareChunk:
    return PositionAwareChunk(generate_pa_chunk_id(TEXT[start:end]), TEXT[start:end], DocumentId("a.md"), start, end)


CHUNKS = [chunk(0, 25), chunk(26, 50), chunk(51, 69), chunk(70, 91)]
rng = np.random.default_rng(1)
VECTORS = rng.normal(size=(4, 8)).astype(np.float32)


def numbers(found: Sequence[PositionAwareChunk]) -> list[int]:
    return [CHUNKS.index(one) for one in found]


class Backwards:
    def rerank(self, query: str, chunks: Sequence[Any]) -> list[Any]:
        return list(reversed(chunks))


async def by_length(query: str, chunks: Sequence[Any]) -> list[float]:
    await asyncio.sleep(0)
    return [-len(one.content) for one in chunks]


def test_rerankers_of_users() -> None:
    assert numbers(ForeignReranker(Backwards()).rerank("q", CHUNKS, 4)) == [3, 2, 1, 0]
    assert numbers(ForeignReranker(by_length).rerank("q", CHUNKS, 2)) == [2, 3]
    first = ForeignReranker(lambda query, chunks: chunks[1:2], name="one only")
    assert numbers(first.rerank("q", CHUNKS)) == [1, 0, 2, 3]


@pytest.mark.parametrize("answer", [["other"], 5, None, [1.0]])
def test_a_reranker_that_gives_something_else_is_named(answer: object) -> None:
    with pytest.raises(ConfigurationError, match=r"the reranker odd returned"):
        ForeignReranker(lambda query, chunks: answer, name="odd").rerank("q", CHUNKS)


def test_rerankers_of_other_libraries() -> None:
    from haystack import Document as HaystackDocument
    from haystack import component
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor
    from langchain_core.documents import Document as LangChainDocument
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import NodeWithScore, QueryBundle
    from rerankers.models.ranker import BaseRanker
    from rerankers.results import RankedResults, Result
    from rerankers.utils import prep_docs

    class Shortest(BaseDocumentCompressor):
        top_n: int = 3

        def compress_documents(
            self, documents: Sequence[LangChainDocument], query: str, callbacks: Callbacks | None = None
        ) -> Sequence[LangChainDocument]:
            return sorted(documents, key=lambda one: len(one.page_content))[: self.top_n]

    class ShortestNode(BaseNodePostprocessor):
        def _postprocess_nodes(
            self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
        ) -> list[NodeWithScore]:
            return sorted(nodes, key=lambda one: len(one.node.get_content()))

    @component
    class ShortestDocument:
        @component.output_types(documents=list[HaystackDocument])
        def run(self, documents: list[HaystackDocument], query: str, top_k: int | None = None) -> dict[str, Any]:
            return {"documents": sorted(documents, key=lambda one: len(one.content or ""))[:top_k]}

    class ShortestRanker(BaseRanker):
        def __init__(self) -> None:
            super().__init__("shortest", verbose=0)

        def score(self, query: str, doc: str) -> float:
            return -float(len(doc))

        def rank(self, query: str, docs: Any, doc_ids: Any = None) -> RankedResults:
            prepared = prep_docs(docs, doc_ids)
            ranked = sorted(prepared, key=lambda one: len(one.text))
            results = [Result(document=one, score=1.0, rank=n + 1) for n, one in enumerate(ranked)]
            return RankedResults(results=results, query=query, has_scores=True)

    for source in (Shortest(), ShortestNode(), ShortestDocument(), ShortestRanker()):
        assert numbers(ForeignReranker(source).rerank("q", CHUNKS, 4)) == [2, 3, 1, 0]


MODULE = """
from rank_bm25 import BM25Okapi


class Scan:
    def __init__(self, least=1):
        self.least = least

    def index(self, chunks):
        self.chunks = chunks

    def search(self, query, k):
        words = set(query.split())
        found = [(one, len(words & set(one.content.split()))) for one in self.chunks]
        return sorted((pair for pair in found if pair[1] >= self.least), key=lambda pair: -pair[1])[:k]


def factory(chunks):
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    class First(BaseRetriever):
        def _retrieve(self, query_bundle):
            return [NodeWithScore(node=TextNode(text=chunks[1].content), score=0.5)]

    return First()


def everything(query, k):
    return ["The ferry is full."]
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "my_retrievers.py").write_text(MODULE)
    return Place("benchmark.yaml", "retrieval", tmp_path)


@pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset")  # it says so when it is imported
def test_retrievers_over_our_chunks(place: Place) -> None:
    bm25 = RETRIEVER.make({"type": "rank_bm25:BM25Okapi", "k1": 1.2}, place)
    assert bm25.search_chunks(CHUNKS, ["museum closed"], 4).chunks.tolist() == [3]
    langchain = RETRIEVER.make({"type": "langchain_community.retrievers:BM25Retriever", "k": 1}, place)
    assert len(langchain.search_chunks(CHUNKS, ["ferry"], 3).chunks) == 3
    scan = RETRIEVER.make("my_retrievers:Scan", place)
    assert isinstance(scan, ForeignRetriever)
    found = scan.search_chunks(CHUNKS, ["ferry full."], 4)
    assert (found.chunks.tolist(), found.scores.tolist()) == ([2, 0], [2.0, 1.0])
    among = np.array([True, True, False, True])
    assert scan.search_chunks(CHUNKS, ["ferry full."], 1, among).chunks.tolist() == [0]
    found = RETRIEVER.make("my_retrievers:factory", place).search_chunks(CHUNKS, ["x"], 3)
    assert (found.chunks.tolist(), found.scores.tolist()) == ([1], [0.5])


def test_systems_are_taken_as_they_are(place: Place) -> None:
    from haystack import Document as HaystackDocument
    from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from langchain_core.documents import Document as LangChainDocument
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from langchain_core.vectorstores import InMemoryVectorStore as LangChainStore

    store, ferry = InMemoryDocumentStore(), [Query.from_text("ferry")]
    store.write_documents([HaystackDocument(content=one.content) for one in CHUNKS])
    haystack = ForeignSystem(InMemoryBM25Retriever(store))
    assert len(haystack.search_many(ferry, 2)[0]) == 2
    vectors = LangChainStore(DeterministicFakeEmbedding(size=4))
    vectors.add_documents([LangChainDocument(page_content=one.content) for one in CHUNKS])
    assert len(ForeignSystem(vectors.as_retriever(search_kwargs={"k": 1})).search_many(ferry, 3)[0]) == 3
    function = SYSTEM.make("my_retrievers:everything", place)
    assert function.search_many(ferry, 1) == [["The ferry is full."]]
    function.index(Corpus([Document(DocumentId("a.md"), TEXT)]))


class Plain:
    """A store with the methods of the seeds, whose search gives chunks."""

    name = "plain"

    def __init__(self) -> None:
        self.clear()

    def add(self, chunks: Sequence[Any], embeddings: np.ndarray) -> None:
        self.chunks += chunks
        self.rows += list(embeddings)

    def search(self, query_embedding: np.ndarray, k: int) -> list[Any]:
        units = [row / np.linalg.norm(row) for row in self.rows]
        order = np.argsort([-float(unit @ query_embedding) for unit in units], kind="stable")
        return [self.chunks[number] for number in order[:k]]

    def clear(self) -> None:
        self.chunks: list[Any] = []
        self.rows: list[np.ndarray] = []


def test_stores_find_what_ours_finds(place: Place) -> None:
    ours = InMemoryVectorStore()
    ours.add(CHUNKS, VECTORS)
    queries = rng.normal(size=(5, 8)).astype(np.float32)
    wanted = ours.search_many(queries, 3).chunks.tolist()
    stores: list[Any] = [
        ForeignStore(Plain()),
        STORE.make("langchain_core.vectorstores:InMemoryVectorStore", place),
        STORE.make("llama_index.core.vector_stores:SimpleVectorStore", place),
    ]
    for store in stores:
        for _ in range(2):
            store.clear()
            store.add(CHUNKS, VECTORS)
            assert store.search_many(queries, 3).chunks.tolist() == wanted


@pytest.mark.parametrize(
    "as_given", [lambda chunk, score: SimpleNamespace(chunk=chunk, score=score), lambda *pair: pair]
)
def test_what_a_store_finds_may_come_with_a_score(as_given: Callable[[Any, float], Any]) -> None:
    class Scoring(Plain):
        name = "scoring"

        def search(self, query_embedding: np.ndarray, k: int) -> list[Any]:
            return [as_given(one, 0.5 - place) for place, one in enumerate(super().search(query_embedding, k))]

    scoring, plain = ForeignStore(Scoring()), ForeignStore(Plain())
    for store in (scoring, plain):
        store.add(CHUNKS, VECTORS)
    by_score, by_rank = (store.search_many(VECTORS[:1], 3) for store in (scoring, plain))
    assert by_score.chunks.tolist() == by_rank.chunks.tolist()
    assert by_score.scores.tolist() == [0.5, -0.5, -1.5]
    np.testing.assert_array_equal(by_rank.scores, np.array([1, 1 / 2, 1 / 3], np.float32))


def test_a_store_that_finds_what_it_was_not_given_is_named() -> None:
    class Inventing(Plain):
        name = "inventing"

        def search(self, query_embedding: np.ndarray, k: int) -> list[Any]:
            return [chunk(0, 5)]

    store = ForeignStore(Inventing())
    store.add(CHUNKS, VECTORS)
    with pytest.raises(ConfigurationError, match=r"the store inventing returned a chunk that was not added"):
        store.search_many(VECTORS[:1], 2)


@pytest.mark.parametrize(
    ("kind", "told"), [(RERANKER, "is not a reranker"), (SYSTEM, "cannot be searched"), (STORE, "is not a store")]
)
def test_an_object_of_another_kind_is_refused(kind: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        kind.take(object())
