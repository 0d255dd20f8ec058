"""Small references that tasks pass on in place of the data: each says where something is and what its digest is."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from rag_eval.digests import file_sha256, files_sha256
from rag_eval.errors import GroundTruthError
from rag_eval.files import matching_files


class Reference(BaseModel):
    """Something that is known by its digest; the digest alone goes into a cache key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    digest: str


class TableRef(Reference):
    """A table in the workspace: where, the sha256 of its file, how many rows."""

    uri: str
    rows: int


class IndexRef(Reference):
    """A LanceDB index in the workspace: where, the digest of what it was made from, how many rows.

    The digest is the same whenever the index is built again; the checksum covers the bytes of this build.
    """

    uri: str
    rows: int
    checksum: str


class TokenLevelTruthRef(BaseModel):
    """Token-level ground truth in the workspace: every query, and the spans of the answerable ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    queries: TableRef
    spans: TableRef


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
