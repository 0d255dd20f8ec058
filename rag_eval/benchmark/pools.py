"""The texts of a grid's chunkings, what embedding them costs, which hold what is relevant, and which are ranked high.

Cutting and counting ask nobody. A text that several chunkings have, or that the workspace has embedded before, is read
once, as the embedding cache has it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_eval.benchmark.config import Configuration
from rag_eval.benchmark.engine import Run, cut
from rag_eval.benchmark.outcome import ConfigurationOutcome
from rag_eval.benchmark.references import BenchmarkInputs, Effort, TableRef
from rag_eval.benchmark.stage import Context, Shards, stage
from rag_eval.benchmark.sweep import Chunking, CostLimit, Numbers
from rag_eval.benchmark.workspace import Workspace
from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.embedder import Usage
from rag_eval.errors import ConfigurationError, RagEvalError, as_sentence
from rag_eval.metrics.intervals import overlapping_pairs
from rag_eval.metrics.metric import DEFAULT_ENCODING, split_name
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
    return made, Effort.of(total, "texts")


def total_usage(parts: Iterable[Usage]) -> Usage:
    """The sum; its cost is unknown where that of a part is."""
    listed = list(parts)
    costs = [one.cost for one in listed if one.cost is not None]
    tokens = sum(one.tokens or 0 for one in listed)
    return Usage(0, sum(one.texts for one in listed), tokens, sum(costs) if len(costs) == len(listed) else None)


class TextCosts:
    """What embedding costs for configurations of one benchmark, in one workspace.

    ``run`` gives what a stage makes, as for ``evaluate``. ``notes`` name what is not in the figures: what asks a
    service, and why chunks could not be made.
    """

    def __init__(self, run: Callable[..., Any], workspace: Workspace, documents: Sequence[Any]) -> None:
        self._run, self._workspace, self._documents = run, workspace, list(documents)
        self._texts: dict[tuple[str, str], dict[str, int]] = {}
        self._kept: dict[str, set[str]] = {}
        self.notes: dict[str, None] = {}
        self._broken: set[str] = set()

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
        key = self._chunking(configuration), digest(free.embedder)
        if key not in self._texts:
            try:
                counted = self._run(count_texts, cut(self._run, free, self._documents), free.embedder)
            except RagEvalError as error:
                self._broken.add(key[0])
                self.notes[as_sentence(error)] = None
                return {}
            table = self._workspace.read_tables(counted)
            columns = (table.column(name).to_pylist() for name in ("text_sha256", "tokens"))
            self._texts[key] = dict(zip(*columns, strict=True))
        return self._texts[key]

    @staticmethod
    def _chunking(one: Configuration) -> str:
        return digest(one.chunker) + digest(None if is_remote(one.context) else one.context)

    def is_broken(self, one: Configuration) -> bool:
        """Whether the chunks of a configuration could not be made, as far as its texts were asked for."""
        return self._chunking(one) in self._broken

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


def allows(limit: CostLimit, cost: Usage) -> bool:
    """Whether so much may be spent; raises ``ConfigurationError`` where the price is not known."""
    if limit.unit == "tokens":
        return (cost.tokens or 0) <= limit.amount
    if cost.cost is None:
        raise ConfigurationError(
            "max_cost is in USD and the price of an embedder is not known: give price_per_million_tokens, or tokens"
        )
    return cost.cost <= limit.amount


MOST_NEAR = 2
"""Of so many chunkings that were evaluated whole it is looked where their hits are."""

CHARACTERS = 4
"""About so many characters are a token, to tell which hits are within a budget."""

Key = tuple[str, str, str]
"""The digests of chunker, context and embedder: what decides which texts are embedded."""


def key(one: Configuration) -> Key:
    """What decides which texts of a configuration are embedded, and by what."""
    return digest(one.chunker), digest(one.context), digest(one.embedder)


class Pools:
    """The chunkings of rivals: their texts, which of their chunks hold what is relevant, and which are ranked high."""

    def __init__(
        self,
        run: Run,
        workspace: Workspace,
        inputs: BenchmarkInputs,
        costs: TextCosts,
        rivals: Sequence[Configuration],
        objective: str,
        seen: NDArray[np.bool_],
    ) -> None:
        self._workspace, self._rivals, self._cut = workspace, rivals, split_name(objective)[1]
        self.numbers: dict[Key, int] = {}
        self.chunkings: list[Chunking] = []
        self._places: list[ChunkPlaces] = []
        self._near: dict[str, list[tuple[pa.Table, Numbers]]] = {}
        queries = workspace.read_table(inputs.truth.queries)
        asked = queries.filter(pc.invert(queries.column("unanswerable"))).column("query_id")
        self._questions = asked.combine_chunks().filter(pa.array(seen))
        answers = workspace.read_table(inputs.truth.answers)
        texts: dict[tuple[str, str], int] = {}
        tokens, prices = [], []
        for one in (*rivals, *self.references(rivals)):
            if key(one) in self.numbers:
                continue
            self.numbers[key(one)] = len(self.numbers)
            places = ChunkPlaces(workspace.read_tables(cut(run, one, inputs.documents)))
            read, embedder, price = costs.texts(one), digest(one.embedder), price_of(one.embedder)
            for text in dict.fromkeys(places.texts):
                if (embedder, text) not in texts:
                    texts[embedder, text] = len(texts)
                    tokens.append(read[text])
                    prices.append(np.nan if price is None else price / 1_000_000)
            bearing = places.by_question(*places.overlapping(answers), answers, self._questions)
            self.chunkings.append(Chunking(np.array([texts[embedder, one] for one in places.texts]), bearing))
            self._places.append(places)
        self.tokens = np.array(tokens)
        self.costs = self.tokens * np.array(prices)
        if np.isnan(self.costs).any():
            self.costs = np.full(len(tokens), np.inf)

    def references(self, rivals: Sequence[Configuration]) -> list[Configuration]:
        """The chunkings over which hybrids take mean and deviation: they are embedded whole."""
        frozen = [(one, getattr(getattr(one.retrieval, "fusion", None), "reference", None)) for one in rivals]
        return [one.model_copy(update={"chunker": part, "context": None}) for one, part in frozen if part is not None]

    def spent(self, embedded: Any) -> Usage:
        """What the texts that are embedded take."""
        cost = float(self.costs[embedded].sum())
        return Usage(0, int(embedded.sum()), int(self.tokens[embedded].sum()), cost if np.isfinite(cost) else None)

    def look_near(self, members: Sequence[int], done: Sequence[ConfigurationOutcome]) -> None:
        """Take note of where configurations that were evaluated whole found their hits."""
        outcomes = {one.name: one for one in done}
        for number in members:
            one = self._rivals[number]
            kind, outcome = label(one.retrieval), outcomes.get(one.name)
            if outcome is None or len(self._near.setdefault(kind, [])) >= MOST_NEAR:
                continue
            hits = self._workspace.read_table(outcome.hits)
            size, lengths = self._cut.size, pc.subtract(hits.column("end"), hits.column("start"))
            ranks = hits.column("rank").to_numpy()
            if self._cut.kind == "tokens":
                mean = float(pc.mean(lengths).as_py() or 1.0)
                size = max(1, round(CHARACTERS * size / mean))
            first = hits.filter(pa.array(ranks <= size))
            question = pc.index_in(first.column("query_id"), value_set=self._questions).to_numpy(zero_copy_only=False)
            self._near[kind].append((first, np.nan_to_num(question, nan=-1).astype(np.int64)))

    def near(self, rival: int, question: int) -> Numbers:
        """The chunks of a rival at the places where others of its kind found their hits for a question."""
        one = self._rivals[rival]
        places, found = self._places[self.numbers[key(one)]], [np.empty(0, np.int64)]
        for hits, questions in self._near.get(label(one.retrieval), ()):
            found.append(places.overlapping(hits.filter(pa.array(questions == question)))[1])
        return np.concatenate(found)


class ChunkPlaces:
    """The chunks of a chunking on one line of characters, in the order of their places."""

    def __init__(self, chunks: pa.Table) -> None:
        self.texts = [text_sha256(text) for text in searched_texts(chunks).to_pylist()]
        doc_ids = pc.unique(chunks.column("doc_id")).to_pylist()
        self._documents = {doc_id: number for number, doc_id in enumerate(doc_ids)}
        starts, ends = self._places(chunks)
        self._order = np.lexsort((ends, starts))
        self._starts, self._ends = starts[self._order], ends[self._order]

    def _places(self, table: pa.Table) -> tuple[Numbers, Numbers]:
        base = np.array([self._documents.get(one, -1) << 40 for one in table.column("doc_id").to_pylist()], np.int64)
        return base + table.column("start").to_numpy(), base + table.column("end").to_numpy()

    def overlapping(self, places: pa.Table) -> tuple[Numbers, Numbers]:
        """The pairs (row, chunk) of places that share a character with a chunk."""
        rows, chunks = overlapping_pairs(self._starts, self._ends, *self._places(places))
        return rows, self._order[chunks]

    @staticmethod
    def by_question(rows: Numbers, chunks: Numbers, answers: pa.Table, questions: pa.Array) -> list[Numbers]:
        """The chunks that hold something of the answers, by question."""
        asked = pc.index_in(answers.column("query_id"), value_set=questions).to_numpy(zero_copy_only=False)[rows]
        order = np.argsort(asked, kind="stable")
        order = order[: len(order) - int(np.isnan(asked).sum())]  # those of other questions are last
        parts = np.split(chunks[order], np.searchsorted(asked[order], np.arange(1, len(questions))))
        return [np.unique(one) for one in parts]
