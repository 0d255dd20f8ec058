"""Ground truth in LangSmith datasets: reading it."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from rag_eval.errors import GroundTruthError, RagEvalError, preview
from rag_eval.publishing.langsmith_records import (
    RELEVANT_CHUNK_IDS,
    RELEVANT_SPANS,
    is_unanswerable,
    query_of,
    relevant_chunk_ids,
    relevant_spans,
)
from rag_eval.publishing.langsmith_service import LangSmithService
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, EvaluationType, QueryId, generate_query_id

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Dataset, Example

Item = TypeVar("Item")
GroundTruth = list[TokenLevelGroundTruth] | list[ChunkLevelGroundTruth]

TRUTH_KEYS: Mapping[EvaluationType, Sequence[str]] = {"token-level": RELEVANT_SPANS, "chunk-level": RELEVANT_CHUNK_IDS}


def find_dataset(service: LangSmithService, dataset_name: str) -> "Dataset | None":
    """The dataset of this name, None when there is none; raises ``ServiceError`` when LangSmith fails."""
    from langsmith.schemas import Dataset
    from langsmith.utils import LangSmithNotFoundError

    def read(client: "Client") -> Dataset | None:
        try:
            found: Dataset = client.read_dataset(dataset_name=dataset_name)
        except LangSmithNotFoundError:
            return None
        return found

    return service.ask(f"the LangSmith dataset {dataset_name!r} could not be read", read)


def list_examples(service: LangSmithService, dataset: "Dataset") -> "list[Example]":
    """All examples of a dataset, in the order of their ids; raises ``ServiceError`` when LangSmith fails."""
    return service.ask(
        f"the LangSmith dataset {dataset.name!r} could not be read",
        lambda client: sorted(client.list_examples(dataset_id=dataset.id), key=lambda example: str(example.id)),
    )


def read_examples(service: LangSmithService, dataset_name: str) -> "list[Example]":
    """All examples of the dataset of this name, in the order of their ids.

    Raises ``GroundTruthError`` when there is no such dataset or it is empty, ``ServiceError`` when LangSmith fails.
    """
    dataset = find_dataset(service, dataset_name)
    if dataset is None:
        raise GroundTruthError(
            f"there is no LangSmith dataset {dataset_name!r}: check its name and the workspace of the key"
        )
    examples = list_examples(service, dataset)
    if not examples:
        raise GroundTruthError(f"the LangSmith dataset {dataset_name!r} has no examples: add some")
    return examples


def pull_truth(service: LangSmithService, dataset_name: str) -> GroundTruth:
    """The ground truth of a dataset, of either type, in the order of the query ids.

    Raises ``GroundTruthError`` when there is no such dataset, or an example of it cannot be used; ``ServiceError`` when
    LangSmith fails.
    """
    examples = read_examples(service, dataset_name)
    truth: GroundTruth
    if type_of(examples, dataset_name) == "token-level":
        truth = sorted(token_level_truth(examples, dataset_name), key=lambda item: item.query.id)
    else:
        truth = sorted(chunk_level_truth(examples, dataset_name), key=lambda item: item.query.id)
    _check_unique([item.query.id for item in truth], dataset_name)
    return truth


def type_of(examples: "Sequence[Example]", dataset_name: str) -> EvaluationType:
    """The type of ground truth that examples hold; raises ``GroundTruthError`` when it is both or neither."""
    found = {kind for example in examples for kind, keys in TRUTH_KEYS.items() if _has(example, keys)}
    if len(found) == 1:
        return found.pop()
    problem = "both token-level and chunk-level" if found else "neither token-level nor chunk-level"
    raise GroundTruthError(
        f"the LangSmith dataset {dataset_name!r} holds {problem} ground truth: its examples need "
        "outputs.relevant_spans, or all of them outputs.relevant_chunk_ids"
    )


def token_level_truth(examples: "Sequence[Example]", dataset_name: str) -> list[TokenLevelGroundTruth]:
    """The examples as token-level ground truth; raises ``GroundTruthError`` naming the example."""

    def read(example: "Example") -> TokenLevelGroundTruth:
        return TokenLevelGroundTruth(query_of(example), relevant_spans(example), is_unanswerable(example))

    check_type(examples, "token-level", dataset_name)
    return [_named(read, example, dataset_name) for example in examples]


def chunk_level_truth(examples: "Sequence[Example]", dataset_name: str) -> list[ChunkLevelGroundTruth]:
    """The examples as chunk-level ground truth; raises ``GroundTruthError`` naming the example."""

    def read(example: "Example") -> ChunkLevelGroundTruth:
        ids = [ChunkId(name) for name in relevant_chunk_ids(example)]
        return ChunkLevelGroundTruth(query_of(example), ids, is_unanswerable(example))

    check_type(examples, "chunk-level", dataset_name)
    return [_named(read, example, dataset_name) for example in examples]


def query_ids(examples: "Sequence[Example]", dataset_name: str) -> list[QueryId]:
    """The ids of the examples' queries; raises ``GroundTruthError`` naming the example."""
    return [_named(query_of, example, dataset_name).id for example in examples]


def match_queries(
    examples: "Sequence[Example]", queries: Sequence[tuple[str, str]], dataset_name: str
) -> "tuple[list[Example | None], list[Example]]":
    """For each query, by id and text, its example or None; and the examples that are of none.

    An example that was made elsewhere has no id of ours: it is known by its text. Raises ``GroundTruthError`` naming an
    example that has no query.
    """
    known: dict[str, Example] = {}
    for query_id, example in zip(query_ids(examples, dataset_name), examples, strict=True):
        known.setdefault(query_id, example)
    found = [known.pop(query_id, None) for query_id, _ in queries]
    for number, (_, text) in enumerate(queries):
        if found[number] is None:
            found[number] = known.pop(generate_query_id(text), None)
    return found, list(known.values())


def check_type(examples: "Sequence[Example]", wanted: EvaluationType, dataset_name: str) -> None:
    """Raise ``GroundTruthError`` when an example is of the other type."""
    other: EvaluationType = "chunk-level" if wanted == "token-level" else "token-level"
    for example in examples:
        if not _has(example, TRUTH_KEYS[wanted]) and _has(example, TRUTH_KEYS[other]):
            raise GroundTruthError(
                f"the LangSmith dataset {dataset_name!r} holds {other} ground truth "
                f"({preview(', '.join(example.outputs or {}))}) and the evaluation is {wanted}: "
                "use the one that fits the other"
            )


def _check_unique(ids: Sequence[QueryId], dataset_name: str) -> None:
    for first, second in pairwise(ids):  # they are sorted
        if first == second:
            raise GroundTruthError(
                f"two examples of the LangSmith dataset {dataset_name!r} are the query {first}: "
                "merge what is relevant to it into one"
            )


def _has(example: "Example", keys: Sequence[str]) -> bool:
    return any(key in (example.outputs or {}) for key in keys)


def _named(read: "Callable[[Example], Item]", example: "Example", dataset_name: str) -> Item:
    try:
        return read(example)
    except RagEvalError as error:
        raise GroundTruthError(f"example {example.id} of the LangSmith dataset {dataset_name!r}: {error}") from None
