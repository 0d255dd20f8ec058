"""How documents and briefs look in a prompt.

Each document stands between two lines with a code that its text does not hold, so that nothing in a document can pass
for its end.
"""

import json
from collections.abc import Sequence

from rag_eval.generation.briefs import Brief
from rag_eval.generation.prompt_files import Prompts
from rag_eval.generation.windows import Window
from rag_eval.types.ids import text_sha256

CODE_DIGITS = 12


def label(number: int) -> str:
    """What the document with this number, from 0, is called in a prompt."""
    return f"D{number + 1}"


def shown_documents(windows: Sequence[Window]) -> str:
    """The windows with their labels and names; those of chunks with an id above each."""
    code = _code([window.text for window in windows])
    return "\n\n".join(_shown(label(number), window, code) for number, window in enumerate(windows))


def shown_passages(passages: Sequence[str]) -> str:
    """Passages of any documents, numbered."""
    code = _code(passages)
    parts = [f"<<<passage {n} {code}>>>\n{text}\n<<<end {code}>>>" for n, text in enumerate(passages, start=1)]
    return "\n\n".join(parts)


def shown_briefs(briefs: Sequence[Brief], prompts: Prompts) -> str:
    """A line for each question to write."""
    return "\n".join(_brief(brief, prompts) for brief in briefs)


def _brief(brief: Brief, prompts: Prompts) -> str:
    kind = prompts.describe("query_types", brief.query_type)
    difficulty = prompts.describe("difficulties", brief.difficulty)
    asked_by = "" if brief.persona is None else f"; asked by: {brief.persona}"
    return f"{brief.number}. kind: {kind}; difficulty: {difficulty}{asked_by}"


def _shown(name: str, window: Window, code: str) -> str:
    # As JSON the name of a file is one line, whatever it holds.
    title = f"<<<{name} {code}: {json.dumps(window.doc_id, ensure_ascii=False)}>>>"
    if not window.chunks:
        return f"{title}\n{window.text}\n<<<end of {name} {code}>>>"
    chunks = "\n".join(f"<<<{chunk.id} {code}>>>\n{chunk.content}" for chunk in window.chunks)
    return f"{title}\n{chunks}\n<<<end of {name} {code}>>>"


def _code(texts: Sequence[str]) -> str:
    code = text_sha256("\0".join(texts))[:CODE_DIGITS]
    while any(code in text for text in texts):
        code = text_sha256(code)[:CODE_DIGITS]
    return code
