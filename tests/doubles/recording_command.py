"""A command that runs a small flow as ``rag-eval run`` does: ``recording_command.py WORKSPACE [hold]``."""

import json
import os
import sys

from rag_eval.cli.prefect_api import prefect_api
from rag_eval.errors import RagEvalError
from rag_eval.pipeline.workspace import Workspace
from tasks.current_folder import ignore_settings_here

NUMBERS = 30


def run_flow() -> None:
    """Run a flow with mapped tasks and a subflow; a task fails."""
    from prefect import flow, task
    from prefect.artifacts import create_markdown_artifact
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    @task
    def double(number: int) -> int:
        return 2 * number

    @task
    def fail() -> None:
        raise ValueError("as it should")

    @flow
    def inner() -> int:
        return sum(double.map(range(NUMBERS)).result())

    @flow
    def outer() -> int:
        create_markdown_artifact("# Done", key="note")
        fail(return_state=True)
        return inner() + double(1)

    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):  # for which each flow run would wait a second
        outer()


def main(workspace: str, mode: str = "") -> None:
    """Run the flow, or hold the server until a line comes in; say where the server is, and its key."""
    ignore_settings_here()
    with prefect_api(Workspace.at(workspace)) as server:
        api = server.wait()
        print(json.dumps({"api": api, "auth": os.environ.get("PREFECT_API_AUTH_STRING", "")}), flush=True)
        if mode == "hold":
            sys.stdin.readline()
        else:
            run_flow()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except RagEvalError as error:
        sys.exit(f"rag-eval: {error}")
