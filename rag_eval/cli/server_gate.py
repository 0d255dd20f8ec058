"""Restrict our Prefect servers to programs with the key, and to their own pages in the user's browser.

Every web page that the user opens, and every user of the machine, can reach a server on loopback. ``LoopbackGate``
refuses requests of other pages; the key (see ``prefect_home``) keeps out other users. The server's pages may contact no
other server: Prefect's dashboard would contact a statistics service even with statistics off.
"""

import base64
import hashlib
import re
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse

from rag_eval.cli.prefect_home import USER

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
OWN_PAGES = ("none", "same-origin")
POLICY_VIOLATION = 1008
# The dashboard uses inline scripts and styles, and eval.
OWN_CONTENT = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; form-action 'self'; frame-ancestors 'none'"


class LoopbackGate:
    """Middleware that checks every request and answers 403 to those that a page of another origin may have sent.

    Only loopback names are accepted as Host, which prevents DNS rebinding. A link on any page may open a page here, but
    not in a frame and not below /api. Websockets are checked alike.
    """

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer or refuse one request."""

        async def confined(message: "Message") -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault("Content-Security-Policy", OWN_CONTENT)
            await send(message)

        if scope["type"] == "lifespan" or is_own(scope):
            await self._app(scope, receive, confined)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            refusal = PlainTextResponse("This server answers only its own pages and programs on this machine.\n", 403)
            await refusal(scope, receive, send)


def is_own(scope: "Scope") -> bool:
    """Return whether a request comes from a program, the address bar, a page of this server, or a link to one."""
    headers = Headers(scope=scope)
    hosts, origins, sites = (headers.getlist(name) for name in ("host", "origin", "sec-fetch-site"))
    if len(hosts) != 1 or not OWN_HOST.fullmatch(hosts[0]):
        return False
    if origins not in ([], [f"http://{hosts[0]}"]):
        return False
    return not sites or (len(sites) == 1 and sites[0] in OWN_PAGES) or _is_followed_link(scope, headers)


def _is_followed_link(scope: "Scope", headers: Headers) -> bool:
    is_page = headers.getlist("sec-fetch-mode") == ["navigate"] and headers.getlist("sec-fetch-dest") == ["document"]
    in_api = re.match(r"/+api(/|$)", scope["path"])
    return scope["type"] == "http" and scope["method"] == "GET" and is_page and not in_api


# Browsers do not send the part after #. A refused key does not replace a stored one.
SCRIPT = f"""
const token = btoa("{USER}:" + location.hash.slice(1));
history.replaceState(null, "", location.pathname);
fetch("/api/admin/version", {{headers: {{Authorization: "Basic " + token}}}}).then(answer => {{
  if (answer.ok) {{
    localStorage.setItem("prefect-password", token);
    location.replace("/");
  }} else {{
    document.body.textContent =
      "This address is out of date: open the one that rag-eval up printed last.";
  }}
}});
"""
SIGN_IN_PAGE = f'<!doctype html><meta charset="utf-8"><title>rag-eval</title><body><script>{SCRIPT}</script></body>'
_SCRIPT_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
SIGN_IN_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"default-src 'none'; script-src 'sha256-{_SCRIPT_HASH}'; connect-src 'self'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def sign_in(request: "Request") -> "Response":
    """Return a page that stores the key from its address for the dashboard, and then opens the dashboard."""
    return HTMLResponse(SIGN_IN_PAGE, headers=SIGN_IN_HEADERS)
