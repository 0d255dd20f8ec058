"""Benchmarks and their configurations, as loaded and as a run records them."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
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
from rag_eval.retrieval.engines import check_limit
from rag_eval.retrieval.retriever import Reranker
from rag_eval.retrieval.searching import HybridSearch, searches_by_vector, uses_vectors
from rag_eval.retrieval.selection import Selection
from rag_eval.stores import STORE
from rag_eval.stores.store import VectorStore
from rag_eval.types.ids import EvaluationType

THREADS = "threads"
NEEDED = {THREADS: None, "dask": "prefect_dask", "ray": "prefect_ray"}
"""The task runners and the package that each needs; its extra has the name of the runner."""


def check_runner(name: str) -> None:
    """Raise ``ConfigurationError`` if a task runner is unknown or its package is not installed."""
    if name not in NEEDED:
        raise ConfigurationError(
            f"there is no runner {preview(name)}{suggestion(name, NEEDED)}: {choices(NEEDED, name)}"
        )
    package = NEEDED[name]
    if package is not None and find_spec(package) is None:
        raise ConfigurationError(f"the runner {name} is not installed: {install_command(name)}")


MOST_SHARDS = 4_096
MAX_CONFIGURATIONS = 1_000
"""Largest grid; a larger one is probably a mistake."""


@dataclass(frozen=True)
class PartSection:
    """A section of a benchmark file that lists parts of one kind; the four models below have a field for it.

    Attributes:
        field: The field of a configuration that holds one of the parts.
        kind: The kind of the parts.
        description: What the section is for.
        default: The part of a benchmark without the section; None if it is empty then.
        plain: The label that names of configurations omit; None if they always have the label.
        used_by: Tells whether a retriever uses such a part.
        beside: Whether the parts are whole systems, ranked beside the grid instead of being one of its axes.
    """

    field: str
    kind: Kind
    description: str
    default: str | None = None
    plain: str | None = None
    used_by: Callable[[Any], bool] = lambda retrieval: True
    beside: bool = False

    def listed(self) -> Any:
        """Return the name of the field of a benchmark that lists such parts."""
        if self.default is None:
            return Field(default_factory=list, description=self.description)
        return Field(default_factory=lambda: [self.kind.make(self.default)], min_length=1, description=self.description)

    def of(self, configuration: object) -> Any:
        """Return the part of this section in a configuration or its record."""
        return getattr(configuration, self.field)

    def has(self, retrieval: Any) -> bool:
        """Tell whether a configuration with this retriever has such a part."""
        return not self.beside and self.used_by(retrieval)


SECTIONS = {
    "chunkers": PartSection("chunker", CHUNKER, "How to split documents; required unless there is a system."),
    "context": PartSection(
        "context", CONTEXT, "Context that is searched with a chunk but not returned.", default="none", plain="none"
    ),
    "retrieval": PartSection("retrieval", RETRIEVER, "How to find chunks.", default="vector"),
    "embedders": PartSection(
        "embedder", EMBEDDER, "What computes vectors of texts.", default="local", plain="local", used_by=uses_vectors
    ),
    "stores": PartSection(
        "store",
        STORE,
        "Where to search vectors. Later runs reuse the indexes of LanceDB, and the hits of other stores.",
        default="lancedb",
        plain="lancedb exact",
        used_by=searches_by_vector,
    ),
    "queries": PartSection(
        "queries", REWRITER, "How to rewrite a question before the search.", default="as-asked", plain="none"
    ),
    "selection": PartSection(
        "selection", SELECTION, "Which documents to search, and which hits to keep.", default="none", plain="none"
    ),
    "rerankers": PartSection("reranker", RERANKER, "How to reorder the chunks found.", default="none", plain="none"),
    "returns": PartSection("returns", PASSAGE, "What to return for a hit, and to score.", default="hit", plain="none"),
    "system": PartSection("system", SYSTEM, "Whole retrieval systems, ranked beside the configurations.", beside=True),
}
"""The sections by key, in the order of the grid: the first one varies slowest."""

AXES = [section for section in SECTIONS.values() if not section.beside]
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
    """A configuration or its record."""

    @property
    def name(self) -> str:
        """The unique name: chunker and retriever, then the parts that are not the default."""
        if (system := SECTIONS["system"].of(self)) is not None:
            return label(system)
        always = [label(one.of(self)) for one in AXES if one.plain is None]
        told = [(label(part), one.plain) for one in AXES if one.plain and (part := one.of(self)) is not None]
        return ", ".join([*always, *(text for text, plain in told if text != plain)])


class ConfigurationRecord(_Named):
    """A configuration as a run records it: the names, settings and digests of its parts."""

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

    @property
    def engine(self) -> str | None:
        """What runs the search as it is: a search engine, store or system; None if it is a reference of rag-eval."""
        if self.system is not None:
            return self.system.label
        if self.retrieval is None or self.retrieval.is_reference:
            return None
        searched = self.store or self.retrieval
        return None if searched.is_reference else searched.type


class Configuration(_Named):
    """One way to chunk, search and rerank, or a whole system that does all of it.

    Only vector searches have an embedder and a store. The other parts are optional.
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
                raise ValueError("a whole system has no other parts: remove them")
            return self
        if self.chunker is None or self.retrieval is None:
            raise ValueError("a configuration needs a chunker and a retriever, or a whole system: give them")
        for section in AXES:
            part, is_used = section.of(self), section.has(self.retrieval)
            if not is_used and part is not None:
                raise ValueError(f"{label(self.retrieval)} does not use the {section.field}: remove it")
            if is_used and part is None and None not in section.kind.types.values():
                raise ValueError(f"{label(self.retrieval)} needs the {section.field}: give one")
        return self

    @property
    def searches(self) -> list[Any]:
        """The retrievers whose rankings are fused; a single one if nothing is fused."""
        return self.retrieval.retrievers if isinstance(self.retrieval, HybridSearch) else [self.retrieval]

    def record(self) -> ConfigurationRecord:
        """Return the record of this configuration that a run stores."""
        sections = [section for section in AXES if section.has(self.retrieval)]
        if self.system is not None:
            sections = [SECTIONS["system"]]
        return ConfigurationRecord.model_validate(
            {section.field: PartRecord.of(section.kind, section.of(self)) for section in sections}
        )


