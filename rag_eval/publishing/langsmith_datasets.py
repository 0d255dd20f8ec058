"""Ground truth in LangSmith datasets."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from rag_eval.errors import GroundTruthError, RagEvalError, ServiceError, preview
from rag_eval.publishing.langsmith_records import (
    RELEVANT_CHUNK_IDS,
    RELEVANT_SPANS,
    is_unanswerable,
    relevant_chunk_ids,
    relevant_spans,
)
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, EvaluationType, QueryId, QueryText, generate_query_id

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example

Item = TypeVar("Item")

TRUTH_KEYS: Mapping[EvaluationType, Sequence[str]] = {"token-level": RELEVANT_SPANS, "chunk-level": RELEVANT_CHUNK_IDS}


def read_examples(client: "Client", dataset_name: str) -> "list[Example]":
    """All examples of a dataset, in the order of their ids.

    Raises ``GroundTruthError`` when there is no such dataset or it is empty, ``ServiceError`` when LangSmith fails.
    """
    from langsmith.utils import LangSmithError, LangSmithNotFoundError

    try:
        examples = sorted(client.list_examples(dataset_name=dataset_name), key=lambda example: str(example.id))
    except LangSmithNotFoundError:
        raise GroundTruthError(
            f"there is no LangSmith dataset {dataset_name!r}: check its name and the workspace of the key"
        ) from None
    except LangSmithError as error:
        raise ServiceError(
            f"the LangSmith dataset {dataset_name!r} could not be read ({type(error).__name__}): "
            "check the key and the endpoint, then try again"
        ) from None
    if not examples:
        raise GroundTruthError(f"the LangSmith dataset {dataset_name!r} has no examples: add some")
    return examples


def token_level_truth(examples: "Sequence[Example]", dataset_name: str) -> list[TokenLevelGroundTruth]:
    """The examples as token-level ground truth; raises ``GroundTruthError`` naming the example."""
    return [
        TokenLevelGroundTruth(
            query_of(example, dataset_name),
            _read(relevant_spans, example, dataset_name),
            is_unanswerable(example),
        )
        for example in _of_type(examples, "token-level", dataset_name)
    ]


def chunk_level_truth(examples: "Sequence[Example]", dataset_name: str) -> list[ChunkLevelGroundTruth]:
    """The examples as chunk-level ground truth; raises ``GroundTruthError`` naming the example."""
    return [
        ChunkLevelGroundTruth(
            query_of(example, dataset_name),
            [ChunkId(name) for name in _read(relevant_chunk_ids, example, dataset_name)],
            is_unanswerable(example),
        )
        for example in _of_type(examples, "chunk-level", dataset_name)
    ]


def query_of(example: "Example", dataset_name: str) -> Query:
    """The query of an example: ``inputs.query``, its id from the metadata or made from the text."""
    text = (example.inputs or {}).get("query")
    if not isinstance(text, str) or not text.strip():
        raise GroundTruthError(
            f"example {example.id} of the LangSmith dataset {dataset_name!r} has no inputs.query: add the question"
        )
    metadata = _metadata(example)
    given = metadata.pop("query_id", None)
    return Query(QueryId(given if isinstance(given, str) else generate_query_id(text)), QueryText(text), metadata)


def _metadata(example: "Example") -> dict[str, object]:
    inner = (example.outputs or {}).get("metadata")
    return (dict(inner) if isinstance(inner, Mapping) else {}) | dict(example.metadata or {})


def _read(read: "Callable[[Example], list[Item]]", example: "Example", dataset_name: str) -> list[Item]:
    try:
        return read(example)
    except RagEvalError as error:
        raise GroundTruthError(f"example {example.id} of the LangSmith dataset {dataset_name!r}: {error}") from None


def _of_type(examples: "Sequence[Example]", wanted: EvaluationType, dataset_name: str) -> "Sequence[Example]":
    other: EvaluationType = "chunk-level" if wanted == "token-level" else "token-level"
    for example in examples:
        outputs = example.outputs or {}
        if not any(key in outputs for key in TRUTH_KEYS[wanted]) and any(key in outputs for key in TRUTH_KEYS[other]):
            raise GroundTruthError(
                f"the LangSmith dataset {dataset_name!r} holds {other} ground truth "
                f"({preview(', '.join(outputs))}) and the evaluation is {wanted}: use the one that fits the other"
            )
    return examples
