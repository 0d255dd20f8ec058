"""Spans that are given by a quote, a page or another place of their document."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval import Corpus, Document, DocumentId, GroundTruthError, read_token_level, truth_from
from rag_eval.documents import PLACES
from rag_eval.ground_truth.check import audit_token_level
from rag_eval.ground_truth.drift import reanchor, write_reanchored
from rag_eval.ground_truth.fixing import fix_truth
from rag_eval.ground_truth.quotes import Quotes
from rag_eval.ground_truth.review.session import DocumentFolder, ReviewSession
from tests.documents.made_files import pdf

PAGES = (
    "Ferries leave at noon.\nChildren travel free of charge.\n\n",
    "Ferries leave at noon.\nThe last crossing of the day is",
    "\n\nat eleven. Dogs need a ticket of their own, bicycles do not.\n",
)
STARTS = [0, len(PAGES[0]), len(PAGES[0] + PAGES[1])]
MANUAL = Document(
    DocumentId("manual.pdf"),
    "".join(PAGES),
    {PLACES: [[start, f"page {number}"] for number, start in enumerate(STARTS, start=1)]},
)
GUIDE = Document(
    DocumentId("guide.md"),
    "# Travel\n\n## Fares\n\nA day ticket is 9 euros.\n\n"
    "## Stay\n\n### Fares\n\nA night is 40 euros.\n\n# End\n\nBye.\n",
)
CORPUS = Corpus([MANUAL, GUIDE])


def placed(**span: Any) -> tuple[int, int, str]:
    (found,) = Quotes(CORPUS.by_id).placed({"relevant_spans": [{"doc_id": "manual.pdf", **span}]})["relevant_spans"]
    assert found.keys() == {"doc_id", "start", "end", "text"}
    return found["start"], found["end"], found["text"]


def test_a_quote_is_looked_for_in_its_page() -> None:
    noon = "Ferries leave at noon."
    assert placed(page=1, text=noon) == (0, len(noon), noon)
    assert placed(page=2, text=noon) == (STARTS[1], STARTS[1] + len(noon), noon)
    assert placed(place="Page  2", text=noon) == placed(page=2, text=noon)


def test_a_quote_alone_is_looked_for_in_the_whole_document() -> None:
    assert placed(text=" Dogs need a ticket of their own")[2] == "Dogs need a ticket of their own"


def test_a_quote_may_be_as_a_viewer_copies_it() -> None:
    assert placed(page=2, text="the last cros\u00adsing of  the day")[2] == "The last crossing of the day"
    assert placed(page=3, text="Dogs need a tiket of their own, bicycles")[2] == (
        "Dogs need a ticket of their own, bicycles"
    )


def test_a_quote_may_go_on_at_the_next_page() -> None:
    assert placed(page=2, text="The last crossing of the day is at eleven.")[2].split()[-1] == "eleven."
    with pytest.raises(GroundTruthError, match=r"is not in page 1 of 'manual.pdf'"):
        placed(page=1, text="The last crossing of the day is at eleven.")


def test_a_place_without_a_quote_is_meant_whole() -> None:
    assert placed(page=1)[2] == PAGES[0].strip()
    assert placed(doc_id="guide.md", place="End")[2] == "# End\n\nBye."


def test_a_heading_names_its_section_with_those_above_it_where_it_must() -> None:
    assert placed(doc_id="guide.md", place="stay > fares")[2] == "### Fares\n\nA night is 40 euros."
    assert placed(doc_id="guide.md", place="Fares", text="A day ticket is 9 euros.")[2] == "A day ticket is 9 euros."
    with pytest.raises(GroundTruthError, match=r"^Fares of 'guide.md' occurs 2 times: quote"):
        placed(doc_id="guide.md", place="Fares")
    with pytest.raises(GroundTruthError, match=r"has no 'Prices', it has 'Travel' to 'End': name one"):
        placed(doc_id="guide.md", place="Prices")


def test_a_page_of_a_text_without_any_is_told_to_be_for_want_of_pages() -> None:
    plain = Corpus([Document(DocumentId("a.pdf"), "Dogs need a ticket.")])
    with pytest.raises(GroundTruthError, match=r"'a.pdf' has no pages: remove 'page 2'"):
        Quotes(plain.by_id).placed({"relevant_spans": [{"doc_id": "a.pdf", "page": 2}]})


@pytest.mark.parametrize(
    ("span", "told"),
    [
        ({"text": "Ferries leave"}, r"is more than once in 'manual.pdf', at \[0, 13\) and \[56, 69\): quote more"),
        ({"page": 1, "text": "Dogs need a ticket"}, "is not in page 1 of 'manual.pdf', it is in page 3: write page 3"),
        ({"page": 9, "text": "Dogs"}, "has no 'page 9', it has 'page 1' to 'page 3'"),
        ({"doc_id": "guide.md", "page": 5}, "'guide.md' has no pages: remove 'page 5'"),
        ({"doc_id": "guide.md", "place": "Travle"}, r"has no 'Travle': did you mean 'Travel'\? Else quote"),
        ({"page": 0, "text": "Dogs"}, "the page of a span is '0': give its number"),
        ({"page": True}, "the page of a span is 'True'"),
        ({"place": ["page 1"]}, "give a name such as 'cell 3'"),
        ({"page": 1, "place": "page 1"}, "page and place: give one"),
        ({"page": 1, "start": 3}, "start or end, and page or place: give one"),
        ({"text": " "}, "needs a doc_id and a text"),
        ({"doc_id": None, "text": "Dogs"}, "needs a doc_id and a text"),
        ({"doc_id": "docs/manual.pdf", "text": "Dogs"}, "not in the corpus: write 'manual.pdf', the path inside"),
        ({"doc_id": "manual", "page": 1}, r"did you mean 'manual.pdf'\?"),
    ],
)
def test_what_has_no_place_is_told_with_what_to_do(span: dict[str, Any], told: str) -> None:
    with pytest.raises(GroundTruthError, match=told):
        placed(**span)


@given(st.lists(st.text("ab \n", max_size=6), min_size=1, max_size=4), st.text("ab", min_size=1, max_size=3), st.data())
def test_a_short_quote_is_placed_where_its_page_has_it_once(pages: list[str], quote: str, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, len(pages)))
    starts = [sum(map(len, pages[:before])) for before in range(len(pages))]
    places = [[start, f"page {one}"] for one, start in enumerate(starts, start=1)]
    corpus = Corpus([Document(DocumentId("x"), "".join(pages), {PLACES: places})])
    begin, text = starts[number - 1], pages[number - 1]
    there = [begin + at for at in range(len(text)) if text.startswith(quote, at)]
    line = {"relevant_spans": [{"doc_id": "x", "page": number, "text": quote}]}
    if len(there) != 1:
        if there:
            with pytest.raises(GroundTruthError, match="more than once"):
                Quotes(corpus.by_id).placed(line)
        return
    (found,) = Quotes(corpus.by_id).placed(line)["relevant_spans"]
    assert (found["start"], found["end"], found["text"]) == (there[0], there[0] + len(quote), quote)


@pytest.mark.parametrize("line", [None, [], {}, {"relevant_spans": 3}, {"relevant_spans": [None, 3, {"start": 1}]}])
def test_what_is_no_quote_stays_as_it_is(line: Any) -> None:
    assert Quotes(None).placed(line) == line


LINES = [
    {"format": "rag-eval/token-level", "version": 1},
    {"query": "Who is free?", "relevant_spans": [{"doc_id": "manual.pdf", "page": 1, "text": "Children travel free"}]},
    {
        "query": "What do dogs need?",
        "relevant_spans": [
            {
                "doc_id": "manual.pdf",
                "text": "Dogs need a tiket of their own",
                "alternatives": [{"doc_id": "guide.md", "place": "End", "origin": "told twice"}],
            }
        ],
        "metadata": {"from": "a person"},
    },
]


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def test_a_file_of_quotes_is_read_with_its_documents_and_told_without(tmp_path: Path) -> None:
    path = written(tmp_path / "truth.jsonl", *LINES[1:])
    first, second = read_token_level(path, CORPUS.by_id)
    assert [span.text for span in first.relevant_spans] == ["Children travel free"]
    assert [span.text for group in second.groups for span in group] == [
        "Dogs need a ticket of their own",
        "# End\n\nBye.",
    ]
    with pytest.raises(GroundTruthError, match=r"line 1, 'Who is free\?': page 1 of 'manual.pdf' .* truth check --fix"):
        read_token_level(path)
    assert truth_from(LINES[1:], "token-level", CORPUS.by_id) == [first, second]


def test_an_audit_tells_of_quotes_in_other_words_and_without_a_place() -> None:
    lost = {"query": "Where?", "relevant_spans": [{"doc_id": "manual.pdf", "page": 7, "text": "Dogs"}]}
    audit = audit_token_level("\n".join(map(json.dumps, [*LINES[1:], lost])), CORPUS)
    assert [(one.line, one.query) for one in audit.faults] == [(3, "Where?")]
    assert [(one.kind, one.line) for one in audit.remarks] == [("quoted in other words", 2)]
    assert audit.valid_answers == 3


def test_a_fix_writes_the_numbers_down(tmp_path: Path) -> None:
    path = written(tmp_path / "truth.jsonl", *LINES)
    before = read_token_level(written(tmp_path / "plain.jsonl", *LINES[1:]), CORPUS.by_id)
    found = fix_truth(path, CORPUS)
    assert found[0].message.startswith("'manual.pdf', page '1', text 'Children travel free' is now 'manual.pdf' [")
    assert read_token_level(path) == before
    assert fix_truth(path, CORPUS) == []


def test_lines_that_need_no_other_spans_stay_quoted_when_spans_are_carried_over(tmp_path: Path) -> None:
    moved = {"doc_id": "manual.pdf", "start": 9, "end": 31, "text": PAGES[0][:22]}
    path = written(tmp_path / "truth.jsonl", LINES[1], {"query": "When?", "relevant_spans": [moved]})
    line = path.read_text().splitlines()[0]
    old = {DocumentId("manual.pdf"): ["Welcome! " + MANUAL.content]}
    report = reanchor(read_token_level(path, CORPUS.by_id), CORPUS, old)
    assert write_reanchored(report, path, CORPUS.by_id) is None
    assert path.read_text().splitlines()[0] == line
    assert read_token_level(path, CORPUS.by_id)[1].relevant_spans[0].start == 0


def test_a_review_shows_quotes_of_a_pdf_at_their_place_and_keeps_their_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "manual.pdf").write_bytes(pdf([["Ferries leave at noon."], ["Ferries leave at noon.", "Dogs pay."]]))
    quoted = {"doc_id": "manual.pdf", "page": 2, "text": "Ferries leave at noon."}
    path = written(tmp_path / "truth.jsonl", {"query": "When?", "relevant_spans": [quoted]})
    session = ReviewSession(path, DocumentFolder(folder, "**/*"))
    (entry,) = session.entries.values()
    (passage,) = session.passages(entry)
    assert passage.fault is None
    assert session.documents["manual.pdf"].place_at(passage.span.start) == "page 2"
    session.decide(entry.record.query_id, entry.version, "accepted")
    assert [span.text for span in read_token_level(path)[0].relevant_spans] == ["Ferries leave at noon."]
