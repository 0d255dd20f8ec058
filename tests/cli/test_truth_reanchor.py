"""``rag-eval truth reanchor`` as a user meets it."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands import in_process

OLD = "The ferry leaves at noon. Tickets cost 5 euro. Dogs travel free. Tickets are sold on board."
NEW = "Note: " + OLD.replace("5 euro", "6 euro").replace("Dogs travel free. ", "")


def reanchor(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return in_process("truth", "reanchor", *arguments, cwd=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("old", OLD), ("new", NEW)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text(text)
    lines = []
    for question, text in (
        ("[bold]when?\x1b[31m", "noon."),
        ("how much?", "cost 5 euro."),
        ("dogs?", "Dogs travel free."),
    ):
        start = OLD.index(text)
        span = {"doc_id": "a.md", "start": start, "end": start + len(text), "text": text}
        lines.append(json.dumps({"query": question, "relevant_spans": [span], "metadata": {"number": len(lines)}}))
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_spans_are_carried_over_told_and_written(folder: Path) -> None:
    before = (folder / "t.jsonl").read_text()
    tried = reanchor(folder, "t.jsonl", "--corpus", "new", "--old", "old", "--dry-run")
    assert tried.returncode == 1, tried.stderr
    assert "t.jsonl: 3 spans in 1 document: 1 moved, 1 altered, 1 lost" in tried.stdout
    assert "altered: 'a.md' [34, 46) 'cost 5 euro.' is now [40, 52) 'cost 6 euro.'" in tried.stdout
    assert "lost (deleted): 'a.md' [47, 64) 'Dogs travel free.'" in tried.stdout
    assert "1 query lost every span and is left out." in tried.stdout
    assert tried.stdout.endswith("Nothing was written.\n")
    assert (folder / "t.jsonl").read_text() == before

    done = reanchor(folder, "t.jsonl", "--corpus", "new", "--old", "old", "--json")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["counts"] == {"kept": 0, "moved": 1, "altered": 1, "lost": 1}
    assert (told["written"], told["lost_file"]) == ("t.jsonl", "t.lost.jsonl")
    assert [span["status"] for span in told["spans"]] == ["moved", "altered", "lost"]
    records = [json.loads(line) for line in (folder / "t.jsonl").read_text().splitlines()]
    assert [record["metadata"] for record in records] == [{"number": 0}, {"number": 1}]
    assert "Dogs travel free." in (folder / "t.lost.jsonl").read_text()

    again = reanchor(folder, "t.jsonl", "--corpus", "new")
    assert again.returncode == 0, again.stderr
    assert "2 spans in 1 document: 2 kept" in again.stdout
    assert again.stdout.endswith("Nothing to write.\n")


def test_without_an_old_version_the_texts_are_looked_for(folder: Path) -> None:
    done = reanchor(folder, "t.jsonl", "--corpus", "new")
    assert done.returncode == 1, done.stderr
    assert "1 moved, 2 lost" in done.stdout
    assert "Written to t.jsonl; the lost spans are in t.lost.jsonl" in done.stdout
    assert "[bold]" in (folder / "t.jsonl").read_text()


def test_the_wrong_corpus_is_one_sentence_and_exit_2(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "b.md").write_text("Something else.")
    before = (folder / "t.jsonl").read_text()
    done = reanchor(folder, "t.jsonl", "--corpus", "other")
    assert done.returncode == 2
    assert "none of the 3 queries has a span that is in the corpus" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert (folder / "t.jsonl").read_text() == before
