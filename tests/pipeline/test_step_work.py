"""What a run says of its steps: computed or cached, and what that took."""

from datetime import UTC, datetime, timedelta

from rag_eval.pipeline.references import Effort, TableRef
from rag_eval.results.outcome import StepRecorder

BEGUN = datetime.now(UTC)


def shard(made: datetime, fresh: int = 1, **effort: object) -> TableRef:
    taken = Effort(fresh=fresh, total=4, unit="texts", seconds=2.0, **effort)  # type: ignore[arg-type]
    return TableRef(uri="tables/a.arrow", digest="a" * 64, rows=4, made=made, effort=taken)


def new(**effort: object) -> TableRef:
    return shard(BEGUN + timedelta(seconds=1), **effort)  # type: ignore[arg-type]


def old(**effort: object) -> TableRef:
    return shard(BEGUN - timedelta(days=1), **effort)  # type: ignore[arg-type]


def test_the_effort_of_shards_is_their_sum_with_the_lowest_recall() -> None:
    shards = [
        new(tokens=5, cost=0.5, recall=0.9, fallbacks={"left out": 1}, query_seconds=0.25),
        new(tokens=7, cost=0.25, recall=0.8, fallbacks={"left out": 2, "too long": 1}, query_seconds=0.5),
        new(skipped=3),
    ]
    effort = StepRecorder(begun=BEGUN).record(shards).effort
    assert effort == Effort(
        fresh=3,
        total=12,
        unit="texts",
        seconds=6.0,
        tokens=12,
        cost=0.75,
        query_seconds=0.75,
        skipped=3,
        fallbacks={"left out": 3, "too long": 1},
        recall=0.8,
    )
    unpriced = StepRecorder(begun=BEGUN).record([*shards, new(cost=None)]).effort
    assert unpriced is not None
    assert unpriced.cost is None


def test_a_step_whose_shards_were_all_cached_took_nothing_and_says_what_it_took_once() -> None:
    work = StepRecorder(begun=BEGUN).record([old(cost=0.5), old(cost=0.25)])
    assert (work.state, work.seconds) == ("cached", 0.0)
    assert work.effort is not None
    assert (work.effort.cost, work.effort.seconds, work.effort.fresh) == (0.75, 4.0, 2)


def test_a_cached_shard_took_nothing_beside_one_that_was_computed() -> None:
    work = StepRecorder(begun=BEGUN).record([old(fresh=4), new(fresh=3)])
    assert (work.state, work.seconds) == ("computed", 2.0)
    assert work.effort is not None
    assert (work.effort.fresh, work.effort.total) == (3, 8)


def test_what_configurations_share_is_computed_for_the_first_of_them() -> None:
    work, shared = StepRecorder(begun=BEGUN), new()
    own, read = new().model_copy(update={"digest": "b" * 64}), shared.model_copy()  # read from the cache
    assert [work.record(some).state for some in ([shared], [read], [shared, own], [own])] == [
        "computed",
        "cached",
        "computed",
        "cached",
    ]
    nothing = work.record([])
    assert (nothing.state, nothing.effort) == ("cached", None)
