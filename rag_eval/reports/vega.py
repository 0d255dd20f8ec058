"""The JavaScript that draws the charts, from a package that carries it; made once and kept."""

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

from rag_eval.files import write_atomically

_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def vega_script(folder: Path) -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; kept in the folder, since bundling takes seconds.

    A file that was altered no longer fits the digest in its name and is made again.
    """
    name = f"vega-{version('vl-convert-python')}-"
    for path in folder.glob(f"{name}*.js"):
        content = path.read_bytes()
        if path.stem == name + _digest(content):
            return content.decode()
    script = _bundled()
    write_atomically(folder / f"{name}{_digest(script.encode())}.js", script.encode())
    return script


@cache
def _bundled() -> str:
    import vl_convert

    script: str = vl_convert.javascript_bundle(_SNIPPET)
    return script


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
