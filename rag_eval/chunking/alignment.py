"""Normalise texts so that whitespace, Unicode normal forms and curly quotes do not matter, and map them back."""

import unicodedata
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_eval.chunking.chunker import Cut

_STRAIGHT_QUOTES = str.maketrans({"‘": "'", "’": "'", "‚": "'", "‛": "'", "“": '"', "”": '"', "„": '"', "‟": '"'})


def aligned_form(text: str) -> str:
    """Return the text in NFKD, with straight quotes and without whitespace.

    Texts that differ only in whitespace, in their normal form (NFC, NFD, NFKC, NFKD) or in the style of their quotes
    have equal forms.
    """
    return "".join(_decomposed(text).split())


def code_points(text: str) -> NDArray[np.uint32]:
    """Return the code points of a text as numbers."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


@dataclass(frozen=True, slots=True)
class AlignedText:
    """The aligned form of a source, and where each of its characters comes from."""

    form: str
    source_index: NDArray[np.int64]
    """For each character of the form, the index of its character in the source."""
    form_index: NDArray[np.int64]
    """For each index in the source, and its end, the number of characters of the form before it."""

    @classmethod
    def of(cls, source: str) -> "AlignedText":
        """Return the aligned form of a source: ``AlignedText.of(source).form == aligned_form(source)``."""
        codes = code_points(source)
        known, which = np.unique(codes, return_inverse=True)
        # Decompose every distinct character once.
        decompositions = [_decomposed(chr(code)) for code in known.tolist()]
        lengths = np.array([len(text) for text in decompositions], dtype=np.int64)
        table = np.array([ord(char) for text in decompositions for char in text], dtype="<u4")
        counts = lengths[which]
        source_index = np.repeat(np.arange(len(codes)), counts)
        # Expanded position i is at (i - the start of its character's expansion) in the decomposition.
        shift = (np.cumsum(lengths) - lengths)[which] - (np.cumsum(counts) - counts)
        table_index = np.arange(len(source_index)) + np.repeat(shift, counts)
        order = _canonical_order(np.array([unicodedata.combining(chr(code)) for code in table], np.int64)[table_index])
        table_index, source_index = table_index[order], source_index[order]
        is_visible = ~np.array([chr(code).isspace() for code in table], dtype=bool)[table_index]
        table_index, source_index = table_index[is_visible], source_index[is_visible]
        before = np.cumsum(np.bincount(source_index, minlength=len(codes) + 1))
        return cls(
            form=table[table_index].tobytes().decode("utf-32-le", "surrogatepass"),
            source_index=source_index,
            form_index=np.concatenate(([0], before[:-1])),
        )

    def span(self, first: int, after: int) -> Cut:
        """Return the range of the source that ``form[first:after]`` comes from, extended to whole characters."""
        places = self.source_index[first:after]
        return int(places.min()), int(places.max()) + 1


def _decomposed(text: str) -> str:
    return unicodedata.normalize("NFKD", text).translate(_STRAIGHT_QUOTES)


def _canonical_order(classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the canonical order of the marks after each base character: stable, by combining class."""
    if not np.any((classes[:-1] > classes[1:]) & (classes[1:] > 0)):
        return np.arange(len(classes))
    return np.argsort(np.cumsum(classes == 0) * 256 + classes, kind="stable")
