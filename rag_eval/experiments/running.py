"""Run an experiment: ``evaluatorq`` waits for it, ``experiment`` is awaited."""

import asyncio
import contextvars
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from rag_eval.errors import ConfigurationError, ExperimentFailedError, OutputError, RagEvalError, preview
from rag_eval.experiments.callables import Experiment, fingerprint
from rag_eval.experiments.data import Data, stream
from rag_eval.experiments.engine import CallThread, Engine, begin_with_user_code, message_of
from rag_eval.experiments.experiment_file import ExperimentSettings, current_session, load_settings
from rag_eval.experiments.file_outputs import HtmlOutput, JsonOutput
from rag_eval.experiments.item_log import ItemLog, open_log
from rag_eval.experiments.results import ExperimentResult, ItemResult, OutputHandler
from rag_eval.experiments.terminal_output import TerminalOutput
from rag_eval.parts.objects import settled
from rag_eval.retry import RetryPolicy

LOOK_SECONDS = 0.2


def evaluatorq(name: str | Experiment, parts: Mapping[str, object] | None = None, **options: Any) -> ExperimentResult:
    """Run an experiment and wait for it, inside a running event loop too; the arguments are those of ``experiment``.

    Example:
        evaluatorq("Greeting", data=[{"input": "Hi"}], tasks=[answer], evaluators=[CosineSimilarity])
    """
    try:
        asyncio.get_running_loop()
        is_in_loop = True
    except RuntimeError:
        is_in_loop = False
    # Called outside of the handler, so that errors of the experiment are not chained to this one.
    return _run_in_thread(name, parts, options) if is_in_loop else asyncio.run(experiment(name, parts, **options))


Evaluatorq = evaluatorq


