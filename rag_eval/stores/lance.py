"""Store vectors in a LanceDB table, searched exactly or by an index of LanceDB: the default of a benchmark.

Vectors are scaled to length 1 and compared by dot product, which is the cosine. LanceDB's own cosine search silently
omits zero vectors; the dot product keeps them, at score 0.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, cast

import numpy as np
import pyarrow as pa
from pydantic import Field

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ConfigurationError, TableError, as_sentence
from rag_eval.parts import Location, PartOf, Searching, label, part, settings_of
from rag_eval.parts.part_settings import Count, OptionalCount
from rag_eval.stores import INDEX
from rag_eval.stores.exact_search import ROWS_AT_ONCE
from rag_eval.stores.rankings import BestPairs, Mask, Numbers, Ranking
from rag_eval.stores.store import BuiltInStore

if TYPE_CHECKING:
    import lancedb.db
    from lancedb.query import LanceQueryBuilder, LanceVectorQueryBuilder
    from lancedb.table import Table


NumPartitions = Annotated[OptionalCount, Field(description="The number of partitions; null: LanceDB's choice.")]
NumSubVectors = Annotated[OptionalCount, Field(description="Parts of a vector; null: LanceDB's choice.")]
NumBits = Annotated[OptionalCount, Field(description="Bits for each part of a vector; null: LanceDB's choice.")]
NumNeighbours = Annotated[Count, Field(description="How many neighbours a vector has.")]
EfConstruction = Annotated[Count, Field(description="The number of candidates while building.")]
MaxIterations = Annotated[OptionalCount, Field(description="Rounds of k-means; null: LanceDB's choice.")]
SampleRate = Annotated[OptionalCount, Field(description="Vectors per partition to train on; null: LanceDB's choice.")]
PartitionSize = Annotated[OptionalCount, Field(description="Vectors per partition; null: LanceDB's choice.")]
NProbes = Annotated[Count, Searching, Field(description="How many partitions a search reads.")]
Ef = Annotated[
    OptionalCount, Searching, Field(description="The number of candidates of a search; null: LanceDB's choice.")
]
RefineFactor = Annotated[
    OptionalCount,
    Searching,
    Field(description="Fetch this many times as many candidates, and order them by their full vectors."),
]
Distance = Literal["l2", "cosine", "dot"]
Query = TypeVar("Query", bound="LanceQueryBuilder")


class LanceIndex:
    """What the indexes of LanceDB share: the settings that LanceDB builds them with, and those of a search."""

    lance_type: ClassVar[str]
    """The class of ``lancedb.index``, and the type that a table states."""

    def config(self, distance: Distance = "dot") -> Any:
        """Return LanceDB's settings of the index."""
        built = {name: value for name, value in self._values(searching=False).items() if value is not None}
        return getattr(lance_module("index"), self.lance_type)(distance_type=distance, **built)

    def tune(self, query: Query) -> Query:
        """Apply the settings of the search to a query, each by the method of its name."""
        return tuned(query, **self._values(searching=True))

    def _values(self, *, searching: bool) -> dict[str, Any]:
        known = settings_of(type(self)).items()
        return {name: getattr(self, name) for name, setting in known if (Searching in setting.aspects) is searching}


def tuned(query: Query, **settings: int | None) -> Query:
    """Apply the settings that are not None, each by the method of its name."""
    for name, value in settings.items():
        if value is not None:
            query = getattr(query, name)(value)
    return query


@part
class IvfFlat(LanceIndex):
    """Partitions of full vectors."""

    lance_type = "IvfFlat"

    num_partitions: NumPartitions = None
    max_iterations: MaxIterations = None
    sample_rate: SampleRate = None
    target_partition_size: PartitionSize = None
    nprobes: NProbes = 20


@part
class IvfSq(IvfFlat):
    """Partitions of vectors rounded to one byte a number."""

    lance_type = "IvfSq"

    refine_factor: RefineFactor = None


