"""Select which chunks a search may find, and which of its hits are kept.

A filter maps fields of the documents' metadata to conditions, all of which must hold::

    {"language": "en", "folder": ["guides", "api"], "year": {"at_least": 2023}, "status": {"not": "draft"}}

The field must be equal to a value, or to one value of a list; a mapping compares by ``COMPARISONS``. If the field is a
list, one of its values must meet the condition. A document without the field meets ``not`` alone. Filters are applied
before the best chunks are taken, so a filtered search finds as many chunks as any other.
"""

import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import date, time
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Annotated, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictFloat, WithJsonSchema

from rag_eval.chunking.markdown import front_matter
from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import choices, counted, suggestion
from rag_eval.parts import part
from rag_eval.parts.definition import shown
from rag_eval.parts.part_settings import OptionalCount, value_in_words
from rag_eval.storage.files import file_sha256
from rag_eval.stores.rankings import Mask, Numbers, Ranking
from rag_eval.tables import ALLOWED, table_of
from rag_eval.types.documents import Corpus, Document, Documents, by_id
from rag_eval.types.evidence import TokenLevelGroundTruth

Value = str | bool | int | float
Values = Value | list[Value]
Condition = Values | dict[str, Values]
Metadata = Mapping[str, list[Value]]
"""The values of each field of a document."""

COMPARISONS: dict[str, Callable[..., bool]] = {
    "not": operator.ne,
    "above": operator.gt,
    "at_least": operator.ge,
    "below": operator.lt,
    "at_most": operator.le,
    "like": fnmatchcase,
}
"""The comparisons of a condition; in the pattern of ``like``, ``*`` stands for any text."""

_JOINING = {"or", "and", "where", "true", "false", *COMPARISONS}
_KINDS = {str: "text", bool: "true or false", int: "a number", float: "a number"}


def checked_filter(filter_: object) -> dict[str, Condition]:
    """Return a filter with dates as text; raises ``ValueError`` if it is not a filter."""
    if not isinstance(filter_, Mapping) or not filter_:
        raise ValueError(f"expected fields with the values they must have, found {value_in_words(filter_)}")
    return {str(field): _checked_condition(str(field), condition) for field, condition in filter_.items()}


def _checked_condition(field: str, condition: object) -> Condition:
    if not isinstance(condition, Mapping):
        return _checked_values(field, condition)
    if not condition:
        raise ValueError(f"{field} has no condition: {choices(COMPARISONS)}")
    checked: dict[str, Values] = {}
    for name, value in condition.items():
        if name not in COMPARISONS:
            meant = suggestion(name, COMPARISONS)
            raise ValueError(f"{field} cannot be compared by {preview(str(name))}{meant}: {choices(COMPARISONS)}")
        if name != "not" and (isinstance(value, list | tuple) or (name == "like" and not isinstance(value, str))):
            raise ValueError(f"{field} is compared by {name} with {value_in_words(value)}: give one value")
        checked[name] = _checked_values(field, value)
    return checked


def _checked_values(field: str, values: object) -> Values:
    if not isinstance(values, list | tuple):
        return _plain(values, field)
    if not values:
        raise ValueError(f"{field} is compared with an empty list: give values")
    return [_plain(value, field) for value in values]


def _plain(value: object, field: str) -> Value:
    if isinstance(value, date | time):
        return value.isoformat()
    if type(value) not in _KINDS:
        raise ValueError(f"{field} is compared with {value_in_words(value)}: give text, a number, true or false")
    return cast("Value", value)


def _check_table(path: Path | None) -> Path | None:
    if path is not None and path.suffix.lower() not in READERS:
        raise ValueError(f"{preview(path.name)} is not a table of metadata: {choices(READERS)}")
    if path is not None and not path.is_file():
        raise ValueError(f"there is no file {preview(str(path))}: check the path")
    return path


Where = Annotated[
    dict[str, Condition] | None,
    BeforeValidator(lambda given: None if given is None else checked_filter(given)),
    WithJsonSchema({"anyOf": [{"type": "object", "minProperties": 1}, {"type": "null"}]}),
]


