"""Why the first configuration is first, and what to try next: slices, losses, and what a remedy could gain at most."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from rag_eval.errors import ArtifactError
from rag_eval.formatting import counted, number
from rag_eval.metrics.formulas import Recall, RecallWithinTokens
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
    """Something to try.

    Attributes:
        title: What to do.
        why: What of the run suggests it.
        gain: The most that it could add to the objective on these questions: a bound, not a forecast. None where it
            adds nothing.
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
        losses: The mean share that is lost at each stage, by configuration and stage.
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


def why(workspace: Workspace, scores: RunScores, verdict: RunVerdict) -> Why:
    """Explain a verdict; what tables that are gone would have told is left out."""
    k, kind = losses_cut(verdict.outcome)
    losses: dict[str, Losses] = {}
    slices: list[SliceComparison] = []
    experiments: list[Suggestion] = []
    # The tables of a run may be pruned while its scores are kept.
    with suppress(ArtifactError):
        for one in verdict.contenders[:2]:
            lost = configuration_losses(workspace, verdict.outcome, one.outcome, [k], kind)
            losses |= {} if lost is None else {one.name: lost}
    with suppress(ArtifactError):
        slices = _slices(workspace, scores, verdict) if len(verdict.contenders) > 1 else []
    with suppress(ArtifactError):
        first = verdict.contenders[0].name if verdict.contenders else ""
        experiments = _suggestions(workspace, verdict, losses.get(first)) if first else []
    means = {
        name: {part: pc.mean(one.parts.column(part)).as_py() for part in LOSS_PARTS} for name, one in losses.items()
    }
    return Why(slices, verdict.is_share, k, kind, means, experiments)


def _slices(workspace: Workspace, scores: RunScores, verdict: RunVerdict) -> list[SliceComparison]:
    paired, truth = scores.paired(verdict.objective), verdict.outcome.inputs.truth
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
    better = higher_is_better(verdict.objective)
    rng = np.random.default_rng(SEED)
    return compare_slices(first, second, slices_of(paired, kinds), rng, higher_is_better=better)


def _suggestions(workspace: Workspace, verdict: RunVerdict, losses: Losses | None) -> list[Suggestion]:
    """Return what the losses of the first configuration suggest: at most three, the largest gain first."""
    remedies: list[tuple[float, Suggestion]] = []
    if losses is not None and issubclass(metric_of(verdict.objective), Recall):
        remedies = [(one.gain, one) for one in _remedies(workspace, verdict, losses) if one.gain and one.gain > WORTH]
    best = [one for _, one in sorted(remedies, key=lambda remedy: -remedy[0])]
    more = [*_more_questions(verdict)]
    return best[: MOST_EXPERIMENTS - len(more)] + more


def _remedies(workspace: Workspace, verdict: RunVerdict, losses: Losses) -> Iterator[Suggestion]:
    """Bound what a better reranker, search or chunker could gain.

    With v the objective, f the recall of what a reranker would read and c that of all chunks that may be returned, each
    a mean over the questions: a perfect reranker could gain f - v, a perfect search c - v, other chunks 1 - v.
    """
    outcome, one, reached = verdict.outcome, verdict.contenders[0].outcome, verdict.contenders[0].mean
    record, texts = one.configuration, counted(one.chunks.count, "texts")
    uncovered, hidden = (pc.mean(losses.parts.column(part)).as_py() for part in ("uncovered", "selection"))
    covered = 1 - uncovered - max(0.0, hidden)
    depth = min(round(one.hits.rows / max(1, one.queries)), candidates_for(max(outcome.config.k), None))
    ranked_low = f"{100 * (covered - reached):.1f} points of what is missed stand in chunks that were ranked too low."
    if depth > 1:
        fetched = _fetched(workspace, outcome, one, depth)
        yield Suggestion(
            f"Give the first {depth:,} hits to {'another reranker' if _is_used(record.reranker) else 'a reranker'}",
            f"{100 * (fetched - reached):.1f} points of what is missed are among them, but too far down.",
            fetched - reached,
            f"{depth:,} pairs to score a question, {depth * one.queries:,} here; nothing to embed",
            "rerankers: [none, maxsim]",
        )
    if not any(other.configuration.embedder or other.configuration.system for other in outcome.configurations):
        yield Suggestion(
            "Search by vectors beside words",
            ranked_low,
            covered - reached,
            f"{texts} to embed",
            "retrieval: [bm25, hybrid]",
        )
    if not _is_used(record.context):
        yield Suggestion(
            "Search each chunk together with its headings",
            ranked_low,
            covered - reached,
            f"{texts} to embed anew" if record.embedder else "nothing to embed: its index of words is built anew",
            "context: [none, headings]",
        )
    if uncovered > WORTH:
        yield Suggestion(
            "Cut the documents otherwise",
            f"{100 * uncovered:.1f} points stand in no chunk.",
            1 - reached,
            f"about {texts} to cut" + " and embed" * (record.embedder is not None),
            "chunkers: {type: recursive-token, chunk_size: 400, chunk_overlap: 200}",
        )


def _fetched(workspace: Workspace, outcome: BenchmarkOutcome, one: ConfigurationOutcome, depth: int) -> float:
    """Return the mean recall of the first hits; of passages, which are made of hits, all are looked at."""
    with opened_run(workspace, outcome) as run:
        passages = run.returned(one)
        if one.passages is None:
            passages = passages.filter(pc.field("rank") <= depth)
        return run.means(one, [_ALL_RECALL], passages)[0]


def _more_questions(verdict: RunVerdict) -> Iterator[Suggestion]:
    """Suggest to ask about more, where what is known holds for few documents or tells nothing apart."""
    few, needed = verdict.documents < FEWEST_DOCUMENTS, (verdict.questions_needed or 0) - verdict.questions
    if few or verdict.kind in ("tied", "too few questions"):
        decide = f"{counted(verdict.documents, 'documents')} decide this."
        yield Suggestion(
            "Ask about more documents",
            decide if few else "These questions cannot tell the first from the others.",
            None,
            f"about {counted(needed, 'questions')} more"
            if needed > 0
            else "some ten questions for each document, to write or to generate, and to review",
            "rag-eval generate FOLDER --dry-run",
        )


def _is_used(part: PartRecord | None) -> bool:
    return part is not None and part.type != "none"
