"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_WORKSPACE = ".rag-eval"

WorkspaceOption = Annotated[
    str, typer.Option("--workspace", help="Where work is kept between runs: a folder, or s3://bucket/path.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
AllowDifferentOption = Annotated[
    bool,
    typer.Option("--allow-different", help="Compare runs on different documents or truth, on the queries they share."),
]
CorpusOption = Annotated[Path | None, typer.Option(help="Folder of documents, in place of the benchmark's.")]
TruthOption = Annotated[Path | None, typer.Option(help="Ground truth, in place of the benchmark's.")]
GlobOption = Annotated[str | None, typer.Option(help="Which files of the folder are documents.")]
RunnerOption = Annotated[str, typer.Option(help="Where configurations are evaluated: threads, processes, dask or ray.")]
CronOption = Annotated[str | None, typer.Option(help="When the nightly run is, in cron's words: '0 3 * * *'.")]
GateMetricOption = Annotated[
    str | None, typer.Option(help="What may not drop below the baseline at night; without it, what that is ranked by.")
]
MaxDropOption = Annotated[float | None, typer.Option(help="How far it may drop; without it, by 0.02.")]
