"""Scores for what was retrieved, from spans or from chunk ids; a metric is added by its class and its line here."""

from rag_eval.parts import Kind

METRIC = Kind(
    "metric",
    {
        "span_recall": "rag_eval.metrics.span_metrics:SpanRecall",
        "span_precision": "rag_eval.metrics.span_metrics:SpanPrecision",
        "span_iou": "rag_eval.metrics.span_metrics:SpanIoU",
        "span_hit_rate": "rag_eval.metrics.span_metrics:SpanHitRate",
        "span_mrr": "rag_eval.metrics.span_metrics:SpanMRR",
        "span_map": "rag_eval.metrics.span_metrics:SpanMAP",
        "span_ndcg": "rag_eval.metrics.span_metrics:SpanNDCG",
        "chroma_recall": "rag_eval.metrics.chroma_metrics:ChromaRecall",
        "chroma_precision": "rag_eval.metrics.chroma_metrics:ChromaPrecision",
        "chroma_iou": "rag_eval.metrics.chroma_metrics:ChromaIoU",
        "precision_omega": "rag_eval.metrics.chroma_metrics:PrecisionOmega",
        "tokens_retrieved": "rag_eval.metrics.span_metrics:TokensRetrieved",
        "unjudged": "rag_eval.metrics.span_metrics:Unjudged",
        "complete_evidence": "rag_eval.metrics.span_metrics:CompleteEvidence",
        "chunk_recall": "rag_eval.metrics.chunk_metrics:ChunkRecall",
        "chunk_precision": "rag_eval.metrics.chunk_metrics:ChunkPrecision",
        "chunk_f1": "rag_eval.metrics.chunk_metrics:ChunkF1",
        "chunk_hit_rate": "rag_eval.metrics.chunk_metrics:ChunkHitRate",
        "chunk_mrr": "rag_eval.metrics.chunk_metrics:ChunkMRR",
        "chunk_map": "rag_eval.metrics.chunk_metrics:ChunkMAP",
        "chunk_ndcg": "rag_eval.metrics.chunk_metrics:ChunkNDCG",
        "recall_within_tokens": "rag_eval.metrics.budget:RecallWithinTokens",
        "recall_token_area": "rag_eval.metrics.budget:RecallTokenArea",
        "tokens_fetched": "rag_eval.metrics.budget:TokensFetched",
    },
    foreign="rag_eval.metrics.own_metrics:ForeignMetric",
)
