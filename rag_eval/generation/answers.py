"""What the model is to answer, as a strict JSON schema, and reading it without trusting it."""

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag_eval.errors import preview
from rag_eval.generation.chat import Answer


class _Strict(BaseModel):
    # Strict output needs every key required and no other allowed.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Excerpt(_Strict):
    """A passage that the model quotes."""

    document: str = Field(description="The label of the document, such as D1.")
    text: str = Field(description="The passage, copied character by character.")
    before: str = Field(description="The few words directly before the passage; empty at the start of the document.")


class SpanQuestion(_Strict):
    """A question with the passages that answer it."""

    number: int = Field(description="The number of the question in the list of questions to write.")
    question: str
    excerpts: list[Excerpt]


class SpanQuestions(_Strict):
    """Questions with passages."""

    questions: list[SpanQuestion]


class ChunkQuestion(_Strict):
    """A question with the ids of the chunks that answer it."""

    number: int = Field(description="The number of the question in the list of questions to write.")
    question: str
    chunk_ids: list[str] = Field(description="The ids of the chunks that are needed for the answer.")


class ChunkQuestions(_Strict):
    """Questions with chunk ids."""

    questions: list[ChunkQuestion]


class BareQuestion(_Strict):
    """A question that nothing answers."""

    number: int = Field(description="The number of the question in the list of questions to write.")
    question: str


class BareQuestions(_Strict):
    """Questions that nothing answers."""

    questions: list[BareQuestion]


class Verdict(_Strict):
    """Whether passages answer a question."""

    answerable: bool
    passage: str = Field(description="The passage that answers the question, copied; empty if none does.")


AnswerModel = SpanQuestions | ChunkQuestions | BareQuestions | Verdict
M = TypeVar("M", bound=BaseModel)

Fault = Literal["refused", "truncated", "filtered", "empty answer", "not the schema"]


@dataclass(frozen=True, slots=True)
class BadAnswer:
    """An answer that cannot be used, and a short reason to show."""

    fault: Fault
    detail: str


def response_format(model: type[BaseModel]) -> dict[str, Any]:
    """The ``response_format`` that asks for exactly this model."""
    schema = model.model_json_schema()
    return {"type": "json_schema", "json_schema": {"name": model.__name__, "strict": True, "schema": schema}}


def read_answer(answer: Answer, model: type[M]) -> M | BadAnswer:
    """The content as the model, or why that cannot be."""
    if answer.refusal:
        return BadAnswer("refused", preview(answer.refusal))
    if answer.finish_reason == "length":
        return BadAnswer("truncated", f"after {answer.output_tokens:,} tokens")
    if answer.finish_reason == "content_filter":
        return BadAnswer("filtered", "by the service's content filter")
    if not (answer.content or "").strip():
        return BadAnswer("empty answer", "no content")
    try:
        data = json.loads(answer.content or "")
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the answer"
        return BadAnswer("not the schema", preview(f"{place}: {first['msg']}", 120))
    except (ValueError, RecursionError):
        return BadAnswer("not the schema", f"not JSON: {preview(answer.content or '')}")
