"""Read the sources of a benchmark's ground truth, and join several sources.

A source is observed before it is read. The digest covers everything except the documents that its ground truth depends
on, so that cached ground truth is used until the source changes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from rag_eval.errors import ArtifactError, GroundTruthError, preview
from rag_eval.ground_truth.drift import ReanchorReport
from rag_eval.ground_truth.folding import folded_words
from rag_eval.ground_truth.plain_data import truth_from
from rag_eval.ground_truth.truth_files import Truth, read_truth, read_truth_text
from rag_eval.parts import Shown, part
from rag_eval.parts.objects import ForeignFunction, check_unchanged
from rag_eval.storage.bucket import Storage
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import TokenLevelGroundTruth
from rag_eval.types.ids import EvaluationType, text_sha256


class Observed(NamedTuple):
    """The state of a source: its digest, and its ground truth if observing means reading."""

    digest: str
    truth: Sequence[Truth] | None = None


class Reading(NamedTuple):
    """The ground truth of a source, the number of new queries, and the tokens and cost of models."""

    truth: Sequence[Truth]
    fresh: int
    tokens: int | None = 0
    cost: float | None = 0.0


Carry = Callable[[Sequence[TokenLevelGroundTruth], Corpus], ReanchorReport]


@dataclass(frozen=True)
class Surroundings:
    """The storage of the workspace, and a function that re-anchors spans. Attempts of one run share ``run``."""

    storage: Storage
    carry: Carry = field(repr=False)
    run: object = None


@part
class FileTruth:
    """A ground-truth file: JSON lines, one query per line."""

    path: Annotated[Path, Shown] = Field(description="Path of the file.")

    @property
    def title(self) -> str:
        return f"file {self.path.name}"

    def observe(self, level: EvaluationType) -> Observed:
        """Return the digest of the file; raise ``GroundTruthError`` if it cannot be read."""
        return Observed(text_sha256(read_truth_text(self.path)))

    def read(
        self, observed: Observed, corpus: Callable[[], Corpus], level: EvaluationType, around: Surroundings
    ) -> Reading:
        """Read the file; raise ``GroundTruthError``, or ``ArtifactError`` if it changes while it is read."""
        truth = read_truth(self.path, level, lambda: corpus().by_id())
        if self.observe(level) != observed:
            raise ArtifactError(f"the ground-truth file {str(self.path)!r} changed while it was read: run again")
        return Reading(truth, len(truth))


class ForeignTruth(ForeignFunction):
    """A user-defined source: a function of the corpus, or an object with ``load(corpus)``.

    It returns what ``truth_from`` reads. Raises ``ConfigurationError`` if it is neither.
    """

    kind = "truth-source"
    methods = ("load",)
    wanted = "a function of the corpus, or an object with load"

    @property
    def title(self) -> str:
        return self.label

    def check(self, corpus: Corpus, level: EvaluationType) -> str:
        """Describe what a run will do."""
        return f"{self.title} is called when the benchmark runs"

    def observe(self, level: EvaluationType) -> Observed:
        """Return the digest of its code and settings, or its ``identity``."""
        return Observed(self.identity)

    def read(
        self, observed: Observed, corpus: Callable[[], Corpus], level: EvaluationType, around: Surroundings
    ) -> Reading:
        """Call the source; raise ``GroundTruthError`` if it does not return ground truth of this level."""
        truth: list[Any] = list(truth_from(self.ask(self._call, corpus()), level, corpus().by_id))
        check_unchanged(self)
        if not truth:
            raise GroundTruthError(f"{self.title} returned no queries: return ground truth")
        return Reading(truth, len(truth))


def join_truth(sources: Sequence[tuple[str, Sequence[Truth]]]) -> list[Truth]:
    """Join the ground truth of several sources; the title of a source becomes the origin of its answers.

    A question that has the id or the words of one in an earlier source is dropped if its answers are the same.

    Raises:
        GroundTruthError: If its answers differ, or two questions have the same id.
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
    """Return the words of a question, which identify it as its id does."""
    return folded_words(item.query.text)


def _answers(item: Truth) -> object:
    return item.unanswerable, frozenset(frozenset(group) for group in item.groups)


def _with_origin(item: Any, title: str) -> Truth:
    members = (member for group in item.groups for member in group)
    changed: Truth = replace(item, origins={member: item.origins.get(member, title) for member in members})
    return changed
