"""A ground-truth file that is changed line by line: what is not touched stays as it is, byte for byte."""

from pathlib import Path

from rag_eval.errors import ArtifactError, GroundTruthError, ReviewConflictError
from rag_eval.files import write_atomically


class TruthFile:
    """The lines of a file, and whether it is still the one that was read."""

    def __init__(self, path: Path) -> None:
        """Read the file; one that is not there has no lines. Raises ``GroundTruthError`` when it cannot be read."""
        # A link stays a link: the file it points to is the one that is replaced.
        self.path = path.resolve()
        self._bytes = self._on_disk()
        self.lines = self._decoded()

    @property
    def is_current(self) -> bool:
        """Whether the file still has the content that was read or written last."""
        return self._on_disk() == self._bytes

    def check_current(self) -> None:
        """Raise ``ReviewConflictError`` when somebody else has changed the file."""
        if not self.is_current:
            raise ReviewConflictError(
                f"{self.path.name} was changed by somebody else: reload to see their version; nothing was overwritten"
            )

    def save(self, lines: list[str]) -> None:
        """Replace the file's lines at once; a file that is not there and gets no lines is not made.

        Raises ``ReviewConflictError`` when somebody else has changed it, ``ArtifactError`` when it cannot be written.
        """
        self.check_current()
        data = ("\n".join(lines) + "\n").encode("utf-8") if lines else b""
        if data != (self._bytes or b""):
            write_atomically(self.path, data)
            self._bytes = data
        self.lines = lines

    def _on_disk(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ArtifactError(f"{str(self.path)!r} cannot be read ({error.strerror}): check its rights") from None

    def _decoded(self) -> list[str]:
        try:
            text = (self._bytes or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise GroundTruthError(
                f"{str(self.path)!r} is not UTF-8 (byte {error.start}): convert the file to UTF-8"
            ) from None
        lines = text.split("\n")
        return lines[:-1] if lines[-1] == "" else lines
