"""Selection: which chunks a search may find, and which of those that it found are kept.

A filter is a mapping from fields of the documents' metadata to conditions, all of which must hold::

    {"language": "en", "folder": ["guides", "api"], "year": {"at_least": 2023}, "status": {"not": "draft"}}

A value is equal to the field, a list has one that is; a mapping compares by ``COMPARISONS``. A field that is a list
meets a condition where one of its values does, and a document without the field meets ``not`` alone. Filters are
applied before the best are taken, so that a filtered search finds as many chunks as any other.
"""

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import date, time
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

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
from rag_eval.retrieval.retriever import Numbers, Ranking
from rag_eval.storage.files import file_sha256
from rag_eval.stores.exact_search import Mask
from rag_eval.tables import ALLOWED, table_of
from rag_eval.types.documents import Corpus, Document, Documents, by_id
from rag_eval.types.evidence import TokenLevelGroundTruth

Filter = Mapping[str, Any]
Metadata = Mapping[str, list[Any]]
"""The values of each field of a document."""

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "not": operator.ne,
    "above": operator.gt,
    "at_least": operator.ge,
    "below": operator.lt,
    "at_most": operator.le,
    "like": fnmatchcase,
}
"""What a condition may compare by; ``like`` is a pattern in which ``*`` stands for any text."""

_JOINING = {"or", "and", "where", "true", "false", *COMPARISONS}
_KINDS = {str: "text", bool: "true or false", int: "a number", float: "a number"}


def checked_filter(given: object) -> dict[str, Any]:
    """Return a filter with dates as text; raises ``ValueError`` when it is none."""
    if not isinstance(given, Mapping) or not given:
        raise ValueError(f"expected fields with the values they must have, found {value_in_words(given)}")
    return {str(field): _checked_condition(str(field), condition) for field, condition in given.items()}


def _checked_condition(field: str, given: object) -> Any:
    if not isinstance(given, Mapping):
        return _checked_values(field, given)
    for name in given:
        if name not in COMPARISONS:
            raise ValueError(
                f"{field} cannot be compared by {preview(str(name))}{suggestion(name, COMPARISONS)}: "
                f"{choices(COMPARISONS)}"
            )
    if not given:
        raise ValueError(f"{field} has no condition: {choices(COMPARISONS)}")
    checked = {name: _checked_values(field, value) for name, value in given.items()}
    for name, value in checked.items():
        if name != "not" and (isinstance(value, list) or (name == "like" and not isinstance(value, str))):
            raise ValueError(f"{field} is compared by {name} with {value_in_words(value)}: give one value")
    return checked


def _checked_values(field: str, given: object) -> Any:
    if isinstance(given, list | tuple):
        if not given:
            raise ValueError(f"{field} has an empty list, which nothing can be in: give values")
        return [_plain(value, field) for value in given]
    return _plain(given, field)


def _plain(value: object, field: str) -> Any:
    """Return a value as metadata have it: text, a number, true or false."""
    if isinstance(value, date | time):
        return value.isoformat()
    if type(value) not in _KINDS:
        raise ValueError(f"{field} is compared with {value_in_words(value)}: give text, a number, true or false")
    return value


def _check_table(path: Path | None) -> Path | None:
    if path is not None and path.suffix.lower() not in READERS:
        raise ValueError(f"{preview(path.name)} is no table of metadata: {choices(READERS)}")
    if path is not None and not path.is_file():
        raise ValueError(f"there is no file {preview(str(path))}: check the path")
    return path


Where = Annotated[
    dict[str, Any] | None,
    BeforeValidator(lambda given: None if given is None else checked_filter(given)),
    WithJsonSchema({"anyOf": [{"type": "object", "minProperties": 1}, {"type": "null"}]}),
]


