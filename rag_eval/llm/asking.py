"""Ask a model concurrently, with cached answers and within a budget."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pydantic import BaseModel

from rag_eval.errors import RequestRefusedError, ServiceError, preview
from rag_eval.llm.chat import Answer, AnswerCache, ChatClient, ChatRequest, UnusableAnswer, call, read_answer
from rag_eval.llm.client import CallFailure
from rag_eval.llm.cost import AskingStoppedError, Budget, Ledger, Prices
from rag_eval.retry import RetryPolicy
from rag_eval.types.ids import text_sha256

DEFAULT_MOST_OUTPUT = 16_384
"""The maximum number of output tokens if the length of an answer is not limited."""

# Other tokenizers may need more tokens than ours.
INPUT_MARGIN = 1.25

CODE_DIGITS = 12


def code_of(texts: Sequence[str]) -> str:
    """Return a word that occurs in none of the texts, to mark their start and end in a prompt."""
    code = text_sha256("\0".join(texts))[:CODE_DIGITS]
    while any(code in text for text in texts):
        code = text_sha256(code)[:CODE_DIGITS]
    return code


@dataclass(frozen=True)
class ModelRequest:
    """A request with its purpose and subject, for messages, and the form of its answer."""

    purpose: str
    about: str
    request: ChatRequest
    answer: type[BaseModel]


R = TypeVar("R", bound=ModelRequest)


@dataclass(frozen=True)
class Reply(Generic[R]):
    """A usable answer, or None after all attempts; ``bad`` holds the unusable answers."""

    assignment: R
    answer: BaseModel | None
    bad: tuple[UnusableAnswer, ...] = ()


class Asker:
    """Sends requests, at most ``concurrency`` at once from all threads together.

    Every answer, even an unusable one, is cached before it is used, so that nothing is paid twice. After ``stop``, a
    final error or the end of the budget, no further request is sent; requests in flight are finished and cached.
    ``spent`` is what already counts towards ``max_cost``.
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
        """Send no further requests, and wait up to ``seconds`` for the answers in flight."""
        self.stopped.set()
        self.budget.wait_until_idle(seconds)

    def ask(self, assignment: R) -> Reply[R] | None:
        """Return a reply with the first usable answer, or without one after all attempts.

        Returns None if the budget is reached or asking was stopped. Raises ``ServiceError`` if the service fails for
        good, which stops asking.
        """
        bad: list[UnusableAnswer] = []
        try:
            for attempt in range(self._attempts):
                answer = read_answer(self._answer(assignment, attempt), assignment.answer)
                if not isinstance(answer, UnusableAnswer):
                    return Reply(assignment, answer, tuple(bad))
                bad.append(answer)
        except AskingStoppedError:
            return None
        except BaseException:
            self.stop()
            raise
        return Reply(assignment, None, tuple(bad))

    def ask_at_once(
        self, assignments: Sequence[R], on_reply: Callable[[], object] = lambda: None
    ) -> list[Reply[R] | None]:
        """Return the replies in order, None for requests that were not sent, and call ``on_reply`` after each reply.

        Raises ``ServiceError`` after the requests in flight have ended.
        """
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="asker") as pool:
            futures = [pool.submit(self.ask, assignment) for assignment in assignments]
            try:
                for future in as_completed(futures):
                    if future.result() is not None:
                        on_reply()
            except BaseException:
                # An error or Ctrl-C: finish the requests in flight, and start no others.
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
                # The previous holder of the lock may have sent the same request.
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
            raise AskingStoppedError  # there was no time to retry
        is_away = answer.may_pass or (isinstance(answer, CallFailure) and answer.is_unreached)
        raise (ServiceError if is_away else RequestRefusedError)(
            f"{assignment.request.model} gave no answer about {preview(assignment.about)}: {answer.reason}; "
            f"{answer.advice}; the answers so far are cached, run it again to continue"
        )

    def _call(self, assignment: ModelRequest, attempt: int, digest: str) -> Answer | CallFailure:
        request, purpose = assignment.request, assignment.purpose
        with self._slots, self.budget.reserve(worst_cost(request, self._prices), self.stopped) as reservation:
            answer = call(self._client, request, attempt)
            if isinstance(answer, CallFailure):
                self.ledger.add_failure(purpose, unsettled=answer.maybe_billed)
                reservation.spent = reservation.most if answer.maybe_billed else 0.0
                self._is_reached = self._is_reached or not answer.is_unreached
                # If the server was never reached, the address is wrong, and retries are useless.
                return answer if self._is_reached else replace(answer, may_pass=False)
            self._is_reached = True
            reservation.spent = self._prices.cost(answer.input_tokens, answer.output_tokens) if self._prices else 0.0
            self.ledger.add_answer(purpose, answer, fresh=True)
            self._cache.keep(digest, answer)
            return answer


def worst_cost(request: ChatRequest, prices: Prices | None) -> float:
    """Return the maximum cost of a call, 0 if the prices are unknown."""
    most = request.max_output_tokens or DEFAULT_MOST_OUTPUT
    return prices.cost(int(request.input_tokens * INPUT_MARGIN), most) if prices else 0.0
