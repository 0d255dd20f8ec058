"""Add generated ground truth to a file that grows with the documents and is never rewritten.

The model is asked about new documents; what people have changed, added or rejected stays. A file beside it records
which documents were asked about, so that removed questions do not come back.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError

from rag_eval.chunking import CHUNKER
from rag_eval.errors import ConfigurationError, GroundTruthError
from rag_eval.formatting import counted
from rag_eval.generation.candidates import GenerationReport
from rag_eval.generation.generator import GenerationEstimate, SyntheticDatasetGenerator
from rag_eval.generation.levels import ChunkLevelSyntheticDatasetGenerator, TokenLevelSyntheticDatasetGenerator
from rag_eval.generation.settings import GenerationOptions, OnProgress
from rag_eval.ground_truth.folding import folded_words
from rag_eval.ground_truth.plain_data import read_queries
from rag_eval.ground_truth.review.entries import lock_path, rejected_path
from rag_eval.ground_truth.sources import Carry, FileTruth, Observed, Reading, Surroundings, words_of
from rag_eval.ground_truth.truth_files import Truth, read_truth, rewrite_truth, write_truth
from rag_eval.llm.chat import ANSWERS_FOLDER
from rag_eval.llm.cost import Prices
from rag_eval.llm.writing import AsksModel
from rag_eval.parts import PartOf, Running, identity, part
from rag_eval.retry import RetryPolicy
from rag_eval.storage.bucket import Storage
from rag_eval.storage.files import data_sha256, write_atomically
from rag_eval.storage.locks import wait_for_lock
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, EvaluationType, text_sha256

MOST_OUTPUT_TOKENS = 8_192
STEPS = 10
"""Number of progress messages in the log per generation."""

logger = logging.getLogger("rag_eval.generation")


class AskedDocuments(BaseModel):
    """The documents that were asked about, with the sha256 of their contents at that time.

    ``totals`` tells whether cross-document and unanswerable questions were asked for, too; ``stopped`` whether the cost
    limit left some questions for later.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    documents: dict[str, str] = {}
    totals: bool = False
    stopped: bool = False

    @classmethod
    def read(cls, path: Path) -> "AskedDocuments":
        """Read the file, if it exists; raise ``GroundTruthError`` if it is damaged."""
        if not path.is_file():
            return cls()
        try:
            return cls.model_validate_json(path.read_bytes(), strict=True)
        except (OSError, ValidationError):
            raise GroundTruthError(
                f"{str(path)!r}, the list of documents that were asked about, is damaged: restore it, or remove it"
            ) from None

    def write(self, path: Path) -> None:
        """Write the file if it has changed; raise ``ArtifactError`` if that fails."""
        text = f"{self.model_dump_json(indent=2)}\n".encode()
        if not path.is_file() or path.read_bytes() != text:
            write_atomically(path, text)


def asked_path(truth: Path) -> Path:
    """Return the path of the record of documents that were asked about: ``truth.asked.json`` for ``truth.jsonl``."""
    return truth.with_name(f"{truth.stem}.asked.json")


