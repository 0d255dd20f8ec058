"""What a benchmark costs before anything is spent: the texts that its embedders would read, their tokens and price.

Cutting and counting ask nobody. A text that several chunkings have, or that the workspace has embedded before, is read
once, as the embedding cache has it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from rag_eval.benchmark.config import Configuration
from rag_eval.benchmark.engine import cut
from rag_eval.benchmark.references import Effort, TableRef
from rag_eval.benchmark.stage import Context, Shards, stage
from rag_eval.benchmark.workspace import Workspace
from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.embedder import Usage
from rag_eval.errors import RagEvalError, as_sentence
from rag_eval.metrics.metric import DEFAULT_ENCODING
from rag_eval.parts import digest, fresh, is_remote, label
from rag_eval.tables import schema_of, searched_texts
from rag_eval.tokens import count_tokens
from rag_eval.types.ids import text_sha256

TEXTS = schema_of(text_sha256=pa.string(), tokens=pa.int64())


@stage("texts", version=1, makes=list[TableRef], packages=("tiktoken",), by_shard=True)
def count_texts(chunks: Shards, embedder: Any, *, context: Context) -> tuple[list[pa.Table], Effort]:
    """The texts that an embedder would be given of each shard, each once, and how many tokens it would read."""
    made, count = [], getattr(fresh(embedder), "count_tokens", None)
    for shard in chunks:
        texts = {text_sha256(text): text for text in searched_texts(shard).to_pylist()}
        read = list(texts.values())
        tokens = count(read) if count is not None and read else None
        tokens = [count_tokens(text, DEFAULT_ENCODING) for text in read] if tokens is None else tokens
        made.append(pa.table([pa.array(list(texts), pa.string()), pa.array(tokens, pa.int64())], schema=TEXTS))
    total = sum(one.num_rows for one in made)
    return made, Effort(fresh=total, total=total, unit="texts")


def total_usage(parts: Iterable[Usage]) -> Usage:
    """The sum; its cost is unknown where that of a part is."""
    listed = list(parts)
    costs = [one.cost for one in listed if one.cost is not None]
    tokens = sum(one.tokens or 0 for one in listed)
    return Usage(0, sum(one.texts for one in listed), tokens, sum(costs) if len(costs) == len(listed) else None)


class TextCosts:
    """What embedding costs for configurations of one benchmark, in one workspace.

    ``run`` gives what a stage makes, as for ``evaluate``. ``notes`` name what is not in the figures: what asks a
    service, and chunkers that failed, which are ``broken`` by their digests.
    """

    def __init__(self, run: Callable[..., Any], workspace: Workspace, documents: Sequence[Any]) -> None:
        self._run, self._workspace, self._documents = run, workspace, list(documents)
        self._texts: dict[tuple[str, str], dict[str, int]] = {}
        self._kept: dict[str, set[str]] = {}
        self.notes: dict[str, None] = {}
        self.broken: set[str] = set()

    def of(self, configurations: Iterable[Configuration], *, kept: bool = False) -> Usage:
        """What embedding the chunks of all of these costs; with ``kept``, as if the workspace had no vector yet."""
        read: dict[str, tuple[Any, dict[str, int]]] = {}
        for one in configurations:
            self._note(one)
            if one.embedder is not None:
                read.setdefault(digest(one.embedder), (one.embedder, {}))[1].update(self.texts(one))
        return total_usage(self._cost(*each, kept=kept) for each in read.values())

    def texts(self, configuration: Configuration) -> dict[str, int]:
        """The texts that the embedder of a configuration is given, by digest, each with its tokens."""
        # What a service cuts or writes is not known before it is asked: then what is around a chunk is not counted.
        around = None if is_remote(configuration.context) else configuration.context
        free = configuration.model_copy(update={"context": around})
        if is_remote(free.chunker):
            return {}
        key = digest(free.chunker) + digest(around), digest(free.embedder)
        if key not in self._texts:
            try:
                counted = self._run(count_texts, cut(self._run, free, self._documents), free.embedder)
            except RagEvalError as error:
                self.broken.add(digest(free.chunker))
                self.notes[as_sentence(error)] = None
                return {}
            table = self._workspace.read_tables(counted)
            columns = (table.column(name).to_pylist() for name in ("text_sha256", "tokens"))
            self._texts[key] = dict(zip(*columns, strict=True))
        return self._texts[key]

    def _cost(self, embedder: Any, texts: dict[str, int], *, kept: bool) -> Usage:
        if not kept:
            with Context(self._workspace).embedder(embedder) as cached:
                if isinstance(cached, CachedEmbedder):
                    texts = cached.lacking(texts)
        tokens, price = sum(texts.values()), price_of(embedder)
        return Usage(0, len(texts), tokens, None if price is None else tokens * price / 1_000_000)

    def _note(self, one: Configuration) -> None:
        asked = [one.chunker, one.context, one.queries, one.reranker, one.system]
        for part in (part for part in asked if part is not None and is_remote(part)):
            self.notes[f"{label(part)} asks a service too: what that costs is not in these figures"] = None


def price_of(embedder: object) -> float | None:
    """US dollars for a million tokens; 0 for what runs here, None where it is not known."""
    price: float | None = getattr(embedder, "price", None if is_remote(embedder) else 0.0)
    return price
