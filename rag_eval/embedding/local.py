"""Embed with static word vectors from an installed package: the default, without a network or a key.

A text's vector is the mean of its tokens' vectors, scaled to length 1. The weights (256 dimensions) and the tokenizer
are files of the package ``wordllama``. It is not imported, because importing it configures the root logger and may call
a model hub.
"""

import importlib.util
import re
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rag_eval.embedding.embedder import BatchEmbedder, EmbeddedBatch, Vectors
from rag_eval.errors import ConfigurationError
from rag_eval.parts import part

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BATCH = 256
MOST_WORDS, LONGEST_WORD = 2**18, 64
"""How many words are cached with their tokens before the cache is cleared, and the longest word to cache."""

# No token of the vocabulary spans a space, which the model writes as ▁, or a line end: the text between them is split
# into tokens independently.
_WORD = re.compile(r"\n|▁*[^▁\n]+|▁+")


@part
class LocalEmbedder(BatchEmbedder):
    """Mean of static token vectors, 256 dimensions; the same text always gives the same vector, bit for bit.

    A text without tokens (the empty one) has the zero vector.
    """

    symmetric = True
    packages = ("wordllama", "tokenizers")
    dimension = known_dimension = 256

    @cached_property
    def name(self) -> str:
        """The model, with the version of the package that contains its weights."""
        try:
            return f"wordllama-l2-supercat-256@{version('wordllama')}"
        except PackageNotFoundError:
            raise ConfigurationError("the local embedder needs the package wordllama: install it") from None

    def embed_as_ready(self, texts: Sequence[str]) -> Iterator[EmbeddedBatch]:
        from scipy.sparse import csr_array

        weights = _model().weights
        for begin in range(0, len(texts), BATCH):
            ids = [token_ids(text) for text in texts[begin : begin + BATCH]]
            vectors = np.zeros((len(ids), self.dimension), np.float32)
            lengths = np.array([len(tokens) for tokens in ids])
            flat = np.fromiter(chain.from_iterable(ids), np.int32, int(lengths.sum()))
            # Add rows one by one in the order of the tokens: the sum is the same, bit for bit, as for each text alone.
            counted = csr_array(
                (np.ones(len(flat), np.float32), flat, np.append(0, np.cumsum(lengths))), (len(ids), len(weights))
            )
            sums = counted @ weights
            for row in np.flatnonzero(lengths):
                mean = sums[row] / np.float32(lengths[row])
                vectors[row] = mean / (np.linalg.norm(mean) or 1.0)
            self._count(texts=len(ids), tokens=int(lengths.sum()))
            yield EmbeddedBatch(range(begin, begin + len(ids)), vectors, lengths)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        return [len(token_ids(text)) for text in texts]


def token_ids(text: str) -> list[int]:
    """Return the tokens of a text, each a row of the weights."""
    model = _model()
    if not text or model.marks.search(text):
        return model.tokenizer.encode(text, add_special_tokens=False).ids
    words = model.words
    ids: list[int] = []
    for word in _WORD.findall("▁" + text.replace(" ", "▁")):
        known = words.get(word)
        if known is None:
            known = [token.id for token in model.tokenizer.model.tokenize(word)]
            if len(words) >= MOST_WORDS:
                words.clear()
            if len(word) <= LONGEST_WORD:
                words[word] = known
        ids += known
    return ids


def token_vectors(ids: Sequence[int]) -> Vectors:
    """Return the vectors of tokens, unscaled: informative tokens have longer vectors."""
    return _model().weights[np.asarray(ids, np.int64)]


class _Model(NamedTuple):
    tokenizer: "Tokenizer"
    weights: Vectors
    """The vector of each token."""
    marks: re.Pattern[str]
    """The tokenizer's special tokens, such as ``<s>``."""
    words: dict[str, list[int]]


@cache
def _model() -> _Model:
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
    marks = [re.escape(token.content) for token in tokenizer.get_added_tokens_decoder().values()]
    return _Model(tokenizer, np.ascontiguousarray(weights, np.float32), re.compile("|".join(marks)), {})
