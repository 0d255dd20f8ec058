"""What of all that is logged a terminal shows: what concerns a user, as notes; everything with ``--debug``."""

import logging
import os

from rich.console import Console
from rich.text import Text

from flows.cli.text import visible

OURS = ("rag_eval", "prefect.task_runs", "prefect.flow_runs")


class Notes(logging.Handler):
    """Prints warnings as notes, above whatever the console shows live."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        # Prefect puts its own handler in the place of one without a formatter.
        self.setFormatter(logging.Formatter())
        self.addFilter(_concerns_a_user)

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        self._console.print(Text(f"note: {visible(record.getMessage())}", style="yellow"), soft_wrap=True)


def print_notes(console: Console) -> None:
    """Print what concerns a user, and nothing else, on the console; call it before Prefect is imported.

    With ``--debug`` Prefect prints as it likes.
    """
    if not os.environ.get("RAG_EVAL_DEBUG"):
        logging.getLogger().addHandler(Notes(console))
        logging.raiseExceptions = False  # handlers that fail would print why


def _concerns_a_user(record: logging.LogRecord) -> bool:
    """Our warnings; a failure comes with its traceback and is said in a sentence elsewhere."""
    return record.name.startswith(OURS) and record.levelno == logging.WARNING and not record.exc_info
