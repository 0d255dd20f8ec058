"""The built-in evaluators, by the name under which they are listed."""

from rag_eval.experiments.evaluators.comparison import (
    BLEU,
    Contains,
    CosineSimilarity,
    ExactMatch,
    JsonValid,
    LevenshteinSimilarity,
    MetricEvaluator,
    Regex,
    RougeL,
    SemanticSimilarity,
)
from rag_eval.experiments.evaluators.composition import AllOf, AnyOf, Normalised, Threshold, Weighted
from rag_eval.experiments.evaluators.model import LLMJudge

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
