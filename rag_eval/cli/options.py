"""Options and arguments that several commands share."""

import json
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rag_eval.cli.console import say
from rag_eval.errors import ConfigurationError

if TYPE_CHECKING:
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.types.documents import Corpus
else:
    Workspace = object  # imported only by the commands that need it, because it is slow to import


def _workspace_at(place: str) -> Workspace:
    from rag_eval.pipeline.workspace import Workspace

    return Workspace.at(place)


DEFAULT_WORKSPACE: Any = ".rag-eval"
_WORKSPACE_HELP = "Folder or s3://bucket/path that keeps results between runs."
WorkspaceOption = Annotated[Workspace, typer.Option("--workspace", parser=_workspace_at, help=_WORKSPACE_HELP)]
WorkspacePlaceOption = Annotated[str, typer.Option("--workspace", help=_WORKSPACE_HELP)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunArgument = Annotated[str, typer.Argument(help="Run: latest, baseline, or the start of its name.")]
AllowDifferentOption = Annotated[
    bool,
    typer.Option("--allow-different", help="Compare the queries that both runs share if their data differ."),
]
DocumentGlobOption = Annotated[list[str], typer.Option("--glob", help="Pattern of document files; repeatable.")]
DOCUMENT_GLOB = ["**/*.md"]
DOCUMENTS = "Folder of documents, or a benchmark file that names it."
BaseUrlOption = Annotated[
    str | None, typer.Option(help="URL of an OpenAI-compatible server.", show_default="OPENAI_BASE_URL")
]
MaxCostOption = Annotated[
    float | None, typer.Option(help="Stop before spending more than this many US dollars; answers so far are kept.")
]
InputPriceOption = Annotated[
    float | None, typer.Option(help="US dollars per million input tokens, for a model with no known price.")
]
OutputPriceOption = Annotated[
    float | None, typer.Option(help="US dollars per million output tokens, for a model with no known price.")
]
RequestsOption = Annotated[int, typer.Option(min=1, max=64, help="Number of concurrent requests.")]


def benchmark_file(path: Path | None) -> Path | None:
    """Return the path of a benchmark file; raise ``ConfigurationError`` for a folder."""
    if path is not None and path.is_dir():
        raise ConfigurationError(
            f"{str(path)!r} is a folder: give a benchmark file, write one with rag-eval init {shlex.quote(str(path))}, "
            f"or run it with rag-eval run --corpus {shlex.quote(str(path))} --truth FILE"
        )
    return path


ConfigArgument = Annotated[
    Path | None,
    typer.Argument(help="Benchmark file (YAML).", show_default="the sample", callback=benchmark_file),
]
CorpusOption = Annotated[Path | None, typer.Option("--corpus", help="Folder of documents, overriding the file's.")]
TruthOption = Annotated[Path | None, typer.Option("--truth", help="Ground-truth file, overriding the file's.")]
GlobOption = Annotated[
    list[str] | None, typer.Option("--glob", help="Pattern of document files, overriding the file's; repeatable.")
]
SearchOption = Annotated[
    str | None, typer.Option(help="Configurations to evaluate, overriding the file's: full or guided.")
]
RunnerOption = Annotated[str, typer.Option(help="Task runner: threads, dask or ray.")]
CronOption = Annotated[
    str | None, typer.Option(help="Cron schedule of the nightly run, in UTC.", show_default="0 3 * * *")
]
GateMetricOption = Annotated[
    str | None, typer.Option(help="Metric of the nightly gate.", show_default="the baseline's ranking metric")
]
MaxDropOption = Annotated[float | None, typer.Option(help="How far the metric may drop.", show_default="0.02")]
FailOnWarnOption = Annotated[
    bool, typer.Option("--fail-on-warn", help="Fail on a suspected drop (WARN), too, not only on a certified one.")
]
TimeLimitOption = Annotated[float, typer.Option(min=0.001, help="Cancel runs after this many hours.")]
SecretOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VARIABLE",
        help="Environment variable to set from a Prefect Secret block, such as OPENAI_API_KEY from the block "
        "openai-api-key; repeatable.",
    ),
]


def documents_at(corpus: Path, glob: list[str]) -> tuple[Path, str | list[str], dict[str, Any]]:
    """Return the folder, patterns and loaders of documents, from a folder or a benchmark file."""
    from rag_eval.config.loading import load_config

    if not corpus.is_file():
        return corpus, glob, {}
    config = load_config(corpus)
    return config.corpus, config.glob if glob == DOCUMENT_GLOB else glob, config.loaders


def read_documents(corpus: Path, glob: list[str]) -> "Corpus":
    """Read the documents of a folder or a benchmark file, and print which files are left out."""
    from rag_eval.types.documents import Corpus, LeftOutWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LeftOutWarning)
        documents = Corpus.from_folder(*documents_at(corpus, glob))
    for warning in caught:
        say(Console(stderr=True), f"rag-eval: {warning.message}")
    return documents


def assigned(option: str, text: str, example: str) -> tuple[str, Any]:
    """Split ``name=value`` and read the value as JSON if it is; raise ``ConfigurationError`` without a value."""
    name, separator, value = text.partition("=")
    if not separator:
        raise ConfigurationError(f"{option} {text!r} has no value: write for example {option} {example}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value
