"""What a type checker says of code that uses the library."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def type_errors(folder: Path, code: str) -> dict[int, str]:
    """The errors of the code by line; fails on errors elsewhere.

    With the settings of our own check, because what mypy has kept from that is of use with these alone.
    """
    file = folder / "checked_code.py"
    file.write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    found = re.findall(rf"{file.name}:(\d+): error: (.*)", done.stdout)
    assert done.stdout.count(": error:") == len(found), done.stdout
    assert done.stderr == ""
    return {int(line): message for line, message in sorted(found, key=lambda error: int(error[0]))}
