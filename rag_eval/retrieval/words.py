"""Texts as lists of words, for lexical search."""

import re
import unicodedata

# Scripts that are written without spaces are taken in overlapping pairs of characters, as search engines do.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_UNSPACED_BEYOND = "\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}{_UNSPACED_BEYOND}]+|[^\W{_UNSPACED}{_UNSPACED_BEYOND}]+")
_UNSPACED_START = re.compile(rf"[{_UNSPACED}{_UNSPACED_BEYOND}]")


def words(text: str) -> list[str]:
    """The words of a text, case and Unicode form evened out; Chinese, Japanese, Thai and the like as pairs."""
    found: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        if len(word) > 2 and _UNSPACED_START.match(word):
            found.extend(word[place : place + 2] for place in range(len(word) - 1))
        else:
            found.append(word)
    return found