@part
class Selection:
    """Keeps chunks by the metadata of their documents, by their scores, and what repeats no better hit.

    Raises ``ConfigurationError`` when nothing is selected by.
    """

    _: KW_ONLY
    where: Annotated[Where, Field(description="What the metadata of a document must be for it to be searched.")] = None
    metadata: Annotated[
        Path | None,
        AfterValidator(_check_table),
        Field(description="A table of metadata beside the documents' own: CSV, JSON lines or Parquet, by doc_id."),
    ] = None
    query_filters: Annotated[
        StrictBool, Field(description="Whether a question's own filter, in its metadata, holds too.")
    ] = False
    score_threshold: Annotated[
        StrictFloat | None, Field(description="The least score of a hit, on the scale of the retrieval.")
    ] = None
    near_duplicates: Annotated[
        StrictFloat | None,
        Field(gt=0, le=1, description="The similarity from which on a hit repeats a better one and is left out."),
    ] = None
    fetch_k: Annotated[
        OptionalCount, Field(description="How many candidates are fetched; null: as the benchmark has it.")
    ] = None

    def __post_init__(self) -> None:
        if not (self.filters or self.cuts or self.fetch_k):
            settings = ["where", "query_filters", "score_threshold", "near_duplicates", "fetch_k"]
            raise ConfigurationError(f"a selection needs something to select by: {choices(settings)}")
        if self.metadata is not None and not self.filters:
            raise ConfigurationError("a selection has metadata and no filter that reads it: give where")

    @property
    def filters(self) -> bool:
        """Whether it says what may be found."""
        return self.where is not None or self.query_filters

    @property
    def cuts(self) -> bool:
        """Whether it drops what was found."""
        return self.score_threshold is not None or self.near_duplicates is not None

    @property
    def identity(self) -> str | None:
        """What tells its table of metadata from another; raises ``ConfigurationError`` when that is gone."""
        try:
            return None if self.metadata is None else file_sha256(self.metadata)
        except OSError as error:
            raise ConfigurationError(
                f"the metadata {str(self.metadata)!r} cannot be read ({error.strerror}): check the path"
            ) from None

    @property
    def label(self) -> str:
        """Its settings; the table by the name of its file."""
        settings = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "_"}
        settings |= {"metadata": self.metadata and self.metadata.name, "query_filters": self.query_filters or None}
        where = settings.pop("where")
        words = [] if where is None else [f"where {' and '.join(_condition_in_words(*item) for item in where.items())}"]
        return " ".join(
            ["select", *words, *(f"{name}={shown(value)}" for name, value in settings.items() if value is not None)]
        )


def _condition_in_words(field: str, condition: Any) -> str:
    """Return a condition in words for a label, such as ``folder guides or api`` or ``year at_least 2023``."""
    conditions = [f"{name} {' or '.join(map(_bare, values))}".strip() for name, values in _comparisons(condition)]
    return f"{_bare(field)} {' and '.join(conditions)}"


def _bare(value: Any) -> str:
    """Return a word as it is, anything else as JSON."""
    is_word = isinstance(value, str) and re.fullmatch(r"[\w./*-]*[^\W\d][\w./*-]*", value) and value not in _JOINING
    return str(value) if is_word else json.dumps(value, ensure_ascii=False)


READERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".csv": ("read_csv", {"infer_schema_length": None, "try_parse_dates": True}),
    ".jsonl": ("read_ndjson", {"infer_schema_length": None}),
    ".parquet": ("read_parquet", {}),
}
"""What polars reads a table by, and how."""
DOC_ID = "doc_id"


