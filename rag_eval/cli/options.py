"""Options and arguments that several commands share."""

import functools
import inspect
import json
import shlex
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console

from rag_eval.cli.console import say
from rag_eval.errors import ConfigurationError

if TYPE_CHECKING:
    from flows.deployments import Project
    from rag_eval.config.models import BenchmarkConfig
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.types.documents import Corpus
else:
    Workspace = object  # which is imported by the commands that use one, and not to start


def _workspace_at(place: str) -> Workspace:
    from rag_eval.pipeline.workspace import Workspace

    return Workspace.at(place)


DEFAULT_WORKSPACE: Any = ".rag-eval"
_WORKSPACE_HELP = "Folder or s3://bucket/path that keeps results between runs."
WorkspaceOption = Annotated[Workspace, typer.Option("--workspace", parser=_workspace_at, help=_WORKSPACE_HELP)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AllowDifferentOption = Annotated[
    bool,
    typer.Option(
        "--allow-different", help="Compare runs on different documents or ground truth, by the queries they share."
    ),
]
DocumentGlobOption = Annotated[
    list[str], typer.Option("--glob", help="Pattern of the document files; may be repeated.")
]
DOCUMENT_GLOB = ["**/*.md"]
DOCUMENTS = "Folder of documents, or the benchmark file that names it and its --glob."


def documents_at(corpus: Path, glob: list[str]) -> tuple[Path, str | list[str], dict[str, Any]]:
    """Return the folder of documents, the patterns of its files and their loaders, of a benchmark file its own."""
    from rag_eval.config.loading import load_config

    if not corpus.is_file():
        return corpus, glob, {}
    config = load_config(corpus)
    return config.corpus, config.glob if glob == DOCUMENT_GLOB else glob, config.loaders


def read_documents(corpus: Path, glob: list[str]) -> "Corpus":
    """Read the documents of a folder or of a benchmark file, with a note on files that are left out."""
    from rag_eval.types.documents import Corpus, LeftOutWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LeftOutWarning)
        documents = Corpus.from_folder(*documents_at(corpus, glob))
    for warning in caught:
        say(Console(stderr=True), f"rag-eval: {warning.message}")
    return documents


BaseUrlOption = Annotated[
    str | None, typer.Option(help="URL of an OpenAI-compatible server, overriding OPENAI_BASE_URL.")
]
MaxCostOption = Annotated[
    float | None, typer.Option(help="Stop before spending more than this many US dollars; what is answered is kept.")
]
InputPriceOption = Annotated[
    float | None, typer.Option(help="US dollars per million input tokens, for a model of unknown price.")
]
OutputPriceOption = Annotated[
    float | None, typer.Option(help="US dollars per million output tokens, for a model of unknown price.")
]
RequestsOption = Annotated[int, typer.Option(min=1, max=64, help="Number of concurrent requests.")]


def benchmark_file(path: Path | None) -> Path | None:
    """Return the path of a benchmark file; raise ``ConfigurationError`` on a folder."""
    if path is not None and path.is_dir():
        raise ConfigurationError(
            f"{str(path)!r} is a folder: give a benchmark file; for a folder of documents write "
            f"rag-eval run --corpus {shlex.quote(str(path))} --truth FILE"
        )
    return path


ConfigArgument = Annotated[
    Path | None, typer.Argument(help="Benchmark file (YAML or TOML); by default the sample.", callback=benchmark_file)
]
MaxDropOption = Annotated[float | None, typer.Option(help="How far the metric may drop; by default 0.02.")]


SearchOption = Annotated[
    str | None, typer.Option(help="Which configurations to evaluate, overriding the benchmark's: full or guided.")
]


