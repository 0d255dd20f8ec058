import json

import pytest

from rag_eval import Corpus, Document, DocumentId
from rag_eval.ground_truth.check import audit_chunk_level, audit_token_level
from rag_eval.ground_truth.fixing import fixed_truth

CORPUS = Corpus(
    [
        Document(DocumentId("a.md"), "one two three one two"),
        Document(DocumentId("b.md"), "four three five"),
        Document(DocumentId("empty.md"), ""),
    ]
)


def span(doc_id: str, start: int, text: str, end: int | None = None) -> dict[str, object]:
    return {"doc_id": doc_id, "start": start, "end": start + len(text) if end is None else end, "text": text}


def lines(*records: object) -> str:
    return "\n".join(record if isinstance(record, str) else json.dumps(record) for record in records)


def test_truth_in_order_has_nothing_but_counts() -> None:
    audit = audit_token_level(
        lines(
            {"format": "rag-eval/token-level", "version": 1},
            {"query": "x?", "relevant_spans": [span("b.md", 0, "four"), span("b.md", 11, "five")]},
            {"query": "y?", "relevant_spans": [span("b.md", 0, "four t")]},
            {"query": "z?", "unanswerable": True},
        ),
        CORPUS,
    )
    assert audit.is_valid
    assert (audit.queries, audit.unanswerable, audit.answers, audit.valid_answers) == (3, 1, 3, 3)
    assert list(audit.remarks) == []


def test_questions_are_counted_by_what_they_copy_from_their_passages() -> None:
    records = [
        {"query": "one two three", "relevant_spans": [{"doc_id": "a.md", "start": 0, "end": 13}]},
        {"query": "one two three and so on, up to twelve words", "relevant_spans": [span("a.md", 0, "one two three")]},
        {"query": "what?", "relevant_spans": [span("a.md", 0, "one")]},
        {"query": "nothing?", "unanswerable": True},
    ]
    audit = audit_token_level(lines(*records), CORPUS)
    assert audit.leakage == {"none": 1, "up to 25 %": 0, "25 to 50 %": 1, "more than 50 %": 1}


def test_every_fault_is_reported_each_once() -> None:
    audit = audit_token_level(
        lines(
            "{broken",
            {
                "query": "x?",
                "relevant_spans": [span("a.md", 0, "two"), span("c.md", 0, "two"), span("a.md", 0, "o", 5)],
            },
            {"query": "y?", "relevant_spans": []},
            {"query": "x?", "unanswerable": True},
            {"query": "w?", "relevant_spans": [span("a.md", 3, "", 3), span("a.md", 99, "two")]},
            {"query": 5, "relevant_spans": [{"doc_id": 1}]},
        ),
        CORPUS,
    )
    found = [(finding.line, finding.kind, finding.doc_id) for finding in audit.faults]
    assert found == [
        (1, "line", None),
        (2, "span", "a.md"),
        (2, "unknown document", "c.md"),
        (2, "span", "a.md"),
        (3, "line", None),
        (4, "line", None),
        (5, "span", "a.md"),
        (5, "span", "a.md"),
        *[(6, "line", None)] * 4,
    ]
    assert not audit.is_valid
    assert audit.valid_answers == 0
    assert audit.faults[1].query == "x?"
    assert "the text is at [4, 7)" in audit.faults[1].message


def test_what_a_person_should_look_at_is_remarked() -> None:
    audit = audit_token_level(
        lines(
            {"query": "Which  one?", "relevant_spans": [span("a.md", 0, "one two"), span("a.md", 4, "two three")]},
            {"query": "which one?", "relevant_spans": [span("b.md", 5, "three"), span("b.md", 5, "three")]},
        ),
        CORPUS,
    )
    assert audit.is_valid
    assert [(remark.line, remark.kind) for remark in audit.remarks] == [
        (1, "spans overlap"),
        (2, "question asked twice"),
        (2, "answer given twice"),
    ]


def test_alternatives_are_audited() -> None:
    copy = span("a.md", 14, "one two")
    three = span("b.md", 5, "three") | {"alternatives": [span("a.md", 0, "three")]}
    audit = audit_token_level(
        lines(
            {"query": "x?", "relevant_spans": [span("a.md", 0, "one two") | {"alternatives": [copy]}]},
            {"query": "y?", "relevant_spans": [three]},
        ),
        CORPUS,
    )
    assert [(fault.line, fault.kind, fault.doc_id) for fault in audit.faults] == [(2, "span", "a.md")]
    assert (audit.answers, audit.valid_answers) == (4, 3)


