"""Evaluate parts in a notebook: a corpus, its ground truth, and a run for each chunker and embedder."""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, cast

import pyarrow.compute as pc
from typing_extensions import TypeVar

from rag_eval.config.models import SECTIONS, Configuration
from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.embedder import Embedder
from rag_eval.errors import ConfigurationError, GroundTruthError, ServiceError
from rag_eval.evaluation.langsmith_evaluation import LangSmithLink
from rag_eval.evaluation.run_experiment import RetrievalResult, run_experiment
from rag_eval.ground_truth.plain_data import truth_from
from rag_eval.ground_truth.truth_files import read_truth
from rag_eval.metrics.metric import AnyChunkLevelMetric, AnyTokenLevelMetric
from rag_eval.parts import Kind, label
from rag_eval.retrieval import RERANKER
from rag_eval.retrieval.foreign_retrieval import takes_arguments
from rag_eval.retrieval.retriever import AnyChunker, Reranker
from rag_eval.retrieval.retrievers import VectorRAGRetriever
from rag_eval.retrieval.searching import VectorSearch
from rag_eval.services.langsmith_datasets import chunk_level_truth, token_level_truth
from rag_eval.services.langsmith_experiments import row_outcomes
from rag_eval.stores import STORE
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.stores.store import VectorStore
from rag_eval.types.documents import Corpus, check_corpus
from rag_eval.types.evidence import ChunkLevelGroundTruth, TokenLevelGroundTruth
from rag_eval.types.ids import EvaluationType

if TYPE_CHECKING:
    from langsmith import Client

T = TypeVar("T", TokenLevelGroundTruth, ChunkLevelGroundTruth)
M = TypeVar("M", default=Any)


class BaseEvaluation(Generic[T, M]):
    """The base of both evaluations: a corpus, its ground truth, and ``run``."""

    level: ClassVar[EvaluationType]

    def __init__(
        self,
        corpus: Corpus,
        ground_truth: object = None,
        *,
        langsmith_dataset_name: str | None = None,
        langsmith_client: "Client | None" = None,
    ) -> None:
        check_corpus(corpus)
        self.corpus = corpus
        if langsmith_dataset_name is None and isinstance(ground_truth, str):
            is_file = Path(ground_truth).suffix in (".jsonl", ".json") or "/" in ground_truth
            if not is_file and not Path(ground_truth).exists():
                ground_truth, langsmith_dataset_name = None, ground_truth
        self.langsmith_dataset_name = langsmith_dataset_name
        self._link = LangSmithLink(langsmith_dataset_name, langsmith_client) if langsmith_dataset_name else None
        if self._link is not None and self._link.has_key:
            with suppress(ServiceError):  # an evaluation needs no service
                self._link.examples()
        self.ground_truth: Sequence[T] = _load(ground_truth, self.level, self._link, corpus)

    def run(
        self,
        chunker: AnyChunker,
        embedder: Embedder,
        k: int | Sequence[int] = 5,
        vector_store: VectorStore | None = None,
        reranker: Reranker | None = None,
        metrics: Sequence[M] | None = None,
        *,
        context: object = None,
        queries: object = None,
        selection: object = None,
        returns: object = None,
        copies: object = "off",
    ) -> RetrievalResult:
        """Chunk, embed, index, retrieve and score; returns and raises like ``run_experiment``.

        Parts of other libraries can be used directly, and coroutines are awaited.

        Args:
            chunker: A chunker. At token level a plain one is wrapped by ``ChunkerPositionAdapter``.
            embedder: An embedder.
            k: How many hits are scored: one number or several.
            vector_store: A store. Default: ``InMemoryVectorStore()``.
            reranker: A reranker.
            metrics: Metrics or their names.
            context: As in the benchmark file: an object, a name, or a mapping of settings.
            queries: As in the benchmark file.
            selection: As in the benchmark file.
            returns: As in the benchmark file; at token level.
            copies: Which copies of a relevant span count as found, at token level: "off" or "exact".
        """
        if not isinstance(
            k, int | Sequence
        ):  # the published order of arguments is also accepted: run(chunker, embedder, store, k)
            k, vector_store = 5 if vector_store is None else vector_store, k
        settings = {"context": context, "queries": queries, "selection": selection, "returns": returns}
        parts, name = _configuration(self.level, chunker, embedder, vector_store, reranker, settings)
        result = run_experiment(
            evaluation_type=self.level,
            corpus=self.corpus,
            ground_truth=self.ground_truth,
            retriever=parts,
            metrics=cast("Sequence[AnyTokenLevelMetric] | None", metrics),
            k=k,
            copies=copies,
        )
        if self._link is None or not self._link.has_key:
            return result
        return replace(result, experiment_url=self._publish(self._link, name, result, k))

    def _publish(
        self, link: LangSmithLink, retriever: str, result: RetrievalResult, k: int | Sequence[int]
    ) -> str | None:
        tables = result.raw_results
        passages = tables.hits if tables.passages is None else tables.passages
        cut = passages.filter(pc.field("rank") <= (k if isinstance(k, int) else max(k)))
        queries = [item.query for item in self.ground_truth]
        outcomes = row_outcomes(self.level, queries, cut, tables.scores, self.corpus)
        return link.publish("rag-eval", outcomes, {"retriever": retriever})

    async def arun(self, *args: Any, **settings: Any) -> RetrievalResult:
        """Run without blocking the event loop."""
        return await asyncio.to_thread(self.run, *args, **settings)


