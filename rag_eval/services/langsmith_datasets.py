"""Ground truth in LangSmith datasets: read it, and write it so that pushing it again never creates duplicates."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid5

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag_eval.errors import GroundTruthError, InvalidSpanError, RagEvalError, preview
from rag_eval.ground_truth.records import SpanLine, chunk_level_outputs, token_level_outputs
from rag_eval.services.langsmith_client import LangSmithService
from rag_eval.storage.files import data_sha256
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, EvaluationType, QueryId, QueryText, encode_utf8, generate_query_id

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Dataset, Example

Item = TypeVar("Item")
GroundTruth = list[TokenLevelGroundTruth] | list[ChunkLevelGroundTruth]
Record = Mapping[str, Any]
"""An example as plain data: its ``inputs``, ``outputs`` and ``metadata``, which holds the ``query_id``."""

RELEVANT_CHUNK_IDS = ("relevant_chunk_ids", "relevantChunkIds", "chunk_ids")
RELEVANT_SPANS = ("relevant_spans", "relevantSpans")
TRUTH_KEYS: Mapping[EvaluationType, Sequence[str]] = {"token-level": RELEVANT_SPANS, "chunk-level": RELEVANT_CHUNK_IDS}
METADATA_SPELLINGS = {
    "sourceDocs": "source_docs",
    "generationModel": "generation_model",
    "generationType": "generation_type",
    "queryType": "query_type",
    "queryId": "query_id",
}
# Not metadata of the query: its id, what the item itself says, and the split that LangSmith gives every example.
OWN_KEYS = ("query_id", "unanswerable")
DEFAULT_SPLIT = ["base"]
DEFAULT_DATASETS: Mapping[EvaluationType, str] = {
    "token-level": "rag-eval-token-level-v1",
    "chunk-level": "rag-eval-chunk-level-v1",
}
BATCH = 100
ROUNDS = 4


class SpanOutput(SpanLine):
    """A span in the outputs of an example or a run: a record, or an object that has the same attributes."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)

    origin: str | None = None
    alternatives: list["SpanOutput"] = Field(default_factory=list)  # type: ignore[assignment]  # as lenient


class ChunkGroups(BaseModel):
    """The groups of chunk ids in the outputs of an example; of other keys nothing is asked."""

    model_config = ConfigDict(strict=True)

    alternatives: dict[str, list[str]] = {}
    origins: dict[str, str] = {}

    @classmethod
    def of(cls, example: "Example | None") -> "ChunkGroups":
        """Read them, none without an example; raises ``GroundTruthError`` on what is no group."""
        try:
            return cls.model_validate((example.outputs if example else None) or {})
        except ValidationError as reason:
            raise GroundTruthError(_sentence(reason)) from None


def _query_of(example: "Example") -> Query:
    """Return the query of an example: ``inputs.query``, its id from the metadata or made from the text.

    Metadata is that of the example and of its outputs, in snake_case; what is written so already wins.
    """
    text = (example.inputs or {}).get("query")
    if not isinstance(text, str) or not text.strip():
        raise GroundTruthError("it has no inputs.query: add the question")
    encode_utf8(text, "the query")
    inner = (example.outputs or {}).get("metadata")
    found = (dict(inner) if isinstance(inner, Mapping) else {}) | dict(example.metadata or {})
    renamed = {METADATA_SPELLINGS[key]: value for key, value in found.items() if key in METADATA_SPELLINGS}
    metadata = renamed | {key: value for key, value in found.items() if key not in METADATA_SPELLINGS}
    given = metadata.get("query_id")
    if metadata.get("dataset_split") == DEFAULT_SPLIT:
        del metadata["dataset_split"]
    kept = {key: value for key, value in metadata.items() if key not in OWN_KEYS}
    query_id = given if isinstance(given, str) and given else generate_query_id(text)
    return Query(QueryId(query_id), QueryText(text), kept)


def is_unanswerable(example: "Example | None") -> bool:
    """Tell whether an example is declared unanswerable: in its metadata, its outputs, or the metadata of these."""
    if example is None:
        return False
    outputs = example.outputs if isinstance(example.outputs, Mapping) else {}
    sides = (example.metadata, outputs, outputs.get("metadata"))
    return any(isinstance(side, Mapping) and side.get("unanswerable") is True for side in sides)


def relevant_items(example: "Example | None", keys: Sequence[str], read: Callable[[object], Item]) -> list[Item]:
    """Return the items under the first of the keys that the outputs have, else []; raises ``GroundTruthError``."""
    outputs = None if example is None else example.outputs
    key = next((key for key in keys if key in outputs), None) if isinstance(outputs, Mapping) else None
    return [] if key is None or outputs is None else read_items(outputs[key], key, read, GroundTruthError)


