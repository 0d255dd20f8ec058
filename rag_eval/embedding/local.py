"""The default embedder: static word vectors that come with an installed package, no network and no key.

A text's vector is the mean of its tokens' vectors, scaled to length 1. The weights (256 dimensions) and the
tokenizer are files inside the ``wordllama`` package; they are read directly, because importing that package
configures the root logger and may look for a model hub.
"""

import importlib.util
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rag_eval.embedding.embedder import BuiltInEmbedder, UsageCounter, Vectors, check_texts
from rag_eval.errors import ConfigurationError
from rag_eval.parts import part

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BATCH = 256


@part
class LocalEmbedder(BuiltInEmbedder):
    """Mean of static token vectors, 256 dimensions; the same text always gives the same vector, bit for bit.

    A text without tokens (the empty one) has the zero vector.
    """

    symmetric = True
    packages = ("wordllama", "tokenizers")
    _dimension = 256

    def __post_init__(self) -> None:
        self._counter = UsageCounter(price_per_million_tokens=0.0)

    @property
    def name(self) -> str:
        """The model, with the version of the package that brings its weights."""
        return f"wordllama-l2-supercat-256@{_package_version()}"

    @property
    def dimension(self) -> int:
        """Number of components of a vector (256)."""
        return 256

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts, of length 1, in their order."""
        check_texts(texts)
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for begin in range(0, len(texts), BATCH):
            batch = texts[begin : begin + BATCH]
            vectors[begin : begin + len(batch)], tokens = _mean_vectors(batch)
            self._counter.add(texts=len(batch), tokens=tokens)
        return vectors


def _mean_vectors(texts: Sequence[str]) -> tuple[Vectors, int]:
    """The vectors, and how many tokens they are made of."""
    tokenizer, weights = _model()
    vectors = np.zeros((len(texts), weights.shape[1]), np.float32)
    tokens = 0
    for row, encoding in enumerate(tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)):
        if encoding.ids:
            mean = weights[encoding.ids].mean(axis=0)
            vectors[row] = mean / (np.linalg.norm(mean) or 1.0)
            tokens += len(encoding.ids)
    return vectors, tokens


@cache
def _package_version() -> str:
    try:
        return version("wordllama")
    except PackageNotFoundError:
        raise ConfigurationError("the local embedder needs the package wordllama: install it") from None


@cache
def _model() -> "tuple[Tokenizer, Vectors]":
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise ConfigurationError("the local embedder needs the package wordllama: install it")
    folder = Path(spec.origin).parent
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    weights = load_file(folder / "weights" / "l2_supercat_256.safetensors")["embedding.weight"]
    return tokenizer, np.ascontiguousarray(weights, np.float32)
