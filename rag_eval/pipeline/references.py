"""Define references, which steps return instead of tables: the place, digest and size of a table.

A reference is small, so that Prefect can pass it from task to task, show it and store it as the task's result.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter

from rag_eval.storage.files import data_sha256, stays_inside
from rag_eval.types.ids import EvaluationType


def _inside(uri: str) -> str:
    if not stays_inside(uri):
        raise ValueError(f"{uri!r} is not a place inside the workspace")
    return uri


WorkspaceUri = Annotated[str, AfterValidator(_inside)]
"""A place in a workspace, relative to it, with ``/``; no other place is valid."""


class Frozen(BaseModel):
    """A frozen model without undeclared fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Effort(Frozen):
    """The effort of a step when it ran: ``fresh`` of ``total`` units were computed, the others came from a cache.

    ``tokens`` were read by models, which charged ``cost`` US dollars; None if unknown. ``query_seconds`` is the time of
    a search or a reranking that grows with the queries: it excludes reading tables, building an index and embedding
    queries. ``skipped`` counts the pieces of a chunker that were left out because they have no certain place in their
    document. ``fallbacks`` counts replaced missing results, by a sentence about them. A result with ``unfinished`` work
    is not cached, because another run may finish it. ``recall`` is the share of the exact nearest chunks that an
    approximate search found on a sample of the queries; None where the search is exact.
    """

    fresh: int
    total: int
    unit: str
    seconds: float = 0.0
    tokens: int | None = 0
    cost: float | None = 0.0
    query_seconds: float = 0.0
    skipped: int = 0
    fallbacks: dict[str, int] = Field(default_factory=dict)
    unfinished: int = 0
    recall: float | None = None

    @classmethod
    def of(cls, count: int, unit: str, **others: Any) -> "Effort":
        """Return the effort of computing all of ``count`` units."""
        return cls(fresh=count, total=count, unit=unit, **others)

    @classmethod
    def total_of(cls, efforts: "Sequence[Effort]") -> "Effort":
        """Return the sum of at least one effort in the same unit, with the lowest recall."""
        numbers = cls.model_fields.keys() - {"unit", "recall", "fallbacks"}
        columns = {name: [getattr(effort, name) for effort in efforts] for name in numbers}
        sums: dict[str, Any] = {name: None if None in values else sum(values) for name, values in columns.items()}
        recalls = [effort.recall for effort in efforts if effort.recall is not None]
        fallbacks = sum((Counter(effort.fallbacks) for effort in efforts), Counter())
        return cls(unit=efforts[0].unit, recall=min(recalls, default=None), fallbacks=dict(fallbacks), **sums)

    def cached(self) -> "Effort":
        """Return the effort of a run that finds this result in the cache."""
        return self.model_copy(update={"fresh": 0, "seconds": 0.0})


class Result(Frozen):
    """The result of a step: when the step began, its effort, and the digest of what was read outside the workspace.

    None of these is part of a cache key.
    """

    made: AwareDatetime | None = None
    effort: Effort | None = None
    source: str | None = None

    def __iter__(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]  # a part of what pydantic yields
        """Yield nothing, because Prefect would look inside and take equal values of two results for one result."""
        return iter(())

    @property
    def key_data(self) -> list[str]:
        """Return the part of it that goes into the cache key of a step that reads it."""
        return [file.digest for file in self.files]

    @property
    def files(self) -> "list[FileRef]":
        """Return the tables and indexes it refers to."""
        return [file for name in type(self).model_fields for file in _files_of(getattr(self, name))]


def _files_of(value: object) -> "list[FileRef]":
    if isinstance(value, Result):
        return value.files
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [file for part in parts for file in _files_of(part)]


class FileRef(Result):
    """A file or a folder in the workspace: its digest, its place and its number of rows."""

    digest: str
    uri: WorkspaceUri
    rows: int

    @property
    def files(self) -> "list[FileRef]":
        return [self]


class TableRef(FileRef):
    """A table in the workspace; the digest is the sha256 of its file."""

    kind: Literal["table"] = "table"


def digest_of(shards: Sequence[TableRef]) -> str:
    """Return the digest of a table in shards; that of one shard is its own."""
    return shards[0].digest if len(shards) == 1 else data_sha256([shard.digest for shard in shards])


class IndexFilesRef(FileRef):
    """A LanceDB index in the workspace, with its size in bytes; the digest is that of its inputs.

    Every build of the index has the same digest; the checksum covers the bytes of this build.
    """

    kind: Literal["index"] = "index"
    size: int
    checksum: str


class ChunksRef(Result):
    """The chunks of a shard, with the lengths of their texts in characters."""

    kind: Literal["chunks"] = "chunks"
    table: TableRef
    characters: int
    shortest: int
    longest: int

    @property
    def rows(self) -> int:
        return self.table.rows


class IndexRef(Result):
    """An index of all chunks or of one shard: the chunks, and their vectors or words. Lists have one for each shard.

    ``store`` are the files of a store or of a search engine; another store is filled with the vectors for each search.
    """

    kind: Literal["index-of-chunks"] = "index-of-chunks"
    chunks: list[ChunksRef]
    vectors: list[TableRef] = Field(default_factory=list)
    store: IndexFilesRef | None = None
    postings: list[TableRef] = Field(default_factory=list)
    statistics: TableRef | None = None


class TruthRef(Result):
    """Ground truth in the workspace: every query, and the spans or chunk ids of the answerable ones."""

    kind: Literal["truth"] = "truth"
    evaluation_type: EvaluationType
    queries: TableRef
    answers: TableRef


class QueriesRef(Result):
    """The texts to search, one or several for each query, and the documents that their filters allow."""

    kind: Literal["queries"] = "queries"
    searches: TableRef
    allowed: TableRef | None = None


class RankingRef(Result):
    """The hits of one retriever, at most ``depth`` for each query, with the index and the queries of the search."""

    kind: Literal["ranking"] = "ranking"
    hits: TableRef
    index: IndexRef
    queries: QueriesRef
    depth: int

    @property
    def key_data(self) -> list[str]:
        return [*super().key_data, str(self.depth)]


class HitsRef(Result):
    """The hits by the stage of the retrieval; the last stage is the final ranking. ``chunks`` are those searched.

    ``passages`` are what the model would be given, if that is more than the hits. ``unplaced`` counts the hits that are
    texts without a certain place in the documents.
    """

    kind: Literal["hits"] = "hits"
    stages: dict[str, TableRef]
    passages: TableRef | None = None
    unplaced: int = 0
    chunks: list[ChunksRef] = Field(default_factory=list)

    @property
    def last(self) -> TableRef:
        """Return the hits of the last stage."""
        return list(self.stages.values())[-1]

    @property
    def returned(self) -> TableRef:
        """Return what is scored: the passages, or the hits if they are returned unchanged."""
        return self.last if self.passages is None else self.passages

    @property
    def key_data(self) -> list[str]:
        return [digest for ref in (self.returned, *self.chunks) for digest in ref.key_data]


class ScoresRef(Result):
    """The scores of every query, their means by metric, and the number of queries in each mean."""

    kind: Literal["scores"] = "scores"
    table: TableRef
    means: dict[str, float]
    queries: int


AnyResult = Annotated[
    TableRef | ChunksRef | IndexFilesRef | IndexRef | TruthRef | QueriesRef | RankingRef | HitsRef | ScoresRef,
    Field(discriminator="kind"),
]
RESULT: TypeAdapter[Result] = TypeAdapter(AnyResult)
"""Validates the stored result of a step strictly as one of the references above."""