def test_chunk_level_truth_is_audited_by_itself() -> None:
    audit = audit_chunk_level(
        lines(
            {"query": "x?", "relevant_chunk_ids": ["chunk_1", "chunk_1"], "metadata": {"chunker": "C"}},
            {"query": "y?", "relevant_chunk_ids": ["chunk_2"]},
            {"query": "z?"},
        )
    )
    assert [(finding.line, finding.kind) for finding in audit.faults] == [(3, "line")]
    assert [(remark.line, remark.kind) for remark in audit.remarks] == [(1, "answer given twice"), (2, "no chunker")]
    assert (audit.queries, audit.answers) == (3, 3)


def test_a_file_without_queries_is_at_fault() -> None:
    assert [finding.message for finding in audit_token_level("\n", CORPUS).faults] == [
        "the file has no queries: write one per line"
    ]


def test_a_line_that_is_there_twice_is_reported_once() -> None:
    line = {"query": "x?", "relevant_spans": [span("b.md", 0, "four")]}
    audit = audit_token_level(lines(line, line), CORPUS)
    assert [(finding.line, finding.message) for finding in audit.faults] == [
        (2, "its id is in line 1 too: remove one, or give each its own id")
    ]
    assert list(audit.remarks) == []
    other = audit_token_level(lines(line, line | {"id": "other"}), CORPUS)
    assert (list(other.faults), [remark.kind for remark in other.remarks]) == ([], ["question asked twice"])


def test_the_document_that_was_meant_is_asked_about() -> None:
    corpus = Corpus([Document(DocumentId(name), "one") for name in ("guide/install.md", "guide/usage.md")])
    for written, told in (
        ("guide/instal.md", "did you mean 'guide/install.md'? Else check the id"),
        ("docs/guide/usage.md", "write 'guide/usage.md', the path inside the corpus folder"),
        ("else.md", "not in the corpus: check the id, the corpus folder and its glob"),
    ):
        record = {"query": "x?", "relevant_spans": [span(written, 0, "one")]}
        (fault,) = audit_token_level(lines(record), corpus).faults
        assert told in fault.message


FIXABLE = Corpus(
    [
        Document(DocumentId("guide/a.md"), "Größe: one two three. one two"),
        Document(DocumentId("guide/b.md"), "line\r\nnext line"),
    ]
)


@pytest.mark.parametrize(
    ("written", "fixed"),
    [
        (span("guide/a.md", 2, "three"), span("guide/a.md", 15, "three")),
        (span("guide/a.md", 9, "one two three"), span("guide/a.md", 7, "one two three")),  # counted in bytes
        (span("guide/a.md", 15, "three", 15), span("guide/a.md", 15, "three")),
        (span("docs/guide/a.md", 15, "three"), span("guide/a.md", 15, "three")),
        (span("guide/b.md", 5, "next"), span("guide/b.md", 6, "next")),
        (span("docs/guide/a.md", 15, "", 20), span("guide/a.md", 15, "", 20)),
    ],
)
def test_what_the_documents_leave_no_doubt_about_is_corrected(
    written: dict[str, object], fixed: dict[str, object]
) -> None:
    text = lines({"query": "x?", "relevant_spans": [written], "metadata": {"k": 1}}, "")
    corrected, found = fixed_truth(text, FIXABLE)
    assert corrected == lines({"query": "x?", "relevant_spans": [fixed], "metadata": {"k": 1}}, "")
    assert [(one.line, one.kind) for one in found] == [(1, "span")]
    assert "is now 'guide/" in found[0].message
    assert audit_token_level(corrected, FIXABLE).is_valid
    assert fixed_truth(corrected, FIXABLE) == (corrected, [])


@pytest.mark.parametrize(
    "written",
    [
        span("guide/a.md", 3, "one two"),  # at two places
        span("guide/a.md", 3, "absent"),
        span("guide/aa.md", 15, "three"),  # which document is meant is a guess
        span("elsewhere.md", 3, "three"),
        span("guide/a.md", 15, "three"),
    ],
)
def test_what_is_in_doubt_or_in_order_stays_byte_for_byte(written: dict[str, object]) -> None:
    text = "{broken\n" + json.dumps({"query": "x?", "relevant_spans": [written]}, indent=None) + "\n\n"
    assert fixed_truth(text, FIXABLE) == (text, [])


def test_alternatives_are_corrected_and_other_lines_stay() -> None:
    wrong, right = span("guide/b.md", 0, "next"), span("guide/b.md", 6, "next")
    group = {"query": "y?", "relevant_spans": [{**span("guide/b.md", 0, "line"), "alternatives": [wrong]}]}
    ids = {"query": "x?", "relevant_chunk_ids": ["a"]}
    corrected, found = fixed_truth(lines(group, ids), FIXABLE)
    fixed = {"query": "y?", "relevant_spans": [{**span("guide/b.md", 0, "line"), "alternatives": [right]}]}
    assert corrected == lines(fixed, ids)
    assert [(one.line, one.kind) for one in found] == [(1, "span")]
