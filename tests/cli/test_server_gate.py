"""Web pages and other users of the machine get nothing from a server of ours.

Every attack is first shown to succeed on a plain Prefect server, so that one that fails means something.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import httpx
import pytest

from rag_eval.cli.prefect_api import answers
from rag_eval.cli.prefect_home import USER, key_file, known_server
from rag_eval.cli.processes import ChildProcess
from rag_eval.cli.service_commands import start_server
from tests.cli.commands import CLEAN, free_port, migrated_database, wait_for
from tests.cli.daily import enter

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PLAIN = "import sys, uvicorn; from prefect.server.api.server import create_app; \
uvicorn.run(create_app(), port=int(sys.argv[1]), log_level='error')"


@dataclass(frozen=True)
class Target:
    """A server, and what opens it."""

    port: int
    auth: tuple[str, str] | None = field(repr=False)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str) -> Any:
        answer = httpx.post(f"{self.address}/api{path}", json={}, auth=self.auth, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def counts(self) -> dict[str, int]:
        """How many there are of what a page might make."""
        return {kind: self.ask(f"/{kind}/count") for kind in ("flows", "deployments", "flow_runs")}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A Prefect server as it comes."""
    folder, port = tmp_path_factory.mktemp("plain"), free_port()
    migrated_database(folder / "prefect.db")
    settings = {
        "PREFECT_HOME": str(folder),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder / 'prefect.db'}",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_API_URL": "/api",
    }
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-c", PLAIN, str(port)], env=CLEAN | settings, stderr=log)
    wait_for(lambda: answers(f"http://127.0.0.1:{port}/api", 2.0) or process.poll() is not None, 180)
    yield Target(port, None)
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The server of ``rag-eval up``."""
    home, port = tmp_path_factory.mktemp("home"), free_port()
    migrated_database(home / "prefect.db")
    children: list[ChildProcess] = []
    with ExitStack() as stack:
        with patch.dict(os.environ):
            start_server(children, stack, home, [], port)
        known = known_server(port)
        assert known is not None
        yield Target(port, (USER, known.key))
        children[0].stop()


ASKED: list[str] = []
"""What the site below was asked as a proxy."""


@pytest.fixture(scope="module")
def site() -> Iterator[int]:
    """The port of somebody else's web site, with a sandboxed page and one that is not; as a proxy it refuses."""

    class Pages(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            ASKED.append(self.path)
            self.send_error(502)

        def do_GET(self) -> None:
            if self.path.startswith("http"):
                self.do_CONNECT()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            if self.path == "/sandboxed":
                self.send_header("Content-Security-Policy", "sandbox allow-scripts allow-forms")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>A page</title><body></body>")

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield int(server.server_address[1])
    server.shutdown()
    server.server_close()


# Each way gives "read" when it got something that the server said, "open" for a websocket, else nothing.
ATTACK = """
async ([api, name]) => {
  const found = {};
  const body = way => JSON.stringify({name: `${name}-${way}`});
  const within = promise => Promise.race([promise, new Promise(end => setTimeout(end, 30000))]);
  const tried = async (way, get) => {
    try { found[way] = (await within(get())) || ""; } catch (error) { found[way] = ""; }
  };
  const fetched = async (path, options) => {
    const answer = await fetch(api + path, options);
    return answer.ok && (await answer.text()) ? "read" : "";
  };
  const loaded = (make) => new Promise(end => {
    const frame = document.createElement("iframe");
    frame.name = "f" + Math.random();
    document.body.append(frame);
    frame.onload = () => {
      let text = "";
      try { text = frame.contentDocument.body.textContent; } catch (error) { }
      if (text) end(/answers only its own pages/.test(text) ? "" : "read");
    };
    make(frame);
    setTimeout(() => end(""), 3000);
  });
  const posted = (way, enctype) => loaded(frame => {
    const form = document.createElement("form");
    Object.assign(form, {method: "post", action: api + "/flows/", enctype, target: frame.name});
    const field = document.createElement("input");
    field.name = `{"name": "${name}-${way}", "labels": {"a": "`;
    field.value = `"}}`;
    form.append(field);
    document.body.append(form);
    form.submit();
  });
  const opened = (path, protocols) => new Promise(end => {
    const socket = new WebSocket(api.replace("http", "ws") + path, protocols);
    socket.onopen = () => { socket.send("{}"); end("open"); };
    socket.onerror = () => end("");
  });
  const post = (way, options) => fetched("/flows/", {method: "POST", body: body(way), ...options});
  const bytes = way => new TextEncoder().encode(body(way));
  const typed = {headers: {"Content-Type": "application/json"}};
  await Promise.all([
    tried("text", () => post("text", {})),
    tried("untyped", () => post("untyped", {body: bytes("untyped")})),
    tried("untyped-blind", () => post("untyped-blind", {body: bytes("untyped-blind"), mode: "no-cors"})),
    tried("json", () => post("json", typed)),
    tried("beacon", async () => { navigator.sendBeacon(api + "/flows/", bytes("beacon")); }),
    tried("get", () => fetched("/admin/version", {})),
    tried("get-blind", () => fetched("/admin/version", {mode: "no-cors"})),
    tried("get-health", () => fetched("/health", {})),
    tried("frame", () => loaded(frame => { frame.src = api + "/admin/version"; })),
    tried("frame-page", () => loaded(frame => { frame.src = api.replace("/api", "/ui-settings"); })),
    tried("form-text", () => posted("form-text", "text/plain")),
    tried("form-encoded", () => posted("form-encoded", "application/x-www-form-urlencoded")),
    tried("form-parts", () => posted("form-parts", "multipart/form-data")),
    tried("socket-events", () => opened("/events/in")),
    tried("socket-logs", () => opened("/logs/out", "prefect")),
  ]);
  return found;
}
"""
ATTACKERS = ("another port", "another site", "sandboxed", "rebinding")


def attacking_page(browser: "Browser", attacker: str, site: int, target: Target) -> "tuple[Page, str]":
    """A page of the attacker, and the address by which it reaches the server's API."""
    page = browser.new_page()
    if attacker == "rebinding":
        # Its name led to the attacker's machine before, and leads to this one now. Whatever the server says to it, a
        # script that was loaded before has this origin.
        origin = f"http://rebound.test:{target.port}"
        page.goto(f"{origin}/api/health")
        return page, f"{origin}/api"
    addresses = {
        "another port": f"http://127.0.0.1:{site}/",
        "another site": f"http://evil.test:{site}/",
        "sandboxed": f"http://127.0.0.1:{site}/sandboxed",
    }
    page.goto(addresses[attacker])
    return page, f"{target.address}/api"


def attack(browser: "Browser", site: int, target: Target) -> dict[str, tuple[set[str], set[str]]]:
    """The ways by which each attacker read something or opened a websocket, and those by which he wrote."""
    pages = {attacker: attacking_page(browser, attacker, site, target) for attacker in ATTACKERS}
    names = {attacker: attacker.replace(" ", "-") for attacker in ATTACKERS}
    for attacker, (page, api) in pages.items():  # side by side: each waits for what does not come
        page.evaluate(f"given => {{ window.attack = ({ATTACK})(given); }}", [api, names[attacker]])
    got = {attacker: page.evaluate("window.attack") for attacker, (page, _) in pages.items()}
    for page, _ in pages.values():
        page.context.close()
    flows = [flow["name"] for flow in target.ask("/flows/filter")]
    written = {
        attacker: {flow.removeprefix(f"{name}-") for flow in flows if flow.startswith(f"{name}-")}
        for attacker, name in names.items()
    }
    return {one: ({way for way, found in got[one].items() if found}, written[one]) for one in ATTACKERS}


def test_a_page_reads_and_writes_on_a_plain_prefect_server(plain: Target, chromium: "Browser", site: int) -> None:
    for attacker, (read, written) in attack(chromium, site, plain).items():
        assert {"get", "get-health", "socket-events", "socket-logs"} <= read, attacker
        assert {"untyped", "untyped-blind"} <= written, attacker


def test_a_page_reads_and_writes_nothing_on_ours(target: Target, chromium: "Browser", site: int) -> None:
    before = target.counts()
    assert attack(chromium, site, target) == dict.fromkeys(ATTACKERS, (set(), set()))
    assert target.counts() == before


def test_a_link_opens_the_dashboard_and_nothing_of_the_api(target: Target, chromium: "Browser", site: int) -> None:
    page = chromium.new_page()
    for path, status in (("/", 200), ("/api/admin/version", 403), ("/api/health", 403)):
        page.goto(f"http://evil.test:{site}/")
        with page.expect_navigation() as answer:
            page.evaluate("address => { location.href = address; }", target.address + path)
        assert answer.value is not None
        assert answer.value.status == status, path
    page.context.close()


def asked_elsewhere(browser: "Browser", site: int, address: str) -> set[str]:
    """The hosts that a dashboard asks beside its server, as a proxy sees them to which everything else goes."""
    before = len(ASKED)
    context = browser.new_context(proxy={"server": f"http://127.0.0.1:{site}", "bypass": "127.0.0.1"})
    page = context.new_page()
    enter(page, address)
    # An image of another site, as a block's logo is, shows that what is asked elsewhere would be seen.
    page.evaluate("document.body.append(Object.assign(new Image(), {src: 'http://elsewhere.test/logo.png'}))")
    page.wait_for_timeout(2000)
    context.close()
    return {where.removeprefix("http://").split("/")[0].split(":")[0] for where in ASKED[before:]}


def test_the_dashboard_asks_nobody_else(plain: Target, target: Target, chromium: "Browser", site: int) -> None:
    found = asked_elsewhere(chromium, site, f"{plain.address}/v2/dashboard")
    assert "elsewhere.test" in found
    assert any(host.endswith("amplitude.com") for host in found)
    assert asked_elsewhere(chromium, site, key_file(target.port).read_text().splitlines()[0]) == set()


OWN = "http://127.0.0.1"
NAVIGATION = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({}, "/api/admin/version", 200),
        ({"Host": "localhost:1"}, "/api/admin/version", 200),
        ({"Host": "[::1]:4200"}, "/api/admin/version", 200),
        ({"Host": "127.0.0.1", "Origin": OWN}, "/api/admin/version", 200),
        ({"Sec-Fetch-Site": "none"}, "/api/admin/version", 200),
        ({"Sec-Fetch-Site": "same-origin"}, "/api/admin/version", 200),
        (NAVIGATION, "/rag-eval/sign-in", 200),
        ({"Host": ""}, "/api/health", 403),
        ({"Host": "evil.test"}, "/api/health", 403),
        ({"Host": "127.0.0.1.evil.test"}, "/api/health", 403),
        ({"Host": "evil.test@127.0.0.1"}, "/api/health", 403),
        ({"Host": "127.0.0.1:80:80"}, "/api/health", 403),
        ({"Host": "0.0.0.0"}, "/api/health", 403),  # noqa: S104  # nothing is bound
        ({"Host": "127.0.0.1", "Origin": "null"}, "/api/health", 403),
        ({"Host": "127.0.0.1", "Origin": "https://127.0.0.1"}, "/api/health", 403),
        ({"Host": "127.0.0.1", "Origin": "http://127.0.0.1:81"}, "/api/health", 403),
        ({"Host": "127.0.0.1", "Origin": "http://localhost"}, "/api/health", 403),
        ({"Host": "127.0.0.1", "Origin": ""}, "/api/health", 403),
        ({"Sec-Fetch-Site": "same-site"}, "/api/health", 403),
        ({"Sec-Fetch-Site": "cross-site"}, "/", 403),
        ({"Sec-Fetch-Site": "none, cross-site"}, "/", 403),
        (NAVIGATION, "/api/health", 403),
        (NAVIGATION, "/%61pi/health", 403),
        (NAVIGATION, "//api/health", 403),
        (NAVIGATION | {"Sec-Fetch-Dest": "iframe"}, "/", 403),
        (NAVIGATION | {"Sec-Fetch-Mode": "no-cors"}, "/", 403),
        (NAVIGATION | {"Host": "evil.test"}, "/", 403),
    ],
)
def test_what_a_request_must_say_of_itself(target: Target, headers: dict[str, str], path: str, status: int) -> None:
    answer = httpx.get(f"{target.address}{path}", headers=headers, auth=target.auth, timeout=60)
    assert answer.status_code == status


