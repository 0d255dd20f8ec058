"""A flow run as the command line sees it: where it is, and calling it off."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

CANCEL_SECONDS = 5.0


class StartedRun:
    """The run of a flow that was given ``notice`` as its ``on_running`` hook; where to see it is told once it runs."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._run: FlowRun | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Runners send the flow, and its hooks with it, to processes that have no part in them.
        return StartedRun, (_untold,)

    @property
    def notice(self) -> Callable[..., None]:
        """The hook."""

        def noticed(flow: Any, flow_run: "FlowRun", state: Any) -> None:
            from prefect.utilities.urls import url_for

            self._run = flow_run
            page = url_for("flow-run", flow_run.id)
            if page:
                self._tell(page)

        return noticed

    def cancel(self) -> None:
        """Have the server call the run, and all below it, cancelled; soon or not at all, because we are leaving."""
        if self._run is None:
            return
        thread = threading.Thread(target=_cancel, args=(self._run,), daemon=True)
        thread.start()
        thread.join(CANCEL_SECONDS)


def _untold(page: str) -> None:
    """Nobody looks at a page from another process."""


def _cancel(run: "FlowRun") -> None:
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelled

    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, Cancelled(message="stopped from the command line"), force=True)
