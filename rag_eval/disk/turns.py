"""Turns at a piece of work: by locks among the threads and processes of a machine, by leases among machines.

A lock is on a file, and is freed when its holder ends or is killed. ``filelock`` takes it from the system (``flock``,
on Windows ``LockFileEx``); its marker files, which outlive a killed holder, are never used.

A lease is for machines that share nothing but a folder or a bucket: a small file of one holder. Whoever makes it has
it, and renews it every third of its term by writing it anew; whoever waits takes it over after a whole term without a
change, by a clock of its own, so that no two clocks need to agree. A holder that is killed is thus succeeded after one
term. Every write is on the condition that nobody else has written since: of any number that try at once one succeeds.
Whoever has a lease at last looks whether the work was done meanwhile.
"""

import hashlib
import json
import logging
import os
import random
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rag_eval.disk.files import writing
from rag_eval.errors import ArtifactError, ConfigurationError, RagEvalError

if TYPE_CHECKING:
    from filelock import BaseFileLock

POLL_SECONDS = 0.02

LEASE_SECONDS = "RAG_EVAL_LEASE_SECONDS"
"""The environment variable with the term of the leases that a process takes."""
DEFAULT_TERM, SHORTEST_TERM, LONGEST_TERM = 60.0, 1.0, 600.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0

