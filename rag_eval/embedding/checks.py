"""What goes into an embedder, and what comes out, held against what an embedder is."""

from collections.abc import Sequence

import numpy as np

from rag_eval.embedding.base import Vectors
from rag_eval.errors import ConfigurationError


def check_texts(texts: Sequence[str]) -> None:
    """Raise ``ConfigurationError`` on a bare string, whose letters would be embedded one by one."""
    if isinstance(texts, str):
        raise ConfigurationError("the texts to embed are one string: give a list of strings")


def checked_vectors(vectors: object, count: int, name: str, dimension: int | None = None) -> Vectors:
    """The vectors as float32 rows.

    Raises ``ConfigurationError`` unless they are ``count`` rows of finite numbers, ``dimension`` in each if given.
    """
    with np.errstate(over="ignore"):
        rows: Vectors = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or len(rows) != count or dimension not in (None, rows.shape[1]):
        raise ConfigurationError(
            f"the embedder {name} gave an array of shape {rows.shape} for {count} texts: "
            f"it must give one row for each text, of {dimension or 'equally many'} numbers"
        )
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise ConfigurationError(
            f"the embedder {name} gave numbers that are NaN or infinite, first in row {int(np.argmin(finite))} "
            f"of {count}: such vectors cannot be searched"
        )
    return rows
