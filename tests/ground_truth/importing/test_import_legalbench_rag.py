import json
from pathlib import Path
from typing import Any

import pytest

from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.importing.legalbench_rag import read_legalbench_rag

TEXT = "§ 1 Term.\r\nThe term is two years.\r\n§ 2 Notice.\r\nNotice is thirty days.\r\n"


def source(folder: Path, *tests: Any) -> Path:
    (folder / "corpus" / "nda").mkdir(parents=True)
    (folder / "corpus" / "nda" / "acme & co.txt").write_bytes(TEXT.encode())
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "nda.json").write_text(json.dumps({"tests": list(tests)}), encoding="utf-8")
    return folder


def snippet(start: int, end: int, answer: str | None = None, file: str = "nda/acme & co.txt") -> dict[str, Any]:
    record: dict[str, Any] = {"file_path": file, "span": [start, end]}
    return record if answer is None else record | {"answer": answer}


def test_offsets_into_translated_files_are_carried_over_to_the_files_as_they_are(tmp_path: Path) -> None:
    seen = TEXT.replace("\r\n", "\n")
    start = seen.index("Notice is")
    both = "§ 2 Notice.\nNotice is"
    folder = source(
        tmp_path,
        {"query": "notice?", "snippets": [snippet(start, start + 9, "Notice is")], "tags": ["nda"]},
        {"query": "bare?", "snippets": [snippet(start, start + 9)]},
        {"query": "over a line?", "snippets": [snippet(seen.index(both), start + 9, both)]},
    )
    found = read_legalbench_rag(folder)
    real = TEXT.index("Notice is")
    texts = [[(span.start, span.text) for span in item.relevant_spans] for item in found.truth]
    crossing = (TEXT.index("§ 2"), "§ 2 Notice.\r\nNotice is")
    assert texts == [[(real, "Notice is")], [(real, "Notice is")], [crossing]]
    assert found.truth[0].query.metadata == {"source": "legalbench-rag", "benchmark": "nda", "tags": ["nda"]}
    assert [document.id for document in found.documents] == ["nda/acme & co.txt"]
    assert found.corpus_folder == folder / "corpus"
    assert found.notes.left_out == {}
    assert read_legalbench_rag(folder / "benchmarks" / "nda.json").truth == found.truth


def test_what_cannot_be_used_is_left_out_with_its_place(tmp_path: Path) -> None:
    found = read_legalbench_rag(
        source(
            tmp_path,
            {"query": "fine?", "snippets": [snippet(0, 9), snippet(0, 3, file="nda/none.txt"), {"span": [0, 1]}]},
            {"query": "outside?", "snippets": [snippet(0, 900)]},
            {"query": "no numbers?", "snippets": [snippet(0, 900) | {"span": [0]}]},
            {"query": "", "snippets": []},
            "no test",
        )
    )
    assert [item.query.text for item in found.truth] == ["fine?"]
    assert {kind: len(places) for kind, places in found.notes.left_out.items()} == {
        "snippet of a document that is not there": 1,
        "snippet without a file": 1,
        "span that is outside its document": 2,
        "test without a snippet that could be placed": 2,
        "test without a query or a list of snippets": 2,
    }


@pytest.mark.parametrize("file", ["../secret.txt", "nda/../../secret.txt", "nda\\..\\..\\secret.txt", ".."])
def test_a_path_out_of_the_corpus_is_left_out_alone(tmp_path: Path, file: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    whole = {"query": "fine?", "snippets": [snippet(0, 3)]}
    folder = source(tmp_path / "set", {"query": "x?", "snippets": [snippet(0, 3, file=file)]}, whole)
    found = read_legalbench_rag(folder)
    assert [item.query.text for item in found.truth] == ["fine?"]
    assert len(found.notes.left_out["snippet of a document that is not there"]) == 1


def test_what_utf_8_cannot_hold_is_left_out_alone(tmp_path: Path) -> None:
    whole = {"query": "fine?", "snippets": [snippet(0, 3), snippet(0, 3) | {"answer": "\ud800 and more of it"}]}
    bad = [{"query": "\ud800?", "snippets": []}, whole | {"query": "x?", "tags": ["\ud800"]}]
    found = read_legalbench_rag(source(tmp_path, *bad, whole))
    assert [item.query.text for item in found.truth] == ["fine?"]
    assert [
        len(found.truth[0].relevant_spans),
        len(found.notes.left_out["test without a query or a list of snippets"]),
    ] == [1, 2]


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(GroundTruthError, match="has no JSON files"):
        read_legalbench_rag(tmp_path)
    (tmp_path / "x.json").write_text('{"data": []}')
    with pytest.raises(GroundTruthError, match="has no list 'tests'"):
        read_legalbench_rag(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(GroundTruthError, match=r"is not JSON \(.*line 1.*\): check that it is whole"):
        read_legalbench_rag(tmp_path / "x.json")
