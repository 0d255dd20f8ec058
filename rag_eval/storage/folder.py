"""A workspace that is nothing but a folder: what is in it is kept."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path


class FolderStorage:
    """Brings and sends nothing."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def address(self) -> str:
        """The folder."""
        return str(self._root)

    def bring(self, name: str) -> bool:
        """False."""
        return False

    def bring_folder(self, name: str) -> bool:
        """False."""
        return False

    def bring_missing(self, name: str) -> None:
        """Do nothing."""

    def send(self, name: str) -> None:
        """Do nothing."""

    def ensure(self, name: str) -> None:
        """Do nothing."""

    def names(self, folder: str) -> set[str]:
        """The files below a folder."""
        return local_names(self._root, folder)

    def growing(self, name: str, made_before_ns: int | None = None) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()


def local_names(root: Path, folder: str) -> set[str]:
    """The names of the files below a folder; whoever writes at the same time may add and remove some."""
    return {path.relative_to(root).as_posix() for path in (root / folder).rglob("*") if path.is_file()}
