"""The checks that chunkers make on their settings."""

from rag_eval.errors import ConfigurationError


def check_at_least(setting: str, value: object, minimum: int) -> None:
    """Raise ``ConfigurationError`` unless the value is a whole number of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigurationError(f"{setting} is {value!r}: give a whole number of at least {minimum}")


def check_size_and_overlap(size_name: str, size: int, overlap: int) -> None:
    """Raise ``ConfigurationError`` unless both are integers, the size at least 1 and the overlap in [0, size)."""
    check_at_least(size_name, size, 1)
    check_at_least("chunk_overlap", overlap, 0)
    if overlap >= size:
        raise ConfigurationError(
            f"chunk_overlap is {overlap} and {size_name} is {size}: the overlap must be smaller, or no chunk gets ahead"
        )