@part
class GeneratedTruth(AsksModel):
    """Questions that a model writes about the documents, in a file that grows with them.

    The ground truth is chunk-level with a ``chunker``, else token-level. The API key is read from OPENAI_API_KEY.
    """

    queries_per_doc: StrictInt = Field(default=5, ge=0, description="Number of questions per document.")
    file: Annotated[Path, Running] = Field(
        default=Path("generated-truth.jsonl"), description="File that keeps the questions, to be reviewed."
    )
    chunker: Annotated[Any, PartOf(CHUNKER)] | None = Field(
        default=None, description="Chunker, for chunk-level ground truth."
    )
    queries: Path | None = Field(
        default=None, description="File of real questions to find answers for; then none are invented."
    )
    options: GenerationOptions = Field(
        default=GenerationOptions(), description="What kind of questions to write, and how."
    )
    prices: Annotated[Prices | None, Running] = Field(
        default=None, description="Prices in US dollars per million tokens; null: OpenAI's list prices."
    )

    grows: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return f"generate {self.model}"

    @property
    def level(self) -> EvaluationType:
        return "token-level" if self.chunker is None else "chunk-level"

    @property
    def report(self) -> GenerationReport | None:
        """The report of the last generation; None if nothing was asked."""
        report: GenerationReport | None = getattr(self, "_report", None)
        return report

    def check(self, corpus: Corpus, level: EvaluationType) -> str:
        """Describe what a run will ask; raise ``ConfigurationError``, or ``GroundTruthError`` about the file."""
        self._check_level(level)
        growing = Growing(self, corpus, Storage(Path()))
        if growing.is_done:
            return f"{self.title}: {counted(len(growing.known), 'questions')} in {self.file}, none left to ask"
        _ = growing.generator  # checks the settings
        self.client.connect()
        left = counted(len(growing.queries), "questions") if self.queries else counted(len(growing.left), "documents")
        known = counted(len(growing.known), "questions")
        return f"{self.title}: the run asks about {left}, in addition to {known}"

    def observe(self, level: EvaluationType) -> Observed:
        """Return the digest of the settings and files; always new while the cost limit leaves some unasked."""
        self._check_level(level)
        asked = asked_path(self.file)
        files = [self.file, asked, *([self.queries] if self.queries else [])]
        digests = [FileTruth(path).observe(level).digest if path.exists() else None for path in files]
        again = uuid.uuid4().hex if AskedDocuments.read(asked).stopped else None
        return Observed(data_sha256([identity(self), digests, again]))

    def read(
        self, observed: Observed, corpus: Callable[[], Corpus], level: EvaluationType, around: Surroundings
    ) -> Reading:
        """Ask about new documents, add the questions to the file, and return those that match the documents.

        Raises:
            ServiceError: If the service fails; reading again continues with the cached answers.
            GroundTruthError: If there is no question.
            ArtifactError: If the file cannot be written.
        """
        self._check_level(level)
        storage = around.storage
        storage.fetch_missing(storage.root / ANSWERS_FOLDER)
        lock = storage.root / "locks" / f"truth-{text_sha256(str(self.file.absolute()))[:24]}"
        paid: dict[object, float] = self.__dict__.get("_paid", {})
        self._paid = paid  # across the attempts of a run
        spent = paid.get(around.run, 0.0)
        with wait_for_lock(lock):
            growing = Growing(self, corpus(), storage, log_progress(self.title), spent=spent)
            try:
                added = growing.ask()
            finally:
                report = self._report = growing.report
                paid[around.run] = spent + growing.paid
            if report is not None and report.stopped:
                left = counted(report.unasked, "questions")
                logger.warning("%s stopped: %s; %s are left for the next run", self.title, report.stopped, left)
            truth = growing.write(added, around.carry)
        if report is None:
            return Reading(truth, 0)
        usage = report.total.fresh
        return Reading(truth, len(added), usage.input_tokens + usage.output_tokens, usage.cost)

    def _check_level(self, level: EvaluationType) -> None:
        if level != self.level:
            raise ConfigurationError(
                f"{self.title} makes {self.level} ground truth and the evaluation is {level}: "
                + ("give it a chunker" if level == "chunk-level" else "leave out its chunker")
            )


def log_progress(title: str) -> OnProgress:
    """Return a callback that logs the progress."""

    def log(done: int, total: int) -> None:
        if done * STEPS // total != (done - 1) * STEPS // total:
            logger.info("%s: %d of %d requests answered", title, done, total)

    return log


