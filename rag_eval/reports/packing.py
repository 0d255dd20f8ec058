"""Data inside an HTML page: small data as JSON, large data compressed; nothing in it can end or begin a tag."""

import base64
import html
import json
import zlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
