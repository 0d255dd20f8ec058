"""Which Prefect a command uses: the server the user named, or a temporary one that keeps to the workspace."""

import os
from pathlib import Path

from rag_eval.pipeline.workspace import Workspace


def use_local_prefect(workspace: Workspace) -> str:
    """Set Prefect up before it is imported, and say in a few words what will happen.

    With ``PREFECT_API_URL`` set, that server is used and nothing else is touched. Otherwise Prefect starts a
    temporary server for the run; its database stays in the workspace, where the next run finds it migrated.
    """
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    if os.environ.get("PREFECT_API_URL"):
        return f"Running on the Prefect server at {os.environ['PREFECT_API_URL']} …"
    home = Path(os.environ.setdefault("PREFECT_HOME", str(workspace.root / "prefect")))
    home.mkdir(parents=True, exist_ok=True)  # Prefect makes the last folder only, and waits for ever without it
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    # Prefect's own limit of 20 seconds is too short for a slow machine with a new database.
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    return "Running on a temporary Prefect server …"
