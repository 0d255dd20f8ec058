"""The guided sweep: choose the configurations of a large grid that are worth embedding, before any is embedded.

Chunking the documents and counting their tokens is free. Each configuration that needs embeddings has a stand-in that
does not: with the local embedder, or with BM25 if the local embedder is itself compared. The chunkings with the best
stand-ins are evaluated; the others are estimated by their stand-ins.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from rag_eval.config.models import BenchmarkConfig, Configuration
from rag_eval.config.sweep_settings import CostLimit, SearchRecord, total_usage
from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.embedder import Usage
from rag_eval.errors import ConfigurationError
from rag_eval.parts import digest, is_remote, label
from rag_eval.retrieval.searching import HybridSearch, WordSearch
from rag_eval.stores import STORE

Key = tuple[str, str]

GUIDED = 3
"""Number of chunkings that a guided sweep embeds."""

MORE = 2
"""Factor for the number of chunkings if the quality of the guide is unknown."""

COST_WEIGHT = 0.3
"""How much better, by the objective, a chunking with all tokens of the grid must be than one with none: of nearly equal
chunkings, the cheaper comes first."""


def chunking_key(configuration: Configuration) -> Key:
    """Return the digests of chunker and context, which identify a chunking."""
    return digest(configuration.chunker), digest(configuration.context)


def free_chunking(configuration: Configuration) -> Configuration:
    """Return the configuration without a context that a service writes, because its text is unknown before the call."""
    return configuration.model_copy(update={"context": None}) if is_remote(configuration.context) else configuration


@dataclass
class TextCosts:
    """The texts that each embedder would embed of each chunking, with their tokens.

    ``texts`` are by the digests of chunker and context, and of the embedder. ``failed`` has the error of each chunking
    that could not be computed.
    """

    texts: Mapping[tuple[Key, str], Mapping[str, int]]
    failed: Mapping[Key, str] = field(default_factory=dict)

    @staticmethod
    def read(table: pa.Table) -> dict[str, int]:
        """Return the texts of a table by their digests, with their tokens."""
        columns = (table.column(name).to_pylist() for name in ("text_sha256", "tokens"))
        return dict(zip(*columns, strict=True))

    def of(self, configurations: Iterable[Configuration], left: "Callable[[Any, Any], Any] | None" = None) -> Usage:
        """Return the cost of embedding the chunks of these configurations.

        ``left`` returns the texts of an embedder that are not embedded yet; by default all count.
        """
        read: dict[str, tuple[Any, dict[str, int]]] = {}
        for configuration in configurations:
            if configuration.embedder is not None:
                own = self.texts.get((chunking_key(free_chunking(configuration)), digest(configuration.embedder)), {})
                read.setdefault(digest(configuration.embedder), (configuration.embedder, {}))[1].update(own)
        return total_usage(_cost(part, texts if left is None else left(part, texts)) for part, texts in read.values())

    def is_failed(self, configuration: Configuration) -> bool:
        """Return whether the chunks of a configuration could not be computed."""
        return chunking_key(free_chunking(configuration)) in self.failed


def _cost(embedder: Any, texts: Mapping[str, int]) -> Usage:
    tokens = sum(texts.values())
    price: float | None = getattr(embedder, "price", None if is_remote(embedder) else 0.0)
    return Usage(0, len(texts), tokens, None if price is None else tokens * price / 1_000_000)


def cost_notes(configurations: Iterable[Configuration]) -> list[str]:
    """Name the parts that call a service and are not included in ``TextCosts``."""
    parts: list[Any] = []
    for some in configurations:
        parts += [some.chunker, some.context, some.queries, some.reranker, some.system]
    remote = dict.fromkeys(label(part) for part in parts if part is not None and is_remote(part))
    return [f"{name} calls a service too: its cost is not included" for name in remote]


def over_limit(left: Usage, config: BenchmarkConfig) -> str | None:
    """Describe how a full search exceeds ``max_cost``; return None if it does not."""
    if config.max_cost is None or CostLimit.parse(config.max_cost).allows(left):
        return None
    return f"max_cost is {config.max_cost}, and the full grid has {left.tokens:,} tokens left to embed"


def is_local_guide(config: BenchmarkConfig) -> bool:
    """Return whether the local embedder is the guide, which it is not if it is itself compared."""
    return digest(EMBEDDER.make("local")) not in map(digest, config.embedders)


def stand_in(configuration: Configuration, *, by_local: bool) -> Configuration:
    """Return the stand-in, which calls no service, of a configuration that needs embeddings."""
    if is_remote(configuration.chunker) or is_remote(configuration.retrieval):
        raise ConfigurationError(
            f"a guided search tries all chunkings first, and {configuration.name} calls a service for its chunks: "
            f"use search: full"
        )
    free: dict[str, Any] = {"queries": None, "reranker": None}
    free |= {"context": None} if is_remote(configuration.context) else {}
    if by_local:
        free |= {"embedder": EMBEDDER.make("local"), "store": STORE.make("memory")}
    else:
        words = next((part for part in configuration.searches if isinstance(part, WordSearch)), WordSearch())
        free |= {"embedder": None, "store": None, "retrieval": words}
    return configuration.model_copy(update=free)


class Choice(NamedTuple):
    """The configurations to evaluate, and how they were chosen; None if all are evaluated."""

    configurations: list[Configuration]
    record: SearchRecord | None = None


def choose(
    config: BenchmarkConfig,
    configurations: Sequence[Configuration],
    expected: Mapping[str, float],
    costs: TextCosts,
) -> Choice:
    """Choose the chunkings that the guide ranks first, within the limit; others without embeddings are always chosen.

    Args:
        config: The benchmark.
        configurations: All of its configurations.
        expected: The objective of the stand-in of each configuration that needs embeddings, by name; without those
            whose stand-in failed.
        costs: What embedding costs.

    Raises:
        ConfigurationError: Nothing can guide this benchmark, or not even one chunking is within the limit.
    """
    embedded, notes = [configuration for configuration in configurations if configuration.name in expected], list[str]()
    count = _chunkings_to_embed(embedded, notes, by_local=is_local_guide(config))
    chosen = _within_limit(config.max_cost, embedded, _ranked(embedded, expected, costs)[:count], costs, notes)
    estimated = {
        configuration.name: expected[configuration.name] for configuration in embedded if configuration not in chosen
    }
    grid, spent = costs.of(configurations), costs.of(chosen)
    record = SearchRecord(
        objective=config.objective,
        configurations=len(configurations),
        estimated=estimated,
        tokens=spent.tokens or 0,
        full_tokens=grid.tokens or 0,
        cost=spent.cost,
        full_cost=grid.cost,
        notes=[*notes, *costs.failed.values(), *cost_notes(configurations)],
    )
    return Choice([configuration for configuration in configurations if configuration.name not in estimated], record)


def _within_limit(
    max_cost: str | None,
    embedded: Sequence[Configuration],
    ranked: Sequence[Key],
    costs: TextCosts,
    notes: list[str],
) -> list[Configuration]:
    """Return the configurations of the first chunkings that together are within the limit, and note where it ends.

    Raises ``ConfigurationError`` if not even the first chunking is.
    """
    limit = None if max_cost is None else CostLimit.parse(max_cost)
    chosen: list[Configuration] = []
    for number, key in enumerate(ranked):
        more = [*chosen, *(configuration for configuration in embedded if chunking_key(configuration) == key)]
        if limit is not None and not limit.allows(costs.of(more)):
            if not chosen:
                raise ConfigurationError(
                    f"max_cost is {max_cost} and the first chunking alone takes {costs.of(more).tokens:,} tokens: "
                    "allow more"
                )
            notes.append(f"max_cost left {number} of {len(ranked)} chunkings")
            break
        chosen = more
    return chosen


def _chunkings_to_embed(embedded: Sequence[Configuration], notes: list[str], *, by_local: bool) -> int:
    if not embedded or any(isinstance(configuration.retrieval, HybridSearch) for configuration in embedded):
        return GUIDED
    if not by_local:
        raise ConfigurationError(
            "search: guided has no guide here: BM25 does not predict vector search, and the local embedder is "
            "itself compared; use search: full, or add retrieval: hybrid"
        )
    notes.append("the guide is less reliable for vector search alone, so twice as many chunkings are embedded")
    return GUIDED * MORE


def _ranked(embedded: Sequence[Configuration], expected: Mapping[str, float], costs: TextCosts) -> list[Key]:
    """Return the chunkings, best expected configuration first, less a penalty for their cost."""
    members: dict[Key, list[Configuration]] = {}
    for configuration in embedded:
        members.setdefault(chunking_key(configuration), []).append(configuration)
    full = costs.of(embedded).tokens or 1
    standing = {
        key: max(expected[configuration.name] for configuration in some)
        - COST_WEIGHT * (costs.of(some).tokens or 0) / full
        for key, some in members.items()
    }
    return sorted(standing, key=lambda key: -standing[key])