@pytest.mark.parametrize("path", ["/", "/rag-eval/sign-in", "/api/flows/"])
def test_only_a_get_may_come_from_another_page(target: Target, path: str) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        answer = httpx.request(method, f"{target.address}{path}", headers=NAVIGATION, auth=target.auth)
        assert answer.status_code == 403


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["Host: 127.0.0.1", "Host: 127.0.0.1"],
        ["Host: 127.0.0.1", "Host: evil.test"],
        ["Host: 127.0.0.1", "Origin: http://127.0.0.1", "Origin: http://evil.test"],
        ["Host: 127.0.0.1", "Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site"],
        ["Host: 127.0.0.1", "Origin: http://evil.test", "Upgrade: websocket", "Connection: Upgrade"],
    ],
)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_headers_that_are_missing_or_doubled_are_refused(target: Target, lines: list[str], version: str) -> None:
    with socket.create_connection(("127.0.0.1", target.port), timeout=30) as connection:
        connection.sendall("\r\n".join([f"GET /api/health HTTP/{version}", *lines, "", ""]).encode())
        first = connection.makefile("rb").readline()
    assert first.split()[1] in (b"400", b"403")


@pytest.mark.parametrize("path", ["/api/admin/version", "/api/flows/00000000-0000-0000-0000-000000000000"])
def test_without_the_key_nothing_is_told(target: Target, path: str) -> None:
    for auth in (None, (USER, ""), (USER, "x" * 43), ("", (target.auth or ("", ""))[1])):
        assert httpx.get(target.address + path, auth=auth, timeout=60).status_code == 401
    assert httpx.get(target.address + path, auth=target.auth, timeout=60).status_code in (200, 404)


def test_a_command_uses_a_running_up(target: Target, tmp_path: Path) -> None:
    assert target.auth is not None
    root = Path(__file__).parents[2]
    command = [sys.executable, "-P", str(root / "tests" / "doubles" / "recording_command.py"), str(tmp_path), "hold"]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    environment = CLEAN | {"PYTHONPATH": path, "PREFECT_HOME": str(tmp_path)}
    said = subprocess.run(command, env=environment, input="\n", capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == {"api": f"{target.address}/api", "auth": ":".join(target.auth)}