class Growing:
    """A generation that adds to a file.

    With ``anew``, the file is ignored and all documents are asked about. ``spent`` is what earlier attempts of the run
    paid.
    """

    def __init__(
        self,
        source: GeneratedTruth,
        corpus: Corpus,
        storage: Storage,
        on_progress: OnProgress = lambda done, total: None,
        *,
        anew: bool = False,
        spent: float = 0.0,
    ) -> None:
        self._source, self._corpus, self._storage = source, corpus, storage
        self._on_progress, self._spent = on_progress, spent
        self._anew = anew
        self.known = self._read(source.file)
        self.asked = AskedDocuments.read(asked_path(source.file)) if self.known else AskedDocuments()
        self.left = [doc.id for doc in corpus if doc.id not in self.asked.documents and doc.content.strip()]
        """The documents that were not asked about."""
        taken = {key for item in (*self.known, *self._rejected()) for key in _keys(item)}
        real = read_queries(source.queries) if source.queries else []
        self.queries = [query for query in real if not taken & {query.id, folded_words(query.text)}]
        """The real questions that are not in the file."""
        self._is_begun = False

    @cached_property
    def generator(self) -> SyntheticDatasetGenerator[Any]:
        """The generator; raises ``ConfigurationError`` if a setting cannot be used."""
        source, options = self._source, self._source.options
        if options.max_output_tokens is None:
            options = options.model_copy(update={"max_output_tokens": MOST_OUTPUT_TOKENS})
        settings: dict[str, Any] = {
            "model": source.model,
            "options": options,
            "prices": source.prices,
            "max_cost": source.max_cost and max(source.max_cost - self._spent, 1e-9),
            "concurrency": source.concurrency,
            "retries": RetryPolicy(max_retries=source.max_retries),
            "workspace": self._storage,
            "on_progress": self._on_progress,
        }
        if self._source.chunker is None:
            return TokenLevelSyntheticDatasetGenerator(source.client, self._corpus, **settings)
        return ChunkLevelSyntheticDatasetGenerator(source.client, self._corpus, self._source.chunker, **settings)

    @property
    def report(self) -> GenerationReport | None:
        """The report so far; None if nothing was left to ask."""
        return self.generator.report if self._is_begun else None

    @property
    def paid(self) -> float:
        """The maximum amount in US dollars paid so far; 0 if the prices are unknown."""
        return self.generator.asker.budget.spent if self._is_begun else 0.0

    @property
    def is_done(self) -> bool:
        return not self.queries if self._source.queries else not self.left and self.asked.totals

    def estimate(self) -> GenerationEstimate:
        if self._source.queries:
            return self.generator.estimate(1, None if self.queries else [], totals=False, queries=self.queries)
        return self.generator.estimate(self._source.queries_per_doc, self.left, totals=not self.asked.totals)

    def ask(self) -> list[Truth]:
        """Return ground truth about the remaining documents, and record what was asked about."""
        source, totals = self._source, self.asked.totals
        has_totals = bool(source.options.cross_document or source.options.unanswerable) and not totals
        if source.queries and not self.queries:
            return []
        if not source.queries and not (self.left and source.queries_per_doc) and not has_totals:
            self._note(self.left, totals=True, stopped=False)
            return []
        self._is_begun = True
        if source.queries:
            truth, _, _ = self.generator.extend(0, queries=self.queries)
            self._note([], totals=totals, stopped=self.generator.report.stopped is not None)
        else:
            truth, done, is_complete = self.generator.extend(source.queries_per_doc, self.left, totals=not totals)
            self._note(done, totals=totals or is_complete, stopped=self.generator.report.stopped is not None)
        return list(truth)

    def _note(self, done: Iterable[DocumentId], *, totals: bool, stopped: bool) -> None:
        contents = self._corpus.by_id()
        now = {name: text_sha256(contents[name].content) for name in done}
        self.asked = AskedDocuments(documents=self.asked.documents | now, totals=totals, stopped=stopped)

    def write(
        self,
        added: Sequence[Truth],
        carry: Carry | None = None,
    ) -> list[Truth]:
        """Add new questions to the file, re-anchor its spans, and return the questions that match the documents.

        A question that lost a span stays in the file unchanged, in case its document comes back.

        Raises:
            GroundTruthError: If there is no question.
            ArtifactError: If a file cannot be written.
        """
        path = self._source.file
        # People may have reviewed the file since it was read.
        with wait_for_lock(lock_path(path)):
            there = self._read(path)
            taken = {key for item in (*there, *self._rejected()) for key in _keys(item)}
            truth: list[Truth] = [*there, *(item for item in added if not taken & _keys(item))]
            if not truth:
                raise GroundTruthError(self._nothing())
            fitting, kept = self._carried(truth, carry) if carry else (truth, truth)
            if not there:
                write_truth(path, kept)
            elif kept != there:
                rewrite_truth(path, kept, self._corpus.by_id)
        self.asked.write(asked_path(path))
        return fitting

    def _carried(self, truth: list[Truth], carry: Carry) -> tuple[list[Truth], list[Truth]]:
        """Return the questions that match the documents, and all questions, with spans moved unless one was lost."""
        if self._source.level == "chunk-level":
            return truth, truth
        report = carry([item for item in truth if isinstance(item, TokenLevelGroundTruth)], self._corpus)
        lost = {item.query.id for item in (*report.lost, *report.unanswered)}
        carried = {item.query.id: item for item in report.truth}
        return list(report.truth), [item if item.query.id in lost else carried[item.query.id] for item in truth]

    def _read(self, path: Path) -> list[Truth]:
        """Read the questions of a file; none if it does not exist or is ignored."""
        return [] if self._anew or not path.exists() else list(read_truth(path, self._source.level, self._corpus.by_id))

    def _rejected(self) -> list[Truth]:
        return self._read(rejected_path(self._source.file))

    def _nothing(self) -> str:
        dropped, bad_answers = (self.report.dropped, self.report.bad_answers) if self.report else ({}, {})
        reasons = ", ".join(f"{reason} ({questions.count:,})" for reason, questions in dropped.items())
        faults = ", ".join(f"{fault} ({answers.count:,})" for fault, answers in bad_answers.items())
        why = f", because of: {reasons}" if reasons else ""
        why += f"; unusable answers: {faults}" if faults else ""
        return (
            f"{self._source.title}: no question was kept, and {str(self._source.file)!r} was not written{why}: "
            "change the model or its options"
        )


def _keys(item: Truth) -> set[str]:
    """Return the id and the words of a question; each identifies it."""
    return {item.query.id, words_of(item)}
