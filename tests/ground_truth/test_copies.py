"""What says the same as a span elsewhere in the corpus counts as that span."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rag_eval import Corpus, Document, DocumentId, Query, TokenLevelGroundTruth, write_token_level
from rag_eval.config.loading import load_config
from rag_eval.config.models import BenchmarkConfig
from rag_eval.ground_truth.copies import (
    COPY,
    LEAST_CHARACTERS,
    Copies,
    count_copies,
    credit_copies,
)
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.runs import data_differences
from rag_eval.tables import truth_from_tables, truth_to_tables
from tests.chain import load_documents, load_truth
from tests.results.made_runs import make_run, write_data

TEXT = "The ferry leaves at noon from quay seven."
A = Document(DocumentId("a.md"), f"{TEXT}\n\nCoffee is served.\n\n{TEXT}\n")
B = Document(DocumentId("b.md"), f"# Times\n\n{TEXT}\n")
CORPUS = Corpus([A, B])
SPAN, COFFEE = A.span(0, len(TEXT)), A.span(len(TEXT) + 2, len(TEXT) + 18)
ASKED = TokenLevelGroundTruth(Query.from_text("when?"), [SPAN, COFFEE])


def test_copies_in_every_document_become_alternatives() -> None:
    found = credit_copies([ASKED], CORPUS)
    (item,) = found
    others = item.alternatives[SPAN]
    assert [(one.doc_id, one.start) for one in others] == [("a.md", A.content.rindex(TEXT)), ("b.md", 9)]
    assert {one.text for one in others} == {TEXT}
    assert item.origins == dict.fromkeys(others, COPY)
    assert item.relevant_spans == ASKED.relevant_spans
    assert count_copies(truth_to_tables(found).answers) == (1, 1)
    assert credit_copies(found, CORPUS) == found
    assert credit_copies([ASKED], CORPUS, "off") == [ASKED]


def test_what_the_question_has_already_is_not_added_again() -> None:
    other, third = credit_copies([ASKED], CORPUS)[0].alternatives[SPAN]
    both = TokenLevelGroundTruth(Query.from_text("both?"), [SPAN, other])
    (item,) = credit_copies([both], CORPUS)
    assert item.alternatives == {SPAN: (third,)}


def test_short_texts_and_texts_across_documents_are_no_copies() -> None:
    short = "x" * (LEAST_CHARACTERS - 1)
    document = Document(DocumentId("c.md"), f"{short} and {short}")
    item = TokenLevelGroundTruth(Query.from_text("short?"), [document.span(0, len(short))])
    assert credit_copies([item], Corpus([document])) == [item]
    whole = Document(DocumentId("d.md"), "one half of a text\nthe other half of it")
    parts = [Document(DocumentId("e.md"), "one half of a text"), Document(DocumentId("f.md"), "the other half of it")]
    item = TokenLevelGroundTruth(Query.from_text("whole?"), [whole.span(0, len(whole.content))])
    assert credit_copies([item], Corpus([whole, *parts])) == [item]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.text("ab", min_size=25, max_size=60), min_size=1, max_size=3), st.data())
def test_exact_copies_are_all_places_that_do_not_overlap(texts: list[str], data: st.DataObject) -> None:
    documents = [Document(DocumentId(str(number)), text + text) for number, text in enumerate(texts)]
    document = data.draw(st.sampled_from(documents))
    start = data.draw(st.integers(0, len(document.content) - LEAST_CHARACTERS))
    span = document.span(start, start + LEAST_CHARACTERS)
    (item,) = credit_copies([TokenLevelGroundTruth(Query.from_text("?"), [span])], Corpus(documents))
    taken = [span]
    for one in documents:
        for place in range(len(one.content) - LEAST_CHARACTERS + 1):
            here = one.span(place, place + LEAST_CHARACTERS)
            clear = all(o.doc_id != one.id or o.end <= here.start or here.end <= o.start for o in taken)
            taken += [here] if here.text == span.text and clear else []
    assert [span, *item.alternatives.get(span, ())] == taken


@pytest.mark.parametrize(
    ("written", "expected"),
    [("", "exact"), ("copies: off", "off"), ("copies: exact", "exact")],
)
def test_a_benchmark_file_says_which_copies_count(tmp_path: Path, written: str, expected: object) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(f"corpus: docs\nground_truth: truth.jsonl\nchunkers: markdown\n{written}\n")
    assert load_config(path).copies == expected
    for wrong in ("some", {"near": 0.9}):
        with pytest.raises(ValidationError, match="copies"):
            BenchmarkConfig(corpus=tmp_path, ground_truth=path, chunkers=["markdown"], copies=wrong)


@pytest.mark.parametrize("copies", ["off", "exact"])
def test_a_run_credits_the_copies_in_all_shards(tmp_path: Path, copies: Copies) -> None:
    for document in CORPUS:
        (tmp_path / document.id).write_text(document.content)
    write_token_level(tmp_path / "truth.jsonl", [ASKED])
    given = {"corpus": tmp_path, "ground_truth": tmp_path / "truth.jsonl", "chunkers": ["markdown"]}
    config = BenchmarkConfig.model_validate(given | {"shards": 4, "copies": copies})
    workspace = Workspace(root=tmp_path / "work")
    documents = load_documents(workspace, config)
    assert len(documents) == 2
    truth = workspace.read_truth(load_truth(workspace, config, documents))
    assert truth_from_tables(truth, TokenLevelGroundTruth) == credit_copies([ASKED], CORPUS, copies)


def test_runs_with_other_copies_are_not_compared_without_a_word(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    before = make_run(workspace, write_data(tmp_path / "data"))
    assert data_differences(before, before) == []
    off = before.model_copy(update={"config": before.config.model_copy(update={"copies": "off"})})
    assert data_differences(before, off) == []  # nothing occurs twice
    answers = before.inputs.truth.answers.model_copy(update={"digest": "other"})
    truth = before.inputs.truth.model_copy(update={"answers": answers})
    other = off.model_copy(update={"inputs": before.inputs.model_copy(update={"truth": truth})})
    (said,) = data_differences(before, other)
    assert said == f"the copies that count as evidence differ: exact in {before.run} and off in {before.run}"
