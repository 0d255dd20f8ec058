"""Vectors with their chunks in a LanceDB table, searched exactly unless an index is asked for: the pipeline's default.

Vectors are scaled to length 1 and compared by dot product, which is the cosine; LanceDB's own cosine search leaves
out zero vectors without a word, the dot product keeps them, at score 0.
"""

import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY
from functools import cached_property
from pathlib import Path
from traceback import clear_frames
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ConfigurationError, TableError
from rag_eval.parts import Location, PartOf, PythonOnly, Searching, label, part
from rag_eval.parts.part_settings import Count, Name, OptionalCount
from rag_eval.stores import INDEX
from rag_eval.stores.exact_search import Blocks, BuiltInStore, Candidates, Mask, score_margin
from rag_eval.stores.store import AnyChunk, Integers, Places, SearchResult
from rag_eval.tables import CHUNKS, check_schema, chunks_to_table, has_places, table_with
from rag_eval.types.chunks import Chunk, PositionAwareChunk

if TYPE_CHECKING:
    import lancedb.db
    import lancedb.index
    from lancedb.query import LanceVectorQueryBuilder
    from lancedb.table import Table


@part
class IvfPq:
    """Partitions and product quantisation; without ``refine_factor`` the scores are those of the compressed vectors.

    ``refine_factor=n`` fetches n times as many and orders them by their full vectors. None leaves a choice to LanceDB.
    """

    lance_type: ClassVar[str] = "IvfPq"

    num_partitions: Annotated[OptionalCount, Field(description="How many partitions; null: LanceDB's choice.")] = None
    num_sub_vectors: Annotated[OptionalCount, Field(description="Parts of a vector; null: LanceDB's choice.")] = None
    nprobes: Annotated[Count, Searching, Field(description="How many partitions a search reads.")] = 20
    refine_factor: Annotated[
        OptionalCount, Searching, Field(description="How many times as many to order by full vectors.")
    ] = None

    def config(self) -> "lancedb.index.IvfPq":
        """How LanceDB builds it."""
        from lancedb.index import IvfPq as Config

        return Config(distance_type="dot", num_partitions=self.num_partitions, num_sub_vectors=self.num_sub_vectors)

    def tune(self, query: "LanceVectorQueryBuilder") -> "LanceVectorQueryBuilder":
        """The query with this index's search settings."""
        query = query.nprobes(self.nprobes)
        return query if self.refine_factor is None else query.refine_factor(self.refine_factor)


@part
class Hnsw:
    """Partitions with a neighbour graph over vectors rounded to one byte a number (IVF_HNSW_SQ).

    ``ef`` is how many candidates a search keeps. None leaves a choice to LanceDB.
    """

    lance_type: ClassVar[str] = "IvfHnswSq"

    num_partitions: Annotated[OptionalCount, Field(description="How many partitions; null: LanceDB's choice.")] = None
    m: Annotated[Count, Field(description="How many neighbours a vector has.")] = 20
    ef_construction: Annotated[Count, Field(description="How many candidates the building keeps.")] = 300
    nprobes: Annotated[Count, Searching, Field(description="How many partitions a search reads.")] = 20
    ef: Annotated[
        OptionalCount, Searching, Field(description="How many candidates a search keeps; null: LanceDB's choice.")
    ] = None
    refine_factor: Annotated[
        OptionalCount, Searching, Field(description="How many times as many to order by full vectors.")
    ] = None

    def config(self) -> "lancedb.index.HnswSq":
        """How LanceDB builds it."""
        from lancedb.index import HnswSq as Config

        return Config(
            distance_type="dot", num_partitions=self.num_partitions, m=self.m, ef_construction=self.ef_construction
        )

    def tune(self, query: "LanceVectorQueryBuilder") -> "LanceVectorQueryBuilder":
        """The query with this index's search settings."""
        query = query.nprobes(self.nprobes)
        query = query if self.ef is None else query.ef(self.ef)
        return query if self.refine_factor is None else query.refine_factor(self.refine_factor)


ROWS = pa.schema([field.with_nullable(field.name in ("start", "end", "ordinal")) for field in CHUNKS])
ROWS = ROWS.remove(ROWS.get_field_index("searched"))  # the vectors are made of it, nothing else asks for it


