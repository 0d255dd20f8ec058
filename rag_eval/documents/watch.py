"""Watch a folder of documents: report what changed once it has come to rest."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_eval.errors import EmptyCorpusError
from rag_eval.storage.files import file_sha256, matching_files

REST_SECONDS = 1.0
"""How long nothing must happen before changes are told: who saves ten times in a second means one change."""

LONGEST_SECONDS = 30.0
"""How long changes may go on before they are told all the same."""

LOOK_MILLISECONDS = 100
COARSEST_SECONDS = 2.0
"""The times of files may be as coarse as this."""


@dataclass(frozen=True, slots=True)
class CorpusChange:
    """The documents that were added, changed and removed, by their path in the folder."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __str__(self) -> str:
        parts = {"added": self.added, "changed": self.changed, "removed": self.removed}
        return ", ".join(f"{len(names)} {what}" for what, names in parts.items() if names) or "nothing changed"


class CorpusWatch:
    """A folder that is compared with what it was: by content, so that what was only touched has not changed.

    ``known`` are the digests of the documents by name, as they were when somebody last looked; without it the folder
    counts as it is now.
    """

    def __init__(self, folder: Path, glob: str | Sequence[str], known: Mapping[str, str] | None = None) -> None:
        self.folder = folder.resolve()
        self._glob = glob
        self._since = time.time() - COARSEST_SECONDS if known is None else 0.0
        there = self._documents()
        self._known = {name: _digest(path) for name, path in there.items()} if known is None else dict(known)
        self._seen = self._known

    def changes(self, stop: threading.Event) -> Iterator[CorpusChange]:
        """Yield what differs from what was last accepted, each time the folder has come to rest, until ``stop`` is set.

        What is not accepted is told again, with what came after it. Raises ``CorpusFolderError`` when the folder goes
        away.
        """
        from watchfiles import watch

        looks = watch(
            self.folder,
            watch_filter=None,
            step=LOOK_MILLISECONDS,
            debounce=LOOK_MILLISECONDS,
            rust_timeout=LOOK_MILLISECONDS,
            yield_on_timeout=True,
            stop_event=stop,
            raise_interrupt=False,
        )
        touched = {Path(path) for _, path in next(looks, ())}
        # And what may have changed before the watching began, with the folder for what came or went.
        touched |= {self.folder, *(path for path in self._documents().values() if _changed_at(path) >= self._since)}
        first = last = time.monotonic()
        for look in looks:
            now = time.monotonic()
            if look:
                first = first if touched else now
                last = now
                touched |= {Path(path) for _, path in look}
            if touched and (now - last >= REST_SECONDS or now - first >= LONGEST_SECONDS):
                change = self.compare(touched)
                if change:
                    yield change
                if self._seen is self._known:
                    touched = set()
                first = last = now

    def compare(self, touched: set[Path]) -> CorpusChange:
        """Return what is other than it was among the files that were touched, and which files came or went."""
        self._seen = {
            name: _digest(path) if path in touched or name not in self._known else self._known[name]
            for name, path in self._documents().items()
        }
        change = CorpusChange(
            added=tuple(name for name in self._seen if name not in self._known),
            changed=tuple(name for name, digest in self._seen.items() if self._known.get(name, digest) != digest),
            removed=tuple(name for name in self._known if name not in self._seen),
        )
        if not change:
            self.accept()
        return change

    def accept(self) -> None:
        """Take the folder as it was last compared for what it is."""
        self._known = self._seen

    def _documents(self) -> dict[str, Path]:
        try:
            paths = matching_files(self.folder, self._glob)
        except EmptyCorpusError:
            return {}
        return {path.relative_to(self.folder).as_posix(): path for path in paths}


def _digest(path: Path) -> str:
    """Return the digest of a file's content; that of nothing when it went away meanwhile."""
    try:
        return file_sha256(path)
    except OSError:
        return ""


def _changed_at(path: Path) -> float:
    """When a file was last written; never, when it went away meanwhile."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
