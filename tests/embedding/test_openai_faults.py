"""What the service does wrong: nothing is lost or misaligned, and the error says what and where."""

import logging
import socket
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.errors import ServiceError
from rag_eval.retry import RetryPolicy
from tests.doubles.openai_server import (
    JSON,
    Change,
    CutJSON,
    Disconnect,
    Drip,
    Fault,
    Hang,
    OpenAIServer,
    Request,
    Status,
    vector_of,
)

KEY = "sk-test-0123456789-abcdef"
WRONG_KEY = "sk-wrong-9876543210-fedcba"
TEXTS = [f"text number {number}" for number in range(40)]
EXPECTED = np.stack([vector_of(text, 8) for text in TEXTS])


def embedder_of(server: OpenAIServer, **settings: object) -> OpenAIEmbedder:
    given = {
        "model": "tiny",
        "base_url": server.base_url,
        "api_key": KEY,
        "max_texts": 10,
        "timeout": 5.0,
        "retries": RetryPolicy(max_retries=3, backoff=0.01),
        **settings,
    }
    return OpenAIEmbedder(**given)  # type: ignore[arg-type]


def reordered(answer: JSON) -> JSON:
    return {**answer, "data": answer["data"][::-1]}


@pytest.mark.parametrize(
    "fault",
    [
        Status(429, headers={"retry-after": "0.01"}),
        Status(500),
        Status(502, body=b"<html>Bad gateway</html>"),
        Status(503, headers={"retry-after-ms": "5"}),
        Status(408),
        CutJSON(),
        CutJSON(keep=0.0),
        Disconnect(),
        Disconnect(keep=0.5),
        Hang(30),
        Drip(0.1),
        Change(reordered),
    ],
    ids=repr,
)
def test_faults_that_pass_lose_and_misalign_nothing(server: OpenAIServer, fault: Fault) -> None:
    server.faults += [fault, fault]
    slow = isinstance(fault, Hang | Drip)
    embedder = embedder_of(server, timeout=0.4 if slow else 10.0, concurrency=2)
    assert np.array_equal(embedder.embed(TEXTS), EXPECTED)
    assert embedder.usage.texts == len(TEXTS)
    assert embedder.usage.requests == len(server.requests)
    # A busy machine may need more than the short time-out once more.
    assert len(server.requests) >= 6 if slow else len(server.requests) == (4 if isinstance(fault, Change) else 6)


def test_a_wait_beyond_the_total_time_is_not_begun(server: OpenAIServer) -> None:
    server.faults.append(Status(429, "slow down", headers={"retry-after": "3600"}))
    with pytest.raises(
        ServiceError, match=r"429 \('slow down'\), after 1 attempt \(waiting 3.6e\+03 s more would exceed"
    ):
        embedder_of(server).embed(TEXTS[:5])
    assert len(server.requests) == 1


def test_retries_end_and_the_error_says_what_and_where(server: OpenAIServer) -> None:
    server.faults += [Status(500, "the model is on fire")] * 4
    with pytest.raises(ServiceError) as caught:
        embedder_of(server, concurrency=1).embed(TEXTS)
    assert str(caught.value) == (
        f"tiny@{server.host} gave no vectors for 10 texts (the first is 'text number 0'): "
        f"{server.host} answered 500 ('the model is on fire'), after 4 attempts; try again later"
    )
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_not_repeated(server: OpenAIServer, status: int) -> None:
    server.faults.append(Status(status, "no such thing"))
    with pytest.raises(ServiceError, match=str(status)):
        embedder_of(server).embed(TEXTS[:5])
    assert len(server.requests) == 1


def test_an_empty_account_is_not_asked_again(server: OpenAIServer) -> None:
    server.faults.append(Status(429, "You exceeded your current quota", code="insufficient_quota"))
    with pytest.raises(ServiceError, match="quota"):
        embedder_of(server).embed(TEXTS[:5])
    assert len(server.requests) == 1


def test_a_hang_ends_with_the_time_out(server: OpenAIServer) -> None:
    server.faults += [Hang(30), Hang(30)]
    with pytest.raises(ServiceError, match=r"did not answer within 0\.2 s, after 2 attempts"):
        embedder_of(server, timeout=0.2, retries=RetryPolicy(max_retries=1, backoff=0.01)).embed(TEXTS[:5])


def test_a_server_that_hangs_for_ever_is_given_up_before_all_attempts(server: OpenAIServer) -> None:
    server.faults += [Hang(30)] * 50
    with pytest.raises(ServiceError, match="did not answer"):
        embedder_of(server, timeout=0.2, retries=RetryPolicy(max_retries=1000, backoff=0.01, give_up_after=0.7)).embed(
            TEXTS
        )
    # At 0.2 seconds an attempt no more than four of a request fit into the total time, of which four run at once.
    assert len(server.requests) <= 4 * 4


def test_a_closed_port_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        embedder = OpenAIEmbedder("tiny", base_url=url, api_key=KEY, retries=RetryPolicy(max_retries=2, backoff=0.01))
        with pytest.raises(ServiceError, match=r"1 text .* failed \('.*refused.*'\), after 3 attempts; check base_url"):
            embedder.embed(["a"])


