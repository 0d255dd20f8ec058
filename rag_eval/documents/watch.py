"""Watch a folder of documents, and report changes when they have settled."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_eval.errors import EmptyCorpusError
from rag_eval.storage.files import file_sha256, kept_sha256, matching_files

REST_SECONDS = 1.0
"""Seconds without changes after which changes are reported."""
LONGEST_SECONDS = 30.0
"""Seconds after which changes are reported even if more arrive."""


@dataclass(frozen=True, slots=True)
class CorpusChange:
    """Added, changed and removed documents, by their path in the folder."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __str__(self) -> str:
        names = {"added": self.added, "changed": self.changed, "removed": self.removed}
        return ", ".join(f"{len(these)} {what}" for what, these in names.items() if these) or "nothing changed"


class CorpusWatch:
    """Compares a folder, by content, with its last accepted state.

    ``known`` has the digests of that state by document. By default, it is the current state.
    """

    def __init__(self, folder: Path, glob: str | Sequence[str], known: Mapping[str, str] | None = None) -> None:
        self.folder = folder.resolve()
        self._glob = glob
        now = self._digests(frozenset())
        self._known = now if known is None else dict(known)
        self._seen = self._known

    def changes(self, stop: threading.Event) -> Iterator[CorpusChange]:
        """Yield the difference from the accepted state whenever changes have settled, until ``stop`` is set.

        Changes that are not accepted are yielded again with later ones. Raises ``CorpusFolderError`` if the
        folder was removed.
        """
        from watchfiles import watch

        touched = {self.folder}  # it may have changed before watching starts
        for events in watch(
            self.folder,
            watch_filter=None,
            debounce=int(1000 * LONGEST_SECONDS),
            step=int(1000 * REST_SECONDS),
            rust_timeout=int(1000 * REST_SECONDS),
            yield_on_timeout=True,
            stop_event=stop,
            raise_interrupt=False,
        ):
            touched |= {Path(path) for _, path in events}
            if touched and (change := self.compare(touched)):
                yield change
            if self._seen is self._known:
                touched = set()

    def compare(self, touched: set[Path]) -> CorpusChange:
        """Return the difference from the accepted state. ``touched`` files are read even if their time is unchanged."""
        self._seen, known = self._digests(touched), self._known
        change = CorpusChange(
            added=tuple(name for name in self._seen if name not in known),
            changed=tuple(name for name, digest in self._seen.items() if known.get(name, digest) != digest),
            removed=tuple(name for name in known if name not in self._seen),
        )
        if not change:
            self.accept()
        return change

    def accept(self) -> None:
        """Accept the state that was compared last."""
        self._known = self._seen

    def _digests(self, touched: set[Path] | frozenset[Path]) -> dict[str, str]:
        try:
            paths = matching_files(self.folder, self._glob)
        except EmptyCorpusError:
            return {}
        return {path.relative_to(self.folder).as_posix(): _digest(path, path in touched) for path in paths}


def _digest(path: Path, is_touched: bool) -> str:
    """Return the digest of a file, or an empty text if it was just removed."""
    try:
        return file_sha256(path) if is_touched else kept_sha256(path)
    except OSError:
        return ""
