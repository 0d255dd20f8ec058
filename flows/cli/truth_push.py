"""``rag-eval truth push``: ground truth into a LangSmith dataset."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.stopping import leaving, watched

if TYPE_CHECKING:
    from rich.console import Console

    from rag_eval.publishing.langsmith_push import PushReport


def push(
    truth: Annotated[Path, typer.Argument(help="Ground truth as JSON lines.")],
    dataset: Annotated[
        str | None, typer.Option(help="The dataset's name; rag-eval-token-level-v1 or rag-eval-chunk-level-v1.")
    ] = None,
    delete_others: Annotated[
        bool, typer.Option("--delete-others", help="Delete the examples that the ground truth does not have.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON, for machines.")] = False,
) -> None:
    """Make a LangSmith dataset hold this ground truth; pushing again updates it."""
    from rich.console import Console

    from rag_eval.ground_truth.native import read_chunk_level, read_token_level, read_truth_text, truth_type
    from rag_eval.publishing.langsmith_push import DEFAULT_DATASETS, push_truth
    from rag_eval.publishing.langsmith_service import LangSmithService

    kind = truth_type(read_truth_text(truth))
    items = read_token_level(truth) if kind == "token-level" else read_chunk_level(truth)
    service = LangSmithService.connect()
    name = dataset or DEFAULT_DATASETS[kind]
    try:
        with leaving("the dataset may have a part of the ground truth, and the same command goes on"):
            # In a thread, because LangSmith's SDK waits for an answer even when it is told to stop.
            report = watched(lambda: push_truth(service, name, items, delete_others=delete_others), lambda: None)
    finally:
        service.close()
    console = Console()
    if as_json:
        console.file.write(json.dumps(asdict(report), ensure_ascii=False, indent=2) + "\n")
    else:
        print_report(console, report)


def print_report(console: "Console", report: "PushReport") -> None:
    """Print what a push did, and where to look at it."""
    from flows.cli.text import say
    from rag_eval.wording import counted

    done = [f"{report.created:,} created", f"{report.updated:,} updated", f"{report.unchanged:,} unchanged"]
    if report.deleted:
        done.append(f"{report.deleted:,} deleted")
    lines = [f"The LangSmith dataset {report.dataset!r} holds the ground truth: {', '.join(done)}."]
    if report.others:
        lines.append(f"It has {counted(report.others, 'examples')} more, which --delete-others would delete.")
    if report.url:
        lines.append(report.url)
    for line in lines:
        say(console, line)