SHARED = "RAG_EVAL_SHARED_WORKSPACE"
"""The environment variable that says, 1 or 0, whether machines share the folder of a workspace, where we cannot see."""
# Of file systems by FUSE, such as fuse.sshfs, we see no more than that.
NETWORK_SYSTEMS = {"9p", "afs", "beegfs", "ceph", "cifs", "fuse", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3"}

logger = logging.getLogger(__name__)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock of a file, which is made; False at once when another holds it. Raises ``ArtifactError``."""
    try:
        lock = _acquired(path)
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} cannot be locked ({error.strerror}): check the place") from None
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


@contextmanager
def in_turn(
    path: Path, on_wait: Callable[[], object] = lambda: None, stopped: threading.Event | None = None
) -> Iterator[None]:
    """Hold the lock of a file, which is made and removed; while another holds it, say so once to ``on_wait`` and wait.

    Setting ``stopped`` ends the wait. Where the file cannot be made, or its file system knows no locks, nobody waits.
    """
    is_told = False

    def give_up() -> bool:
        nonlocal is_told
        if not is_told:
            is_told = True
            on_wait()
        return stopped is not None and stopped.is_set()

    lock = None
    with suppress(OSError):
        lock = _acquired(path, give_up)
    try:
        yield
    finally:
        if lock is not None:
            # Whoever waits for it sees that it is gone, and makes its own. Windows keeps a file that is open.
            with suppress(OSError):
                path.unlink(missing_ok=True)
            lock.release()


def _acquired(path: Path, give_up: Callable[[], bool] | None = None) -> "BaseFileLock | None":
    """The lock once it is held; None when ``give_up``, asked after every attempt that fails, says so, or is None."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire(poll_interval=POLL_SECONDS, blocking=give_up is not None, cancel_check=give_up)
    except Timeout:
        return None
    return lock


class LeasePlace(Protocol):
    """Where leases are kept. A mark stands for one content of one lease, and never for another."""

    def read(self, name: str) -> tuple[str, bytes] | None:
        """Return the mark and the content; None when there is no such lease."""

    def create(self, name: str, content: bytes) -> str | None:
        """Write a lease that is not there, and return its mark; None when there is one."""

    def replace(self, name: str, content: bytes, mark: str) -> str | None:
        """Write a lease in place of that of this mark, and return the new mark; None when it is another by now."""

    def release(self, name: str, mark: str) -> None:
        """Make a lease of this mark free; nothing when it is another by now."""


def lease_term() -> float:
    """Return the term of our leases in seconds; raises ``ConfigurationError`` when the environment's is none."""
    told = os.environ.get(LEASE_SECONDS, str(DEFAULT_TERM))
    with suppress(ValueError):
        if SHORTEST_TERM <= float(told) <= LONGEST_TERM:
            return float(told)
    raise ConfigurationError(
        f"{LEASE_SECONDS} is {told!r}: give a number of seconds from {SHORTEST_TERM:.0f} to {LONGEST_TERM:.0f}"
    )


@contextmanager
def leased(
    place: LeasePlace,
    name: str,
    on_wait: Callable[[], object] = lambda: None,
    stopped: threading.Event | None = None,
) -> Iterator[bool]:
    """Hold a lease during the block; tells whether another had it before, and so may have done the work.

    While another holds it, that is said once to ``on_wait``; setting ``stopped`` ends the wait, without the lease.
    Raises what the place raises when it cannot be used.
    """
    held = _Held(place, name, lease_term())
    is_first = held.take(on_wait, stopped)
    try:
        yield not is_first
    finally:
        held.end()


class _Held:
    """A lease of ours, from taking it to its end."""

    def __init__(self, place: LeasePlace, name: str, term: float) -> None:
        self._place, self._name, self._term = place, name, term
        self._holder = uuid.uuid4().hex
        self._count = 0
        self._mark: str | None = None
        self._ended = threading.Event()
        self._renewing: threading.Thread | None = None

    def take(self, on_wait: Callable[[], object], stopped: threading.Event | None) -> bool:
        """Take the lease, sooner or later; True when there was none before."""
        self._mark = self._place.create(self._name, self._content())
        is_first = self._mark is not None
        seen, since, pause, is_told = "", 0.0, FIRST_PAUSE, False
        while self._mark is None:
            found = self._place.read(self._name)
            if found is None:
                self._mark = self._place.create(self._name, self._content())
                continue
            mark, content = found
            if mark != seen:
                seen, since = mark, time.monotonic()
            holder, term = _told(content)
            if holder == self._holder:
                self._mark = mark  # written by a request whose answer was lost
            elif holder is None or time.monotonic() - since >= term:
                self._mark = self._place.replace(self._name, self._content(), mark)
                if self._mark is not None and holder is not None:
                    logger.info("%s: its holder was silent for %.0f s, and the work is taken over", self._name, term)
            if self._mark is None:
                if not is_told:
                    is_told = True
                    on_wait()
                wait = pause * random.uniform(0.7, 1.3)  # noqa: S311  # so that those who wait do not ask in step
                if (stopped or threading.Event()).wait(wait):
                    return False
                pause = min(1.5 * pause, LONGEST_PAUSE)
        self._renewing = threading.Thread(target=self._renew, daemon=True, name=f"lease of {self._name}")
        self._renewing.start()
        return is_first

    def end(self) -> None:
        """Give the lease back."""
        self._ended.set()
        if self._renewing is not None:
            self._renewing.join()
        if self._mark is not None:
            try:
                self._place.release(self._name, self._mark)
            except (OSError, RagEvalError) as error:
                logger.warning("%s could not be given back, and is free in %.0f s: %s", self._name, self._term, error)

    def _renew(self) -> None:
        while self._mark is not None and not self._ended.wait(self._term / 3):
            try:
                renewed = self._place.replace(self._name, self._content(), self._mark)
                if renewed is None:  # ours all the same when only the answer to a renewal was lost
                    found = self._place.read(self._name)
                    renewed = found[0] if found is not None and _told(found[1])[0] == self._holder else None
            except (OSError, RagEvalError) as error:
                logger.warning("%s could not be renewed: %s", self._name, error)
                continue
            if renewed is None:
                logger.warning(
                    "%s: the work took too long without a sign of life, and others may do it too", self._name
                )
            self._mark = renewed

    def _content(self) -> bytes:
        self._count += 1  # what is written twice has the same mark
        return json.dumps({"holder": self._holder, "count": self._count, "seconds": self._term}).encode()


def _told(content: bytes) -> tuple[str | None, float]:
    """Who holds a lease, None nobody, and for how long; whatever is no lease counts as somebody's."""
    try:
        data = json.loads(content)
        holder, term = data["holder"], float(data["seconds"])
        if not isinstance(holder, str | None) or not SHORTEST_TERM <= term <= LONGEST_TERM:
            raise ValueError
    except (ValueError, TypeError, KeyError, RecursionError):
        return "", DEFAULT_TERM
    return holder, term


def free_content() -> bytes:
    """Return the content of a lease that nobody holds, for a place where a lease cannot be removed on a condition."""
    return json.dumps({"holder": None, "count": uuid.uuid4().hex, "seconds": DEFAULT_TERM}).encode()


class LeaseFolder:
    """Leases as files of a folder that machines share, whose file system need not know of locks.

    Whoever changes a lease first makes a claim on its mark, a file that only one can make, and then renames that to
    the lease. A claim that a killed process left is dropped after ``CLAIM_SECONDS``; who renamed in vain sees by the
    content of the lease that it is another's.
    """

    CLAIM_SECONDS = 5.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._claims: dict[Path, float] = {}

    def read(self, name: str) -> tuple[str, bytes] | None:
        try:
            content = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        return hashlib.sha256(content).hexdigest()[:16], content

    def create(self, name: str, content: bytes) -> str | None:
        path = self._folder / name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return self._mark_of(name, content) if _made(path, content) else None

    def replace(self, name: str, content: bytes, mark: str) -> str | None:
        with self._claimed(name, mark, content) as claim:
            if claim is not None:
                with suppress(FileNotFoundError):  # it took too long, and was dropped
                    os.replace(claim, self._folder / name)
                return self._mark_of(name, content)
        return None

    def release(self, name: str, mark: str) -> None:
        with self._claimed(name, mark, free_content()) as claim:
            if claim is not None:
                (self._folder / name).unlink(missing_ok=True)

    @contextmanager
    def _claimed(self, name: str, mark: str, content: bytes) -> Iterator[Path | None]:
        """The file that gives the right to change the lease of this mark; None when another has it."""
        lease = self._folder / name
        claim = lease.with_name(f"{lease.name}.{mark}")
        with writing(lease):
            if not _made(claim, content):
                if time.monotonic() - self._claims.setdefault(claim, time.monotonic()) > self.CLAIM_SECONDS:
                    claim.unlink(missing_ok=True)
                    del self._claims[claim]
                yield None
                return
            self._claims.pop(claim, None)
            try:
                found = self.read(name)
                yield claim if found is not None and found[0] == mark else None
            finally:
                with suppress(FileNotFoundError):
                    if claim.read_bytes() == content:  # ours: that of another, later, is left alone
                        claim.unlink()

    def _mark_of(self, name: str, content: bytes) -> str | None:
        found = self.read(name)
        return found[0] if found is not None and found[1] == content else None


def _made(path: Path, content: bytes) -> bool:
    """Make a file with this content, unless there is one."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(content)
    except FileExistsError:
        return False
    return True


def is_shared(folder: Path) -> bool:
    """Tell whether other machines may use a folder: it is on a network drive, or the environment says so."""
    told = os.environ.get(SHARED)
    if told:
        return told != "0"
    with suppress(OSError, IndexError):  # systems that have no such file, or another
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        return is_on_network(os.path.realpath(folder), table)
    return False


def is_on_network(place: str, mounts: str) -> bool:
    """Tell whether an absolute path is on a network drive, by the table of what is mounted where."""
    kinds = {"/": ""}
    for line in mounts.split("\n")[:-1]:
        mounted, _, described = line.partition(" - ")
        # A space, tab, line end and backslash are written as octal numbers, all else as it is.
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), mounted.split(" ")[4])
        kinds[point] = described.split()[0]
    inside = [point for point in kinds if os.path.commonpath([point, place]) == point]
    return kinds[max(inside, key=len)].partition(".")[0] in NETWORK_SYSTEMS
