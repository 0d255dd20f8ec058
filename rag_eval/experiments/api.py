"""The names that ``rag_eval.experiments`` offers."""

from rag_eval.experiments.datasets import LangSmithDataset, OrqDataset
from rag_eval.experiments.evaluators import (
    BLEU,
    AllOf,
    AnyOf,
    Contains,
    CosineSimilarity,
    ExactMatch,
    JsonValid,
    LevenshteinSimilarity,
    LLMJudge,
    MetricEvaluator,
    Normalised,
    Regex,
    RougeL,
    SemanticSimilarity,
    Threshold,
    Weighted,
    from_orq,
)
from rag_eval.experiments.naming import evaluator, task
from rag_eval.experiments.outputs.html import HtmlOutput
from rag_eval.experiments.outputs.json_file import JsonOutput
from rag_eval.experiments.outputs.langsmith import LangSmithOutput
from rag_eval.experiments.outputs.orq import OrqOutput
from rag_eval.experiments.outputs.terminal import TerminalOutput
from rag_eval.experiments.running import evaluatorq, experiment
from rag_eval.experiments.settings import ExperimentSettings
from rag_eval.experiments.types import ExperimentResult, ItemResult, Score

__all__ = [
    "BLEU",
    "AllOf",
    "AnyOf",
    "Contains",
    "CosineSimilarity",
    "ExactMatch",
    "ExperimentResult",
    "ExperimentSettings",
    "HtmlOutput",
    "ItemResult",
    "JsonOutput",
    "JsonValid",
    "LLMJudge",
    "LangSmithDataset",
    "LangSmithOutput",
    "LevenshteinSimilarity",
    "MetricEvaluator",
    "Normalised",
    "OrqDataset",
    "OrqOutput",
    "Regex",
    "RougeL",
    "Score",
    "SemanticSimilarity",
    "TerminalOutput",
    "Threshold",
    "Weighted",
    "evaluator",
    "evaluatorq",
    "experiment",
    "from_orq",
    "task",
]
