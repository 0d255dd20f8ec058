"""A user's files called like our packages are nobody's but the user's."""

import os
import subprocess
import sys
from pathlib import Path

BENCHMARK = """
corpus: docs
ground_truth: truth.jsonl
chunkers: [my_parts:whole]
retrieval: bm25
"""
TRUTH = (
    '{"query": "When does the ferry leave?", '
    '"relevant_spans": [{"doc_id": "a.md", "start": 0, "end": 25, "text": "The ferry leaves at noon."}]}\n'
)


def test_a_run_beside_folders_called_flows_and_tasks(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The ferry leaves at noon.\n")
    (tmp_path / "truth.jsonl").write_text(TRUTH)
    (tmp_path / "benchmark.yaml").write_text(BENCHMARK)
    (tmp_path / "my_parts.py").write_text(
        "import tasks_of_mine\n\n\ndef whole(text):\n    return tasks_of_mine.cut(text)\n"
    )
    (tmp_path / "tasks_of_mine.py").write_text("def cut(text):\n    return [text.strip()]\n")
    for name in ("flows", "rag_eval"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong one')\n")
    (tmp_path / "tasks.py").write_text("raise RuntimeError('the wrong one')\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "flows.cli", "run", "benchmark.yaml"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "my_parts:whole, bm25" in done.stdout
    assert "1.000" in done.stdout
