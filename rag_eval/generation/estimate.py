"""What a generation will take, before it is begun."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from rag_eval.generation.answer_cache import AnswerCache
from rag_eval.generation.answers import SpanQuestions
from rag_eval.generation.assignments import Assignment, Desk
from rag_eval.generation.passages import MOST_BY_EACH, PASSAGE_TOKENS
from rag_eval.generation.prices import Prices

TOKENS_OF_A_SPAN_QUESTION = 150
TOKENS_OF_A_QUESTION = 60
TOKENS_OF_A_VERDICT = 40


class Estimate(BaseModel):
    """About what is to be paid: ``calls`` of which ``cached`` cost nothing; cost in US dollars, None when unknown.

    Tokens and cost are those of the calls that are not cached. A model that thinks before it answers writes more.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: int
    questions: int
    calls: int
    cached: int
    input_tokens: int
    output_tokens: int
    cost: float | None


def estimated(
    documents: int, assignments: Sequence[Assignment], desk: Desk, cache: AnswerCache, prices: Prices | None
) -> Estimate:
    """The estimate of some assignments, and of the verifications of unanswerable questions among them."""
    questions = sum(len(one.briefs) for one in assignments)
    fresh = [one for one in assignments if cache.find(one.request.digest(0), one.request.max_output_tokens) is None]
    unsure = sum(len(one.briefs) for one in fresh if one.purpose == "unanswerable")
    one_check = desk.verification("", "").request.input_tokens + 2 * MOST_BY_EACH * PASSAGE_TOKENS
    read = sum(one.request.input_tokens for one in fresh) + unsure * one_check
    written = sum(len(one.briefs) * _tokens_of_a_question(one) for one in fresh) + unsure * TOKENS_OF_A_VERDICT
    return Estimate(
        documents=documents,
        questions=questions,
        calls=len(assignments) + unsure,
        cached=len(assignments) - len(fresh),
        input_tokens=read,
        output_tokens=written,
        cost=None if prices is None else prices.cost(read, written),
    )


def _tokens_of_a_question(assignment: Assignment) -> int:
    return TOKENS_OF_A_SPAN_QUESTION if assignment.answer is SpanQuestions else TOKENS_OF_A_QUESTION
