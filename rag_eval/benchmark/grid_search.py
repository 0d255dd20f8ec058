"""Which configurations of a benchmark are evaluated: all, those of a guide's first chunkings, or until one is certain.

What costs nothing comes first: all chunkings are cut, and a configuration that would have to be embedded has a stand-in
that need not be: the local embedder in the place of its own, or BM25 where the local one is itself compared.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_eval.benchmark.config import BenchmarkConfig, Configuration
from rag_eval.benchmark.engine import Run, evaluate
from rag_eval.benchmark.objective import metric_column
from rag_eval.benchmark.outcome import ConfigurationFailure, ConfigurationOutcome
from rag_eval.benchmark.pools import Pools, TextCosts, allows, key, total_usage
from rag_eval.benchmark.references import BenchmarkInputs, TableRef
from rag_eval.benchmark.sweep import (
    COST_WEIGHT,
    FEWEST_HELD_OUT,
    GUIDED,
    CostLimit,
    Holdout,
    Numbers,
    Rival,
    SearchRecord,
    Step,
    SureSearch,
    Values,
)
from rag_eval.benchmark.truth_stages import take_questions
from rag_eval.benchmark.workspace import Workspace
from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.embedder import Usage
from rag_eval.errors import ArtifactError, ConfigurationError, RagEvalError, is_outage
from rag_eval.formatting import cost_in_words, counted
from rag_eval.metrics.metric import metric_of, split_name
from rag_eval.parts import digest, is_remote, label
from rag_eval.retrieval.searching import HybridSearch, WordSearch
from rag_eval.stats.scores import main_documents
from rag_eval.stores import STORE
from rag_eval.types.ids import text_sha256

MORE = 2
"""A guide that is not known to serve takes so many times as many chunkings."""


class Searched(NamedTuple):
    """The configurations that were evaluated, those that failed, and how they were chosen; None where all were."""

    done: list[ConfigurationOutcome]
    failed: dict[str, ConfigurationFailure]
    search: SearchRecord | None


Evaluate = Callable[[list[Configuration]], tuple[list[ConfigurationOutcome], dict[str, ConfigurationFailure]]]


Settled = Literal["excluded", "estimated", "open"]
"""What becomes of a configuration that is not evaluated: open is what ``max_cost`` left."""


class Rounds:
    """How the rounds of a search are done, and who is told of it: here at once, and nobody."""

    def do(self, name: str, work: Callable[[], Any]) -> Any:
        """Return what a round of this name gives."""
        return work()

    def tell_spent(self, told: str) -> None:
        """Take in what is spent by now, and what is left."""

    def settle(self, name: str, status: Settled) -> None:
        """Take in that a configuration is not evaluated."""


def search_grid(
    run: Run,
    workspace: Workspace,
    config: BenchmarkConfig,
    inputs: BenchmarkInputs,
    evaluate_all: Evaluate,
    rounds: Rounds,
) -> Searched:
    """Evaluate the configurations that the search of a benchmark asks for.

    ``run`` gives what a stage makes; ``evaluate_all`` evaluates configurations whole, side by side; ``rounds`` does
    the search itself. Raises ``ConfigurationError`` where the search cannot serve this benchmark.
    """
    if config.max_cost is not None and config.search == "full":
        left = TextCosts(run, workspace, inputs.documents).of(config.configurations())
        if told := over_limit(left, config):
            raise ConfigurationError(f"{told}: allow more, or use search: guided or sure")
        rounds.tell_spent(f"{left.tokens:,} tokens left to embed, max_cost is {config.max_cost}")
    if config.search != "full" or config.holdout:
        return GridSearch(run, workspace, config, inputs, evaluate_all, rounds).found()
    return Searched(*evaluate_all(config.configurations()), None)


def over_limit(left: Usage, config: BenchmarkConfig) -> str | None:
    """Say that a full search with so much left passes ``max_cost`` and what was allowed; None where it does not."""
    limits = [CostLimit.parse(one) for one in (config.max_cost, config.allowed_cost) if one is not None]
    if not limits or any(allows(one, left) for one in limits):
        return None
    return f"max_cost is {config.max_cost}, and the full grid has {left.tokens:,} tokens left to embed"


def lacks_bound(one: Configuration) -> str | None:
    """Why the score of a configuration has no bound; None where it has one."""
    selection = one.selection
    reasons = {
        "a whole system": one.system,
        "rewritten queries": one.queries,
        "a reranker": one.reranker,
        "more than hits is returned": one.returns,
        "a service cuts": one.chunker if is_remote(one.chunker) else None,
        "a service writes what is searched": one.context if is_remote(one.context) else None,
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
        rounds: Rounds,
    ) -> None:
        self._run, self._workspace, self._config = run, workspace, config
        self._evaluate, self._rounds = evaluate_all, rounds
        self._costs, every = TextCosts(run, workspace, inputs.documents), config.configurations()
        self._grid = self._costs.of(every, kept=True)
        self._order = {one.name: number for number, one in enumerate(every)}
        self._broken = [one for one in every if self._costs.is_broken(one)]
        self._all = [one for one in every if one not in self._broken]
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
        if is_remote(one.chunker) or is_remote(one.retrieval):
            raise ConfigurationError(
                f"a search that is guided or sure tries all chunkings first, and {one.name} asks a service for its "
                "chunks: use search: full"
            )
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
                        with self._losing(one):
                            known[stand_in.name] = self._values(evaluate(self._run, stand_in, self._inputs).scores)
                    if stand_in.name in known:
                        found[one.name] = known[stand_in.name]

        self._rounds.do("guide", measure)
        self._all = [one for one in self._all if one.name not in self._failed]
        return found

    @contextmanager
    def _losing(self, one: Configuration) -> Iterator[None]:
        """Lose one configuration where a part of it fails, as a full run does, and not the search."""
        try:
            yield
        except RagEvalError as error:
            if isinstance(error, ArtifactError) or is_outage(error):
                raise
            self._failed[one.name] = ConfigurationFailure(configuration=one.record(), reason=str(error), stages={})

    @functools.cached_property
    def ranked(self) -> list[tuple[str, str]]:
        """The chunkings, as the guide ranks them by the best that any configuration with them finds, and by cost."""
        members: dict[tuple[str, str], list[Configuration]] = {}
        for one in self._all:
            if one.name in self.guide:
                members.setdefault(key(one)[:2], []).append(one)
        full = self._grid.tokens or 1
        standing = {
            chunking: max(self.guide[one.name].mean() for one in some)
            - COST_WEIGHT * (self._costs.of(some, kept=True).tokens or 0) / full
            for chunking, some in members.items()
        }
        return sorted(standing, key=lambda chunking: -standing[chunking])

    def guided(self) -> list[Configuration]:
        """The configurations of the chunkings that the guide ranks first, within the limit.

        Raises ``ConfigurationError`` where nothing can guide, or not even one chunking is within the limit.
        """
        embedded = [one for one in self._all if one.name in self.guide]
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
        chosen = self._affordable(embedded, count)
        if embedded and not chosen:
            raise self._too_little()
        return chosen

    def _affordable(self, configurations: list[Configuration], count: int) -> list[Configuration]:
        """Those with one of the first chunkings, as many of these as are within the limit."""
        chosen: list[Configuration] = []
        for number, chunking in enumerate(self.ranked[:count]):
            more = [*chosen, *(one for one in configurations if key(one)[:2] == chunking)]
            if self._limit is not None and not allows(self._limit, self._costs.of(more, kept=True)):
                self.notes.append(f"max_cost left {number} of {count} chunkings")
                break
            chosen = more
        return chosen

    def _too_little(self) -> ConfigurationError:
        first = [one for one in self._all if one.embedder is not None and key(one)[:2] == self.ranked[0]]
        return ConfigurationError(
            f"max_cost is {self._config.max_cost} and the first chunking alone takes "
            f"{self._costs.of(first, kept=True).tokens:,} tokens: allow more"
        )

    # Evaluating

    def found(self) -> Searched:
        """Search, and say what was found."""
        free = [one for one in self._all if one.embedder is None]
        self._take(self._broken)  # which says of each why it fails, and ends no other
        if self._config.search == "full":
            self._take(self._all)
            return self._told(self._grid)
        if self._config.search == "guided":
            chosen = self.guided()
            spent = self._costs.of(chosen, kept=True)
            self._tell_spent(spent)
            self._estimate(one for one in self._all if one not in free and one not in chosen)
            self._take([one for one in self._all if one in free or one in chosen])
            return self._told(spent)
        return self._surely(free)

    def _estimate(self, configurations: Iterable[Configuration]) -> None:
        for one in configurations:
            self._rounds.settle(one.name, "estimated")

    def _tell_spent(self, spent: Usage) -> None:
        """Tell what is embedded by now, kept or not, and what is left of the limit, or how much the full grid has."""
        told = f"{spent.tokens:,} of {self._grid.tokens:,} tokens"
        if self._limit is not None and self._limit.unit == "USD":
            told = f"{cost_in_words(spent.cost)} spent, {cost_in_words(self._limit.amount - (spent.cost or 0))} left"
        elif self._limit is not None:
            told = f"{spent.tokens:,} tokens spent, {self._limit.amount - (spent.tokens or 0):,.0f} left"
        self._rounds.tell_spent(told)

    def _take(self, configurations: list[Configuration]) -> dict[str, Values]:
        """Evaluate configurations whole; gives what each that did not fail finds, by question."""
        done, failed = self._evaluate(configurations) if configurations else ([], {})
        self._done += done
        self._failed |= failed
        return {one.name: self._values(one.scores) for one in done}

    def planned(self) -> list[Configuration]:
        """The configurations that are evaluated, at most; raises as the search does, before anything is spent."""
        if self._config.search == "guided":
            return [*(one for one in self._all if one.embedder is None), *self.guided()]
        if self._config.search == "sure":
            self._bounded()
        return [*self._all, *self._broken]

    def _bounded(self) -> tuple[list[Configuration], list[Configuration]]:
        """The configurations that are embedded with a bound and without; raises where none has one."""
        if not metric_of(self._objective).is_bounded or self._inputs.evaluation_type != "token-level":
            raise ConfigurationError(
                f"search: sure needs an objective with a bound, recall of spans, and {self._objective} has none: use "
                "search: guided or full"
            )
        rivals = [one for one in self._all if one.embedder is not None and lacks_bound(one) is None]
        others = [one for one in self._all if one.embedder is not None and lacks_bound(one) is not None]
        if not rivals:
            raise ConfigurationError(
                f"no configuration has a bound ({lacks_bound(others[0]) if others else 'nothing is embedded'}): use "
                "search: guided or full"
            )
        return rivals, others

    def _surely(self, free: list[Configuration]) -> Searched:
        rivals, others = ([one for one in some if one.name in self.guide] for some in self._bounded())
        chosen = self._affordable(others, GUIDED)
        self._estimate(one for one in others if one not in chosen)
        if not rivals:  # a part of each failed
            self._take([*free, *chosen])
            return self._told(self._costs.of(chosen, kept=True))
        pools = Pools(self._run, self._workspace, self._inputs, self._costs, rivals, self._objective, self._seen)
        in_money = self._limit is not None and self._limit.unit == "USD"
        if self._limit is not None:
            allows(self._limit, pools.spent(np.ones(len(pools.tokens), bool)))  # which may have no price
        known = self._take([*free, *chosen])
        references = pools.references(rivals)
        for told in {label(one.chunker): None for one in references}:
            self.notes.append(f"hybrids take mean and deviation over the chunks of {told}")
        whole = {key(one): None for one in (*references, *chosen)}
        alone = {key(one) for one in references} - {key(one) for one in rivals}
        begun = [
            pools.numbers[one]
            for one in {key(one): None for one in chosen} | dict.fromkeys(alone)
            if one in pools.numbers
        ]
        outside = self._costs.of([one for one in chosen if key(one) not in pools.numbers], kept=True)
        best = max(rivals, key=lambda one: self.guide[one.name].mean())
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
            begun,
            (outside.cost if in_money else outside.tokens) or 0.0,
        )
        while (step := search.next()) is not None:
            self._tell_spent(total_usage([pools.spent(search.embedded), outside]))
            members = search.members(step.chunking)
            some = [rivals[one] for one in members]
            if step.whole:
                found = self._take([one for one in some if one.name not in self._failed])
                pools.look_near(members, self._done)
            else:
                most = search.bounds[~search.measured].mean(axis=1).max()
                name = f"narrow {label(some[0].chunker)}: best {search.best:.3f}, others at most {most:.3f}"
                found = self._rounds.do(name, functools.partial(self._bounds, some, step))
            failed = np.full(len(step.questions), np.nan)
            search.learn(step, np.stack([found.get(one.name, failed) for one in some]))
            for one in search.excluded:
                self._rounds.settle(rivals[one].name, "excluded")
        if search.is_stopped and not np.isfinite(search.best):
            raise self._too_little()
        for one in {*np.flatnonzero(~search.measured).tolist()} - search.excluded:
            self._rounds.settle(rivals[one].name, "open")
        spent = total_usage([pools.spent(search.embedded), outside])
        self._tell_spent(spent)
        return self._told(spent, search, rivals)

    def _bounds(self, members: list[Configuration], step: Step) -> dict[str, Values]:
        """What configurations find at most, for the questions of a step, in its pool of chunks."""
        found, memory, at = {}, STORE.make("memory"), split_name(self._objective)[1]
        asked = self._run(take_questions, self._inputs.truth, self._rows[step.questions].tolist())
        # Of a budget of tokens it is not known before how many hits fill it.
        inputs = self._inputs.model_copy(update={"truth": asked} | ({} if at.hits is None else {"depth": at.hits}))
        for one in members:
            pooled = one.model_copy(update={"store": memory})
            with self._losing(one):
                found[one.name] = self._scored(evaluate(self._run, pooled, inputs, step.chunks.tolist()).scores)
        return found

    # Reading

    def _values(self, scores: TableRef, *, held_out: bool = False) -> Values:
        """The objective of each answerable question that is searched, or held out, in the order of the questions."""
        return self._scored(scores)[~self._seen if held_out else self._seen]

    def _scored(self, scores: TableRef) -> Values:
        table, (column, at) = self._workspace.read_table(scores), split_name(self._objective)
        rows = (pc.field("metric") == column) & (pc.field("cut") == at.kind) & (pc.field("size") == at.size)
        values: Values = table.filter(rows).column("value").to_numpy()
        return values

    @functools.cached_property
    def _documents(self) -> list[str]:
        """The document that each answerable question is about."""
        truth, tables = self._inputs.truth, self._workspace
        queries, answers = tables.read_table(truth.queries), tables.read_table(truth.answers)
        answerable = queries.filter(pc.invert(queries.column("unanswerable")))
        asked: list[str] = answerable.column("query_id").to_pylist()
        if self._inputs.evaluation_type == "chunk-level":
            if self._config.holdout:
                raise ConfigurationError(
                    "holdout is by documents, and ground truth of chunk ids has none: leave it out"
                )
            return asked
        about = main_documents(answers)
        return [about[one] for one in asked]

    @functools.cached_property
    def _rows(self) -> Numbers:
        """The rows of the questions that are searched among all questions."""
        queries = self._workspace.read_table(self._inputs.truth.queries)
        answerable = np.flatnonzero(~queries.column("unanswerable").to_numpy())
        return answerable[self._seen]

    @functools.cached_property
    def _seen(self) -> NDArray[np.bool_]:
        """Which questions are searched; raises ``ConfigurationError`` where too few are held out to judge by."""
        documents = sorted(set(self._documents), key=text_sha256)
        held = set(documents[: round(self._config.holdout * len(documents))])
        seen = np.array([one not in held for one in self._documents])
        count = int((~seen).sum())
        if self._config.holdout and (len(held) < FEWEST_HELD_OUT[0] or count < FEWEST_HELD_OUT[1] or not seen.any()):
            raise ConfigurationError(
                f"holdout {self._config.holdout:g} leaves {counted(count, 'questions')} about "
                f"{counted(len(held), 'documents')} to judge by, and it takes {FEWEST_HELD_OUT[1]} about "
                f"{FEWEST_HELD_OUT[0]}: ask about more documents, or leave it out"
            )
        return seen

    def _held_out(self) -> Holdout | None:
        means = {one.name: float(self._values(one.scores).mean()) for one in self._done}
        if not self._config.holdout or not means:
            return None
        best = max(self._done, key=lambda one: means[one.name])
        held = self._values(best.scores, held_out=True)
        about = {one for one, seen in zip(self._documents, self._seen.tolist(), strict=True) if not seen}
        return Holdout(
            name=best.name,
            found=means[best.name],
            questions=int(self._seen.sum()),
            held_out=float(held.mean()),
            held_out_questions=len(held),
            held_out_documents=len(about),
        )

    def _told(self, spent: Usage, search: SureSearch | None = None, rivals: Sequence[Configuration] = ()) -> Searched:
        self._done.sort(key=lambda one: self._order[one.name])
        left = [one for one in self._all if one.name not in self._failed.keys() | {one.name for one in self._done}]
        means = [] if search is None else search.bounds.mean(axis=1).tolist()
        bounds = dict(zip([one.name for one in rivals], means, strict=True))
        guessed = [one for one in left if one.name not in bounds]
        most = -np.inf if search is None else search.best + self._config.tolerance
        known = {one.name: bounds[one.name] for one in left if one.name in bounds}
        record = SearchRecord(
            strategy=self._config.search,
            objective=self._objective,
            configurations=len(self._order),
            excluded={name: bound for name, bound in known.items() if bound <= most},
            open={name: bound for name, bound in known.items() if bound > most},
            estimated={one.name: float(self.guide[one.name].mean()) for one in guessed},
            unbounded={one.name: str(lacks_bound(one)) for one in guessed} if search else {},
            gap=search.gap if search is not None and np.isfinite(search.gap) else None,
            is_stopped=search is not None and search.is_stopped,
            tokens=spent.tokens or 0,
            full_tokens=self._grid.tokens or 0,
            cost=spent.cost,
            full_cost=self._grid.cost,
            notes=[*self.notes, *self._costs.notes],
            holdout=self._held_out(),
        )
        return Searched(self._done, self._failed, record)
