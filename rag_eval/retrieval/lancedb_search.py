"""LanceDB's own search: its indexes, its calls and its rerankers, one query at a time.

LanceDB answers a batch of hybrid queries wrongly, and takes one full-text query at a time.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, StrictBool, StrictFloat

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ConfigurationError
from rag_eval.parts import PartOf, Searching, Shown, part, settings_of
from rag_eval.parts.part_settings import Count, Name, OptionalCount
from rag_eval.retrieval import FULL_TEXT, LANCEDB_RERANKER
from rag_eval.retrieval.engines import EngineHits
from rag_eval.stores import INDEX
from rag_eval.stores.lance import Distance, LanceIndex, lance_errors, lance_module

if TYPE_CHECKING:
    from lancedb.query import LanceQueryBuilder
    from lancedb.rerankers import Reranker
    from lancedb.table import Table


@part
class RRFReranker:
    """Reciprocal rank fusion, LanceDB's default."""

    k: Annotated[Count, Field(description="The constant that is added to every rank.")] = 60

    def make(self) -> "Reranker":
        made: Reranker = lance_module("rerankers").RRFReranker(K=self.k)
        return made


@part
class LinearReranker:
    """A weighted sum of the scores, each scaled to 0 to 1 among the rows found."""

    weight: Annotated[StrictFloat, Field(ge=0, le=1, description="The weight of the vector search.")] = 0.7
    fill: Annotated[StrictFloat, Field(description="The distance of a row that only one search found.")] = 1.0

    def make(self) -> "Reranker":
        made: Reranker = lance_module("rerankers").LinearCombinationReranker(weight=self.weight, fill=self.fill)
        return made


@part
class MRRReranker:
    """A weighted mean of reciprocal ranks."""

    weight: Annotated[StrictFloat, Field(ge=0, le=1, description="The weight of the vector search.")] = 0.5

    def make(self) -> "Reranker":
        made: Reranker = lance_module("rerankers").MRRReranker(weight_vector=self.weight, weight_fts=1 - self.weight)
        return made


@part
class FullTextIndex:
    """LanceDB's full-text index, with its defaults."""

    language: Annotated[Name, Field(description="The language of stemming and stop words.")] = "English"
    base_tokenizer: Annotated[Name, Field(description="simple, whitespace, raw, ngram, icu or others of LanceDB.")] = (
        "simple"
    )
    stem: Annotated[StrictBool, Field(description="Reduce words to their stems.")] = True
    remove_stop_words: Annotated[StrictBool, Field(description="Leave out words such as “the”.")] = True
    custom_stop_words: Annotated[list[str] | None, Field(description="Stop words; null: those of the language.")] = None
    lower_case: Annotated[StrictBool, Field(description="Ignore case.")] = True
    ascii_folding: Annotated[StrictBool, Field(description="Ignore accents.")] = True
    max_token_length: Annotated[OptionalCount, Field(description="Longer words are not indexed; null: all are.")] = 40
    ngram_min_length: Annotated[Count, Field(description="The shortest n-grams of the tokenizer ngram.")] = 3
    ngram_max_length: Annotated[Count, Field(description="The longest n-grams of the tokenizer ngram.")] = 3
    prefix_only: Annotated[StrictBool, Field(description="Index only the n-grams that begin a word.")] = False
    with_position: Annotated[StrictBool, Field(description="Store positions, which questions in quotes need.")] = False

    def config(self) -> Any:
        """Return LanceDB's settings of the index."""
        return lance_module("index").FTS(**{name: getattr(self, name) for name in settings_of(type(self))})


