"""Pages that need no other file: rendered from templates, with style, scripts and data inside and nothing from outside.

Whatever a template prints is escaped, unless it is markup already. A content security policy allows the page's own
style and scripts, by their digests, and nothing else.
"""

import base64
import hashlib
import json
import zlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from rag_eval.formatting import counted

HERE = "rag_eval.reports"

# Characters that change the direction of text: shown as an escape, they cannot reorder the sentence around them.
_DIRECTIONS = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
# The line separators of JavaScript, which JSON allows as they are.
_SEPARATORS = {code: f"\\u{code:04x}" for code in (0x2028, 0x2029)}


def render_page(template: str, *, style: str, script: str, package: str = HERE, **context: object) -> str:
    """Render a template of a package that extends ``base.html`` with this style and this script."""
    # The script has a scope of its own; the colours are chosen before anything is drawn.
    own, early = f'(() => {{\n"use strict";\n{script}}})();\n', asset("theme.js")
    style_digest, *script_digests = (
        f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
        for content in (style, early, own)
    )
    # Images are those that the page makes itself, of its own charts.
    allowed = f"script-src {' '.join(script_digests)}; style-src {style_digest}; img-src blob:"
    # No character of it ends an attribute in double quotes.
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    return (
        templates(package)
        .get_template(template)
        .render(
            policy=Markup(policy),  # noqa: S704  # digests and our own words
            style=Markup(style),  # noqa: S704  # our own file
            early=Markup(early),  # noqa: S704  # our own file
            script=Markup(own),  # noqa: S704  # our own files
            **context,
        )
    )


@cache
def templates(package: str = HERE) -> Environment:
    """The templates of a package and, below them, those that all pages share."""
    found = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(HERE)]),
        autoescape=True,
        finalize=_readable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies |= {"json.dumps_function": _json, "json.dumps_kwargs": {}}
    found.filters |= {"breakable": _breakable, "counted": counted}
    return found


@cache
def asset(name: str, package: str = HERE) -> str:
    """A file that pages are made of, from a package's folder ``assets``."""
    return files(package).joinpath("assets", name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Section:
    """Data of the page that is unpacked when it is first needed."""

    name: str
    kind: Literal["int32", "float32", "bytes", "json"]
    content: bytes

    @classmethod
    def of(cls, name: str, data: object) -> "Section":
        """Numbers as a row of 32-bit integers or floats, bytes as they are, and plain data as JSON."""
        if isinstance(data, np.ndarray):
            if data.dtype.kind == "f":
                return cls(name, "float32", data.astype("<f4").tobytes())
            return cls(name, "int32", data.astype("<i4").tobytes())
        if isinstance(data, bytes):
            return cls(name, "bytes", data)
        return cls(name, "json", json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii"))

    @property
    def packed(self) -> str:
        """The content compressed, in base64."""
        return base64.b64encode(zlib.compress(self.content, 6)).decode("ascii")


def _readable(value: object) -> object:
    return value.translate(_DIRECTIONS) if isinstance(value, str) and not isinstance(value, Markup) else value


def _json(data: object) -> str:
    """JSON for a script element; the filter ``tojson`` escapes what could begin a tag or a comment."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).translate(_SEPARATORS)


def _breakable(name: str) -> Markup:
    """A name that may break where it is put together, so that a narrow column stays narrow."""
    return escape(_readable(name)).replace("_", Markup("_<wbr>")).replace("@", Markup("<wbr>@"))
