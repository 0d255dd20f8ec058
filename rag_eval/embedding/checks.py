"""What goes into an embedder, and what comes out, held against what an embedder is."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError, preview
from rag_eval.types.ids import encode_utf8


def check_texts(texts: Sequence[str]) -> None:
    """Raise ``ConfigurationError`` unless the texts are a list of strings, ``TextEncodingError`` on a lone surrogate.

    A bare string is refused because its letters would be embedded one by one.
    """
    if isinstance(texts, str) or not hasattr(texts, "__len__"):
        given = "one string" if isinstance(texts, str) else preview(repr(texts))
        raise ConfigurationError(f"the texts to embed are {given}: give a list of strings")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigurationError(f"text {number} to embed is {preview(repr(text))}: give a list of strings")
        if not text.isascii():
            encode_utf8(text, f"text {number}")


def checked_vectors(vectors: object, count: int, name: str, dimension: int | None = None) -> NDArray[np.float32]:
    """The vectors, which may be lists or of another precision, as float32 rows.

    Raises ``ConfigurationError`` unless they are ``count`` rows of finite numbers, ``dimension`` in each if given.
    """
    wanted = f"it must give one row for each text, of {dimension or 'equally many'} numbers"
    try:
        with np.errstate(over="ignore"):
            rows: NDArray[np.float32] = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        told = preview(str(error), 100)
        raise ConfigurationError(
            f"the embedder {name} gave no array of numbers for {count} texts ({told}): {wanted}"
        ) from None
    if rows.ndim != 2 or len(rows) != count or not rows.shape[1] or dimension not in (None, rows.shape[1]):
        raise ConfigurationError(f"the embedder {name} gave an array of shape {rows.shape} for {count} texts: {wanted}")
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise ConfigurationError(
            f"the embedder {name} gave numbers that are NaN or infinite, first in row {int(np.argmin(finite))} "
            f"of {count}: such vectors cannot be searched"
        )
    return rows
