"""Why the first configuration is first, and what to try next: slices, losses, and what a remedy could gain at most."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from rag_eval.errors import ArtifactError
from rag_eval.formatting import counted, number
from rag_eval.metrics.budget import RecallWithinTokens
from rag_eval.metrics.formulas import Recall
from rag_eval.metrics.losses import LOSS_PARTS, Losses
from rag_eval.metrics.metric import higher_is_better, metric_of, score_name
from rag_eval.parts.kinds import PartRecord
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.unjudged import opened_run
from rag_eval.reports.verdict import RunVerdict
from rag_eval.reports.wording import listed, points
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.results.run_losses import configuration_losses, losses_cut
from rag_eval.results.run_scores import SEED, RunScores
from rag_eval.retrieval.retriever import candidates_for
from rag_eval.retrieval.tokenizers import leakage, leakage_kind
from rag_eval.stats.paired_scores import FEWEST_DOCUMENTS
from rag_eval.stats.slices import LEAKAGE, PASSAGES, SliceComparison, compare_slices, passages_kind, slices_of
from rag_eval.tables import queries_from_table

WORTH = 0.005
"""What cannot gain more than half a point is not proposed."""

MOST_EXPERIMENTS = MOST_SLICES_NAMED = 3
_ALL_RECALL = score_name(RecallWithinTokens.label, "tokens", 2**31 - 1)


@dataclass(frozen=True)
class Suggestion:
    """Something to try: ``gain`` is the most it could add to the objective on these questions, None where it adds none.

    A bound, not a forecast. ``cost`` says in words what trying it takes, ``setting`` what to write or to call.
    """

    title: str
    why: str
    gain: float | None
    cost: str
    setting: str


@dataclass(frozen=True)
class Why:
    """Where the first two configurations of a verdict differ, where each of them loses, and what to try.

    ``slices`` has the differences of the second from the first, largest first; ``losses`` the mean share that is lost
    at each stage within the first ``k``, hits or tokens as ``kind`` says, by configuration and stage; ``experiments``
    at most three, the largest gain first.
    """

    slices: list[SliceComparison]
    is_share: bool
    is_recall: bool
    k: int
    kind: Literal["hits", "tokens"]
    losses: dict[str, dict[str, float]]
    experiments: list[Suggestion]

    @property
    def unbounded(self) -> str:
        """Why no gains are told, in a sentence; empty where they are."""
        return "" if self.is_recall else "What an experiment could gain is bounded for recall alone, and not told here."

    @property
    def finding(self) -> str:
        """The slices in which the two differ for sure, in a sentence."""
        sure = [one for one in self.slices if one.comparison.verdict != "no difference shown"]
        if not self.slices:
            return "" if len(self.losses) < 2 else "No document and no kind with a difference has 20 questions."
        if not sure:
            return "The first two differ for sure in no document and no kind of question."
        told = [
            f"{one.slice.key} {one.slice.value} ({counted(one.comparison.n, 'questions')}: "
            f"{f'{points(one.comparison.difference)} points' if self.is_share else number(one.comparison.difference)})"
            for one in sure[:MOST_SLICES_NAMED]
        ]
        more = f" and {len(sure) - len(told)} more" if len(sure) > len(told) else ""
        return f"The second differs for sure from the first in {listed(told)}{more}."

    def to_data(self) -> dict[str, Any]:
        """Return it as plain data; of a slice, how many questions it has in the place of all their ids."""
        slices = [{"key": one.slice.key, "value": one.slice.value} | asdict(one.comparison) for one in self.slices]
        return asdict(self) | {"slices": slices}


def why(workspace: Workspace, outcome: BenchmarkOutcome, scores: RunScores, verdict: RunVerdict) -> Why:
    """Explain a verdict; what tables that are gone would have told is left out."""
    named = [one.name for one in verdict.contenders[:2]]
    by_name = {one.name: one for one in outcome.configurations}
    k, kind = losses_cut(outcome)
    losses: dict[str, Losses] = {}
    for name in named:
        try:
            found = configuration_losses(workspace, outcome, by_name[name], [k], kind)
        except ArtifactError:
            continue
        if found is not None:
            losses[name] = found
    means = {
        name: {part: pc.mean(one.parts.column(part)).as_py() for part in LOSS_PARTS} for name, one in losses.items()
    }
    slices: list[SliceComparison] = []
    experiments: list[Suggestion] = []
    try:
        if len(named) == 2:
            slices = _slices(workspace, outcome, scores, verdict)
        if named:
            experiments = [*_Suggestions(workspace, outcome, scores, verdict, losses.get(named[0])).best()]
    except ArtifactError:
        pass  # the tables of a run may be pruned while its scores are kept
    measure = metric_of(verdict.objective)
    return Why(slices, measure.measures == "share", issubclass(measure, Recall), k, kind, means, experiments)


def _slices(
    workspace: Workspace, outcome: BenchmarkOutcome, scores: RunScores, verdict: RunVerdict
) -> list[SliceComparison]:
    paired, truth = scores.paired(verdict.objective), outcome.inputs.truth
    first, second = (paired.subset([one.name]) for one in verdict.contenders[:2])
    answers = workspace.read_table(truth.answers).filter(pc.field("member") == 0)
    passages = Counter(answers.column("query_id").to_pylist())
    texts: dict[str, list[str]] = {}
    for query_id, text in zip(answers.column("query_id").to_pylist(), answers.column("text").to_pylist(), strict=True):
        if text:
            texts.setdefault(query_id, []).append(text)
    kinds: dict[str, dict[str, object]] = {
        query.id: {
            **query.metadata,
            PASSAGES: passages_kind(passages[query.id]),
            **({LEAKAGE: leakage_kind(leakage(query.text, *texts[query.id]))} if texts.get(query.id) else {}),
        }
        for query in queries_from_table(workspace.read_table(truth.queries))
    }
    rng = np.random.default_rng(SEED)
    better = higher_is_better(verdict.objective)
    return compare_slices(first, second, slices_of(paired, kinds), rng, higher_is_better=better)


class _Suggestions:
    """What the losses of the first configuration suggest, each with its bound.

    With v the objective, f the recall of what a reranker would read and c that of all chunks that may be returned, each
    a mean over the questions: a perfect reranker could gain f - v, a perfect search c - v, other chunks 1 - v.
    """

    def __init__(
        self,
        workspace: Workspace,
        outcome: BenchmarkOutcome,
        scores: RunScores,
        verdict: RunVerdict,
        losses: Losses | None,
    ) -> None:
        self.workspace, self.outcome, self.scores, self.verdict = workspace, outcome, scores, verdict
        self.one = next(one for one in outcome.configurations if one.name == verdict.contenders[0].name)
        self.losses = losses
        self.reached = verdict.contenders[0].mean

    def best(self) -> list[Suggestion]:
        bounded = issubclass(metric_of(self.verdict.objective), Recall)
        found = [*self._remedies(self.losses)] if bounded and self.losses is not None else []
        found = sorted((one for one in found if (one.gain or 0) > WORTH), key=lambda one: -(one.gain or 0))
        more = [*self._more_questions()]
        return found[: MOST_EXPERIMENTS - len(more)] + more

    def _remedies(self, losses: Losses) -> Iterator[Suggestion]:
        record, one = self.one.configuration, self.one
        uncovered, hidden = (pc.mean(losses.parts.column(part)).as_py() for part in ("uncovered", "selection"))
        covered, questions = 1 - uncovered - max(0.0, hidden), one.queries
        depth = min(round(one.hits.rows / max(1, questions)), candidates_for(max(self.outcome.config.k), None))
        fetched = self._fetched(depth)
        texts = counted(one.chunks.count, "texts")
        if depth > 1:
            other = "another reranker" if _is_used(record.reranker) else "a reranker"
            yield Suggestion(
                f"Give the first {depth:,} hits to {other}",
                f"{100 * (fetched - self.reached):.1f} points of what is missed are among them, but too far down.",
                fetched - self.reached,
                f"{depth:,} pairs to score a question, {depth * questions:,} here; nothing to embed",
                "rerankers: [none, maxsim]",
            )
        yield from self._other_searches(covered, texts)
        missed = f"{100 * (covered - self.reached):.1f}"
        if not _is_used(record.context):
            embeds = (
                f"{texts} to embed anew" if record.embedder else "nothing to embed: its index of words is built anew"
            )
            yield Suggestion(
                "Search each chunk together with its headings",
                f"{missed} points of what is missed stand in chunks that were ranked too low.",
                covered - self.reached,
                embeds,
                "context: [none, headings]",
            )
        if uncovered > WORTH:
            yield Suggestion(
                "Cut the documents otherwise",
                f"{100 * uncovered:.1f} points stand in no chunk.",
                1 - self.reached,
                f"about {texts} to cut" + " and embed" * (record.embedder is not None),
                "chunkers: {type: recursive-token, chunk_size: 400, chunk_overlap: 200}",
            )

    def _other_searches(self, covered: float, texts: str) -> Iterator[Suggestion]:
        """Other searches of the same chunks: what the better list for each question would find."""
        own = self.one.configuration
        alike = {one.name: one for one in self.outcome.configurations if self._differs_by_search(one)}
        others = [one.name for one in self.verdict.contenders if one.name in alike]
        if others:
            paired = self.scores.paired(self.verdict.objective).subset([self.one.name, *others])
            better = float(paired.values.max(axis=0).mean()) - self.reached
            if better <= WORTH:
                return
            # A hybrid holds the other searches already: what is left is how it weighs them.
            records = (own, *(alike[name].configuration for name in others))
            is_fused = any(one.retrieval is not None and one.retrieval.type == "hybrid" for one in records)
            yield Suggestion(
                "Weigh the searches of the hybrid otherwise" if is_fused else f"Fuse it with {others[0]}",
                f"The better of these searches for every question would find {points(better)} points more.",
                covered - self.reached,
                "nothing new to embed",
                "retrieval: {type: hybrid, fusion: {type: z-score, weights: [[0.3, 0.7], [0.7, 0.3]]}}",
            )
        elif own.embedder is None:
            missed = f"{100 * (covered - self.reached):.1f}"
            yield Suggestion(
                "Search by vectors beside words",
                f"{missed} points of what is missed stand in chunks that were ranked too low.",
                covered - self.reached,
                f"{texts} to embed",
                "retrieval: [bm25, hybrid]",
            )

    def _differs_by_search(self, other: ConfigurationOutcome) -> bool:
        same = ("chunker", "context", "queries", "selection", "reranker", "returns")
        mine, theirs = self.one.configuration, other.configuration
        alike = all(getattr(mine, part) == getattr(theirs, part) for part in same)
        return alike and mine.system is None is theirs.system and mine.retrieval != theirs.retrieval

    def _fetched(self, depth: int) -> float:
        """The mean recall of the first hits; of passages, which are made of hits, all are looked at."""
        with opened_run(self.workspace, self.outcome) as run:
            passages = run.returned(self.one)
            if self.one.passages is None:
                passages = passages.filter(pc.field("rank") <= depth)
            return run.means(self.one, [_ALL_RECALL], passages)[0]

    def _more_questions(self) -> Iterator[Suggestion]:
        """Ask about more, where what is known holds for few documents or tells nothing apart."""
        verdict = self.verdict
        few = verdict.documents < FEWEST_DOCUMENTS
        if not few and verdict.kind not in ("tied", "too few questions"):
            return
        needed = verdict.questions_needed
        more = (
            f"about {counted(needed - verdict.questions, 'questions')} more"
            if needed and needed > verdict.questions
            else ""
        )
        yield Suggestion(
            "Ask about more documents",
            f"{counted(verdict.documents, 'documents')} decide this."
            if few
            else "These questions cannot tell the first from the others.",
            None,
            more or "some ten questions for each document, to write or to generate, and to review",
            "rag-eval generate FOLDER --dry-run",
        )


def _is_used(part: PartRecord | None) -> bool:
    return part is not None and part.type != "none"
