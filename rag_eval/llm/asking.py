"""Ask a model: from the cache where it was asked before, within the budget, several requests at once."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pydantic import BaseModel

from rag_eval.errors import RequestRefusedError, ServiceError, preview
from rag_eval.llm.chat import Answer, AnswerCache, ChatClient, ChatRequest, UnusableAnswer, call, read_answer
from rag_eval.llm.client import CallFailure
from rag_eval.llm.cost import Budget, BudgetReachedError, Ledger, Prices
from rag_eval.retry import RetryPolicy
from rag_eval.types.ids import text_sha256

DEFAULT_MOST_OUTPUT = 16_384
"""The tokens that an answer may have when its length is not limited."""

# Other tokenizers than ours make more tokens of a text.
INPUT_MARGIN = 1.25

CODE_DIGITS = 12


def code_of(texts: Sequence[str]) -> str:
    """Return a word that is in none of the texts, to mark in a prompt where they begin and end."""
    code = text_sha256("\0".join(texts))[:CODE_DIGITS]
    while any(code in text for text in texts):
        code = text_sha256(code)[:CODE_DIGITS]
    return code


@dataclass(frozen=True)
class ModelRequest:
    """One thing to ask a model: what for, and what about, in messages; the request, and the form of its answer."""

    purpose: str
    about: str
    request: ChatRequest
    answer: type[BaseModel]


R = TypeVar("R", bound=ModelRequest)


@dataclass(frozen=True)
class Reply(Generic[R]):
    """What came of asking: a usable answer, or None after all attempts; ``bad`` are those without use."""

    assignment: R
    answer: BaseModel | None
    bad: tuple[UnusableAnswer, ...] = ()


class AskingStoppedError(Exception):
    """Asking was ended before this request was sent."""


class Asker:
    """Sends requests, ``concurrency`` at once, whatever the number of threads that ask.

    An answer is stored in the cache before it is used, a bad one too: what was paid is never paid again. After
    ``stop``, an error for good or the end of the budget no further request is sent; those under way are finished and
    stored. ``spent`` is what counts towards ``max_cost`` already.
    """

    def __init__(
        self,
        client: ChatClient,
        cache: AnswerCache,
        *,
        purposes: Sequence[str],
        prices: Prices | None,
        max_cost: float | None,
        retries: RetryPolicy,
        attempts: int,
        concurrency: int,
        spent: float = 0.0,
    ) -> None:
        self._client, self._cache, self._prices = client, cache, prices
        self._retries, self._attempts, self._concurrency = retries, attempts, concurrency
        self.budget = Budget(max_cost, spent)
        self.ledger = Ledger(prices, purposes)
        self.stopped = threading.Event()
        self._slots = threading.Semaphore(concurrency)
        self._is_reached = False

    def stop(self, seconds: float = 0.0) -> None:
        """Send nothing more, and wait so long at most for the answers that are under way."""
        self.stopped.set()
        self.budget.wait_until_idle(seconds)

    def ask(self, assignment: R) -> Reply[R] | None:
        """Return a reply with the first answer that can be used, or with none after so many attempts.

        None when it was not asked any more: the budget is reached, or asking was ended. Raises ``ServiceError`` when
        the service fails for good, which ends asking.
        """
        bad: list[UnusableAnswer] = []
        try:
            for attempt in range(self._attempts):
                answer = read_answer(self._answer(assignment, attempt), assignment.answer)
                if not isinstance(answer, UnusableAnswer):
                    return Reply(assignment, answer, tuple(bad))
                bad.append(answer)
        except (BudgetReachedError, AskingStoppedError):
            return None
        except BaseException:
            self.stop()
            raise
        return Reply(assignment, None, tuple(bad))

    def ask_at_once(
        self, assignments: Sequence[R], on_reply: Callable[[], object] = lambda: None
    ) -> list[Reply[R] | None]:
        """Return the replies in order, None for what was not asked; raises ``ServiceError`` once all have ended.

        ``on_reply`` is called after every reply.
        """
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="asker") as pool:
            futures = [pool.submit(self.ask, assignment) for assignment in assignments]
            try:
                for future in as_completed(futures):
                    if future.result() is not None:
                        on_reply()
            except BaseException:
                # An error, or Ctrl-C: the pool waits for what is under way, and begins nothing more.
                self.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [future.result() for future in futures]

    def _answer(self, assignment: ModelRequest, attempt: int) -> Answer:
        request = assignment.request
        digest = request.digest(attempt)
        cached = self._cache.find(digest, request.max_output_tokens)
        if cached is None:
            with self._cache.locked(digest, self.stopped):
                # Whoever had the lock before may have asked for the very same.
                cached = self._cache.find(digest, request.max_output_tokens)
                if cached is None:
                    return self._fresh(assignment, attempt, digest)
        self.ledger.add_answer(assignment.purpose, cached, fresh=False)
        return cached

    def _fresh(self, assignment: ModelRequest, attempt: int, digest: str) -> Answer:
        if self.stopped.is_set():
            raise AskingStoppedError
        answer = self._retries.run(lambda _: self._call(assignment, attempt, digest), self.stopped)
        if isinstance(answer, Answer):
            return answer
        if answer.may_pass and self.stopped.is_set():
            raise AskingStoppedError  # it was not given the time to try again
        is_away = answer.may_pass or (isinstance(answer, CallFailure) and answer.is_unreached)
        raise (ServiceError if is_away else RequestRefusedError)(
            f"{assignment.request.model} gave no answer about {preview(assignment.about)}: {answer.reason}; "
            f"{answer.advice}; what was answered is kept, and the same again goes on from there"
        )

    def _call(self, assignment: ModelRequest, attempt: int, digest: str) -> Answer | CallFailure:
        request, purpose = assignment.request, assignment.purpose
        with self._slots, self.budget.reserve(worst_cost(request, self._prices), self.stopped) as reservation:
            answer = call(self._client, request, attempt)
            if isinstance(answer, CallFailure):
                self.ledger.add_failure(purpose, unsettled=answer.maybe_billed)
                reservation.spent = reservation.most if answer.maybe_billed else 0.0
                self._is_reached = self._is_reached or not answer.is_unreached
                # A server that was never there is a wrong address, which does not pass.
                return answer if self._is_reached else replace(answer, may_pass=False)
            self._is_reached = True
            reservation.spent = self._prices.cost(answer.input_tokens, answer.output_tokens) if self._prices else 0.0
            self.ledger.add_answer(purpose, answer, fresh=True)
            self._cache.keep(digest, answer)
            return answer


def worst_cost(request: ChatRequest, prices: Prices | None) -> float:
    """Return the most that one call may cost; 0 where the prices are not known."""
    most = request.max_output_tokens or DEFAULT_MOST_OUTPUT
    return prices.cost(int(request.input_tokens * INPUT_MARGIN), most) if prices else 0.0
