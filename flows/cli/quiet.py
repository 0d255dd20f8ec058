"""What of Prefect's logging a terminal gets to see: our own warnings, and everything with ``--debug``."""

import logging
import os


def quiet_prefect() -> None:
    """Keep Prefect's account of errors off the terminal; the command says them itself, in a sentence."""
    if os.environ.get("RAG_EVAL_DEBUG"):
        return
    # On the loggers, because Prefect sets its handlers up anew when a flow starts.
    for name in (
        "prefect",
        "prefect._internal.concurrency",
        "prefect.engine",
        "prefect.events.clients",
        "prefect.flow_runs",
        "prefect.task_runs",
    ):
        logging.getLogger(name).addFilter(_is_our_warning)


def _is_our_warning(record: logging.LogRecord) -> bool:
    return record.name == "prefect.task_runs" and record.levelno == logging.WARNING and not record.exc_info
