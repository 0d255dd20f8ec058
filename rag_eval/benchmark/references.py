"""Handles on what is kept in a workspace and on what is read from outside it: where it is, and its digest."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema

from rag_eval.benchmark.config import BenchmarkConfig
from rag_eval.benchmark.objective import measured_by, metric_column
from rag_eval.disk.files import data_sha256, files_sha256, kept_sha256, matching_files, stays_inside, unreadable
from rag_eval.documents.reading import Loaders
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.metrics.metric import largest_budget, largest_hits, requested_metrics
from rag_eval.parts import PartRecord
from rag_eval.retrieval.retriever import candidates_for
from rag_eval.tables import has_places
from rag_eval.types.ids import EvaluationType


def _inside(uri: str) -> str:
    if not stays_inside(uri):
        raise ValueError(f"{uri!r} is not a place inside the workspace")
    return uri


WorkspaceUri = Annotated[str, AfterValidator(_inside)]
"""A place in a workspace, relative to it, with ``/``; no other place can be written down as one."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Reference(_Frozen):
    """Something that is known by its digest, which goes into a cache key."""

    digest: str

    @property
    def key_data(self) -> dict[str, Any]:
        """What of it goes into a cache key."""
        return {"digest": self.digest}


class Effort(_Frozen):
    """What a stage took when it ran: ``fresh`` of ``total`` units had to be done, the rest was kept from before.

    ``tokens`` is what models read and ``cost`` what they charged for it, in US dollars: None where that is not known.
    ``query_seconds`` is the part of a search or a reranking that grows with the queries: no reading of tables, no
    building of an index, and no embedding of queries, whose vectors are kept from run to run. ``skipped`` is how many
    pieces of a chunker have no sure place in their document and were left out; ``fallbacks`` how often what was to be
    made could not be, and what it was to be made of stands in its place; ``unfinished`` how many of those left out
    another run may not leave out, for which such work is not kept. ``recall`` is the share of the exact nearest
    that an approximate search found, on a sample of the searches; None where a search is exact.
    """

    fresh: int
    total: int
    unit: str
    seconds: float = 0.0
    tokens: int | None = 0
    cost: float | None = 0.0
    query_seconds: float = 0.0
    skipped: int = 0
    fallbacks: int = 0
    unfinished: int = 0
    recall: float | None = None

    @classmethod
    def of(cls, count: int, unit: str, **others: Any) -> "Effort":
        """What it took to do all of so many units."""
        return cls(fresh=count, total=count, unit=unit, **others)

    @classmethod
    def total_of(cls, efforts: "Sequence[Effort]") -> "Effort":
        """The sum of at least one effort in the same unit; the lowest recall."""
        parts = {name: [getattr(one, name) for one in efforts] for name in cls.model_fields if name != "unit"}
        recalls = [one for one in parts.pop("recall") if one is not None]
        sums: dict[str, Any] = {name: None if None in values else sum(values) for name, values in parts.items()}
        return cls(unit=efforts[0].unit, recall=min(recalls, default=None), **sums)


class Made(_Frozen):
    """What a stage made, with when that began, what it took, and the digest of what it was read from outside.

    All of these are kept with it and are no part of a key.
    """

    made: AwareDatetime | None = None
    effort: Effort | None = None
    source: str | None = None


def effort_of(result: Made | Sequence[Made]) -> Effort | None:
    """What a stage's result took, over all its shards; None where one of them does not say."""
    efforts = [one.effort for one in ([result] if isinstance(result, Made) else result)]
    known = [effort for effort in efforts if effort is not None]
    return Effort.total_of(known) if known and len(known) == len(efforts) else None


class TableRef(Made, Reference):
    """A table in the workspace: where, the sha256 of its file, how many rows."""

    uri: WorkspaceUri
    rows: int


def digest_of(shards: Sequence[TableRef]) -> str:
    """The digest of a table in shards; that of one shard is its own."""
    return shards[0].digest if len(shards) == 1 else data_sha256([shard.digest for shard in shards])


class IndexRef(Made, Reference):
    """A LanceDB index in the workspace: where, the digest of what it was made from, how many rows and bytes.

    The digest is the same whenever the index is built again; the checksum covers the bytes of this build.
    """

    uri: WorkspaceUri
    rows: int
    size: int
    checksum: str


class TruthRef(Made):
    """Ground truth in the workspace: every query, and the spans or chunk ids of the answerable ones."""

    evaluation_type: EvaluationType
    queries: TableRef
    answers: TableRef


