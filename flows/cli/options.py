"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

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
GlobOption = Annotated[str | None, typer.Option(help="Pattern of the document files, overriding the benchmark's.")]
DocumentGlobOption = Annotated[str, typer.Option("--glob", help="Pattern of the document files.")]
ConfigArgument = Annotated[Path | None, typer.Argument(help="Benchmark file (YAML or TOML); by default the sample.")]
RunnerOption = Annotated[str, typer.Option(help="Task runner for the configurations: threads, processes, dask or ray.")]
CronOption = Annotated[str | None, typer.Option(help="Cron schedule of the nightly run, such as '0 3 * * *'.")]
GateMetricOption = Annotated[
    str | None, typer.Option(help="Metric of the nightly gate; by default the one that ranks the baseline.")
]
MaxDropOption = Annotated[float | None, typer.Option(help="How far the metric may drop; by default 0.02.")]
