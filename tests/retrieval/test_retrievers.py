from collections.abc import Sequence

import pytest

from rag_eval import Corpus, Document, DocumentId, LocalEmbedder, PositionAwareChunk, Query, generate_chunk_id
from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.retriever import C, Hit, Retriever, candidates_for
from rag_eval.retrieval.retrievers import BM25Retriever, HybridRetriever, VectorRAGRetriever
from rag_eval.retrieval.tokenizers import StemmedTokenizer

CORPUS = Corpus(
    [
        Document(DocumentId("b.md"), "The ferry leaves at noon.\n\nBread is baked from rye and water.\n\nSame words."),
        Document(DocumentId("a.md"), "Same words.\n\nThe captain drinks coffee in the wheelhouse."),
    ]
)
CHUNKER = RecursiveCharacterChunker(chunk_size=40, chunk_overlap=0)
FERRY, BREAD, SAME = (Query.from_text(text) for text in ("When does the boat depart?", "rye bread", "same words"))


def places(hits: Sequence[Hit[PositionAwareChunk]]) -> list[tuple[str, int, int]]:
    return [(hit.chunk.doc_id, hit.chunk.start, hit.chunk.end) for hit in hits]


def test_vectors_find_what_means_the_same() -> None:
    retriever = VectorRAGRetriever(CHUNKER, LocalEmbedder())
    retriever.index(CORPUS)
    ferry, bread = retriever.retrieve([FERRY, BREAD], 2)
    assert ferry[0].chunk.content == "The ferry leaves at noon."
    assert bread[0].chunk.content == "Bread is baked from rye and water."
    assert len(ferry) == 2
    assert ferry[0].score > ferry[1].score


def test_equal_texts_at_different_places_are_both_found_in_the_order_of_their_places() -> None:
    retrievers: list[Retriever[PositionAwareChunk]] = [
        VectorRAGRetriever(CHUNKER, LocalEmbedder()),
        BM25Retriever(CHUNKER),
        HybridRetriever([VectorRAGRetriever(CHUNKER, LocalEmbedder()), BM25Retriever(CHUNKER)]),
    ]
    for retriever in retrievers:
        retriever.index(CORPUS)
        (found,) = retriever.retrieve([SAME], 2)
        assert places(found) == [("a.md", 0, 11), ("b.md", 63, 74)]


def test_chunk_level_retrieval_has_chunk_ids_and_drops_none() -> None:
    retriever = VectorRAGRetriever(CHUNKER, LocalEmbedder(), evaluation_type="chunk-level")
    retriever.index(CORPUS)
    (found,) = retriever.retrieve([SAME], 9)
    assert [(hit.chunk.id, hit.chunk.doc_id, hit.chunk.metadata["ordinal"]) for hit in found[:2]] == [
        (generate_chunk_id("Same words."), "a.md", 0),
        (generate_chunk_id("Same words."), "b.md", 2),
    ]
    assert len(found) == len(retriever.indexed_chunks()) == 6


def test_a_plain_chunker_is_wrapped_and_its_name_says_so() -> None:
    class Halves:
        name = "Halves"

        def chunk(self, text: str) -> list[str]:
            return [text[: len(text) // 2], text[len(text) // 2 :]]

    retriever = BM25Retriever(Halves())
    retriever.index(CORPUS)
    assert retriever.name.startswith("PositionAdapter(Halves) + BM25")
    assert BM25Retriever(Halves(), evaluation_type="chunk-level").chunker_name == "Halves"
    assert [(chunk.doc_id, chunk.start) for chunk in retriever.indexed_chunks()][:2] == [("a.md", 0), ("a.md", 28)]


def test_words_are_those_of_the_tokenizer_which_the_name_tells() -> None:
    asked = Query.from_text("the captain drank coffees")
    plain, stemmed = BM25Retriever(CHUNKER), BM25Retriever(CHUNKER, tokenizer=StemmedTokenizer("english"))
    scores = []
    for retriever in (plain, stemmed):
        retriever.index(CORPUS)
        (found,) = retriever.retrieve([asked], 1)
        assert found[0].chunk.content.startswith("The captain drinks coffee")
        scores.append(found[0].score)
    assert scores[1] > scores[0] > 0
    assert plain.name.endswith("+ BM25(k1=1.5, b=0.75)")
    assert stemmed.name != plain.name
    assert "english" in stemmed.name


def test_a_reranker_sees_more_candidates_than_it_keeps() -> None:
    class Backwards:
        name = "Backwards"
        seen = 0

        def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
            self.seen = len(chunks)
            return list(reversed(chunks))[:top_k]

    reranker = Backwards()
    plain = VectorRAGRetriever(CHUNKER, LocalEmbedder())
    reranked = VectorRAGRetriever(CHUNKER, LocalEmbedder(), reranker=reranker, fetch_k=4)
    for retriever in (plain, reranked):
        retriever.index(CORPUS)
    (all_of_them,), (kept,) = plain.retrieve([FERRY], 4), reranked.retrieve([FERRY], 1)
    assert reranker.seen == 4
    assert places(kept) == places(all_of_them[3:])
    assert "Backwards" in reranked.name


def test_candidates_are_deeper_than_k() -> None:
    assert candidates_for(5, None) == 50
    assert candidates_for(20, None) == 200
    assert candidates_for(5, 7) == 7
    assert candidates_for(5, 2) == 5


def test_before_a_corpus_there_is_nothing_to_find() -> None:
    for retriever in (VectorRAGRetriever(CHUNKER, LocalEmbedder()), BM25Retriever(CHUNKER)):
        with pytest.raises(ConfigurationError, match=r"has no corpus yet: call index\(corpus\) first"):
            retriever.retrieve([FERRY], 1)
    with pytest.raises(ConfigurationError, match="needs two or more retrievers, found 1"):
        HybridRetriever([BM25Retriever(CHUNKER)])
