"""Several processes on one cache, some of them killed: nothing wrong is ever read, nothing finished is lost."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rag_eval.embedding.cache import CachedEmbedder, VectorRows
from rag_eval.embedding.local import LocalEmbedder

ROOT = Path(__file__).parent.parent.parent
TEXTS = [f"text number {number}, of all {number % 7} kinds" for number in range(3_000)]

WRITER = """
import sys
from rag_eval.embedding import cache
from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.local import LocalEmbedder
cache.BLOCK = 25
folder, turn = sys.argv[1], int(sys.argv[2])
texts = [f"text number {number}, of all {number % 7} kinds" for number in range(3_000)]
texts = texts[turn * 500:] + texts[:turn * 500]
LocalEmbedder().embed_query("load the model")
print("ready", flush=True)
cached = CachedEmbedder(LocalEmbedder(), folder)
for begin in range(0, len(texts), 50):
    cached.embed(texts[begin:begin + 50])
"""


def start(folder: Path, turn: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(turn)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_everything_is_right(folder: Path) -> CachedEmbedder:
    cached = CachedEmbedder(LocalEmbedder(), folder)
    assert np.array_equal(cached.embed(TEXTS), LocalEmbedder().embed(TEXTS))
    return cached


def test_processes_that_write_the_same_texts_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writers = [start(tmp_path, turn) for turn in range(3)]
    for writer in writers:
        _, told = writer.communicate(timeout=60)
        assert writer.returncode == 0, told
        assert told == ""
    cached = check_everything_is_right(tmp_path)
    assert cached.statistics.misses == 0
    assert list(tmp_path.glob("*/.part-*")) == []
    assert caplog.text == ""


def test_processes_that_are_killed_at_any_moment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    survivor = start(tmp_path, 5)
    killed = 0
    for turn in range(4):
        writer = start(tmp_path, turn)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(0.02 + 0.05 * turn)
        writer.send_signal(signal.SIGKILL)
        writer.communicate(timeout=30)
        killed += writer.returncode == -signal.SIGKILL
    assert killed >= 1
    _, told = survivor.communicate(timeout=60)
    assert survivor.returncode == 0, told
    cached = check_everything_is_right(tmp_path)
    assert cached.statistics.misses == 0
    assert caplog.text == ""


ONE_CALL = """
import os, sys
import numpy as np
from rag_eval.embedding import cache
from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.embedder import BatchEmbedder, EmbeddedBatch
class Dying(BatchEmbedder):
    name, dimension, calls = "dying", 4, 0
    remote = sys.argv[2] == "remote"
    def embed_as_ready(self, texts):
        step = 1 if self.remote else 20
        for begin in range(0, len(texts), step):
            self.calls += 1
            if self.calls > 4:
                os._exit(9)
            places = range(begin, begin + step)
            yield EmbeddedBatch(places, np.array([[len(texts[place]), 1, 2, 3] for place in places], np.float32))
cache.BLOCK = 1_000 if Dying.remote else 20
CachedEmbedder(Dying(), sys.argv[1]).embed([f"text number {number}" for number in range(100)])
"""


@pytest.mark.parametrize(("kind", "kept"), [("local", 80), ("remote", 4)])
def test_a_hard_death_within_one_call_loses_no_block_that_was_finished(tmp_path: Path, kind: str, kept: int) -> None:
    """Blocks of a local embedder, single answers of one that is paid for."""
    done = subprocess.run([sys.executable, "-c", ONE_CALL, str(tmp_path), kind], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 9
    (folder,) = (path for path in tmp_path.glob("dying-*") if path.is_dir())  # the lock of the dead stays beside
    assert sum(len(file) for file in VectorRows(folder).files()) == kept


FULL_DISK = """
import logging, resource, sys
import numpy as np
from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.local import LocalEmbedder
logging.basicConfig(stream=sys.stdout)
texts = [f"text number {number}" for number in range(100)]
expected = LocalEmbedder().embed(texts)
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))
print(np.array_equal(CachedEmbedder(LocalEmbedder(), sys.argv[1]).embed(texts), expected))
"""


def test_a_full_disk_is_said_and_loses_no_vectors(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "100 vectors could not be cached" in done.stdout
    assert "cannot be written (File too large): make room, then run again" in done.stdout
    assert done.stdout.splitlines()[-1] == "True"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
