from pathlib import Path

import rag_eval.publishing


def test_publishing_does_not_import_the_evaluations() -> None:
    files = list(Path(rag_eval.publishing.__path__[0]).glob("*.py"))
    assert len(files) > 3
    assert [file.name for file in files if "rag_eval.evaluation" in file.read_text(encoding="utf-8")] == []
