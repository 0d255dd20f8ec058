"""Measure retrieval for RAG: which way of chunking, embedding and searching brings back the right content."""

from rag_eval.embedding.base import Embedder
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.errors import RagEvalError
from rag_eval.types.chunk import Chunk, PositionAwareChunk
from rag_eval.types.document import Corpus, Document
from rag_eval.types.ground_truth import (
    ChunkLevelDatasetExample,
    ChunkLevelGroundTruth,
    Query,
    TokenLevelDatasetExample,
    TokenLevelGroundTruth,
)
from rag_eval.types.ids import (
    ChunkId,
    DocumentId,
    EvaluationType,
    PositionAwareChunkId,
    QueryId,
    QueryText,
    generate_chunk_id,
    generate_pa_chunk_id,
    generate_query_id,
)
from rag_eval.types.result import ChunkLevelRunOutput, EvaluationResult, TokenLevelRunOutput
from rag_eval.types.span import CharacterSpan

__all__ = [
    "CharacterSpan",
    "Chunk",
    "ChunkId",
    "ChunkLevelDatasetExample",
    "ChunkLevelGroundTruth",
    "ChunkLevelRunOutput",
    "Corpus",
    "Document",
    "DocumentId",
    "Embedder",
    "EvaluationResult",
    "EvaluationType",
    "LocalEmbedder",
    "PositionAwareChunk",
    "PositionAwareChunkId",
    "Query",
    "QueryId",
    "QueryText",
    "RagEvalError",
    "TokenLevelDatasetExample",
    "TokenLevelGroundTruth",
    "TokenLevelRunOutput",
    "generate_chunk_id",
    "generate_pa_chunk_id",
    "generate_query_id",
]