async def experiment(
    name: str | Experiment,
    parts: Mapping[str, object] | None = None,
    *,
    data: Data | None = None,
    tasks: Sequence[object] | None = None,
    evaluators: Sequence[object] | None = None,
    concurrency: int | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    retry_delay: float = 1.0,
    output_dir: str | Path | None = None,
    outputs: Sequence[OutputHandler] | None = None,
    raise_errors: bool = True,
) -> ExperimentResult:
    """Run every task on every row and every evaluator on every result.

    An interrupted experiment continues when it is run again.

    Args:
        name: The name, or an ``Experiment``, which has the next four.
        parts: A mapping with ``data``, ``tasks`` and ``evaluators``, instead of the arguments of these names.
        data: The rows, see ``Data``.
        tasks: Callables of a row.
        evaluators: Callables of a result and the expected output, or objects with ``evaluate``.
        concurrency: Maximum number of concurrent calls. Default: 5.
        timeout: Timeout of a call in seconds.
        retries: Number of retries of a failed call. Default: 0.
        retry_delay: Seconds before the first retry, doubled for each further one up to 30.
        output_dir: The folder of the results. Default: ./evaluations.
        outputs: Where the results go. Default: a JSON file, an HTML page, orq.ai if ``ORQ_API_KEY`` is set, and the
            terminal.
        raise_errors: Whether failed calls raise ``ExperimentFailedError`` at the end.

    Raises:
        ConfigurationError: A part or a setting cannot be used.
        DataError: The data cannot be read.
        OutputError: An output failed.
        ExperimentFailedError: A call failed; its cause is the first error. The results are saved.
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
    retry = RetryPolicy(max_retries=settings.retries, backoff=retry_delay)
    handlers = _checked_outputs(session.outputs if session.outputs is not None else outputs, settings, session.is_quiet)
    result, first_error = await _run(chosen, settings, retry, handlers)
    session.results.append(result)
    if raise_errors and session.raises and result.failed:
        raise ExperimentFailedError(result.failure, result) from first_error
    return result


def _checked_outputs(
    outputs: Sequence[OutputHandler] | None, settings: ExperimentSettings, is_quiet: bool
) -> list[OutputHandler]:
    """Return the outputs, or the default ones; raises ``ConfigurationError`` if one is not an output."""
    if outputs is None:
        outputs = [JsonOutput(settings.output_dir), HtmlOutput(settings.output_dir)]
        if os.environ.get("ORQ_API_KEY"):
            from rag_eval.experiments.service_outputs import OrqOutput

            outputs.append(OrqOutput(settings.orq))
        outputs.append(TerminalOutput())
    for output in outputs:
        if isinstance(output, type) or not callable(getattr(output, "handle", None)):
            raise ConfigurationError(f"{preview(repr(output))} is not an output: give an object with handle(results)")
    return [output for output in outputs if not (is_quiet and isinstance(output, TerminalOutput))]


async def _run(
    chosen: Experiment, settings: ExperimentSettings, retry: RetryPolicy, outputs: Sequence[OutputHandler]
) -> tuple[ExperimentResult, Exception | None]:
    """Return the result, and the first error of a call."""
    started = time.perf_counter()
    log = open_log(settings.output_dir, chosen.name, fingerprint(chosen.name, chosen.tasks, chosen.evaluators))
    terminals = [output for output in outputs if isinstance(output, TerminalOutput)]

    def on_sample(item: ItemResult) -> None:
        for terminal in terminals:
            terminal.sample(item)

    engine = Engine(chosen, log, on_sample)
    try:
        for terminal in terminals:
            terminal.started(chosen.name, chosen.total)
        async with aclosing(stream(chosen.data)) as rows:
            await engine.run(rows, settings.concurrency, settings.timeout, retry)
    except BaseException:
        for terminal in terminals:
            terminal.stopped()
        log.interrupted()
        raise
    result = ExperimentResult(
        name=chosen.name,
        run=log.run,
        timestamp=log.started,
        tasks=[task.name for task in chosen.tasks],
        evaluators=[evaluator.name for evaluator in chosen.evaluators],
        results=log,
        averages={key: running.average() for key, running in engine.averages.items() if running.n},
        errors={place: count for place, count in engine.errors.items() if count},
        seconds=time.perf_counter() - started,
        resumed=engine.resumed,
    )
    thread = CallThread()  # a daemon thread, so that Ctrl-C need not wait for a service that does not respond
    written = thread.call(_write_outputs, outputs, result, log)
    thread.close()
    await written
    return result, engine.first[1] if engine.first else None


def _write_outputs(outputs: Sequence[OutputHandler], result: ExperimentResult, log: ItemLog) -> None:
    """Call every output, and then raise the first failure."""
    failures: list[Exception] = []
    for output in outputs:
        name = getattr(output, "name", None) or type(output).__name__
        try:
            place = settled(output.handle(result))
        except RagEvalError as error:
            failures.append(error)
        except Exception as error:  # noqa: BLE001  # raised below
            begin_with_user_code(error)
            failures.append(OutputError(f"the output {name} failed: {message_of(error)}"))
            failures[-1].__cause__ = error
        else:
            if isinstance(place, str | Path):
                result.saved[name] = str(place)
    if failures:
        log.interrupted()
        raise failures[0]
    log.done()


def _chosen(name: str | Experiment, parts: Mapping[str, object], arguments: Mapping[str, object]) -> Experiment:
    """Return the experiment with this name and its parts, given as a mapping or as arguments."""
    given = {part: value for part, value in arguments.items() if value is not None}
    if isinstance(name, Experiment):
        if parts or given:
            raise ConfigurationError(f"{name.name}: give data, tasks and evaluators only to the Experiment")
        return name
    if unknown := set(parts) - set(arguments):
        raise ConfigurationError(f"{name}: unknown {', '.join(sorted(unknown))}: give {', '.join(arguments)}")
    if twice := set(given) & set(parts):
        raise ConfigurationError(f"{name}: {min(twice)} is given twice, as an argument and in the mapping")
    chosen: dict[str, Any] = {"evaluators": [], **parts, **given}
    for part in arguments:
        if part not in chosen:
            raise ConfigurationError(f"{name}: {part} is missing: an experiment needs {', '.join(arguments)}")
    return Experiment(name, **chosen)


def _run_in_thread(
    name: str | Experiment, parts: Mapping[str, object] | None, options: Mapping[str, Any]
) -> ExperimentResult:
    """Run in a loop on another thread, because code in a notebook cannot wait for the notebook's own loop."""
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
            # Ctrl-C ends this thread or cancels its task, and must also stop the experiment.
            for task in running if not done.done() else ():
                with suppress(RuntimeError):  # it has just ended
                    task.get_loop().call_soon_threadsafe(task.cancel)
    return done.result()