def check_level(level: EvaluationType, returns: Sequence[Any]) -> None:
    """Raise ``ConfigurationError`` if a chunk-level benchmark returns more than chunks."""
    if level == "chunk-level" and any(passage is not None for passage in returns):
        raise ConfigurationError("returns applies to token-level evaluation only, and this is chunk-level: remove it")


def check_fetch_k(selection: Selection | None, k: int) -> None:
    """Raise ``ConfigurationError`` if a selection fetches fewer candidates than ``k``."""
    if selection is not None and selection.fetch_k is not None and selection.fetch_k < k:
        raise ConfigurationError(
            f"a selection has fetch_k {selection.fetch_k} and the largest k is {k}: fetch at least as many"
        )


def _deepest(data: Mapping[str, Any]) -> int:
    """Return the largest number of hits that k, the objective or a metric uses."""
    names = [*map(metric_column, data.get("metrics", [])), data.get("objective", "")]
    depths: list[int] = [*data.get("k", [1]), *(split_name(name)[1].hits or 1 for name in names)]
    return max(depths)


def _check_path(path: object) -> object:
    if isinstance(path, str) and (not path or "\0" in path):
        raise ValueError(f"expected a path, found the text {path!r}")
    return path


LONGEST_NAME = 40


def _check_name(name: str) -> str:
    if name != slug(name, LONGEST_NAME):
        raise ValueError(f"expected at most {LONGEST_NAME} characters of a-z, 0-9 and inner -, found {preview(name)}")
    return name