def read_items(found: object, key: str, read: Callable[[object], Item], error: type[RagEvalError]) -> list[Item]:
    """Return the items of a list, each read; raises ``error`` with the key and the number of one that cannot be."""
    if not isinstance(found, list | tuple):
        raise error(f"{key!r} is {preview(repr(found))}, not a list: give a list, [] when there is nothing")
    items = []
    for number, item in enumerate(found):
        try:
            items.append(read(item))
        except (TypeError, ValidationError, InvalidSpanError) as reason:
            raise error(f"{key!r}, item {number}: {_sentence(reason)}") from None
    return items


def as_chunk_id(item: object) -> str:
    """Return a chunk id as it is; raises ``TypeError`` on anything else."""
    if isinstance(item, str):
        return item
    raise TypeError(f"{preview(repr(item))} is not a chunk id: use texts, or override the extraction")


def as_span(item: object) -> CharacterSpan:
    """Return the span of a record; raises ``ValidationError`` or ``InvalidSpanError`` on what is none."""
    return SpanOutput.model_validate(item).span()


def span_and_alternatives(item: object) -> list[CharacterSpan]:
    """Return the span of a record and its alternatives, nothing where it has none: its shape may be the user's own."""
    if not isinstance(item, Mapping) or not item.get("alternatives"):
        return []
    return [member.span() for member in SpanOutput.model_validate(item).members]


def _sentence(reason: Exception) -> str:
    if not isinstance(reason, ValidationError):
        return str(reason)
    first = reason.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the span"
    return f"{place}: {first['msg']}"


def find_dataset(service: LangSmithService, dataset_name: str) -> "Dataset | None":
    """Return the dataset of this name, None when there is none; raises ``ServiceError`` when LangSmith fails."""
    from langsmith.schemas import Dataset
    from langsmith.utils import LangSmithNotFoundError

    def read(client: "Client") -> Dataset | None:
        try:
            found: Dataset = client.read_dataset(dataset_name=dataset_name)
        except LangSmithNotFoundError:
            return None
        return found

    return service.ask(f"the LangSmith dataset {dataset_name!r} could not be read", read)


def _list_examples(service: LangSmithService, dataset: "Dataset") -> "list[Example]":
    return service.ask(
        f"the LangSmith dataset {dataset.name!r} could not be read",
        lambda client: sorted(client.list_examples(dataset_id=dataset.id), key=lambda example: str(example.id)),
    )


def read_examples(service: LangSmithService, dataset_name: str) -> "list[Example]":
    """Return all examples of a dataset, by id; raises ``GroundTruthError`` when there are none, ``ServiceError``."""
    dataset = find_dataset(service, dataset_name)
    if dataset is None:
        raise GroundTruthError(
            f"there is no LangSmith dataset {dataset_name!r}: check its name and the workspace of the key"
        )
    examples = _list_examples(service, dataset)
    if not examples:
        raise GroundTruthError(f"the LangSmith dataset {dataset_name!r} has no examples: add some")
    return examples


def token_level_truth(examples: "Sequence[Example]", dataset_name: str) -> list[TokenLevelGroundTruth]:
    """Return the examples as token-level ground truth; raises ``GroundTruthError`` naming the example."""

    def read(example: "Example") -> TokenLevelGroundTruth:
        records = relevant_items(example, RELEVANT_SPANS, SpanOutput.model_validate)
        groups = [[member.span() for member in record.members] for record in records]
        members = [member for record in records for member in record.members]
        return TokenLevelGroundTruth(
            _query_of(example),
            [span for span, *_ in groups],
            is_unanswerable(example),
            {span: others for span, *others in groups if others},
            {member.span(): member.origin for member in members if member.origin},
        )

    check_type(examples, "token-level", dataset_name)
    return [_named(read, example, dataset_name) for example in examples]


def chunk_level_truth(examples: "Sequence[Example]", dataset_name: str) -> list[ChunkLevelGroundTruth]:
    """Return the examples as chunk-level ground truth; raises ``GroundTruthError`` naming the example."""

    def read(example: "Example") -> ChunkLevelGroundTruth:
        ids = [ChunkId(name) for name in relevant_items(example, RELEVANT_CHUNK_IDS, as_chunk_id)]
        groups = ChunkGroups.of(example)
        return ChunkLevelGroundTruth(
            _query_of(example),
            ids,
            is_unanswerable(example),
            {ChunkId(seed): [ChunkId(name) for name in members] for seed, members in groups.alternatives.items()},
            {ChunkId(name): origin for name, origin in groups.origins.items()},
        )

    check_type(examples, "chunk-level", dataset_name)
    return [_named(read, example, dataset_name) for example in examples]


