"""``rag-eval publish`` sends the outbox to LangSmith and orq.ai and shows where the experiments of a run are;
``rag-eval truth push`` sends ground truth.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rag_eval.cli import options
from rag_eval.cli.console import print_json, say
from rag_eval.cli.processes import leaving, watched
from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.results.outcome import BenchmarkOutcome
    from rag_eval.results.publishing import Publication
    from rag_eval.services.outbox import Delivery


def publish(
    run: Annotated[
        str | None, typer.Argument(help="Run to publish as well: its name, or the start of it.", show_default=False)
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="LangSmith dataset for the experiments of the run; by default of the latest run.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent without sending it.")] = False,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Send the results waiting in the outbox; exit code 1 if some are still waiting."""
    from rag_eval.results import publishing
    from rag_eval.results.runs import LATEST, read_run
    from rag_eval.services.outbox import outbox_of

    console = Console()
    outcome = read_run(workspace, run or LATEST) if run or dataset else None
    chosen = [(outcome, name) for name in _datasets(workspace, outcome, dataset)] if outcome else []
    if dry_run:
        new = [key for outcome, name in chosen for key in publishing.unpublished(workspace, outcome, name).values()]
        keys = [*(message.key for message in outbox_of(workspace.root).waiting()), *new]
        if as_json:
            print_json(console, {"would be sent": keys})
            return
        for key in keys:
            say(console, f"would be sent: {key}")
        say(console, f"{len(keys)} would be sent.")
        return
    for outcome, name in chosen:
        publishing.put_benchmark(workspace, outcome, name)
    with leaving("what was not sent still waits"), Console(stderr=True).status("Sending …"):
        # In a thread, because LangSmith's SDK waits for an answer even when it is told to stop.
        deliveries = watched(lambda: publishing.deliver(workspace))
    if as_json:
        print_json(console, [asdict(one) for one in deliveries])
    else:
        print_deliveries(console, deliveries)
    if any(delivery.state != "sent" for delivery in deliveries):
        raise typer.Exit(1)


def print_deliveries(console: Console, deliveries: "Sequence[Delivery]") -> None:
    """Print what was sent and where to, then what waits, each reason once."""
    sent = [delivery for delivery in deliveries if delivery.receipt is not None]
    for delivery in sent:
        details = delivery.receipt.details if delivery.receipt else {}
        say(console, f"sent: {delivery.key}")
        for line in (details.get("url"), _absent(details.get("absent", 0), details.get("dataset")), _pushed(details)):
            if line:
                say(console, f"  {line}")
    others = [delivery for delivery in deliveries if delivery.receipt is None]
    for reason in dict.fromkeys(delivery.reason for delivery in others):
        same = [delivery for delivery in others if delivery.reason == reason]
        for delivery in same:
            say(console, f"{delivery.state}: {delivery.key}", "yellow")
        say(console, f"  {reason}", "yellow")
    say(console, f"{len(sent)} sent, {len(others)} waiting." if deliveries else "Nothing waits to be published.")


def print_publications(console: Console, publications: "Sequence[Publication]") -> None:
    """Print where the experiments of a run are, or why they wait."""
    for dataset in dict.fromkeys(one.dataset for one in publications):
        sent = [one for one in publications if one.dataset == dataset and one.url is not None]
        if sent:
            from rag_eval.services.langsmith_outbox import comparison_url  # here: most runs publish nothing

            url = comparison_url([str(one.url) for one in sent])
            say(console, f"{counted(len(sent), 'experiments')} on {dataset!r}: {url}")
            absent = _absent(max(one.absent for one in sent), dataset)
            if absent:
                say(console, absent, "yellow")
    waiting = [one for one in publications if one.url is None]
    if waiting:
        reason = next((one.reason for one in waiting if one.reason), "nothing was sent yet")
        count = counted(len(waiting), "experiments")
        of_all = f" of {len(publications):,}" if len(waiting) < len(publications) else ""
        say(console, f"Not sent: {count}{of_all} ({reason}); rag-eval publish sends what waits", "yellow")


def _datasets(workspace: "Workspace", outcome: "BenchmarkOutcome", dataset: str | None) -> list[str]:
    """The dataset that was asked for, or those that the run was put for, or that its benchmark names."""
    from rag_eval.results.publishing import read_publications

    if dataset:
        return [dataset]
    noted = list(dict.fromkeys(one.dataset for one in read_publications(workspace, outcome.run)))
    named = noted or [name for name in [outcome.config.langsmith_dataset] if name]
    if not named:
        raise ConfigurationError(f"the run {outcome.run} names no LangSmith dataset: give --dataset")
    return named


def _absent(absent: int, dataset: str | None) -> str | None:
    return f"The dataset {dataset!r} lacks {counted(absent, 'queries')} of the run: push them" if absent else None


def _pushed(details: "Mapping[str, Any]") -> str | None:
    if "created" not in details:
        return None
    counts = [f"{details[key]:,} {key}" for key in ("created", "updated", "unchanged") if details.get(key)]
    return ", ".join(counts) or "The dataset has examples of its own and was left as it is."


def known_publications(workspace: "Workspace", run: str) -> "list[Publication]":
    """How the experiments of a run stand; what is wrong with the note or the outbox is said and keeps nobody."""
    from rag_eval.results.outcome import PUBLISHED

    try:
        if not workspace.fetch_newest(workspace.runs / run / PUBLISHED).exists():
            return []
        from rag_eval.results.publishing import read_publications  # here: most runs publish nothing

        return read_publications(workspace, run)
    except ArtifactError as error:
        say(Console(stderr=True), f"rag-eval: {error}", "yellow")
        return []


def push(
    truth: Annotated[Path, typer.Argument(help="Ground-truth file (JSON lines).")],
    dataset: Annotated[
        str | None,
        typer.Option(help="Name of the dataset; by default rag-eval-token-level-v1 or rag-eval-chunk-level-v1."),
    ] = None,
    delete_others: Annotated[
        bool, typer.Option("--delete-others", help="Delete examples that are not in the ground truth.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Create or update a LangSmith dataset with this ground truth."""
    from rag_eval.ground_truth.truth_files import read_chunk_level, read_token_level, read_truth_text, truth_type
    from rag_eval.services.langsmith_client import LangSmithService
    from rag_eval.services.langsmith_datasets import DEFAULT_DATASETS, push_truth

    kind = truth_type(read_truth_text(truth))
    items = read_token_level(truth) if kind == "token-level" else read_chunk_level(truth)
    service = LangSmithService.connect()
    name = dataset or DEFAULT_DATASETS[kind]
    try:
        with leaving("the dataset may have a part of the ground truth, and the same command goes on"):
            # In a thread, because LangSmith's SDK waits for an answer even when it is told to stop.
            report = watched(lambda: push_truth(service, name, items, delete_others=delete_others))
    finally:
        service.close()
    console = Console()
    if as_json:
        print_json(console, asdict(report))
        return
    counts = {"created": report.created, "updated": report.updated, "unchanged": report.unchanged}
    done = [f"{count:,} {what}" for what, count in counts.items()]
    done += [f"{report.deleted:,} deleted"] if report.deleted else []
    say(console, f"The LangSmith dataset {report.dataset!r} holds the ground truth: {', '.join(done)}.")
    if report.others:
        say(console, f"It has {counted(report.others, 'examples')} more, which --delete-others would delete.")
    if report.url:
        say(console, report.url)
