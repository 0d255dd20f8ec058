"""The checks that chunkers make on their settings."""

from rag_eval.errors import ConfigurationError


def check_size_and_overlap(size_name: str, size: int, overlap: int) -> None:
    """Raise ``ConfigurationError`` unless both are integers, the size at least 1 and the overlap in [0, size)."""
    for name, value in ((size_name, size), ("chunk_overlap", overlap)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigurationError(f"{name} is {value!r}: give a whole number")
    if size < 1:
        raise ConfigurationError(f"{size_name} is {size}: a chunk needs at least 1")
    if overlap < 0:
        raise ConfigurationError(f"chunk_overlap is {overlap}: give 0 or more")
    if overlap >= size:
        raise ConfigurationError(
            f"chunk_overlap is {overlap} and {size_name} is {size}: the overlap must be smaller, or no chunk gets ahead"
        )
