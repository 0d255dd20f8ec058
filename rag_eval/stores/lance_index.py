"""Approximate indexes of LanceDB, for those who want to evaluate the index itself."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import lancedb.index
    from lancedb.query import LanceVectorQueryBuilder


@dataclass(frozen=True, slots=True)
class IvfPq:
    """Partitions and product quantisation; without ``refine_factor`` the scores are those of the compressed vectors.

    ``refine_factor=n`` fetches n times as many and orders them by their full vectors. None leaves a choice to LanceDB.
    """

    kind: ClassVar[str] = "IvfPq"

    num_partitions: int | None = None
    num_sub_vectors: int | None = None
    nprobes: int = 20
    refine_factor: int | None = None

    def config(self) -> "lancedb.index.IvfPq":
        """How LanceDB builds it."""
        from lancedb.index import IvfPq as Config

        return Config(distance_type="dot", num_partitions=self.num_partitions, num_sub_vectors=self.num_sub_vectors)

    def tune(self, query: "LanceVectorQueryBuilder") -> "LanceVectorQueryBuilder":
        """The query with this index's search settings."""
        query = query.nprobes(self.nprobes)
        return query if self.refine_factor is None else query.refine_factor(self.refine_factor)


@dataclass(frozen=True, slots=True)
class Hnsw:
    """Partitions with a neighbour graph over vectors rounded to one byte a number (IVF_HNSW_SQ).

    ``ef`` is how many candidates a search keeps. None leaves a choice to LanceDB.
    """

    kind: ClassVar[str] = "IvfHnswSq"

    num_partitions: int | None = None
    m: int = 20
    ef_construction: int = 300
    nprobes: int = 20
    ef: int | None = None
    refine_factor: int | None = None

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


LanceIndex = IvfPq | Hnsw
