"""``rag-eval truth`` as a user meets it: import, check and review."""

import json
import re
import signal
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from rag_eval.cli.main import app
from rag_eval.errors import RagEvalError
from rag_eval.sample import CORPUS, GROUND_TRUTH
from tests.cli.commands import in_process, rag_eval, started
from tests.documents.made_files import pdf


def truth_command(*arguments: str | Path) -> Result:
    """The command within this process, which is quicker; what it prints and its exit code."""
    return CliRunner().invoke(app, ["truth", *map(str, arguments)])


def test_nothing_in_a_file_steers_the_terminal_or_is_changed_by_it(tmp_path: Path) -> None:
    lines = [
        {"query": "a :smile: [bold]?", "relevant_spans": [], "\x1b[2Jkey": 1},
        {"query": "b", "relevant_spans": [{"doc_id": "\x9b31m.md", "start": 0, "end": 1, "text": "a"}]},
    ]
    truth = tmp_path / "truth\x1b[2J.jsonl"
    truth.write_text("\n".join(map(json.dumps, lines)))
    done = truth_command("check", truth, "--corpus", CORPUS)
    assert done.exit_code == 1
    assert r"'a :smile: [bold]?': '\x1b[2Jkey': there is no such key" in done.output
    assert not {"\x1b", "\x9b"} & set(done.output)


def test_documents_and_their_patterns_come_from_a_benchmark_file(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "guide.pdf").write_bytes(pdf([["Welcome aboard."], ["Ferries leave at noon."]]))
    benchmark, truth = tmp_path / "benchmark.yaml", tmp_path / "truth.jsonl"
    benchmark.write_text("corpus: docs\nglob: '**/*.pdf'\nground_truth: truth.jsonl\nchunkers: [sentence]\n")
    span = {"doc_id": "guide.pdf", "page": 2, "text": "ferries leave at noon"}
    truth.write_text(json.dumps({"query": "When?", "relevant_spans": [span]}))
    done = truth_command("check", truth, "--corpus", benchmark, "--fix")
    assert done.exit_code == 0, done.output
    assert "1 place corrected" in done.output
    (written,) = json.loads(truth.read_text())["relevant_spans"]
    assert written["text"] == "Ferries leave at noon"
    assert truth_command("check", truth, "--corpus", benchmark, "--glob", "*.md").exit_code != 0


def test_truth_on_a_file_that_is_no_document_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Fares\n\nA day ticket is 9 euros.\n")
    (tmp_path / "docs" / "about.html").write_text("<p>We run trams.")
    for number in range(5):
        (tmp_path / "docs" / f"scan{number}.pdf").write_bytes(pdf([[]]))
    (tmp_path / "glob.yaml").write_text(
        "corpus: docs\nglob: ['**/*.md', '**/*.pdf']\nground_truth: t.jsonl\nchunkers: [sentence]\n"
    )
    spans = [{"doc_id": "about.html", "text": "We"}, {"doc_id": "scan4.pdf", "start": 0, "end": 2, "text": "We"}]
    for span in (*spans, {"doc_id": "../glob.yaml", "text": "We"}):
        with open("t.jsonl", "a") as file:
            file.write(json.dumps({"query": f"in {span['doc_id']}?", "relevant_spans": [span]}) + "\n")
    told = truth_command("check", "t.jsonl", "--corpus", "docs").stdout
    assert "'about.html', which is in the corpus folder but does not match '**/*.md'" in told
    assert "--corpus benchmark.yaml" in told
    assert "'../glob.yaml', which is not in the corpus" in told
    checked = truth_command("check", "t.jsonl", "--corpus", "glob.yaml")
    assert re.search(r"'scan4.pdf', which was left out: '\S*scan4.pdf' has no text layer", checked.stdout)
    assert re.match(r"rag-eval: 5 files left out: '\S*scan0.pdf' has no text layer", checked.stderr)

    (tmp_path / "t.jsonl").write_text('{"query": "q", "relevant_spans": [{"doc_id": "scan4.pdf", "page": 1}]}\n')
    refused = in_process("validate", "glob.yaml", cwd=tmp_path)
    assert re.search(r"which was left out: '\S*scan4.pdf' has no text layer", refused.stderr)
    (tmp_path / "t.jsonl").write_text('{"query": "q", "relevant_spans": [{"doc_id": "a.md", "text": "9 euros"}]}\n')
    valid = CliRunner().invoke(app, ["validate", "glob.yaml"])
    assert [f"scan{number}.pdf" in valid.stdout for number in range(5)] == [True] * 5
    asked = CliRunner().invoke(app, ["generate", "docs", "--dry-run"])
    assert "rag-eval: 6 files of other formats in 'docs' are not read: add their patterns with --glob" in asked.stderr