@part
class IvfPq(IvfSq):
    """Partitions and product quantisation; without ``refine_factor`` the scores are those of the compressed vectors."""

    lance_type = "IvfPq"

    num_sub_vectors: NumSubVectors = None
    num_bits: NumBits = None


@part
class IvfRq(IvfSq):
    """Partitions of vectors rounded to few bits a number (RaBitQ)."""

    lance_type = "IvfRq"

    num_bits: NumBits = None


@part
class HnswFlat(IvfFlat):
    """Partitions with a neighbour graph over full vectors (IVF_HNSW_FLAT)."""

    lance_type = "IvfHnswFlat"

    m: NumNeighbours = 20
    ef_construction: EfConstruction = 300
    ef: Ef = None


@part
class Hnsw(HnswFlat):
    """Partitions with a neighbour graph over vectors rounded to one byte a number (IVF_HNSW_SQ)."""

    lance_type = "IvfHnswSq"

    refine_factor: RefineFactor = None


@part
class HnswPq(Hnsw):
    """Partitions with a neighbour graph over vectors with product quantisation (IVF_HNSW_PQ)."""

    lance_type = "IvfHnswPq"

    num_sub_vectors: NumSubVectors = None
    num_bits: NumBits = None


TABLE = "chunks"
COLUMNS = ["number", "vector"]
INDEX_QUERIES_AT_ONCE = 1024
INDEX_HITS_AT_ONCE = 2**22


def lance_module(name: str = "") -> Any:
    """Import LanceDB or one of its modules; it logs a warning for every query otherwise."""
    os.environ.setdefault("LANCEDB_LOG", "error")
    return import_module(f"lancedb.{name}".rstrip("."))