@part
class Selection:
    """Filters chunks by the metadata of their documents, and drops hits with low scores or near-duplicates.

    Raises ``ConfigurationError`` without a setting.
    """

    _: KW_ONLY
    where: Annotated[Where, Field(description="Metadata that a document must have to be searched.")] = None
    metadata: Annotated[
        Path | None,
        AfterValidator(_check_table),
        Field(description="Table of further metadata: CSV, JSON lines or Parquet, with a column doc_id."),
    ] = None
    query_filters: Annotated[StrictBool, Field(description="Also apply the filter in a question's metadata.")] = False
    score_threshold: Annotated[
        StrictFloat | None, Field(description="Minimum score of a hit, on the scale of the retrieval.")
    ] = None
    near_duplicates: Annotated[
        StrictFloat | None,
        Field(gt=0, le=1, description="Drop hits that are at least this similar to a better hit."),
    ] = None
    fetch_k: Annotated[
        OptionalCount, Field(description="Number of candidates to fetch; null: as in the benchmark.")
    ] = None

    def __post_init__(self) -> None:
        if not (self.filters or self.cuts or self.fetch_k):
            settings = ["where", "query_filters", "score_threshold", "near_duplicates", "fetch_k"]
            raise ConfigurationError(f"a selection needs at least one setting: {choices(settings)}")
        if self.metadata is not None and not self.filters:
            raise ConfigurationError("a selection has metadata but no filter: give where")

    @property
    def filters(self) -> bool:
        return self.where is not None or self.query_filters

    @property
    def cuts(self) -> bool:
        return self.score_threshold is not None or self.near_duplicates is not None

    @property
    def identity(self) -> str | None:
        """The digest of the metadata table; raises ``ConfigurationError`` if it cannot be read."""
        try:
            return None if self.metadata is None else file_sha256(self.metadata)
        except OSError as error:
            raise ConfigurationError(
                f"the metadata {str(self.metadata)!r} cannot be read ({error.strerror}): check the path"
            ) from None

    @property
    def label(self) -> str:
        """The settings, with the file name of the metadata table."""
        settings = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "_"}
        settings |= {"metadata": self.metadata and self.metadata.name, "query_filters": self.query_filters or None}
        where = settings.pop("where")
        words = [] if where is None else [f"where {' and '.join(_condition_in_words(*item) for item in where.items())}"]
        return " ".join(
            ["select", *words, *(f"{name}={shown(value)}" for name, value in settings.items() if value is not None)]
        )


def _condition_in_words(field: str, condition: Condition) -> str:
    """Return a condition for a label, such as ``folder guides or api`` or ``year at_least 2023``."""
    conditions = [f"{name} {' or '.join(map(_bare, values))}".strip() for name, values in _comparisons(condition)]
    return f"{_bare(field)} {' and '.join(conditions)}"


def _bare(value: Value) -> str:
    """Return a word unquoted, anything else as JSON."""
    is_word = isinstance(value, str) and re.fullmatch(r"[\w./*-]*[^\W\d][\w./*-]*", value) and value not in _JOINING
    return str(value) if is_word else json.dumps(value, ensure_ascii=False)


READERS: dict[str, tuple[str, dict[str, object]]] = {
    ".csv": ("read_csv", {"infer_schema_length": None, "try_parse_dates": True}),
    ".jsonl": ("read_ndjson", {"infer_schema_length": None}),
    ".parquet": ("read_parquet", {}),
}
"""The function of polars for each file type, and its options."""
DOC_ID = "doc_id"


def read_metadata(path: Path) -> dict[str, dict[str, object]]:
    """Return the rows of a table by their ``doc_id``; raises ``ConfigurationError`` if it cannot be used."""
    import polars

    reader, options = READERS[path.suffix.lower()]
    try:
        frame = getattr(polars, reader)(path, **options)
    except (OSError, polars.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"the metadata {path.name} cannot be read ({reason}): correct the file") from None
    if DOC_ID not in frame.columns or frame.schema[DOC_ID] != polars.String:
        raise ConfigurationError(
            f"the metadata {path.name} has no column {DOC_ID} of texts, it has {preview(', '.join(frame.columns))}: "
            "name the document of each row there"
        )
    rows = {row.pop(DOC_ID): row for row in frame.iter_rows(named=True)}
    if len(rows) < frame.height:
        twice = frame.filter(frame[DOC_ID].is_duplicated())[DOC_ID][0]
        raise ConfigurationError(f"the metadata {path.name} has two rows for {preview(str(twice))}: keep one")
    return rows


def document_metadata(documents: Iterable[Document], table: Mapping[str, Mapping[str, object]]) -> list[Metadata]:
    """Return the fields of every document: from the table, else its front matter, its metadata, or its path.

    The path gives ``doc_id``, ``folder`` and ``file``.

    Raises:
        ConfigurationError: The front matter is not YAML, a value cannot be compared, or the table has no row for any
            document.
    """
    found, unknown = list[Metadata](), list[str]()
    for document in documents:
        unknown += [document.id] if document.id not in table else []
        path = PurePosixPath(document.id)
        folder = "" if path.parent == PurePosixPath() else str(path.parent)
        fields = {DOC_ID: document.id, "folder": folder, "file": path.name, **document.metadata}
        fields |= _front_matter(document) | dict(table.get(document.id, {}))
        found.append({field: _values(value, field, document.id) for field, value in fields.items()})
    if table and len(unknown) == len(found):
        raise ConfigurationError(
            f"the metadata table has no row for any document: it has {preview(min(table))}, the corpus has "
            f"{preview(unknown[0])}; {DOC_ID} is a document's path in the corpus"
        )
    return found


