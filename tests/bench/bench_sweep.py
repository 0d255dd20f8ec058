"""Searching a grid of 204 configurations on Chroma's data set: what guided and sure search find, and what they embed.

Every configuration is scored once on every question. Each strategy is then replayed on random halves of the questions
with the configurations in a random order; its bounds are compared with the full table at every step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_eval import Corpus, TokenLevelGroundTruth
from rag_eval.chunking import CHUNKER
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.ground_truth.truth_files import read_token_level
from rag_eval.retrieval.bm25 import BM25Index
from rag_eval.retrieval.scoring import moments_of
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.sweep.guided import COST_WEIGHT, GUIDED
from rag_eval.tokens import count_tokens
from tests.bench.chroma_data import chroma_dataset

REPLAYS = 500
CUTS = {"recall@5": 5, "2,000 tokens": 2_000}
NEAR = 0.01
CHUNKERS = [
    *({"type": "recursive-token", "chunk_size": size} for size in (100, 150, 200, 250, 300, 400, 500, 600, 800)),
    *({"type": "recursive-token", "chunk_size": size, "chunk_overlap": size // 2} for size in (200, 400, 600, 800)),
    *({"type": "fixed-token", "tokens_per_chunk": size} for size in (100, 200, 300, 400, 600, 800)),
    *({"type": "fixed-token", "tokens_per_chunk": size, "chunk_overlap": size // 2} for size in (200, 400, 800)),
    *({"type": "recursive-character", "chunk_size": size} for size in (400, 800, 1200, 1600, 2400)),
    *({"type": "sentence", "max_chunk_size": size} for size in (400, 800, 1200, 2000)),
    *({"type": "markdown", "max_chunk_size": size} for size in (600, 1000, 2000)),
]
REFERENCE = 5
"""The chunking of whose scores hybrids have the moments."""

KINDS = {"vector": 1.0, "hybrid .7": 0.7, "hybrid .5": 0.5, "hybrid .3": 0.3, "bm25": 0.0}
"""The weight of the vectors; a second BM25 with other parameters makes six."""

Numbers = NDArray[np.int64]
Values = NDArray[np.float64]
TOKENS = 1_000
"""A cut from here on counts tokens, below it hits."""


class Cut:
    """One chunking of the corpus on one line of characters, and what each question's chunks hold of its truth."""

    def __init__(
        self, chunker: Any, corpus: Corpus, truth: Sequence[TokenLevelGroundTruth], texts: dict[str, int]
    ) -> None:
        begins, at = {}, 0
        for document in corpus:
            begins[document.id], at = at, at + len(document.content) + 1
        chunks = [one for document in corpus for one in chunker.chunk_with_positions(document)]
        self.contents = [one.content for one in chunks]
        self.starts = np.array([begins[one.doc_id] + one.start for one in chunks])
        self.ends = np.array([begins[one.doc_id] + one.end for one in chunks])
        self.texts = np.array([texts.setdefault(one, len(texts)) for one in self.contents])
        self.tokens = np.array([count_tokens(one, "cl100k_base") for one in self.contents])
        self.covers = []
        for item in truth:
            line = np.unique(
                np.concatenate(
                    [np.arange(begins[s.doc_id] + s.start, begins[s.doc_id] + s.end) for s in item.relevant_spans]
                )
            )
            first, last = np.searchsorted(line, self.starts), np.searchsorted(line, self.ends)
            bearing = np.flatnonzero(last > first)
            self.covers.append((bearing, first[bearing], last[bearing], len(line)))

    def overlapping(self, start: int, end: int) -> Numbers:
        """The chunks that have some of a stretch of the line."""
        return np.arange(np.searchsorted(self.ends, start, side="right"), np.searchsorted(self.starts, end))


@dataclass
class Ranked:
    """A configuration: of each question all its chunks, best first."""

    chunking: int
    kind: str
    order: NDArray[np.uint16]
    cut: Cut

    @cached_property
    def steps(self) -> list[tuple[Numbers, Values]]:
        """Of each question the ranks of its bearing chunks, and the recall of the first of them, of the first two, …"""
        found = []
        for question, (bearing, first, last, size) in enumerate(self.cut.covers):
            place = np.empty(self.order.shape[1], np.int64)
            place[self.order[question]] = np.arange(self.order.shape[1])
            ranks = place[bearing]
            sequence, covered, recalls = np.argsort(ranks), np.zeros(size, bool), [0.0]
            for one in sequence.tolist():
                covered[first[one] : last[one]] = True
                recalls.append(covered.sum() / size)
            found.append((ranks[sequence], np.array(recalls)))
        return found

    def within(self, cut: int) -> int:
        """About how many hits a cut takes, by the characters of the chunks."""
        return cut if cut < TOKENS else max(1, round(4 * cut / (self.cut.ends - self.cut.starts).mean()))

    def recall(self, questions: Numbers, cut: int, pool: NDArray[np.bool_] | None = None) -> Values:
        """What is found among all chunks, or those of a pool, within so many hits or tokens."""
        values = np.empty(len(questions))
        weights = np.ones(len(self.cut.tokens), np.int64) if cut < TOKENS else self.cut.tokens
        if pool is not None:
            weights = np.where(pool, weights, 0)
        spent = np.cumsum(weights[self.order[questions]], axis=1)
        for row, question in enumerate(questions.tolist()):
            ranks, recalls = self.steps[question]
            values[row] = recalls[np.searchsorted(spent[row, ranks], cut, side="right")]
        return values


