"""What a benchmark takes before anything is spent: texts, tokens, money and time of each way to search its grid."""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, get_args

from rag_eval.benchmark.config import BenchmarkConfig, Configuration
from rag_eval.benchmark.engine import Run, evaluate
from rag_eval.benchmark.grid_search import GridSearch, Rounds
from rag_eval.benchmark.inputs import BenchmarkInputs
from rag_eval.benchmark.pools import TextCosts
from rag_eval.benchmark.runs import read_run
from rag_eval.benchmark.stage import Stage
from rag_eval.benchmark.sweep import Search
from rag_eval.embedding.embedder import Usage
from rag_eval.errors import ConfigurationError, RagEvalError
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.metrics.metric import DEFAULT_ENCODING
from rag_eval.parts import fresh, is_remote, label
from rag_eval.pipeline.document_steps import CorpusSource, load_corpus
from rag_eval.pipeline.ground_truth_steps import ground_truth
from rag_eval.pipeline.references import Effort, effort_of
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.searching import WordSearch
from rag_eval.tables import searched_texts
from rag_eval.tokens import count_tokens

SURE_TOKENS = (0.22, 1.0)
"""The shares of the full grid's tokens that a sure search embeds in replays of 204 configurations: at recall@5 on five
long documents with 472 questions, and at most on 14 short ones, of whose chunks most hold something relevant."""

SURE_TIME = (0.4, 1.5)
"""What it takes of the time of a full one, embedding aside: at least in a run of those on long documents."""


TIMED = 200
"""How many texts a local embedder is timed on."""


@dataclass(frozen=True)
class SearchEstimate:
    """What a search takes: of how many configurations, what these embed, and what is left of it to embed.

    It embeds between two ``shares`` of that, and takes between two numbers of ``seconds``, the same where that is
    known; None where nothing tells how long an embedder takes.
    """

    search: Search
    configurations: int
    all: Usage
    left: Usage
    shares: tuple[float, float]
    seconds: tuple[float, float] | None


@dataclass(frozen=True)
class Pace:
    """The seconds that a configuration takes, embedding aside, and a token of each embedder by its label."""

    configuration: float
    token: dict[str, float]

    @classmethod
    def of(cls, work: Iterable[tuple[str, str, Effort | None]], configurations: int) -> "Pace":
        """Take it from stages, each once: the name of each, the label of the embedder and its effort."""
        beside, token = 0.0, dict[str, float]()
        for name, embedder, effort in work:
            if effort is not None and not name.startswith("embed"):
                beside += effort.seconds
            elif effort is not None and effort.fresh and effort.tokens:  # of those found in a cache nothing was read
                token[embedder] = effort.seconds * effort.total / (effort.fresh * effort.tokens)
        return cls(beside / max(1, configurations), token)

    def seconds(self, configurations: Sequence[Configuration], costs: TextCosts) -> tuple[float, float]:
        """Return what configurations take, and what embedding does that is left of them, by the embedders it knows."""
        texts = 0.0
        for told, each in self.token.items():
            texts += each * (costs.of(one for one in configurations if label(one.embedder) == told).tokens or 0)
        return len(configurations) * self.configuration, texts


def estimated(
    run: Run, workspace: Workspace, config: BenchmarkConfig, searches: Sequence[Search] = get_args(Search)
) -> tuple[list[SearchEstimate], list[str]]:
    """What these searches take, and what to know besides; no service is asked for anything."""
    documents = run(load_corpus, CorpusSource.of(config.corpus, config.glob, config.loaders), config.shards)
    costs, plans, notes = TextCosts(run, workspace, documents), dict[Search, list[Configuration]](), list[str]()
    if not all(isinstance(one, FileTruth) for one in config.ground_truth):
        every = config.configurations()
        full = SearchEstimate("full", len(every), costs.of(every, kept=True), costs.of(every), (1.0, 1.0), None)
        told = "what a guided or a sure search takes, and how long, is known once the ground truth is in a file"
        return [full], [told, *costs.notes]
    truth = ground_truth(run, config.ground_truth, documents, config.evaluation_type, copies=config.copies)
    inputs = BenchmarkInputs.of(config, documents, truth)
    for name in searches:
        own = config.model_copy(update={"search": name})
        search = GridSearch(run, workspace, own, inputs, lambda _: ([], {}), Rounds())
        try:
            plans[name] = search.planned()
        except ConfigurationError as error:
            notes.append(str(error))
        notes += search.notes
    used = {name: (costs.of(some, kept=True), costs.of(some)) for name, some in plans.items()}
    pace, told = _pace(run, workspace, config, inputs)
    found = []
    for name, some in plans.items():
        shares, times = (SURE_TOKENS, SURE_TIME) if name == "sure" else ((1.0, 1.0), (1.0, 1.0))
        work, texts = pace.seconds(some, costs)
        least, most = (each * work + share * texts for each, share in zip(times, shares, strict=True))
        found.append(SearchEstimate(name, len(some), *used[name], shares, (least, most)))
    notes.append(told)
    for part in config.embedders:
        if label(part) not in pace.token:
            notes.append(f"how long {label(part)} takes to answer is not in the times")
    if "sure" in plans:
        notes.append("what sure takes is the range of what it took in replays, from long documents to few short ones")
    if not any(map(is_remote, config.embedders)):
        notes.append("these embedders run here: guided and sure save no money with them, and time on long documents")
    return found, [*dict.fromkeys(notes), *costs.notes]


def _pace(run: Run, workspace: Workspace, config: BenchmarkConfig, inputs: BenchmarkInputs) -> tuple[Pace, str]:
    """The pace of the latest run on these documents, else of configurations here and now, and which it is."""
    with suppress(RagEvalError):  # there is none, or none that can be read
        latest = read_run(workspace)
        if latest.corpus == CorpusSource.of(config.corpus, config.glob, config.loaders) and latest.configurations:
            known = {
                work.key: (name, label(one.configuration.embedder), work.effort)
                for one in latest.configurations
                for name, work in one.stages.items()
            }
            pace = Pace.of(known.values(), len(latest.configurations))
            return pace, f"times are by run {latest.run}, without starting a server"
    pace, told = Pace(0.0, {}), "how long this takes is known after a first run"
    for chunker in [one for one in config.chunkers if not is_remote(one)][:2]:  # the first loads what all use
        words = Configuration(chunker=chunker, retrieval=WordSearch())
        work: dict[str, tuple[str, str, Effort | None]] = {}

        def timed(stage: Stage, *given: Any, work: dict[str, Any] = work) -> Any:
            made = run(stage, *given)
            work[stage.key(*stage.looked(workspace, *given))] = stage.name, "", effort_of(made)
            return made

        texts = searched_texts(workspace.read_tables(evaluate(timed, words, inputs).chunks)).to_pylist()[:TIMED]
        pace, told = Pace.of(work.values(), 1), f"times are by {words.name}, measured here, without starting a server"
        for part in (part for part in config.embedders if not is_remote(part)):
            begun = time.perf_counter()
            fresh(part).embed(texts)
            tokens = sum(count_tokens(text, DEFAULT_ENCODING) for text in texts)
            pace.token[label(part)] = (time.perf_counter() - begun) / tokens
    return pace, told
