"""``rag-eval cache``."""

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.housekeeping import clear, holdings, prune
from rag_eval.pipeline.workspace import Workspace
from rag_eval.wording import counted


def print_holdings(workspace: Workspace, days: float | None, clear_all: bool) -> None:
    """Prune or clear if asked to, then print what the workspace holds; of a bucket, its copy on this machine."""
    if not workspace.root.is_dir():
        raise ConfigurationError(
            f"there is no workspace {workspace.address!r}: run a benchmark first, or check the path"
        )
    if days is not None and clear_all:
        raise ConfigurationError("--prune and --clear do not go together: give one")
    console = Console()
    if workspace.remote is not None:
        console.print(
            f"{workspace.root}: this machine's copy of {workspace.remote}, where nothing is removed",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if clear_all or days is not None:
        gone = clear(workspace) if clear_all else prune(workspace, days or 0)
        console.print(f"{gone.kind}: {counted(gone.files, 'files')}, {decimal(gone.size)}", highlight=False)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("work")
    table.add_column("files", justify="right")
    table.add_column("size", justify="right")
    for holding in holdings(workspace):
        table.add_row(holding.kind, str(holding.files), decimal(holding.size))
    console.print(table)
