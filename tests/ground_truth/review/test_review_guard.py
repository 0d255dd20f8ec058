"""Who is let in, over real HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from rag_eval.ground_truth.review.app import Guard
from tests.ground_truth.review.review_files import queries_in, review_address, write_files


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("guarded"))


@pytest.fixture(scope="module")
def address(truth: Path) -> Iterator[str]:
    with review_address(truth) as address:
        yield address


def home(address: str) -> str:
    return address.partition("?")[0]


@contextmanager
def let_in(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=home(address), headers={"Origin": home(address).rstrip("/")}) as client:
        client.get(address)
        yield client


def test_the_token_becomes_a_cookie_and_leaves_the_address(address: str) -> None:
    with httpx.Client() as client:
        first = client.get(address)
        assert (first.status_code, first.headers["location"]) == (303, "/")
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        page = client.get(home(address))
        assert page.status_code == 200
        assert "<title>" in page.text


@pytest.mark.parametrize(
    "path",
    [
        "",
        "api/state",
        "api/document?id=ferry.md",
        "api/picture?id=ferry.md&page=1",
        "static/page.js",
        "static/../app.py",
    ],
)
@pytest.mark.parametrize("token", [None, "", "wrong", "é\ud800"])
def test_nothing_is_shown_without_the_token(address: str, path: str, token: str | None) -> None:
    cookies = {} if token is None or not token.isascii() else {f"rag_eval_review_{urlsplit(address).port}": token}
    with httpx.Client(cookies=cookies) as client:
        url = home(address) + path
        if token is not None:
            url += ("&" if "?" in path else "?") + "token=" + token.encode("utf-8", "replace").decode()
        answer = client.get(url)
    assert answer.status_code == 403
    assert "printed" in answer.text
    assert "Fähre" not in answer.text


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil:{port}", "x@127.0.0.1", ""],
)
def test_a_foreign_host_is_refused_even_with_the_token(address: str, host: str) -> None:
    headers = {"Host": host.format(port=urlsplit(address).port)}
    with let_in(address) as client:
        for url in (address, home(address) + "api/state"):
            answer = client.get(url, headers=headers)
            assert answer.status_code in (400, 403), url
            assert "queries" not in answer.text


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://{host}", "http://127.0.0.1:1", None])
def test_a_change_from_another_page_is_refused(truth: Path, address: str, origin: str | None) -> None:
    with let_in(address) as client:
        query = client.get("api/state").json()["queries"][0]
        request = client.build_request(
            "POST", "api/decide", json={"id": query["id"], "version": "", "decision": "rejected"}
        )
        del request.headers["Origin"]
        if origin is not None:
            request.headers["Origin"] = origin.format(host=urlsplit(address).netloc)
        assert client.send(request).status_code == 403
    assert len(queries_in(truth)) == 4


def test_localhost_is_this_machine_too(address: str) -> None:
    with let_in(address) as client:
        host = f"localhost:{urlsplit(address).port}"
        assert client.get("api/state", headers={"Host": host, "Origin": f"http://{host}"}).status_code == 200


def test_every_answer_says_what_the_page_may_do(address: str) -> None:
    with let_in(address) as client:
        for path in ("", "api/state", "static/page.js", "nowhere"):
            headers = client.get(path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert "server" not in headers
        assert client.get("nowhere").status_code == 404
        assert client.get("static/%2e%2e/app.py").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("api/decide", b"{", 400),
        ("api/decide", b'{"id": "x", "version": "", "decision": "maybe"}', 400),
        ("api/decide", b'{"id": "x", "version": "", "decision": "accepted"}', 409),
        ("api/judge", b'{"id": "x", "place": ["ferry.md", 0], "decision": "accepted"}', 400),
        ("api/judge", b'{"id": "x", "place": ["ferry.md", 0, 1], "decision": "offered"}', 400),
        ("api/span", b'{"id": "x", "span": {"doc_id": "ferry.md", "more": 1}}', 400),
        ("api/span", b'{"id": "x", "span": "' + b"x" * (1 << 20) + b'"}', 413),
        ("api/undo", b"", 200),
    ],
)
def test_odd_requests_are_answered_in_a_sentence(address: str, path: str, body: bytes, status: int) -> None:
    with let_in(address) as client:
        answer = client.post(path, content=body)
        assert answer.status_code == status, answer.text
        assert status == 200 or len(answer.json()["problem"]) > 10
        assert client.get("api/document", params={"id": "../truth.jsonl"}).status_code == 409
        for name, page, told in (("../truth.jsonl", "1", 409), ("ferry.md", "1", 422), ("ferry.md", "²", 422)):
            assert client.get("api/picture", params={"id": name, "page": page}).status_code == told


def test_metadata_that_cannot_be_sent_is_told_in_a_sentence(tmp_path: Path) -> None:
    truth = write_files(tmp_path, '{"id": "q", "query": "x?", "unanswerable": true, "metadata": {"a": "\\ud800"}}')
    with review_address(truth) as where, let_in(where) as client:
        answer = client.get("api/query", params={"id": "q"})
        assert (answer.status_code, "UTF-8" in answer.json()["problem"]) == (422, True)


def test_two_reviews_at_once_do_not_share_a_cookie() -> None:
    assert Guard("t", 1).cookie != Guard("t", 2).cookie
    assert Guard("t", 1).is_token("t")
    assert not Guard("t", 1).is_token("")
    assert not Guard("t", 1).is_token("\ud800")


def test_the_token_is_long(address: str) -> None:
    assert len(parse_qs(urlsplit(address).query)["token"][0]) >= 40