def squad(path: Path) -> Path:
    qas = [
        {"id": "1", "question": "When?", "answers": [{"text": "22:40", "answer_start": 15}]},
        {"id": "2", "question": "Never?", "answers": [], "is_impossible": True},
        {"id": "3", "question": "Lost\x1b[31m?", "answers": [{"text": "nowhere at all", "answer_start": 3}]},
    ]
    paragraphs = [{"context": "Die Fähre fährt 22:40 ab.", "qas": qas}]
    path.write_text(json.dumps({"data": [{"title": "F[red]ähre", "paragraphs": paragraphs}]}))
    return path


def test_an_import_says_what_it_did_and_can_be_checked(tmp_path: Path) -> None:
    source, output = squad(tmp_path / "squad.json"), tmp_path / "out" / "truth.jsonl"
    done = truth_command("import", "squad", source, "--output", output)
    assert done.exit_code == 1  # something was left out
    assert "Imported 2 queries (1 unanswerable) with 1 span, all matching" in done.output
    assert "Left out: text that is not in its document" in done.output
    assert "Corrected: text found at another place: 1" in done.output
    assert "'F[red]ähre' is 'F%5Bred%5Dähre.md'" in done.output
    assert "\x1b[31m" not in done.output
    corpus = output.parent / "corpus"
    assert [path.name for path in corpus.iterdir()] == ["F%5Bred%5Dähre.md"]
    checked = truth_command("check", output, "--corpus", corpus)
    assert checked.exit_code == 0
    assert "2 queries (1 unanswerable), 1 span, all valid" in checked.output

    told = json.loads(truth_command("import", "squad", source, "--output", output, "--json").output)
    assert (told["queries"], told["answers"], told["documents"]) == (2, 1, 1)
    assert told["next"].startswith(f"rag-eval run --corpus {corpus}")
    assert [len(places) for places in told["left_out"].values()] == [1, 1]


def test_check_reports_all_that_is_wrong_and_exits_with_1(tmp_path: Path) -> None:
    lines = GROUND_TRUTH.read_text(encoding="utf-8").splitlines()
    first = json.loads(lines[1])
    first["relevant_spans"][0]["start"] += 1
    first["relevant_spans"][0]["end"] += 1
    second = json.loads(lines[2])
    second["relevant_spans"][0]["doc_id"] = "[red]gone\x1b[31m.md"
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join([lines[0], json.dumps(first), json.dumps(second), "{", *lines[3:]]), encoding="utf-8")
    done = truth_command("check", broken, "--corpus", CORPUS)
    assert done.exit_code == 1
    assert "3 faults" in done.output
    assert f"line 2, {first['id']}" in done.output
    assert "the text is at [744, 913)" in done.output
    assert "'[red]gone\\x1b[31m.md', which is not in the corpus" in done.output
    assert "line 4: not JSON" in done.output
    assert "--fix corrects 1 place" in done.output
    assert "rag-eval truth reanchor" in done.output

    told = json.loads(truth_command("check", broken, "--corpus", CORPUS, "--json").output)
    assert [fault["line"] for fault in told["faults"]] == [2, 3, 4]
    assert told["valid"] is False
    assert truth_command("check", GROUND_TRUTH, "--corpus", CORPUS).exit_code == 0


