"""Answers that were paid once are not paid again: a file for each, by the digest of its request.

A file is written under a scratch name and renamed before its answer is used, so that a process may be killed at any
point. Two that want the same answer, threads or processes, ask one after the other, and the second finds it.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from rag_eval.disk.files import write_atomically
from rag_eval.disk.locks import try_lock
from rag_eval.errors import ConfigurationError
from rag_eval.llm.chat import Answer

# Requests share locks by the first digits of their digests: so many files at most, and hardly ever a wait.
LOCK_DIGITS = 3
LOOK_AGAIN_SECONDS = 0.05

logger = logging.getLogger(__name__)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    request: str
    answer: Answer


class AnswerCache:
    """A folder of answers; raises ``ConfigurationError`` when it is a file."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise ConfigurationError(f"{str(folder)!r} is not a folder: give one for the answers")
        self._folder = folder

    def find(self, digest: str, max_output_tokens: int | None = None) -> Answer | None:
        """The kept answer to a request under this limit; one that was cut or altered is dropped and said in the log."""
        path = self._path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            record = _Record.model_validate_json(data)
        except ValidationError:
            record = None
        if record is None or record.request != digest:
            logger.warning("%s was cut or altered: it is dropped, and its request sent again", path)
            path.unlink(missing_ok=True)
            return None
        return record.answer if record.answer.serves(max_output_tokens) else None

    def keep(self, digest: str, answer: Answer) -> None:
        """Keep an answer; raises ``ArtifactError`` when it cannot be written."""
        record = _Record(request=digest, answer=answer)
        write_atomically(self._path(digest), record.model_dump_json().encode())

    @contextmanager
    def alone(self, digest: str, stopped: threading.Event) -> Iterator[None]:
        """Wait until nobody else asks for this answer; setting ``stopped`` ends the wait."""
        lock = self._folder / "locks" / digest[:LOCK_DIGITS]
        while True:
            with try_lock(lock) as held:
                if held or stopped.is_set():
                    yield
                    return
            stopped.wait(LOOK_AGAIN_SECONDS)

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / f"{digest}.json"
