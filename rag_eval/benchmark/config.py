"""What a benchmark is to compare."""

from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

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

from rag_eval.chunking import CHUNKER
from rag_eval.chunking.chunker import PositionAwareChunker
from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.embedder import Embedder
from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import choices, suggestion
from rag_eval.metrics.metric import LARGEST_CUT, MetricName, metric_names, metric_of, parse_metric_name
from rag_eval.parts import PartOf, PartRecord, label
from rag_eval.parts.settings import Name, Settings
from rag_eval.retrieval import RERANKER
from rag_eval.retrieval.retriever import Reranker
from rag_eval.stores import STORE
from rag_eval.stores.store import VectorStore
from rag_eval.tokens import check_encoding
from rag_eval.types.ids import EvaluationType

THREADS = "threads"
NEEDED = {THREADS: None, "processes": None, "dask": "prefect_dask", "ray": "prefect_ray"}
"""The task runners, each with the package it needs besides; the extra that brings it has the runner's name."""


def check_runner(name: str) -> None:
    """Raise ``ConfigurationError`` when there is no such runner, or what it needs is not installed."""
    if name not in NEEDED:
        raise ConfigurationError(
            f"there is no runner {preview(name)}{suggestion(name, NEEDED)}: {choices(NEEDED, name)}"
        )
    package = NEEDED[name]
    if package is not None and find_spec(package) is None:
        raise ConfigurationError(f"the runner {name} is not installed: pip install 'rag-eval[{name}]'")


METRICS: dict[EvaluationType, list[str]] = {
    "token-level": [name for name in metric_names("token-level") if metric_of(name).number == "hits"],
    "chunk-level": [name for name in metric_names("chunk-level") if metric_of(name).number == "hits"],
}
"""The metrics that can be asked for in each evaluation type; those at token budgets come with every run."""

DEFAULT_METRICS: dict[EvaluationType, list[str]] = {
    "token-level": ["span_recall", "span_precision", "span_iou"],
    "chunk-level": ["chunk_recall", "chunk_precision", "chunk_f1"],
}
"""What is measured unless something else is asked for."""


RetrievalMode = Literal["vector", "bm25", "hybrid"]

MAX_CONFIGURATIONS = 1_000
"""More than that is taken for a mistake in a grid."""

SECTIONS = {"chunkers": CHUNKER, "embedders": EMBEDDER, "stores": STORE, "rerankers": RERANKER}
"""The sections of a benchmark that list parts."""

DEFAULTS = {"embedder": "local", "store": "lancedb exact", "reranker": "none"}
"""The labels that the name of a configuration leaves out."""

ChunkerPart = Annotated[PositionAwareChunker, PartOf(CHUNKER)]
EmbedderPart = Annotated[Embedder, PartOf(EMBEDDER)]
StorePart = Annotated[VectorStore, PartOf(STORE)]
RerankerPart = Annotated[Reranker | None, PartOf(RERANKER)]


class _Named(Settings):
    """What a configuration and the record of one have in common."""

    chunker: Any
    retrieval: str
    embedder: Any
    store: Any
    reranker: Any

    @property
    def name(self) -> str:
        """What no other configuration is called: chunker and mode, then the parts that are not the default."""
        parts = [(kind, getattr(self, kind)) for kind in DEFAULTS]
        others = [label(part) for kind, part in parts if part is not None and label(part) != DEFAULTS[kind]]
        return ", ".join([label(self.chunker), self.retrieval, *others])


class ConfigurationRecord(_Named):
    """A configuration as a run keeps it: what its parts were called, their settings and digests."""

    chunker: PartRecord
    retrieval: str
    embedder: PartRecord | None
    store: PartRecord | None
    reranker: PartRecord


class Configuration(_Named):
    """One way to chunk, search and rerank; BM25 has neither embedder nor store, and None reranks nothing."""

    chunker: ChunkerPart
    retrieval: RetrievalMode
    embedder: EmbedderPart | None
    store: StorePart | None
    reranker: RerankerPart

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        for part, given in (("embedder", self.embedder), ("store", self.store)):
            if self.retrieval == "bm25" and given is not None:
                raise ValueError(f"bm25 has no {part}: leave it None")
            if self.retrieval != "bm25" and given is None:
                raise ValueError(f"{self.retrieval} lacks its {part}: give one")
        return self

    def record(self) -> ConfigurationRecord:
        """Return what a run keeps of it."""
        return ConfigurationRecord(
            chunker=PartRecord.of(CHUNKER, self.chunker),
            retrieval=self.retrieval,
            embedder=None if self.embedder is None else PartRecord.of(EMBEDDER, self.embedder),
            store=None if self.store is None else PartRecord.of(STORE, self.store),
            reranker=PartRecord.of(RERANKER, self.reranker),
        )


def _check_path(path: object) -> object:
    if isinstance(path, str) and (not path or "\0" in path):
        raise ValueError(f"expected a path, found the text {path!r}")
    return path


