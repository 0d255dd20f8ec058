import json

from rag_eval import Corpus, Document, DocumentId
from rag_eval.ground_truth.check import audit_chunk_level, audit_token_level

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
    assert audit.repeated_share == 0
    counted = {one.doc_id: (one.queries, one.spans, one.truth_characters, one.share) for one in audit.coverage}
    assert counted == {"a.md": (0, 0, 0, 0.0), "b.md": (2, 3, 10, 10 / 15), "empty.md": (0, 0, 0, 0.0)}


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
        (1, "occurs more than once"),
        (2, "question asked twice"),
        (2, "answer given twice"),
        (2, "occurs more than once"),
        (2, "occurs more than once"),
    ]
    messages = [remark.message for remark in audit.remarks if remark.kind == "occurs more than once"]
    assert messages[0] == "'one two' at [0, 7) occurs 2 times in 'a.md'"
    assert messages[1] == "'three' at [5, 10) occurs in 'a.md' too"
    assert audit.repeated == 3
    assert audit.repeated_share == (7 + 5 + 5) / (7 + 9 + 5 + 5)


def test_alternatives_are_audited_and_a_copy_that_the_group_names_is_no_remark() -> None:
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
    assert audit.remarks == [], "two places and two members of the group, though one of these is wrong"
    assert [one.truth_characters for one in audit.coverage] == [14, 5, 0]
    more = audit_token_level(
        lines({"query": "x?", "relevant_spans": [span("a.md", 0, "one") | {"alternatives": [copy]}]}), CORPUS
    )
    assert [(remark.kind, remark.doc_id) for remark in more.remarks] == [("occurs more than once", "a.md")] * 2
    assert more.repeated_share == 1


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
        "the file holds no query: write one a line"
    ]
