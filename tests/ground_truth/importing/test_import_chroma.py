import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rag_eval import Corpus
from rag_eval.errors import EmptyCorpusError, GroundTruthError
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.ground_truth.importing.chroma_dataset import read_chroma
from rag_eval.ground_truth.importing.output import write_import
from rag_eval.ground_truth.truth_files import read_token_level

SHARED = Path(__file__).parents[4] / "shared" / "data" / "chroma"
TEXT = "Grüße aus 😀 Oslo.\r\nDie Fähre fährt um 22:40.\r\nDie Fähre fährt um 22:40.\r\n"


def source(folder: Path, *rows: tuple[str, object, str]) -> Path:
    (folder / "corpora").mkdir()
    (folder / "corpora" / "ferry.md").write_bytes(TEXT.encode())
    with (folder / "questions_df.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "references", "corpus_id"])
        for question, references, corpus in rows:
            writer.writerow([question, references if isinstance(references, str) else json.dumps(references), corpus])
    return folder


def reference(text: str, start: int, end: int | None = None) -> dict[str, Any]:
    return {"content": text, "start_index": start, "end_index": start + len(text) if end is None else end}


@pytest.mark.skipif(not SHARED.is_dir(), reason="Chroma's dataset is not beside the repository")
def test_the_published_dataset_comes_over_whole(tmp_path: Path) -> None:
    found = read_chroma(SHARED)
    summary = write_import(found, tmp_path / "truth.jsonl")
    assert (summary.queries, summary.answers, summary.documents) == (472, 790, 5)
    assert summary.left_out == summary.mended == {}
    check_against_corpus(read_token_level(tmp_path / "truth.jsonl"), Corpus.from_folder(SHARED / "corpora"))
    assert summary.next_command == f"rag-eval run --corpus {SHARED / 'corpora'} --truth {tmp_path / 'truth.jsonl'}"


def test_references_become_spans_and_what_is_mended_is_told(tmp_path: Path) -> None:
    oslo = TEXT.index("Oslo")
    bytes_start = len(TEXT[:oslo].encode())
    found = read_chroma(
        source(
            tmp_path,
            ("plain?", [reference("Oslo.", oslo)], "ferry"),
            ("bytes?", [reference("Oslo.", bytes_start, bytes_start + 5)], "ferry"),
            ("spaced?", [reference("aus 😀  Oslo.", 0)], "ferry"),
            ("plain?", [reference("Grüße", 0)], "ferry"),
        )
    )
    spans = {item.query.text: [(s.start, s.end, s.text) for s in item.relevant_spans] for item in found.truth}
    assert spans == {
        "plain?": [(oslo, oslo + 5, "Oslo."), (0, 5, "Grüße")],
        "bytes?": [(oslo, oslo + 5, "Oslo.")],
        "spaced?": [(6, oslo + 5, "aus 😀 Oslo.")],
    }
    assert {kind: len(places) for kind, places in found.notes.mended.items()} == {
        "UTF-8 byte offsets, converted to code points": 1,
        "text found in other words or spacing": 1,
        "question asked more than once, merged": 1,
    }
    assert found.notes.left_out == {}
    assert found.truth[0].query.metadata == {"source": "chroma", "corpus_id": "ferry"}


def test_what_cannot_be_used_is_left_out_with_its_place(tmp_path: Path) -> None:
    found = read_chroma(
        source(
            tmp_path,
            ("fine?", [reference("Oslo.", TEXT.index("Oslo")), reference("nowhere at all in this text", 3)], "ferry"),
            ("gone?", [reference("x", 0)], "train"),
            ("broken?", "[{", "ferry"),
            ("list?", "[1]", "ferry"),
            ("odd?", [{"content": "Oslo.", "start_index": "3", "end_index": 4}], "ferry"),
            ("", "[]", "ferry"),
            ("none?", [], "ferry"),
        )
    )
    assert [item.query.text for item in found.truth] == ["fine?"]
    assert {kind: len(places) for kind, places in found.notes.left_out.items()} == {
        "text that is not in its document": 1,
        "question about a document that is not there": 1,
        "question whose references are not a list of objects": 2,
        "place that is not numbers and a text": 1,
        "question without a reference that could be placed": 2,
        "row without a question or a corpus": 1,
    }
    (gone,) = found.notes.left_out["question about a document that is not there"]
    assert gone == "questions_df.csv, line 3, 'gone?': 'train'"


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    folder = source(tmp_path, ("out?", [reference("x", 0)], "../ferry"))
    with pytest.raises(GroundTruthError, match=r"question about a document that is not there: 1, first .*'\.\./ferry'"):
        read_chroma(folder)
    (folder / "questions_df.csv").write_text("a,b\n1,2\n")
    with pytest.raises(GroundTruthError, match="has no column question, references, corpus_id"):
        read_chroma(folder)
    (folder / "questions_df.csv").write_text('question,references,corpus_id\n"never closed,[],x\n')
    with pytest.raises(GroundTruthError, match="is not a table"):
        read_chroma(folder)
    (folder / "questions_df.csv").write_text("question,references,corpus_id\nx?,[],ferry\n")
    with pytest.raises(GroundTruthError, match=r"no query could be imported \(question without a reference .* line 2"):
        read_chroma(folder)
    with pytest.raises(GroundTruthError, match=r"the file .* does not exist: check the path"):
        read_chroma(folder / "none.csv")
    (folder / "corpora").rename(folder / "texts")
    with pytest.raises(GroundTruthError, match="give their folder with --corpus"):
        read_chroma(folder)
    with pytest.raises(EmptyCorpusError, match=r"matches '\*\*/\*\.txt'"):
        read_chroma(folder, folder / "texts", "**/*.txt")
