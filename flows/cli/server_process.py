"""The process of a temporary Prefect server; it ends when its parent does, however that happens.

Run as ``python -m flows.cli.server_process PORT PARENT``.
"""

import os
import sys
import threading
import time


def main(port: int, parent: int) -> None:
    """Serve until told to stop or left alone."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    import uvicorn

    uvicorn.run("prefect.server.api.server:create_app", factory=True, host="127.0.0.1", port=port, log_level="critical")


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
