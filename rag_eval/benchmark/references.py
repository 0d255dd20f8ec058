"""Handles on what is kept in a workspace and on what is read from outside it: where it is, and its digest."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict

from rag_eval.benchmark.config import BenchmarkConfig
from rag_eval.disk.files import (
    data_sha256,
    file_sha256,
    files_sha256,
    kind_of,
    matching_files,
    stays_inside,
    unreadable,
)
from rag_eval.errors import CorpusError, GroundTruthError
from rag_eval.retrieval.retriever import candidates_for
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
    """Something that is known by its digest; the digest alone goes into a cache key."""

    digest: str


class Effort(_Frozen):
    """What a stage took when it ran: ``fresh`` of ``total`` units had to be done, the rest was kept from before.

    ``tokens`` is what models read and ``cost`` what they charged for it, in US dollars: None where that is not known.
    ``query_seconds`` is the part of a search or a reranking that grows with the queries: no reading of tables, no
    building of an index, and no embedding of queries, whose vectors are kept from run to run. ``skipped`` is how many
    pieces of a chunker have no sure place in their document and were left out.
    """

    fresh: int
    total: int
    unit: str
    seconds: float = 0.0
    tokens: int | None = 0
    cost: float | None = 0.0
    query_seconds: float = 0.0
    skipped: int = 0

    @classmethod
    def total_of(cls, efforts: "Sequence[Effort]") -> "Effort":
        """The sum of at least one effort in the same unit."""
        tokens, costs = [one.tokens for one in efforts], [one.cost for one in efforts]
        return cls(
            fresh=sum(one.fresh for one in efforts),
            total=sum(one.total for one in efforts),
            unit=efforts[0].unit,
            seconds=sum(one.seconds for one in efforts),
            tokens=None if None in tokens else sum(filter(None, tokens)),
            cost=None if None in costs else sum(filter(None, costs)),
            query_seconds=sum(one.query_seconds for one in efforts),
            skipped=sum(one.skipped for one in efforts),
        )


class Made(_Frozen):
    """What a stage made, with when that began and what it took; both are kept with it and are no part of a key."""

    made: AwareDatetime | None = None
    effort: Effort | None = None


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
    """A folder of documents outside the workspace, as it was when its digest was taken."""

    folder: Path
    glob: str

    @classmethod
    def of(cls, folder: Path, glob: str) -> "CorpusSource":
        """The folder as it is now; raises ``CorpusError`` when it is missing, unreadable or nothing matches."""
        paths = matching_files(folder, glob)
        try:
            return cls(folder=folder, glob=glob, digest=files_sha256(folder, paths))
        except OSError as error:
            raise unreadable(Path(error.filename or folder), error) from None


class TruthSource(Reference):
    """A ground-truth file outside the workspace, as it was when its digest was taken."""

    path: Path

    @classmethod
    def of(cls, path: Path) -> "TruthSource":
        """The file as it is now; raises ``GroundTruthError`` when it is missing or unreadable."""
        try:
            if kind_of(path) != "file":
                raise GroundTruthError(
                    f"the ground-truth file {str(path)!r} is not there or is no file: check the path"
                )
            return cls(path=path, digest=file_sha256(path))
        except CorpusError as error:
            raise GroundTruthError(str(error)) from None
        except OSError as error:
            raise GroundTruthError(
                f"the ground-truth file {str(path)!r} cannot be read ({error.strerror}): check the file and its rights"
            ) from None


class BenchmarkInputs(BaseModel):
    """Documents and truth by reference, and what is asked of every configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: list[TableRef]
    truth: TruthRef
    metrics: list[str]
    ks: list[int]
    depth: int
    """How many candidates are fetched: deep enough to be fused or reranked, and the same for all configurations, so
    that what one has searched another can use."""

    @classmethod
    def of(cls, config: BenchmarkConfig, documents: list[TableRef], truth: TruthRef) -> "BenchmarkInputs":
        """The inputs of a benchmark."""
        depth = candidates_for(max(config.k), config.fetch_k)
        return cls(documents=documents, truth=truth, metrics=config.metrics, ks=config.k, depth=depth)

    @property
    def documents_digest(self) -> str:
        """The digest of all documents."""
        return digest_of(self.documents)

    @property
    def evaluation_type(self) -> EvaluationType:
        """What is scored: spans (token-level), or chunk ids (chunk-level)."""
        return self.truth.evaluation_type
