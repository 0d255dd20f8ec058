"""The limit holds, whatever is under way; the ledger says what was paid for what."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import pytest

from rag_eval.generation.questions import Purpose
from rag_eval.llm.chat import Answer
from rag_eval.llm.cost import AskingStoppedError, Budget, Ledger, Prices, list_prices

NEVER = threading.Event()


def test_calls_together_never_pass_the_limit() -> None:
    budget, rng, lock = Budget(10.0), random.Random(0), threading.Lock()  # noqa: S311  # not for secrets
    at_risk = spent = highest = 0.0

    def pay(_: int) -> bool:
        nonlocal at_risk, spent, highest
        try:
            with budget.reserve(1.0, NEVER) as reservation:
                with lock:
                    at_risk += 1.0
                    highest = max(highest, spent + at_risk)
                    reservation.spent = rng.uniform(0.0, 1.0)
                threading.Event().wait(0.001)
                with lock:
                    at_risk -= 1.0
                    spent += reservation.spent
        except AskingStoppedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        paid = list(pool.map(pay, range(60)))
    assert 9.0 < spent <= 10.0
    assert highest <= 10.0 + 1e-9
    assert budget.is_reached
    assert sum(paid) > 12, "calls that cost less than feared make room for others"


def test_a_call_that_does_not_fit_waits_for_those_under_way() -> None:
    budget = Budget(1.5)
    begun = threading.Event()

    def second() -> None:
        with budget.reserve(1.0, NEVER):
            begun.set()

    with budget.reserve(1.0, NEVER) as first:
        thread = threading.Thread(target=second)
        thread.start()
        assert not begun.wait(0.1)
        first.spent = 0.2
    assert begun.wait(5)
    thread.join()
    with pytest.raises(AskingStoppedError), budget.reserve(2.0, NEVER):
        pass
    with pytest.raises(AskingStoppedError), budget.reserve(0.1, NEVER):
        pass


def test_failed_calls_return_their_reservation() -> None:
    budget = Budget(1.0)
    for _ in range(5):
        with pytest.raises(KeyError), budget.reserve(1.0, NEVER):
            raise KeyError
    assert not budget.is_reached
    with Budget(None).reserve(1e9, NEVER):
        pass


def test_the_ledger_separates_fresh_from_cached_by_purpose() -> None:
    ledger = Ledger(Prices(input=1, output=10), get_args(Purpose))
    answer = Answer(content="x", refusal=None, finish_reason="stop", input_tokens=1000, output_tokens=100)
    for fresh in (True, True, False):
        ledger.add_answer("questions", answer, fresh=fresh)
    ledger.add_answer("verification", answer, fresh=True)
    ledger.add_failure("verification", unsettled=True)
    ledger.add_failure("verification", unsettled=False)
    questions, verification, total = ledger.entries
    assert (questions.fresh.calls, questions.cached.calls, questions.failed) == (2, 1, 0)
    assert questions.fresh.cost == pytest.approx(0.004)
    assert (verification.failed, verification.unsettled) == (2, 1)
    assert total.purpose == "total"
    assert (total.fresh.calls, total.fresh.input_tokens, total.fresh.output_tokens) == (3, 3000, 300)
    assert Ledger(None, ()).entries[-1].fresh.cost is None


def test_list_prices_are_known_for_snapshots_too() -> None:
    assert list_prices("gpt-4o-mini-2024-07-18") == list_prices("gpt-4o-mini") == Prices(input=0.15, output=0.6)
    assert list_prices("gpt-4o-2024-05-13") == Prices(input=5, output=15)
    assert list_prices("llama3") is None
    assert Prices(input=2, output=8).cost(1_000_000, 500_000) == 6.0
