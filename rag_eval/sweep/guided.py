"""The guided sweep: from the configurations of a large grid to those worth embedding, before anything is embedded.

Cutting the documents and counting their tokens costs nothing. Each configuration that would be embedded has a stand-in
that need not be: the local embedder in the place of its own, or BM25 where the local embedder is itself compared. The
chunkings whose stand-ins do best are evaluated; the others are estimated by their stand-ins.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.config.models import BenchmarkConfig, Configuration
from rag_eval.config.sweep_settings import CostLimit, Holdout, SearchRecord, total_usage
from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.embedder import Usage
from rag_eval.errors import ConfigurationError
from rag_eval.formatting import counted
from rag_eval.metrics.metric import Values, split_name
from rag_eval.parts import digest, is_remote, label
from rag_eval.results.run_scores import main_documents
from rag_eval.retrieval.searching import HybridSearch, WordSearch
from rag_eval.stores import STORE
from rag_eval.tables import TruthTables, has_places
from rag_eval.types.ids import text_sha256

Key = tuple[str, str]

GUIDED = 3
"""How many chunkings a guided sweep embeds."""

MORE = 2
"""A guide that is not known to serve takes so many times as many chunkings."""

COST_WEIGHT = 0.3
"""How much better, by the objective, a chunking has to be that takes all the tokens of the grid: of those that the
guide finds nearly alike, the cheaper is first."""

FEWEST_HELD_OUT = (5, 20)
"""With fewer documents, or questions about them, nothing is judged by what was held out."""


def chunking_key(one: Configuration) -> Key:
    """Return what tells the chunking of a configuration from others."""
    return digest(one.chunker), digest(one.context)


def free_chunking(one: Configuration) -> Configuration:
    """Return the configuration without a context that a service writes, which is not known before it is asked."""
    return one.model_copy(update={"context": None}) if is_remote(one.context) else one


@dataclass
class TextCosts:
    """What embedding costs: the texts of each chunking that an embedder would read, with their tokens.

    ``texts`` are by the digests of chunker and context, and of the embedder. ``failed`` are the chunkings that could
    not be cut. ``notes`` name what is not in the figures.
    """

    texts: Mapping[tuple[Key, str], Mapping[str, int]]
    failed: Mapping[Key, str] = field(default_factory=dict)

    @staticmethod
    def read(table: pa.Table) -> dict[str, int]:
        """Return the texts of a table by their digests, with their tokens."""
        columns = (table.column(name).to_pylist() for name in ("text_sha256", "tokens"))
        return dict(zip(*columns, strict=True))

    def of(self, configurations: Iterable[Configuration], left: "Callable[[Any, Any], Any] | None" = None) -> Usage:
        """Return what embedding the chunks of all of these costs.

        ``left`` gives of an embedder's texts those that are not embedded yet; by default all count.
        """
        read: dict[str, tuple[Any, dict[str, int]]] = {}
        for one in configurations:
            if one.embedder is not None:
                own = self.texts.get((chunking_key(free_chunking(one)), digest(one.embedder)), {})
                read.setdefault(digest(one.embedder), (one.embedder, {}))[1].update(own)
        return total_usage(_cost(part, texts if left is None else left(part, texts)) for part, texts in read.values())

    def is_failed(self, one: Configuration) -> bool:
        """Tell whether the chunks of a configuration could not be made."""
        return chunking_key(free_chunking(one)) in self.failed


def _cost(embedder: Any, texts: Mapping[str, int]) -> Usage:
    tokens = sum(texts.values())
    price: float | None = getattr(embedder, "price", None if is_remote(embedder) else 0.0)
    return Usage(0, len(texts), tokens, None if price is None else tokens * price / 1_000_000)


def cost_notes(configurations: Iterable[Configuration]) -> list[str]:
    """Name the parts that ask a service and are not in the figures of ``TextCosts``."""
    asked = ((one.chunker, one.context, one.queries, one.reranker, one.system) for one in configurations)
    remote = dict.fromkeys(label(part) for some in asked for part in some if part is not None and is_remote(part))
    return [f"{name} asks a service too: what that costs is not in these figures" for name in remote]


def over_limit(left: Usage, config: BenchmarkConfig) -> str | None:
    """Say that a full sweep with so much left passes ``max_cost`` and what was allowed; None where it does not."""
    limits = [CostLimit.parse(one) for one in (config.max_cost, config.allowed_cost) if one is not None]
    if not limits or any(one.allows(left) for one in limits):
        return None
    return f"max_cost is {config.max_cost}, and the full grid has {left.tokens:,} tokens left to embed"


def is_local_guide(config: BenchmarkConfig) -> bool:
    """Tell whether the local embedder guides: where it is itself compared, it does not."""
    return digest(EMBEDDER.make("local")) not in map(digest, config.embedders)


def stand_in(one: Configuration, *, by_local: bool) -> Configuration:
    """Return what is measured in the place of a configuration that would have to be embedded; it asks no service."""
    if is_remote(one.chunker) or is_remote(one.retrieval):
        raise ConfigurationError(
            f"a guided search tries all chunkings first, and {one.name} asks a service for its chunks: use search: full"
        )
    free: dict[str, Any] = {"queries": None, "reranker": None}
    free |= {"context": None} if is_remote(one.context) else {}
    if by_local:
        free |= {"embedder": EMBEDDER.make("local"), "store": STORE.make("memory")}
    else:
        words = next((part for part in one.searches if isinstance(part, WordSearch)), WordSearch())
        free |= {"embedder": None, "store": None, "retrieval": words}
    return one.model_copy(update=free)


def full_record(config: BenchmarkConfig, count: int) -> SearchRecord:
    """Return the record of a full sweep of so many configurations."""
    return SearchRecord(
        strategy="full",
        objective=config.objective,
        configurations=count,
        estimated={},
        tokens=0,
        full_tokens=0,
        cost=None,
        full_cost=None,
        notes=[],
    )


@dataclass(frozen=True)
class Choice:
    """The configurations to evaluate, how they were chosen, and the questions that are held out to judge the choice."""

    configurations: list[Configuration]
    record: SearchRecord
    held_out: "HeldOut"

    def judged(self, scores: Mapping[str, pa.Table]) -> SearchRecord | None:
        """Return what a run records of the sweep, given the scores of the configurations; None where it records none.

        A full sweep is recorded only where questions were held out.
        """
        holdout = self.held_out.judge(scores, self.record.objective)
        if holdout is None and self.record.strategy == "full":
            return None
        return self.record.model_copy(update={"holdout": holdout})


def choose(
    config: BenchmarkConfig,
    configurations: Sequence[Configuration],
    expected: Mapping[str, float],
    costs: TextCosts,
    held_out: "HeldOut",
) -> Choice:
    """Choose the chunkings that the guide ranks first, within the limit; what is not embedded is always evaluated.

    Args:
        config: The benchmark.
        configurations: All of its configurations.
        expected: What the stand-in of each configuration that would be embedded finds, by name; not of those whose
            stand-in failed.
        costs: What embedding costs.
        held_out: The questions that the guide did not see.

    Raises:
        ConfigurationError: Nothing can guide this benchmark, or not even one chunking is within the limit.
    """
    embedded, notes = [one for one in configurations if one.name in expected], list[str]()
    count = _chunkings_to_embed(embedded, notes, by_local=is_local_guide(config))
    chosen = _within_limit(config.max_cost, embedded, _ranked(embedded, expected, costs)[:count], costs, notes)
    estimated = {one.name: expected[one.name] for one in embedded if one not in chosen}
    grid, spent = costs.of(configurations), costs.of(chosen)
    record = SearchRecord(
        strategy=config.search,
        objective=config.objective,
        configurations=len(configurations),
        estimated=estimated,
        tokens=spent.tokens or 0,
        full_tokens=grid.tokens or 0,
        cost=spent.cost,
        full_cost=grid.cost,
        notes=[*notes, *costs.failed.values(), *cost_notes(configurations)],
    )
    return Choice([one for one in configurations if one.name not in estimated], record, held_out)


def _within_limit(
    max_cost: str | None,
    embedded: Sequence[Configuration],
    ranked: Sequence[Key],
    costs: TextCosts,
    notes: list[str],
) -> list[Configuration]:
    """Return the configurations of the first chunkings whose embedding is within the limit; note where it ends.

    Raises ``ConfigurationError`` if not even the first chunking is.
    """
    limit = None if max_cost is None else CostLimit.parse(max_cost)
    chosen: list[Configuration] = []
    for number, key in enumerate(ranked):
        more = [*chosen, *(one for one in embedded if chunking_key(one) == key)]
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
    if not embedded or any(isinstance(one.retrieval, HybridSearch) for one in embedded):
        return GUIDED
    if not by_local:
        raise ConfigurationError(
            "search: guided has no guide here: words do not tell how searches by vectors alone rank, and the local "
            "embedder is itself compared; use search: full, or add retrieval: hybrid"
        )
    notes.append("the guide is not known to serve searches by vectors alone: it takes twice as many chunkings")
    return GUIDED * MORE


def _ranked(embedded: Sequence[Configuration], expected: Mapping[str, float], costs: TextCosts) -> list[Key]:
    """Return the chunkings by the best that any configuration with them is expected to find, and by what they cost."""
    members: dict[Key, list[Configuration]] = {}
    for one in embedded:
        members.setdefault(chunking_key(one), []).append(one)
    full = costs.of(embedded).tokens or 1
    standing = {
        key: max(expected[one.name] for one in some) - COST_WEIGHT * (costs.of(some).tokens or 0) / full
        for key, some in members.items()
    }
    return sorted(standing, key=lambda key: -standing[key])


class HeldOut:
    """The questions that a sweep does not see, by their documents, to judge its choice by.

    Raises ``ConfigurationError`` where too few are held out to judge by.
    """

    def __init__(self, share: float, truth: TruthTables) -> None:
        queries = truth.queries.filter(pc.invert(truth.queries.column("unanswerable")))
        asked: list[str] = queries.column("query_id").to_pylist()
        if not has_places(truth.answers):
            if share:
                raise ConfigurationError("holdout is by documents, and chunk-level ground truth has none: remove it")
            self._about = asked
        else:
            about = main_documents(truth.answers)
            self._about = [about[one] for one in asked]
        documents = sorted(set(self._about), key=text_sha256)
        held = set(documents[: round(share * len(documents))])
        self.seen = np.array([one not in held for one in self._about])
        count = int((~self.seen).sum())
        if share and (len(held) < FEWEST_HELD_OUT[0] or count < FEWEST_HELD_OUT[1] or not self.seen.any()):
            raise ConfigurationError(
                f"holdout {share:g} leaves {counted(count, 'questions')} about {counted(len(held), 'documents')} to "
                f"judge by, and it takes {FEWEST_HELD_OUT[1]} about {FEWEST_HELD_OUT[0]}: ask about more documents, or "
                "remove it"
            )
        self._documents = len(held)

    def mean(self, scores: pa.Table, objective: str) -> float:
        """Return the mean of the objective over the questions that the sweep sees."""
        return float(self._values(scores, objective)[self.seen].mean())

    def judge(self, scores: Mapping[str, pa.Table], objective: str) -> Holdout | None:
        """Judge the best configuration on the questions that were searched by those that were not."""
        means = {name: self.mean(table, objective) for name, table in scores.items()}
        if not self._documents or not means:
            return None
        best = max(means, key=means.__getitem__)
        held = self._values(scores[best], objective)[~self.seen]
        return Holdout(
            name=best,
            found=means[best],
            questions=int(self.seen.sum()),
            held_out=float(held.mean()),
            held_out_questions=len(held),
            held_out_documents=self._documents,
        )

    @staticmethod
    def _values(scores: pa.Table, objective: str) -> Values:
        column, at = split_name(objective)
        rows = (pc.field("metric") == column) & (pc.field("cut") == at.kind) & (pc.field("size") == at.size)
        values: Values = scores.filter(rows).column("value").to_numpy()
        return values
