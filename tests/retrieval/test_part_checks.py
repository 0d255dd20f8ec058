"""Parts that do not keep their word are named, before a wrong number is."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from rag_eval import (
    BM25Retriever,
    CallableRetriever,
    Chunk,
    Corpus,
    Document,
    DocumentId,
    HybridRetriever,
    InMemoryVectorStore,
    LocalEmbedder,
    PositionAwareChunk,
    Query,
    RecursiveCharacterChunker,
    SkippedChunkWarning,
    VectorRAGRetriever,
    generate_pa_chunk_id,
)
from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.retriever import C, reranked
from rag_eval.stores.rankings import Ranking

ONE = Corpus([Document(DocumentId("a.md"), "one two three. four five six. seven eight nine.")])
TWO = Corpus([Document(DocumentId("b.md"), "red green blue. black white grey. pink brown gold. silver.")])
CHUNKER = RecursiveCharacterChunker(chunk_size=16, chunk_overlap=0)
ASKED = [Query.from_text("one two three")]


def chunk(start: int) -> PositionAwareChunk:
    return PositionAwareChunk(generate_pa_chunk_id("x"), "x", DocumentId("a.md"), start, start + 1)


CANDIDATES = [chunk(start) for start in range(4)]


class Reranks:
    name = "Reranks"

    def __init__(self, give: Callable[[Sequence[C], int], object]) -> None:
        self._give = give

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        return self._give(chunks, top_k)  # type: ignore[return-value]  # the point of the tests


@pytest.mark.parametrize(
    "give",
    [
        lambda chunks, k: [chunk(9), *chunks[: k - 1]],
        lambda chunks, k: [chunks[0]] * k,
        lambda chunks, k: chunks[: k - 1],
        lambda chunks, k: [],
        lambda chunks, k: None,
        lambda chunks, k: list(range(k)),
        lambda chunks, k: [(found, 1.0) for found in chunks],
    ],
)
def test_a_reranker_must_give_so_many_of_its_candidates(give: Callable[[Sequence[C], int], object]) -> None:
    with pytest.raises(ConfigurationError, match=r"Reranks returned .*: return 3 different ones"):
        reranked(Reranks(give), "?", CANDIDATES[:3])
    retriever = VectorRAGRetriever(CHUNKER, LocalEmbedder(), reranker=Reranks(give))
    retriever.index(ONE)
    with pytest.raises(ConfigurationError, match="Reranks returned"):
        retriever.retrieve(ASKED, 3)


def test_a_reranker_is_asked_for_all_and_may_give_them_one_by_one_or_more() -> None:
    assert reranked(Reranks(lambda chunks, k: (one for one in reversed(chunks[:k]))), "?", CANDIDATES) == [3, 2, 1, 0]
    assert reranked(Reranks(lambda chunks, k: [*chunks, chunk(9)]), "?", CANDIDATES) == [0, 1, 2, 3]
    assert reranked(Reranks(lambda chunks, k: None), "?", []) == []


def test_a_corpus_without_chunks_is_refused_with_the_chunker_and_the_count() -> None:
    class Lost:
        name = "lost"

        def chunk(self, text: str) -> list[str]:
            return ["nothing of it"]

    class Empty(Lost):
        def chunk(self, text: str) -> list[str]:
            return []

    for retriever in (VectorRAGRetriever(Lost(), LocalEmbedder()), BM25Retriever(Lost())):
        with (
            pytest.warns(SkippedChunkWarning),
            pytest.raises(ConfigurationError, match=r"\(lost\) made no chunks of 1 documents \(1 were left out"),
        ):
            retriever.index(ONE)
    with pytest.raises(ConfigurationError, match="lost made no chunks of 1 documents"):
        VectorRAGRetriever(Empty(), LocalEmbedder(), evaluation_type="chunk-level").index(ONE)


def test_a_failed_embedding_leaves_the_index_as_it_was_and_a_failed_store_leaves_none() -> None:
    class Flaky(LocalEmbedder):
        down = False

        def embed(self, texts: Sequence[str]) -> np.ndarray:
            if self.down:
                raise OSError("service down")
            return super().embed(texts)

    class Full(InMemoryVectorStore):
        full = False

        def add(self, chunks: Sequence[Chunk | PositionAwareChunk], embeddings: np.ndarray) -> None:
            if self.full:
                raise OSError("disk full")
            super().add(chunks, embeddings)

    embedder, store = Flaky(), Full()
    retriever = VectorRAGRetriever(CHUNKER, embedder, store)
    retriever.index(ONE)
    before = retriever.retrieve(ASKED, 2)
    embedder.down = True
    with pytest.raises(OSError, match="service down"):
        retriever.index(TWO)
    embedder.down = False
    assert retriever.retrieve(ASKED, 2) == before
    store.full = True
    with pytest.raises(OSError, match="disk full"):
        retriever.index(TWO)
    with pytest.raises(ConfigurationError, match="has no corpus yet"):
        retriever.retrieve(ASKED, 2)


def test_one_store_serves_one_retriever_at_a_time() -> None:
    store = InMemoryVectorStore()
    first, second = (VectorRAGRetriever(CHUNKER, LocalEmbedder(), store) for _ in range(2))
    first.index(ONE)
    second.index(ONE)
    assert second.retrieve(ASKED, 1)[0][0].chunk.content == "one two three."
    with pytest.raises(
        ConfigurationError, match="has since been filled with other chunks: give each retriever its own"
    ):
        first.retrieve(ASKED, 1)
    first.index(TWO)
    assert first.retrieve(ASKED, 1)
    hybrid = HybridRetriever([first, second])
    hybrid.index(ONE)
    with pytest.raises(ConfigurationError, match="has since been filled with other chunks"):
        hybrid.retrieve(ASKED, 1)
    store.clear()
    with pytest.raises(ConfigurationError, match="has since been filled with other chunks"):
        second.retrieve(ASKED, 1)


def test_a_hybrid_has_retrievers_of_one_chunker_and_one_type() -> None:
    words, other = BM25Retriever(CHUNKER), BM25Retriever(RecursiveCharacterChunker(chunk_size=20, chunk_overlap=0))
    with pytest.raises(ConfigurationError, match=r"chunk_size=16.* and .*chunk_size=20.*: give all the same chunker"):
        HybridRetriever([words, other])
    with pytest.raises(ConfigurationError, match=r"\(token-level\) and .*\(chunk-level\): give all the same chunker"):
        HybridRetriever([words, BM25Retriever(CHUNKER, evaluation_type="chunk-level")])  # type: ignore[list-item]


def test_a_hybrid_fuses_candidates_deeper_than_k_and_what_is_reranked_by_rank() -> None:
    class Watched(BM25Retriever[PositionAwareChunk]):
        def _search(self, texts: Sequence[str], k: int) -> Ranking:
            depths.append(k)
            return super()._search(texts, k)

    depths: list[int] = []
    vectors = VectorRAGRetriever(CHUNKER, LocalEmbedder(), reranker=Reranks(lambda chunks, k: list(chunks)[::-1]))
    for fetch_k in (None, 7):
        hybrid = HybridRetriever([Watched(CHUNKER), vectors], fetch_k=fetch_k)
        hybrid.index(ONE)
        assert len(hybrid.retrieve(ASKED, 2)[0]) == 2
    assert depths == [50, 7]
    assert hybrid.name.count(" by rank") == 1
    assert vectors.scoring(["one"]) is None


def test_k_and_fetch_k_are_at_least_one_and_fetch_k_is_in_the_name() -> None:
    reranker = Reranks(lambda chunks, k: chunks[:k])
    parts = [BM25Retriever(CHUNKER), VectorRAGRetriever(CHUNKER, LocalEmbedder())]
    for retriever in (*parts, HybridRetriever(parts), VectorRAGRetriever(CHUNKER, LocalEmbedder(), reranker=reranker)):
        retriever.index(ONE)
        for k in (0, -1):
            with pytest.raises(ConfigurationError, match=f"k is {k}: ask for at least one chunk"):
                retriever.retrieve(ASKED, k)
        assert len(retriever.retrieve(ASKED, np.int64(1))[0]) == 1  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="fetch_k is 0"):
        HybridRetriever(parts, fetch_k=0)
    names = [VectorRAGRetriever(CHUNKER, LocalEmbedder(), None, reranker, fetch_k=n).name for n in (None, 20, 30)]
    names += [HybridRetriever(parts, fetch_k=n).name for n in (None, 20, 30)]
    assert len(set(names)) == 6
    assert VectorRAGRetriever(CHUNKER, LocalEmbedder(), fetch_k=20).name == parts[1].name
    with pytest.raises(ConfigurationError, match="k1 = nan"):
        BM25Retriever(CHUNKER, k1=float("nan"))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: VectorRAGRetriever(CHUNKER, "text-embedding-3-small"), "is not an embedder"),
        (lambda: VectorRAGRetriever(CHUNKER, LocalEmbedder), "is not an embedder"),
        (lambda: VectorRAGRetriever(LocalEmbedder(), LocalEmbedder()), "is not a chunker"),
        (lambda: VectorRAGRetriever(RecursiveCharacterChunker, LocalEmbedder()), "is not a chunker"),
        (lambda: BM25Retriever(RecursiveCharacterChunker, evaluation_type="chunk-level"), "is not a chunker"),
        (lambda: VectorRAGRetriever(CHUNKER, LocalEmbedder(), InMemoryVectorStore), "is not a vector store"),
        (lambda: VectorRAGRetriever(CHUNKER, LocalEmbedder(), reranker="cohere"), "is not a reranker"),
        (lambda: HybridRetriever([BM25Retriever(CHUNKER), CHUNKER]), "cannot be fused: give VectorRAGRetriever"),
        (lambda: CallableRetriever("search"), "cannot be searched"),
    ],
)
def test_a_wrong_part_is_refused_where_it_is_given(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        make()
