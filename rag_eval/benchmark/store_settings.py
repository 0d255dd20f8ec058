"""The stores by name.

A benchmark keeps its indexes in LanceDB tables, so that a later run can use them again; stores that forget (memory) or
that hold chunks for others (Chroma) are for the library.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictInt

from rag_eval.benchmark.component import Component
from rag_eval.stores.lance import Hnsw, IvfPq, LanceDBVectorStore, LanceIndex

OptionalCount = Annotated[StrictInt | None, Field(ge=1)]


class NoIndexConfig(Component):
    """No index: every search is exact."""

    type: Literal["none"] = "none"

    @property
    def label(self) -> str:
        """What a search without an index is."""
        return "exact"

    def build(self) -> LanceIndex | None:
        """None."""
        return None


class IvfPqConfig(Component):
    """Partitions and product quantisation."""

    searching = ("nprobes", "refine_factor")

    type: Literal["ivf-pq"] = "ivf-pq"
    num_partitions: OptionalCount = Field(default=None, description="How many partitions; null: LanceDB's choice.")
    num_sub_vectors: OptionalCount = Field(default=None, description="Parts of a vector; null: LanceDB's choice.")
    nprobes: StrictInt = Field(default=20, ge=1, description="How many partitions a search reads.")
    refine_factor: OptionalCount = Field(default=None, description="How many times as many to order by full vectors.")

    def build(self) -> LanceIndex | None:
        """The index's settings."""
        return IvfPq(**self.model_dump(exclude={"type"}))


class HnswConfig(Component):
    """Partitions with a neighbour graph over vectors rounded to one byte a number."""

    searching = ("nprobes", "ef", "refine_factor")

    type: Literal["hnsw"] = "hnsw"
    num_partitions: OptionalCount = Field(default=None, description="How many partitions; null: LanceDB's choice.")
    m: StrictInt = Field(default=20, ge=1, description="How many neighbours a vector has.")
    ef_construction: StrictInt = Field(default=300, ge=1, description="How many candidates the building keeps.")
    nprobes: StrictInt = Field(default=20, ge=1, description="How many partitions a search reads.")
    ef: OptionalCount = Field(default=None, description="How many candidates a search keeps; null: LanceDB's choice.")
    refine_factor: OptionalCount = Field(default=None, description="How many times as many to order by full vectors.")

    def build(self) -> LanceIndex | None:
        """The index's settings."""
        return Hnsw(**self.model_dump(exclude={"type"}))


IndexConfig = Annotated[NoIndexConfig | IvfPqConfig | HnswConfig, Field(discriminator="type")]
"""Any of LanceDB's indexes, told apart by ``type``."""


class LanceDBConfig(Component):
    """A LanceDB table: the only store of a benchmark, because a later run can use its index again."""

    type: Literal["lancedb"] = "lancedb"
    index: IndexConfig = Field(default=NoIndexConfig(), description="none (exact), ivf-pq or hnsw (approximate).")

    @property
    def label(self) -> str:
        """The store and its index."""
        return f"{self.type} {self.index.label}"

    def build(self, location: str | Path) -> LanceDBVectorStore:
        """The store in a folder or at a URI; raises ``ConfigurationError`` when another index is there."""
        return LanceDBVectorStore(location, index=self.index.build())


StoreConfig = LanceDBConfig
"""Any of the stores."""
