"""Running experiments: one by a call, or those that a Python file holds."""

import asyncio
import contextvars
import os
import runpy
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from rag_eval.errors import ConfigurationError, ExperimentError, ExperimentFailedError, OutputError, RagEvalError
from rag_eval.experiments.callables import Experiment, fingerprint
from rag_eval.experiments.data import Data, stream
from rag_eval.experiments.engine import Caller, Engine, Slots, begin_with_user_code, message_of
from rag_eval.experiments.experiment_file import ExperimentSettings, Session, current_session, session
from rag_eval.experiments.file_outputs import HtmlOutput, JsonOutput
from rag_eval.experiments.item_log import ItemLog, open_log
from rag_eval.experiments.results import ExperimentResult, Output, as_output
from rag_eval.experiments.terminal_output import TerminalOutput
from rag_eval.retry import RetryPolicy
from rag_eval.services.posting import load_settings


def default_outputs(settings: ExperimentSettings) -> list[Output]:
    """A JSON file and a page beside it, orq.ai where ``ORQ_API_KEY`` is set, and the terminal, which says where."""
    outputs: list[Output] = [JsonOutput(settings.output_dir), HtmlOutput(settings.output_dir)]
    if os.environ.get("ORQ_API_KEY"):
        from rag_eval.experiments.service_outputs import OrqOutput

        outputs.append(OrqOutput(settings))
    return [*outputs, TerminalOutput()]


LOOK_SECONDS = 0.2


def evaluatorq(name: str | Experiment, parts: Mapping[str, Any] | None = None, **options: Any) -> ExperimentResult:
    """Run an experiment and wait for it; takes what ``experiment`` takes, inside a running event loop too."""
    try:
        asyncio.get_running_loop()
        within = True
    except RuntimeError:
        within = False  # what the experiment raises is raised outside, and does not tell of this
    return _beside(name, parts, options) if within else asyncio.run(experiment(name, parts, **options))


Evaluatorq = evaluatorq


async def experiment(
    name: str | Experiment,
    parts: Mapping[str, Any] | None = None,
    *,
    data: Data | Any | None = None,
    tasks: Sequence[Any] | None = None,
    evaluators: Sequence[Any] | None = None,
    concurrency: int | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    retry_delay: float = 1.0,
    output_dir: str | Path | None = None,
    outputs: Sequence[Any] | None = None,
    raise_errors: bool = True,
) -> ExperimentResult:
    """Run every task on every row and every evaluator on every result.

    ``name`` may be an ``Experiment``, or ``parts`` a mapping with data, tasks and evaluators. ``concurrency`` bounds
    the calls under way over the whole run (5); ``timeout`` is seconds for one call and ``retries`` how often a failing
    one is tried again, after ``retry_delay`` · 2^n seconds at most (30 s). An interrupted experiment continues when it
    is run again. Outputs are by default the terminal, a JSON file and a page in ``output_dir`` (./evaluations), and
    orq.ai where ``ORQ_API_KEY`` is set.

    Raises ``ConfigurationError`` on parts that cannot be used, ``DataError`` when the data cannot be read,
    ``OutputError`` when an output fails, and, after all results are kept and unless ``raise_errors`` is off,
    ``ExperimentFailedError`` when a task or an evaluator failed, whose cause is the first error.
    """
    given = {"data": data, "tasks": tasks, "evaluators": evaluators}
    chosen = _chosen(name, parts or {}, given)
    above = current_session()
    overrides = {
        "concurrency": above.concurrency or concurrency,
        "timeout": timeout,
        "retries": retries,
        "output_dir": above.output_dir or output_dir,
    }
    settings = load_settings(ExperimentSettings).updated(
        {key: value for key, value in overrides.items() if value is not None}
    )
    if above.outputs is not None:
        outputs = above.outputs
    shown = [as_output(one) for one in (outputs if outputs is not None else default_outputs(settings))]
    shown = [one for one in shown if not above.is_quiet or not isinstance(one, TerminalOutput)]
    log = open_log(settings.output_dir, chosen.name, fingerprint(chosen.name, chosen.tasks, chosen.evaluators))
    retry = RetryPolicy(max_retries=settings.retries, backoff=retry_delay)
    engine = Engine(chosen, Caller(settings.concurrency, settings.timeout, retry), log, shown)
    result = await _run(chosen, engine, shown, log)
    above.results.append(result)
    if raise_errors and above.raises and result.failed:
        raise ExperimentFailedError(result.failure, result) from engine.first[1] if engine.first else None
    return result


