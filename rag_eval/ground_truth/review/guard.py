"""Who may talk to the review page: a browser on this machine that was given the token, and no other web page.

The token comes in the address once and is then a cookie that scripts cannot read and other sites do not send. The host
that a request names must be this machine, so that no foreign name can be pointed at it; and whatever changes something
must come from the page itself.
"""

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Decides on requests by their headers."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token.encode()
        # Cookies are shared by all ports of a host: two reviews at once must not take each other's.
        self.cookie = f"rag_eval_review_{port}"

    def is_token(self, given: str) -> bool:
        """Whether this is the token, told in the same time whatever it is."""
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token)

    def refusal(self, method: str, headers: Mapping[str, str], cookies: Mapping[str, str]) -> str | None:
        """Why a request for anything but the first page is refused; None when it is let in."""
        reason = self.foreign(method, headers)
        if reason is not None:
            return reason
        if not self.is_token(cookies.get(self.cookie, "")):
            return "open the address that rag-eval truth review printed: it holds the key to this page"
        return None

    def foreign(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Why a request does not come from this machine and, where it changes something, from the page; else None."""
        host = headers.get("host", "")
        if _hostname(f"//{host}") not in LOOPBACK_NAMES:
            return "this page is served to 127.0.0.1 and localhost only"
        origin = headers.get("origin")
        if origin is None and method in ("GET", "HEAD"):
            return None
        if origin != f"http://{host}":
            return "this request comes from another page"
        return None


def _hostname(address: str) -> str | None:
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises on a port that is none
    except ValueError:
        return None
    return None if parts.username is not None or parts.path else parts.hostname
