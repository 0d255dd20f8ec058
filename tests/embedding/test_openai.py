import logging
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.embedding.embedder import ReportsUsage, check_embedder, embed_queries
from rag_eval.embedding.openai import PRICES, OpenAIEmbedder, make_batches
from rag_eval.errors import ConfigurationError
from rag_eval.retry import RetryPolicy
from rag_eval.tokens import count_tokens
from tests.doubles.openai_server import Change, OpenAIServer, vector_of

KEY = "sk-test-0123456789-abcdef"
TEXTS = [f"text number {number} " + "of some words " * (number % 5) for number in range(50)]


def embedder_of(server: OpenAIServer, **settings: object) -> OpenAIEmbedder:
    settings = {"model": "tiny", "api_key": KEY, "retries": RetryPolicy(backoff=0.01), **settings}
    return OpenAIEmbedder(base_url=server.base_url, **settings)  # type: ignore[arg-type]


def expected(texts: list[str], dimension: int = 8) -> np.ndarray:
    return np.stack([vector_of(text, dimension) for text in texts])


def test_it_gives_every_text_its_own_vector_and_asks_with_the_key(server: OpenAIServer) -> None:
    embedder = embedder_of(server)
    check_embedder(embedder)
    with pytest.raises(ConfigurationError, match="is not an embedder"):
        check_embedder(OpenAIEmbedder)
    assert isinstance(embedder, ReportsUsage)
    assert callable(embedder.embed_as_ready)
    vectors = embedder.embed(TEXTS)
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors, expected(TEXTS))
    assert np.array_equal(embedder.embed_query(TEXTS[3]), vectors[3])
    assert np.array_equal(embed_queries(embedder, TEXTS[:5]), vectors[:5])
    assert [len(request.body["input"]) for request in server.requests] == [50, 1, 5]
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert "dimensions" not in server.requests[0].body


@pytest.mark.parametrize("form", ["base64", "float"])
def test_both_encodings_give_the_same_numbers(server: OpenAIServer, form: str) -> None:
    assert np.array_equal(embedder_of(server, encoding_format=form).embed(TEXTS), expected(TEXTS))
    assert server.requests[0].body["encoding_format"] == form


def test_ugly_texts_travel_unchanged(server: OpenAIServer) -> None:
    texts = ["👩🏽‍🚀 e\u0301", "\r\n \r \u2028", "a\0b", "漢字 שלום", "<|endoftext|>", " ", "x" * 100_000]
    embedder = embedder_of(server, max_tokens_per_text=20_000)
    assert np.array_equal(embedder.embed(texts), expected(texts))
    assert server.texts == texts


def test_batches_hold_to_the_tokens(server: OpenAIServer) -> None:
    # " word" is one token, so each text has its number of words.
    texts = [" word" * count for count in (60, 30, 20, 50, 50, 1, 100)]
    vectors = embedder_of(server, max_tokens=100, max_tokens_per_text=100, concurrency=1).embed(texts)
    assert np.array_equal(vectors, expected(texts))
    assert [request.body["input"] for request in server.requests] == [texts[:2], texts[2:4], texts[4:6], texts[6:]]


def test_requests_run_side_by_side_up_to_the_limit_and_keep_their_order(server: OpenAIServer) -> None:
    server.seconds = 0.05
    embedder = embedder_of(server, max_texts=3, concurrency=4)
    assert np.array_equal(embedder.embed(TEXTS), expected(TEXTS))
    assert 2 <= server.most_at_once <= 4


def test_nothing_to_embed_asks_nothing(server: OpenAIServer) -> None:
    assert embedder_of(server).embed([]).shape == (0, 0)
    assert embedder_of(server, dimensions=5).embed([]).shape == (0, 5)
    assert server.requests == []


def test_the_empty_text_has_the_zero_vector_and_is_not_sent(server: OpenAIServer) -> None:
    vectors = embedder_of(server).embed(["", "a", "", "b"])
    assert np.array_equal(vectors[[1, 3]], expected(["a", "b"]))
    assert not vectors[[0, 2]].any()
    assert server.texts == ["a", "b"]
    assert not embedder_of(server, dimensions=5).embed([""]).any()
    assert len(server.requests) == 1


def test_a_text_that_is_too_long_is_refused_by_name_before_anything_is_sent(server: OpenAIServer) -> None:
    texts = ["short", " word" * 120, "short", " long" * 101]
    with pytest.raises(ConfigurationError) as caught:
        embedder_of(server, max_tokens_per_text=100).embed(texts)
    assert "2 of 4 texts have more than the 100 tokens that tiny takes: text 1 has 120 (' word" in str(caught.value)
    assert "text 3 has 101" in str(caught.value)
    assert "make smaller chunks" in str(caught.value)
    assert server.requests == []


def test_the_dimension_is_known_asked_for_or_learned(server: OpenAIServer) -> None:
    assert OpenAIEmbedder().dimension == 1536
    assert OpenAIEmbedder("text-embedding-3-large").dimension == 3072
    assert OpenAIEmbedder(dimensions=256).dimension == 256
    assert server.requests == []
    embedder = embedder_of(server)
    before = embedder.name
    assert embedder.dimension == 8
    assert embedder.name == before
    assert len(server.requests) == 1
    assert embedder_of(server, dimensions=3).embed(["a"]).shape == (1, 3)
    assert server.requests[-1].body["dimensions"] == 3


