"""Running the experiments that a Python file holds."""

import ast
import runpy
import sys
import traceback
from dataclasses import replace
from pathlib import Path

from rag_eval.errors import ExperimentError, RagEvalError
from rag_eval.experiments.calls import message_of
from rag_eval.experiments.session import Session, session
from rag_eval.experiments.types import ExperimentResult

CALLS = ("evaluatorq", "experiment")
LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)


def runs_once(path: Path) -> bool:
    """Whether a file plainly runs one experiment: one call, in no loop. False where that cannot be told."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False  # running the file says what is wrong
    calls = [node for node in ast.walk(tree) if _is_experiment(node)]
    looped = [inner for loop in ast.walk(tree) if isinstance(loop, LOOPS) for inner in ast.walk(loop)]
    return len(calls) == 1 and calls[0] not in looped


def _is_experiment(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)
    return name in CALLS


def run_file(path: Path, opened: Session) -> list[ExperimentResult]:
    """Run a file as a script, under the session's settings, and give back the results of its experiments.

    Raises ``ExperimentError`` when there is no such file, when it raises an error of its own (with the line), and when
    no experiment was run.
    """
    if not path.is_file():
        raise ExperimentError(f"the file {str(path)!r} is not there: give a Python file that runs an experiment")
    folder = str(path.absolute().parent)
    sys.path.insert(0, folder)  # as Python does for a script
    try:
        # A gate may be for a later experiment of the file, where there are several.
        with session(opened if runs_once(path) else replace(opened, gates=())):
            runpy.run_path(str(path), run_name="__main__")
    except RagEvalError:
        raise
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise ExperimentError(f"{str(path)!r} ended with code {leaving.code}") from None
    except Exception as error:
        raise ExperimentError(f"{str(path)!r}{_line(path, error)}: {message_of(error)}") from error
    finally:
        sys.path.remove(folder)
    if not opened.results:
        raise ExperimentError(f"{str(path)!r} holds no experiment: call evaluatorq(…) in it, or await experiment(…)")
    return opened.results


def _line(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {frames[-1].lineno}" if frames else ""
