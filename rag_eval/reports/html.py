"""Render self-contained pages: templates with style, scripts and data inside, which load nothing from outside.

Everything that a template prints is escaped, unless it is markup. A content security policy allows only the page's own
style and scripts, by their digests.
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

# Characters that change the text direction: as escapes, they cannot reorder the surrounding sentence.
_DIRECTIONS = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
# Line separators of JavaScript that JSON allows unescaped.
_SEPARATORS = {code: f"\\u{code:04x}" for code in (0x2028, 0x2029)}


def render_page(template: str, *, style: str, script: str, package: str = HERE, **context: object) -> str:
    """Render a template of a package that extends ``base.html`` with this style and this script."""
    script, early = f'(() => {{\n"use strict";\n{script}}})();\n', asset("theme.js")
    style_digest, *script_digests = map(_csp_digest, (style, early, script))
    # The page makes its own images, of its charts.
    allowed = f"script-src {' '.join(script_digests)}; style-src {style_digest}; img-src blob:"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    parts = {"policy": policy, "style": style, "early": early, "script": script}
    own = {name: Markup(text) for name, text in parts.items()}  # noqa: S704  # digests and our own files
    return templates(package).get_template(template).render(**own, **context)


def _csp_digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


@cache
def templates(package: str = HERE) -> Environment:
    """Return the templates of a package, and those that all pages share."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(HERE)]),
        autoescape=True,
        finalize=_readable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies |= {"json.dumps_function": _json, "json.dumps_kwargs": {}}
    environment.filters |= {"breakable": _breakable, "counted": counted}
    return environment


@cache
def asset(name: str, package: str = HERE) -> str:
    """Return a file of a package's folder ``assets``."""
    return files(package).joinpath("assets", name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Section:
    """Data of the page that is unpacked on first use."""

    name: str
    kind: Literal["int32", "float32", "bytes", "json"]
    content: bytes

    @classmethod
    def of(cls, name: str, data: object) -> "Section":
        """Pack numbers as 32-bit integers or floats, bytes as they are, and plain data as JSON."""
        if isinstance(data, np.ndarray):
            if data.dtype.kind == "f":
                return cls(name, "float32", data.astype("<f4").tobytes())
            return cls(name, "int32", data.astype("<i4").tobytes())
        if isinstance(data, bytes):
            return cls(name, "bytes", data)
        return cls(name, "json", json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii"))

    @property
    def packed(self) -> str:
        """The compressed content in base64."""
        return base64.b64encode(zlib.compress(self.content, 6)).decode("ascii")


def _readable(value: object) -> object:
    return value.translate(_DIRECTIONS) if isinstance(value, str) and not isinstance(value, Markup) else value


def _json(data: object) -> str:
    """Return JSON for a script element; the filter ``tojson`` escapes anything that could start a tag or a comment."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).translate(_SEPARATORS)


def _breakable(name: str) -> Markup:
    """Allow line breaks within a name, so that narrow columns stay narrow."""
    return escape(_readable(name)).replace("_", Markup("_<wbr>")).replace("@", Markup("<wbr>@"))
