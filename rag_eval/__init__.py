"""Measure retrieval for RAG: which way of chunking, embedding and searching brings back the right content."""

from importlib import import_module
from typing import Any

# For type checkers the same names stand in __init__.pyi.
_NAMES = {
    "rag_eval.benchmark.evaluations": "ChunkLevelEvaluation TokenLevelEvaluation retrieval_losses",
    "rag_eval.benchmark.experiment": "RetrievalResult run_experiment",
    "rag_eval.benchmark.langsmith_evaluation": "Evaluation UnpublishedRunWarning",
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
    "rag_eval.metrics.metric": "ChunkLevelMetric Cut TokenLevelMetric chunk_level_metric token_level_metric",
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
