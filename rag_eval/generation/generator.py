"""The steps of generating ground truth: plan, ask, assemble the answers, and report."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import ClassVar, Generic, TypeVar, get_args

from rag_eval.embedding.embedder import Embedder, check_embedder
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.errors import ConfigurationError, RagEvalError
from rag_eval.generation.candidates import (
    Assembly,
    Candidate,
    Draft,
    GenerationReport,
    Replies,
    Upload,
    to_verify,
)
from rag_eval.generation.questions import (
    Assignment,
    ChunkQuestions,
    Evidence,
    Planner,
    Purpose,
    SpanQuestions,
    shown_passages,
)
from rag_eval.generation.settings import DEFAULT_MODEL, GenerationOptions, OnProgress
from rag_eval.generation.windows import MOST_BY_EACH, PASSAGE_TOKENS, PassageIndex, Window
from rag_eval.llm.asking import Asker
from rag_eval.llm.chat import (
    ANSWERS_FOLDER,
    AnswerCache,
    ChatClient,
    check_client,
    is_openai,
    server_of,
    without_retries,
)
from rag_eval.llm.cost import Prices, list_prices
from rag_eval.parts.part_settings import Record
from rag_eval.retry import BRIEF, RetryPolicy
from rag_eval.services.langsmith_client import LangSmithService
from rag_eval.services.langsmith_datasets import DEFAULT_DATASETS, push_truth
from rag_eval.storage.bucket import Storage
from rag_eval.types.documents import Corpus, Document, check_corpus
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, EvaluationType, QueryId, QueryText, generate_query_id, text_sha256

TOKENS_OF_A_SPAN_QUESTION = 150
TOKENS_OF_A_QUESTION = 60
TOKENS_OF_A_VERDICT = 40
DEPTHS: dict[Purpose, int] = {"unanswerable": MOST_BY_EACH, "evidence": 3 * MOST_BY_EACH}
"""How many passages by words, and how many by vectors, are used to verify that a question has no answer."""
DEFAULT_WORKSPACE = Path(".rag-eval")


class GenerationEstimate(Record):
    """The expected calls, of which ``cached`` are free; tokens and cost in US dollars are those of the others.

    ``cost`` is None if the prices are unknown. A reasoning model writes more than estimated.
    """

    documents: int
    questions: int
    calls: int
    cached: int
    input_tokens: int
    output_tokens: int
    cost: float | None


T = TypeVar("T", TokenLevelGroundTruth, ChunkLevelGroundTruth)


class SyntheticDatasetGenerator(ABC, Generic[T]):
    """Asks a language model for questions about documents, and keeps those whose answers can be located.

    Every answer is cached before it is used: repeating a generation is free, and an interrupted one continues. The
    result does not depend on ``concurrency``.

    Args:
        llm_client: A client with ``chat.completions.create(model, messages, response_format)``; its own retries are
            turned off.
        corpus: The documents.
        model: The name of the model.
        options: What kind of questions to ask for, and how.
        prices: The prices of the model; needed for ``max_cost`` except with OpenAI's models and server.
        max_cost: The maximum cost of a generation in US dollars. Before a call, the price of
            ``options.max_output_tokens``, or of 16,384 tokens, is reserved.
        embedder: Finds similar texts; by default the local one.
        concurrency: The number of requests at once.
        retries: How to retry failed requests.
        workspace: Where answers are cached.
        on_progress: Called with the number of answered requests, and of all.

    Raises:
        ConfigurationError: If a setting cannot be used.
    """

    evaluation_type: ClassVar[EvaluationType]
    answer: ClassVar[type[SpanQuestions] | type[ChunkQuestions]]
    truth_type: Callable[..., T]

    def __init__(
        self,
        llm_client: ChatClient,
        corpus: Corpus,
        *,
        model: str = DEFAULT_MODEL,
        options: GenerationOptions | None = None,
        prices: Prices | None = None,
        max_cost: float | None = None,
        embedder: Embedder | None = None,
        concurrency: int = 4,
        retries: RetryPolicy | None = None,
        workspace: str | Path | Storage = DEFAULT_WORKSPACE,
        on_progress: OnProgress = lambda done, total: None,
    ) -> None:
        check_client(llm_client)
        check_corpus(corpus)
        self._client = llm_client
        self._corpus = corpus
        self._options = options or GenerationOptions()
        self._embedder = embedder or LocalEmbedder()
        check_embedder(self._embedder)
        self._prices = prices or (list_prices(model) if is_openai(llm_client) else None)
        _check_settings(model, concurrency, max_cost, self._prices)
        self._max_cost, self._concurrency = max_cost, concurrency
        self._retries = retries or RetryPolicy()
        self._on_progress = on_progress
        storage = workspace if isinstance(workspace, Storage) else Storage(Path(workspace).absolute())
        self._cache = AnswerCache(storage.root / ANSWERS_FOLDER, storage)
        self._planner = Planner(server_of(llm_client), model, self._options, self.answer)
        self._metadata: dict[str, object] = {}
        self._start()

    def _start(self) -> None:
        self._upload: Upload | None = None
        self._assembly = Assembly(self._options, self._embedder)
        self.asker = Asker(
            without_retries(self._client),
            self._cache,
            purposes=get_args(Purpose),
            prices=self._prices,
            max_cost=self._max_cost,
            retries=self._retries,
            attempts=self._options.attempts,
            concurrency=self._concurrency,
        )

    @property
    def report(self) -> GenerationReport:
        """The report of the last generation, which may have failed or still be running."""
        stopped, budget, assembly = None, self.asker.budget, self._assembly
        if budget.is_reached:
            stopped = (
                f"the next request could cost ${budget.refused:.4f}, mostly for an answer of max_output_tokens, and "
                f"exceed the limit of ${budget.limit:g}"
            )
        elif self.asker.stopped.is_set():
            stopped = "generating was stopped"
        return GenerationReport(
            evaluation_type=self.evaluation_type,
            model=self._planner.model,
            documents=len(self._corpus),
            asked=assembly.asked,
            kept=assembly.kept,
            unasked=assembly.unasked,
            dropped=assembly.dropped,
            bad_answers=assembly.bad_answers,
            ledger=tuple(self.asker.ledger.entries),
            stopped=stopped,
            upload=self._upload,
        )

    def generate(
        self,
        queries_per_doc: int = 5,
        upload_to_langsmith: bool = True,
        dataset_name: str | None = None,
        queries: Sequence[Query] = (),
    ) -> list[T]:
        """Generate ground truth, and upload it to LangSmith; ``report`` has the details.

        Args:
            queries_per_doc: The number of questions per document.
            upload_to_langsmith: Whether to upload; ``report.upload`` says whether it worked.
            dataset_name: By default ``rag-eval-token-level-v1`` or ``rag-eval-chunk-level-v1``.
            queries: Real questions to quote the answers of, instead of inventing any. Those without an answer are
                declared unanswerable.

        Returns:
            The ground truth in the order of the documents; a part of it if ``max_cost`` was reached.

        Raises:
            ServiceError: If the service fails; generating again continues with the cached answers.
            ConfigurationError: If there is nothing to ask.
        """
        truth, _, _ = self.extend(queries_per_doc, queries=queries)
        if upload_to_langsmith:
            self.upload(truth, dataset_name)
        return truth

    def extend(
        self,
        queries_per_doc: int,
        documents: Collection[DocumentId] | None = None,
        *,
        totals: bool = True,
        queries: Sequence[Query] = (),
    ) -> tuple[list[T], list[DocumentId], bool]:
        """Generate questions about some documents.

        Returns them, the documents that were asked about, and whether all of them were. Without ``totals``,
        cross-document and unanswerable questions are not asked for. Raises like ``generate``.
        """
        self._start()
        assignments = self.plan(queries_per_doc, documents, totals=totals, queries=queries)
        replies: Replies = self._ask(assignments)
        verdicts: Replies = self._ask(self._verifications(replies))
        truth = self._assemble(assignments, replies, verdicts, queries)
        pairs = zip(assignments, replies, strict=True)
        unasked = {assignment.windows[0].doc_id for assignment, reply in pairs if reply is None}
        chosen = [document.id for document in self._corpus if documents is None or document.id in documents]
        is_complete = None not in (*replies, *verdicts)
        return truth, [doc_id for doc_id in chosen if doc_id not in unasked], is_complete

    def estimate(
        self,
        queries_per_doc: int = 5,
        documents: Collection[DocumentId] | None = None,
        *,
        totals: bool = True,
        queries: Sequence[Query] = (),
    ) -> GenerationEstimate:
        """Estimate the cost of a generation, including the verification of all questions that may be unanswerable."""
        assignments = self.plan(queries_per_doc, documents, totals=totals, queries=queries)
        digests = [assignment.request.digest(0) for assignment in assignments]
        cached = self._cache.find_many(digests)
        fresh = [
            assignment
            for assignment, digest in zip(assignments, digests, strict=True)
            if digest not in cached or not cached[digest].serves(assignment.request.max_output_tokens)
        ]
        read = sum(assignment.request.input_tokens for assignment in fresh)
        written = unsure = 0
        verification = self._planner.verification("", "").request.input_tokens
        for assignment in fresh:
            count, quotes = len(assignment.briefs), assignment.answer in (SpanQuestions, Evidence)
            written += count * (TOKENS_OF_A_SPAN_QUESTION if quotes else TOKENS_OF_A_QUESTION)
            if (depth := DEPTHS.get(assignment.purpose)) is not None:
                unsure += count
                read += count * (2 * PASSAGE_TOKENS * depth + verification)
                written += count * TOKENS_OF_A_VERDICT
        return GenerationEstimate(
            documents=len(self._corpus) if documents is None else len(documents),
            questions=sum(len(assignment.briefs) for assignment in assignments),
            calls=len(assignments) + unsure,
            cached=len(assignments) - len(fresh),
            input_tokens=read,
            output_tokens=written,
            cost=None if self._prices is None else self._prices.cost(read, written),
        )

    def plan(
        self,
        queries_per_doc: int = 5,
        documents: Collection[DocumentId] | None = None,
        *,
        totals: bool = True,
        queries: Sequence[Query] = (),
    ) -> list[Assignment]:
        """Return the requests to the model, in order; raise ``ConfigurationError`` if there is nothing to ask."""
        options, planner = self._options, self._planner
        if type(queries_per_doc) is not int or queries_per_doc < 0:
            raise ConfigurationError(f"queries_per_doc is {queries_per_doc!r}: give a whole number, at least 0")
        windows_of: list[list[Window]] = self._windows_of_documents(options.window_tokens)
        if not windows_of:
            raise ConfigurationError("every document is blank: there is nothing to ask about")
        if queries:
            return self._plan_real(queries)
        if not queries_per_doc and not options.cross_document and not options.unanswerable:
            raise ConfigurationError("no question is asked for: give queries_per_doc, cross_document or unanswerable")
        assignments: list[Assignment] = []
        for windows in windows_of:
            if documents is None or windows[0].doc_id in documents:
                assignments += planner.per_document(windows, queries_per_doc)
        if totals:
            assignments += self._plan_totals(windows_of)
        return assignments

    def _plan_real(self, queries: Sequence[Query]) -> list[Assignment]:
        if self.evaluation_type == "chunk-level":
            raise ConfigurationError("the answers to real questions are spans: remove the chunker")
        passages = {text: self._passages.find(text, MOST_BY_EACH) for text in _by_text(queries)}
        return [self._planner.evidence(text, found) for text, found in passages.items()]

    def _plan_totals(self, windows_of: Sequence[Sequence[Window]]) -> Iterator[Assignment]:
        """Plan the questions that are asked about the whole corpus."""
        options, planner = self._options, self._planner
        if options.cross_document:
            halves = list(chain(*self._windows_of_documents(options.window_tokens // 2)))
            yield from planner.cross_document(halves, options.cross_document, self._embedder)
        if options.unanswerable:
            yield from planner.unanswerable(list(chain(*windows_of)), options.unanswerable)

    def _windows_of_documents(self, size: int) -> list[list[Window]]:
        return [windows for document in self._corpus if (windows := self._windows(document, size))]

    def _verifications(self, replies: Replies) -> list[Assignment]:
        """Ask about the questions that the model considers unanswerable."""
        return [
            self._planner.verification(text, shown_passages(self._passages.find(text, DEPTHS[assignment.purpose])))
            for text, assignment in to_verify(replies).items()
        ]

    @cached_property
    def _passages(self) -> PassageIndex:
        return PassageIndex(self._corpus.documents, self._embedder)

    def _assemble(
        self, assignments: Sequence[Assignment], replies: Replies, verdicts: Replies, queries: Sequence[Query]
    ) -> list[T]:
        by_length = self.evaluation_type == "token-level"
        truth: list[T] = []
        real, ids = _by_text(queries), {query.id for query in queries}
        for candidate in self._assembly.candidates(assignments, replies, verdicts, self._place, by_length=by_length):
            query = real.get(candidate.text)
            query_id = query.id if query else generate_query_id(candidate.text)
            if query_id in ids and query is None:  # two texts may have the same ids
                query_id = QueryId("query_" + text_sha256(candidate.text))
            ids.add(query_id)
            metadata = {
                **(query.metadata if query else {}),
                "source_docs": sorted(candidate.documents),
                "generation_type": "real" if query else "synthetic",
                "generation_model": self._planner.model,
                **candidate.draft.brief.metadata(),
                "seed": self._options.seed,
                "prompt_hash": candidate.draft.assignment.prompt_hash,
                **self._metadata,
            }
            query = Query(query_id, QueryText(candidate.text), metadata)
            truth.append(self.truth_type(query, candidate.answers, unanswerable=not candidate.answers))
        return truth

    def upload(self, truth: Sequence[T], dataset_name: str | None = None) -> None:
        """Upload ground truth to LangSmith, unless it is empty; the report has the result."""
        if truth:
            self._upload = uploaded(dataset_name or DEFAULT_DATASETS[self.evaluation_type], truth)

    def _ask(self, assignments: Sequence[Assignment]) -> Replies:
        if not assignments:
            return []
        done = count(1)
        self._on_progress(0, len(assignments))
        return self.asker.ask_at_once(assignments, lambda: self._on_progress(next(done), len(assignments)))

    @abstractmethod
    def _windows(self, document: Document, size: int) -> list[Window]:
        """Split a document into windows of at most ``size`` tokens; a blank document has none."""

    @abstractmethod
    def _place(self, draft: Draft) -> Candidate:
        """Locate the answer to a question; raise ``DropError`` if that is impossible."""


def _by_text(queries: Sequence[Query]) -> dict[str, Query]:
    """Return the queries by their text on one line; the first one if several have the same text."""
    by_text: dict[str, Query] = {}
    for query in queries:
        by_text.setdefault(" ".join(query.text.split()), query)
    return by_text


def uploaded(dataset_name: str, truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth]) -> Upload:
    """Upload ground truth to a LangSmith dataset."""
    try:
        with closing(LangSmithService.connect(BRIEF)) as service:
            report = push_truth(service, dataset_name, truth)
    except RagEvalError as error:
        return Upload(dataset_name=dataset_name, state="failed", detail=str(error))
    return Upload(dataset_name=dataset_name, state="sent", detail=report.url)


def _check_settings(model: str, concurrency: int, max_cost: float | None, prices: Prices | None) -> None:
    if not model:
        raise ConfigurationError(f"the model has no name: give one, such as {DEFAULT_MODEL!r}")
    if concurrency < 1:
        raise ConfigurationError(f"concurrency is {concurrency}: give at least 1")
    if max_cost is not None and not max_cost > 0:
        raise ConfigurationError(f"max_cost is {max_cost}: give more than 0 US dollars, or none for no limit")
    if max_cost is not None and prices is None:
        raise ConfigurationError(
            f"a limit on the cost needs prices, and those of {model!r} are not known at this server: "
            "give --input-price and --output-price, or prices where this is called from Python"
        )
