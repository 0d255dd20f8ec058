"""The folders of runs, served beside the Prefect UI: a page there cannot link to a file."""

from pathlib import Path
from typing import Any

from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

RUNS_PATH = "/rag-eval/runs"


class RunPages(StaticFiles):
    """Files that run their scripts as strangers: they hold texts of documents, and the API is on the same address."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """A file, in a sandbox."""
        response = super().file_response(*args, **kwargs)
        response.headers["Content-Security-Policy"] = "sandbox allow-scripts allow-popups"
        return response


def runs_mount(folder: Path) -> Mount:
    """The route to the runs in a folder, which may come later."""
    return Mount(RUNS_PATH, app=RunPages(directory=folder, check_dir=False))