def edited(edit: Callable[[list[JSON]], object]) -> Change:
    def change(answer: JSON) -> JSON:
        data = [dict(item) for item in answer["data"]]
        edit(data)
        return {**answer, "data": data}

    return Change(change)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (edited(lambda data: data.pop()), "4 vectors for 5 texts"),
        (edited(lambda data: data.append(data[0])), "6 vectors for 5 texts"),
        (edited(lambda data: data.clear()), "0 vectors for 5 texts"),
        (edited(lambda data: data[3].update(index=2)), "missing, repeated or too large"),
        (edited(lambda data: data[3].update(index=5)), "missing, repeated or too large"),
        (edited(lambda data: data[3].update(index=-1)), "missing, repeated or too large"),
        (edited(lambda data: data[3].update(index=True)), "missing, repeated or too large"),
        (edited(lambda data: data[3].pop("index")), "missing, repeated or too large"),
        (edited(lambda data: data[2].update(embedding=[float("nan")] * 8)), "NaN or infinite numbers for item 2"),
        (edited(lambda data: data[2].update(embedding=[1e39] * 8)), "NaN or infinite numbers for item 2"),
        (edited(lambda data: data[2].update(embedding=[None] * 8)), "NaN or infinite numbers for item 2"),
        (edited(lambda data: data[2].update(embedding=[0.5] * 7)), "7 numbers for item 2, not 8"),
        (edited(lambda data: data[2].update(embedding=[[0.5] * 8])), "shape"),
        (edited(lambda data: data[2].update(embedding=[])), "shape"),
        (edited(lambda data: data[2].update(embedding="AAAAA")), "cannot be read"),
        (edited(lambda data: data[2].update(embedding=["x"] * 8)), "cannot be read"),
        (edited(lambda data: data[2].update(embedding=None)), "shape"),
        (Change(lambda answer: {"data": {}}), "no list of vectors"),
        (Change(lambda answer: []), "no list of vectors"),  # type: ignore[arg-type, return-value]
        (Change(lambda answer: {"error": {"message": "overloaded"}}), r"an error \('overloaded'\)"),
    ],
)
def test_vectors_that_cannot_be_right_are_refused(server: OpenAIServer, fault: Fault, told: str) -> None:
    server.faults.append(fault)
    embedder = embedder_of(server, encoding_format="float")
    with pytest.raises(ServiceError, match=told):
        embedder.embed(TEXTS[:5])
    assert len(server.requests) == 1
    assert embedder.usage.texts == 0


def test_vectors_of_another_size_than_asked_for_or_than_before_are_refused(server: OpenAIServer) -> None:
    server.faults.append(edited(lambda data: [item.update(embedding=[0.5] * 8) for item in data]))
    with pytest.raises(ServiceError, match="8 numbers for item 0, not 1536"):
        embedder_of(server, model="text-embedding-3-small").embed(TEXTS[:5])
    embedder = embedder_of(server)
    embedder.embed(TEXTS[:5])
    server.dimension = 9
    with pytest.raises(ServiceError, match="9 numbers for item 0, not 8"):
        embedder.embed(TEXTS[:5])


def everything_told(error: BaseException, caplog: pytest.LogCaptureFixture) -> str:
    """The error, what is chained to it, its traceback, and the log."""
    parts = [caplog.text, "".join(traceback.format_exception(error))]
    chain: BaseException | None = error
    while chain is not None:
        parts += [str(chain), repr(chain), repr(chain.args), repr(vars(chain))]
        chain = chain.__cause__ or chain.__context__
    return "\n".join(parts)


@pytest.mark.parametrize(
    "fault",
    [
        Status(401, f"Incorrect API key provided: {KEY}."),
        Status(400, "x" * 190 + f"{KEY} is not allowed here"),
        Status(500, f"cannot log in with {KEY}"),
        Status(502, body=f"<html>{KEY}</html>".encode()),
        Change(lambda answer: {"error": {"message": f"bad key {KEY}"}}),
        Change(lambda answer: {KEY: KEY}),
        edited(lambda data: data[0].update(index=KEY, embedding=KEY)),
        edited(lambda data: data[0].update(embedding=[KEY])),
        CutJSON(),
        Disconnect(),
        Hang(2),
    ],
    ids=range(11),
)
def test_the_key_is_told_nowhere(server: OpenAIServer, caplog: pytest.LogCaptureFixture, fault: Fault) -> None:
    caplog.set_level(logging.DEBUG)
    server.faults += [fault] * 2
    with pytest.raises(ServiceError) as caught:
        embedder_of(server, timeout=0.3, retries=RetryPolicy(max_retries=1, backoff=0.01)).embed(TEXTS[:2])
    told = everything_told(caught.value, caplog)
    assert KEY not in told
    assert KEY[:12] not in told
    assert caught.value.__context__ is None


def test_a_wrong_key_is_said_without_telling_it(server: OpenAIServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ServiceError, match=r"refused the key \(401\); check OPENAI_API_KEY") as caught:
        embedder_of(server, api_key=WRONG_KEY).embed(TEXTS)
    assert WRONG_KEY not in everything_told(caught.value, caplog)


def test_when_one_request_fails_the_finished_ones_are_kept(server: OpenAIServer, tmp_path: Path) -> None:
    bad = TEXTS[25]
    answer = server.answer

    def refuse_one(request: Request) -> tuple[int, JSON]:
        if bad in request.body["input"]:
            return 400, {"error": {"message": "cannot embed this"}}
        return answer(request)

    server.answer = refuse_one  # type: ignore[method-assign]
    cached = CachedEmbedder(embedder_of(server, concurrency=2), tmp_path)
    with pytest.raises(ServiceError, match=r"10 texts \(the first is 'text number 20'\).*cannot embed this"):
        cached.embed(TEXTS)
    asked = len(server.requests)
    kept = set(server.texts) - set(TEXTS[20:30])
    assert set(TEXTS[:20]) <= kept
    server.answer = answer  # type: ignore[method-assign]
    assert np.array_equal(cached.embed(TEXTS), EXPECTED)
    again = [text for request in server.requests[asked:] for text in request.body["input"]]
    assert sorted(again) == sorted(set(TEXTS) - kept)
