"""The seam between a workspace's folder and the place that its files are kept in."""

from contextlib import AbstractContextManager
from typing import Protocol


class Storage(Protocol):
    """Keeps a workspace's files; names are relative to the workspace, with ``/``.

    Whoever works reads and writes the workspace's folder, brings what may not be in it, and sends what it made.
    """

    @property
    def address(self) -> str:
        """Where the files are kept, for people."""
        ...

    def bring(self, name: str) -> bool:
        """Put the kept file into the folder, in place of the one there; False when there is none to bring."""
        ...

    def bring_folder(self, name: str) -> bool:
        """Put a kept folder into the folder, in place of the one there; False when there is none to bring."""
        ...

    def bring_missing(self, name: str) -> None:
        """Put those kept files of a folder into it that it lacks."""
        ...

    def send(self, name: str) -> None:
        """Keep a file, or a folder, as it is in the folder now."""
        ...

    def ensure(self, name: str) -> None:
        """Send a file or a folder that is not kept, or not in full."""
        ...

    def names(self, folder: str) -> set[str]:
        """The files below a folder, in the workspace's folder or kept."""
        ...

    def growing(self, name: str, made_before_ns: int | None = None) -> AbstractContextManager[None]:
        """Work on a folder of files that are added and removed, never changed: bring what others added, send what was.

        With ``made_before_ns``, files that are brought count as made before then.
        """
        ...
