from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a benchmark file, with a corpus and a truth unless they are left out."""

    def write_file(text: str, name: str = "bench.yaml", *, bare: bool = False) -> Path:
        head = "" if bare else "corpus: docs\nground_truth: truth.jsonl\n"
        path = tmp_path / name
        path.write_text(head + text, encoding="utf-8")
        return path

    return write_file
