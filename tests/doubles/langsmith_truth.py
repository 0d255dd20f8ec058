"""Ground truth to push and pull, with texts as ugly as they come."""

from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, DocumentId, QueryId, QueryText

UGLY = "Où est 👩🏽‍🚀?\r\n\u2028<|endoftext|> <script> \x1b[31m [red] שלום 漢字"


def span(text: str, doc_id: str = "a.md", start: int = 7) -> CharacterSpan:
    return CharacterSpan(DocumentId(doc_id), start, start + len(text), text)


def spans_of(*queries: str) -> list[TokenLevelGroundTruth]:
    return [TokenLevelGroundTruth(Query.from_text(query), [span(f"answer to {query}")]) for query in queries]


def token_level() -> list[TokenLevelGroundTruth]:
    """In the order of the query ids, with all that the schema knows."""
    full = {
        "source_docs": ["a.md", "b.md"],
        "generation_model": "model-1",
        "generation_type": "synthetic",
        "persona": "crew",
        "difficulty": "hard",
        "query_type": "multi-hop",
    }
    own = {"generation_type": "manual", "source_docs": ["a.md"], "note": {"deep": [1, 2.5, None, UGLY]}}
    nobody = {"generation_type": "manual", "source_docs": []}
    return [
        TokenLevelGroundTruth(Query(QueryId("q1"), QueryText("both?"), full), [span("x"), span(UGLY, "b.md", 0)]),
        TokenLevelGroundTruth(Query(QueryId("q2"), QueryText(UGLY), own), [span(UGLY)]),
        TokenLevelGroundTruth(Query(QueryId("q3"), QueryText("who?"), nobody), [], unanswerable=True),
    ]


def chunk_level() -> list[ChunkLevelGroundTruth]:
    metadata = {"generation_type": "manual", "chunker": "RecursiveCharacterChunker(chunk_size=30)"}
    return [
        ChunkLevelGroundTruth(
            Query(QueryId("c1"), QueryText("which?"), metadata), [ChunkId("chunk_a"), ChunkId("chunk_b")]
        ),
        ChunkLevelGroundTruth(Query(QueryId("c2"), QueryText("none?"), metadata), [], unanswerable=True),
    ]
