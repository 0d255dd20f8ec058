"""Vectors in a Chroma collection, found by its HNSW graph: approximate, for those who run Chroma.

Needs the extra ``chroma``. Nothing is downloaded and no usage is reported.
"""

import importlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from rag_eval.distribution import install_command
from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ConfigurationError, TableError
from rag_eval.parts import PythonOnly, part
from rag_eval.parts.part_settings import Name
from rag_eval.stores.exact_search import BuiltInStore, Candidates, Mask, score_margin
from rag_eval.stores.store import AnyChunk, Integers, Places
from rag_eval.tables import metadata_to_json
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.ids import ChunkId, DocumentId, PositionAwareChunkId

FOUND_AT_ONCE = 8192
SPARE = 16


@part
class ChromaVectorStore(BuiltInStore):
    """A Chroma collection of chunks and vectors, in memory or in a folder; for one writer at a time.

    The graph may miss chunks, more of them where many vectors are equal: what it finds is scored and ordered by the
    rule of every store, what it misses is missing. ``folder`` need not exist yet; without one the collection is in
    memory and nobody else's. Raises ``ConfigurationError`` when chromadb is not installed.
    """

    packages = ("chromadb",)
    is_exact: ClassVar[bool] = False

    folder: Annotated[str | Path | None, PythonOnly, Field(description="Where the collection is kept.")] = None
    _: KW_ONLY
    collection: Annotated[Name, PythonOnly, Field(description="The name of the collection.")] = "chunks"

    def __post_init__(self) -> None:
        try:
            chromadb: Any = importlib.import_module("chromadb")
        except ImportError as error:
            raise ConfigurationError(
                f"ChromaVectorStore needs the extra chroma ({error}): {install_command('chroma')}"
            ) from None
        settings = chromadb.Settings(anonymized_telemetry=False)
        self._client: Any
        folder, collection = self.folder, self.collection
        if folder is None:
            self._client = chromadb.EphemeralClient(settings=settings)
            collection = f"{collection}-{uuid.uuid4().hex}"  # Chroma's clients in memory share their collections
        else:
            self._client = chromadb.PersistentClient(path=str(folder), settings=settings)
        self._collection_name = collection
        self._collection: Any = self._open()
        self._load()

    @property
    def name(self) -> str:
        return "chroma(hnsw, approximate)"

    def chunks(self, numbers: Integers) -> list[AnyChunk]:
        wanted, back = np.unique(numbers, return_inverse=True)
        found = [
            _chunk(*row)
            for part in self._get(wanted, ["documents", "metadatas"])
            for row in _by_number(part, zip(part["documents"], part["metadatas"], strict=True))
        ]
        return [found[row] for row in back]

    def clear(self) -> None:
        self._client.delete_collection(self._collection_name)
        self._collection = self._open()
        self._load()

    def _open(self) -> Any:
        return self._client.get_or_create_collection(
            self._collection_name, embedding_function=None, configuration={"hnsw": {"space": "ip"}}
        )

    def _load(self) -> None:
        self._places, self._dimension = Places(), None
        kept = self._collection.get(include=["metadatas"])
        if not kept["ids"]:
            return
        if {*kept["ids"]} != {*_ids(np.arange(len(kept["ids"])))} or not all(
            row and "doc_id" in row for row in kept["metadatas"]
        ):
            raise TableError(
                f"the Chroma collection {self._collection_name!r} was not filled by a store: name another collection"
            )
        rows = _by_number(kept, kept["metadatas"])
        placed = "start" in rows[0]
        doc_ids = pa.array([row["doc_id"] for row in rows], pa.string())
        starts = [row["start" if placed else "ordinal"] for row in rows]
        ends = [row.get("end", 0) for row in rows]
        self._places = Places().with_rows(doc_ids, np.array(starts, np.int64), np.array(ends, np.int64), placed)
        self._dimension = len(self._collection.get(ids=["0"], include=["embeddings"])["embeddings"][0])

    def _keep(self, chunks: Sequence[AnyChunk], units: Vectors, places: Places) -> None:
        first = len(self._places)
        rows = [_metadata(chunk, int(places.starts[first + row])) for row, chunk in enumerate(chunks)]
        step = self._client.get_max_batch_size()
        for begin in range(0, len(chunks), step):
            end = min(begin + step, len(chunks))
            self._collection.add(
                ids=_ids(np.arange(first + begin, first + end)),
                embeddings=units[begin:end],
                documents=[chunk.content for chunk in chunks[begin:end]],
                metadatas=rows[begin:end],
            )

    def _get(self, numbers: Integers, include: list[str]) -> Iterator[Any]:
        step = self._client.get_max_batch_size()
        for begin in range(0, len(numbers), step):
            yield self._collection.get(ids=_ids(numbers[begin : begin + step]), include=include)

    def vectors(self, numbers: Integers) -> Vectors:
        wanted, back = np.unique(numbers, return_inverse=True)
        found = [_by_number(part, part["embeddings"]) for part in self._get(wanted, ["embeddings"])]
        vectors: Vectors = np.concatenate(found, dtype=np.float32)[back]
        return vectors

    def _candidates(self, units: Vectors, k: int, among: Mask | None) -> Iterator[Candidates]:
        """What the graph finds; where ties go deeper than what was asked for, twice as many are asked for."""
        margin, where = score_margin(units.shape[1]), None
        if among is not None:  # which leaves whole documents
            left = {*self._places.documents[among].tolist()}
            where = {"doc_id": {"$in": [name for name, code in self._places.codes.items() if code in left]}}
        asked, depth = np.arange(len(units)), min(k + SPARE, len(self))
        while len(asked):
            deeper: list[int] = []
            step = max(1, FOUND_AT_ONCE // depth)
            for begin in range(0, len(asked), step):
                block = asked[begin : begin + step]
                asking = {"query_embeddings": units[block], "n_results": depth, "where": where}
                found = self._collection.query(**asking, include=["distances"])
                queries: list[int] = []
                numbers: list[int] = []
                for query, ids, distances in zip(block.tolist(), found["ids"], found["distances"], strict=True):
                    if len(ids) == depth < len(self) and distances[-1] <= distances[k - 1] + margin:
                        deeper.append(query)
                    else:
                        queries.extend([query] * len(ids))
                        numbers.extend(map(int, ids))
                yield from self._scored(units, np.array(queries, np.int64), np.array(numbers, np.int64))
            asked, depth = np.array(deeper, np.int64), min(2 * depth, len(self))


def _ids(numbers: Integers) -> list[str]:
    return [str(number) for number in numbers.tolist()]


def _by_number(found: Any, rows: Iterable[Any]) -> list[Any]:
    """The rows, which stand beside ``found["ids"]``, in the order of their numbers."""
    return [row for _, row in sorted(zip(map(int, found["ids"]), rows, strict=True), key=lambda pair: pair[0])]


def _metadata(chunk: AnyChunk, start_or_ordinal: int) -> dict[str, str | int]:
    row: dict[str, str | int] = {"chunk_id": chunk.id, "doc_id": chunk.doc_id}
    row["metadata"] = metadata_to_json(chunk.metadata, f"a chunk of {chunk.doc_id!r}")
    if isinstance(chunk, PositionAwareChunk):
        return row | {"start": start_or_ordinal, "end": chunk.end}
    return row | {"ordinal": start_or_ordinal}


def _chunk(content: str, row: Mapping[str, Any]) -> AnyChunk:
    doc_id, metadata = DocumentId(row["doc_id"]), json.loads(row["metadata"])
    if "ordinal" in row:
        return Chunk(ChunkId(row["chunk_id"]), content, doc_id, metadata)
    place = row["start"], row["end"]
    return PositionAwareChunk(PositionAwareChunkId(row["chunk_id"]), content, doc_id, *place, metadata)
