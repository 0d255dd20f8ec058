"""Run an experiment: ``evaluatorq`` waits for it, ``experiment`` is awaited."""

import asyncio
import contextvars
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from rag_eval.errors import ConfigurationError, ExperimentFailedError, OutputError, RagEvalError
from rag_eval.experiments.callables import Experiment, fingerprint
from rag_eval.experiments.data import Data, stream
from rag_eval.experiments.engine import Caller, CallThread, Engine, begin_with_user_code, message_of
from rag_eval.experiments.experiment_file import ExperimentSettings, current_session, load_settings
from rag_eval.experiments.file_outputs import HtmlOutput, JsonOutput
from rag_eval.experiments.item_log import ItemLog, open_log
from rag_eval.experiments.results import (
    ExperimentResult,
    ItemResult,
    OutputHandler,
    check_handler,
    handle,
    handler_name,
)
from rag_eval.experiments.terminal_output import TerminalOutput
from rag_eval.retry import RetryPolicy


def default_outputs(settings: ExperimentSettings) -> list[OutputHandler]:
    """Return a JSON file and a page beside it, orq.ai where ``ORQ_API_KEY`` is set, and the terminal at the end."""
    outputs: list[OutputHandler] = [JsonOutput(settings.output_dir), HtmlOutput(settings.output_dir)]
    if os.environ.get("ORQ_API_KEY"):
        from rag_eval.experiments.service_outputs import OrqOutput

        outputs.append(OrqOutput(settings.orq))
    return [*outputs, TerminalOutput()]


LOOK_SECONDS = 0.2


def evaluatorq(name: str | Experiment, parts: Mapping[str, Any] | None = None, **options: Any) -> ExperimentResult:
    """Run an experiment and wait for it; takes what ``experiment`` takes, inside a running event loop too."""
    try:
        asyncio.get_running_loop()
        within = True
    except RuntimeError:
        within = False
    # Outside of the handler, so that an error of the experiment is not chained to this one.
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
    chosen = _chosen(name, parts or {}, {"data": data, "tasks": tasks, "evaluators": evaluators})
    session = current_session()
    settings = load_settings().updated(
        {
            "concurrency": session.concurrency or concurrency,
            "timeout": timeout,
            "retries": retries,
            "output_dir": session.output_dir or output_dir,
        }
    )
    if session.outputs is not None:
        outputs = session.outputs
    handlers = default_outputs(settings) if outputs is None else [check_handler(output) for output in outputs]
    handlers = [handler for handler in handlers if not (session.is_quiet and isinstance(handler, TerminalOutput))]
    retry = RetryPolicy(max_retries=settings.retries, backoff=retry_delay)
    result, first_error = await _run(chosen, settings, retry, handlers)
    session.results.append(result)
    if raise_errors and session.raises and result.failed:
        raise ExperimentFailedError(result.failure, result) from first_error
    return result


async def _run(
    chosen: Experiment, settings: ExperimentSettings, retry: RetryPolicy, outputs: Sequence[OutputHandler]
) -> tuple[ExperimentResult, Exception | None]:
    """Return the result, and the first error of a call."""
    begun = time.perf_counter()
    log = open_log(settings.output_dir, chosen.name, fingerprint(chosen.name, chosen.tasks, chosen.evaluators))
    terminals = [output for output in outputs if isinstance(output, TerminalOutput)]

    def on_sample(item: ItemResult) -> None:
        for terminal in terminals:
            terminal.sample(item)

    engine = Engine(chosen, log, on_sample)
    rows = stream(chosen.data)
    try:
        for terminal in terminals:
            terminal.started(chosen.name, chosen.total)
        await engine.run(rows, [Caller(settings.timeout, retry) for _ in range(settings.concurrency)])
    except BaseException:
        for terminal in terminals:
            terminal.stopped()
        log.interrupted()
        raise
    finally:
        await rows.aclose()
    result = ExperimentResult(
        name=chosen.name,
        run=log.run,
        timestamp=log.started,
        tasks=[task.name for task in chosen.tasks],
        evaluators=[evaluator.name for evaluator in chosen.evaluators],
        results=log,
        averages={key: running.average() for key, running in engine.averages.items() if running.n},
        errors={place: count for place, count in engine.errors.items() if count},
        seconds=time.perf_counter() - begun,
        resumed=engine.resumed,
    )
    # On a daemon thread: a service that does not answer must not hold up who gives up on it.
    thread = CallThread()
    written = thread.call(_write_outputs, outputs, result, log)
    thread.close()
    await written
    return result, engine.first[1] if engine.first else None


def _write_outputs(outputs: Sequence[OutputHandler], result: ExperimentResult, log: ItemLog) -> None:
    """Give the results to every output, and raise the first failure when all had their turn."""
    failures: list[Exception] = []
    for output in outputs:
        try:
            handle(output, result)
        except RagEvalError as error:
            failures.append(error)
        except Exception as error:  # noqa: BLE001  # raised below
            begin_with_user_code(error)
            failures.append(OutputError(f"the output {handler_name(output)} failed: {message_of(error)}"))
            failures[-1].__cause__ = error
    if failures:
        log.interrupted()
        raise failures[0]
    log.done()


def _chosen(name: str | Experiment, parts: Mapping[str, Any], arguments: Mapping[str, Any]) -> Experiment:
    """Return the experiment, each of whose parts is in the mapping or the argument of its name."""
    named = {part: value for part, value in arguments.items() if value is not None}
    if isinstance(name, Experiment):
        if parts or named:
            raise ConfigurationError(f"{name.name}: its parts are given twice: once in the Experiment, once beside it")
        return name
    if unknown := set(parts) - set(arguments):
        known = ", ".join(arguments)
        raise ConfigurationError(f"{name}: {', '.join(sorted(unknown))} is no part: the parts are {known}")
    if twice := [part for part in named if part in parts]:
        raise ConfigurationError(f"{name}: {twice[0]} is given twice: once as an argument, once in the mapping")
    chosen = {"evaluators": [], **parts, **named}
    if missing := [part for part in arguments if part not in chosen]:
        raise ConfigurationError(f"{name}: {missing[0]} is missing: an experiment has {', '.join(arguments)}")
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
