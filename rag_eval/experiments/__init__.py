"""General experiments: any task on any data with any evaluators.

::

    from rag_eval.experiments import CosineSimilarity, evaluatorq

    evaluatorq("Greeting", data=[{"input": "Hello", "output": "Hi"}], tasks=[answer], evaluators=[CosineSimilarity])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_eval.experiments.data import LangSmithDataset as LangSmithDataset
    from rag_eval.experiments.data import OrqDataset as OrqDataset
    from rag_eval.experiments.evaluators.composition import AllOf as AllOf
    from rag_eval.experiments.evaluators.composition import AnyOf as AnyOf
    from rag_eval.experiments.evaluators.composition import Normalised as Normalised
    from rag_eval.experiments.evaluators.composition import Threshold as Threshold
    from rag_eval.experiments.evaluators.composition import Weighted as Weighted
    from rag_eval.experiments.evaluators.model import LLMJudge as LLMJudge
    from rag_eval.experiments.evaluators.model import from_orq as from_orq
    from rag_eval.experiments.evaluators.retrieval import MetricEvaluator as MetricEvaluator
    from rag_eval.experiments.evaluators.similarity import BLEU as BLEU
    from rag_eval.experiments.evaluators.similarity import CosineSimilarity as CosineSimilarity
    from rag_eval.experiments.evaluators.similarity import LevenshteinSimilarity as LevenshteinSimilarity
    from rag_eval.experiments.evaluators.similarity import RougeL as RougeL
    from rag_eval.experiments.evaluators.similarity import SemanticSimilarity as SemanticSimilarity
    from rag_eval.experiments.evaluators.text import Contains as Contains
    from rag_eval.experiments.evaluators.text import ExactMatch as ExactMatch
    from rag_eval.experiments.evaluators.text import JsonValid as JsonValid
    from rag_eval.experiments.evaluators.text import Regex as Regex
    from rag_eval.experiments.naming import evaluator as evaluator
    from rag_eval.experiments.naming import task as task
    from rag_eval.experiments.outputs.files import JsonOutput as JsonOutput
    from rag_eval.experiments.outputs.page import HtmlOutput as HtmlOutput
    from rag_eval.experiments.outputs.services import LangSmithOutput as LangSmithOutput
    from rag_eval.experiments.outputs.services import OrqOutput as OrqOutput
    from rag_eval.experiments.outputs.terminal import TerminalOutput as TerminalOutput
    from rag_eval.experiments.running import evaluatorq as evaluatorq
    from rag_eval.experiments.running import experiment as experiment
    from rag_eval.experiments.settings import ExperimentSettings as ExperimentSettings
    from rag_eval.experiments.types import ExperimentResult as ExperimentResult
    from rag_eval.experiments.types import ItemResult as ItemResult
    from rag_eval.experiments.types import Score as Score

_NAMES = {
    "rag_eval.experiments.data": "LangSmithDataset OrqDataset",
    "rag_eval.experiments.evaluators.composition": "AllOf AnyOf Normalised Threshold Weighted",
    "rag_eval.experiments.evaluators.model": "LLMJudge from_orq",
    "rag_eval.experiments.evaluators.retrieval": "MetricEvaluator",
    "rag_eval.experiments.evaluators.similarity": (
        "BLEU CosineSimilarity LevenshteinSimilarity RougeL SemanticSimilarity"
    ),
    "rag_eval.experiments.evaluators.text": "Contains ExactMatch JsonValid Regex",
    "rag_eval.experiments.naming": "evaluator task",
    "rag_eval.experiments.outputs.files": "JsonOutput",
    "rag_eval.experiments.outputs.page": "HtmlOutput",
    "rag_eval.experiments.outputs.services": "LangSmithOutput OrqOutput",
    "rag_eval.experiments.outputs.terminal": "TerminalOutput",
    "rag_eval.experiments.running": "evaluatorq experiment",
    "rag_eval.experiments.settings": "ExperimentSettings",
    "rag_eval.experiments.types": "ExperimentResult ItemResult Score",
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
