"""The names that ``rag_eval`` offers."""

from rag_eval.benchmark.evaluations import ChunkLevelEvaluation, TokenLevelEvaluation
from rag_eval.benchmark.experiment import ExperimentResult, ExperimentTables, run_experiment
from rag_eval.benchmark.langsmith_evaluation import Evaluation, UnpublishedRunWarning
from rag_eval.benchmark.run_losses import retrieval_losses
from rag_eval.chunking.certify import Certificate, certify, compare_certificates
from rag_eval.chunking.chunker import Chunker, PositionAwareChunker
from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.foreign import as_chunker
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.chunking.placement import ChunkerPositionAdapter, PlacementReport, SkippedChunkWarning, as_position_aware
from rag_eval.chunking.recursive import RecursiveCharacterChunker, RecursiveTokenChunker
from rag_eval.chunking.semantic import ClusterSemanticChunker, SemanticChunker
from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.embedding.cache import CachedEmbedder, CacheStatistics, EmbeddingCache
from rag_eval.embedding.embedder import Embedder, Usage, Vectors
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.embedding.openai import OpenAIEmbedder, RequestLimits
from rag_eval.embedding.sentence_transformers import SentenceTransformersEmbedder
from rag_eval.errors import (
    ArtifactError,
    BenchmarkFailedError,
    ConfigurationError,
    ConfigurationFailedError,
    CorpusError,
    CorpusFolderError,
    DuplicateDocumentError,
    EmptyCorpusError,
    ExperimentError,
    ExperimentFailedError,
    GroundTruthError,
    InvalidSpanError,
    RagEvalError,
    RequestRefusedError,
    ServiceError,
    SpanError,
    SpanMismatchError,
    TableError,
    TextEncodingError,
)
from rag_eval.experiments.running import evaluatorq, experiment
from rag_eval.generation.levels import (
    ChunkLevelDataGenerator,
    ChunkLevelSyntheticDatasetGenerator,
    TokenLevelDataGenerator,
    TokenLevelSyntheticDatasetGenerator,
)
from rag_eval.generation.options import FilterOptions, GenerationOptions
from rag_eval.generation.report import GenerationReport
from rag_eval.ground_truth.files import read_chunk_level, read_token_level, write_chunk_level, write_token_level
from rag_eval.llm.cost import Prices
from rag_eval.metrics.chroma import ChromaIoU, ChromaPrecision, ChromaRecall, ChunkedCorpus, PrecisionOmega
from rag_eval.metrics.chunk_metrics import (
    ChunkF1,
    ChunkHitRate,
    ChunkMAP,
    ChunkMRR,
    ChunkNDCG,
    ChunkPrecision,
    ChunkRecall,
)
from rag_eval.metrics.evaluate import evaluate_chunk_level, evaluate_token_level
from rag_eval.metrics.intervals import calculate_overlap, merge_overlapping_spans
from rag_eval.metrics.losses import HitStages, average_losses, chunk_level_losses, token_level_losses
from rag_eval.metrics.metric import ChunkLevelMetric, TokenLevelMetric
from rag_eval.metrics.registry import chunk_level_metric, token_level_metric
from rag_eval.metrics.score_tables import score_chunk_level, score_token_level
from rag_eval.metrics.span_metrics import (
    SpanHitRate,
    SpanIoU,
    SpanMAP,
    SpanMRR,
    SpanNDCG,
    SpanPrecision,
    SpanRecall,
    TokensRetrieved,
    TokenUnit,
)
from rag_eval.retrieval.bm25 import BM25Retriever
from rag_eval.retrieval.fusion import HybridRetriever
from rag_eval.retrieval.rerankers import CohereReranker, CrossEncoderReranker, LexicalReranker
from rag_eval.retrieval.retriever import AnyChunker, Hit, Reranker, Retriever
from rag_eval.retrieval.systems import CallableRetriever
from rag_eval.retrieval.vector import VectorRAGRetriever
from rag_eval.retry import RetryPolicy
from rag_eval.stores.chroma import ChromaVectorStore
from rag_eval.stores.lance import Hnsw, IvfPq, LanceDBVectorStore
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.stores.store import AnyChunk, SearchResult, StoreHit, VectorStore
from rag_eval.types.chunks import CharacterSpan, Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ground_truth import (
    ChunkLevelDatasetExample,
    ChunkLevelGroundTruth,
    ChunkLevelRunOutput,
    EvaluationResult,
    Query,
    TokenLevelDatasetExample,
    TokenLevelGroundTruth,
    TokenLevelRunOutput,
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

__all__ = [
    "AnyChunk",
    "AnyChunker",
    "ArtifactError",
    "BM25Retriever",
    "BenchmarkFailedError",
    "CacheStatistics",
    "CachedEmbedder",
    "CallableRetriever",
    "Certificate",
    "CharacterSpan",
    "ChromaIoU",
    "ChromaPrecision",
    "ChromaRecall",
    "ChromaVectorStore",
    "Chunk",
    "ChunkF1",
    "ChunkHitRate",
    "ChunkId",
    "ChunkLevelDataGenerator",
    "ChunkLevelDatasetExample",
    "ChunkLevelEvaluation",
    "ChunkLevelGroundTruth",
    "ChunkLevelMetric",
    "ChunkLevelRunOutput",
    "ChunkLevelSyntheticDatasetGenerator",
    "ChunkMAP",
    "ChunkMRR",
    "ChunkNDCG",
    "ChunkPrecision",
    "ChunkRecall",
    "ChunkedCorpus",
    "Chunker",
    "ChunkerPositionAdapter",
    "ClusterSemanticChunker",
    "CohereReranker",
    "ConfigurationError",
    "ConfigurationFailedError",
    "Corpus",
    "CorpusError",
    "CorpusFolderError",
    "CrossEncoderReranker",
    "Document",
    "DocumentId",
    "DuplicateDocumentError",
    "Embedder",
    "EmbeddingCache",
    "EmptyCorpusError",
    "Evaluation",
    "EvaluationResult",
    "EvaluationType",
    "ExperimentError",
    "ExperimentFailedError",
    "ExperimentResult",
    "ExperimentTables",
    "FilterOptions",
    "FixedTokenChunker",
    "GenerationOptions",
    "GenerationReport",
    "GroundTruthError",
    "Hit",
    "HitStages",
    "Hnsw",
    "HybridRetriever",
    "InMemoryVectorStore",
    "InvalidSpanError",
    "IvfPq",
    "LanceDBVectorStore",
    "LexicalReranker",
    "LocalEmbedder",
    "MarkdownChunker",
    "OpenAIEmbedder",
    "PlacementReport",
    "PositionAwareChunk",
    "PositionAwareChunkId",
    "PositionAwareChunker",
    "PrecisionOmega",
    "Prices",
    "Query",
    "QueryId",
    "QueryText",
    "RagEvalError",
    "RecursiveCharacterChunker",
    "RecursiveTokenChunker",
    "RequestLimits",
    "RequestRefusedError",
    "Reranker",
    "Retriever",
    "RetryPolicy",
    "SearchResult",
    "SemanticChunker",
    "SentenceChunker",
    "SentenceTransformersEmbedder",
    "ServiceError",
    "SkippedChunkWarning",
    "SpanError",
    "SpanHitRate",
    "SpanIoU",
    "SpanMAP",
    "SpanMRR",
    "SpanMismatchError",
    "SpanNDCG",
    "SpanPrecision",
    "SpanRecall",
    "StoreHit",
    "TableError",
    "TextEncodingError",
    "TokenLevelDataGenerator",
    "TokenLevelDatasetExample",
    "TokenLevelEvaluation",
    "TokenLevelGroundTruth",
    "TokenLevelMetric",
    "TokenLevelRunOutput",
    "TokenLevelSyntheticDatasetGenerator",
    "TokenUnit",
    "TokensRetrieved",
    "UnpublishedRunWarning",
    "Usage",
    "VectorRAGRetriever",
    "VectorStore",
    "Vectors",
    "as_chunker",
    "as_position_aware",
    "average_losses",
    "calculate_overlap",
    "certify",
    "chunk_level_losses",
    "chunk_level_metric",
    "compare_certificates",
    "evaluate_chunk_level",
    "evaluate_token_level",
    "evaluatorq",
    "experiment",
    "generate_chunk_id",
    "generate_pa_chunk_id",
    "generate_query_id",
    "merge_overlapping_spans",
    "read_chunk_level",
    "read_token_level",
    "retrieval_losses",
    "run_experiment",
    "score_chunk_level",
    "score_token_level",
    "token_level_losses",
    "token_level_metric",
    "write_chunk_level",
    "write_token_level",
]
