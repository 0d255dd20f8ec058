"""Why a server ended, from what it wrote."""

import re
from pathlib import Path

from rag_eval.errors import preview

LONGEST = 200
_REASON = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*")


def last_words(log: Path) -> str:
    """The last line of a log that names an error, else its last line; empty when there is none."""
    try:
        lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return ""
    lines = [line for line in lines if line]
    reasons = [line for line in lines if _REASON.match(line)]
    return preview((reasons or lines or [""])[-1], LONGEST)[1:-1]
