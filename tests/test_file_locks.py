"""One holder at a time, among threads and processes, and nobody after it has ended."""

import subprocess
import sys
from pathlib import Path

import pytest

from rag_eval.errors import ArtifactError
from rag_eval.file_locks import try_lock

HOLD = """
import sys
from pathlib import Path
from rag_eval.file_locks import try_lock
with try_lock(Path(sys.argv[1])) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_held_once_and_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with try_lock(path) as first, try_lock(path) as second:
        assert (first, second) == (True, False)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with try_lock(path) as mine:
            assert not mine
        holder.kill()
    with try_lock(path) as mine:
        assert mine


def test_a_place_that_cannot_hold_a_lock_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ArtifactError, match=r"lock' cannot be locked \(.+\): check the place"),
        try_lock(tmp_path / "file" / "lock"),
    ):
        pass
