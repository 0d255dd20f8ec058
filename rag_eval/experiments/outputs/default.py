"""The outputs of an experiment that names none."""

import os

from rag_eval.experiments.outputs.base import Output
from rag_eval.experiments.outputs.html import HtmlOutput
from rag_eval.experiments.outputs.json_file import JsonOutput
from rag_eval.experiments.outputs.terminal import TerminalOutput
from rag_eval.experiments.settings import ExperimentSettings


def default_outputs(settings: ExperimentSettings) -> list[Output]:
    """A JSON file and a page beside it, orq.ai where ``ORQ_API_KEY`` is set, and the terminal, which says where."""
    outputs: list[Output] = [JsonOutput(settings.output_dir), HtmlOutput(settings.output_dir)]
    if os.environ.get("ORQ_API_KEY"):
        from rag_eval.experiments.outputs.orq import OrqOutput

        outputs.append(OrqOutput(settings))
    return [*outputs, TerminalOutput()]
