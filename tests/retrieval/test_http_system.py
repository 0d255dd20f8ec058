"""A retrieval service behind HTTP, on loopback."""

from typing import Any

import pytest

from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError
from rag_eval.parts import digest, label
from rag_eval.parts.part_settings import Place
from rag_eval.retrieval import SYSTEM
from rag_eval.retrieval.http import HttpSystem
from rag_eval.types.evidence import Query
from tests.doubles.loopback import LoopbackServer, Request, refused_url


def asked(*texts: str) -> list[Query]:
    return [Query.from_text(text) for text in texts]


class Search(LoopbackServer):
    """Answers every query with texts that hold it, in the shape it was given."""

    def __init__(self, shape: Any = None) -> None:
        super().__init__()
        self.shape = shape

    def answer(self, request: Request) -> tuple[int, Any]:
        if self.shape is not None:
            return 200, self.shape
        sent = request.json() if request.method == "POST" else {key: one[0] for key, one in request.query.items()}
        found = [{"text": f"{sent['query']} {n}", "score": 1 / (n + 1)} for n in range(int(sent["k"]))]
        return 200, {"data": {"results": found}}


def test_every_query_is_asked_and_the_hits_are_read_where_they_are() -> None:
    with Search() as server:
        system = HttpSystem(f"{server.url}/search", hits="data.results", concurrency=2)
        found = system.search_many(asked("a", "b", "c"), 2)
        assert [[one["text"] for one in hits] for hits in found] == [["a 0", "a 1"], ["b 0", "b 1"], ["c 0", "c 1"]]
        assert found[0][1]["score"] == 0.5
        assert sorted(request.json()["query"] for request in server.requests) == ["a", "b", "c"]


def test_body_fields_and_method_are_settings() -> None:
    with Search([{"doc": {"content": "x", "name": "a.md"}}, "plain"]) as server:
        settings = {
            "type": "http",
            "url": f"{server.url}/q",
            "method": "GET",
            "body": {"query": "{query}?", "k": "{k}", "fixed": "1"},
            "fields": {"text": "doc.content", "doc_id": "doc.name"},
        }
        ((first, second),) = SYSTEM.make(settings).search_many(asked("why"), 3)
        assert (first["text"], first["doc_id"], first["start"]) == ("x", "a.md", None)
        assert second == {"text": "plain"}
        assert server.requests[0].query == {"query": ["why?"], "k": ["3"], "fixed": ["1"]}


def test_what_may_pass_is_asked_again() -> None:
    with Search() as server:
        server.fail("POST", "/search", status=503, retry_after=0.01)
        assert HttpSystem(f"{server.url}/search", hits="data.results").search_many(asked("a"), 1)[0][0]["text"] == "a 0"
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("fault", "error", "told"),
    [
        ({"status": 500, "times": 9}, ServiceError, "it answered 500: .*, after 1 attempt: see its log"),
        ({"status": 404}, RequestRefusedError, "it answered 404"),
        ({"hang": True}, ServiceError, "no answer within 0.3 s"),
        ({}, ServiceError, r"it cannot be reached \("),
    ],
)
def test_a_service_that_fails_is_named(fault: dict[str, Any], error: type[Exception], told: str) -> None:
    with Search() as server:
        server.fail("POST", "/search", **fault)
        with pytest.raises(error, match=rf"the system http {server.url}/search failed, {told}"):
            HttpSystem(f"{server.url}/search", timeout=0.3, max_retries=0).search_many(asked("a"), 1)


@pytest.mark.parametrize("shape", [{"data": 5}, {"other": []}, "text"])
def test_an_answer_of_another_form_is_shown(shape: Any) -> None:
    with Search(shape) as server, pytest.raises(ServiceError, match=r"at data\.results: expected a list of hits"):
        HttpSystem(f"{server.url}/search", hits="data.results").search_many(asked("a"), 1)


def test_nobody_there() -> None:
    with pytest.raises(ServiceError, match="it cannot be reached"):
        HttpSystem(refused_url(), max_retries=0).search_many(asked("a"), 1)


def test_the_key_is_read_from_the_environment_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with Search() as server:
        system = HttpSystem(f"{server.url}/search", hits="data.results", key_variable="MY_SERVICE_KEY")
        with pytest.raises(ConfigurationError, match="set MY_SERVICE_KEY in the environment"):
            system.search_many(asked("a"), 1)
        monkeypatch.setenv("MY_SERVICE_KEY", "hush-hush")
        system.search_many(asked("a"), 1)
        assert server.requests[0].headers["authorization"] == "Bearer hush-hush"
        server.fail("POST", "/search", status=401)
        with pytest.raises(RequestRefusedError) as refused:
            system.search_many(asked("a"), 1)
        assert "hush" not in f"{refused.value} {system!r} {label(system)}"


def test_the_version_is_part_of_the_identity_and_the_time_out_is_not() -> None:
    one = HttpSystem("http://localhost:1/s", version="1")
    assert digest(one) != digest(HttpSystem("http://localhost:1/s", version="2"))
    assert digest(one) == digest(HttpSystem("http://localhost:1/s", version="1", timeout=3.0))


def test_a_field_that_is_none_is_told_where_it_is_written() -> None:
    with pytest.raises(ConfigurationError, match=r"b\.yaml, system: fields has texts: name text, doc_id"):
        SYSTEM.make({"type": "http", "url": "http://localhost:1", "fields": {"texts": "a"}}, Place("b.yaml", "system"))
