"""What a benchmark is to compare."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rag_eval.chunking import CHUNKER, CONTEXT
from rag_eval.chunking.chunker import PositionAwareChunker
from rag_eval.config.objective import DEFAULT_METRICS, Metric, check_objective, metric_column
from rag_eval.config.sweep_settings import CostLimit, Search
from rag_eval.config.truth_sources import TruthSources
from rag_eval.distribution import install_command
from rag_eval.documents.reading import LOADER
from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.embedder import Embedder
from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import choices, slug, suggestion
from rag_eval.ground_truth.copies import Copies, read_copies
from rag_eval.metrics.formulas import BUDGET, RecallWithinTokens
from rag_eval.metrics.metric import LARGEST_CUT, score_name, split_name
from rag_eval.parts import Kind, PartOf, PartRecord, Running, label, without
from rag_eval.parts.objects import notices
from rag_eval.parts.part_settings import Glob, Name, Settings
from rag_eval.retrieval import PASSAGE, RERANKER, RETRIEVER, REWRITER, SELECTION, SYSTEM
from rag_eval.retrieval.retriever import Reranker
from rag_eval.retrieval.searching import HybridSearch, searches_by_vector
from rag_eval.retrieval.selection import Selection
from rag_eval.stores import STORE
from rag_eval.stores.store import VectorStore
from rag_eval.types.ids import EvaluationType

THREADS = "threads"
NEEDED = {THREADS: None, "dask": "prefect_dask", "ray": "prefect_ray"}
"""The runners, each with the package it needs besides; the extra that brings it has the runner's name."""


def check_runner(name: str) -> None:
    """Raise ``ConfigurationError`` when there is no such runner, or what it needs is not installed."""
    if name not in NEEDED:
        raise ConfigurationError(
            f"there is no runner {preview(name)}{suggestion(name, NEEDED)}: {choices(NEEDED, name)}"
        )
    package = NEEDED[name]
    if package is not None and find_spec(package) is None:
        raise ConfigurationError(f"the runner {name} is not installed: {install_command(name)}")


MOST_SHARDS = 4_096
MAX_CONFIGURATIONS = 1_000
"""More than that is taken for a mistake in a grid."""


@dataclass(frozen=True)
class PartSection:
    """One kind of part in a benchmark: a row here, and a field of its own in the four models below.

    A file lists the parts under the key of the row in ``SECTIONS``; a configuration has one of them in ``field``.
    ``plain`` is the label that the name of a configuration leaves out: None where it is always told. Parts that only
    searches by vectors use are ``by_vector``. All are axes of the grid but whole systems, which are ``beside`` it.
    """

    field: str
    kind: Kind
    description: str
    default: str | None = None
    plain: str | None = None
    by_vector: bool = False
    beside: bool = False

    def listed(self) -> Any:
        """Return the field of a benchmark that lists such parts, by default the one that ``default`` names."""
        if self.default is None:
            return Field(default_factory=list, description=self.description)
        return Field(default_factory=lambda: [self.kind.make(self.default)], min_length=1, description=self.description)

    def of(self, configuration: object) -> Any:
        """Return the part of this kind that a configuration, or the record of one, has."""
        return getattr(configuration, self.field)

    def has(self, retrieval: Any) -> bool:
        """Tell whether a configuration that retrieves like this has such a part."""
        return not self.beside and (not self.by_vector or searches_by_vector(retrieval))