def test_check_with_fix_writes_what_is_sure_and_reports_the_rest(tmp_path: Path) -> None:
    lines = GROUND_TRUTH.read_text(encoding="utf-8").splitlines()
    moved, gone = json.loads(lines[1]), json.loads(lines[2])
    moved["relevant_spans"][0]["start"] += 1
    moved["relevant_spans"][0]["end"] += 1
    gone["relevant_spans"][0]["text"] = "that was never there"
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join([lines[0], json.dumps(moved), json.dumps(gone), *lines[3:]]), encoding="utf-8")
    done = truth_command("check", broken, "--corpus", CORPUS, "--fix")
    assert done.exit_code == 1
    assert "1 place corrected" in done.output
    assert "is now" in done.output
    assert "1 fault" in done.output
    assert "--fix corrects" not in done.output
    assert "rag-eval truth reanchor" in done.output
    written = broken.read_text(encoding="utf-8").split("\n")
    assert json.loads(written[1]) == json.loads(lines[1])
    assert written[2] == json.dumps(gone)
    told = json.loads(truth_command("check", broken, "--corpus", CORPUS, "--fix", "--json").output)
    assert (told["fixed"], len(told["faults"])) == ([], 1)


def test_of_many_faults_the_first_are_printed_and_all_are_counted(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{\n" * 99_999 + '{"query": "x?", "relevant_spans": [{"doc_id": "?", "start": 0, "end": 1}]}')
    done = truth_command("check", broken, "--corpus", CORPUS)
    assert done.exit_code == 1
    assert "100,000 faults" in done.output
    assert "by kind: line 99,999, unknown document 1" in done.output
    assert "and 99,950 more, listed by --json" in done.output
    assert len(done.output.splitlines()) < 70


def test_chunk_ids_are_not_called_valid_before_a_run_has_seen_their_chunks(tmp_path: Path) -> None:
    truth = tmp_path / "chunks.jsonl"
    truth.write_text('{"query": "When?", "relevant_chunk_ids": ["chunk_0"]}\n', encoding="utf-8")
    told = " ".join(truth_command("check", truth).output.split())
    assert "1 query, 1 chunk id, which a run checks against its chunks" in told
    assert "valid" not in told


def test_a_mistake_is_one_sentence_and_exit_2(tmp_path: Path) -> None:
    done = in_process("truth", "import", "trec", ".", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"rag-eval: there is no kind 'trec': use one of chroma.*\n", done.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["check", GROUND_TRUTH], "give the folder with --corpus"),
        (["review", GROUND_TRUTH, "--corpus", "nowhere"], "the corpus folder 'nowhere' does not exist"),
    ],
)
def test_what_is_missing_is_said(arguments: list[str | Path], sentence: str) -> None:
    done = truth_command(*arguments)
    assert isinstance(done.exception, RagEvalError), done.output
    assert sentence in str(done.exception)


def test_a_review_runs_until_it_is_interrupted(tmp_path: Path) -> None:
    truth = tmp_path / "truth.jsonl"
    truth.write_bytes(GROUND_TRUTH.read_bytes())
    command = ["truth", "review", str(truth), "--corpus", str(CORPUS), "--no-browser"]
    review = started(*command, cwd=tmp_path)
    try:
        assert review.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=\S+", review.stdout.readline())
        assert found is not None
        home = found[0].partition("/?")[0]
        with httpx.Client(base_url=home, headers={"Origin": home}, follow_redirects=True) as client:
            assert "<title>" in client.get(found[0]).text
            first = client.get("api/state").json()["queries"][0]["id"]
            seen = client.get("api/query", params={"id": first}).json()["version"]
            answer = client.post("api/decide", json={"id": first, "version": seen, "decision": "rejected"})
            assert answer.json()["row"]["status"] == "rejected"
        taken = rag_eval(*command, "--port", found[1], cwd=tmp_path)
        assert taken.returncode == 2
        assert f"port {found[1]} cannot be used" in taken.stderr
    finally:
        review.send_signal(signal.SIGINT)
        said, trouble = review.communicate(timeout=30)
    assert (review.returncode, trouble) == (0, "")
    assert "Review ended; every decision is saved." in said
    assert len(truth.read_bytes().splitlines()) == len(GROUND_TRUTH.read_bytes().splitlines()) - 1
    assert first in (tmp_path / "truth.rejected.jsonl").read_text(encoding="utf-8")
