"""Define the searches of a benchmark: by vectors, by words, by a user's retriever, or fused."""

from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar

from pydantic import Field, StrictFloat

from rag_eval.errors import ConfigurationError
from rag_eval.parts import PartOf, PartsOf, label, part, parts_in
from rag_eval.parts.definition import settings_label
from rag_eval.retrieval import FUSION, RETRIEVER, TOKENIZER
from rag_eval.retrieval.engines import SearchEngine
from rag_eval.retrieval.foreign_retrieval import ForeignRetriever
from rag_eval.retrieval.fusion import Fusion, ZScoreFusion
from rag_eval.retrieval.tokenizers import Tokenizer, WordTokenizer


@part
class VectorSearch:
    """Finds the chunks whose vectors are nearest to the query's, with an embedder and a store."""


@part
class WordSearch:
    """Finds the chunks that share the most words with the query, by BM25 over the statistics of all chunks."""

    is_reference: ClassVar[bool] = True

    k1: Annotated[StrictFloat, Field(ge=0, description="How much repetitions of a word count.")] = 1.5
    b: Annotated[StrictFloat, Field(ge=0, le=1, description="How much the length of a chunk counts.")] = 0.75
    _: KW_ONLY
    tokenizer: Annotated[Tokenizer, PartOf(TOKENIZER), Field(description="How to split a text into words.")] = Field(
        default_factory=WordTokenizer
    )


@part
class HybridSearch:
    """Fuses the rankings of several retrievers."""

    is_reference: ClassVar[bool] = True

    _: KW_ONLY
    retrievers: Annotated[list[Any], PartsOf(RETRIEVER), Field(description="Retrievers to fuse, at least two.")] = (
        Field(default_factory=lambda: [VectorSearch(), WordSearch()])
    )
    fusion: Annotated[Fusion, PartOf(FUSION), Field(description="How to fuse the rankings.")] = Field(
        default_factory=ZScoreFusion
    )

    def __post_init__(self) -> None:
        if len(self.retrievers) < 2 or any(isinstance(retriever, HybridSearch) for retriever in self.retrievers):
            raise ConfigurationError("a hybrid needs two or more retrievers, none of them a hybrid")
        if len(set(self.retrievers)) < len(self.retrievers):
            raise ConfigurationError("a hybrid has a retriever twice: remove one")
        weights = getattr(self.fusion, "weights", [])
        if weights and len(weights) != len(self.retrievers):
            raise ConfigurationError(
                f"the fusion has {len(weights)} weights for {len(self.retrievers)} retrievers: give one for each"
            )

    @property
    def label(self) -> str:
        """The settings, the label of the fusion, and the retrievers without scores, which are fused by rank."""
        ranked = [label(retriever) for retriever in self.retrievers if not self.fuses_scores_of(retriever)]
        named = settings_label(self).replace(f"fusion=({label(self.fusion)})", label(self.fusion))
        return f"{named} ({' and '.join(ranked)} by rank)" if ranked and self.fusion.reads_scores else named

    def fuses_scores_of(self, retriever: object) -> bool:
        """Return whether a retriever is fused by score rather than by rank."""
        return self.fusion.reads_scores and isinstance(retriever, VectorSearch | WordSearch)


SingleSearch = VectorSearch | WordSearch | ForeignRetriever | SearchEngine
"""A search with one ranking."""


def searches_by_vector(retrieval: object) -> bool:
    """Return whether a retriever needs an embedder and a store."""
    return any(isinstance(part_inside, VectorSearch) for part_inside in parts_in(retrieval))


def uses_vectors(retrieval: object) -> bool:
    """Return whether a retriever needs an embedder; search engines need no store."""
    engines = (inner for inner in parts_in(retrieval) if isinstance(inner, SearchEngine))
    return searches_by_vector(retrieval) or any(engine.uses_vectors for engine in engines)
