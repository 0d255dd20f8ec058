"""General experiments: any task on any data with any evaluators.

::

    from rag_eval.experiments import CosineSimilarity, evaluatorq

    evaluatorq("Greeting", data=[{"input": "Hello", "output": "Hi"}], tasks=[answer], evaluators=[CosineSimilarity])
"""

from importlib import import_module
from typing import Any

# For type checkers the same names stand in __init__.pyi.
_NAMES = {
    "rag_eval.experiments.data": "LangSmithDataset OrqDataset",
    "rag_eval.experiments.evaluators.comparison": (
        "BLEU Contains CosineSimilarity ExactMatch JsonValid LevenshteinSimilarity MetricEvaluator Regex RougeL "
        "SemanticSimilarity"
    ),
    "rag_eval.experiments.evaluators.composition": "AllOf AnyOf Normalised Threshold Weighted",
    "rag_eval.experiments.evaluators.model": "LLMJudge from_orq",
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
