"""What the retrieved context costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_eval.metrics.base import MetricName, check_cut
from rag_eval.tokens import check_encoding, count_tokens
from rag_eval.types.span import CharacterSpan

DEFAULT_ENCODING = "cl100k_base"


@dataclass(frozen=True)
class TokensRetrieved:
    """Σ over the first k spans retrieved (None: all) of the tokens of the span's text; 0 on empty retrieval.

    Each text is tokenised on its own, as it would stand in a prompt, and overlaps are paid again. Not in [0, 1].
    Raises ``ConfigurationError`` when k is not a whole number of 1 or more, or on an unknown encoding.
    """

    label: ClassVar[str] = "tokens_retrieved"
    k: int | None = None
    encoding: str = DEFAULT_ENCODING

    def __post_init__(self) -> None:
        check_cut(self.k, self.label)
        check_encoding(self.encoding)

    @property
    def name(self) -> str:
        """Such as ``tokens_retrieved@5`` or, unless the encoding is the default, ``tokens_retrieved(o200k_base)@5``."""
        unit = None if self.encoding == DEFAULT_ENCODING else self.encoding
        return str(MetricName(self.label, unit, self.k))

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        """The metric for one query; ``ground_truth`` is not looked at."""
        return float(sum(count_tokens(span.text, self.encoding) for span in retrieved[: self.k]))
