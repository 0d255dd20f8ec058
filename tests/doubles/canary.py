"""Something that shows when it was executed."""

import os
from pathlib import Path


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch '{self._file}'",)


def called(file: Path) -> dict[str, object]:
    """What Prefect's JSON decoder imports and calls, which makes the file."""
    return {"__class__": "subprocess.getoutput", "data": {"cmd": f"touch '{file}'"}}