@dataclass
class Grid:
    """All configurations, and what each finds for each question by each cut."""

    cuts: list[Cut]
    ranked: list[Ranked]
    costs: Numbers
    values: dict[int, Values]


def grid_of(corpus: Corpus, truth: Sequence[TokenLevelGroundTruth], chunkers: Sequence[Any]) -> Grid:
    texts: dict[str, int] = {}
    cuts = [Cut(CHUNKER.make(one), corpus, truth, texts) for one in chunkers]
    embedder, questions = LocalEmbedder(), [item.query.text for item in truth]
    listed = list(texts)
    vectors, asked = embedder.embed(listed), embedder.embed(questions)
    moments, ranked = None, []
    for number in [REFERENCE, *(n for n in range(len(cuts)) if n != REFERENCE)]:
        cut = cuts[number]
        similar = (asked @ vectors[cut.texts].T).astype(np.float64)
        words = [BM25Index(cut.contents), BM25Index(cut.contents, 0.9, 0.4)]
        lexical = [np.stack([index.scores(one) for one in questions]) for index in words]
        if moments is None:
            moments = [np.array([moments_of(row) for row in side]) for side in (similar, lexical[0])]
        z = [(side - m[:, :1]) / m[:, 1:] for side, m in zip((similar, lexical[0]), moments, strict=True)]
        scores = {kind: weight * z[0] + (1 - weight) * z[1] for kind, weight in KINDS.items()} | {"bm25 b": lexical[1]}
        for kind, side in scores.items():
            order = np.argsort(-side, axis=1, kind="stable").astype(np.uint16)
            ranked.append(Ranked(number, kind, order, cut))
    every = np.arange(len(questions))
    values = {cut: np.stack([one.recall(every, cut) for one in ranked]) for cut in CUTS.values()}
    return Grid(cuts, ranked, np.array(embedder.count_tokens(listed)), values)


class Replay:
    """One search of a grid on some of the questions, with its configurations in some order."""

    def __init__(self, grid: Grid, cut: int, questions: Numbers, order: Numbers) -> None:
        self.grid, self.cut, self.questions = grid, cut, questions
        self.ranked = [grid.ranked[one] for one in order]
        self.values = grid.values[cut][np.ix_(order, questions)]
        self.by_vector = np.array([not one.kind.startswith("bm25") for one in self.ranked])
        self.guide = np.array([self._guide(one.chunking) for one in self.ranked])
        self.full = int(grid.costs[self._texts(range(len(grid.cuts)))].sum())
        self.best = self.values.mean(axis=1).max()

    def _texts(self, chunkings: Any) -> Numbers:
        return np.unique(np.concatenate([self.grid.cuts[one].texts for one in chunkings]))

    def _guide(self, chunking: int) -> Values:
        rows = [row for row, one in enumerate(self.grid.ranked) if (one.chunking, one.kind) == (chunking, "bm25")]
        return self.grid.values[self.cut][rows[0]][self.questions]

    def guided(self) -> tuple[float, float]:
        """How far from the best the best of the first chunkings is, and the share of the tokens that they are."""
        standing = {}
        for one, expected in zip(self.ranked, self.guide, strict=True):
            cost = self.grid.costs[np.unique(one.cut.texts)].sum()
            standing[one.chunking] = expected.mean() - COST_WEIGHT * cost / self.full
        chosen = sorted(standing, key=lambda one: -standing[one])[:GUIDED]
        taken = [not vector or one.chunking in chosen for one, vector in zip(self.ranked, self.by_vector, strict=True)]
        spent = self.grid.costs[self._texts(chosen)].sum()
        return self.best - self.values[taken].mean(axis=1).max(), spent / self.full


def replays(name: str, grid: Grid, wanted: dict[str, float]) -> Iterator[dict[str, Any]]:
    """The figures of every strategy on random halves of the questions, in random orders."""
    rng = np.random.default_rng(20261117)
    count = grid.values[5].shape[1]
    for title, cut in CUTS.items():
        runs = []
        for _ in range(REPLAYS):
            half = np.sort(rng.choice(count, count // 2, replace=False))
            replay = Replay(grid, cut, half, rng.permutation(len(grid.ranked)))
            runs.append(replay.guided())
        guided = np.array(runs)
        found = {
            f"{title}, guided within 0.01": (guided[:, 0] <= NEAR).mean(),
            f"{title}, guided, share of the tokens": guided[:, 1].mean(),
        }
        for figure, value in found.items():
            yield _figure(f"{name}: {figure}", float(value), wanted.get(figure), lower="within" not in figure)


WANTED = {
    **{f"{title}, guided within 0.01": 0.97 for title in CUTS},
    **{f"{title}, guided, share of the tokens": 0.12 for title in CUTS},
}


def _figure(name: str, value: float, target: float | None, *, lower: bool) -> dict[str, Any]:
    is_met = target is None or (value <= target if lower else value >= target)
    return {"name": name, "value": value, "unit": "", "target": target, "ok": bool(is_met)}


def run() -> list[dict[str, Any]]:
    """The figures of the sample, and of Chroma where it is at hand."""
    figures = [*replays("sample", grid_of(Corpus.from_folder(CORPUS), sample_truth(), CHUNKERS), {})]
    dataset = chroma_dataset()
    if dataset is not None:
        figures += replays("Chroma", grid_of(*dataset, CHUNKERS), WANTED)
    return figures


def sample_truth() -> list[TokenLevelGroundTruth]:
    return [one for one in read_token_level(GROUND_TRUTH) if not one.unanswerable]