def query_ids(examples: "Sequence[Example]", dataset_name: str) -> list[QueryId]:
    """Return the ids of the examples' queries; raises ``GroundTruthError`` naming the example."""
    return [_named(_query_of, example, dataset_name).id for example in examples]


def match_queries(
    examples: "Sequence[Example]", queries: Sequence[tuple[str, str]], dataset_name: str
) -> "tuple[list[Example | None], list[Example]]":
    """For each query, by id and text, its example or None; and the examples that are of none.

    An example that was made elsewhere has no id of ours: it is known by its text. Of two examples of one query the
    second is of none. Raises ``GroundTruthError`` naming an example that has no query.
    """
    known: dict[str, Example] = {}
    second: list[Example] = []
    for query_id, example in zip(query_ids(examples, dataset_name), examples, strict=True):
        if known.setdefault(query_id, example) is not example:
            second.append(example)
    found = [known.pop(query_id, None) for query_id, _ in queries]
    for number, (_, text) in enumerate(queries):
        if found[number] is None:
            found[number] = known.pop(generate_query_id(text), None)
    return found, [*known.values(), *second]


def check_type(examples: "Sequence[Example]", wanted: EvaluationType, dataset_name: str) -> None:
    """Raise ``GroundTruthError`` when an example is of the other type."""
    other: EvaluationType = "chunk-level" if wanted == "token-level" else "token-level"
    for example in examples:
        if not has_truth(example, wanted) and has_truth(example, other):
            raise GroundTruthError(
                f"the LangSmith dataset {dataset_name!r} holds {other} ground truth "
                f"({preview(', '.join(example.outputs or {}))}) and the evaluation is {wanted}: "
                "use the one that fits the other"
            )


def has_truth(example: "Example", kind: EvaluationType) -> bool:
    """Whether an example has what such ground truth is kept under."""
    return any(key in (example.outputs or {}) for key in TRUTH_KEYS[kind])


def _named(read: "Callable[[Example], Item]", example: "Example", dataset_name: str) -> Item:
    try:
        return read(example)
    except RagEvalError as error:
        raise GroundTruthError(f"example {example.id} of the LangSmith dataset {dataset_name!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class PushReport:
    """What a push did to the examples; ``others`` are those that the ground truth does not have and that were kept."""

    dataset: str
    url: str | None
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    others: int = 0


def push_truth(
    service: LangSmithService,
    dataset_name: str,
    truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth],
    *,
    delete_others: bool = False,
) -> PushReport:
    """Make a dataset hold this ground truth; it is created when it is not there.

    An example is that of a query when it has the query's id, or none and its text. Examples that the ground truth does
    not have are kept unless ``delete_others``. Raises ``GroundTruthError`` when the ground truth is empty,
    or the dataset is of the other type; ``ServiceError`` when LangSmith fails.
    """
    kind, records = truth_records(truth, dataset_name)
    return push_records(service, dataset_name, records, kind, delete_others=delete_others)


def truth_records(
    truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth], dataset_name: str
) -> tuple[EvaluationType, list[Record]]:
    """Return the type of ground truth and its records; raises ``GroundTruthError`` when there is none."""
    if not truth:
        raise GroundTruthError(f"there is no ground truth to push to {dataset_name!r}: give at least one query")
    kind: EvaluationType = "token-level" if isinstance(truth[0], TokenLevelGroundTruth) else "chunk-level"
    return kind, [record_of(item) for item in truth]


def record_of(item: TokenLevelGroundTruth | ChunkLevelGroundTruth) -> Record:
    """Return an item of ground truth as an example of a dataset.

    Where the metadata does not say them, ``source_docs`` are the documents of the spans and ``generation_type`` is
    ``manual``. Raises ``TextEncodingError`` on a lone surrogate.
    """
    metadata = dict(item.query.metadata)
    if isinstance(item, TokenLevelGroundTruth):
        outputs = token_level_outputs(item)
        metadata.setdefault("source_docs", sorted({span.doc_id for span in item.relevant_spans}))
    else:
        outputs = chunk_level_outputs(item)
    metadata.setdefault("generation_type", "manual")
    metadata["query_id"] = item.query.id
    if item.unanswerable:
        metadata["unanswerable"] = True
    record = {"inputs": {"query": item.query.text}, "outputs": outputs, "metadata": metadata}
    encode_utf8(json.dumps(record, ensure_ascii=False), f"the ground truth of {item.query.id}")
    return record


