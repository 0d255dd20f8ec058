"""Options that several commands have."""

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
