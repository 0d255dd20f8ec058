"""The generators of token-level and chunk-level ground truth, and a generation as settings."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Unpack

from pydantic import Field, StrictInt

from rag_eval.chunking import CHUNKER
from rag_eval.disk.storage import Storage
from rag_eval.errors import GroundTruthError
from rag_eval.generation.candidates import AnyQuestion, Candidate, DropError
from rag_eval.generation.generator import GeneratorSettings, OnProgress, SyntheticDatasetGenerator
from rag_eval.generation.options import DEFAULT_MODEL, GenerationOptions
from rag_eval.generation.questions import (
    Brief,
    ChunkQuestion,
    ChunkQuestions,
    SpanQuestion,
    SpanQuestions,
    label,
)
from rag_eval.generation.report import Reason
from rag_eval.generation.windows import Window, chunk_windows, text_windows
from rag_eval.ground_truth.files import write_truth
from rag_eval.ground_truth.locating import Hint, Located, Locator, Rejected
from rag_eval.llm.asking import Reply
from rag_eval.llm.chat import ChatClient, ChatService
from rag_eval.llm.cost import Prices
from rag_eval.parts import PartOf
from rag_eval.parts.settings import Address, Name, Settings
from rag_eval.retrieval.retriever import AnyChunker, cut, usable_chunker
from rag_eval.retry import RetryPolicy
from rag_eval.types.chunks import Chunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, DocumentId, EvaluationType

_UNPLACED: Mapping[str, Reason] = {"empty": "no excerpt", "ambiguous": "excerpt ambiguous"}


class TokenLevelSyntheticDatasetGenerator(SyntheticDatasetGenerator[TokenLevelGroundTruth]):
    """Questions with verbatim excerpts, located as character spans: no chunker is needed, and any can be evaluated.

    A question with an excerpt that cannot be placed for sure is dropped and counted.
    ``TokenLevelSyntheticDatasetGenerator(llm_client, corpus, model=…)``; the other arguments are those of
    ``SyntheticDatasetGenerator``.
    """

    evaluation_type: ClassVar[EvaluationType] = "token-level"
    answer = SpanQuestions

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self._corpus.documents)

    def _windows(self, document: Document, size: int) -> list[Window]:
        return text_windows(document, size, self._options.window_overlap, self._options.encoding)

    def _place(self, reply: Reply, brief: Brief, text: str, question: AnyQuestion) -> Candidate:
        if not isinstance(question, SpanQuestion):
            raise DropError("no excerpt", text)
        windows = {label(number): window for number, window in enumerate(reply.assignment.windows)}
        places: dict[tuple[str, int, int], Located] = {}
        for excerpt in question.excerpts:
            window = windows.get(excerpt.document)
            if window is None:
                raise DropError("unknown document", excerpt.document)
            hint = Hint(before=excerpt.before, window=(window.start, window.end))
            place = self._locator.locate(excerpt.text, window.doc_id, hint)
            if isinstance(place, Rejected):
                # The whole question goes: with a part of its answer it would be wrong.
                raise DropError(_UNPLACED.get(place.reason, "excerpt not found"), excerpt.text)
            places.setdefault((place.span.doc_id, place.span.start, place.span.end), place)
        if not places:
            raise DropError("no excerpt", question.question)
        located = [places[key] for key in sorted(places)]
        spans = tuple(place.span for place in located)
        documents = {span.doc_id for span in spans}
        if reply.assignment.purpose == "cross-document" and len(documents) < 2:
            raise DropError("one document only", spans[0].doc_id)
        evidence, hows = tuple(span.text for span in spans), tuple(place.how for place in located)
        return Candidate(text, reply, brief, evidence, documents, spans, hows=hows)

    def _truth(self, query: Query, candidate: Candidate) -> TokenLevelGroundTruth:
        return TokenLevelGroundTruth(query, candidate.spans, unanswerable=not candidate.spans)


TokenLevelDataGenerator = TokenLevelSyntheticDatasetGenerator


class ChunkLevelSyntheticDatasetGenerator(SyntheticDatasetGenerator[ChunkLevelGroundTruth]):
    """Questions with the ids of the chunks that answer them: true for this chunker with these settings alone.

    The chunker's name, which holds its settings, is in the metadata of each question. A question that names an id
    which was not shown is dropped and counted.
    ``ChunkLevelSyntheticDatasetGenerator(llm_client, corpus, chunker, model=…)``; the other arguments are those of
    ``SyntheticDatasetGenerator``. Raises ``ConfigurationError`` when the chunker is none, or makes no chunk.
    """

    evaluation_type: ClassVar[EvaluationType] = "chunk-level"
    answer = ChunkQuestions

    def __init__(
        self, llm_client: ChatClient, corpus: Corpus, chunker: AnyChunker, **settings: Unpack[GeneratorSettings]
    ) -> None:
        super().__init__(llm_client, corpus, **settings)
        self._metadata["chunker"] = usable_chunker(chunker, "chunk-level").name
        self._chunks: dict[DocumentId, list[Chunk]] = {}
        for chunk in cut(chunker, corpus, "chunk-level"):
            self._chunks.setdefault(chunk.doc_id, []).append(chunk)

    def _windows(self, document: Document, size: int) -> list[Window]:
        return chunk_windows(self._chunks.get(document.id, []), size, self._options.encoding)

    def _place(self, reply: Reply, brief: Brief, text: str, question: AnyQuestion) -> Candidate:
        if not isinstance(question, ChunkQuestion):
            raise DropError("no excerpt", text)
        shown: dict[ChunkId, str] = {}
        held: dict[DocumentId, set[ChunkId]] = {}
        for window in reply.assignment.windows:
            shown |= {chunk.id: chunk.content for chunk in window.chunks}
            held.setdefault(window.doc_id, set()).update(chunk.id for chunk in window.chunks)
        named = dict.fromkeys(ChunkId(name.strip()) for name in question.chunk_ids)
        for chunk_id in named:
            if chunk_id not in shown:
                raise DropError("unknown chunk id", chunk_id)
        if not named:
            raise DropError("no excerpt", question.question)
        # A text that several documents hold counts for each.
        documents = sorted(doc_id for doc_id, ids in held.items() if not ids.isdisjoint(named))
        alone = [doc_id for doc_id in documents if held[doc_id] >= named.keys()]
        if alone and reply.assignment.purpose == "cross-document":
            raise DropError("one document only", alone[0])
        evidence = tuple(shown[chunk_id] for chunk_id in named)
        return Candidate(text, reply, brief, evidence, documents, chunk_ids=tuple(named))

    def _truth(self, query: Query, candidate: Candidate) -> ChunkLevelGroundTruth:
        return ChunkLevelGroundTruth(query, candidate.chunk_ids, unanswerable=not candidate.chunk_ids)


SyntheticDataGenerator = SyntheticDatasetGenerator
ChunkLevelDataGenerator = ChunkLevelSyntheticDatasetGenerator


MOST_OUTPUT_TOKENS = 8_192


class GenerationConfig(Settings):
    """What to generate, from which documents, with which model, and where to put it.

    Chunk-level ground truth with a ``chunker``, token-level without. The key of the model's service is read from
    OPENAI_API_KEY, that of LangSmith from LANGSMITH_API_KEY.
    """

    corpus: Path = Field(description="The folder of the documents.")
    glob: Name = Field(default="**/*.md", description="Which files of the folder are documents.")
    output: Path = Field(description="The ground-truth file to write.")
    chunker: Annotated[AnyChunker, PartOf(CHUNKER)] | None = Field(
        default=None, description="The chunker of chunk-level ground truth."
    )
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
        storage: Storage | None = None,
    ) -> SyntheticDatasetGenerator[Any]:
        """Return the generator, with a ``chunker`` in place of the configured one if it is given.

        ``storage`` is that of the workspace, where that may be a bucket.

        Reads the documents, and raises ``CorpusError`` or ``ConfigurationError``.
        """
        corpus = Corpus.from_folder(self.corpus, self.glob)
        service = ChatService(self.base_url, self.timeout)
        same = ("model", "options", "prices", "max_cost", "prompts", "concurrency")
        settings: dict[str, Any] = {
            **{name: getattr(self, name) for name in same},
            "retries": RetryPolicy(max_retries=self.max_retries),
            "workspace": workspace,
            "storage": storage,
            "on_progress": on_progress,
        }
        used = chunker or self.chunker
        if used is None:
            return TokenLevelSyntheticDatasetGenerator(service, corpus, **settings)
        return ChunkLevelSyntheticDatasetGenerator(service, corpus, used, **settings)

    def write(self, truth: list[Any]) -> None:
        """Write the ground truth to ``output``, whole; raises ``GroundTruthError`` when there is none."""
        if not truth:
            raise GroundTruthError(
                f"no question was kept, and {str(self.output)!r} was not written: see what was dropped, and why"
            )
        write_truth(self.output, truth)
