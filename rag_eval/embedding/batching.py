"""Cutting texts into requests that a service accepts: so many texts, so many tokens, none too long."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rag_eval.errors import ConfigurationError, preview
from rag_eval.tokens import check_encoding, count_tokens, token_ends
from rag_eval.types.ids import encode_utf8

TooLong = Literal["refuse", "truncate"]
NAMED_IN_ERRORS = 3


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one request may hold; None for a number of tokens that is not limited.

    ``encoding`` is the tiktoken encoding that counts; for a model with another tokenizer the counts are estimates.
    """

    max_texts: int = 2_048
    max_tokens: int | None = 300_000
    max_tokens_per_text: int | None = 8_192
    encoding: str = "cl100k_base"

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if min(self.max_texts, self.max_tokens or 1, self.max_tokens_per_text or 1) < 1:
            raise ConfigurationError(f"{self} cannot be used: every limit must be at least 1")
        if (self.max_tokens_per_text or 1) > (self.max_tokens or self.max_tokens_per_text or 1):
            raise ConfigurationError(f"{self} cannot be used: a text may not be longer than a request")


@dataclass(frozen=True, slots=True)
class Batch:
    """The texts of one request and their places in what was given."""

    places: list[int]
    texts: list[str]


def make_batches(
    texts: Sequence[str], places: Sequence[int], limits: RequestLimits, too_long: TooLong, model: str
) -> list[Batch]:
    """The texts at these places in as few batches as the limits allow in this order; empty texts are left out.

    A text of too many tokens is cut to as many as fit, or all of them are refused with a ``ConfigurationError`` that
    names them. Raises ``TextEncodingError`` on a lone surrogate.
    """
    kept = [(place, texts[place]) for place in places if texts[place]]
    sizes = [len(encode_utf8(text, f"text {place}")) for place, text in kept]
    # A token is at least a byte: where the bytes fit, the tokens do, and nothing need be counted.
    if sum(sizes) > (limits.max_tokens or sum(sizes)) or max(sizes, default=0) > (limits.max_tokens_per_text or 2**63):
        sizes = [count_tokens(text, limits.encoding) for _, text in kept]
        if limits.max_tokens_per_text is not None:
            kept, sizes = _shortened(kept, sizes, limits.max_tokens_per_text, limits.encoding, too_long, model)
    batches: list[Batch] = []
    filled = 0
    for (place, text), size in zip(kept, sizes, strict=True):
        full = not batches or len(batches[-1].texts) == limits.max_texts
        if full or (limits.max_tokens is not None and filled + size > limits.max_tokens):
            batches.append(Batch([], []))
            filled = 0
        batches[-1].places.append(place)
        batches[-1].texts.append(text)
        filled += size
    return batches


def truncate(text: str, max_tokens: int, encoding: str) -> str:
    """The longest beginning of the text that ends with a token and has at most ``max_tokens`` of them."""
    ends = token_ends(text, encoding)
    keep = min(max_tokens, len(ends))
    # Cut off from what followed, the end of the text may be encoded in more tokens than before.
    while keep and count_tokens(text[: ends[keep - 1]], encoding) > max_tokens:
        keep -= 1
    return text[: ends[keep - 1]] if keep else ""


def _shortened(
    kept: list[tuple[int, str]], sizes: list[int], limit: int, encoding: str, too_long: TooLong, model: str
) -> tuple[list[tuple[int, str]], list[int]]:
    over = [(place, text, size) for (place, text), size in zip(kept, sizes, strict=True) if size > limit]
    if over and too_long == "refuse":
        named = ", ".join(
            f"text {place} has {size:,} ({preview(text[:80])})" for place, text, size in over[:NAMED_IN_ERRORS]
        )
        more = f" and {len(over) - NAMED_IN_ERRORS} more" if len(over) > NAMED_IN_ERRORS else ""
        raise ConfigurationError(
            f"{len(over)} of {len(kept)} texts have more than the {limit:,} tokens that {model} takes: {named}{more}; "
            "make smaller chunks, or choose too_long='truncate'"
        )
    shortened = [
        (place, truncate(text, limit, encoding) if size > limit else text)
        for (place, text), size in zip(kept, sizes, strict=True)
    ]
    return shortened, [min(size, limit) for size in sizes]