SECTIONS = {
    "chunkers": PartSection("chunker", CHUNKER, "How documents are cut; needed unless there is a system."),
    "context": PartSection(
        "context", CONTEXT, "What is searched around a chunk, and not returned.", default="none", plain="none"
    ),
    "retrieval": PartSection("retrieval", RETRIEVER, "How chunks are found.", default="vector"),
    "embedders": PartSection(
        "embedder", EMBEDDER, "What turns texts into vectors.", default="local", plain="local", by_vector=True
    ),
    "stores": PartSection(
        "store",
        STORE,
        "What searches the vectors. The indexes of LanceDB are kept for later runs, of other stores the hits.",
        default="lancedb",
        plain="lancedb exact",
        by_vector=True,
    ),
    "queries": PartSection(
        "queries", REWRITER, "What is searched in the place of a question.", default="as-asked", plain="none"
    ),
    "selection": PartSection(
        "selection", SELECTION, "Which documents are searched, and which hits are kept.", default="none", plain="none"
    ),
    "rerankers": PartSection(
        "reranker", RERANKER, "What puts the chunks found into a better order.", default="none", plain="none"
    ),
    "returns": PartSection(
        "returns", PASSAGE, "What is returned for a hit, scored and paid for.", default="hit", plain="none"
    ),
    "system": PartSection("system", SYSTEM, "Whole retrieval systems, ranked beside the configurations.", beside=True),
}
"""The sections of a benchmark that list parts, in the order of the grid: the first changes slowest."""

AXES = [one for one in SECTIONS.values() if not one.beside]
MODE = AXES.index(SECTIONS["retrieval"])

ChunkerPart = Annotated[PositionAwareChunker, PartOf(CHUNKER)]
EmbedderPart = Annotated[Embedder, PartOf(EMBEDDER)]
StorePart = Annotated[VectorStore, PartOf(STORE)]
RetrieverPart = Annotated[Any, PartOf(RETRIEVER)]
RerankerPart = Annotated[Reranker | None, PartOf(RERANKER)]
ContextPart = Annotated[Any, PartOf(CONTEXT)]
QueriesPart = Annotated[Any, PartOf(REWRITER)]
SelectionPart = Annotated[Selection | None, PartOf(SELECTION)]
ReturnsPart = Annotated[Any, PartOf(PASSAGE)]
SystemPart = Annotated[Any, PartOf(SYSTEM)]


class _Named(Settings):
    """What a configuration and the record of one have in common."""

    @property
    def name(self) -> str:
        """What no other configuration is called: chunker and mode, then the parts that are not the default."""
        if (system := SECTIONS["system"].of(self)) is not None:
            return label(system)
        always = [label(one.of(self)) for one in AXES if one.plain is None]
        told = [(label(part), one.plain) for one in AXES if one.plain and (part := one.of(self)) is not None]
        return ", ".join([*always, *(text for text, plain in told if text != plain)])


class ConfigurationRecord(_Named):
    """A configuration as a run keeps it: what its parts were called, their settings and digests."""

    chunker: PartRecord | None = None
    context: PartRecord | None = None
    retrieval: PartRecord | None = None
    embedder: PartRecord | None = None
    store: PartRecord | None = None
    queries: PartRecord | None = None
    selection: PartRecord | None = None
    reranker: PartRecord | None = None
    returns: PartRecord | None = None
    system: PartRecord | None = None


class Configuration(_Named):
    """One way to chunk, search and rerank, or a whole system in the place of all of it.

    What does not search by vectors has neither embedder nor store. Without the others chunks and questions are searched
    as they are, all hits are kept, nothing is reranked, and the hits themselves are returned.
    """

    chunker: ChunkerPart | None = None
    context: ContextPart = None
    retrieval: RetrieverPart | None = None
    embedder: EmbedderPart | None = None
    store: StorePart | None = None
    queries: QueriesPart = None
    selection: SelectionPart = None
    reranker: RerankerPart = None
    returns: ReturnsPart = None
    system: SystemPart | None = None

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if self.system is not None:
            if any(one.of(self) is not None for one in AXES):
                raise ValueError("a whole system has no other parts: leave them None")
            return self
        if self.chunker is None or self.retrieval is None:
            raise ValueError("a configuration needs a chunker and how it retrieves, or a whole system")
        for one in AXES:
            given, is_used = one.of(self), one.has(self.retrieval)
            if not is_used and given is not None:
                raise ValueError(f"{label(self.retrieval)} has no {one.field}: leave it None")
            if is_used and given is None and None not in one.kind.types.values():
                raise ValueError(f"{label(self.retrieval)} lacks its {one.field}: give one")
        return self

    @property
    def searches(self) -> list[Any]:
        """The retrievers of which the rankings are fused; the one where there is one."""
        return self.retrieval.retrievers if isinstance(self.retrieval, HybridSearch) else [self.retrieval]

    def record(self) -> ConfigurationRecord:
        """Return what a run keeps of it."""
        had = [one for one in SECTIONS.values() if one.beside == (self.system is not None)]
        parts = [one for one in had if one.beside or one.has(self.retrieval)]
        return ConfigurationRecord.model_validate({one.field: PartRecord.of(one.kind, one.of(self)) for one in parts})