def _front_matter(document: Document) -> dict[str, object]:
    """Return the top level of the YAML front matter of a document; aliases are not followed."""
    text = front_matter(document.content)
    if not text:
        return {}
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            return {}
        plain = [(key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode) and _is_plain(value)]
        return {key.value: loader.construct_object(value, deep=True) for key, value in plain}
    except (yaml.YAMLError, ValueError, KeyError, AttributeError) as error:  # a tag that does not fit its value
        reason = getattr(error, "problem", None) or str(error)
        raise ConfigurationError(
            f"the front matter of {document.id!r} is not YAML ({reason}): correct it, or remove the filters"
        ) from None


def _is_plain(node: yaml.Node) -> bool:
    inside = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return all(isinstance(item, yaml.ScalarNode) for item in inside)


def _values(value: object, field: str, doc_id: str) -> list[Value]:
    """Return the values of a field; none if it is nested, because no condition applies to it."""
    values = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(inner, Mapping | list | tuple) for inner in values):
        return []
    try:
        return [_plain(inner, field) for inner in values if inner is not None]
    except ValueError as error:
        raise ConfigurationError(f"the metadata of {doc_id!r}: {error}") from None


def matching(conditions: Mapping[str, Condition], documents: Sequence[str], metadata: Sequence[Metadata]) -> list[str]:
    """Return the documents whose metadata meet all conditions.

    Raises ``ConfigurationError`` if no document has a field, or a value is compared with one of another type.
    """
    known = dict.fromkeys(field for fields in metadata for field, values in fields.items() if values)
    for field in conditions:
        if field not in known:
            raise ConfigurationError(
                f"no document has the field {preview(field)}{suggestion(field, known)}: {choices(known, field)}"
            )
    return [
        doc_id
        for doc_id, fields in zip(documents, metadata, strict=True)
        if all(_meets(fields.get(field, []), condition, field, doc_id) for field, condition in conditions.items())
    ]


def _meets(values: list[Value], condition: Condition, field: str, doc_id: str) -> bool:
    for name, wanted in _comparisons(condition):
        for value, other in product(values, wanted):
            if _KINDS[type(value)] != _KINDS[type(other)]:
                raise ConfigurationError(
                    f"the filter compares {field} with {value_in_words(other)}, and {doc_id!r} has "
                    f"{value_in_words(value)}: write it like the metadata"
                )
        compare = COMPARISONS[name] if name else operator.eq
        results = [compare(value, other) for value, other in product(values, wanted)]
        if not (all(results) if name == "not" else any(results)):
            return False
    return True


def _comparisons(condition: Condition) -> list[tuple[str, list[Value]]]:
    """Return the comparisons of a condition, with their values; a bare value or list has the name ``""``."""
    by_name = condition if isinstance(condition, dict) else {"": condition}
    return [(name, values if isinstance(values, list) else [values]) for name, values in by_name.items()]


FILTER = "filter"
"""Key of a question's filter in its metadata."""


def search_filters(selection: Selection, queries: Iterable[tuple[str, Mapping[str, object]]]) -> dict[str, str | None]:
    """Return the filters of every question, given by its id and metadata, as JSON; None for no filter.

    Raises ``ConfigurationError`` if a question's filter is invalid, or if no question has one despite
    ``query_filters``.
    """
    found: dict[str, str | None] = {}
    count = 0
    for query_id, metadata in queries:
        filters = [] if selection.where is None else [selection.where]
        if selection.query_filters and metadata.get(FILTER) is not None:
            try:
                filters.append(checked_filter(metadata[FILTER]))
            except ValueError as error:
                raise ConfigurationError(f"the filter of question {query_id!r}: {error}") from None
            count += 1
        found[query_id] = json.dumps(filters, ensure_ascii=False, sort_keys=True) if filters else None
    if selection.query_filters and not count:
        raise ConfigurationError(
            f"query_filters is true and none of {len(found)} questions has a filter: put one into the metadata of the "
            f'questions, such as {{"{FILTER}": {{"language": "en"}}}}'
        )
    return found


