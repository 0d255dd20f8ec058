import json
from pathlib import Path
from typing import Any

import pytest

from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.importing.squad import read_squad

FIRST = "Über 😀 den Fjord fährt die Fähre. Die Fähre ist alt."
SECOND = "Sie fährt um 22:40."


def question(text: str, *answers: tuple[str, object], **more: Any) -> dict[str, Any]:
    return {"question": text, "answers": [{"text": a, "answer_start": at} for a, at in answers], **more}


def source(path: Path, *paragraphs: Any, title: str = "AC/DC & Søn") -> Path:
    article = {"title": title, "paragraphs": list(paragraphs)}
    path.write_text(json.dumps({"version": "v2.0", "data": [article]}), encoding="utf-8")
    return path


def test_answers_become_spans_of_their_article(tmp_path: Path) -> None:
    found = read_squad(
        source(
            tmp_path / "s.json",
            {"context": FIRST, "qas": [question("what?", ("Fähre", FIRST.index("Fähre")), id="a1")]},
            {
                "context": SECOND,
                "qas": [
                    question("when?", ("22:40", SECOND.index("22")), ("22:40", SECOND.index("22")), id="a2"),
                    question("never?", id="a3", is_impossible=True, plausible_answers=[{"text": "x"}]),
                ],
            },
        )
    )
    (document,) = found.documents
    assert document.id == "AC%2FDC %26 Søn.md"
    assert document.content == f"{FIRST}\n\n{SECOND}"
    what, when, never = found.truth
    assert [(span.text, document.content[span.start : span.end]) for span in what.relevant_spans] == [
        ("Fähre", "Fähre")
    ]
    start = document.content.index("22:40")
    assert [(span.start, span.end) for span in when.relevant_spans] == [(start, start + 5)]
    assert (never.unanswerable, never.query.id) == (True, "a3")
    assert found.notes.left_out == {}


@pytest.mark.parametrize(
    ("start", "mended"),
    [
        (len(FIRST[: FIRST.rindex("Fähre")].encode()), "UTF-8 byte offsets, converted to code points"),
        (FIRST.rindex("Fähre") + 1, "UTF-16 unit offsets, converted to code points"),
        (FIRST.rindex("Fähre") - 3, "text found at another place"),
    ],
)
def test_offsets_that_do_not_fit_are_mended_and_told(tmp_path: Path, start: int, mended: str) -> None:
    paragraph = {"context": FIRST, "qas": [question("old?", ("Fähre ist", start))]}
    found = read_squad(source(tmp_path / "s.json", paragraph, title="Fähre"))
    (item,) = found.truth
    assert [(span.start, span.text) for span in item.relevant_spans] == [(FIRST.rindex("Fähre"), "Fähre ist")]
    assert list(found.notes.mended) == [mended]
    assert "article 0, paragraph 0, 'old?'" in found.notes.mended[mended][0]


def test_what_cannot_be_used_is_left_out_with_its_place(tmp_path: Path) -> None:
    found = read_squad(
        source(
            tmp_path / "s.json",
            {
                "context": SECOND,
                "qas": [
                    question("fine?", ("22:40", SECOND.index("22"))),
                    question("nowhere?", ("a text that is not there", 0)),
                    question("odd?", ("22:40", "13")),
                    question("empty?", ("", 3)),
                    question("none?"),
                    question("both?", ("22:40", SECOND.index("22")), is_impossible=True),
                    question("  "),
                    "no question",
                    question("fine?", ("Sie", 0), id="own"),
                ],
            },
            {"context": ""},
            {"qas": []},
            title="Fähre",
        )
    )
    assert [(item.query.text, len(item.relevant_spans)) for item in found.truth] == [("fine?", 1), ("fine?", 1)]
    assert {kind: len(places) for kind, places in found.notes.left_out.items()} == {
        "paragraph without a context or a list of questions": 2,
        "text that is not in its document": 1,
        "place that is not numbers and a text": 1,
        "empty text": 1,
        "question without an answer that could be placed": 4,
        "question called impossible that has answers": 1,
        "question without a text": 2,
    }
    assert list(found.notes.mended) == ["question asked under several ids, kept"]


@pytest.mark.parametrize("title", ["../../x", "\ud800"])
def test_an_article_that_cannot_be_a_file_is_left_out_alone(tmp_path: Path, title: str) -> None:
    question = {"id": "1", "question": "fine?", "answers": [{"answer_start": 0, "text": SECOND[:5]}]}
    unwritable = [{"id": "\ud800", "question": "a?"}, {"id": "2", "question": "\ud800?"}]
    articles = [
        {"title": title, "paragraphs": [{"context": SECOND, "qas": [question]}]},
        {"title": "Good", "paragraphs": [{"context": SECOND, "qas": [question, *unwritable]}]},
    ]
    (tmp_path / "x.json").write_text(json.dumps({"data": articles}))
    found = read_squad(tmp_path / "x.json")
    assert [document.id for document in found.documents] == ["Good.md"]
    assert [item.query.id for item in found.truth] == ["1"]
    (told,) = found.notes.left_out["document that cannot be written to a file"]
    assert told.startswith("article 0 with 1 question: the document id ")
    assert len(found.notes.left_out["question without a text"]) == 2


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(GroundTruthError, match="has no list 'data'"):
        read_squad(tmp_path / "x.json")
    (tmp_path / "x.json").write_text(f'{{"data": [{"1" * 5_000}]}}')
    with pytest.raises(GroundTruthError, match=r"is not JSON .*digits"):
        read_squad(tmp_path / "x.json")
