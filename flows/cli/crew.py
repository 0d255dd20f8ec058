"""The processes that belong together: started one by one, watched, and stopped together."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

from flows.cli.attended import start_attended
from flows.cli.processes import descendants, end_all
from flows.cli.server_log import last_words
from rag_eval.errors import ServiceError

STOP_SECONDS = 15.0


class Crew:
    """Servers and workers of ours, by role; each writes to a log of its own in one folder."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._members: dict[str, subprocess.Popen[bytes]] = {}
        self._started_by_them: set[psutil.Process] = set()
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, role: str, *arguments: str, settings: Mapping[str, str]) -> None:
        """Start the member of this role."""
        with self._log(role).open("wb") as log:
            self._members[role] = start_attended([role, *arguments], log.fileno(), settings)

    def trouble(self) -> ServiceError | None:
        """Which member has ended by itself, and what it said last; None while all are there."""
        for role, process in self._members.items():
            # Remembered while it lives: what a dead member leaves behind has no parent to be found by.
            self._started_by_them.update(descendants(process.pid))
            code = process.poll()
            if code is not None:
                ending = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
                said = last_words(self._log(role)) if code > 0 else ""
                return ServiceError(
                    f"the {role} {ending}{f' ({said})' if said else ''}, and everything else was stopped: "
                    f"see {str(self._log(role))!r}"
                )
        return None

    def stop(self) -> None:
        """Stop all, the last started first, with all that they started; by force where they do not listen."""
        for process in reversed(self._members.values()):
            # What a member runs first, so that it can still report what becomes of it.
            end_all(descendants(process.pid))
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            end_all([each for each in self._started_by_them if each.is_running()])
            self._started_by_them.clear()

    def _log(self, role: str) -> Path:
        return self._logs / f"{role}.log"
