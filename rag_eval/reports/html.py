"""Data inside an HTML page: small data as JSON, large data compressed; nothing in it can end or begin a tag."""

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np
from numpy.typing import NDArray

# Characters that turn the direction of what follows: seen as an escape, they turn nothing of the sentence around them.
_TURNS = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


class Html(str):
    """Markup that is safe as it stands."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: str | int | float | bool | None) -> Html:
    """An element; children that are no ``Html`` are escaped, and None is left out.

    An attribute's trailing ``_`` is dropped and other ``_`` become ``-``; True gives a bare attribute, None and False
    none.
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    inner = "".join(text(child) for child in children if child is not None)
    return Html(f"<{tag}{written}>{inner}</{tag}>")


def text(content: str) -> Html:
    """Text as markup, with what would turn its direction written as an escape; markup stays as it is."""
    return content if isinstance(content, Html) else Html(html.escape(content.translate(_TURNS)))


def together(*parts: str | None) -> Html:
    """Parts one after the other."""
    return Html("".join(text(part) for part in parts if part is not None))


def scrolling(table: Html, label: str) -> Html:
    """A table in a box that scrolls sideways, by keyboard too."""
    return element("div", table, class_="scroll", tabindex=0, role="group", aria_label=label)


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    key = name.removesuffix("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'


@cache
def asset(name: str) -> str:
    """A file that pages are made of."""
    return files("rag_eval.reports").joinpath("assets", name).read_text(encoding="utf-8")


def scripts(names: Sequence[str]) -> str:
    """Scripts as one, with nothing of them outside it."""
    parts = "\n".join(asset(f"{name}.js") for name in names)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def policy(style: str, *allowed: str) -> str:
    """A content security policy for this style and these scripts, by their digests, and nothing else."""
    sources = " ".join(map(_source, allowed))
    return f"default-src 'none'; script-src {sources}; style-src {_source(style)}; base-uri 'none'; form-action 'none'"


def _source(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


Kind = Literal["int32", "float32", "bytes", "json"]

# What JSON does not need outside strings, and inside them writes as an escape: no tag or comment can begin.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
_LEVEL = 6


@dataclass(frozen=True, slots=True)
class Section:
    """Data of the page that is unpacked when it is first asked for."""

    name: str
    kind: Kind
    content: bytes

    def element(self) -> str:
        """The section as an element that holds it compressed, in base64; no browser runs or shows it."""
        packed = base64.b64encode(zlib.compress(self.content, _LEVEL)).decode("ascii")
        name = html.escape(self.name)
        return f'<script type="text/plain" id="section-{name}" data-kind="{self.kind}">{packed}</script>'


def numbers(name: str, values: NDArray[np.generic]) -> Section:
    """Numbers as a section: whole ones as 32-bit integers, others as 32-bit floats, in one row."""
    if values.dtype.kind == "f":
        return Section(name, "float32", values.astype("<f4").tobytes())
    return Section(name, "int32", values.astype("<i4").tobytes())


def records(name: str, data: object) -> Section:
    """Plain data as a section."""
    return Section(name, "json", json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii"))


def json_element(name: str, data: object) -> str:
    """Plain data as an element of the page with this id."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).translate(_ESCAPES)
    return f'<script type="application/json" id="{html.escape(name)}">{text}</script>'