def read_metadata(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of a table by their ``doc_id``; raises ``ConfigurationError`` when it cannot be used."""
    import polars

    reader, options = READERS[path.suffix.lower()]
    try:
        frame = getattr(polars, reader)(path, **options)
    except (OSError, polars.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"the metadata {path.name} cannot be read ({reason}): mend the file") from None
    if DOC_ID not in frame.columns or frame.schema[DOC_ID] != polars.String:
        raise ConfigurationError(
            f"the metadata {path.name} has no column {DOC_ID} of texts, it has {preview(', '.join(frame.columns))}: "
            "name the document of each row there"
        )
    found = {row.pop(DOC_ID): row for row in frame.iter_rows(named=True)}
    if len(found) < frame.height:
        twice = frame.filter(frame[DOC_ID].is_duplicated())[DOC_ID][0]
        raise ConfigurationError(f"the metadata {path.name} has two rows for {preview(str(twice))}: keep one")
    return found


def document_metadata(documents: Iterable[Document], table: Mapping[str, Mapping[str, Any]]) -> list[Metadata]:
    """Return the fields of every document: of the table, else its front matter, its metadata, or its path.

    The path gives ``doc_id``, ``folder`` and ``file``. Raises ``ConfigurationError`` on front matter that is not YAML,
    on a value that nothing can be compared with, and when the table has none of the documents.
    """
    made, unknown = list[Metadata](), list[str]()
    for document in documents:
        unknown += [document.id] if document.id not in table else []
        path = PurePosixPath(document.id)
        folder = "" if path.parent == PurePosixPath() else str(path.parent)
        fields = {DOC_ID: document.id, "folder": folder, "file": path.name, **document.metadata}
        fields |= _front_matter(document) | dict(table.get(document.id, {}))
        made.append({field: _values(value, field, document.id) for field, value in fields.items()})
    if table and len(unknown) == len(made):
        raise ConfigurationError(
            f"the metadata have no row for any document: they have {preview(min(table))}, the corpus has "
            f"{preview(unknown[0])}; {DOC_ID} is a document's path in the corpus"
        )
    return made


def _front_matter(document: Document) -> dict[str, Any]:
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
            f"the front matter of {document.id!r} is not YAML ({reason}): mend it, its fields are to be filtered by"
        ) from None


def _is_plain(node: yaml.Node) -> bool:
    inside = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return all(isinstance(item, yaml.ScalarNode) for item in inside)


def _values(given: object, field: str, doc_id: str) -> list[Any]:
    listed = given if isinstance(given, list | tuple) else [given]
    if any(isinstance(value, Mapping | list | tuple) for value in listed):
        return []  # nested: no condition is about it
    try:
        return [_plain(value, field) for value in listed if value is not None]
    except ValueError as error:
        raise ConfigurationError(f"the metadata of {doc_id!r}: {error}") from None


def matching(given: Filter, documents: Sequence[str], metadata: Sequence[Metadata]) -> list[str]:
    """Return the documents whose metadata meet all conditions.

    Raises ``ConfigurationError`` on a field that no document has, and on a value of another type than it is compared
    with.
    """
    known = dict.fromkeys(field for fields in metadata for field, values in fields.items() if values)
    for field in given:
        if field not in known:
            raise ConfigurationError(
                f"no document has the field {preview(field)}{suggestion(field, known)}: {choices(known, field)}"
            )
    return [
        doc_id
        for doc_id, fields in zip(documents, metadata, strict=True)
        if all(_meets(fields.get(field, []), condition, field, doc_id) for field, condition in given.items())
    ]


def _meets(values: list[Any], condition: Any, field: str, doc_id: str) -> bool:
    for name, wanted in _comparisons(condition):
        compare: Callable[[Any, Any], bool] = COMPARISONS[name] if name else operator.eq
        results = [compare(value, _alike(other, value, field, doc_id)) for value in values for other in wanted]
        if not (all(results) if name == "not" else any(results)):
            return False
    return True


def _comparisons(condition: Any) -> list[tuple[str, list[Any]]]:
    """Return what a condition compares by, with the values; a bare value or list compares by the name ``""``."""
    by_name = condition if isinstance(condition, Mapping) else {"": condition}
    return [(name, values if isinstance(values, list) else [values]) for name, values in by_name.items()]


def _alike(wanted: Any, value: Any, field: str, doc_id: str) -> Any:
    """Return a value of a filter; raises ``ConfigurationError`` unless it is of the type of the document's."""
    if _KINDS[type(value)] != _KINDS[type(wanted)]:
        raise ConfigurationError(
            f"the filter compares {field} with {value_in_words(wanted)}, and {doc_id!r} has {value_in_words(value)}: "
            "write it as the metadata have it"
        )
    return wanted


def search_filters(selection: Selection, queries: Iterable[tuple[str, Mapping[str, object]]]) -> dict[str, str | None]:
    """Return the filter of every question, by its id and metadata: JSON of the filters that must hold, None for none.

    Raises ``ConfigurationError`` on a question's filter that is none, and when they are asked for and no question has
    one.
    """
    found: dict[str, str | None] = {}
    own = 0
    for query_id, metadata in queries:
        filters = [] if selection.where is None else [selection.where]
        if selection.query_filters and metadata.get(FILTER) is not None:
            try:
                filters.append(checked_filter(metadata[FILTER]))
            except ValueError as error:
                raise ConfigurationError(f"the filter of question {query_id!r}: {error}") from None
            own += 1
        found[query_id] = json.dumps(filters, ensure_ascii=False, sort_keys=True) if filters else None
    if selection.query_filters and not own:
        raise ConfigurationError(
            f"query_filters is true and none of {len(found)} questions has a filter: put one into the metadata of the "
            f'questions, such as {{"{FILTER}": {{"language": "en"}}}}'
        )
    return found


FILTER = "filter"
"""Where the metadata of a question have its own filter."""


def allowed_documents(filters: Iterable[str], documents: Documents, selection: Selection) -> pa.Table:
    """Return an ``ALLOWED`` row for each filter; raises as ``matching``, and when ``where`` leaves no document."""
    if not selection.filters:
        return ALLOWED.empty_table()
    table = {} if selection.metadata is None else read_metadata(selection.metadata)
    ids, metadata = list(by_id(documents)), document_metadata(by_id(documents).values(), table)
    if selection.where is not None and not matching(selection.where, ids, metadata):
        raise ConfigurationError(
            f"where={shown(selection.where)} matches none of {len(ids)} documents: give what some of them have"
        )
    rows = []
    for condition in filters:
        kept = [set(matching(part, ids, metadata)) for part in json.loads(condition)]
        rows.append((condition, [doc_id for doc_id in ids if all(doc_id in each for each in kept)]))
    return table_of(ALLOWED, rows)


def where_in_words(selection: Selection, corpus: Corpus, asked: Sequence[TokenLevelGroundTruth]) -> str:
    """Return how many documents ``where`` leaves, and for how many questions nothing relevant; empty without it.

    Raises as ``allowed_documents``.
    """
    own = [] if selection.where is None else [json.dumps([selection.where])]
    rows = allowed_documents(own, corpus.documents, selection)
    if not own:
        return ""
    left = set(rows.column("doc_ids")[0].as_py())
    lost = [item for item in asked if not any(span.doc_id in left for group in item.groups for span in group)]
    questions = f", in which {len(lost):,} of {counted(len(asked), 'questions')} have nothing relevant" if asked else ""
    return f"leaves {len(left):,} of {counted(len(corpus), 'documents')}{questions}"


@dataclass(frozen=True)
class Eligible:
    """Which chunks each search may find: groups of searches, by number, with a mask over the chunks.

    None stands for all chunks.
    """

    groups: Sequence[tuple[Numbers, Mask | None]]

    @classmethod
    def of(cls, searches: pa.Table, allowed: pa.Table | None, chunks: pa.Table) -> "Eligible":
        """Read the filters of searches, and of which documents each leaves."""
        numbers = np.arange(searches.num_rows)
        if allowed is None:
            return cls([(numbers, None)])
        rows = pc.fill_null(pc.index_in(searches.column("filter"), allowed.column("filter").combine_chunks()), -1)
        groups: list[tuple[Numbers, Mask | None]] = []
        for row in np.unique(rows.to_numpy()).tolist():
            mask = None
            if row >= 0:
                documents = allowed.column("doc_ids")[row].values
                mask = pc.is_in(chunks.column("doc_id"), documents).to_numpy()
            groups.append((numbers[rows.to_numpy() == row], mask))
        return cls(groups)

    def search(self, count: int, search: Callable[[Numbers, Mask | None], Ranking]) -> Ranking:
        """Return what the first ``count`` searches find, each group of them asked at once."""
        if len(self.groups) == 1:
            numbers, mask = self.groups[0]
            return search(numbers[:count], mask)
        columns = []
        for numbers, mask in self.groups:
            part = numbers[numbers < count]
            ranking = search(part, mask)
            columns.append((part[ranking.searches], ranking.chunks, ranking.scores))
        searches, chunks, scores = (np.concatenate(column) for column in zip(*columns, strict=True))
        order = np.argsort(searches, kind="stable")
        return Ranking(searches[order], chunks[order], scores[order])

    def lacking(self, ranking: Ranking, depth: int) -> int:
        """Return of how many filtered searches fewer chunks were found than there are to find, up to ``depth``."""
        masks = [(numbers, int(mask.sum())) for numbers, mask in self.groups if mask is not None]
        found = np.bincount(ranking.searches, minlength=sum(len(numbers) for numbers, _ in self.groups))
        return int(sum((found[numbers] < min(depth, count)).sum() for numbers, count in masks))


DEEPER = 4


def search_deeper(search: Callable[[int], Ranking], searches: int, mask: Mask, k: int) -> Ranking:
    """Return the k best chunks within a mask from a search without filters, which is asked for more until there are k.

    ``search`` gives so many best chunks of each of ``searches``; fewer mean that there are no more to be had.
    """
    asked, wanted = k, min(k, int(mask.sum()))
    while True:
        found = search(asked)
        kept = mask[found.chunks]
        given = np.bincount(found.searches, minlength=searches)
        inside = np.bincount(found.searches[kept], minlength=searches)
        if asked >= len(mask) or ((inside >= wanted) | (given < asked)).all():
            return Ranking(found.searches[kept], found.chunks[kept], found.scores[kept]).first(k)
        asked = min(DEEPER * asked, len(mask))


SHINGLE = 3
"""How many words in a row are compared."""


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Return the runs of three words of a text, case and spacing aside; of a shorter text all of it."""
    words = text.casefold().split()
    return frozenset(tuple(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1)))


def repeated(texts: Sequence[frozenset[tuple[str, ...]]], similarity: float) -> list[bool]:
    """Return of each hit, best first, whether it repeats a better one that is kept.

    The similarity of two texts is the share of their runs of three words that both have, |A ∩ B| / |A ∪ B|.
    """
    having: dict[tuple[str, ...], list[int]] = {}
    dropped = []
    for number, text in enumerate(texts):
        shared: dict[int, int] = {}
        for run in text:
            for other in having.get(run, ()):
                shared[other] = shared.get(other, 0) + 1
        repeats = any(both / (len(text) + len(texts[other]) - both) >= similarity for other, both in shared.items())
        dropped.append(repeats)
        for run in text if not repeats else ():
            having.setdefault(run, []).append(number)
    return dropped


def selected(selection: Selection, ranking: Ranking, searches: int, texts: Callable[[int], str]) -> Ranking:
    """Return the hits that reach the threshold and repeat no better one; ``texts`` gives the text of a chunk."""
    kept = np.ones(len(ranking.chunks), bool)
    if selection.score_threshold is not None:
        kept &= ranking.scores >= selection.score_threshold
    if selection.near_duplicates is not None:
        known: dict[int, frozenset[tuple[str, ...]]] = {}
        for search in range(searches):
            begin, end = np.searchsorted(ranking.searches, [search, search + 1])
            rows = begin + np.flatnonzero(kept[begin:end])
            hits = ranking.chunks[rows].tolist()
            for chunk in hits:
                if chunk not in known:
                    known[chunk] = shingles(texts(chunk))
            kept[rows] = ~np.array(repeated([known[chunk] for chunk in hits], selection.near_duplicates), bool)
    return Ranking(ranking.searches[kept], ranking.chunks[kept], ranking.scores[kept])
