from pathlib import Path

import rag_eval.services


def test_publishing_does_not_import_the_evaluations() -> None:
    files = list(Path(rag_eval.services.__path__[0]).glob("*.py"))
    assert len(files) > 3
    assert [file.name for file in files if "rag_eval.benchmark" in file.read_text(encoding="utf-8")] == []