def _configuration(
    level: EvaluationType,
    chunker: AnyChunker,
    embedder: Embedder,
    vector_store: VectorStore | None,
    reranker: Reranker | None,
    settings: Mapping[str, object],
) -> tuple[Configuration, str]:
    """Return the adapted and checked parts as a configuration with its name."""
    store = InMemoryVectorStore() if vector_store is None else _part(STORE, vector_store, "add", "search_many")
    embedder = _part(EMBEDDER, embedder, "name", "embed")
    if reranker is not None:
        is_whole = takes_arguments(getattr(reranker, "rerank", None), 3)
        reranker = _part(RERANKER, reranker, *(("name", "rerank") if is_whole else ()))
    # Checks the parts.
    retriever: VectorRAGRetriever[Any] = VectorRAGRetriever(chunker, embedder, store, reranker, evaluation_type=level)
    sections: dict[str, Any] = {
        key: None if value is None else SECTIONS[key].kind.of(value) for key, value in settings.items()
    }
    parts = Configuration.model_construct(
        chunker=chunker, retrieval=VectorSearch(), embedder=embedder, store=store, reranker=reranker, **sections
    )
    return parts, " + ".join([retriever.name, *(label(part) for part in sections.values() if part is not None)])


def _part(kind: Kind, part: Any, *members: str) -> Any:
    """Return an object that has these synchronous members unchanged; adapt any other to the kind of part."""
    values = [inspect.getattr_static(part, member, None) for member in members]
    if members and all(value is not None and not inspect.iscoroutinefunction(value) for value in values):
        return part
    with suppress(ConfigurationError):  # reported by the check of the part
        return kind.take(part)
    return part


class TokenLevelEvaluation(BaseEvaluation[TokenLevelGroundTruth, AnyTokenLevelMetric]):
    """Evaluates retrieval against character spans, so that the same ground truth serves every chunker.

    With a LangSmith dataset and a key (``LANGSMITH_API_KEY`` or ``langsmith_client``), every run becomes an experiment
    on that dataset, and ``experiment_url`` is its address.

    Example:
        evaluation = TokenLevelEvaluation(Corpus.from_folder("docs"), "truth.jsonl")
        evaluation.run(RecursiveTokenChunker(chunk_size=200), LocalEmbedder(), k=5).metrics

    Args:
        corpus: The documents.
        ground_truth: A list of ground truth or of records, a data frame (see ``truth_from``), a JSON-lines file, or
            the name of a LangSmith dataset. Default: the dataset ``langsmith_dataset_name``.
        langsmith_dataset_name: The LangSmith dataset to which runs are published.
        langsmith_client: A client for LangSmith.

    Raises:
        GroundTruthError: There is no ground truth, it cannot be read, or the dataset is missing or empty.
        ConfigurationError: The corpus is not a ``Corpus``, or LangSmith's endpoint is not a web address.
    """

    level = "token-level"


class ChunkLevelEvaluation(BaseEvaluation[ChunkLevelGroundTruth, AnyChunkLevelMetric]):
    """Evaluates retrieval against chunk ids, so that the ground truth serves only the chunker it was made with.

    The arguments are those of ``TokenLevelEvaluation``.
    """

    level = "chunk-level"


def create_evaluation(
    eval_type: EvaluationType,
    corpus_path: str | Path | Corpus,
    langsmith_dataset: str | None = None,
    *,
    glob: str | Sequence[str] = "**/*.md",
    loaders: Mapping[str, object] | None = None,
    ground_truth: object = None,
    langsmith_client: "Client | None" = None,
) -> TokenLevelEvaluation | ChunkLevelEvaluation:
    """Return the evaluation of a type over a folder of documents, or a corpus; raises like ``TokenLevelEvaluation``."""
    corpus = corpus_path if isinstance(corpus_path, Corpus) else Corpus.from_folder(corpus_path, glob, loaders)
    for kind in (TokenLevelEvaluation, ChunkLevelEvaluation):
        if kind.level == eval_type:
            return kind(
                corpus, ground_truth, langsmith_dataset_name=langsmith_dataset, langsmith_client=langsmith_client
            )
    raise ConfigurationError(f"there is no evaluation type {eval_type!r}: use 'token-level' or 'chunk-level'")


def _load(source: object, level: EvaluationType, link: LangSmithLink | None, corpus: Corpus) -> Sequence[Any]:
    if isinstance(source, str | Path):
        return read_truth(Path(source), level, corpus.by_id)
    if source is not None:
        return tuple(truth_from(source, level, corpus.by_id))
    if link is None:
        raise GroundTruthError(
            "there is no ground truth: give a list or a JSON-lines file, or langsmith_dataset_name with a key"
        )
    read = token_level_truth if level == "token-level" else chunk_level_truth
    return read(link.examples(), link.dataset_name)
