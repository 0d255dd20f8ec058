"""What the model is asked to answer is a strict schema, and what it answers is not trusted."""

import json

import jsonschema
import pytest

from rag_eval.generation.questions import BareQuestions, ChunkQuestions, SpanQuestions, Verdict
from rag_eval.llm.chat import Answer, UnusableAnswer, read_answer, response_format

GOOD = {"questions": [{"number": 1, "question": "?", "excerpts": [{"document": "D1", "text": "t", "before": ""}]}]}


def answer(content: str | None, **others: object) -> Answer:
    given = {"refusal": None, "finish_reason": "stop", "input_tokens": 5, "output_tokens": 7, **others}
    return Answer(content=content, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [SpanQuestions, ChunkQuestions, BareQuestions, Verdict])
def test_the_schema_is_strict(model: type) -> None:
    asked = response_format(model)
    assert (asked["type"], asked["json_schema"]["strict"]) == ("json_schema", True)
    schema = asked["json_schema"]["schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    for part in (schema, *schema.get("$defs", {}).values()):
        assert part["additionalProperties"] is False
        assert sorted(part["required"]) == sorted(part["properties"])
        for field in part["properties"].values():
            assert "default" not in field
            assert set(field) <= {"type", "title", "description", "items", "$ref"}
    json.dumps(asked)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (answer(None, refusal="I will not"), "refused"),
        (answer(json.dumps(GOOD), finish_reason="length"), "truncated"),
        (answer("", finish_reason="content_filter"), "filtered"),
        (answer(None), "empty answer"),
        (answer(" \n"), "empty answer"),
        (answer(json.dumps(GOOD)[:-3]), "schema mismatch"),
        (answer("Here you are: " + json.dumps(GOOD)), "schema mismatch"),
        (answer("[]"), "schema mismatch"),
        (answer("null"), "schema mismatch"),
        (answer('{"questions": [{"number": "1", "question": "?", "excerpts": []}]}'), "schema mismatch"),
        (answer('{"questions": [{"number": 1, "question": null, "excerpts": []}]}'), "schema mismatch"),
        (answer('{"questions": [], "\\u001b[31mextra": 1}'), "schema mismatch"),
        (answer("[" * 100_000), "schema mismatch"),
        (answer("1" * 10_000), "schema mismatch"),
        (answer('{"questions": NaN}'), "schema mismatch"),
    ],
)
def test_a_bad_answer_is_named_and_shown_in_printable_characters(given: Answer, fault: str) -> None:
    read = read_answer(given, SpanQuestions)
    assert isinstance(read, UnusableAnswer)
    assert read.fault == fault
    assert read.detail.isprintable()
    assert len(read.detail) <= 140
