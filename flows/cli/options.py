"""Options and arguments that several commands share."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from rag_eval.errors import ConfigurationError

DEFAULT_WORKSPACE = ".rag-eval"

WorkspaceOption = Annotated[
    str, typer.Option("--workspace", help="Folder or s3://bucket/path that keeps work between runs.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AllowDifferentOption = Annotated[
    bool,
    typer.Option(
        "--allow-different", help="Compare runs on different documents or ground truth, by the queries they share."
    ),
]
CorpusOption = Annotated[Path | None, typer.Option(help="Folder of documents, overriding the benchmark's.")]
TruthOption = Annotated[Path | None, typer.Option(help="Ground-truth file, overriding the benchmark's.")]
GlobOption = Annotated[
    list[str] | None,
    typer.Option(help="Pattern of the document files, overriding the benchmark's; may be repeated."),
]
DocumentGlobOption = Annotated[
    list[str], typer.Option("--glob", help="Pattern of the document files; may be repeated.")
]
DOCUMENT_GLOB = ["**/*.md"]


def benchmark_file(path: Path | None) -> Path | None:
    """The path of a benchmark file as it is given; raises ``ConfigurationError`` on a folder."""
    if path is not None and path.is_dir():
        raise ConfigurationError(
            f"{str(path)!r} is a folder: give a benchmark file; for a folder of documents write "
            f"rag-eval run --corpus {shlex.quote(str(path))} --truth FILE"
        )
    return path


ConfigArgument = Annotated[
    Path | None,
    typer.Argument(help="Benchmark file (YAML or TOML); by default the sample.", callback=benchmark_file),
]
RunnerOption = Annotated[str, typer.Option(help="Task runner for the configurations: threads, processes, dask or ray.")]
CronOption = Annotated[str | None, typer.Option(help="Cron schedule of the nightly run, such as '0 3 * * *'.")]
GateMetricOption = Annotated[
    str | None, typer.Option(help="Metric of the nightly gate; by default the one that ranks the baseline.")
]
MaxDropOption = Annotated[float | None, typer.Option(help="How far the metric may drop; by default 0.02.")]


def assigned(option: str, text: str, example: str) -> tuple[str, Any]:
    """The name and the value of ``name=value``, read as JSON where it is; raises ``ConfigurationError`` without one."""
    name, separator, value = text.partition("=")
    if not separator:
        raise ConfigurationError(f"{option} {text!r} has no value: write it like {option} {example}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value
