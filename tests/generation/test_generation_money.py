"""Money: an estimate before, a limit that holds, and a ledger after."""

from collections.abc import Callable
from pathlib import Path

import openai
import pytest

from rag_eval import GenerationOptions, Prices, TokenLevelSyntheticDatasetGenerator
from rag_eval.llm.asking import worst_cost
from tests.doubles.openai_server import Hang, OpenAIServer
from tests.generation.corpora import PLACES, harbours

Make = Callable[..., TokenLevelSyntheticDatasetGenerator]
PRICES = Prices(input=1, output=4)


def test_the_estimate_is_near_and_knows_what_is_cached(token_level: Make, server: OpenAIServer) -> None:
    options = GenerationOptions(cross_document=2, unanswerable=2)
    generator = token_level(harbours(), options=options)
    before = generator.estimate(3)
    assert server.requests == []
    assert (before.documents, before.questions, before.cached) == (4, 16, 0)
    generator.generate(3, upload_to_langsmith=False)
    assert before.calls == len(server.requests) == 9
    sent = sum(len(str(request.body["messages"])) for request in server.requests)
    assert sent / 8 < before.input_tokens < sent / 2
    assert before.cost == pytest.approx(PRICES.cost(before.input_tokens, before.output_tokens))
    after = generator.estimate(3)
    assert (after.cached, after.input_tokens, after.cost) == (after.calls, 0, 0.0)
    assert token_level(harbours(), options=options, prices=None).estimate(4).cost is None


def test_prices_of_openai_are_known_for_openai_alone(server: OpenAIServer, tmp_path: Path) -> None:
    theirs = openai.OpenAI(api_key="sk-none")
    ours = openai.OpenAI(api_key="sk-none", base_url=server.base_url)
    costs = [
        TokenLevelSyntheticDatasetGenerator(client, harbours(), model=model, workspace=tmp_path).estimate(1).cost
        for client, model in ((theirs, "gpt-4o-mini"), (theirs, "other"), (ours, "gpt-4o-mini"))
    ]
    assert costs[0] is not None
    assert costs[1:] == [None, None]
    theirs.close()
    ours.close()


@pytest.mark.parametrize("concurrency", [1, 6])
def test_the_limit_is_not_passed_and_what_is_done_is_kept(
    token_level: Make, server: OpenAIServer, tmp_path: Path, concurrency: int
) -> None:
    server.seconds = 0.03
    places = [*PLACES, "Ytre Sula", "Havnes", "Nordvik", "Grimsøy"]
    options = GenerationOptions(max_output_tokens=1_000, unanswerable=2)
    one = token_level(harbours(*places), options=options).plan(2)[0].request
    limit = 2.2 * worst_cost(one, PRICES)
    generator = token_level(harbours(*places), options=options, max_cost=limit, concurrency=concurrency)
    truth = generator.generate(2, upload_to_langsmith=False)
    report = generator.report
    assert report.stopped is not None
    assert report.stopped.startswith("the next request could cost $0.0")
    assert report.stopped.endswith(f"max_output_tokens, and exceed the limit of ${limit:g}")
    assert report.total.fresh.cost is not None
    assert 0 < report.total.fresh.cost <= limit
    assert report.total.fresh.calls == len(server.requests) < 10
    assert report.unasked >= 2
    assert len(truth) == report.kept == report.asked - sum(one.count for one in report.dropped.values())
    before = len(server.requests)
    rest = token_level(harbours(*places), options=options)
    complete = rest.generate(2, upload_to_langsmith=False)
    assert complete[: len(truth)] == truth if concurrency == 1 else set(map(str, truth)) <= set(map(str, complete))
    assert len(complete) == 18
    assert rest.report.total.cached.calls == before


def test_a_limit_below_one_request_asks_nothing(token_level: Make, server: OpenAIServer) -> None:
    generator = token_level(harbours(), max_cost=1e-9)
    assert generator.generate(1, upload_to_langsmith=False) == []
    assert generator.report.unasked == 4
    assert server.requests == []


def test_a_call_that_may_have_been_charged_counts_against_the_limit(server: OpenAIServer, tmp_path: Path) -> None:
    server.faults += [Hang(5)] * 9
    with openai.OpenAI(base_url=server.base_url, api_key="sk-test-0123456789-abcdef", timeout=0.2) as sdk:
        options = GenerationOptions(max_output_tokens=1_000)
        settings = {"model": "tiny", "workspace": tmp_path, "prices": PRICES, "options": options}
        plan = TokenLevelSyntheticDatasetGenerator(sdk, harbours("Storvåg"), **settings).plan(1)  # type: ignore[arg-type]
        limit = 2.5 * worst_cost(plan[0].request, PRICES)
        generator = TokenLevelSyntheticDatasetGenerator(sdk, harbours("Storvåg"), **settings, max_cost=limit)  # type: ignore[arg-type]
        assert generator.generate(1, upload_to_langsmith=False) == []
    assert len(server.requests) == 2
    assert (generator.report.total.unsettled, generator.report.unasked) == (2, 1)
