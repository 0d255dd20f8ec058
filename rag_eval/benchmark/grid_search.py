"""Which configurations of a benchmark are evaluated: all, those of a guide's first chunkings, or until one is certain.

What costs nothing comes first: all chunkings are cut, and a configuration that would have to be embedded has a stand-in
that need not be: the local embedder in the place of its own, or BM25 where the local one is itself compared.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.benchmark.config import BenchmarkConfig, Configuration
from rag_eval.benchmark.engine import Run, cut, evaluate
from rag_eval.benchmark.estimate import TextCosts, price_of
from rag_eval.benchmark.objective import metric_column
from rag_eval.benchmark.outcome import ConfigurationFailure, ConfigurationOutcome
from rag_eval.benchmark.references import BenchmarkInputs, CorpusSource, TableRef
from rag_eval.benchmark.stages import load_corpus
from rag_eval.benchmark.sweep import (
    GUIDED,
    Chunking,
    CostLimit,
    Numbers,
    Rival,
    Search,
    SearchRecord,
    Step,
    SureSearch,
    Values,
)
from rag_eval.benchmark.truth_stages import ground_truth
from rag_eval.benchmark.workspace import Workspace
from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.embedder import Usage
from rag_eval.errors import ConfigurationError
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.metrics.intervals import overlapping_pairs
from rag_eval.metrics.metric import metric_of, split_name
from rag_eval.parts import digest, is_remote, label
from rag_eval.retrieval.searching import HybridSearch, WordSearch
from rag_eval.stores import STORE
from rag_eval.tables import searched_texts
from rag_eval.types.ids import text_sha256

MORE = 2
"""A guide that is not known to serve takes so many times as many chunkings."""

MOST_NEAR = 2
"""Of so many chunkings that were evaluated whole it is looked where their hits are."""

CHARACTERS = 4
"""About so many characters are a token, to tell which hits are within a budget."""

Key = tuple[str, str, str]
"""The digests of chunker, context and embedder: what decides which texts are embedded."""


class Searched(NamedTuple):
    """The configurations that were evaluated, those that failed, and how they were chosen; None where all were."""

    done: list[ConfigurationOutcome]
    failed: dict[str, ConfigurationFailure]
    search: SearchRecord | None


Evaluate = Callable[[list[Configuration]], tuple[list[ConfigurationOutcome], dict[str, ConfigurationFailure]]]
Shown = Callable[[str, Callable[[], Any]], Any]


def search_grid(
    run: Run,
    workspace: Workspace,
    config: BenchmarkConfig,
    inputs: BenchmarkInputs,
    evaluate_all: Evaluate,
    shown: Shown = lambda _, work: work(),
) -> Searched:
    """Evaluate the configurations that the search of a benchmark asks for.

    ``run`` gives what a stage makes; ``evaluate_all`` evaluates configurations whole, side by side; ``shown`` does a
    named piece of the search itself. Raises ``ConfigurationError`` where the search cannot serve this benchmark.
    """
    if config.search != "full":
        return GridSearch(run, workspace, config, inputs, evaluate_all, shown).found()
    if told := over_limit(TextCosts(run, workspace, inputs.documents), config):
        raise ConfigurationError(f"{told}: allow more, or use search: guided or sure")
    return Searched(*evaluate_all(config.configurations()), None)


def over_limit(costs: TextCosts, config: BenchmarkConfig) -> str | None:
    """Say that a full search would pass the limit of a benchmark; None where it would not, or has no limit."""
    if config.max_cost is None or config.search != "full":
        return None
    needed = costs.of(config.configurations())
    if allows(CostLimit.parse(config.max_cost), needed):
        return None
    return f"max_cost is {config.max_cost}, and the full grid has {needed.tokens:,} tokens left to embed"


@dataclass(frozen=True)
class SearchEstimate:
    """What a search takes: how many configurations it evaluates, what they embed, and what is left of it to embed."""

    search: Search
    configurations: int
    all: Usage
    left: Usage


def estimated(run: Run, workspace: Workspace, config: BenchmarkConfig) -> tuple[list[SearchEstimate], list[str]]:
    """What a full and a guided search take, and what to know besides; nobody is asked for anything.

    What a sure one takes is not known before: at most what a full one does, or ``max_cost``.
    """
    documents = run(load_corpus, CorpusSource.of(config.corpus, config.glob), config.shards)
    costs, every = TextCosts(run, workspace, documents), config.configurations()
    plans: dict[Search, list[Configuration]] = {"full": every}
    notes = []
    if all(isinstance(one, FileTruth) for one in config.ground_truth):
        truth = ground_truth(run, config.ground_truth, documents, config.evaluation_type, copies=config.copies)
        inputs = BenchmarkInputs.of(config, documents, truth)
        search = GridSearch(run, workspace, config, inputs, lambda _: ([], {}), lambda _, work: work())
        try:
            plans["guided"] = [*(one for one in every if one.embedder is None), *search.guided()]
        except ConfigurationError as error:
            notes.append(str(error))
        notes += search.notes
    else:
        notes.append("what a guided search takes is known once the ground truth is in a file")
    found = [SearchEstimate(name, len(some), costs.of(some, kept=True), costs.of(some)) for name, some in plans.items()]
    return found, [*notes, *costs.notes]


def lacks_bound(one: Configuration) -> str | None:
    """Why the score of a configuration has no bound; None where it has one."""
    selection = one.selection
    reasons = {
        "a whole system": one.system,
        "rewritten queries": one.queries,
        "a reranker": one.reranker,
        "more than hits is returned": one.returns,
        "a selection without near-duplicates": selection if selection and not selection.independent else None,
    }
    told = next((reason for reason, part in reasons.items() if part is not None), None)
    if told is None and not getattr(one.retrieval, "independent", False):
        mode = one.retrieval
        told = f"fused by {label(mode.fusion)}" if isinstance(mode, HybridSearch) else label(mode)
    if told is None and one.store is not None and not getattr(one.store, "is_exact", False):
        told = "an approximate index"
    return told


class GridSearch:
    """One search of one benchmark."""

    def __init__(
        self,
        run: Run,
        workspace: Workspace,
        config: BenchmarkConfig,
        inputs: BenchmarkInputs,
        evaluate_all: Evaluate,
        shown: Shown,
    ) -> None:
        self._run, self._workspace, self._config = run, workspace, config
        self._evaluate, self._shown = evaluate_all, shown
        self._all = config.configurations()
        self._costs = TextCosts(run, workspace, inputs.documents)
        self._objective = config.objective
        measured = [one for one in inputs.metrics if metric_column(one) == self._objective] or [self._objective]
        self._inputs = inputs.model_copy(update={"metrics": measured, "ks": []})
        self._limit = None if config.max_cost is None else CostLimit.parse(config.max_cost)
        self._done: list[ConfigurationOutcome] = []
        self._failed: dict[str, ConfigurationFailure] = {}
        self.notes: list[str] = []

    # What costs nothing

    @functools.cached_property
    def by_local(self) -> bool:
        """Whether the local embedder guides: where it is itself compared, it does not."""
        return digest(EMBEDDER.make("local")) not in map(digest, self._config.embedders)

    def stand_in(self, one: Configuration) -> Configuration:
        """What is measured in the place of a configuration that would have to be embedded, and asks no service."""
        free: dict[str, Any] = {"queries": None, "reranker": None}
        free |= {"context": None} if is_remote(one.context) else {}
        if self.by_local:
            free |= {"embedder": EMBEDDER.make("local"), "store": STORE.make("memory")}
        else:
            words = next((part for part in one.searches if isinstance(part, WordSearch)), WordSearch())
            free |= {"embedder": None, "store": None, "retrieval": words}
        return one.model_copy(update=free)

    @functools.cached_property
    def guide(self) -> dict[str, Values]:
        """What the stand-in of each configuration that would have to be embedded finds, by question."""
        found: dict[str, Values] = {}
        known: dict[str, Values] = {}

        def measure() -> None:
            for one in self._all:
                if one.embedder is not None:
                    stand_in = self.stand_in(one)
                    if stand_in.name not in known:
                        known[stand_in.name] = self._values(evaluate(self._run, stand_in, self._inputs).scores)
                    found[one.name] = known[stand_in.name]

        self._shown("guide", measure)
        return found

    @functools.cached_property
    def ranked(self) -> list[tuple[str, str]]:
        """The chunkings, as the guide ranks them by the best that any configuration with them finds."""
        best: dict[tuple[str, str], float] = {}
        for one in self._all:
            if one.name in self.guide:
                mean = float(self.guide[one.name].mean())
                best[key(one)[:2]] = max(mean, best.get(key(one)[:2], -np.inf))
        return sorted(best, key=lambda chunking: -best[chunking])

    def guided(self) -> list[Configuration]:
        """The configurations of the chunkings that the guide ranks first, within the limit.

        Raises ``ConfigurationError`` where nothing can guide, or not even one chunking is within the limit.
        """
        embedded = [one for one in self._all if one.embedder is not None]
        count = GUIDED
        if embedded and not any(isinstance(one.retrieval, HybridSearch) for one in embedded):
            if not self.by_local:
                raise ConfigurationError(
                    "search: guided has no guide here: by words it does not tell how searches by vectors alone rank, "
                    "and the local embedder is itself compared; use search: sure or full, or add retrieval: hybrid"
                )
            count *= MORE
            told = "the guide is not known to serve searches by vectors alone: it takes twice as many chunkings"
            self.notes.append(told)
        chosen: list[Configuration] = []
        for number, chunking in enumerate(self.ranked[:count]):
            more = [*chosen, *(one for one in embedded if key(one)[:2] == chunking)]
            if self._limit is not None and not allows(self._limit, self._costs.of(more, kept=True)):
                if not number:
                    raise ConfigurationError(
                        f"max_cost is {self._config.max_cost} and the first chunking alone takes "
                        f"{self._costs.of(more, kept=True).tokens:,} tokens: allow more"
                    )
                self.notes.append(f"max_cost left {number} of {count} chunkings")
                break
            chosen = more
        return chosen

    # Evaluating

    def found(self) -> Searched:
        """Search, and say what was found."""
        free = [one for one in self._all if one.embedder is None]
        if self._config.search == "guided":
            chosen = self.guided()
            self._take([one for one in self._all if one in free or one in chosen])
            return self._told(self._costs.of(chosen, kept=True))
        return self._surely(free)

    def _take(self, configurations: list[Configuration]) -> dict[str, Values]:
        """Evaluate configurations whole; gives what each finds by question, nothing where it failed."""
        done, failed = self._evaluate(configurations) if configurations else ([], {})
        self._done += done
        self._failed |= failed
        values = {one.name: self._values(one.scores) for one in done}
        return values | {name: np.zeros(self._questions) for name in failed}

    def _surely(self, free: list[Configuration]) -> Searched:
        if not metric_of(self._objective).is_bounded or self._inputs.evaluation_type != "token-level":
            raise ConfigurationError(
                f"search: sure needs an objective with a bound, recall of spans, and {self._objective} has none: use "
                "search: guided or full"
            )
        rivals = [one for one in self._all if one.embedder is not None and lacks_bound(one) is None]
        others = [one for one in self._all if one.embedder is not None and lacks_bound(one) is not None]
        first = self.ranked[:GUIDED]
        chosen = [one for one in others if key(one)[:2] in first]
        known = self._take([*free, *chosen])
        if not rivals:
            raise ConfigurationError(
                f"no configuration has a bound ({lacks_bound(others[0]) if others else 'nothing is embedded'}): use "
                "search: guided or full"
            )
        pools = _Pools(self._run, self._workspace, self._inputs, self._costs, rivals, self._objective)
        whole = {key(one): None for one in (*pools.references(rivals), *chosen)}
        best = max(rivals, key=lambda one: self.guide[one.name].mean())
        in_money = self._limit is not None and self._limit.unit == "USD"
        if self._limit is not None:
            allows(self._limit, pools.spent(np.ones(len(pools.tokens), bool)))  # which may have no price
        search = SureSearch(
            pools.chunkings,
            [Rival(pools.numbers[key(one)], label(one.retrieval) + label(one.selection)) for one in rivals],
            pools.costs if in_money else pools.tokens,
            np.stack([self.guide[one.name] for one in rivals]),
            pools.near,
            [pools.numbers[one] for one in [*whole, key(best)] if one in pools.numbers],
            self._config.tolerance,
            np.inf if self._limit is None else self._limit.amount,
            max((float(one.mean()) for one in known.values()), default=-np.inf),
        )
        while (step := search.next()) is not None:
            members = search.members(step.chunking)
            some = [rivals[one] for one in members]
            if step.whole:
                found = self._take(some)
                pools.look_near(members, self._done)
            else:
                most = search.bounds[~search.measured].mean(axis=1).max()
                name = f"narrow {label(some[0].chunker)}: best {search.best:.3f}, others at most {most:.3f}"
                found = self._shown(name, functools.partial(self._bounds, some, step))
            search.learn(step, np.stack([found[one.name] for one in some]))
        return self._told(pools.spent(search.embedded), search, rivals)

    def _bounds(self, members: list[Configuration], step: Step) -> dict[str, Values]:
        """What configurations find at most, for the questions of a step, in its pool of chunks."""
        found, memory = {}, STORE.make("memory")
        for one in members:
            pooled = one.model_copy(update={"store": memory})
            scores = evaluate(self._run, pooled, self._inputs, step.chunks.tolist()).scores
            found[one.name] = self._values(scores)[step.questions]
        return found

    # Reading

    def _values(self, scores: TableRef) -> Values:
        """The objective of each answerable question, in the order of the questions."""
        table, (column, at) = self._workspace.read_table(scores), split_name(self._objective)
        rows = (pc.field("metric") == column) & (pc.field("cut") == at.kind) & (pc.field("size") == at.size)
        values: Values = table.filter(rows).column("value").to_numpy()
        return values

    @functools.cached_property
    def _questions(self) -> int:
        unanswerable = self._workspace.read_table(self._inputs.truth.queries).column("unanswerable")
        return len(unanswerable) - (pc.sum(unanswerable).as_py() or 0)

    def _told(self, spent: Usage, search: SureSearch | None = None, rivals: Sequence[Configuration] = ()) -> Searched:
        order = {one.name: number for number, one in enumerate(self._all)}
        self._done.sort(key=lambda one: order[one.name])
        left = [one for one in self._all if one.name not in self._failed.keys() | {one.name for one in self._done}]
        means = [] if search is None else search.bounds.mean(axis=1).tolist()
        bounds = dict(zip([one.name for one in rivals], means, strict=True))
        open_ones, grid = [one for one in left if one.name not in bounds], self._costs.of(self._all, kept=True)
        record = SearchRecord(
            strategy="guided" if search is None else "sure",
            objective=self._objective,
            configurations=len(self._all),
            excluded={one.name: bounds[one.name] for one in left if one.name in bounds},
            estimated={one.name: float(self.guide[one.name].mean()) for one in open_ones},
            unbounded={one.name: str(lacks_bound(one)) for one in open_ones} if search else {},
            gap=None if search is None else search.gap,
            is_stopped=search is not None and search.is_stopped,
            tokens=spent.tokens or 0,
            full_tokens=grid.tokens or 0,
            cost=spent.cost,
            full_cost=grid.cost,
            notes=[*self.notes, *self._costs.notes],
        )
        return Searched(self._done, self._failed, record)


def key(one: Configuration) -> Key:
    """What decides which texts of a configuration are embedded, and by what."""
    return digest(one.chunker), digest(one.context), digest(one.embedder)


def allows(limit: CostLimit, cost: Usage) -> bool:
    """Whether so much may be spent; raises ``ConfigurationError`` where the price is not known."""
    if limit.unit == "tokens":
        return (cost.tokens or 0) <= limit.amount
    if cost.cost is None:
        raise ConfigurationError(
            "max_cost is in USD and the price of an embedder is not known: give price_per_million_tokens, or tokens"
        )
    return cost.cost <= limit.amount


class _Pools:
    """The chunkings of rivals: their texts, which of their chunks hold what is relevant, and which are ranked high."""

    def __init__(
        self,
        run: Run,
        workspace: Workspace,
        inputs: BenchmarkInputs,
        costs: TextCosts,
        rivals: Sequence[Configuration],
        objective: str,
    ) -> None:
        self._workspace, self._rivals, self._cut = workspace, rivals, split_name(objective)[1]
        self.numbers: dict[Key, int] = {}
        self.chunkings: list[Chunking] = []
        self._lines: list[_Line] = []
        self._near: dict[str, list[tuple[pa.Table, Numbers]]] = {}
        queries = workspace.read_table(inputs.truth.queries)
        asked = queries.filter(pc.invert(queries.column("unanswerable"))).column("query_id")
        self._questions, answers = asked.combine_chunks(), workspace.read_table(inputs.truth.answers)
        texts: dict[tuple[str, str], int] = {}
        tokens, prices = [], []
        for one in rivals:
            if key(one) in self.numbers:
                continue
            self.numbers[key(one)] = len(self.numbers)
            line = _Line(workspace.read_tables(cut(run, one, inputs.documents)))
            read, embedder, price = costs.texts(one), digest(one.embedder), price_of(one.embedder)
            for text in dict.fromkeys(line.texts):
                if (embedder, text) not in texts:
                    texts[embedder, text] = len(texts)
                    tokens.append(read[text])
                    prices.append(np.nan if price is None else price / 1_000_000)
            bearing = line.by_question(*line.overlapping(answers), answers, self._questions)
            self.chunkings.append(Chunking(np.array([texts[embedder, one] for one in line.texts]), bearing))
            self._lines.append(line)
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
        line, found = self._lines[self.numbers[key(one)]], [np.empty(0, np.int64)]
        for hits, questions in self._near.get(label(one.retrieval), ()):
            found.append(line.overlapping(hits.filter(pa.array(questions == question)))[1])
        return np.concatenate(found)


class _Line:
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
        parts = np.split(chunks[order], np.searchsorted(asked[order], np.arange(1, len(questions))))
        return [np.unique(one) for one in parts]
