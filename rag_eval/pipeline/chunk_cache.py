"""Where documents were cut, kept by document: a document that did not change is not cut again.

A chunker has a folder of ``arrow_files``, each with the cuts of some documents. Files are added and never changed, so
any number of runs may read and write at once; one that was cut or altered is dropped, said in the log, and its
documents are cut again.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from rag_eval.arrow_files import read_table, write_table
from rag_eval.chunking.base import PositionAwareChunker
from rag_eval.errors import ArtifactError
from rag_eval.tables import metadata_to_json
from rag_eval.types.chunk import PositionAwareChunk
from rag_eval.types.document import Document
from rag_eval.types.ids import generate_pa_chunk_id, text_sha256

MANY_FILES = 16
CUTS = pa.schema(
    [
        pa.field("document_sha256", pa.string(), nullable=False),
        pa.field("starts", pa.list_(pa.int64()), nullable=False),
        pa.field("ends", pa.list_(pa.int64()), nullable=False),
        pa.field("metadata", pa.list_(pa.string()), nullable=False),
    ]
)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DocumentCuts:
    """Where one document is cut, and the metadata of each chunk as JSON."""

    starts: Sequence[int]
    ends: Sequence[int]
    metadata: Sequence[str]


class ChunkCache:
    """The cuts that one chunker made, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def chunk(
        self, chunker: PositionAwareChunker, documents: Sequence[Document], *, refresh: bool = False
    ) -> tuple[list[PositionAwareChunk], int]:
        """The chunks of all documents, in order, and how many documents had to be cut; ``refresh`` cuts them all."""
        kept_before, files = self._read()
        known = {} if refresh else kept_before
        digests = [text_sha256(document.content) for document in documents]
        fresh: dict[str, DocumentCuts] = {}
        chunks: list[PositionAwareChunk] = []
        for document, digest in zip(documents, digests, strict=True):
            kept = known.get(digest) or fresh.get(digest)
            if kept is not None:
                chunks += _chunks_at(document, kept)
                continue
            made = chunker.chunk_with_positions(document)
            fresh[digest] = DocumentCuts(
                [chunk.start for chunk in made],
                [chunk.end for chunk in made],
                [metadata_to_json(chunk.metadata, f"a chunk of {document.id!r}") for chunk in made],
            )
            chunks += made
        if fresh:
            self._keep(fresh, kept_before, files, replace=refresh)
        return chunks, len(fresh)

    def _read(self) -> tuple[dict[str, DocumentCuts], list[Path]]:
        """All kept cuts, and the files they are in."""
        known: dict[str, DocumentCuts] = {}
        files = []
        for path in sorted(self._folder.glob("*.arrow")):
            try:
                rows = read_table(path).to_pylist()
            except FileNotFoundError:
                continue  # another run has merged it since it was listed
            except ArtifactError as error:
                logger.warning("%s was cut or altered (%s): it is dropped, its documents are cut again", path, error)
                path.unlink(missing_ok=True)
                continue
            files.append(path)
            for row in rows:
                known[row["document_sha256"]] = DocumentCuts(row["starts"], row["ends"], row["metadata"])
        return known, files

    def _keep(
        self, fresh: dict[str, DocumentCuts], known: dict[str, DocumentCuts], files: list[Path], *, replace: bool
    ) -> None:
        if len(files) < MANY_FILES and not replace:
            self._write(fresh)
            return
        merged = self._write(known | fresh)
        # Only what was read: another run may have added a file since.
        for path in files:
            if path != merged:
                path.unlink(missing_ok=True)

    def _write(self, cuts: dict[str, DocumentCuts]) -> Path:
        columns: Iterable[object] = (
            list(cuts),
            [list(one.starts) for one in cuts.values()],
            [list(one.ends) for one in cuts.values()],
            [list(one.metadata) for one in cuts.values()],
        )
        table = pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, CUTS, strict=True)], schema=CUTS
        )
        return write_table(self._folder, table)


def _chunks_at(document: Document, cuts: DocumentCuts) -> list[PositionAwareChunk]:
    chunks = []
    for start, end, metadata in zip(cuts.starts, cuts.ends, cuts.metadata, strict=True):
        content = document.content[start:end]
        read = json.loads(metadata) if metadata != "{}" else {}
        chunks.append(PositionAwareChunk(generate_pa_chunk_id(content), content, document.id, start, end, read))
    return chunks
