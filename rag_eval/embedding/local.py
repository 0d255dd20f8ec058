"""The default embedder: static word vectors that come with an installed package, no network and no key.

A text's vector is the mean of its tokens' vectors, scaled to length 1. The weights (256 dimensions) and the
tokenizer are files inside the ``wordllama`` package; they are read directly, because importing that package
configures the root logger and may look for a model hub.
"""

import importlib.util
from collections.abc import Sequence
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rag_eval.embedding.embedder import BuiltInEmbedder, Vectors, check_texts
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
    dimension = known_dimension = 256

    @cached_property
    def name(self) -> str:
        """The model, with the version of the package that brings its weights."""
        try:
            return f"wordllama-l2-supercat-256@{version('wordllama')}"
        except PackageNotFoundError:
            raise ConfigurationError("the local embedder needs the package wordllama: install it") from None

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts, of length 1, in their order."""
        check_texts(texts)
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for begin in range(0, len(texts), BATCH):
            tokenizer, weights = _model()
            batch, tokens = list(texts[begin : begin + BATCH]), 0
            for row, encoding in enumerate(tokenizer.encode_batch_fast(batch, add_special_tokens=False), begin):
                if encoding.ids:
                    mean = weights[encoding.ids].mean(axis=0)
                    vectors[row] = mean / (np.linalg.norm(mean) or 1.0)
                    tokens += len(encoding.ids)
            self._count(texts=len(batch), tokens=tokens)
        return vectors

    def count_tokens(self, texts: Sequence[str]) -> int:
        """How many tokens it reads of the texts."""
        tokenizer = _model()[0]
        encoded = (
            tokenizer.encode_batch_fast(list(texts[begin : begin + BATCH]), add_special_tokens=False)
            for begin in range(0, len(texts), BATCH)
        )
        return sum(len(one.ids) for batch in encoded for one in batch)


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
