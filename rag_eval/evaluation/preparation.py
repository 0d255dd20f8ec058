"""Before anything is retrieved: whether corpus, ground truth and retriever belong together, and the index."""

from collections.abc import Iterable
from typing import Any, TypeVar

from rag_eval.errors import ConfigurationError, GroundTruthError, preview
from rag_eval.evaluation.chunker_match import check_chunk_ids, check_chunker, parts_with_chunks
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.retrieval.base import Retriever
from rag_eval.retrieval.checks import RETRIEVER, check_part
from rag_eval.types.document import Corpus
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, TokenLevelGroundTruth

T = TypeVar("T", TokenLevelGroundTruth, ChunkLevelGroundTruth)


def checked_truth(ground_truth: Iterable[object], kind: type[T]) -> list[T]:
    """The ground truth, read once; raises ``GroundTruthError`` without any, on another kind, and on an id twice."""
    truth: list[T] = []
    texts: dict[str, str] = {}
    for item in ground_truth:
        if not isinstance(item, kind):
            level = "token-level" if kind is TokenLevelGroundTruth else "chunk-level"
            raise GroundTruthError(
                f"this is a {level} evaluation and needs {kind.__name__}, it was given a "
                f"{type(item).__name__}: use the ground truth, or the evaluation, of the other type"
            )
        if item.query.id in texts:
            raise GroundTruthError(
                f"two queries have the id {item.query.id!r}, {preview(texts[item.query.id])} and "
                f"{preview(item.query.text)}: merge what is relevant to them into one, or give each its own id"
            )
        texts[item.query.id] = item.query.text
        truth.append(item)
    if not truth:
        raise GroundTruthError("there is no query to evaluate: give ground truth")
    return truth


def check_corpus(corpus: object) -> None:
    """Raise ``ConfigurationError`` unless it is a corpus."""
    if not isinstance(corpus, Corpus):
        raise ConfigurationError(f"the corpus is {preview(repr(corpus))}: give Corpus.from_folder(…), or a Corpus")


def index_token_level(corpus: Corpus, truth: list[TokenLevelGroundTruth], retriever: Retriever[Any]) -> None:
    """Index the corpus, after holding the truth against it; raises ``ConfigurationError`` or ``GroundTruthError``."""
    _check_parts(corpus, retriever)
    check_against_corpus(truth, corpus)
    retriever.index(corpus)


def index_chunk_level(corpus: Corpus, truth: list[ChunkLevelGroundTruth], retriever: Retriever[Any]) -> None:
    """Index the corpus, holding the truth against every part of the retriever that tells how it cuts.

    Raises ``ConfigurationError`` or ``GroundTruthError``.
    """
    _check_parts(corpus, retriever)
    for item in truth:
        if not item.relevant_chunk_ids and not item.unanswerable:
            raise GroundTruthError(
                f"{item.query.id} has no relevant chunk ids: add them, or declare the query unanswerable"
            )
    for part in parts_with_chunks(retriever):
        check_chunker(truth, part.chunker_name)
    retriever.index(corpus)
    for part in parts_with_chunks(retriever):
        check_chunk_ids(truth, part.indexed_chunks())


def _check_parts(corpus: object, retriever: object) -> None:
    check_corpus(corpus)
    check_part(retriever, "retriever", RETRIEVER)
