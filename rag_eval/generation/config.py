"""A generation as plain settings, for the command line and for flows."""

from pathlib import Path
from typing import Any

from pydantic import Field, StrictInt

from rag_eval.config.chunkers import ChunkerConfig
from rag_eval.config.settings import Address, Name, Settings
from rag_eval.embedding.retrying import RetryPolicy
from rag_eval.errors import GroundTruthError
from rag_eval.generation.chunk_level import ChunkLevelSyntheticDatasetGenerator
from rag_eval.generation.generator import OnProgress, SyntheticDatasetGenerator
from rag_eval.generation.options import DEFAULT_MODEL, GenerationOptions
from rag_eval.generation.prices import Prices
from rag_eval.generation.service import ChatService
from rag_eval.generation.token_level import TokenLevelSyntheticDatasetGenerator
from rag_eval.ground_truth.writing import write_chunk_level, write_token_level
from rag_eval.retrieval.chunked import AnyChunker
from rag_eval.types.document import Corpus
from rag_eval.types.ground_truth import TokenLevelGroundTruth

MOST_OUTPUT_TOKENS = 8_192


class GenerationConfig(Settings):
    """What to generate, from which documents, with which model, and where to put it.

    Chunk-level ground truth with a ``chunker``, token-level without. The key of the model's service is read from
    OPENAI_API_KEY, that of LangSmith from LANGSMITH_API_KEY.
    """

    corpus: Path = Field(description="The folder of the documents.")
    glob: Name = Field(default="**/*.md", description="Which files of the folder are documents.")
    output: Path = Field(description="The ground-truth file to write.")
    chunker: ChunkerConfig | None = Field(default=None, description="The chunker of chunk-level ground truth.")
    queries_per_doc: StrictInt = Field(default=5, ge=0, description="How many questions each document gets.")
    options: GenerationOptions = Field(
        default=GenerationOptions(max_output_tokens=MOST_OUTPUT_TOKENS), description="What kind of questions, and how."
    )
    model: Name = Field(default=DEFAULT_MODEL, description="The model that writes the questions.")
    base_url: Address | None = Field(
        default=None, description="Where the model's service is; null: OPENAI_BASE_URL, else OpenAI's own."
    )
    prices: Prices | None = Field(default=None, description="US dollars a million tokens; null: OpenAI's list prices.")
    max_cost: float | None = Field(default=None, gt=0, description="The most US dollars to pay; null: no limit.")
    prompts: Path | None = Field(default=None, description="A folder with prompts in place of the built-in ones.")
    concurrency: StrictInt = Field(default=4, ge=1, le=64, description="How many requests are under way at once.")
    timeout: float = Field(default=120.0, gt=0, description="Seconds that the service may be silent.")
    max_retries: StrictInt = Field(default=5, ge=0, description="How often a failed request is sent again.")
    upload: bool = Field(default=False, description="Whether the ground truth goes to LangSmith too.")
    dataset_name: Name | None = Field(default=None, description="The LangSmith dataset; null: the default name.")

    def generator(
        self,
        workspace: Path,
        on_progress: OnProgress = lambda done, total: None,
        chunker: AnyChunker | None = None,
    ) -> SyntheticDatasetGenerator[Any]:
        """The generator, with a ``chunker`` in place of the configured one if it is given.

        Reads the documents, and raises ``CorpusError`` or ``ConfigurationError``.
        """
        corpus = Corpus.from_folder(self.corpus, self.glob)
        service = ChatService(self.base_url, self.timeout)
        settings: dict[str, Any] = {
            "model": self.model,
            "options": self.options,
            "prices": self.prices,
            "max_cost": self.max_cost,
            "prompts": self.prompts,
            "concurrency": self.concurrency,
            "retries": RetryPolicy(max_retries=self.max_retries),
            "workspace": workspace,
            "on_progress": on_progress,
        }
        used = chunker if self.chunker is None else chunker or self.chunker.build()
        if used is None:
            return TokenLevelSyntheticDatasetGenerator(service, corpus, **settings)
        return ChunkLevelSyntheticDatasetGenerator(service, corpus, used, **settings)

    def write(self, truth: list[Any]) -> None:
        """Write the ground truth to ``output``, whole; raises ``GroundTruthError`` when there is none."""
        if not truth:
            raise GroundTruthError(
                f"no question was kept, and {str(self.output)!r} was not written: see what was dropped, and why"
            )
        write = write_token_level if isinstance(truth[0], TokenLevelGroundTruth) else write_chunk_level
        write(self.output, truth)
