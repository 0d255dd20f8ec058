"""Tokenize for BM25: the words of a text, their stems, or a user's function."""

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from importlib import resources
from typing import Annotated, Protocol

from pydantic import Field, StrictBool

from rag_eval.distribution import install_command
from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import choices, suggestion
from rag_eval.parts import Shown, part
from rag_eval.parts.objects import ForeignFunction
from rag_eval.parts.part_settings import Name

# Scripts without spaces are split into overlapping pairs of characters, as search engines do.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_UNSPACED_BEYOND = "\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}{_UNSPACED_BEYOND}]+|[^\W{_UNSPACED}{_UNSPACED_BEYOND}]+")
_UNSPACED_START = re.compile(rf"[{_UNSPACED}{_UNSPACED_BEYOND}]")
_ASCII_WORD = re.compile(r"\w+", re.ASCII)


def words(text: str) -> list[str]:
    """Return the words of a text, case-folded and in one Unicode form; Chinese, Japanese and Thai as pairs."""
    if text.isascii():  # most texts; the rules below give the same result
        return _ASCII_WORD.findall(text.lower())
    normalised = unicodedata.normalize("NFKC", text).casefold()
    found: list[str] = _WORD.findall(normalised)
    if not _UNSPACED_START.search(normalised):
        return found
    pairs: list[str] = []
    for word in found:
        if len(word) > 2 and _UNSPACED_START.match(word):
            pairs.extend(word[place : place + 2] for place in range(len(word) - 1))
        else:
            pairs.append(word)
    return pairs


RUN = 3
"""Minimum number of consecutive words shared with another text that count as copied."""


def leakage(question: str, *excerpts: str) -> float:
    """Return the share, 0 to 1, of the question's words in runs of three or more that an excerpt also has.

    0 for a question without words. Scripts without spaces count pairs of characters as words.
    """
    asked, runs = words(question), set()
    for excerpt_words in map(words, excerpts):
        runs |= {tuple(excerpt_words[place : place + RUN]) for place in range(len(excerpt_words) - RUN + 1)}
    starts = [place for place in range(len(asked) - RUN + 1) if tuple(asked[place : place + RUN]) in runs]
    return len({place + step for place in starts for step in range(RUN)}) / len(asked) if asked else 0.0


LEAKAGE_KINDS = {"none": 0.0, "up to 25 %": 0.25, "25 to 50 %": 0.5, "more than 50 %": 1.0}
"""Kinds of questions by the share of their words that is copied, with the upper limit of the share."""


def leakage_kind(share: float) -> str:
    """Return the kind of a question by the share of its words that is copied."""
    return next(kind for kind, most in LEAKAGE_KINDS.items() if share <= most)


class Tokenizer(Protocol):
    """Splits a text into words."""

    def words(self, text: str) -> list[str]:
        """Return the words, in order."""


@part
class WordTokenizer:
    """Runs of letters and digits, case-folded and in one Unicode form; Chinese, Japanese and Thai as pairs."""

    def words(self, text: str) -> list[str]:
        return words(text)


@cache
def stop_words() -> dict[str, frozenset[str]]:
    """Return the stop words of each language, as written by ``words``: articles, pronouns, auxiliaries."""
    lines = resources.files("rag_eval.retrieval").joinpath("stop_words.txt").read_text("utf-8").splitlines()
    return {language: frozenset(listed.split()) for language, _, listed in (line.partition(":") for line in lines)}


# A stemmer has state, and parallel configurations share a tokenizer.
_stemming = threading.Lock()


@part
class StemmedTokenizer:
    """Stems of words by a language's Snowball stemmer, without stop words (extra ``stemming``).

    Raises ``ConfigurationError`` on a language without a stemmer, or without stop words unless they are kept.
    """

    extra = ("stemming", "snowballstemmer")
    packages = ("snowballstemmer",)

    language: Annotated[Name, Shown, Field(description="English name of the language, such as german.")] = "english"
    stop_words: Annotated[StrictBool, Field(description="Omit stop words.")] = True

    def __post_init__(self) -> None:
        listed = stop_words()
        if self.stop_words and self.language not in listed:
            hint = suggestion(self.language, listed)
            raise ConfigurationError(
                f"there is no list of stop words for {preview(self.language)}{hint}: {choices(listed)}; "
                "or set stop_words to false"
            )
        self._stems: dict[str, str] = dict.fromkeys(listed[self.language], "") if self.stop_words else {}

    def words(self, text: str) -> list[str]:
        stems, found = self._stems, words(text)
        with _stemming:
            stems |= {word: self._stem(word) for word in set(found) - stems.keys()}
        return [stem for word in found if (stem := stems[word])]

    @cached_property
    def _stem(self) -> Callable[[str], str]:
        try:
            import snowballstemmer
        except ImportError:
            raise ConfigurationError(f"stemmed words need snowballstemmer: {install_command('stemming')}") from None
        known = snowballstemmer.algorithms()
        if self.language not in known:
            hint = suggestion(self.language, known)
            raise ConfigurationError(f"there is no stemmer for {preview(self.language)}{hint}: {choices(known)}")
        stem: Callable[[str], str] = snowballstemmer.stemmer(self.language).stemWord
        return stem


class ForeignTokenizer(ForeignFunction):
    """A function that splits a text into words, or an object with ``words`` or ``tokenize``.

    Raises ``ConfigurationError`` if the object cannot be called.
    """

    kind = "tokenizer"
    methods = ("words", "tokenize")
    wanted = "a function of a text"

    def words(self, text: str) -> list[str]:
        answer = self.ask(self._call, text)
        found = list(answer) if isinstance(answer, Iterable) and not isinstance(answer, str | bytes) else None
        if found is None or not all(isinstance(word, str) for word in found):
            raise ConfigurationError(
                f"the tokenizer {self.label} returned {preview(repr(answer))}: return a list of words"
            )
        return [word for word in found if word]
