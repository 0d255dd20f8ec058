"""What a page needs to stand alone: its assets, and a policy that lets nothing else run."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files


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
