"""Measure retrieval for RAG: which way of chunking, embedding and searching brings back the right content."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_eval.benchmark.evaluations import ChunkLevelEvaluation as ChunkLevelEvaluation
    from rag_eval.benchmark.evaluations import TokenLevelEvaluation as TokenLevelEvaluation
    from rag_eval.benchmark.experiment import RetrievalResult as RetrievalResult
    from rag_eval.benchmark.experiment import run_experiment as run_experiment
    from rag_eval.benchmark.langsmith_evaluation import Evaluation as Evaluation
    from rag_eval.benchmark.langsmith_evaluation import UnpublishedRunWarning as UnpublishedRunWarning
    from rag_eval.benchmark.run_losses import retrieval_losses as retrieval_losses
    from rag_eval.chunking.certify import Certificate as Certificate
    from rag_eval.chunking.certify import certify as certify
    from rag_eval.chunking.certify import compare_certificates as compare_certificates
    from rag_eval.chunking.chunker import Chunker as Chunker
    from rag_eval.chunking.chunker import PositionAwareChunker as PositionAwareChunker
    from rag_eval.chunking.fixed_token import FixedTokenChunker as FixedTokenChunker
    from rag_eval.chunking.foreign import as_chunker as as_chunker
    from rag_eval.chunking.markdown import MarkdownChunker as MarkdownChunker
    from rag_eval.chunking.placement import ChunkerPositionAdapter as ChunkerPositionAdapter
    from rag_eval.chunking.placement import SkippedChunkWarning as SkippedChunkWarning
    from rag_eval.chunking.placement import as_position_aware as as_position_aware
    from rag_eval.chunking.recursive import RecursiveCharacterChunker as RecursiveCharacterChunker
    from rag_eval.chunking.recursive import RecursiveTokenChunker as RecursiveTokenChunker
    from rag_eval.chunking.semantic import ClusterSemanticChunker as ClusterSemanticChunker
    from rag_eval.chunking.semantic import SemanticChunker as SemanticChunker
    from rag_eval.chunking.sentence import SentenceChunker as SentenceChunker
    from rag_eval.embedding.cache import CachedEmbedder as CachedEmbedder
    from rag_eval.embedding.cache import EmbeddingCache as EmbeddingCache
    from rag_eval.embedding.embedder import Embedder as Embedder
    from rag_eval.embedding.embedder import Usage as Usage
    from rag_eval.embedding.local import LocalEmbedder as LocalEmbedder
    from rag_eval.embedding.openai import OpenAIEmbedder as OpenAIEmbedder
    from rag_eval.embedding.openai import RequestLimits as RequestLimits
    from rag_eval.embedding.sentence_transformers import SentenceTransformersEmbedder as SentenceTransformersEmbedder
    from rag_eval.errors import ArtifactError as ArtifactError
    from rag_eval.errors import BenchmarkFailedError as BenchmarkFailedError
    from rag_eval.errors import ConfigurationError as ConfigurationError
    from rag_eval.errors import ConfigurationFailedError as ConfigurationFailedError
    from rag_eval.errors import CorpusError as CorpusError
    from rag_eval.errors import CorpusFolderError as CorpusFolderError
    from rag_eval.errors import DuplicateDocumentError as DuplicateDocumentError
    from rag_eval.errors import EmptyCorpusError as EmptyCorpusError
    from rag_eval.errors import ExperimentError as ExperimentError
    from rag_eval.errors import ExperimentFailedError as ExperimentFailedError
    from rag_eval.errors import GateFailedError as GateFailedError
    from rag_eval.errors import GroundTruthError as GroundTruthError
    from rag_eval.errors import InvalidSpanError as InvalidSpanError
    from rag_eval.errors import RagEvalError as RagEvalError
    from rag_eval.errors import RequestRefusedError as RequestRefusedError
    from rag_eval.errors import ReviewConflictError as ReviewConflictError
    from rag_eval.errors import ServiceError as ServiceError
    from rag_eval.errors import SpanError as SpanError
    from rag_eval.errors import SpanMismatchError as SpanMismatchError
    from rag_eval.errors import TableError as TableError
    from rag_eval.errors import TextEncodingError as TextEncodingError
    from rag_eval.experiments.running import evaluatorq as evaluatorq
    from rag_eval.experiments.running import experiment as experiment
    from rag_eval.experiments.types import ExperimentResult as ExperimentResult
    from rag_eval.generation.levels import ChunkLevelDataGenerator as ChunkLevelDataGenerator
    from rag_eval.generation.levels import ChunkLevelSyntheticDatasetGenerator as ChunkLevelSyntheticDatasetGenerator
    from rag_eval.generation.levels import TokenLevelDataGenerator as TokenLevelDataGenerator
    from rag_eval.generation.levels import TokenLevelSyntheticDatasetGenerator as TokenLevelSyntheticDatasetGenerator
    from rag_eval.generation.options import FilterOptions as FilterOptions
    from rag_eval.generation.options import GenerationOptions as GenerationOptions
    from rag_eval.generation.report import GenerationReport as GenerationReport
    from rag_eval.ground_truth.files import read_chunk_level as read_chunk_level
    from rag_eval.ground_truth.files import read_token_level as read_token_level
    from rag_eval.ground_truth.files import write_chunk_level as write_chunk_level
    from rag_eval.ground_truth.files import write_token_level as write_token_level
    from rag_eval.llm.cost import Prices as Prices
    from rag_eval.metrics.chroma import ChromaIoU as ChromaIoU
    from rag_eval.metrics.chroma import ChromaPrecision as ChromaPrecision
    from rag_eval.metrics.chroma import ChromaRecall as ChromaRecall
    from rag_eval.metrics.chroma import ChunkedCorpus as ChunkedCorpus
    from rag_eval.metrics.chroma import PrecisionOmega as PrecisionOmega
    from rag_eval.metrics.chunk_metrics import ChunkF1 as ChunkF1
    from rag_eval.metrics.chunk_metrics import ChunkHitRate as ChunkHitRate
    from rag_eval.metrics.chunk_metrics import ChunkMAP as ChunkMAP
    from rag_eval.metrics.chunk_metrics import ChunkMRR as ChunkMRR
    from rag_eval.metrics.chunk_metrics import ChunkNDCG as ChunkNDCG
    from rag_eval.metrics.chunk_metrics import ChunkPrecision as ChunkPrecision
    from rag_eval.metrics.chunk_metrics import ChunkRecall as ChunkRecall
    from rag_eval.metrics.evaluate import evaluate_chunk_level as evaluate_chunk_level
    from rag_eval.metrics.evaluate import evaluate_token_level as evaluate_token_level
    from rag_eval.metrics.intervals import calculate_overlap as calculate_overlap
    from rag_eval.metrics.intervals import merge_overlapping_spans as merge_overlapping_spans
    from rag_eval.metrics.losses import average_losses as average_losses
    from rag_eval.metrics.losses import chunk_level_losses as chunk_level_losses
    from rag_eval.metrics.losses import token_level_losses as token_level_losses
    from rag_eval.metrics.metric import ChunkLevelMetric as ChunkLevelMetric
    from rag_eval.metrics.metric import Cut as Cut
    from rag_eval.metrics.metric import TokenLevelMetric as TokenLevelMetric
    from rag_eval.metrics.registry import chunk_level_metric as chunk_level_metric
    from rag_eval.metrics.registry import token_level_metric as token_level_metric
    from rag_eval.metrics.span_metrics import SpanHitRate as SpanHitRate
    from rag_eval.metrics.span_metrics import SpanIoU as SpanIoU
    from rag_eval.metrics.span_metrics import SpanMAP as SpanMAP
    from rag_eval.metrics.span_metrics import SpanMRR as SpanMRR
    from rag_eval.metrics.span_metrics import SpanNDCG as SpanNDCG
    from rag_eval.metrics.span_metrics import SpanPrecision as SpanPrecision
    from rag_eval.metrics.span_metrics import SpanRecall as SpanRecall
    from rag_eval.metrics.span_metrics import TokensRetrieved as TokensRetrieved
    from rag_eval.metrics.span_metrics import TokenUnit as TokenUnit
    from rag_eval.retrieval.bm25 import BM25Retriever as BM25Retriever
    from rag_eval.retrieval.fusion import HybridRetriever as HybridRetriever
    from rag_eval.retrieval.rerankers import CohereReranker as CohereReranker
    from rag_eval.retrieval.rerankers import CrossEncoderReranker as CrossEncoderReranker
    from rag_eval.retrieval.rerankers import LexicalReranker as LexicalReranker
    from rag_eval.retrieval.retriever import Hit as Hit
    from rag_eval.retrieval.retriever import Reranker as Reranker
    from rag_eval.retrieval.retriever import Retriever as Retriever
    from rag_eval.retrieval.systems import CallableRetriever as CallableRetriever
    from rag_eval.retrieval.vector import VectorRAGRetriever as VectorRAGRetriever
    from rag_eval.retry import RetryPolicy as RetryPolicy
    from rag_eval.stores.chroma import ChromaVectorStore as ChromaVectorStore
    from rag_eval.stores.lance import Hnsw as Hnsw
    from rag_eval.stores.lance import IvfPq as IvfPq
    from rag_eval.stores.lance import LanceDBVectorStore as LanceDBVectorStore
    from rag_eval.stores.memory import InMemoryVectorStore as InMemoryVectorStore
    from rag_eval.stores.store import VectorStore as VectorStore
    from rag_eval.types.chunks import CharacterSpan as CharacterSpan
    from rag_eval.types.chunks import Chunk as Chunk
    from rag_eval.types.chunks import PositionAwareChunk as PositionAwareChunk
    from rag_eval.types.documents import Corpus as Corpus
    from rag_eval.types.documents import Document as Document
    from rag_eval.types.ground_truth import ChunkLevelDatasetExample as ChunkLevelDatasetExample
    from rag_eval.types.ground_truth import ChunkLevelGroundTruth as ChunkLevelGroundTruth
    from rag_eval.types.ground_truth import ChunkLevelRunOutput as ChunkLevelRunOutput
    from rag_eval.types.ground_truth import EvaluationResult as EvaluationResult
    from rag_eval.types.ground_truth import Query as Query
    from rag_eval.types.ground_truth import TokenLevelDatasetExample as TokenLevelDatasetExample
    from rag_eval.types.ground_truth import TokenLevelGroundTruth as TokenLevelGroundTruth
    from rag_eval.types.ground_truth import TokenLevelRunOutput as TokenLevelRunOutput
    from rag_eval.types.ids import ChunkId as ChunkId
    from rag_eval.types.ids import DocumentId as DocumentId
    from rag_eval.types.ids import EvaluationType as EvaluationType
    from rag_eval.types.ids import PositionAwareChunkId as PositionAwareChunkId
    from rag_eval.types.ids import QueryId as QueryId
    from rag_eval.types.ids import QueryText as QueryText
    from rag_eval.types.ids import generate_chunk_id as generate_chunk_id
    from rag_eval.types.ids import generate_pa_chunk_id as generate_pa_chunk_id
    from rag_eval.types.ids import generate_query_id as generate_query_id

_NAMES = {
    "rag_eval.benchmark.evaluations": "ChunkLevelEvaluation TokenLevelEvaluation",
    "rag_eval.benchmark.experiment": "RetrievalResult run_experiment",
    "rag_eval.benchmark.langsmith_evaluation": "Evaluation UnpublishedRunWarning",
    "rag_eval.benchmark.run_losses": "retrieval_losses",
    "rag_eval.chunking.certify": "Certificate certify compare_certificates",
    "rag_eval.chunking.chunker": "Chunker PositionAwareChunker",
    "rag_eval.chunking.fixed_token": "FixedTokenChunker",
    "rag_eval.chunking.foreign": "as_chunker",
    "rag_eval.chunking.markdown": "MarkdownChunker",
    "rag_eval.chunking.placement": "ChunkerPositionAdapter SkippedChunkWarning as_position_aware",
    "rag_eval.chunking.recursive": "RecursiveCharacterChunker RecursiveTokenChunker",
    "rag_eval.chunking.semantic": "ClusterSemanticChunker SemanticChunker",
    "rag_eval.chunking.sentence": "SentenceChunker",
    "rag_eval.embedding.cache": "CachedEmbedder EmbeddingCache",
    "rag_eval.embedding.embedder": "Embedder Usage",
    "rag_eval.embedding.local": "LocalEmbedder",
    "rag_eval.embedding.openai": "OpenAIEmbedder RequestLimits",
    "rag_eval.embedding.sentence_transformers": "SentenceTransformersEmbedder",
    "rag_eval.errors": (
        "ArtifactError BenchmarkFailedError ConfigurationError ConfigurationFailedError CorpusError "
        "CorpusFolderError DuplicateDocumentError EmptyCorpusError ExperimentError ExperimentFailedError "
        "GateFailedError GroundTruthError InvalidSpanError RagEvalError RequestRefusedError ReviewConflictError "
        "ServiceError SpanError SpanMismatchError TableError TextEncodingError"
    ),
    "rag_eval.experiments.running": "evaluatorq experiment",
    "rag_eval.experiments.types": "ExperimentResult",
    "rag_eval.generation.levels": (
        "ChunkLevelDataGenerator ChunkLevelSyntheticDatasetGenerator TokenLevelDataGenerator "
        "TokenLevelSyntheticDatasetGenerator"
    ),
    "rag_eval.generation.options": "FilterOptions GenerationOptions",
    "rag_eval.generation.report": "GenerationReport",
    "rag_eval.ground_truth.files": "read_chunk_level read_token_level write_chunk_level write_token_level",
    "rag_eval.llm.cost": "Prices",
    "rag_eval.metrics.chroma": "ChromaIoU ChromaPrecision ChromaRecall ChunkedCorpus PrecisionOmega",
    "rag_eval.metrics.chunk_metrics": "ChunkF1 ChunkHitRate ChunkMAP ChunkMRR ChunkNDCG ChunkPrecision ChunkRecall",
    "rag_eval.metrics.evaluate": "evaluate_chunk_level evaluate_token_level",
    "rag_eval.metrics.intervals": "calculate_overlap merge_overlapping_spans",
    "rag_eval.metrics.losses": "average_losses chunk_level_losses token_level_losses",
    "rag_eval.metrics.metric": "ChunkLevelMetric Cut TokenLevelMetric",
    "rag_eval.metrics.registry": "chunk_level_metric token_level_metric",
    "rag_eval.metrics.span_metrics": (
        "SpanHitRate SpanIoU SpanMAP SpanMRR SpanNDCG SpanPrecision SpanRecall TokenUnit TokensRetrieved"
    ),
    "rag_eval.retrieval.bm25": "BM25Retriever",
    "rag_eval.retrieval.fusion": "HybridRetriever",
    "rag_eval.retrieval.rerankers": "CohereReranker CrossEncoderReranker LexicalReranker",
    "rag_eval.retrieval.retriever": "Hit Reranker Retriever",
    "rag_eval.retrieval.systems": "CallableRetriever",
    "rag_eval.retrieval.vector": "VectorRAGRetriever",
    "rag_eval.retry": "RetryPolicy",
    "rag_eval.stores.chroma": "ChromaVectorStore",
    "rag_eval.stores.lance": "Hnsw IvfPq LanceDBVectorStore",
    "rag_eval.stores.memory": "InMemoryVectorStore",
    "rag_eval.stores.store": "VectorStore",
    "rag_eval.types.chunks": "CharacterSpan Chunk PositionAwareChunk",
    "rag_eval.types.documents": "Corpus Document",
    "rag_eval.types.ground_truth": (
        "ChunkLevelDatasetExample ChunkLevelGroundTruth ChunkLevelRunOutput EvaluationResult Query "
        "TokenLevelDatasetExample TokenLevelGroundTruth TokenLevelRunOutput"
    ),
    "rag_eval.types.ids": (
        "ChunkId DocumentId EvaluationType PositionAwareChunkId QueryId QueryText generate_chunk_id "
        "generate_pa_chunk_id generate_query_id"
    ),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES, key=lambda name: (not name.isupper(), name[0].islower(), name))


def __getattr__(name: str) -> Any:
    """Load the module of a name when the name is first asked for, and no other module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