@part
class LanceDBQuery:
    """A query of LanceDB: by vector, by words, or by both with one of LanceDB's rerankers."""

    _: KW_ONLY
    query: Annotated[
        Literal["vector", "fts", "hybrid"], Shown, Field(description="vector, fts (full text), or hybrid for both.")
    ] = "hybrid"
    reranker: Annotated[
        Any, Searching, PartOf(LANCEDB_RERANKER), Field(description="Combines both searches; none: LanceDB's default.")
    ] = None
    normalize: Annotated[
        Literal["score", "rank"], Searching, Field(description="What the reranker gets of both searches.")
    ] = "score"
    limit: Annotated[
        OptionalCount, Searching, Field(description="LanceDB's limit; null: as many hits as the benchmark needs.")
    ] = None

    def __post_init__(self) -> None:
        if self.reranker is not None and self.query != "hybrid":
            raise ConfigurationError(
                f"the reranker combines the searches of query: hybrid, and this is query: {self.query}: remove it"
            )

    @property
    def uses_vectors(self) -> bool:
        """Whether it searches by vector."""
        return self.query != "fts"

    def ask(self, table: "Table", text: str, vector: Any, text_column: str, vector_column: str | None) -> Any:
        """Return LanceDB's query builder for a question."""
        query: Any
        if self.query == "vector":
            return table.search(vector, vector_column_name=vector_column, query_type="vector")
        if self.query == "fts":
            return table.search(text, query_type="fts", fts_columns=text_column)
        query = table.search(query_type="hybrid", vector_column_name=vector_column, fts_columns=text_column)
        query = query.vector(vector).text(text)
        return query if self.reranker is None else query.rerank(self.reranker.make(), self.normalize)

    def rows(self, query: "LanceQueryBuilder", columns: Sequence[str]) -> tuple[pa.Table, list[float]]:
        """Return the rows that a query finds, best first, and their scores; distances count negative."""
        own = {"vector": ["_distance"], "fts": ["_score"], "hybrid": []}[self.query]
        found = query.select([*columns, *own]).to_arrow()
        name, sign = (own[0], -1) if self.query == "vector" else ("_score" if own else "_relevance_score", 1)
        return found, [sign * score for score in found.column(name).to_pylist()]


TABLE = "chunks"


@part
class LanceDBSearch(LanceDBQuery):
    """LanceDB as people run it: a table with its indexes, searched by LanceDB's own calls.

    The limit decides how many rows each search of a hybrid query finds before they are combined.
    """

    packages = ("lancedb",)

    _: KW_ONLY
    index: Annotated[
        LanceIndex | None, PartOf(INDEX), Field(description="The index of the vectors; none: LanceDB reads all.")
    ] = None
    fts: Annotated[FullTextIndex, PartOf(FULL_TEXT), Field(description="The full-text index.")] = Field(
        default_factory=FullTextIndex
    )
    distance_type: Annotated[Distance, Field(description="The distance; cosine omits vectors of zeros.")] = "l2"
    scalar_index: Annotated[
        Literal["none", "btree", "bitmap"], Field(description="The index of the documents that a selection filters by.")
    ] = "none"
    prefilter: Annotated[StrictBool, Searching, Field(description="Filter before the search, not after it.")] = True

    def build(self, location: Path, chunks: pa.Table, vectors: Vectors | None) -> None:
        """Write the table and its indexes."""
        with lance_errors("LanceDB could not build the index"):
            if vectors is not None:
                column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
                chunks = chunks.append_column("vector", column)
            table = lance_module().connect(str(location)).create_table(TABLE, chunks)
            if self.query != "vector":
                table.create_index("text", config=self.fts.config())
            if self.index is not None and vectors is not None:
                table.create_index("vector", config=self.index.config(self.distance_type))
            if self.scalar_index != "none":
                kinds = lance_module("index")
                table.create_index("doc_id", config=kinds.BTree() if self.scalar_index == "btree" else kinds.Bitmap())

    def search(
        self, location: Path, queries: Sequence[str], vectors: Vectors | None, limit: int, doc_ids: Sequence[str] | None
    ) -> list[EngineHits]:
        """Return the best chunks for every query, each asked alone."""
        table = lance_module().connect(str(location)).open_table(TABLE)
        where = None if doc_ids is None else f"doc_id IN ({', '.join(map(_sql, doc_ids))})"
        found: list[EngineHits] = []
        with lance_errors("LanceDB could not search"):
            for number, text in enumerate(queries):
                vector = None if vectors is None else vectors[number]
                query = self.ask(table, text, vector, "text", "vector").limit(min(limit, self.limit or limit))
                if vectors is not None:
                    query = query.distance_type(self.distance_type)
                    query = query if self.index is None else self.index.tune(query)
                if where is not None:
                    query = query.where(where, prefilter=self.prefilter)
                rows, scores = self.rows(query, ["number"])
                found.append(list(zip(rows.column("number").to_pylist(), scores, strict=True)))
        return found


def _sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
