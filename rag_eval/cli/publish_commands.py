"""``rag-eval publish`` for runs and experiments, and ``rag-eval truth push`` for ground truth."""

from collections import Counter
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rag_eval.cli import options
from rag_eval.cli.console import print_json, say
from rag_eval.cli.processes import leaving, watched
from rag_eval.errors import ConfigurationError, ExperimentError, RagEvalError
from rag_eval.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.results.publishing import Publication

CONSEQUENCE = "the same command continues from there"


def publish(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Run (latest, or the start of its name), JSON file of an experiment, or folder of such files.",
        ),
    ] = "latest",
    dataset: Annotated[
        str | None,
        typer.Option(
            help="LangSmith dataset.", show_default="that of the benchmark; without one experiments go to orq.ai"
        ),
    ] = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Publish a run or experiments to LangSmith or orq.ai; exit code 1 if something was not sent."""
    if Path(target).exists():
        is_complete = _publish_experiments(Path(target), dataset, as_json=as_json)
    else:
        is_complete = _publish_run(workspace, target, dataset, as_json=as_json)
    if not is_complete:
        raise typer.Exit(1)


def _publish_run(workspace: "Workspace", run: str, dataset: str | None, *, as_json: bool) -> bool:
    from rag_eval.results.publishing import publish_run, read_publications
    from rag_eval.results.runs import read_run

    outcome = read_run(workspace, run)
    noted = [publication.dataset for publication in read_publications(workspace, outcome.run)]
    named = noted or [name for name in [outcome.config.langsmith_dataset] if name]
    datasets = [dataset] if dataset else list(dict.fromkeys(named))
    if not datasets:
        raise ConfigurationError(f"the benchmark of run {outcome.run} has no LangSmith dataset: give --dataset")
    with leaving(CONSEQUENCE), Console(stderr=True).status("Sending …"):
        # Use a thread, because LangSmith's SDK waits for an answer even when it is told to stop.
        reasons = watched(lambda: publish_run(workspace, outcome, datasets))
    publications = [entry for entry in read_publications(workspace, outcome.run) if entry.dataset in datasets]
    if as_json:
        print_json(Console(), [publication.model_dump() for publication in publications])
        return not reasons
    print_publications(Console(), publications)
    for reason in reasons:
        if reason not in {publication.reason for publication in publications}:
            say(Console(), f"Not sent: {reason}", "yellow")
    return not reasons


def _publish_experiments(path: Path, dataset: str | None, *, as_json: bool) -> bool:
    from rag_eval.experiments.experiment_file import load_settings
    from rag_eval.experiments.file_outputs import read_result
    from rag_eval.experiments.service_outputs import send_to_langsmith, send_to_orq

    def send(file: Path) -> str:
        result = read_result(file)
        return send_to_orq(result, load_settings().orq) if dataset is None else send_to_langsmith(result, dataset)

    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ExperimentError(f"the folder {str(path)!r} has no JSON files: give the results of an experiment")
    rows: list[dict[str, str | None]] = []
    with leaving(CONSEQUENCE), Console(stderr=True).status("Sending …"):
        for file in files:
            rows.append({"file": str(file), "url": None, "reason": None})
            try:
                rows[-1]["url"] = watched(partial(send, file))
            except RagEvalError as error:
                rows[-1]["reason"] = str(error)
    if as_json:
        print_json(Console(), rows)
    for row in [] if as_json else rows:
        say(Console(), f"{row['file']}: {row['url'] or row['reason']}", "yellow" if row["reason"] else "")
    return not any(row["reason"] for row in rows)


def print_publications(console: Console, publications: "Sequence[Publication]") -> None:
    """Print the addresses of published experiments, and why others were not sent."""
    from rag_eval.services.langsmith_experiments import comparison_url

    by_dataset: dict[str, list[Publication]] = {}
    for publication in publications:
        if publication.url:
            by_dataset.setdefault(publication.dataset, []).append(publication)
    for dataset, sent in by_dataset.items():
        url = comparison_url([str(publication.url) for publication in sent])
        say(console, f"{counted(len(sent), 'experiments')} on {dataset!r}: {url}")
        if absent := max(publication.absent for publication in sent):
            lacks = f"The dataset {dataset!r} lacks {counted(absent, 'queries')} of the run"
            say(console, f"{lacks}: add them with rag-eval truth push", "yellow")
    reasons = Counter(publication.reason for publication in publications if publication.url is None)
    for reason, count in reasons.items():
        say(console, f"Not sent: {counted(count, 'experiments')} ({reason}); rag-eval publish sends the rest", "yellow")


def push(
    truth: Annotated[Path, typer.Argument(help="Ground-truth file (JSON lines).")],
    dataset: Annotated[
        str | None,
        typer.Option(help="Dataset.", show_default="rag-eval-token-level-v1 or rag-eval-chunk-level-v1"),
    ] = None,
    delete_others: Annotated[
        bool, typer.Option("--delete-others", help="Delete examples that are not in the file.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Create or update a LangSmith dataset with the ground truth of a file."""
    from rag_eval.ground_truth.truth_files import read_chunk_level, read_token_level, read_truth_text, truth_type
    from rag_eval.services.langsmith_client import LangSmithService
    from rag_eval.services.langsmith_datasets import DEFAULT_DATASETS, push_truth

    level = truth_type(read_truth_text(truth))
    items = read_token_level(truth) if level == "token-level" else read_chunk_level(truth)
    name = dataset or DEFAULT_DATASETS[level]
    with closing(LangSmithService.connect()) as service, leaving(CONSEQUENCE):
        report = watched(lambda: push_truth(service, name, items, delete_others=delete_others))
    console = Console()
    if as_json:
        print_json(console, asdict(report))
        return
    counts = {"created": report.created, "updated": report.updated, "unchanged": report.unchanged}
    counts |= {"deleted": report.deleted} if report.deleted else {}
    changes = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    say(console, f"Pushed to the LangSmith dataset {report.dataset!r}: {changes}.")
    if report.others:
        say(console, f"It has {counted(report.others, 'other examples')}, which --delete-others deletes.")
    if report.url:
        say(console, report.url)