def check_level(level: EvaluationType, returns: Sequence[Any]) -> None:
    """Raise ``ConfigurationError`` where more than chunks is returned and scored by the ids of chunks."""
    if level == "chunk-level" and any(one is not None for one in returns):
        raise ConfigurationError(
            "returns gives more text than a chunk, and the ground truth of chunk-level evaluation is ids of chunks: "
            "leave returns out, or evaluate at token level"
        )


def check_fetch_k(selection: Selection | None, k: int) -> None:
    """Raise ``ConfigurationError`` where a selection has fewer candidates fetched than count."""
    if selection is not None and selection.fetch_k is not None and selection.fetch_k < k:
        raise ConfigurationError(
            f"a selection has fetch_k {selection.fetch_k} and the largest k is {k}: fetch at least as many"
        )


def _deepest(data: Mapping[str, Any]) -> int:
    """Return how many hits count at most: the largest of k, of the objective's cut and of the metrics' cuts."""
    names = [*(metric_column(one) for one in data.get("metrics", [])), data.get("objective", "")]
    depths: list[int] = [*data.get("k", [1]), *(split_name(name)[1].hits or 1 for name in names)]
    return max(depths)


def _check_path(path: object) -> object:
    if isinstance(path, str) and (not path or "\0" in path):
        raise ValueError(f"expected a path, found the text {path!r}")
    return path


LONGEST_NAME = 40


def _check_name(name: str) -> str:
    if name != slug(name, LONGEST_NAME):
        raise ValueError(f"expected at most {LONGEST_NAME} of a-z, 0-9 and - in between, found {preview(name)}")
    return name


def _check_target(target: str) -> str:
    # Not quoted: it may be the address itself, which is a secret.
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*|[a-z0-9-]+/[a-z0-9-]+", target):
        raise ValueError(
            "expected the name of an environment variable that holds the address of a webhook or of mail, such as "
            "NIGHTLY_WEBHOOK, or a notification block of Prefect, such as slack-webhook/team"
        )
    return target