def _check_target(target: str) -> str:
    # Not quoted, because it may be the address itself, which is a secret.
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*|[a-z0-9-]+/[a-z0-9-]+", target):
        raise ValueError(
            "expected the name of an environment variable with a webhook or mail address, such as NIGHTLY_WEBHOOK, or "
            "a Prefect notification block, such as slack-webhook/team"
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
    """Documents, ground truth, and the configurations to compare."""

    corpus: InputPath = Field(description="Folder of documents.")
    glob: Glob = Field(default="**/*.md", description="Files that are documents; one pattern or several.")
    loaders: dict[StrictStr, Annotated[Any, PartOf(LOADER)]] = Field(
        default={}, description="Loaders by suffix or pattern, such as {.pdf: my_module:MyLoader}."
    )
    ground_truth: TruthSources = Field(
        description="Sources of questions and their evidence: a file, {langsmith: name}, {generate: {model: …}}, or "
        "a list of sources to join."
    )
    evaluation_type: EvaluationType = Field(default="token-level", description="Whether to score spans or chunk ids.")
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
        default=[5], min_length=1, description="How many hits count; several numbers in increasing order."
    )
    metrics: list[Metric] = Field(
        default_factory=lambda data: DEFAULT_METRICS[data.get("evaluation_type", "token-level")],
        min_length=1,
        description="Metrics to compute at every k, or at their own cut, such as span_iou@2000tokens; default: "
        "recall, precision, and IoU or F1.",
    )
    budget: StrictInt | None = Field(
        default=None,
        ge=1,
        le=LARGEST_CUT,
        description=f"Tokens of context per question; null: {BUDGET:,}.",
    )
    objective: Annotated[StrictStr, AfterValidator(check_objective)] = Field(
        default_factory=lambda data: score_name(RecallWithinTokens.label, "tokens", data.get("budget") or BUDGET),
        description="Metric that ranks configurations, within the budget or at its own cut, such as span_recall@5; "
        "default: recall_within_tokens. Name your own metric without its module.",
    )
    fetch_k: StrictInt | None = Field(
        default=None,
        ge=1,
        description="Number of candidates to select, fuse and rerank, unless a selection has its own fetch_k; null: "
        "ten times k, at least 50, and enough hits to fill 16,000 tokens (these extra hits are not reranked).",
    )
    copies: Annotated[Copies, BeforeValidator(read_copies)] = Field(
        default="exact",
        description="Which copies of a relevant span elsewhere in the corpus count as found: exact or off.",
    )
    shards: Annotated[StrictInt, Field(ge=1, le=MOST_SHARDS)] | None = Field(
        default=None,
        description="Number of shards of documents, which are cached separately; null: one per 2 MB, at most 64. "
        "Does not change results.",
    )
    search: Search = Field(
        default="full",
        description="Configurations to evaluate: all (full), or those of the chunkings that a guide ranks first "
        "without embeddings (guided).",
    )
    max_cost: Annotated[StrictStr, AfterValidator(_check_cost)] | None = Field(
        default=None,
        description="Most to embed, such as 500,000 tokens or 2.50 USD: a guided search stays below it, and a full "
        "search that would exceed it is refused.",
    )
    langsmith_dataset: Name | None = Field(
        default=None, description="LangSmith dataset to publish runs to, one experiment per configuration."
    )
    name: Annotated[StrictStr, AfterValidator(_check_name)] | None = Field(
        default=None,
        description="Name on the Prefect server and of the baseline; null: the name of the file, or of its folder "
        "if the file is benchmark.yaml.",
    )
    notify: list[Annotated[StrictStr, AfterValidator(_check_target)]] = Field(
        default_factory=list,
        description="Who is notified when runs of the service fail or recover: environment variables with webhook "
        "or mail addresses, or Prefect notification blocks.",
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
        names = list(map(metric_column, metrics))
        for place, metric in enumerate(names):
            if metric in names[:place]:
                raise ValueError(f"{metric} is listed twice: remove one")
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
            raise ValueError("nothing to compare: add chunkers or a system")
        try:
            check_level(self.evaluation_type, self.returns)
            for selection in self.selection:
                check_fetch_k(selection, _deepest(dict(self)))
            for searched in (*self.retrieval, *self.system):
                check_limit(searched, _deepest(dict(self)))
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        for key, section in SECTIONS.items():
            named: dict[str, Any] = {}
            for part in self._axes.get(section, getattr(self, key)):
                if without(named.setdefault(label(part), part), Running) != without(part, Running):
                    raise ValueError(f"two of the {key} are named {label(part)}: give one another name or file")
        sizes = {one.field: len(set(listed)) for one, listed in self._axes.items()}
        others = [one for one in AXES if one.field != "retrieval"]
        count = sum(math.prod(sizes[one.field] for one in others if one.has(mode)) for mode in set(self.retrieval))
        if count > MAX_CONFIGURATIONS:
            raise ValueError(f"the grid has {count:,} configurations: reduce it to at most {MAX_CONFIGURATIONS:,}")
        return self

    @property
    def _axes(self) -> dict[PartSection, list[Any]]:
        return {one: getattr(self, key) for key, one in SECTIONS.items() if not one.beside}

    @property
    def corpus_shards(self) -> int | None:
        """The number of shards of documents; chunk-level evaluation checks ids against all chunks at once."""
        return 1 if self.evaluation_type == "chunk-level" else self.shards

    def configurations(self) -> list[Configuration]:
        """Return every distinct configuration; the first section varies slowest.

        Of parts that differ only in ``Running`` settings, which do not change results, the first is used.
        """
        axes = [listed if any(map(one.has, self.retrieval)) else [None] for one, listed in self._axes.items()]
        ways: dict[tuple[Any, ...], dict[str, Any]] = {}
        for parts in product(*axes):
            way = {one.field: part for one, part in zip(AXES, parts, strict=True) if one.has(parts[MODE])}
            ways.setdefault(tuple(without(part, Running) for part in way.values()), way)
        for system in self.system:
            ways.setdefault((without(system, Running),), {"system": system})
        return [Configuration.model_validate(way) for way in ways.values()]

    def parts(self) -> list[Any]:
        """Return all listed parts in the order of their keys, and the user's metrics."""
        own = [metric for metric in self.metrics if not isinstance(metric, str)]
        return [*self.loaders.values(), *(part for key in SECTIONS for part in getattr(self, key)), *own]

    def notices(self) -> list[str]:
        """Return warnings about parts, such as a missing API key."""
        return notices([*self.ground_truth, *self.parts()])


PartsData = list[dict[str, Any]]
"""The parts of a section, each as ``type`` and settings."""


class BenchmarkRecord(Settings):
    """A benchmark as a run records it: the fields of ``BenchmarkConfig``, readable without importing any part."""

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
    max_cost: str | None
    langsmith_dataset: str | None
    name: str | None
    notify: list[str]

    @classmethod
    def of(cls, config: BenchmarkConfig) -> "BenchmarkRecord":
        """Return the record of a benchmark that a run stores."""
        return cls.model_validate(config.model_dump() | {"metrics": list(map(metric_column, config.metrics))})