def test_the_name_tells_model_dimension_and_server() -> None:
    assert OpenAIEmbedder().name == "text-embedding-3-small/1536"
    assert OpenAIEmbedder(dimensions=1536).name == OpenAIEmbedder().name
    assert OpenAIEmbedder(dimensions=512).name == "text-embedding-3-small/512"
    assert OpenAIEmbedder("bge", base_url="http://gpu:8000/v1").name == "bge@gpu:8000"
    assert OpenAIEmbedder("bge", base_url="http://gpu:8000/v1", api_key=KEY, concurrency=9).name == "bge@gpu:8000"


def test_the_server_of_the_environment_is_in_the_name(monkeypatch: pytest.MonkeyPatch, server: OpenAIServer) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    embedder = OpenAIEmbedder("tiny")
    assert embedder.name == f"tiny@{server.host}"
    assert np.array_equal(embedder.embed(["a"]), expected(["a"]))


def test_openai_needs_a_key_and_other_servers_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        OpenAIEmbedder().embed(["a"])
    with OpenAIServer() as open_server:
        assert OpenAIEmbedder("tiny", base_url=open_server.base_url).embed(["a"]).shape == (1, 8)


def test_it_counts_requests_texts_tokens_and_cost(server: OpenAIServer) -> None:
    embedder = embedder_of(server, price_per_million_tokens=2.0, max_texts=1)
    embedder.embed(["one two three", "four", ""])
    usage = embedder.usage
    assert (usage.requests, usage.texts, usage.tokens) == (2, 2, 4)
    assert usage.cost == pytest.approx(4 * 2.0 / 1e6)
    assert embedder_of(server).usage.cost is None
    assert OpenAIEmbedder().usage.cost == 0.0
    assert PRICES["text-embedding-3-small"] == 0.02


def test_tokens_are_counted_here_when_the_server_does_not_say(server: OpenAIServer) -> None:
    server.faults.append(Change(lambda answer: {**answer, "usage": None}))
    embedder = embedder_of(server)
    embedder.embed([" word" * 12])
    assert embedder.usage.tokens == 12


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"model": ""}, "model: expected text that is not empty"),
        ({"dimensions": 0}, "dimensions: expected a number of at least 1, found 0"),
        ({"concurrency": 0}, "concurrency: expected a number of at least 1, found 0"),
        ({"encoding_format": "hex"}, "encoding_format: expected 'base64' or 'float', found the text 'hex'"),
        ({"timeout": 0}, "timeout: expected a number above 0, found 0"),
        ({"base_url": "localhost:8000"}, "base_url: expected an address such as http://"),
        ({"base_url": "http://h:x/v1"}, "base_url: expected an address such as http://"),
        ({"max_texts": 0}, "max_texts: expected a number of at least 1"),
        ({"max_tokens": 10, "max_tokens_per_text": 11}, "a text must not be longer than a request"),
        ({"encoding": "none"}, "encoding"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        OpenAIEmbedder(**settings)  # type: ignore[arg-type]


def test_the_sdk_is_imported_at_the_first_request_only() -> None:
    code = "import sys; from rag_eval.embedding.openai import OpenAIEmbedder; OpenAIEmbedder()"
    code += "; print('openai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_key_is_in_no_repr_and_no_log(server: OpenAIServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    embedder = embedder_of(server)
    embedder.embed(["a"])
    shown = repr(embedder) + repr(vars(embedder)) + repr(vars(embedder._client)) + caplog.text
    assert KEY not in shown
    assert "HTTP" in caplog.text
    with pytest.raises(ConfigurationError) as caught:
        OpenAIEmbedder(base_url=f"http://user:{KEY}@host/v1")
    assert KEY not in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        embedder_of(server, api_key=f"{KEY}\x00 more").embed(["a"])
    assert KEY not in str(caught.value)


PIECES = ["", " word", "👩🏽‍🚀", "漢字", "\r\n", "<|endoftext|>", "   ", "e\u0301", "\0"]
texts_strategy = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), max_size=30)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(texts_strategy, st.integers(1, 5), st.integers(0, 20))
def test_batches_hold_every_text_once_in_order_and_keep_the_limits(texts: list[str], max_texts: int, more: int) -> None:
    longest = max((count_tokens(text, "cl100k_base") for text in texts), default=0) or 1
    limits = OpenAIEmbedder(max_texts=max_texts, max_tokens=longest + more, max_tokens_per_text=longest)
    batches = make_batches(texts, limits)
    assert [place for batch in batches for place in batch.places] == [place for place, text in enumerate(texts) if text]
    for batch in batches:
        assert batch.texts == [texts[place] for place in batch.places]
        assert 1 <= len(batch.texts) <= max_texts
        assert sum(count_tokens(text, "cl100k_base") for text in batch.texts) <= longest + more


def test_without_limits_on_tokens_only_the_count_matters() -> None:
    limits = OpenAIEmbedder(max_texts=2, max_tokens=None, max_tokens_per_text=None)
    batches = make_batches(["word " * 100_000, "b", "c"], limits)
    assert [batch.places for batch in batches] == [[0, 1], [2]]


def test_many_texts_that_are_too_long_are_counted() -> None:
    with pytest.raises(
        ConfigurationError, match=r"5 of 6 texts .* text 0 has .*, text 1 has .*, text 2 has .* and 2 more"
    ):
        make_batches([" word" * 9] * 5 + ["a"], OpenAIEmbedder(max_tokens=8, max_tokens_per_text=8))
