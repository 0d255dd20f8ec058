"""Explain why the first configuration is first, and what to try next: slices, losses, and upper bounds of gains."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import pyarrow.compute as pc

from rag_eval.errors import ArtifactError
from rag_eval.formatting import counted, number
from rag_eval.metrics.formulas import Recall, RecallWithinTokens
from rag_eval.metrics.losses import LOSS_PARTS
from rag_eval.metrics.metric import higher_is_better, metric_of, score_name
from rag_eval.parts.kinds import PartRecord
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.unjudged import opened_run
from rag_eval.reports.verdict import RunVerdict
from rag_eval.reports.wording import listed, points
from rag_eval.results.run_losses import configuration_losses, losses_cut
from rag_eval.results.run_scores import SEED, RunScores
from rag_eval.retrieval.retriever import candidates_for
from rag_eval.retrieval.tokenizers import leakage, leakage_kind
from rag_eval.stats.paired_scores import FEWEST_DOCUMENTS
from rag_eval.stats.slices import LEAKAGE, PASSAGES, SliceComparison, compare_slices, passages_kind, slices_of
from rag_eval.tables import queries_from_table

WORTH = 0.005
"""Minimum possible gain of a suggestion: half a point."""

MOST_EXPERIMENTS = MOST_SLICES_NAMED = 3
LOSS_MEANINGS = {
    "uncovered": "in no chunk",
    "boundary": "in more or larger chunks than the cut has room for",
    "search": "ranked too low by every search",
    "index": "missed by the approximate index",
    "fusion": "moved down by the fusion",
    "selection": "dropped by a filter, a threshold or as a duplicate",
    "reranker": "moved down by the reranker",
    "return": "not in the returned passage",
}
"""Each loss and its meaning, in the order in which losses occur."""

_ALL_RECALL = score_name(RecallWithinTokens.label, "tokens", 2**31 - 1)


@dataclass(frozen=True)
class Suggestion:
    """Something to try.

    Attributes:
        title: What to do.
        why: What of the run suggests it.
        gain: The most that it could add to the objective on these questions: a bound, not a forecast. None if it adds
            nothing.
        cost: What trying it takes.
        setting: What to write in the benchmark, or to call.
    """

    title: str
    why: str
    gain: float | None
    cost: str
    setting: str


@dataclass(frozen=True)
class Why:
    """Where the first two configurations of a verdict differ, where each of them loses, and what to try.

    Attributes:
        slices: The differences of the second from the first, largest first.
        is_share: Whether the objective is a share, whose differences are points.
        k: The hits or tokens within which losses are counted.
        kind: What ``k`` counts.
        losses: The mean share that is lost at each stage, by configuration and stage; none of a whole system. With the
            recall they add up to 1.
        experiments: At most three, the largest gain first.
    """

    slices: list[SliceComparison]
    is_share: bool
    k: int
    kind: Literal["hits", "tokens"]
    losses: dict[str, dict[str, float]]
    experiments: list[Suggestion]

    @property
    def finding(self) -> str:
        """The slices in which the two differ significantly, in a sentence."""
        different = [row for row in self.slices if row.comparison.verdict != "no difference shown"]
        if not self.slices:
            return "" if len(self.losses) < 2 else "No document or kind of question with a difference has 20 questions."
        if not different:
            return "The first two differ significantly in no document and no kind of question."
        names = [self._slice_in_words(row) for row in different[:MOST_SLICES_NAMED]]
        more = f" and {len(different) - len(names)} more" * (len(different) > len(names))
        return f"The second differs significantly from the first in {listed(names)}{more}."

    def _slice_in_words(self, row: SliceComparison) -> str:
        difference = row.comparison.difference
        size = f"{points(difference)} points" if self.is_share else number(difference)
        return f"{row.slice.key} {row.slice.value} ({counted(row.comparison.n, 'questions')}: {size})"

    def to_data(self) -> dict[str, object]:
        """Return the explanation as plain data; slices are without the ids of their questions."""
        slices = [{"key": row.slice.key, "value": row.slice.value} | asdict(row.comparison) for row in self.slices]
        return asdict(self) | {"slices": slices}


def why(workspace: Workspace, scores: RunScores, verdict: RunVerdict, explained: int = 2) -> Why:
    """Explain a verdict; anything that needs missing tables is left out.

    Args:
        workspace: The workspace of the run.
        scores: Its scores.
        verdict: Its verdict.
        explained: The number of configurations whose losses are computed, best first.
    """
    k, kind = losses_cut(verdict.outcome)
    losses: dict[str, dict[str, float]] = {}
    slices: list[SliceComparison] = []
    experiments: list[Suggestion] = []
    # The tables of a run may be pruned while its scores stay.
    with suppress(ArtifactError):
        for contender in verdict.contenders[:explained]:
            lost = configuration_losses(workspace, verdict.outcome, contender.outcome, [k], kind)
            if lost is not None:
                losses[contender.name] = {part: pc.mean(lost.parts.column(part)).as_py() for part in LOSS_PARTS}
    with suppress(ArtifactError):
        slices = _slices(workspace, scores, verdict) if len(verdict.contenders) > 1 else []
    with suppress(ArtifactError):
        if verdict.contenders:
            experiments = _suggestions(workspace, verdict, losses.get(verdict.contenders[0].name))
    return Why(slices, verdict.is_share, k, kind, losses, experiments)


def _slices(workspace: Workspace, scores: RunScores, verdict: RunVerdict) -> list[SliceComparison]:
    """Compare the first two on each document and kind of question, by metadata, passages and leakage."""
    paired, truth = scores.paired(verdict.objective), verdict.outcome.inputs.truth
    first, second = (paired.subset([contender.name]) for contender in verdict.contenders[:2])
    answers: dict[str, list[str | None]] = {}
    for row in workspace.read_table(truth.answers).filter(pc.field("member") == 0).to_pylist():
        answers.setdefault(row["query_id"], []).append(row["text"])
    kinds: dict[str, dict[str, object]] = {}
    for query in queries_from_table(workspace.read_table(truth.queries)):
        texts = answers.get(query.id, [])
        kinds[query.id] = {**query.metadata, PASSAGES: passages_kind(len(texts))}
        if known := [text for text in texts if text]:
            kinds[query.id][LEAKAGE] = leakage_kind(leakage(query.text, *known))
    is_gain, rng = higher_is_better(verdict.objective), np.random.default_rng(SEED)
    return compare_slices(first, second, slices_of(paired, kinds), rng, higher_is_better=is_gain)


def _suggestions(workspace: Workspace, verdict: RunVerdict, losses: Mapping[str, float] | None) -> list[Suggestion]:
    """Return what the losses of the first configuration suggest: at most three, the largest gain first."""
    remedies: list[Suggestion] = []
    if losses is not None and issubclass(metric_of(verdict.objective), Recall):
        remedies = [*_reranking(workspace, verdict), *_searching(verdict, losses)]
        remedies = sorted(remedies, key=lambda remedy: -(remedy.gain or 0.0))
    worth = [remedy for remedy in remedies if remedy.gain and remedy.gain > WORTH]
    more = [*_more_questions(verdict)]
    return worth[: MOST_EXPERIMENTS - len(more)] + more


def _reranking(workspace: Workspace, verdict: RunVerdict) -> Iterator[Suggestion]:
    """Suggest a reranker: a perfect one could gain the recall of the hits it reads minus the objective."""
    outcome, first, reached = verdict.outcome, verdict.contenders[0].outcome, verdict.contenders[0].mean
    depth = min(round(first.hits.rows / max(1, first.queries)), candidates_for(max(outcome.config.k), None))
    if depth <= 1:
        return
    with opened_run(workspace, outcome) as run:
        passages = run.returned(first)
        if first.passages is None:  # passages are made of hits: all are read
            passages = passages.filter(pc.field("rank") <= depth)
        gain = run.means(first, [_ALL_RECALL], passages)[0] - reached
    yield Suggestion(
        f"Give the first {depth:,} hits to {'another' if _is_used(first.configuration.reranker) else 'a'} reranker",
        f"They hold {100 * gain:.1f} points of what is missed, but too far down.",
        gain,
        f"{depth:,} pairs to score a question, {depth * first.queries:,} here; nothing to embed",
        "rerankers: [none, maxsim]",
    )


def _searching(verdict: RunVerdict, losses: Mapping[str, float]) -> Iterator[Suggestion]:
    """Suggest another search or chunker.

    A perfect search could gain the recall of all chunks that may be returned minus the objective; other chunks could
    gain everything that is missing.
    """
    first, reached = verdict.contenders[0].outcome, verdict.contenders[0].mean
    record, texts = first.configuration, counted(first.chunks.count, "texts")
    gain = 1 - losses["uncovered"] - max(0.0, losses["selection"]) - reached
    ranked_low = f"Chunks that were ranked too low hold {100 * gain:.1f} points of what is missed."
    others = [other.configuration for other in verdict.outcome.configurations]
    if not any(other.embedder or other.system for other in others):
        cost, setting = f"{texts} to embed", "retrieval: [bm25, hybrid]"
        yield Suggestion("Search by vectors beside words", ranked_low, gain, cost, setting)
    if not _is_used(record.context):
        again = "nothing to embed; the index of words is built again"
        cost, setting = f"{texts} to embed again" if record.embedder else again, "context: [none, headings]"
        yield Suggestion("Search each chunk together with its headings", ranked_low, gain, cost, setting)
    if losses["uncovered"] > WORTH:
        yield Suggestion(
            "Use another chunker",
            f"{100 * losses['uncovered']:.1f} points are in no chunk.",
            1 - reached,
            f"about {texts} to cut" + " and embed" * (record.embedder is not None),
            "chunkers: {type: recursive-token, chunk_size: 400, chunk_overlap: 200}",
        )


def _more_questions(verdict: RunVerdict) -> Iterator[Suggestion]:
    """Suggest more questions if the verdict depends on few documents or separates nothing."""
    few, needed = verdict.documents < FEWEST_DOCUMENTS, (verdict.questions_needed or 0) - verdict.questions
    if few or verdict.kind in ("tied", "too few questions"):
        decide = f"The verdict rests on {counted(verdict.documents, 'documents')}."
        by_hand = "about ten questions for each document, to write or to generate, and to review"
        yield Suggestion(
            "Ask about more documents",
            decide if few else "These questions cannot separate the first from the others.",
            None,
            f"about {counted(needed, 'questions')} more" if needed > 0 else by_hand,
            "rag-eval generate FOLDER --dry-run",
        )


def _is_used(part: PartRecord | None) -> bool:
    return part is not None and part.type != "none"