def push_records(
    service: LangSmithService,
    dataset_name: str,
    records: Sequence[Record],
    kind: EvaluationType,
    *,
    delete_others: bool = False,
    only_if_new: bool = False,
) -> PushReport:
    """As ``push_truth``, for plain data.

    With ``only_if_new`` a dataset that has examples is left alone, unless it was made from these very records, holds
    nothing else, and is to be completed.
    """
    digest = data_sha256(list(records))
    dataset = find_dataset(service, dataset_name) or _create(service, dataset_name, kind, digest)
    if dataset.data_type is not None and dataset.data_type.value != "kv":
        raise GroundTruthError(
            f"the LangSmith dataset {dataset_name!r} is of the type {dataset.data_type.value!r}: "
            "ground truth needs one of the type 'kv', give another name"
        )
    queries = [(record["metadata"]["query_id"], record["inputs"]["query"]) for record in records]
    for attempt in range(ROUNDS):
        examples = _list_examples(service, dataset)
        check_type(examples, kind, dataset_name)
        matches, others = match_queries(examples, queries, dataset_name)
        # Ids that are taken though nothing is listed under them are those of deleted examples: others are used then.
        salt = "" if attempt < 2 else str(attempt)
        new: list[dict[str, Any]] = []
        changed: list[dict[str, Any]] = []
        for (query_id, _), record, match in zip(queries, records, matches, strict=True):
            if match is None:
                # The SDK calls outputs otherwise when it creates.
                sent = {"reference_outputs" if key == "outputs" else key: value for key, value in record.items()}
                new.append({"id": uuid5(dataset.id, query_id + salt), **sent})
                continue
            kept = dict(match.metadata or {})
            split = {key: kept[key] for key in ("dataset_split",) if key in kept}  # LangSmith's own, in the metadata
            wanted = {**record, "metadata": {**record["metadata"], **split}}
            if wanted != {"inputs": match.inputs, "outputs": match.outputs, "metadata": kept}:
                changed.append({"id": match.id, **wanted})
        half_made = (dataset.metadata or {}).get("ground_truth") == digest and not changed and not others
        if only_if_new and examples and not half_made:
            return PushReport(dataset_name, dataset.url, others=len(examples))
        if _write(service, dataset, new, changed, others if delete_others else []):
            gone = {"deleted" if delete_others else "others": len(others)}
            unchanged = len(records) - len(new) - len(changed)
            return PushReport(dataset_name, dataset.url, len(new), len(changed), unchanged, **gone)
    raise GroundTruthError(
        f"the LangSmith dataset {dataset_name!r} keeps refusing examples as known that it does not list: "
        "push to another name"
    )


def _create(service: LangSmithService, name: str, kind: EvaluationType, digest: str) -> "Dataset":
    from langsmith.schemas import Dataset
    from langsmith.utils import LangSmithConflictError

    def create(client: "Client") -> Dataset:
        try:
            made: Dataset = client.create_dataset(
                name,
                description=f"Ground truth for {kind} evaluation of retrieval",
                metadata={"evaluation_type": kind, "ground_truth": digest},
            )
        except LangSmithConflictError:  # another made it, or an answer got lost
            made = client.read_dataset(dataset_name=name)
        return made

    return service.ask(f"the LangSmith dataset {name!r} could not be created", create)


def _write(
    service: LangSmithService,
    dataset: "Dataset",
    new: Sequence[dict[str, Any]],
    changed: Sequence[dict[str, Any]],
    gone: "Sequence[Example]",
) -> bool:
    """Create, update and delete; False when an example that was to be created is there by now: look again then."""
    from langsmith.utils import LangSmithConflictError

    def create(batch: Sequence[Any], client: "Client") -> bool:
        try:
            client.create_examples(dataset_id=dataset.id, examples=batch)
        except LangSmithConflictError:
            return False
        return True

    def update(batch: Sequence[Any], client: "Client") -> bool:
        client.update_examples(dataset_id=dataset.id, updates=batch)
        return True

    def delete(batch: Sequence[Any], client: "Client") -> bool:
        client.delete_examples([example.id for example in batch])
        return True

    problem = f"the LangSmith dataset {dataset.name!r} could not be written"
    steps: list[tuple[Any, Sequence[Any]]] = [(create, new), (update, changed), (delete, gone)]
    return all(
        service.ask(problem, partial(step, items[start : start + BATCH]))
        for step, items in steps
        for start in range(0, len(items), BATCH)
    )