def _check_metric(text: str, info: ValidationInfo) -> str:
    """The metric's name as it is printed; a number of hits is for ``k`` to say."""
    if "evaluation_type" not in info.data:  # it has an error of its own
        return text
    level = info.data["evaluation_type"]
    try:
        name = MetricName.parse(text)
        other = next(one for one in METRICS if one != level)
        if name.base not in METRICS[level] and name.base in METRICS[other]:
            raise ValueError(
                f"{preview(text)} is a metric of {other} evaluation and evaluation_type is {level}: "
                f"{choices(METRICS[level])}"
            )
        name = parse_metric_name(text, METRICS[level])
        if name.unit is not None:
            check_encoding(name.unit)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    if name.cut.kind == "hits":
        raise ValueError(f"{preview(text)} names a number of hits: write {name.column} and put {name.cut.size} into k")
    if name.cut.kind == "tokens":
        raise ValueError(f"{preview(text)} names a budget of tokens: every run has those, leave it out")
    return str(name)


InputPath = Annotated[Path, BeforeValidator(_check_path)]
Metric = Annotated[StrictStr, AfterValidator(_check_metric)]


class BenchmarkConfig(Settings):
    """Documents, the truth about them, and the ways to compare."""

    corpus: InputPath = Field(description="The folder of the documents.")
    glob: Name = Field(default="**/*.md", description="Which files of the folder are documents.")
    ground_truth: InputPath = Field(description="The file of questions and what answers them.")
    evaluation_type: EvaluationType = Field(default="token-level", description="What is scored: spans, or chunk ids.")
    chunkers: list[ChunkerPart] = Field(min_length=1, description="How documents are cut.")
    embedders: list[EmbedderPart] = Field(
        default_factory=lambda: [EMBEDDER.make("local")], min_length=1, description="What turns texts into vectors."
    )
    stores: list[StorePart] = Field(
        default_factory=lambda: [STORE.make("lancedb")],
        min_length=1,
        description="What searches the vectors. The indexes of LanceDB are kept for later runs, of other stores the "
        "hits.",
    )
    retrieval: list[RetrievalMode] = Field(default=["vector"], min_length=1, description="How chunks are found.")
    rerankers: list[RerankerPart] = Field(
        default=[None], min_length=1, description="What puts the chunks found into a better order."
    )
    k: list[Annotated[StrictInt, Field(ge=1, le=LARGEST_CUT)]] = Field(
        default=[5], min_length=1, description="How many hits count, in increasing order."
    )
    metrics: list[Metric] = Field(
        default_factory=lambda data: DEFAULT_METRICS[data.get("evaluation_type", "token-level")],
        min_length=1,
        description="What is measured, without a number of hits; default: recall, precision and IoU or F1.",
    )
    fetch_k: StrictInt | None = Field(
        default=None, ge=1, description="How many candidates are fused or reranked; null: ten times k, at least 50."
    )
    langsmith_dataset: Name | None = Field(
        default=None, description="The LangSmith dataset that gets an experiment for every configuration."
    )

    @field_validator("k")
    @classmethod
    def _check_k(cls, k: list[int]) -> list[int]:
        if sorted(set(k)) != k:
            raise ValueError(f"expected numbers in increasing order, each once, found {k}")
        return k

    @field_validator("metrics")
    @classmethod
    def _check_metrics(cls, metrics: list[str]) -> list[str]:
        for place, metric in enumerate(metrics):
            if metric in metrics[:place]:
                raise ValueError(f"{metric} stands twice: ask for each metric once")
        return metrics

    @field_validator("fetch_k")
    @classmethod
    def _check_fetch_k(cls, fetch_k: int | None, info: ValidationInfo) -> int | None:
        largest = max(info.data.get("k", [1]))
        if fetch_k is not None and fetch_k < largest:
            raise ValueError(f"fetch_k is {fetch_k} and the largest k is {largest}: fetch at least as many")
        return fetch_k

    @model_validator(mode="after")
    def _check_count(self) -> Self:
        modes = set(self.retrieval)
        searched = len(modes - {"bm25"}) * len(set(self.embedders)) * len(set(self.stores))
        count = len(set(self.chunkers)) * len(set(self.rerankers)) * (searched + len(modes & {"bm25"}))
        if count > MAX_CONFIGURATIONS:
            raise ValueError(f"the grid has {count:,} configurations: at most {MAX_CONFIGURATIONS:,} are run at once")
        return self

    def configurations(self) -> list[Configuration]:
        """Every way to compare, each once: chunkers slowest, then modes, embedders, stores and rerankers."""
        ways: dict[Configuration, None] = {}
        for chunker, mode in product(self.chunkers, self.retrieval):
            searched = [(None, None)] if mode == "bm25" else product(self.embedders, self.stores)
            for (embedder, store), reranker in product(searched, self.rerankers):
                way = Configuration(chunker=chunker, retrieval=mode, embedder=embedder, store=store, reranker=reranker)
                ways[way] = None
        return list(ways)


PartsData = list[dict[str, Any]]
"""The parts of a section, each as ``type`` and settings."""


class BenchmarkRecord(Settings):
    """A benchmark as a run keeps it; the fields are those of ``BenchmarkConfig``, read without importing a part."""

    corpus: Path
    glob: str
    ground_truth: Path
    evaluation_type: EvaluationType
    chunkers: PartsData
    embedders: PartsData
    stores: PartsData
    retrieval: list[RetrievalMode]
    rerankers: PartsData
    k: list[int]
    metrics: list[str]
    fetch_k: int | None
    langsmith_dataset: str | None
