"""What both generators have in common: plan, ask, assemble the answers, and report."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import closing
from functools import cached_property
from itertools import count
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
    Upload,
    to_verify,
)
from rag_eval.generation.questions import (
    Assignment,
    ChunkQuestions,
    Evidence,
    Planner,
    Prompts,
    Purpose,
    SpanQuestions,
    shown_passages,
)
from rag_eval.generation.settings import DEFAULT_MODEL, GenerationOptions, OnProgress
from rag_eval.generation.windows import MOST_BY_EACH, PASSAGE_TOKENS, PassageIndex, Window
from rag_eval.llm.asking import Asker, Reply
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
"""How many passages by words, and as many by vectors, show that nothing answers a question of each kind."""


class GenerationEstimate(Record):
    """About what is to be paid: ``calls`` of which ``cached`` cost nothing; cost in US dollars, None when unknown.

    Tokens and cost are those of the calls that are not cached. A model that thinks before it answers writes more.
    """

    documents: int
    questions: int
    calls: int
    cached: int
    input_tokens: int
    output_tokens: int
    cost: float | None


T = TypeVar("T", TokenLevelGroundTruth, ChunkLevelGroundTruth)
Replies = Sequence[Reply[Assignment] | None]
"""What came of assignments, in their order; None for what was not asked."""
DEFAULT_WORKSPACE = Path(".rag-eval")


class SyntheticDatasetGenerator(ABC, Generic[T]):
    """Asks a language model for questions about documents, and keeps those whose answers it can locate.

    Every answer is stored before it is used: the same generation again pays nothing, and one that was interrupted
    continues. The result does not depend on ``concurrency``.

    Args:
        llm_client: A client with ``chat.completions.create(model, messages, response_format)``; its own retries are
            turned off.
        corpus: The documents.
        model: The name of the model.
        options: What kind of questions, and how.
        prices: Needed for ``max_cost`` and the costs of models and servers other than OpenAI's.
        max_cost: The most US dollars that one generation pays; what is done by then is kept. Before a call, the price
            of ``options.max_output_tokens`` is reserved, or of 16,384 tokens where the length is not limited.
        prompts: A folder with files to replace those in ``rag_eval/generation/prompts``.
        embedder: Finds similar texts, by default the local one.
        concurrency: How many requests are sent at once.
        retries: How often a failed request is sent again.
        workspace: Where answers are stored.
        on_progress: Called with the number of requests answered, and of all.

    Raises:
        ConfigurationError: A setting cannot be used.
    """

    evaluation_type: ClassVar[EvaluationType]
    answer: ClassVar[type[SpanQuestions] | type[ChunkQuestions]]

    def __init__(
        self,
        llm_client: ChatClient,
        corpus: Corpus,
        *,
        model: str = DEFAULT_MODEL,
        options: GenerationOptions | None = None,
        prices: Prices | None = None,
        max_cost: float | None = None,
        prompts: str | Path | None = None,
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
        self._planner = Planner(server_of(llm_client), model, Prompts.load(prompts), self._options, self.answer)
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
        """What the last generation came to, so far: also after an error, or while it is under way."""
        stopped, budget, assembly = None, self.asker.budget, self._assembly
        if budget.is_reached:
            stopped = (
                f"the next request could cost ${budget.refused:.4f}, most of it for an answer as long as "
                f"max_output_tokens allows, and pass the limit of ${budget.limit:g}"
            )
        elif self.asker.stopped.is_set():
            stopped = "asking was ended"
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
        """Return the ground truth, in the order of the documents; ``report`` says what was dropped and what it took.

        With ``queries`` none are invented: what answers each of them is quoted from what a search finds for it, and one
        that nothing answers, there or in a wider search, is declared unanswerable.

        It is sent to the LangSmith dataset, by default ``rag-eval-token-level-v1`` or ``rag-eval-chunk-level-v1``;
        ``report.upload`` says whether that worked. When ``max_cost`` is reached, what was
        answered until then comes back, and ``report.stopped`` says so.
        Raises ``ServiceError`` when the model's service fails for good; what was answered is kept, and generating
        again goes on from there. ``ConfigurationError`` when there is nothing to ask.
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
        """Return the ground truth about some documents, those that were asked about, and whether all was asked.

        Without ``totals`` no question about several documents, and none without an answer, is asked. Raises as
        ``generate`` does.
        """
        self._start()
        assignments = self.plan(queries_per_doc, documents, totals=totals, queries=queries)
        replies: Replies = self._ask(assignments)
        verdicts: Replies = self._ask(self._verifications(replies))
        truth = self._assemble(assignments, replies, verdicts, queries)
        unasked = {one.windows[0].doc_id for one, reply in zip(assignments, replies, strict=True) if reply is None}
        names = [one.id for one in self._corpus if documents is None or one.id in documents]
        is_complete = all(reply is not None for reply in (*replies, *verdicts))
        return truth, [name for name in names if name not in unasked], is_complete

    def estimate(
        self,
        queries_per_doc: int = 5,
        documents: Collection[DocumentId] | None = None,
        *,
        totals: bool = True,
        queries: Sequence[Query] = (),
    ) -> GenerationEstimate:
        """Estimate what asking would take, verifying all questions that may have no answer included; asks nothing."""
        assignments = self.plan(queries_per_doc, documents, totals=totals, queries=queries)
        digests = [one.request.digest(0) for one in assignments]
        cached = self._cache.find_many(digests)
        fresh = [
            one
            for one, digest in zip(assignments, digests, strict=True)
            if digest not in cached or not cached[digest].serves(one.request.max_output_tokens)
        ]
        unsure = [one for one in fresh if one.purpose in DEPTHS for _ in one.briefs]
        read = sum(one.request.input_tokens for one in fresh)
        read += 2 * PASSAGE_TOKENS * sum(DEPTHS[one.purpose] for one in unsure)
        read += len(unsure) * self._planner.verification("", "").request.input_tokens
        written = len(unsure) * TOKENS_OF_A_VERDICT
        for one in fresh:
            quotes = one.answer in (SpanQuestions, Evidence)
            written += len(one.briefs) * (TOKENS_OF_A_SPAN_QUESTION if quotes else TOKENS_OF_A_QUESTION)
        return GenerationEstimate(
            documents=len(self._corpus) if documents is None else len(documents),
            questions=sum(len(one.briefs) for one in assignments),
            calls=len(assignments) + len(unsure),
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
        """Return what the model will be asked, in order; raises ``ConfigurationError`` when there is nothing to ask."""
        options = self._options
        if type(queries_per_doc) is not int or queries_per_doc < 0:
            raise ConfigurationError(f"queries_per_doc is {queries_per_doc!r}: give a whole number from 0 up")
        windows_of = [windows for one in self._corpus if (windows := self._windows(one, options.window_tokens))]
        if not windows_of:
            raise ConfigurationError("every document is blank: there is nothing to ask about")
        if queries and self.evaluation_type == "chunk-level":
            raise ConfigurationError("what answers real questions is quoted as spans: leave out the chunker")
        if queries:
            texts = _by_text(queries)
            return [self._planner.evidence(text, self._passages.find(text, MOST_BY_EACH)) for text in texts]
        if not queries_per_doc and not options.cross_document and not options.unanswerable:
            raise ConfigurationError("no question is asked for: give queries_per_doc, cross_document or unanswerable")
        assignments: list[Assignment] = []
        for windows in windows_of:
            if documents is None or windows[0].doc_id in documents:
                assignments += self._planner.per_document(windows, queries_per_doc)
        if options.cross_document and totals:
            halves = [window for one in self._corpus for window in self._windows(one, options.window_tokens // 2)]
            assignments += self._planner.cross_document(halves, options.cross_document, self._embedder)
        if options.unanswerable and totals:
            assignments += self._planner.unanswerable(
                [one for some in windows_of for one in some], options.unanswerable
            )
        return assignments

    def _verifications(self, replies: Replies) -> list[Assignment]:
        """Return what the model will be asked about the questions that are said to have no answer."""
        found = ((text, self._passages.find(text, DEPTHS[one.purpose])) for text, one in to_verify(replies).items())
        return [
            self._planner.verification(text, shown_passages([passage.text for passage in passages]))
            for text, passages in found
        ]

    @cached_property
    def _passages(self) -> PassageIndex:
        return PassageIndex(self._corpus.documents, self._embedder)

    def _assemble(
        self, assignments: Sequence[Assignment], replies: Replies, verdicts: Replies, queries: Sequence[Query]
    ) -> list[T]:
        """Return the ground truth of the replies; None stands for what was not asked."""
        by_length = self.evaluation_type == "token-level"
        truth: list[T] = []
        real = _by_text(queries)
        ids = {query.id for query in queries}
        for candidate in self._assembly.candidates(assignments, replies, verdicts, self._place, by_length=by_length):
            query = real.get(candidate.text)
            query_id = query.id if query else generate_query_id(candidate.text)
            if query_id in ids and query is None:  # two texts may share eight digits
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
            truth.append(self._truth(Query(query_id, QueryText(candidate.text), metadata), candidate))
        return truth

    def upload(self, truth: Sequence[T], dataset_name: str | None = None) -> None:
        """Send the ground truth to LangSmith, unless it is empty; the report has what came of it."""
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
        """Return the document in parts of at most so many tokens; none when it is blank."""

    @abstractmethod
    def _place(self, draft: Draft) -> Candidate:
        """Return a question with where its answer is; raises ``DropError``."""

    @abstractmethod
    def _truth(self, query: Query, candidate: Candidate) -> T:
        """Return the candidate as ground truth."""


def _by_text(queries: Sequence[Query]) -> dict[str, Query]:
    """Return the queries by their text on one line, of those with the same the first."""
    found: dict[str, Query] = {}
    for query in queries:
        found.setdefault(" ".join(query.text.split()), query)
    return found


def uploaded(dataset_name: str, truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth]) -> Upload:
    """Send ground truth to a LangSmith dataset; return its address, or the reason why it was not sent."""
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