def allowed_documents(filters: Iterable[str], documents: Documents, selection: Selection) -> pa.Table:
    """Return an ``ALLOWED`` row for each filter; raises like ``matching``, and if ``where`` matches no document."""
    if not selection.filters:
        return ALLOWED.empty_table()
    table = {} if selection.metadata is None else read_metadata(selection.metadata)
    ids, metadata = list(by_id(documents)), document_metadata(by_id(documents).values(), table)
    if selection.where is not None and not matching(selection.where, ids, metadata):
        raise ConfigurationError(
            f"where={shown(selection.where)} matches none of {len(ids)} documents: use values that some of them have"
        )
    rows = []
    for condition in filters:
        kept = set(ids).intersection(*(matching(part, ids, metadata) for part in json.loads(condition)))
        rows.append((condition, [doc_id for doc_id in ids if doc_id in kept]))
    return table_of(ALLOWED, rows)


def where_in_words(selection: Selection, corpus: Corpus, truth: Sequence[TokenLevelGroundTruth]) -> str:
    """Describe how many documents ``where`` leaves, and how many questions lose all evidence; empty without it.

    Raises like ``allowed_documents``.
    """
    if selection.where is None:
        return ""
    rows = allowed_documents([json.dumps([selection.where])], corpus.documents, selection)
    left = set(rows.column("doc_ids")[0].as_py())
    lost = [item for item in truth if not any(span.doc_id in left for group in item.groups for span in group)]
    questions = f", in which {len(lost):,} of {counted(len(truth), 'questions')} have nothing relevant" if truth else ""
    return f"leaves {len(left):,} of {counted(len(corpus), 'documents')}{questions}"


@dataclass(frozen=True)
class Eligible:
    """Which chunks each search may find: groups of searches, by number, each with a mask of chunks (None: all)."""

    groups: Sequence[tuple[Numbers, Mask | None]]

    @classmethod
    def of(cls, searches: pa.Table, allowed: pa.Table | None, chunks: pa.Table) -> "Eligible":
        """Read the filters of searches, and the documents that each allows."""
        numbers = np.arange(searches.num_rows)
        if allowed is None:
            return cls([(numbers, None)])
        column = searches.column("filter")
        rows = pc.fill_null(pc.index_in(column, allowed.column("filter").combine_chunks()), -1).to_numpy()
        groups: list[tuple[Numbers, Mask | None]] = []
        for row in np.unique(rows).tolist():
            documents = None if row < 0 else allowed.column("doc_ids")[row].values
            mask = None if documents is None else pc.is_in(chunks.column("doc_id"), documents).to_numpy()
            groups.append((numbers[rows == row], mask))
        return cls(groups)

    def search(self, count: int, search: Callable[[Numbers, Mask | None], Ranking]) -> Ranking:
        """Return the hits of the first ``count`` searches, with one call for each group."""
        parts = [(numbers[numbers < count], mask) for numbers, mask in self.groups]
        return Ranking.joined([(numbers, search(numbers, mask)) for numbers, mask in parts])

    def lacking(self, ranking: Ranking, depth: int) -> int:
        """Return how many filtered searches found fewer chunks than available, up to ``depth``."""
        masks = [(numbers, int(mask.sum())) for numbers, mask in self.groups if mask is not None]
        found = np.bincount(ranking.searches, minlength=sum(len(numbers) for numbers, _ in self.groups))
        return int(sum((found[numbers] < min(depth, count)).sum() for numbers, count in masks))


SHINGLE = 3
"""Number of consecutive words that are compared."""


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Return the runs of three words of a text, ignoring case and spacing; a shorter text is one run."""
    words = text.casefold().split()
    return frozenset(tuple(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1)))


def repeated(texts: Sequence[frozenset[tuple[str, ...]]], similarity: float) -> list[bool]:
    """Return for each hit, best first, whether it repeats a better hit that is kept.

    The similarity of two texts is the share of their runs of three words that both have, |A ∩ B| / |A ∪ B|.
    """
    having: dict[tuple[str, ...], list[int]] = {}
    dropped = []
    for number, text in enumerate(texts):
        shared = Counter(other for run in text for other in having.get(run, ()))
        repeats = any(both / (len(text) + len(texts[other]) - both) >= similarity for other, both in shared.items())
        dropped.append(repeats)
        for run in text if not repeats else ():
            having.setdefault(run, []).append(number)
    return dropped


def selected(selection: Selection, ranking: Ranking, searches: int, texts: Callable[[int], str]) -> Ranking:
    """Return the hits that reach the threshold and are not near-duplicates; ``texts`` returns the text of a chunk."""
    if selection.score_threshold is not None:
        ranking = ranking.where(ranking.scores >= selection.score_threshold)
    if selection.near_duplicates is None:
        return ranking
    known = {chunk: shingles(texts(chunk)) for chunk in np.unique(ranking.chunks).tolist()}
    kept = [
        not repeats
        for chunks in ranking.by_search(searches)
        for repeats in repeated([known[chunk] for chunk in chunks.tolist()], selection.near_duplicates)
    ]
    return ranking.where(np.array(kept, bool))
