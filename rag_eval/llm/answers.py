"""Answers of models, kept by the digest of their request: what was paid once is not paid again."""

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa

from rag_eval.disk.files import check_folder
from rag_eval.disk.rows import KEY, KeyedRows, keys_from_hex
from rag_eval.llm.chat import Answer

ANSWERS = pa.schema(
    [
        pa.field("request_sha256", KEY, nullable=False),
        pa.field("content", pa.string()),
        pa.field("refusal", pa.string()),
        pa.field("finish_reason", pa.string()),
        pa.field("input_tokens", pa.int64(), nullable=False),
        pa.field("output_tokens", pa.int64(), nullable=False),
        pa.field("max_output_tokens", pa.int64()),
    ]
)

# Requests share locks by the first digits of their digests, so that there is hardly ever a wait for another's.
LOCK_DIGITS = 3


class AnswerCache:
    """A folder of answers; raises ``ConfigurationError`` when it is a file."""

    def __init__(self, folder: Path) -> None:
        self._rows = KeyedRows(folder, ANSWERS)

    def find(self, digest: str, max_output_tokens: int | None = None) -> Answer | None:
        """Return the kept answer to the request of this digest, if it would be the answer under this limit too."""
        answer = self.find_many([digest]).get(digest)
        return answer if answer is not None and answer.serves(max_output_tokens) else None

    def find_many(self, digests: Sequence[str]) -> dict[str, Answer]:
        """Return the kept answers to the requests of these digests, under whatever limit they were given."""
        return {digest: Answer(**row) for digest, row in self._rows.get(digests).items()}

    def keep(self, digest: str, answer: Answer) -> None:
        """Keep an answer in place of an older one; raises ``ArtifactError`` when it cannot be written."""
        began, is_new = time.time_ns(), digest not in self._rows.get([digest])
        self._rows.put({digest: answer.model_dump()})
        if not is_new:
            self._rows.retire(keys_from_hex([digest]), began)

    def alone(self, digest: str, stopped: threading.Event) -> AbstractContextManager[None]:
        """Wait until nobody else asks for this answer; setting ``stopped`` ends the wait.

        Raises ``ArtifactError``, before anything is paid, when no answer could be kept.
        """
        check_folder(self._rows.folder)
        return self._rows.alone(digest[:LOCK_DIGITS], stopped)
