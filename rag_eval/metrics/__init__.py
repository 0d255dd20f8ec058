"""Score what was retrieved, from spans or chunk ids. To add a metric, write its class and register it here."""

from rag_eval.parts import Kind

METRIC = Kind(
    "metric",
    {
        "span_recall": "rag_eval.metrics.formulas:SpanRecall",
        "span_precision": "rag_eval.metrics.formulas:SpanPrecision",
        "span_iou": "rag_eval.metrics.formulas:SpanIoU",
        "span_hit_rate": "rag_eval.metrics.formulas:SpanHitRate",
        "span_mrr": "rag_eval.metrics.formulas:SpanMRR",
        "span_map": "rag_eval.metrics.formulas:SpanMAP",
        "span_ndcg": "rag_eval.metrics.formulas:SpanNDCG",
        "span_f1": "rag_eval.metrics.formulas:SpanF1",
        "chroma_recall": "rag_eval.metrics.formulas:ChromaRecall",
        "chroma_precision": "rag_eval.metrics.formulas:ChromaPrecision",
        "chroma_iou": "rag_eval.metrics.formulas:ChromaIoU",
        "precision_omega": "rag_eval.metrics.formulas:PrecisionOmega",
        "tokens_retrieved": "rag_eval.metrics.formulas:TokensRetrieved",
        "unjudged": "rag_eval.metrics.formulas:Unjudged",
        "complete_evidence": "rag_eval.metrics.formulas:CompleteEvidence",
        "chunk_recall": "rag_eval.metrics.formulas:ChunkRecall",
        "chunk_precision": "rag_eval.metrics.formulas:ChunkPrecision",
        "chunk_f1": "rag_eval.metrics.formulas:ChunkF1",
        "chunk_hit_rate": "rag_eval.metrics.formulas:ChunkHitRate",
        "chunk_mrr": "rag_eval.metrics.formulas:ChunkMRR",
        "chunk_map": "rag_eval.metrics.formulas:ChunkMAP",
        "chunk_ndcg": "rag_eval.metrics.formulas:ChunkNDCG",
        "recall_within_tokens": "rag_eval.metrics.formulas:RecallWithinTokens",
        "tokens_fetched": "rag_eval.metrics.formulas:TokensFetched",
    },
    foreign="rag_eval.metrics.evaluate:ForeignMetric",
)
