"""A sure search held against every score of random grids: it is never wrong, and pays for nothing twice."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.benchmark.sweep import Chunking, CostLimit, Numbers, Rival, SureSearch, Values
from rag_eval.errors import ConfigurationError


class Grid:
    """Random chunkings with random scores; what each rival finds among its first chunks, by hits or by tokens."""

    def __init__(self, seed: int, chunkings: int = 4, kinds: int = 3, questions: int = 12) -> None:
        rng = np.random.default_rng(seed)
        self.cut, self.by_tokens = int(rng.integers(1, 5)), bool(rng.integers(2))
        self.costs = rng.integers(1, 40, 120)
        self.chunkings, self.covers, self.scores, self.rivals = [], [], [], []
        skill = rng.random(kinds)
        for number in range(chunkings):
            count = int(rng.integers(15, 40))
            # Chunks hold pieces of the truth of a question, which is ten characters long; some hold the same.
            covers = rng.random((questions, count, 10)) < 0.02
            covers[np.arange(questions), rng.integers(0, count, questions), 0] = True
            self.covers.append(covers)
            bearing = [np.flatnonzero(one.any(axis=1)) for one in covers]
            self.chunkings.append(Chunking(rng.choice(len(self.costs), count), bearing))
            for kind in range(kinds):
                self.rivals.append(Rival(number, str(kind)))
                noise = rng.integers(0, 8, (questions, count)) / 8  # with ties
                self.scores.append(noise + skill[kind] * rng.random(chunkings)[number] * covers.any(axis=2))

    def found(self, rival: int, question: int, pool: Numbers) -> float:
        """What the first chunks of a pool hold of the truth; equal scores by number."""
        number, (taken, spent) = self.rivals[rival].chunking, ([], 0)
        for chunk in sorted(pool.tolist(), key=lambda one: (-self.scores[rival][question, one], one)):
            spent += int(self.costs[self.chunkings[number].texts[chunk]]) if self.by_tokens else 1
            if spent > (20 * self.cut if self.by_tokens else self.cut):
                break
            taken.append(chunk)
        return float(self.covers[number][question][taken].any(axis=0).mean())

    def all(self, rival: int) -> Values:
        every = np.arange(len(self.chunkings[self.rivals[rival].chunking].texts))
        return np.array([self.found(rival, question, every) for question in range(self.covers[0].shape[0])])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.01, 0.1]), st.floats(0.2, 2), st.booleans())
def test_no_bound_is_ever_below_what_is_found_and_the_best_is_within_the_tolerance(
    seed: int, tolerance: float, limit: float, guided: bool
) -> None:
    grid = Grid(seed)
    truth = np.stack([grid.all(rival) for rival in range(len(grid.rivals))])
    every = np.unique(np.concatenate([one.texts for one in grid.chunkings]))
    full, rng = float(grid.costs[every].sum()), np.random.default_rng(seed)
    expected = truth if guided else rng.random(truth.shape)  # a guide may say anything
    near = [rng.integers(0, len(grid.chunkings[one.chunking].texts), 3) for one in grid.rivals]
    search = SureSearch(
        grid.chunkings, grid.rivals, grid.costs, expected, lambda one, _: near[one], [0], tolerance, limit * full
    )
    while (step := search.next()) is not None:
        members, before = search.members(step.chunking), search.embedded.copy()
        values = [[grid.found(one, question, step.chunks) for question in step.questions] for one in members]
        search.learn(step, np.array(values))
        assert (search.bounds >= truth - 1e-12).all()
        assert (search.embedded >= before).all()
    assert search.spent == grid.costs[search.embedded].sum() <= limit * full
    best = truth.mean(axis=1).max()
    if search.measured.any():
        assert best <= search.best + search.gap + 1e-12
    assert search.is_stopped or (search.gap <= tolerance + 1e-12 and best <= search.best + tolerance + 1e-12)


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_failed_says_nothing_of_others(is_whole: bool) -> None:
    chunkings = [Chunking(np.arange(5) + 5 * number, [np.array([0])] * 10) for number in range(2)]
    search = SureSearch(
        chunkings,
        [Rival(0, "vector"), Rival(1, "vector")],
        np.ones(10),
        np.full((2, 10), 0.9),
        lambda *_: np.empty(0, int),
        [0],
        known=0.85,
    )
    first = search.next()
    assert first is not None
    search.learn(first if is_whole else replace(first, whole=False), np.full((1, 10), np.nan))
    assert search.best == 0.85
    then = search.next()
    assert then is not None
    assert (then.chunking, then.whole) == (1, True)  # it probably finds 0.9, as the guide says: no pool excludes it


def test_what_is_known_for_nothing_excludes_too() -> None:
    grid = Grid(3)
    expected = np.zeros((len(grid.rivals), 12))
    search = SureSearch(grid.chunkings, grid.rivals, grid.costs, expected, lambda *_: np.empty(0, int), known=1.0)
    assert search.next() is None
    assert (search.gap, search.spent, search.is_stopped) == (0.0, 0.0, False)


def test_a_limit_is_tokens_or_dollars() -> None:
    assert CostLimit.parse("500,000 tokens") == CostLimit(500_000, "tokens")
    assert CostLimit.parse("2.50 USD") == CostLimit(2.5, "USD")
    for wrong in ("500000", "2 EUR", "-1 tokens", "1e9 tokens", ""):
        with pytest.raises(ConfigurationError, match="expected a cost such as '500,000 tokens'"):
            CostLimit.parse(wrong)