async def _run(chosen: Experiment, engine: Engine, outputs: list[Output], log: ItemLog) -> ExperimentResult:
    begun = time.perf_counter()
    rows = stream(chosen.data)
    try:
        for output in outputs:
            output.started(chosen.name, chosen.total)
        await engine.run(rows)
    except BaseException:
        for output in outputs:
            output.stopped()
        log.interrupted()
        raise
    finally:
        await rows.aclose()
    result = ExperimentResult(
        name=chosen.name,
        run=log.run,
        timestamp=log.started,
        tasks=[one.name for one in chosen.tasks],
        evaluators=[one.name for one in chosen.evaluators],
        results=log,
        averages={key: running.average() for key, running in engine.averages.items() if running.n},
        errors={place: count for place, count in engine.errors.items() if count},
        seconds=time.perf_counter() - begun,
        resumed=engine.resumed,
    )
    # On a thread that ends with the program: a service that does not answer must not hold up who gives up on it.
    writer = Slots(1)
    put_out = writer.call(_put_out, outputs, result, log)
    writer.close()
    await put_out
    return result


def _put_out(outputs: list[Output], result: ExperimentResult, log: ItemLog) -> None:
    """Give the results to every output, and raise the first failure when all had their turn."""
    failures: list[Exception] = []
    for output in outputs:
        name = getattr(output, "name", None) or type(output).__name__
        try:
            place = output.finished(result)
        except RagEvalError as error:
            failures.append(error)
        except Exception as error:  # noqa: BLE001  # raised below
            begin_with_user_code(error)
            failures.append(OutputError(f"the output {name} failed: {message_of(error)}"))
            failures[-1].__cause__ = error
        else:
            if place is not None:
                result.saved[name] = place
    if failures:
        log.interrupted()
        raise failures[0]
    log.done()


def _chosen(name: str | Experiment, parts: Mapping[str, Any], given: Mapping[str, Any]) -> Experiment:
    """The experiment, whose parts are each given in the mapping or by the argument of its name."""
    arguments = {part: value for part, value in given.items() if value is not None}
    if isinstance(name, Experiment):
        if parts or arguments:
            raise ConfigurationError(f"{name.name}: its parts are given twice: once in the Experiment, once beside it")
        return name
    if unknown := set(parts) - set(given):
        raise ConfigurationError(f"{name}: {', '.join(sorted(unknown))} is no part: the parts are {', '.join(given)}")
    for part in arguments:
        if part in parts:
            raise ConfigurationError(f"{name}: {part} is given twice: once as an argument, once in the mapping")
    chosen = {"evaluators": [], **parts, **arguments}
    for part in given:
        if part not in chosen:
            raise ConfigurationError(f"{name}: {part} is missing: an experiment has {', '.join(given)}")
    return Experiment(name, **chosen)


def _beside(name: str | Experiment, parts: Mapping[str, Any] | None, options: dict[str, Any]) -> ExperimentResult:
    """Run on a thread with a loop of its own: a notebook's loop cannot be waited for from within."""
    running: list[asyncio.Task[ExperimentResult]] = []

    async def cancellable() -> ExperimentResult:
        running.append(asyncio.create_task(experiment(name, parts, **options)))
        return await running[0]

    outer = asyncio.current_task()
    cancelled_before = outer.cancelling() if outer is not None else 0
    with ThreadPoolExecutor(1, "experiment") as thread:
        done = thread.submit(contextvars.copy_context().run, asyncio.run, cancellable())
        try:
            while not wait({done}, LOOK_SECONDS).done and (outer is None or outer.cancelling() == cancelled_before):
                pass
        finally:
            # Left early by Ctrl-C, which comes to this thread, or to its task: the other would go on, and go on paying.
            for task in running if not done.done() else ():
                with suppress(RuntimeError):  # it has just ended
                    task.get_loop().call_soon_threadsafe(task.cancel)
    return done.result()


def run_file(path: Path, opened: Session) -> list[ExperimentResult]:
    """Run a file as a script under the session; returns its experiments' results, raises ``ExperimentError``."""
    if not path.is_file():
        raise ExperimentError(f"the file {str(path)!r} is not there: give a Python file that runs an experiment")
    folder = str(path.absolute().parent)
    sys.path.insert(0, folder)  # as Python does for a script
    try:
        with session(opened):
            runpy.run_path(str(path), run_name="__main__")
    except RagEvalError:
        raise
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise ExperimentError(f"{str(path)!r} ended with code {leaving.code}") from None
    except Exception as error:
        begin_with_user_code(error)
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