@contextmanager
def lance_errors(what: str) -> Iterator[None]:
    """Raise ``ConfigurationError`` with what failed for an error of LanceDB, ``OSError`` for one of the disk."""
    try:
        with _disk_errors():
            yield
    except (RuntimeError, ValueError) as error:
        raise ConfigurationError(f"{what} ({as_sentence(error)})") from error


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise ``OSError`` if LanceDB raises ``RuntimeError`` because of the disk."""
    try:
        yield
    except RuntimeError as error:
        code = re.search(r"LanceError\(IO\).*\(os error (\d+)\)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from None


@part
class LanceDBVectorStore(BuiltInStore):
    """A table of vectors in a LanceDB database, for one writer at a time.

    ``uri`` is a folder, which need not exist yet, or an object-store URI such as ``s3://…``; without it the store is
    only settings. A store on an existing table can be searched at once. An ``index`` decides which chunks are found and
    their scores (ties are ordered by number); adding vectors rebuilds it.

    Raises:
        TableError: The table exists and was not filled by such a store.
        ConfigurationError: The table does not have this index.
    """

    packages = ("lancedb",)
    _queries_at_once = 1024

    uri: Annotated[str | Path | None, Location] = None
    _: KW_ONLY
    index: Annotated[
        LanceIndex | None, PartOf(INDEX), Field(description="An approximate index of the vectors; none: exact search.")
    ] = None

    def __post_init__(self) -> None:
        self._table: Table | None = None
        self._dimension: int | None = None
        self._count = 0
        if self.uri is not None and TABLE in self._database.list_tables().tables:
            self._open(self._database.open_table(TABLE))

    def _open(self, table: "Table") -> None:
        columns, named = sorted(table.schema.names), f"the LanceDB table {TABLE!r} in {str(self.uri)!r}"
        if columns != COLUMNS:
            raise TableError(f"{named} has the columns {columns}, not {COLUMNS}: give another folder")
        numbers = table.search().select(["number"]).to_arrow().column("number").to_numpy()
        if not np.array_equal(numbers, np.arange(len(numbers))):
            raise TableError(f"{named} lacks chunks, or was filled by two writers at once: clear it and fill it again")
        kinds = [index.index_type for index in table.list_indices()]
        if self.index is not None and self.index.lance_type not in kinds:
            raise ConfigurationError(
                f"{named} has the indexes {kinds}, not {self.index.lance_type}: "
                f"fill it by a store with index={self.index}"
            )
        self._table, self._count, self._dimension = table, len(numbers), table.schema.field("vector").type.list_size

    @cached_property
    def _database(self) -> "lancedb.db.DBConnection":
        if self.uri is None:
            raise ConfigurationError("LanceDBVectorStore has no place for its table: give uri")
        return cast("lancedb.db.DBConnection", lance_module().connect(str(self.uri)))

    @property
    def name(self) -> str:
        return "lancedb" if self.index is None else f"lancedb(index={self.index})"

    @property
    def is_exact(self) -> bool:  # type: ignore[override]  # a property here
        return self.index is None

    @property
    def label(self) -> str:
        """The store and its index."""
        return f"lancedb {'exact' if self.index is None else label(self.index)}"

    def __len__(self) -> int:
        return self._count

    def clear(self) -> None:
        if self._table is not None:
            self._database.drop_table(TABLE)
        self._table, self._dimension, self._count = None, None, 0

    def fill(self, parts: Iterable[Vectors]) -> None:
        """Add vectors in parts; raises like every store, and ``OSError`` if the disk is full."""
        with _disk_errors():
            super().fill(parts)

    def vectors(self, numbers: Numbers) -> Vectors:
        wanted, places = np.unique(numbers, return_inverse=True)
        table = cast("Table", self._table)  # there are vectors, so the table exists
        # LanceDB returns rows in table order, which is by number.
        column = table.take_offsets(wanted.tolist()).select(["vector"]).to_arrow().column("vector").combine_chunks()
        vectors: Vectors = column.flatten().to_numpy().reshape(-1, column.type.list_size)[places]
        return vectors

    def _append(self, units: Vectors) -> None:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(units.reshape(-1)), units.shape[1])
        rows = pa.table({"number": np.arange(self._count, self._count + len(units)), "vector": vectors})
        if self._table is None:
            self._table = self._database.create_table(TABLE, rows)
        else:
            self._table.add(rows)
        self._count += len(units)

    def _finish(self) -> None:
        if self.index is not None and self._table is not None:
            self._table.create_index("vector", config=self.index.config())

    def _tiles(self) -> Iterator[tuple[Numbers, Vectors]]:
        table = cast("Table", self._table)  # there are vectors, so the table exists
        for batch in table.search().select(COLUMNS).to_batches(ROWS_AT_ONCE):
            numbers = batch.column("number").to_numpy()
            vectors = batch.column("vector").flatten().to_numpy().reshape(len(numbers), -1)
            for begin in range(0, len(numbers), ROWS_AT_ONCE):
                part = slice(begin, begin + ROWS_AT_ONCE)
                yield numbers[part], vectors[part]

    def _nearest(self, units: Vectors, k: int, among: Mask | None) -> Ranking:
        if self.index is None:
            return super()._nearest(units, k, among)
        best = BestPairs(len(units), k)
        step = max(1, min(INDEX_QUERIES_AT_ONCE, INDEX_HITS_AT_ONCE // k))
        for begin in range(0, len(units), step):
            query = cast("Table", self._table).search(units[begin : begin + step], vector_column_name="vector")
            query = self.index.tune(cast("LanceVectorQueryBuilder", query).distance_type("dot").limit(k))
            if among is not None:
                query = query.where(_numbered(among), prefilter=True)
            found = query.select(["number", "_distance"]).to_arrow()
            # LanceDB omits the column for a single query.
            is_batch = "query_index" in found.column_names
            rows = found.column("query_index").to_numpy() if is_batch else np.zeros(found.num_rows)
            numbers, distances = found.column("number").to_numpy(), found.column("_distance").to_numpy()
            best.add(rows.astype(np.int64) + begin, numbers, 1 - distances)
        return best.ranking()


def _numbered(among: Mask) -> str:
    """Return the SQL condition for these chunks; those of a document have consecutive numbers."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], among, [False]]).astype(np.int8))).reshape(-1, 2)
    return " OR ".join(f"(number >= {begin} AND number < {end})" for begin, end in edges.tolist())
