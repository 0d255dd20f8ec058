"""The built-in evaluators, by the name under which they are listed."""

from rag_eval.experiments.evaluators.composition import AllOf, AnyOf, Normalised, Threshold, Weighted
from rag_eval.experiments.evaluators.model import LLMJudge, from_orq
from rag_eval.experiments.evaluators.retrieval import MetricEvaluator
from rag_eval.experiments.evaluators.similarity import (
    BLEU,
    CosineSimilarity,
    LevenshteinSimilarity,
    RougeL,
    SemanticSimilarity,
)
from rag_eval.experiments.evaluators.text import Contains, ExactMatch, JsonValid, Regex

EVALUATORS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        ExactMatch,
        Contains,
        Regex,
        LevenshteinSimilarity,
        BLEU,
        RougeL,
        CosineSimilarity,
        SemanticSimilarity,
        JsonValid,
        LLMJudge,
        MetricEvaluator,
        Weighted,
        AllOf,
        AnyOf,
        Threshold,
        Normalised,
    )
}

__all__ = [
    "BLEU",
    "EVALUATORS",
    "AllOf",
    "AnyOf",
    "Contains",
    "CosineSimilarity",
    "ExactMatch",
    "JsonValid",
    "LLMJudge",
    "LevenshteinSimilarity",
    "MetricEvaluator",
    "Normalised",
    "Regex",
    "RougeL",
    "SemanticSimilarity",
    "Threshold",
    "Weighted",
    "from_orq",
]
