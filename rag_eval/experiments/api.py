"""The names that ``rag_eval.experiments`` offers."""

from rag_eval.experiments.data import LangSmithDataset, OrqDataset
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
from rag_eval.experiments.naming import evaluator, task
from rag_eval.experiments.outputs.files import JsonOutput
from rag_eval.experiments.outputs.page import HtmlOutput
from rag_eval.experiments.outputs.services import LangSmithOutput, OrqOutput
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
