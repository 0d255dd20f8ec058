"""Documents and truth to review, and a running page."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rag_eval.ground_truth.review.app import listening_socket, review_server
from rag_eval.ground_truth.review.session import DocumentFolder, ReviewSession

FERRY = (
    "# Fähren 😀 👩‍👩‍👧\r\n\r\nDie letzte Fähre 🎉 fährt um 22:40.\r\nZwei 👍🏽 Boote: e\u0301ins, zwei.\r\n"
    "Die letzte Fähre 🎉 fährt um 22:40.\r\n"
)
HOSTILE = (
    "\ufeff<script>window.pwned = 1</script>\n<img src=x onerror='window.pwned = 2'>\n{{7*7}} \u202eabc\x00\x1b[31m\n"
)
Record = dict[str, Any]


def span(doc_id: str, content: str, text: str, occurrence: int = 0) -> Record:
    start = -1
    for _ in range(occurrence + 1):
        start = content.index(text, start + 1)
    return {"doc_id": doc_id, "start": start, "end": start + len(text), "text": text}


def records() -> list[Record]:
    return [
        {"query": "When?", "relevant_spans": [span("ferry.md", FERRY, "22:40")], "metadata": {"difficulty": "easy"}},
        {"query": "Boats?", "relevant_spans": [span("ferry.md", FERRY, "Boote"), span("ferry.md", FERRY, "zwei")]},
        {"query": "<b>Script?</b>", "relevant_spans": [span("hostile.md", HOSTILE, "{{7*7}}")]},
        {"query": "Never?", "unanswerable": True},
    ]


def write_files(folder: Path, *lines: Record | str) -> Path:
    """A folder with documents, and a file with these lines, by default a header and four queries."""
    (folder / "docs").mkdir()
    (folder / "docs" / "ferry.md").write_bytes(FERRY.encode())
    (folder / "docs" / "hostile.md").write_bytes(HOSTILE.encode())
    truth = folder / "truth.jsonl"
    header: Record = {"format": "rag-eval/token-level", "version": 1}
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    texts = texts or [json.dumps(line, ensure_ascii=False) for line in [header, *records()]]
    truth.write_bytes(("\n".join(texts) + "\n").encode())
    return truth


def queries_in(path: Path) -> list[Record]:
    """The queries of a file, in its order."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [line for line in lines if "query" in line]


@contextmanager
def review_address(truth: Path) -> Iterator[str]:
    """The address of a running review; it is stopped afterwards."""
    session = ReviewSession(truth, DocumentFolder(truth.parent / "docs", "**/*"))
    with closing(listening_socket(0)) as listener:
        server, address = review_server(session, listener)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield address
        finally:
            server.should_exit = True
            thread.join(timeout=30)
            assert not thread.is_alive()