def rows_of_chunks(chunks: Sequence[AnyChunk], places: Places) -> pa.Table:
    """A row a chunk; ``places`` ends with theirs. Raises ``TableError`` on metadata that JSON would change."""
    rows = rows_of_table(chunks_to_table(chunks))
    if places.placed:
        return rows
    ordinal = ROWS.get_field_index("ordinal")
    return rows.set_column(ordinal, ROWS.field(ordinal), pa.array(places.starts[-len(chunks) :]))


def rows_of_table(chunks: pa.Table) -> pa.Table:
    """The rows of a chunks table, with places or with ordinals."""
    unused = {"ordinal"} if has_places(chunks) else {"start", "end"}
    return table_with(ROWS, {name: chunks.column(name) for name in ROWS.names if name not in unused}, chunks.num_rows)


def with_table(places: Places, chunks: pa.Table) -> Places:
    """The places and those of a table; raises ``TableError`` when one is there already."""
    placed = has_places(chunks)
    starts = chunks.column("start" if placed else "ordinal").to_numpy()
    ends = chunks.column("end").to_numpy() if placed else np.zeros_like(starts)
    return places.with_rows(chunks.column("doc_id").combine_chunks(), starts, ends, placed)


QUERIES_AT_ONCE = 1024
FOUND_AT_ONCE = 2**22
SPARE = 16
# LanceDB looks at every vector anew for each query: from so many on, one pass over the vectors for all is cheaper.
TILED_FROM = 32
# A table that is dropped and made anew counts its versions from 1 again: this tells the two apart.
IDENTITY = b"rag_eval.table"


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise ``OSError`` for what LanceDB says in words when the disk does not take something."""
    try:
        yield
    except RuntimeError as error:
        code = re.search(r"LanceError\(IO\).*\(os error (\d+)\)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from None


@part
class LanceDBVectorStore(BuiltInStore):
    """One table of chunks and vectors in a LanceDB database; for one writer at a time.

    ``uri`` is a folder, which need not exist yet, or an object-store URI such as ``s3://…``; without it the store is
    only settings. A store opened on an existing table searches it at once. With an ``index`` it is the index that
    decides which chunks come back and at which scores (equal ones are ordered by place); every ``add`` builds it anew.

    Raises ``TableError`` when the table is there and does not hold chunks, ``ConfigurationError`` when it has not the
    index asked for. A search raises ``TableError`` when another store has cleared the table since this one last read
    it.
    """

    packages = ("lancedb",)
    _blocks = Blocks(queries=1024)

    uri: Annotated[str | Path | None, Location] = None
    _: KW_ONLY
    table: Annotated[Name, PythonOnly] = "chunks"
    index: Annotated[
        IvfPq | Hnsw | None, PartOf(INDEX), Field(description="none (exact), ivf-pq or hnsw (approximate).")
    ] = None
    storage_options: Annotated[Mapping[str, str] | None, PythonOnly] = None

    def __post_init__(self) -> None:
        self._table: Table | None = None
        self._identity: bytes | None = None
        self._version, self._offsets = 0, np.empty(0, np.int64)
        if self.uri is None:
            return
        self._load()
        if self.index is not None and self._table is not None:
            kinds = [found.index_type for found in self._table.list_indices()]
            if self.index.lance_type not in kinds:
                raise ConfigurationError(
                    f"the LanceDB table {self.table!r} has the indexes {kinds}, not {self.index.lance_type}: "
                    f"fill it by a store with index={self.index}"
                )

    @cached_property
    def _database(self) -> "lancedb.db.DBConnection":
        import lancedb

        if self.uri is None:
            raise ConfigurationError("LanceDBVectorStore has no place to keep its table: give uri")
        options = dict(self.storage_options) if self.storage_options else None
        return lancedb.connect(str(self.uri), storage_options=options)

    @property
    def name(self) -> str:
        """The store, and its index where it has one."""
        return "lancedb" if self.index is None else f"lancedb(index={self.index})"

    @property
    def is_exact(self) -> bool:  # type: ignore[override]  # of the class where nothing is set
        """Whether no index decides what is found."""
        return self.index is None

    @property
    def label(self) -> str:
        """The store and its index."""
        return f"lancedb {'exact' if self.index is None else label(self.index)}"

    def add(self, chunks: Sequence[AnyChunk], embeddings: Vectors) -> None:
        """Keep chunks with their vectors; raises as every store does, and on metadata that JSON would change."""
        self._load()
        super().add(chunks, embeddings)

    def search_many(self, vectors: Vectors, k: int, among: Mask | None = None) -> SearchResult:
        """The k best chunks of every vector; raises as every store does, and when the table is another by now."""
        if self._table is not None:
            table = self._open()
            if table is None or _identity(table) != self._identity:
                raise TableError(
                    f"the LanceDB table {self.table!r} was cleared by another store since this one read it: "
                    "give each its own table, or open a new store"
                )
        return super().search_many(vectors, k, among)

    def add_tables(self, parts: Iterable[tuple[pa.Table, Vectors]]) -> None:
        """Keep the rows of a chunks table, with places or with ordinals, and their vectors; raises as ``add`` does.

        It comes in parts, one at a time in memory, and an index is built at the end. When a part is refused, those
        before it are kept, without an index. Raises ``OSError`` when the disk does not take them.
        """
        self._load()
        with _disk_errors():
            for chunks, vectors in parts:
                check_schema(chunks, CHUNKS, "chunks")
                units = self._checked(chunks.num_rows, vectors)
                if chunks.num_rows:
                    self._append(rows_of_table(chunks), units, with_table(self._places, chunks))
            self._build_index()

    def take(self, numbers: Integers, columns: Sequence[str]) -> pa.Table:
        """Columns of the table for the chunks of these numbers, in the order asked for."""
        wanted, back = np.unique(numbers, return_inverse=True)
        if self._table is None or not len(wanted):
            return ROWS.empty_table().select(columns)
        found = self._table.take_offsets(self._offsets[wanted].tolist()).select(["number", *columns]).to_arrow()
        order = np.argsort(found.column("number").to_numpy())  # LanceDB gives rows as they lie in the table
        return found.select(columns).take(pa.array(order[back])).combine_chunks()

    def chunks(self, numbers: Integers) -> list[AnyChunk]:
        chunks: list[AnyChunk] = []
        for row in self.take(numbers, ROWS.names).to_pylist():
            known, metadata = (row["chunk_id"], row["content"], row["doc_id"]), json.loads(row["metadata"])
            place = row["start"], row["end"]
            chunks.append(Chunk(*known, metadata) if place[0] is None else PositionAwareChunk(*known, *place, metadata))
        return chunks

    def clear(self) -> None:
        """Forget all chunks and drop the table; the next may have another dimension."""
        self._load()
        if self._table is not None:
            self._database.drop_table(self.table)
            self._load()

    def _load(self) -> None:
        """Read where the chunks of the table stand, unless that is known for its newest version."""
        table = self._open()
        if table is None:
            self._places, self._dimension, self._table = Places(), None, None
            return
        if self._table is not None and (self._identity, self._version) == (_identity(table), table.version):
            return
        columns = set(table.schema.names)
        if columns != {*ROWS.names, "number", "vector"}:
            raise TableError(
                f"the LanceDB table {self.table!r} has the columns {sorted(columns)}, "
                "which are not those of a store: name another table"
            )
        rows = table.search().select(["number", "doc_id", "start", "end", "ordinal"]).to_arrow()
        numbers = rows.column("number").to_numpy()
        self._offsets = np.argsort(numbers)
        if not np.array_equal(numbers[self._offsets], np.arange(len(numbers))):
            raise TableError(
                f"the LanceDB table {self.table!r} misses chunks, or was filled by two writers at once: "
                "clear it and fill it anew"
            )
        rows = rows.take(pa.array(self._offsets))
        self._places = with_table(Places(), rows) if rows.num_rows else Places()
        self._dimension = table.schema.field("vector").type.list_size
        self._table, self._identity, self._version = table, _identity(table), table.version

    def _open(self) -> "Table | None":
        try:
            return self._database.open_table(self.table)
        except ValueError as error:
            if "not found" not in str(error):
                raise
            # A frame of LanceDB's holds the error that holds it: until it is looked for, all that called it stays.
            clear_frames(error.__traceback__)
            return None

    def _keep(self, chunks: Sequence[AnyChunk], units: Vectors, places: Places) -> None:
        self._append(rows_of_chunks(chunks, places), units, places)
        self._build_index()

    def _append(self, rows: pa.Table, units: Vectors, places: Places) -> None:
        numbers = np.arange(len(self._places), len(places))
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(units.reshape(-1)), units.shape[1])
        rows = rows.append_column("number", pa.array(numbers)).append_column("vector", vectors)
        if self._table is None:
            self._identity = uuid.uuid4().hex.encode()
            rows = rows.replace_schema_metadata({IDENTITY: self._identity})
            self._table = self._database.create_table(self.table, rows)
        else:
            self._table.add(rows)
        self._offsets = np.concatenate([self._offsets[: len(self._places)], numbers])
        self._places, self._dimension, self._version = places, units.shape[1], self._table.version

    def _build_index(self) -> None:
        if self.index is not None and self._table is not None:
            self._table.create_index("vector", config=self.index.config())
            self._version = self._table.version

    def vectors(self, numbers: Integers) -> Vectors:
        column = self.take(numbers, ["vector"]).column("vector").combine_chunks()
        vectors: Vectors = column.values.to_numpy().reshape(-1, column.type.list_size)
        return vectors

    def _candidates(self, units: Vectors, k: int, among: Mask | None) -> Iterator[Candidates]:
        if self.index is None and (among is not None or len(units) >= TILED_FROM):
            yield from super()._candidates(units, k, among)
            return
        depth = min(k + SPARE, len(self))
        step = max(1, min(QUERIES_AT_ONCE, FOUND_AT_ONCE // depth))
        for begin in range(0, len(units), step):
            block = units[begin : begin + step]
            if self.index is not None:
                found = self._search(block, k, among=among)
                yield Candidates(found.queries + begin, found.numbers, found.scores)
            else:
                yield from self._exact(units, block, begin, k, depth)

    def _tiles(self, among: Mask | None) -> Iterator[tuple[Integers, Vectors]]:
        table = cast("Table", self._table)  # there are chunks, so there is a table
        for batch in table.search().select(["number", "vector"]).to_batches(self._blocks.rows):
            numbers = batch.column("number").to_numpy()
            vectors = batch.column("vector").flatten().to_numpy().reshape(len(numbers), -1)
            if among is not None:
                kept = among[numbers]
                numbers, vectors = numbers[kept], vectors[kept]
            for begin in range(0, len(numbers), self._blocks.rows):
                part = slice(begin, begin + self._blocks.rows)
                yield numbers[part], vectors[part]

    def _exact(self, units: Vectors, block: Vectors, begin: int, k: int, depth: int) -> Iterator[Candidates]:
        """What reaches the floor of each query; queries whose ties go deeper are searched again, one by one."""
        found = self._search(block, depth)
        order = np.lexsort((-found.scores, found.queries))
        scores = found.scores[order].reshape(len(block), depth)
        floor = scores[:, k - 1] - score_margin(units.shape[1])
        cut_off = (scores[:, -1] >= floor) & (depth < len(self))
        kept = order[((scores >= floor[:, None]) & ~cut_off[:, None]).ravel()]
        yield from self._scored(units, found.queries[kept] + begin, found.numbers[kept])
        for row in np.flatnonzero(cut_off):
            numbers = self._search(block[row : row + 1], len(self), floor[row]).numbers
            yield from self._scored(units, np.full(len(numbers), begin + row), numbers)

    def _search(self, units: Vectors, limit: int, floor: float | None = None, among: Mask | None = None) -> Candidates:
        """What LanceDB finds for a batch, at its own scores; at or above ``floor`` where one is given."""
        table = cast("Table", self._table)  # there are chunks, so there is a table
        query = cast("LanceVectorQueryBuilder", table.search(units, vector_column_name="vector"))
        query = query.distance_type("dot").limit(limit).select(["number", "_distance"])
        query = query.bypass_vector_index() if self.index is None else self.index.tune(query)
        if floor is not None:
            query = query.distance_range(upper_bound=1 - floor)
        if among is not None:
            query = query.where(_numbered(among), prefilter=True)
        found = query.to_arrow()
        numbers = found.column("number").to_numpy()
        # LanceDB leaves the column out for a single query.
        several = "query_index" in found.column_names
        queries = found.column("query_index").to_numpy() if several else np.zeros(len(numbers))
        scores: NDArray[np.float32] = 1 - found.column("_distance").to_numpy()
        return Candidates(queries.astype(np.int64), numbers, scores)


def _numbered(among: Mask) -> str:
    """The condition that a row is one of these chunks; those of a document have numbers in a row."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], among, [False]]).astype(np.int8))).reshape(-1, 2)
    return " OR ".join(f"(number >= {begin} AND number < {end})" for begin, end in edges.tolist())


def _identity(table: "Table") -> bytes | None:
    return (table.schema.metadata or {}).get(IDENTITY)
