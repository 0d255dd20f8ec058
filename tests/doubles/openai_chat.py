"""A model for ``OpenAIServer.reply``: reads the prompts of a generation and writes questions that fit, always the same.

::

    server.reply = writer()
    server.faults += [refusal("no"), cut_off(), content("{")]
"""

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from tests.doubles.openai_server import JSON, Change

DOCUMENT = re.compile(r'<<<(D\d+) (\w+): (".*?")>>>\n(.*?)\n<<<end of \1 \2>>>', re.DOTALL)
CHUNK = re.compile(r"<<<(chunk_[0-9a-f]{12}) \w+>>>\n(.*?)(?=\n<<<chunk_|\Z)", re.DOTALL)
NUMBERS = re.compile(r"numbers ([\d, ]+)\.\Z")
SENTENCE = re.compile(r"[^.\n|#<>]{30,200}\.")
WORD = re.compile(r"[^\W\d_]{4,}|\d+")

Reply = Callable[[JSON], str]


def writer(*, answerable: Callable[[str], bool] = lambda question: False) -> Reply:
    """Writes the questions that are asked for, each about a sentence of its own; judges by ``answerable``."""

    def reply(body: JSON) -> str:
        text, kind = body["messages"][-1]["content"], body["response_format"]["json_schema"]["name"]
        if kind == "Verdict":
            asked = re.search(r"^Question: (.*)$", text, re.MULTILINE)
            assert asked is not None
            found = answerable(asked[1])
            return json.dumps({"answerable": found, "passage": "It says so." if found else ""})
        if kind == "Evidence":
            return json.dumps({"excerpts": _evidence(text)})
        return json.dumps({"questions": [_question(kind, text, number) for number in numbers(text)]})

    return reply


def answering(*questions: tuple[str, list[dict[str, str]]]) -> Reply:
    """Always these questions with their excerpts, numbered from 1."""
    made = [{"number": n, "question": q, "excerpts": e} for n, (q, e) in enumerate(questions, start=1)]
    return lambda body: json.dumps({"questions": made})


def excerpt(text: str, document: str = "D1", before: str = "") -> dict[str, str]:
    """A passage that the model quotes."""
    return {"document": document, "text": text, "before": before}


def numbers(prompt: str) -> list[int]:
    """The numbers of the questions that a prompt asks for."""
    found = NUMBERS.search(prompt)
    assert found is not None
    return [int(number) for number in found[1].split(",")]


def documents(prompt: str) -> dict[str, str]:
    """The documents of a prompt by their labels."""
    return {label: text for label, _, _, text in DOCUMENT.findall(prompt)}


def refusal(words: str) -> Change:
    """The model declines."""
    return _changed(lambda choice: choice["message"].update(content=None, refusal=words))


def cut_off() -> Change:
    """The answer is as long as it may be, and ends in the middle."""

    def cut(choice: JSON) -> None:
        choice["finish_reason"] = "length"
        choice["message"]["content"] = choice["message"]["content"][:25]

    return _changed(cut)


def content(words: str | None) -> Change:
    """The model answers this instead."""
    return _changed(lambda choice: choice["message"].update(content=words))


def no_choices() -> Change:
    """An answer with nothing in it."""
    return Change(lambda answer: {**answer, "choices": []})


def _changed(change: Callable[[JSON], object]) -> Change:
    def apply(answer: JSON) -> JSON:
        change(answer["choices"][0])
        return answer

    return Change(apply)


def _question(kind: str, prompt: str, number: int) -> JSON:
    shown = documents(prompt)
    if kind == "BareQuestions":
        name = hashlib.sha256(f"{number}{prompt}".encode()).hexdigest()[:8]
        return {"number": number, "question": f"Who supplied part {name} of the {_subject(prompt)}?"}
    if kind == "ChunkQuestions":
        chosen = [_chosen(CHUNK.findall(text), number) for text in shown.values()]
        return {
            "number": number,
            "question": _about(*(text for _, text in chosen)),
            "chunk_ids": [n for n, _ in chosen],
        }
    excerpts = []
    for label, text in shown.items():
        sentence = _chosen(list(SENTENCE.finditer(text)), number)
        before = text[: sentence.start()].split()[-4:]
        excerpts.append({"document": label, "text": sentence[0].strip(), "before": " ".join(before)})
    return {"number": number, "question": _about(*(one["text"] for one in excerpts)), "excerpts": excerpts}


def _evidence(prompt: str) -> list[JSON]:
    """The sentence that has the most words of the question, where that is half of them."""
    asked = re.search(r"^Question: (.*)$", prompt, re.MULTILINE)
    assert asked is not None
    words = set(WORD.findall(asked[1].casefold()))
    sentences = [
        (label, one[0].strip()) for label, text in documents(prompt).items() for one in SENTENCE.finditer(text)
    ]
    shared = [len(words & set(WORD.findall(text.casefold()))) for _, text in sentences]
    if not shared or max(shared) * 2 < len(words):
        return []
    label, text = sentences[shared.index(max(shared))]
    return [{"document": label, "text": text, "before": ""}]


def _chosen(found: list[Any], number: int) -> Any:
    return found[(11 * number) % len(found)]


def _subject(prompt: str) -> str:
    return WORD.findall(next(iter(documents(prompt).values())))[0]


def _about(*texts: str) -> str:
    """Words of the texts in another order, so that no run of them is copied."""
    words = [word for text in texts for word in list(dict.fromkeys(WORD.findall(text)))[: 12 // len(texts)]]
    return f"Concerning {' and '.join(sorted(words, key=str.casefold)[::-1])}, what holds?"