class CorpusSource(Reference):
    """A folder of documents outside the workspace, as it was when its digest was taken, and what reads its files."""

    folder: Path
    glob: str | list[str]
    loaders: dict[str, PartRecord] = Field(default_factory=dict)
    """Those of its files, by the suffix or pattern that chooses them; others are text as they are."""
    reading: Any = Field(default_factory=Loaders, exclude=True, repr=False)
    names: list[str] | None = Field(default=None, exclude=True)
    """Those of some of its files, where it is not all of them."""

    @property
    def key_data(self) -> dict[str, Any]:
        return {"digest": self.digest, "loaders": {chosen: one.digest for chosen, one in self.loaders.items()}}

    @classmethod
    def of(cls, folder: Path, glob: str | list[str], loaders: Mapping[str, Any] | None = None) -> "CorpusSource":
        """The folder as it is now; raises ``CorpusError`` when it is missing, unreadable or nothing matches."""
        paths, reading = matching_files(folder, glob), Loaders(loaders)
        used = reading.used(path.relative_to(folder).as_posix() for path in paths)
        try:
            return cls(folder=folder, glob=glob, digest=files_sha256(folder, paths), loaders=used, reading=reading)
        except OSError as error:
            raise unreadable(Path(error.filename or folder), error) from None

    def part(self, names: list[str]) -> "CorpusSource":
        """Return some of its files as they are now."""
        paths, used = [self.folder / name for name in names], self.reading.used(names)
        digest = files_sha256(self.folder, paths, kept_sha256)
        return self.model_copy(update={"names": names, "digest": digest, "loaders": used})


class TruthSource(Reference):
    """Where the ground truth of a run came from: a file as it was, or sources by name and what was joined of them."""

    path: Path | None = None
    name: str = ""

    @classmethod
    def of(cls, config: BenchmarkConfig, truth: TruthRef) -> "TruthSource":
        """The sources of a benchmark of which this is the truth."""
        files = [one.path for one in config.ground_truth if isinstance(one, FileTruth)]
        if len(config.ground_truth) == 1 and files and truth.source is not None:
            return cls(path=files[0], name=str(files[0]), digest=truth.source)
        name = ", ".join(one.title for one in config.ground_truth)
        return cls(name=name, digest=data_sha256([truth.queries.digest, truth.answers.digest]))


class Observation(Reference):
    """A source of ground truth as it was when it was looked at, with what was found."""

    source: Any
    level: EvaluationType
    found: Any

    @classmethod
    def of(cls, source: Any, level: EvaluationType) -> "Observation":
        found = source.observe(level)
        return cls(digest=found.digest, source=source, level=level, found=found)

    def renewed(self) -> "Observation":
        """The source as it is after it was read: another one only where reading it makes it grow."""
        return Observation.of(self.source, self.level) if getattr(self.source, "grows", False) else self


MOST_HITS = 500
"""However small the chunks are, no more hits are fetched for a budget."""

_CHARACTERS = 6
"""So many characters of a chunk are a token at least, so that as many hits as that asks for fill a budget."""


class SearchDepth(_Frozen):
    """How many hits are fetched: so many ``candidates``, which is what is reranked, and enough to fill ``tokens``."""

    candidates: int
    tokens: int


def hits_to_fetch(depth: int | SearchDepth | pa.Table, chunks: Sequence[pa.Table]) -> int:
    """The number of hits that a depth is among the chunks of all shards; of one where it is in a table already."""
    if isinstance(depth, int):
        return depth
    if isinstance(depth, pa.Table):
        known: int = depth.column("hits")[0].as_py()
        return known
    total, count = 0, 0
    for shard in chunks:
        ends = (shard.column(name) for name in ("end", "start"))
        lengths = pc.subtract(*ends) if has_places(shard) else pc.utf8_length(shard.column("content"))
        total, count = total + (pc.sum(lengths).as_py() or 0), count + shard.num_rows
    fitting = math.ceil(_CHARACTERS * depth.tokens / max(1.0, total / count if count else 1.0))
    return max(depth.candidates, min(fitting, MOST_HITS))


class BenchmarkInputs(BaseModel):
    """Documents and truth by reference, and what is asked of every configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: list[TableRef]
    truth: TruthRef
    metrics: list[Annotated[Any, PlainSerializer(metric_column, return_type=str), WithJsonSchema({"type": "string"})]]
    """Names of built-in metrics, and users' metrics, of which a run keeps the names."""
    ks: list[int]
    depth: int | SearchDepth
    """How many hits are fetched: ``fetch_k``, or else enough to be fused or reranked and to fill the largest budget.
    It is the same for all configurations of a chunker, so that what one has searched another can use."""

    @classmethod
    def of(cls, config: BenchmarkConfig, documents: list[TableRef], truth: TruthRef) -> "BenchmarkInputs":
        measured = measured_by(config.metrics, config.k, config.objective, config.evaluation_type, config.budget)
        asked = requested_metrics(measured, config.k, config.evaluation_type)
        depth: int | SearchDepth = (candidates := candidates_for(max(*config.k, largest_hits(asked)), config.fetch_k))
        if config.fetch_k is None:
            depth = SearchDepth(candidates=candidates, tokens=largest_budget(asked))
        return cls(documents=documents, truth=truth, metrics=measured, ks=config.k, depth=depth)

    @property
    def documents_digest(self) -> str:
        return digest_of(self.documents)

    @property
    def evaluation_type(self) -> EvaluationType:
        """What is scored: spans (token-level), or chunk ids (chunk-level)."""
        return self.truth.evaluation_type
