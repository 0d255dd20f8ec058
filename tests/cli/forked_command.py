"""A process that has imported what ``rag-eval`` needs, a fork of which is the command.

Prefect is not imported, because it takes its settings from the environment then, and nothing that starts threads.
"""

import atexit
import gc
import json
import os
import signal
import sys
import threading
from typing import NoReturn

import httpx  # noqa: F401
import lance_namespace  # noqa: F401  # most of what importing LanceDB takes
import pandas as pd  # noqa: F401
import scipy.stats  # noqa: F401

import rag_eval.reports.write  # noqa: F401
from rag_eval.cli.main import main


def become() -> None:
    """Return in a fork for each request, a line of JSON, as what it asks for; write how each has ended."""
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.alarm(600)
            os.chdir(asked["cwd"])
            os.environ.clear()
            os.environ.update(asked["environment"])
            for number, file in enumerate((os.devnull, asked["stdout"], asked["stderr"])):
                os.dup2(os.open(file, os.O_WRONLY if number else os.O_RDONLY), number)
            sys.argv = ["rag-eval", *asked["arguments"]]
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)


def end(code: int) -> NoReturn:
    """End as the interpreter does, without taking apart what is shared with the process of which this is a fork.

    That would copy every page of it, which takes longer than most commands.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # as a fork of multiprocessing ends
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    gc.freeze()
    become()
    try:
        main()
    except SystemExit as ended:
        end(int(ended.code or 0))
    end(0)