@dataclass(frozen=True)
class FileOptions:
    """What replaces settings of a benchmark file, and where work is kept."""

    corpus: Annotated[Path | None, typer.Option(help="Folder of documents, overriding the benchmark's.")] = None
    truth: Annotated[Path | None, typer.Option(help="Ground-truth file, overriding the benchmark's.")] = None
    glob: Annotated[
        list[str] | None,
        typer.Option(help="Pattern of the document files, overriding the benchmark's; may be repeated."),
    ] = None
    workspace: Annotated[str, typer.Option(help=_WORKSPACE_HELP)] = DEFAULT_WORKSPACE

    def benchmark(self, file: Path | None, **others: Any) -> "BenchmarkConfig":
        """Return the benchmark of a file with these and other settings; raise ``ConfigurationError``."""
        from rag_eval.config.loading import chosen_benchmark

        return chosen_benchmark(file, self.corpus, self.truth, self.glob, **others)


@dataclass(frozen=True)
class BenchmarkOptions(FileOptions):
    """The same, and how it runs; raises ``ConfigurationError`` on an unknown runner."""

    runner: Annotated[str, typer.Option(help="What runs the tasks of a chunking: threads, dask or ray.")] = "threads"

    def __post_init__(self) -> None:
        from rag_eval.config.models import check_runner

        check_runner(self.runner)


@dataclass(frozen=True)
class DeploymentOptions(BenchmarkOptions):
    """The same, for runs that a server starts; those that a deployed flow has too are its parameters."""

    cron: Annotated[str | None, typer.Option(help="Cron schedule of the nightly run, such as '0 3 * * *'.")] = None
    gate_metric: Annotated[
        str | None, typer.Option(help="Metric of the nightly gate; by default the one that ranks the baseline.")
    ] = None
    max_drop: MaxDropOption = None
    time_limit: Annotated[float, typer.Option(min=0.001, help="Hours after which a run is cancelled.")] = 12.0
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VARIABLE",
            help="Environment variable that runs get from the Prefect Secret block of its name, such as OPENAI_API_KEY "
            "from openai-api-key; repeatable.",
        ),
    ] = None

    def project(self, file: Path | None, config: "BenchmarkConfig", **settings: Any) -> "Project":
        """Return what a server is to know of a benchmark, in the current folder unless ``settings`` name another."""
        from flows.deployments import Project
        from rag_eval.config.loading import project_name

        options = {"benchmark_file": file} | {option.name: getattr(self, option.name) for option in fields(self)}
        parameters = {
            name: value if isinstance(value, float | list) else str(value)
            for name, value in (options | settings.pop("parameters", {})).items()
            if value is not None
        }
        defaults: dict[str, Any] = {"folder": Path.cwd(), "corpus": config.corpus, "notify": config.notify}
        defaults |= {"cron": self.cron, "secrets": self.secret or (), "time_limit": self.time_limit * 3600}
        return Project(project_name(config, file), parameters=parameters, **defaults | settings)


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function whose parameter ``given`` is one of the classes above: its fields are options."""
    hints = get_type_hints(command, include_extras=True)
    group = hints.pop("given")
    options = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(field.name, kind, default=field.default, annotation=options[field.name])
        for field in fields(group)
    ]
    written = inspect.signature(command).parameters.values()
    own = [option.replace(kind=kind, annotation=hints[option.name]) for option in written if option.name != "given"]

    @functools.wraps(command)
    def called(**values: Any) -> None:
        command(given=group(**{option.name: values.pop(option.name) for option in shared}), **values)

    # Arguments before options, as they were written, and the options of the command after those that it shares.
    called.__signature__ = inspect.Signature([*own[:1], *shared, *own[1:]])  # type: ignore[attr-defined]  # what it is for
    called.__annotations__ = {option.name: option.annotation for option in (*own, *shared)}
    return called


def assigned(option: str, text: str, example: str) -> tuple[str, Any]:
    """Split ``name=value``, the value read as JSON where it is; raise ``ConfigurationError`` without a value."""
    name, separator, value = text.partition("=")
    if not separator:
        raise ConfigurationError(f"{option} {text!r} has no value: write it like {option} {example}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value