def _check_cost(text: str) -> str:
    try:
        CostLimit.parse(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return text


InputPath = Annotated[Path, BeforeValidator(_check_path)]


class BenchmarkConfig(Settings):
    """Documents, the truth about them, and the ways to compare."""

    corpus: InputPath = Field(description="The folder of the documents.")
    glob: Glob = Field(default="**/*.md", description="Which files of the folder are documents; a pattern or several.")
    loaders: dict[StrictStr, Annotated[Any, PartOf(LOADER)]] = Field(
        default={}, description="What reads which files, by suffix or pattern, such as {.pdf: my_module:MyLoader}."
    )
    ground_truth: Annotated[list[Any], TruthSources()] = Field(
        description="Where the questions and what answers them come from: a file, {langsmith: name}, "
        "{generate: {model: …}}, or a list of these, which is joined."
    )
    evaluation_type: EvaluationType = Field(default="token-level", description="What is scored: spans, or chunk ids.")
    chunkers: list[ChunkerPart] = SECTIONS["chunkers"].listed()
    context: list[ContextPart] = SECTIONS["context"].listed()
    retrieval: list[RetrieverPart] = SECTIONS["retrieval"].listed()
    embedders: list[EmbedderPart] = SECTIONS["embedders"].listed()
    stores: list[StorePart] = SECTIONS["stores"].listed()
    queries: list[QueriesPart] = SECTIONS["queries"].listed()
    selection: list[SelectionPart] = SECTIONS["selection"].listed()
    rerankers: list[RerankerPart] = SECTIONS["rerankers"].listed()
    returns: list[ReturnsPart] = SECTIONS["returns"].listed()
    system: list[SystemPart] = SECTIONS["system"].listed()
    k: list[Annotated[StrictInt, Field(ge=1, le=LARGEST_CUT)]] = Field(
        default=[5], min_length=1, description="How many hits count, in increasing order."
    )
    metrics: list[Metric] = Field(
        default_factory=lambda data: DEFAULT_METRICS[data.get("evaluation_type", "token-level")],
        min_length=1,
        description="What is measured, at every k unless it names a cut, such as span_iou@2000tokens; default: recall, "
        "precision and IoU or F1.",
    )
    budget: StrictInt | None = Field(
        default=None,
        ge=1,
        le=LARGEST_CUT,
        description=f"How many tokens of context a question may cost; null: {BUDGET:,}.",
    )
    objective: Annotated[StrictStr, AfterValidator(check_objective)] = Field(
        default_factory=lambda data: score_name(RecallWithinTokens.label, "tokens", data.get("budget") or BUDGET),
        description="What configurations are ranked by: a metric, within the budget unless it names a cut, such as "
        "span_recall@5; of yours its name without the module, such as found_anything. Default: recall_within_tokens.",
    )
    fetch_k: StrictInt | None = Field(
        default=None,
        ge=1,
        description="How many candidates are selected, fused or reranked, unless a selection says so for itself; null: "
        "ten times k, at least 50, and as many hits as fill 16,000 tokens, of which no more are reranked.",
    )
    copies: Annotated[Copies, BeforeValidator(read_copies)] = Field(
        default="exact",
        description="Which copies of a relevant span elsewhere in the corpus count as found: exact ones, off for none, "
        "or {near: 0.9} for those of such a similarity too.",
    )
    shards: Annotated[StrictInt, Field(ge=1, le=MOST_SHARDS)] | None = Field(
        default=None,
        description="How many parts the documents are divided into, each of which is computed and kept by itself; "
        "null: one for about 2 MB of documents, up to 64. The results are the same.",
    )
    search: Search = Field(
        default="full",
        description="Which configurations are evaluated: full, all; guided, those of the chunkings that a guide ranks "
        "first, before anything is embedded.",
    )
    holdout: Annotated[StrictFloat, Field(ge=0, lt=1)] = Field(
        default=0.0, description="The share of the documents whose questions the search does not see, to judge it by."
    )
    max_cost: Annotated[StrictStr, AfterValidator(_check_cost)] | None = Field(
        default=None,
        description="The most to embed, such as 500,000 tokens or 2.50 USD: a guided search stays below it, and before "
        "a full one begins it is asked.",
    )
    langsmith_dataset: Name | None = Field(
        default=None, description="The LangSmith dataset that gets an experiment for every configuration."
    )
    name: Annotated[StrictStr, AfterValidator(_check_name)] | None = Field(
        default=None,
        description="What the benchmark is called, on a Prefect server and for its baseline; null: as its file, or its "
        "folder if that is benchmark.yaml.",
    )
    notify: list[Annotated[StrictStr, AfterValidator(_check_target)]] = Field(
        default_factory=list,
        description="Who is told of failed and recovered runs of the service: names of environment variables that "
        "hold the address of a webhook or of mail, or notification blocks of Prefect.",
    )

    @field_validator("k")
    @classmethod
    def _check_k(cls, k: list[int]) -> list[int]:
        if sorted(set(k)) != k:
            raise ValueError(f"expected numbers in increasing order, each once, found {k}")
        return k

    @field_validator("metrics")
    @classmethod
    def _check_metrics(cls, metrics: list[Any]) -> list[Any]:
        names = [metric_column(one) for one in metrics]
        for place, metric in enumerate(names):
            if metric in names[:place]:
                raise ValueError(f"{metric} stands twice: ask for each metric once")
        return metrics

    @field_validator("fetch_k")
    @classmethod
    def _check_fetch_k(cls, fetch_k: int | None, info: ValidationInfo) -> int | None:
        largest = _deepest(info.data)
        if fetch_k is not None and fetch_k < largest:
            raise ValueError(f"fetch_k is {fetch_k} and the largest k is {largest}: fetch at least as many")
        return fetch_k

    @model_validator(mode="after")
    def _check_count(self) -> Self:
        if not self.chunkers and not self.system:
            raise ValueError("there is nothing to compare: give chunkers, or a system")
        try:
            check_level(self.evaluation_type, self.returns)
            for selection in self.selection:
                check_fetch_k(selection, _deepest(dict(self)))
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        for key, section in SECTIONS.items():
            named: dict[str, Any] = {}
            for part in self._axes.get(section, getattr(self, key)):
                if without(named.setdefault(label(part), part), Running) != without(part, Running):
                    raise ValueError(
                        f"two of the {key} are called {label(part)}: give each a name or a file of its own"
                    )
        sizes = {one.field: len(set(listed)) for one, listed in self._axes.items()}
        others = [one for one in AXES if one.field != "retrieval"]
        count = sum(math.prod(sizes[one.field] for one in others if one.has(mode)) for mode in set(self.retrieval))
        if count > MAX_CONFIGURATIONS:
            raise ValueError(f"the grid has {count:,} configurations: at most {MAX_CONFIGURATIONS:,} are run at once")
        return self

    @property
    def _axes(self) -> dict[PartSection, list[Any]]:
        return {one: getattr(self, key) for key, one in SECTIONS.items() if not one.beside}

    @property
    def corpus_shards(self) -> int | None:
        """How many shards the documents are divided into; chunk ids are checked against all chunks at once."""
        return 1 if self.evaluation_type == "chunk-level" else self.shards

    def configurations(self) -> list[Configuration]:
        """Return every way to compare, each once: the sections in their order, the first changing slowest.

        Of parts that differ in settings of running alone, the first is taken: they make the same.
        """
        is_used = any(map(searches_by_vector, self.retrieval))
        axes = [listed if is_used or not one.by_vector else [None] for one, listed in self._axes.items()]
        ways: dict[tuple[Any, ...], dict[str, Any]] = {}
        for parts in product(*axes):
            way = {one.field: part for one, part in zip(AXES, parts, strict=True) if one.has(parts[MODE])}
            ways.setdefault(tuple(without(part, Running) for part in way.values()), way)
        for system in self.system:
            ways.setdefault((without(system, Running),), {"system": system})
        return [Configuration.model_validate(way) for way in ways.values()]

    def parts(self) -> list[Any]:
        """Return all parts that are listed, in the order of their keys, and the user's metrics."""
        own = [one for one in self.metrics if not isinstance(one, str)]
        return [*self.loaders.values(), *(part for key in SECTIONS for part in getattr(self, key)), *own]

    def notices(self) -> list[str]:
        """Return what to know of parts before they run: a key that is missing, code that cannot be known."""
        return notices([*self.ground_truth, *self.parts()])


PartsData = list[dict[str, Any]]
"""The parts of a section, each as ``type`` and settings."""


class BenchmarkRecord(Settings):
    """A benchmark as a run keeps it; the fields are those of ``BenchmarkConfig``, read without importing a part."""

    corpus: Path
    glob: str | list[str]
    loaders: dict[str, dict[str, Any]]
    ground_truth: Path | PartsData
    evaluation_type: EvaluationType
    chunkers: PartsData
    context: PartsData
    retrieval: PartsData
    embedders: PartsData
    stores: PartsData
    queries: PartsData
    selection: PartsData
    rerankers: PartsData
    returns: PartsData
    system: PartsData
    k: list[int]
    metrics: list[str]
    budget: int | None
    objective: str
    fetch_k: int | None
    copies: Copies
    shards: int | None
    search: str
    holdout: float
    max_cost: str | None
    langsmith_dataset: str | None
    name: str | None
    notify: list[str]

    @classmethod
    def of(cls, config: BenchmarkConfig) -> "BenchmarkRecord":
        """Return what a run keeps of a benchmark; its metrics by name."""
        return cls.model_validate(config.model_dump() | {"metrics": [metric_column(one) for one in config.metrics]})
