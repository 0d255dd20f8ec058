"""An existing table of LanceDB as a whole system: it is searched as in production, and never written to."""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, cast

import pyarrow as pa
from pydantic import Field

from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.embedder import Embedder, embed_queries
from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import choices
from rag_eval.parts import PartOf, Searching, Shown, part
from rag_eval.parts.definition import settings_label, shown
from rag_eval.parts.part_settings import Name, OptionalCount
from rag_eval.retrieval.lancedb_search import LanceDBQuery
from rag_eval.retrieval.systems import AnswerReader
from rag_eval.stores.lance import Distance, lance_errors, lance_module, tuned
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import Query

if TYPE_CHECKING:
    from lancedb.table import Table

ROW = "_rowid"


@part
class LanceDBTable(LanceDBQuery):
    """An existing LanceDB table. Its rows are located in the documents by their texts; others are left out and counted.

    Raises:
        ConfigurationError: There is no such database, table or column, or no index for the query.
    """

    packages = ("lancedb",)

    uri: Annotated[str | Path, Field(description="The folder of the database, or an object-store URI such as s3://….")]
    table: Annotated[Name, Shown, Field(description="The name of the table.")]
    _: KW_ONLY
    text: Annotated[Name, Field(description="The column with the text.")] = "text"
    vector: Annotated[Name, Field(description="The column with the vector.")] = "vector"
    source: Annotated[
        Name | None, Field(description="The column with the path of the document, such as metadata.source.")
    ] = None
    embedder: Annotated[
        Embedder, PartOf(EMBEDDER), Field(description="The embedder that the table was filled with.")
    ] = Field(default_factory=lambda: EMBEDDER.make("local"))
    filter: Annotated[Name | None, Field(description="SQL condition on the rows to search.")] = None
    distance_type: Annotated[Distance | None, Field(description="The distance; null: LanceDB's choice.")] = None
    nprobes: Annotated[OptionalCount, Searching, Field(description="How many partitions a search reads.")] = None
    ef: Annotated[OptionalCount, Searching, Field(description="The number of candidates in a graph.")] = None
    refine_factor: Annotated[
        OptionalCount, Searching, Field(description="Fetch this many times as many, ordered by full vectors.")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._left_out = self._count = 0
        self._places: dict[int, CharacterSpan] = {}
        for column in (self.text, self.source, *([self.vector] if self.uses_vectors else [])):
            self._check_column(column)
        indexed = [
            column for index in self._table.list_indices() if index.index_type == "FTS" for column in index.columns
        ]
        if self.query != "vector" and self.text not in indexed:
            raise ConfigurationError(
                f"the table {self.table!r} has no full-text index of {self.text!r}: create one, or use query: vector"
            )

    @property
    def label(self) -> str:
        """The query, the table and the settings, without the address."""
        return settings_label(self).replace(f" uri={shown(self.uri)}", "")

    @cached_property
    def _table(self) -> "Table":
        uri = str(self.uri)
        if "://" not in uri and not Path(uri).is_dir():  # LanceDB would create the folder
            raise ConfigurationError(f"there is no LanceDB database {preview(uri)}: check uri")
        with lance_errors(f"LanceDB could not open {preview(uri)}"):
            database = lance_module().connect(uri)
            tables = list(database.list_tables().tables)
            if self.table not in tables:
                raise ConfigurationError(f"{preview(uri)} has no table {preview(self.table)}: {choices(tables)}")
            return cast("Table", database.open_table(self.table))

    def _check_column(self, column: str | None) -> None:
        fields = self._table.schema
        for name in column.split(".") if column else ():
            if name not in (known := [field.name for field in fields]):
                raise ConfigurationError(
                    f"the table {self.table!r} has no column {preview(str(column))}: {choices(known)}"
                )
            kind = next(field for field in fields if field.name == name).type
            fields = kind.fields if pa.types.is_struct(kind) else []

    @property
    def identity(self) -> str:
        """The version of the table, with its time."""
        newest = self._table.list_versions()[-1]
        return f"{newest['version']} {newest['timestamp'].isoformat()}"

    @property
    def fallbacks(self) -> dict[str, int]:
        """How many rows are left out, by a sentence about them."""
        sentence = f"of {self._count:,} rows of {self.table} are left out: their text has no place in the documents"
        return {sentence: self._left_out} if self._left_out else {}

    def index(self, corpus: Corpus) -> None:
        """Locate every row in the documents."""
        wanted = [self.text, *([self.source.split(".")[0]] if self.source else [])]
        rows = self._table.search().select(wanted).with_row_id(True).to_arrow().to_pylist()
        answers = [SimpleNamespace(text=row[self.text] or "", metadata={"source": self._source(row)}) for row in rows]
        located = AnswerReader(self.table, corpus.documents).read_all(answers, "its rows", len(rows))
        pairs = zip(rows, located, strict=True)
        self._places = {row[ROW]: answer.span for row, answer in pairs if answer.span is not None}
        self._count, self._left_out = len(rows), len(rows) - len(self._places)
        if not self._places:
            raise ConfigurationError(
                f"none of the {len(rows):,} rows of {self.table!r} is in the documents: check text and the corpus"
            )

    def _source(self, row: object) -> object:
        for name in self.source.split(".") if self.source else ():
            row = row.get(name) if isinstance(row, dict) else None
        return row if self.source else None

    def search_many(self, queries: Sequence[Query], k: int) -> list[list[dict[str, object]]]:
        """Return the places of the rows that each question finds; raises ``ConfigurationError`` if LanceDB fails."""
        texts, found = [query.text for query in queries], list[list[dict[str, object]]]()
        vectors = embed_queries(self.embedder, texts) if self.uses_vectors else None
        kind = self._table.schema.field(self.vector).type if vectors is not None else None
        if vectors is not None and vectors.shape[1] != getattr(kind, "list_size", None):
            raise ConfigurationError(
                f"the embedder makes vectors of {vectors.shape[1]} dimensions, and {self.vector!r} of the table "
                f"{self.table!r} is {kind}: use the embedder that the table was filled with"
            )
        with lance_errors(f"LanceDB could not search {self.table!r}"):
            for number, text in enumerate(texts):
                vector = None if vectors is None else vectors[number]
                found.append(self._answers(text, vector, self.limit or k))
        return found

    def _answers(self, text: str, vector: object, limit: int) -> list[dict[str, object]]:
        query = self.ask(self._table, text, vector, self.text, self.vector).limit(limit).with_row_id(True)
        if self.uses_vectors:
            query = tuned(query, nprobes=self.nprobes, ef=self.ef, refine_factor=self.refine_factor)
            query = query if self.distance_type is None else query.distance_type(self.distance_type)
        if self.filter is not None:
            query = query.where(self.filter, prefilter=True)
        rows, scores = self.rows(query, [self.text])
        places = [self._places.get(row) for row in rows.column(ROW).to_pylist()]
        return [
            {"doc_id": place.doc_id, "start": place.start, "end": place.end, "score": score}
            for place, score in zip(places, scores, strict=True)
            if place is not None
        ]
