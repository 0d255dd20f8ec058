"""Where the ground truth of a benchmark comes from: sources are parts, and what several give is joined.

A source is looked at before it is read: what ``observe`` finds has the digest of all that its truth depends on beside
the documents, so that truth that is kept is read again only where its source is another than it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from rag_eval.errors import ArtifactError, GroundTruthError, preview
from rag_eval.ground_truth.drift import ReanchorReport
from rag_eval.ground_truth.plain_data import truth_from
from rag_eval.ground_truth.quotes import CorpusDocuments
from rag_eval.ground_truth.truth_files import Truth, read_chunk_level, read_token_level, read_truth_text
from rag_eval.parts import Shown, part
from rag_eval.parts.objects import ForeignFunction, check_unchanged
from rag_eval.storage.bucket import Storage
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import TokenLevelGroundTruth
from rag_eval.types.ids import EvaluationType, text_sha256


class Observed(NamedTuple):
    """A source as it was when it was looked at; ``truth`` is what it held, where looking is reading."""

    digest: str
    truth: Sequence[Truth] | None = None


class Reading(NamedTuple):
    """What a source gave, how many queries of it are new, and what models read and charged for them."""

    truth: Sequence[Truth]
    fresh: int
    tokens: int | None = 0
    cost: float | None = 0.0


@dataclass(frozen=True)
class Surroundings:
    """Where a source is read: the storage of its workspace, and how spans are carried over to documents that changed.

    ``run`` is the same for all attempts of one run.
    """

    storage: Storage
    carry: Callable[[Sequence[TokenLevelGroundTruth], Corpus], ReanchorReport] = field(repr=False)
    run: object = None


@part
class FileTruth:
    """A ground-truth file: JSON lines, one query a line."""

    path: Annotated[Path, Shown] = Field(description="The file.")

    @property
    def title(self) -> str:
        return f"file {self.path.name}"

    def observe(self, level: EvaluationType) -> Observed:
        """The file as it is now; raises ``GroundTruthError`` when it is missing or unreadable."""
        return Observed(text_sha256(read_truth_text(self.path)))

    def read(
        self, observed: Observed, corpus: Callable[[], Corpus], level: EvaluationType, around: Surroundings
    ) -> Reading:
        """The truth of the file; raises ``GroundTruthError``, and ``ArtifactError`` when the file changed meanwhile."""
        truth = read_truth(self.path, level, lambda: corpus().by_id())
        if self.observe(level) != observed:
            raise ArtifactError(f"the ground-truth file {str(self.path)!r} changed while it was read: run again")
        return Reading(truth, len(truth))


def read_truth(path: Path, level: EvaluationType, documents: CorpusDocuments | None = None) -> Sequence[Truth]:
    """Read a file of this level; raises as ``read_token_level`` does."""
    return read_token_level(path, documents) if level == "token-level" else read_chunk_level(path)


class ForeignTruth(ForeignFunction):
    """A source that is not built in: a function of the corpus, or an object with ``load(corpus)``.

    It gives ground truth, records of it, or a data frame: see ``truth_from``. Raises ``ConfigurationError`` when it can
    be asked for none.
    """

    kind = "truth-source"
    methods = ("load",)
    wanted = "a function of the corpus, or an object with load"

    @property
    def title(self) -> str:
        return self.label

    def check(self, corpus: Corpus, level: EvaluationType) -> str:
        """Say what a run will do."""
        return f"{self.title} is asked for its questions when it runs"

    def observe(self, level: EvaluationType) -> Observed:
        """The digest of its code and settings, or what it gives as its ``identity``."""
        return Observed(self.identity)

    def read(
        self, observed: Observed, corpus: Callable[[], Corpus], level: EvaluationType, around: Surroundings
    ) -> Reading:
        """What it gives for the corpus; raises ``GroundTruthError`` on what is no truth of this level."""
        truth: list[Any] = list(truth_from(self.ask(self._call, corpus()), level, corpus().by_id))
        check_unchanged(self)
        if not truth:
            raise GroundTruthError(f"{self.title} gave no query: have it give ground truth")
        return Reading(truth, len(truth))


def join_truth(sources: Sequence[tuple[str, Sequence[Truth]]]) -> list[Truth]:
    """Join what sources gave, in their order; each has a title, which is the origin of what has none.

    A question that two sources have, by its id or by its words, is taken once, from the first, where both have the
    same answers. Raises ``GroundTruthError`` when they have not, or when one id stands for two questions.
    """
    joined: list[Truth] = []
    by_id: dict[str, tuple[str, Truth]] = {}
    by_words: dict[str, tuple[str, Truth]] = {}
    for title, truth in sources:
        before_ids, before_words = dict(by_id), dict(by_words)
        for item in truth:
            words = words_of(item)
            known = before_ids.get(item.query.id) or before_words.get(words)
            if known is None:
                joined.append(_with_origin(item, title))
                by_id[item.query.id] = by_words[words] = (title, item)
                continue
            first, other = known
            if words_of(other) != words:
                raise GroundTruthError(
                    f"{first} and {title} have different questions with the id {item.query.id!r}, "
                    f"{preview(other.query.text)} and {preview(item.query.text)}: give each its own id"
                )
            if _answers(other) != _answers(item):
                raise GroundTruthError(
                    f"{first} and {title} both have the question {preview(item.query.text)}, with different answers: "
                    "remove it from one of them"
                )
    return joined


def words_of(item: Truth) -> str:
    """Return the words of a question, by which it is known beside its id."""
    return " ".join(item.query.text.casefold().split())


def _answers(item: Truth) -> object:
    return item.unanswerable, frozenset(frozenset(group) for group in item.groups)


def _with_origin(item: Any, title: str) -> Truth:
    members = (one for group in item.groups for one in group)
    known: Truth = replace(item, origins={one: item.origins.get(one, title) for one in members})
    return known
