"""Small references that tasks pass on in place of the data: each says where something is and what its digest is."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from rag_eval.digests import file_sha256, files_sha256
from rag_eval.errors import GroundTruthError
from rag_eval.files import matching_files
from rag_eval.types.ids import EvaluationType


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reference(_Frozen):
    """Something that is known by its digest; the digest alone goes into a cache key."""

    digest: str


class Effort(_Frozen):
    """How much of a stage had to be done when it ran: ``fresh`` of ``total`` units, the rest was kept from before."""

    fresh: int
    total: int
    unit: str


class TableRef(Reference):
    """A table in the workspace: where, the sha256 of its file, how many rows, and what it took to make it."""

    uri: str
    rows: int
    effort: Effort | None = None


class IndexRef(Reference):
    """A LanceDB index in the workspace: where, the digest of what it was made from, how many rows and bytes.

    The digest is the same whenever the index is built again; the checksum covers the bytes of this build.
    """

    uri: str
    rows: int
    size: int
    checksum: str
    effort: Effort | None = None


class TruthRef(_Frozen):
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
        """The folder as it is now; raises ``CorpusError`` when it is missing or nothing matches."""
        return cls(folder=folder, glob=glob, digest=files_sha256(folder, matching_files(folder, glob)))


class TruthSource(Reference):
    """A ground-truth file outside the workspace, as it was when its digest was taken."""

    path: Path

    @classmethod
    def of(cls, path: Path) -> "TruthSource":
        """The file as it is now; raises ``GroundTruthError`` when it is missing."""
        if not path.is_file():
            raise GroundTruthError(f"the ground-truth file {str(path)!r} is not there: check the path")
        return cls(path=path, digest=file_sha256(path))
