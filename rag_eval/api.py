"""The names that ``rag_eval`` offers."""

from rag_eval.chunking.adapter import ChunkerPositionAdapter, PlacementReport, SkippedChunkWarning, as_position_aware
from rag_eval.chunking.base import Chunker, PositionAwareChunker
from rag_eval.chunking.certificate import Certificate, compare_certificates
from rag_eval.chunking.certify import certify
from rag_eval.chunking.cluster_semantic import ClusterSemanticChunker
from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.foreign import as_chunker
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.chunking.recursive_character import RecursiveCharacterChunker
from rag_eval.chunking.recursive_token import RecursiveTokenChunker
from rag_eval.chunking.semantic import SemanticChunker
from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.embedding.base import Embedder, Vectors
from rag_eval.embedding.batching import RequestLimits
from rag_eval.embedding.cache import CachedEmbedder, CacheStatistics, EmbeddingCache
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.embedding.retrying import RetryPolicy
from rag_eval.embedding.sentence_transformers import SentenceTransformersEmbedder
from rag_eval.embedding.usage import Usage
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
from rag_eval.evaluation.chunk_losses import chunk_level_losses
from rag_eval.evaluation.evaluations import ChunkLevelEvaluation, TokenLevelEvaluation
from rag_eval.evaluation.experiment import ExperimentResult, ExperimentTables, run_experiment
from rag_eval.evaluation.langsmith_evaluation import Evaluation
from rag_eval.evaluation.langsmith_link import UnpublishedRunWarning
from rag_eval.evaluation.losses import HitStages, average_losses
from rag_eval.evaluation.run_losses import retrieval_losses
from rag_eval.evaluation.span_losses import token_level_losses
from rag_eval.experiments.running import evaluatorq, experiment
from rag_eval.generation.chunk_level import ChunkLevelDataGenerator, ChunkLevelSyntheticDatasetGenerator
from rag_eval.generation.options import FilterOptions, GenerationOptions
from rag_eval.generation.prices import Prices
from rag_eval.generation.report import GenerationReport
from rag_eval.generation.token_level import TokenLevelDataGenerator, TokenLevelSyntheticDatasetGenerator
from rag_eval.ground_truth.native import read_chunk_level, read_token_level
from rag_eval.ground_truth.writing import write_chunk_level, write_token_level
from rag_eval.metrics import (
    ChromaIoU,
    ChromaPrecision,
    ChromaRecall,
    ChunkedCorpus,
    ChunkF1,
    ChunkHitRate,
    ChunkLevelMetric,
    ChunkMAP,
    ChunkMRR,
    ChunkNDCG,
    ChunkPrecision,
    ChunkRecall,
    PrecisionOmega,
    SpanHitRate,
    SpanIoU,
    SpanMAP,
    SpanMRR,
    SpanNDCG,
    SpanPrecision,
    SpanRecall,
    TokenLevelMetric,
    TokensRetrieved,
    TokenUnit,
    calculate_overlap,
    chunk_level_metric,
    evaluate_chunk_level,
    evaluate_token_level,
    merge_overlapping_spans,
    score_chunk_level,
    score_token_level,
    token_level_metric,
)
from rag_eval.reranking.cohere import CohereReranker
from rag_eval.reranking.cross_encoder import CrossEncoderReranker
from rag_eval.reranking.lexical import LexicalReranker
from rag_eval.retrieval.base import Hit, Reranker, Retriever
from rag_eval.retrieval.callable import CallableRetriever
from rag_eval.retrieval.chunked import AnyChunker
from rag_eval.retrieval.hybrid import HybridRetriever
from rag_eval.retrieval.lexical import BM25Retriever
from rag_eval.retrieval.vector import VectorRAGRetriever
from rag_eval.stores.base import AnyChunk, SearchResult, StoreHit, VectorStore
from rag_eval.stores.chroma import ChromaVectorStore
from rag_eval.stores.lance import LanceDBVectorStore
from rag_eval.stores.lance_index import Hnsw, IvfPq
from rag_eval.stores.memory import InMemoryVectorStore
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
