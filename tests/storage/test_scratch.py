"""What a killed writer leaves half written is removed by whoever works there next."""

import os
import subprocess
import sys
from pathlib import Path

from rag_eval.storage.files import SCRATCH_PREFIX, scratch_path, sweep_scratch

ROOT = Path(__file__).parents[2]
KILLED = """
import os, signal, sys
from pathlib import Path
from rag_eval.storage.files import scratch_path
with scratch_path(Path(sys.argv[1])) as scratch:
    scratch.mkdir()
    (scratch / "half.parquet").write_bytes(b"x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_and_what_is_being_written_stays(tmp_path: Path) -> None:
    folder = tmp_path / "tables" / "chunks"
    subprocess.run([sys.executable, "-c", KILLED, str(folder)], cwd=ROOT, timeout=60, check=False)
    assert len(list(folder.glob(f"{SCRATCH_PREFIX}*"))) == 1
    elsewhere = folder / f"{SCRATCH_PREFIX}0badc0de-{os.getpid()}-of-another-machine"
    elsewhere.write_bytes(b"x")
    with scratch_path(folder) as ours:
        ours.write_bytes(b"x")
        sweep_scratch(tmp_path)
        assert {path.name for path in folder.iterdir()} == {ours.name, elsewhere.name}
