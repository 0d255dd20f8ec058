"""Texts in a form that copying does not change: the aligned form, folded further, and mapped back to the source."""

import re
import unicodedata
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_eval.chunking.alignment import AlignedText, aligned_form
from rag_eval.ground_truth.run_hashes import code_points

GAP = "\n"
"""Stands in no form, because forms have no whitespace."""

_QUOTES = "'\"`‘’‚‛“”„‟«»‹›′″"
_DASHES = re.compile("--+")


class _Folding(dict[int, str]):
    """How ``str.translate`` folds a character, one for one so that places stay; what is left out becomes a gap."""

    def __missing__(self, code: int) -> str:
        self[code] = _folded(chr(code))
        return self[code]


def _folded(char: str) -> str:
    category = unicodedata.category(char)
    if char in _QUOTES:
        # Which quote a writer uses, and whether code stands in backticks, is a matter of taste.
        return "'"
    if category == "Pd" or char == "\N{MINUS SIGN}":
        return "-"
    if char in "*_" or category == "Cf":
        # Emphasis marks are lost when markdown is quoted, soft hyphens and zero-width marks in any copy.
        return GAP
    folded = char.casefold()
    return folded if len(folded) == 1 else char


_FOLDING = _Folding()


def folded_form(text: str) -> str:
    """The aligned form (NFKD, no whitespace), without case, one kind of quote and dash, no emphasis or invisible marks.

    A run of dashes is one dash. Two texts that differ only in these have the same form.
    """
    return _DASHES.sub("-", aligned_form(text).translate(_FOLDING).replace(GAP, ""))


@dataclass(frozen=True, slots=True)
class FoldedText:
    """The folded form of a source, and where each of its characters comes from."""

    form: str
    source_index: NDArray[np.int32]
    """For each character of the form, the place in the source of the character that it was made of."""
    in_order: bool
    """Whether those places only rise: combining marks that NFKD puts into another order make them fall."""

    @classmethod
    def of(cls, source: str) -> "FoldedText":
        """The folded form of the source: ``FoldedText.of(source).form == folded_form(source)``."""
        aligned = AlignedText.of(source)
        codes = code_points(aligned.form.translate(_FOLDING))
        kept = np.flatnonzero(codes != ord(GAP))
        dashes = codes[kept] == ord("-")
        kept = kept[~(dashes & np.concatenate(([False], dashes[:-1])))]
        source_index = aligned.source_index[kept].astype(np.int32)
        form = codes[kept].tobytes().decode("utf-32-le", "surrogatepass")
        return cls(form, source_index, bool(np.all(source_index[1:] >= source_index[:-1])))
