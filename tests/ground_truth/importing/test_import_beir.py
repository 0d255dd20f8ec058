import json
from pathlib import Path
from typing import Any

import pytest

from rag_eval import Corpus
from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.ground_truth.importing.beir import read_beir
from rag_eval.ground_truth.importing.output import write_import
from rag_eval.ground_truth.truth_files import read_token_level

DOCUMENTS = [
    {"_id": "d1", "title": "Fähren", "text": "Sie fahren.\r\n"},
    {"_id": "http://x/y?z=1", "title": "", "text": "no title 😀"},
    {"_id": 7, "text": "a number for an id"},
    {"_id": "void", "title": "", "text": ""},
]
QUERIES = [
    {"_id": "q1", "text": "one?"},
    {"_id": "q2", "text": "two?", "metadata": {"x": 1}},
    {"_id": "q3", "text": "3?"},
]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td1\t0\nq2\thttp://x/y?z=1\t2\nq2\t7\t1\n"


def source(folder: Path, documents: list[Any], queries: list[Any], **qrels: str) -> Path:
    for name, records in (("corpus", documents), ("queries", queries)):
        lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "qrels").mkdir()
    for split, text in qrels.items():
        (folder / "qrels" / f"{split}.tsv").write_text(text)
    return folder


def test_judgements_above_zero_make_whole_documents_relevant(tmp_path: Path) -> None:
    (tmp_path / "beir").mkdir()
    found = read_beir(source(tmp_path / "beir", DOCUMENTS, QUERIES, test=QRELS, train="q3\td1\t1\n"))
    one, two = found.truth
    assert (one.query.id, one.query.text, one.query.metadata) == ("q1", "one?", {"source": "beir"})
    assert [(s.doc_id, s.start, s.text) for s in one.relevant_spans] == [("d1.md", 0, "Fähren\n\nSie fahren.\r\n")]
    assert [span.doc_id for span in two.relevant_spans] == ["http%3A%2F%2Fx%2Fy%3Fz%3D1.md", "7.md"]
    assert two.query.metadata == {
        "x": 1,
        "source": "beir",
        "grades": {"http%3A%2F%2Fx%2Fy%3Fz%3D1.md": 2.0, "7.md": 1.0},
    }
    assert found.notes.left_out == {}
    assert list(found.notes.mended) == ["document id that is not a file name, escaped"]

    written = write_import(found, tmp_path / "out" / "truth.jsonl")
    assert written.corpus == tmp_path / "out" / "corpus"
    corpus = Corpus.from_folder(written.corpus)
    assert len(corpus) == 4
    check_against_corpus(read_token_level(written.truth), corpus)
    train = read_beir(tmp_path / "beir", "train")
    assert [item.query.id for item in train.truth] == ["q3"]


def test_what_cannot_be_used_is_left_out_with_its_place(tmp_path: Path) -> None:
    qrels = "q1\td1\t1\nq1\tnone\t1\nq1\tvoid\t1\nq9\td1\t1\nq2\td1\t0\nbroken line\nq1\td1\tmany\n"
    qrels += "q1\td1\tnan\nq1\td1\tinf\n"
    documents = [*DOCUMENTS, "{broken", '["list"]', {"text": "no id"}, {"_id": "d1", "text": "again"}, {"_id": "n"}]
    found = read_beir(
        source(tmp_path, documents, [*QUERIES, {"_id": "q4"}, {"_id": "q1", "text": "other?"}], dev=qrels)
    )
    assert [item.query.id for item in found.truth] == ["q1"]
    assert {kind: len(places) for kind, places in found.notes.left_out.items()} == {
        "broken line": 6,
        "document without an id or a text": 2,
        "document whose id is taken": 1,
        "judgement of a document that is not there": 1,
        "judgement of an empty document": 1,
        "query without an id or a text": 1,
        "query without a relevant document": 1,
        "judgements of a query that is not there": 1,
        "query id used for another question": 1,
    }
    assert found.notes.left_out["broken line"][0].startswith("corpus.jsonl, line 5: not JSON")
    assert found.notes.left_out["broken line"][2].startswith("dev.tsv, line 6: 'broken line'")


def test_a_split_is_chosen_and_a_missing_one_is_named(tmp_path: Path) -> None:
    source(tmp_path, DOCUMENTS, QUERIES, dev=QRELS, train=QRELS)
    with pytest.raises(GroundTruthError, match="there is no split 'test': give one of dev, train with --split"):
        read_beir(tmp_path)
    assert len(read_beir(tmp_path, "dev").truth) == 2
    with pytest.raises(GroundTruthError, match=r"has no \.tsv files"):
        read_beir(tmp_path / "qrels")


@pytest.mark.parametrize("doc_id", ["../../etc/passwd", "a/../../b", "..\\x", ".."])
def test_a_document_whose_id_leads_out_of_the_folder_is_left_out_alone(tmp_path: Path, doc_id: str) -> None:
    whole = read_beir(source(tmp_path, DOCUMENTS, QUERIES, test=QRELS))
    (tmp_path / "bad").mkdir()
    found = read_beir(source(tmp_path / "bad", [{"_id": doc_id, "text": "x"}, *DOCUMENTS], QUERIES, test=QRELS))
    assert (found.truth, found.documents) == (whole.truth, whole.documents)
    (told,) = found.notes.left_out["document that cannot be written to a file"]
    assert told.startswith("corpus.jsonl, line 1: the document id ")
    assert "leads out of its folder" in told


def test_what_utf_8_cannot_hold_is_left_out_alone(tmp_path: Path) -> None:
    documents = [*DOCUMENTS, {"_id": "\ud800", "text": "x"}, {"_id": "d9", "text": "\ud800"}]
    queries = [*QUERIES, {"_id": "\ud800", "text": "x?"}, {"_id": "q9", "text": "\ud800?"}]
    whole = read_beir(source(tmp_path, DOCUMENTS, QUERIES, test=QRELS))
    (tmp_path / "bad").mkdir()
    found = read_beir(source(tmp_path / "bad", documents, queries, test=QRELS))
    assert (found.truth, found.documents) == (whole.truth, whole.documents)
    assert {kind: len(places) for kind, places in found.notes.left_out.items()} == {
        "document without an id or a text": 1,
        "document that cannot be written to a file": 1,
        "query without an id or a text": 2,
    }
