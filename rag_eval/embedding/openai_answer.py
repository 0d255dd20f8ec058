"""Reading the vectors out of an answer of OpenAI's embeddings API, trusting nothing in it."""

from base64 import b64decode

import numpy as np

from rag_eval.embedding.base import Vectors


class BadAnswerError(ValueError):
    """An answer that cannot be used, in words that continue "the service …"; nothing in it is quoted."""


def read_vectors(answer: object, count: int, dimension: int | None) -> Vectors:
    """The ``count`` vectors, ordered by their ``index``; floats and base64 are both understood.

    Raises ``BadAnswerError`` on a wrong count, an index that is missing, twice or out of range, vectors of another
    size than ``dimension`` (None: than the first), or numbers that are NaN or infinite.
    """
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        raise BadAnswerError("answered no list of vectors")
    if len(data) != count:
        raise BadAnswerError(f"answered {len(data)} vectors for {count} texts")
    vectors: Vectors | None = None
    seen = np.zeros(count, bool)
    for item in data:
        index = item.get("index") if isinstance(item, dict) else None
        if type(index) is not int or not 0 <= index < count or seen[index]:
            raise BadAnswerError(
                f"numbered the vectors of {count} texts with an index that is missing, twice or too large"
            )
        vector = _read_vector(item.get("embedding"), index)
        if vectors is None:
            vectors = np.empty((count, dimension or len(vector)), np.float32)
        if len(vector) != vectors.shape[1]:
            raise BadAnswerError(f"answered {len(vector)} numbers for item {index}, not {vectors.shape[1]}")
        vectors[index] = vector
        seen[index] = True
    if vectors is None:
        raise BadAnswerError("answered no vectors")
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise BadAnswerError(f"answered NaN or infinite numbers for item {int(np.argmin(finite))}")
    return vectors


def read_tokens(answer: object) -> int | None:
    """How many tokens the service says it read; None when it does not say."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if isinstance(usage, dict):
        for field in ("prompt_tokens", "total_tokens"):
            if type(usage.get(field)) is int and usage[field] > 0:
                return int(usage[field])
    return None


def _read_vector(value: object, index: int) -> Vectors:
    if not isinstance(value, str | list):
        raise BadAnswerError(f"answered no vector for item {index} but {type(value).__name__}")
    try:
        if isinstance(value, str):
            vector: Vectors = np.frombuffer(b64decode(value, validate=True), dtype="<f4")
        else:
            with np.errstate(over="ignore"):
                vector = np.array(value, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise BadAnswerError(f"answered a vector for item {index} that cannot be read") from None
    if vector.ndim != 1 or not len(vector):
        raise BadAnswerError(f"answered a vector of shape {vector.shape} for item {index}")
    return vector
