"""The verdict: what it says for every way a ranking can come out, and the strip."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from rag_eval.metrics.formulas import STRIP, strip_metrics
from rag_eval.reports.ranking import ConfigurationRanking
from rag_eval.reports.verdict import Contender, RunVerdict, verdict_of
from rag_eval.reports.verdict_words import cautions
from rag_eval.reports.verdict_words import words_of as said
from rag_eval.reports.wording import finding
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationFailure
from rag_eval.results.run_scores import RunScores, ScoredQuery, read_scores
from rag_eval.stats.comparison import Placed
from rag_eval.stats.intervals import Estimate
from rag_eval.stats.paired_scores import Unit
from tests.reports.conftest import Kept

SURE = Estimate(mean=0.739, low=0.588, high=0.8615, n=70, units=14, unit="documents")


@pytest.fixture
def outcome(sample_run: Kept) -> BenchmarkOutcome:
    return sample_run.outcome.by("recall_within_tokens@2000")


def judged(
    outcome: BenchmarkOutcome,
    means: Sequence[float],
    *,
    documents: int = 30,
    each: int = 4,
    spread: float = 0.05,
    at: Mapping[int, Sequence[float]] | None = None,
    fetched: Sequence[float] | None = None,
    lower: Mapping[int, int] | None = None,
) -> RunVerdict:
    """The verdict on scores with these true means, the first configurations of a run having them in this order.

    ``at`` has other means for some budgets; ``fetched`` are the tokens of all hits of each configuration; ``lower`` is
    on how many questions a configuration scores less than its mean.
    """
    named = outcome.model_copy(update={"configurations": outcome.configurations[: len(means)]})
    rng = np.random.default_rng(7)
    count = documents * each
    noise = rng.normal(0, spread, (len(means), count))
    noise -= noise.mean(axis=1, keepdims=True)
    for row, questions in (lower or {}).items():
        noise[row, :questions] -= 0.2
    shared = rng.normal(0, 0.1, count)
    values = [np.add.outer((at or {}).get(budget, means), shared) + noise for budget in STRIP]
    values.append(np.repeat([fetched or [99_999.0] * len(means)], count, axis=0).T)
    queries = tuple(ScoredQuery(f"q{n}", "?", f"{n % documents:02}.md") for n in range(count))
    names = tuple(one.name for one in named.configurations)
    scores = RunScores(
        "made",
        tuple(one for one in strip_metrics() if "tokens_retrieved" not in one),
        names,
        queries,
        np.stack(values) if means else np.zeros((0, 0, 0)),
    )
    return verdict_of(named, scores)


def test_one_is_shipped_with_how_sure_that_is(outcome: BenchmarkOutcome) -> None:
    found = judged(outcome, [0.7, 0.85, 0.6])
    shipped = outcome.configurations[1].name
    assert (found.kind, found.shipped, found.budget, found.budget_is_default) == ("ship", shipped, 2_000, True)
    assert said(found).headline == f"For 2,000 tokens of context, ship {shipped}"
    assert said(found).how_sure.startswith(f"{shipped} finds 8")
    assert said(found).how_sure.endswith(
        "(120 questions about 30 documents). It is the best of the 3, or within 0.5 points of the best, "
        "with a probability of over 99 %. All 2 others are significantly worse."
    )
    assert found.questions_needed is None
    assert (found.contenders[0].name, found.contenders[0].probability) == (shipped, 1)


def test_the_cheapest_of_those_as_good_is_named_with_what_it_spares(outcome: BenchmarkOutcome) -> None:
    names = [one.name for one in outcome.configurations]
    vector, words, hybrid = (
        next(n for n, name in enumerate(names) if name.endswith(end)) for end in ("vector", "bm25", "hybrid")
    )
    means = [0.3] * len(names)
    means[hybrid], means[words], means[vector] = 0.801, 0.8, 0.8
    found = judged(outcome, means)
    assert found.cheapest == names[words]
    assert found.shipped == names[hybrid]
    assert said(found).cheaper.startswith(f"Cheaper: {names[words]}. It is 0.")
    assert "It needs no embedder" in said(found).cheaper
    cheap = next(one for one in found.contenders if one.name == names[words])
    low = cheap.difference_interval[0]
    assert low is not None
    assert found.margin is not None
    assert found.margin >= max(0.01, -low)
    assert f"It gives up at most {100 * found.margin:.1f} points. Ship the first if" in said(found).cheaper
    parts = {one.name: one.parts for one in found.contenders}
    assert (parts[names[words]], parts[names[vector]]) == ([], ["embedder"])
    assert found.questions_needed is not None
    assert "questions" in said(found).change


def test_what_runs_the_recommended_search_is_said(outcome: BenchmarkOutcome) -> None:
    names = [one.name for one in outcome.configurations]
    vector, words, hybrid = (
        next(n for n, name in enumerate(names) if name.endswith(end)) for end in ("vector", "bm25", "hybrid")
    )
    means = [0.3] * len(names)
    means[hybrid], means[words], means[vector] = 0.8, 0.7, 0.6
    found = judged(outcome, means)
    assert {one.name: one.engine for one in found.contenders if "hybrid" in one.name or "vector" in one.name} == {
        name: None if "hybrid" in name else "lancedb" for name in names if "hybrid" in name or "vector" in name
    }
    assert said(found).engine.startswith(
        f"Only the reference search of rag-eval runs {names[hybrid]}. The best that an engine runs as it is: "
        f"{names[vector]} (lancedb), 20.0 points lower ["
    )
    means[vector] = 0.9
    assert said(judged(outcome, means)).engine == f"lancedb runs the search of {names[vector]} as it is."
    references = [one for one in outcome.configurations if one.configuration.engine is None][:3]
    alone = judged(outcome.model_copy(update={"configurations": references}), [0.9, 0.6, 0.5])
    assert "add one, such as retrieval: {type: lancedb}" in said(alone).engine


def test_margins_are_shares_of_a_low_score_and_few_differences_say_nothing(outcome: BenchmarkOutcome) -> None:
    small = judged(outcome, [0.03, 0.0296, 0.0285], spread=0.0005)
    assert "It is the best of the 3, or within 0.012 points of the best, with" in said(small).how_sure
    assert small.contenders[2].probability == 0  # 5 % below, which is 0.15 points
    same = judged(outcome, [0.8] * 3, spread=0.0)
    assert said(same).how_sure.endswith("). Every question scores the same with all 3 configurations.")
    assert {one.probability for one in same.contenders} == {None}


@pytest.mark.parametrize(
    ("lower", "told"),
    [
        ({1: 3}, "3 questions, too few for a significant difference. All 4 others are significantly worse."),
        (
            {1: 3, 2: 5},
            "3 questions, too few for a significant difference. The difference from one of the 4 others is not",
        ),
        (
            {1: 1, 2: 5, 3: 5},
            "1 question, too few for a significant difference. The difference from two of the 4 others is not",
        ),
    ],
)
def test_one_that_differs_on_few_questions_is_counted_once(
    outcome: BenchmarkOutcome, lower: Mapping[int, int], told: str
) -> None:
    means = [0.8 if row in {0, *lower} else 0.5 for row in range(6)]
    found = judged(outcome, means, spread=0.0, lower=lower)
    first, rival = (one.name for one in found.contenders[:2])
    assert sum(one.among_best for one in found.contenders) == 1 + len(lower)
    assert said(found).how_sure.startswith(f"{first} finds ")
    assert f"). {rival} scores differently on {told}" in said(found).how_sure


def test_of_two_that_differ_on_few_questions_no_other_is_told_of(outcome: BenchmarkOutcome) -> None:
    two = judged(outcome, [0.8, 0.8], spread=0.0, lower={1: 3})
    assert said(two).how_sure.endswith("scores differently on 3 questions, too few for a significant difference.")
    three = judged(outcome, [0.8, 0.8, 0.8], spread=0.0, lower={1: 3, 2: 5})
    assert said(three).how_sure.endswith(
        "The difference from the other is not significant after correction for 2 comparisons."
    )


def test_nothing_can_be_told_apart(outcome: BenchmarkOutcome) -> None:
    found = judged(outcome, [0.8] * 3, spread=0.3)
    assert found.kind == "tied"
    assert said(found).headline == "For 2,000 tokens of context, these questions cannot separate the 3 configurations"
    assert found.shipped is None
    assert found.cheapest is not None
    assert (
        "The difference from all 2 others is not significant after correction for 2 comparisons."
        in said(found).how_sure
    )
    assert said(found).cheaper.startswith("Take ")
    assert "to separate" in said(found).change.lower()
    nearly = judged(outcome, [0.8, 0.8, 0.8, 0.8, 0.8, 0.2], spread=0.3)
    assert (nearly.kind, nearly.shipped) == ("tied", None)
    assert said(nearly).headline.endswith("these questions cannot separate 5 of the 6 configurations")
    assert said(nearly).cheaper.startswith("Take ")
    assert judged(outcome, [0.8, 0.8, 0.2, 0.2], spread=0.3).kind == "ship"


def test_nothing_cheaper_is_as_good(outcome: BenchmarkOutcome) -> None:
    names = [one.name for one in outcome.configurations[:3]]
    means = [0.9 if name.endswith("hybrid") else 0.7 if name.endswith("bm25") else 0.5 for name in names]
    found = judged(outcome, means)
    leaner = next(name for name in names if name.endswith("bm25"))
    assert found.cheapest == found.shipped
    assert said(found).cheaper.startswith(f"It is the cheapest within 1 point of the best. {leaner} is cheaper and 2")


def test_a_gap_whose_interval_leaves_out_0_is_not_told_as_sure(sample_run: Kept, outcome: BenchmarkOutcome) -> None:
    scores = read_scores(sample_run.workspace, outcome)
    first, *others = scores.ranking(outcome.ranking_metric, [one.name for one in outcome.ranked()])

    def gap(low: float, high: float, *, is_apart: bool) -> str:
        """What is told of all others, which are 7.3 points below the first, with this interval."""
        placed = [first]
        for one in others:
            assert one.against_best is not None
            beside = replace(one.against_best, difference=-0.073, low=low, high=high)
            placed.append(replace(one, among_best=not is_apart, against_best=beside))
        return said(verdict_of(outcome, scores, placed)).cheaper

    assert gap(-0.135, -0.023, is_apart=False).endswith(
        "hybrid is cheaper and 7.3 points lower [2.3, 13.5], not significant after correction."
    )
    assert gap(-0.135, -0.023, is_apart=True).endswith(" 7.3 points lower [2.3, 13.5].")
    assert gap(-0.135, 0.023, is_apart=False).endswith(" 7.3 points lower [−2.3, 13.5], not significant.")


def test_a_latency_counts_beyond_its_noise_and_what_costs_more_is_said_too(outcome: BenchmarkOutcome) -> None:
    names = [one.name for one in outcome.configurations]
    pair = [n for n, name in enumerate(names) if name.endswith("bm25")][:2]
    means = [0.3] * len(names)
    means[pair[0]], means[pair[1]] = 0.801, 0.8

    def told(latencies: Sequence[float], tokens: Sequence[float]) -> RunVerdict:
        made = list(outcome.configurations)
        for number, latency, cost in zip(pair, latencies, tokens, strict=True):
            metrics = made[number].metrics | {"tokens_retrieved@2000tokens": cost}
            made[number] = made[number].model_copy(update={"latency_ms": latency, "metrics": metrics})
        return judged(outcome.model_copy(update={"configurations": made}), means)

    first, second = (names[number] for number in pair)
    noise = told([3.0, 1.0], [1_800, 1_750])
    assert (noise.shipped, noise.cheapest) == (first, first)
    assert said(noise).cheaper == "It is also the cheapest of the 2 within 1 point of the best."
    quicker = told([30.0, 1.0], [1_800, 1_801])
    assert quicker.cheapest == second
    saved = "It needs 1.00 ms a search instead of 30.00."
    assert f"{saved} But it needs 1,801 tokens a question instead of 1,800. " in said(quicker).cheaper
    alike = told([30.0, 1.0], [1_800.4, 1_799.6])
    assert f"{saved} It gives up" in said(alike).cheaper
    smaller = told([1.0, 30.0], [1_800, 900])
    assert smaller.cheapest == second
    assert (
        "needs 900 tokens a question instead of 1,800. But it needs 30.00 ms a search instead of 1.00."
        in said(smaller).cheaper
    )


def test_when_there_is_nothing_to_say_that_is_said(outcome: BenchmarkOutcome) -> None:
    alone = judged(outcome, [0.8])
    assert (alone.kind, said(alone).cheaper) == ("alone", "")
    assert said(alone).headline == f"{outcome.configurations[0].name} was measured alone"
    assert "Measure another" in said(alone).change
    few = judged(outcome, [0.8, 0.2], documents=7, each=2)
    assert (few.kind, few.shipped) == ("too few questions", None)
    assert said(few).headline == "14 questions are too few to recommend a configuration"
    single = judged(outcome, [0.8, 0.2], documents=1, each=1)
    assert said(single).headline == "1 question is too few to recommend a configuration"
    poor = judged(outcome, [0.4, 0.2])
    assert (poor.kind, poor.shipped) == ("poor", None)
    assert "Allow a larger budget" in said(poor).change
    configuration = outcome.configurations[0].configuration
    failure = ConfigurationFailure(configuration=configuration, reason="it broke")
    nothing = judged(outcome.model_copy(update={"failures": {"x": failure}}), [])
    assert str(said(nothing)) == "No configuration finished. 1 configuration failed."


def test_another_budget_changes_the_answer(outcome: BenchmarkOutcome) -> None:
    names = [one.name for one in outcome.configurations[:2]]
    found = judged(outcome, [0.8, 0.7], at={budget: [0.5, 0.7] for budget in STRIP if budget < 500})
    assert f"Below about 445 tokens, {names[1]} is significantly better." in said(found).change
    assert found.strip is not None
    assert found.strip.stretches() == [(250, 445, names[1]), (500, 16_000, names[0])]
    assert found.strip.among[0] == [names[1]]


def test_few_documents_decide_and_are_named(outcome: BenchmarkOutcome) -> None:
    found = judged(outcome, [0.8, 0.8], documents=3, each=20, spread=0.4)
    assert "the result holds for these documents only." in " ".join(said(found).notes)
    assert found.to_data()["units"] == "queries"
    assert ".md another configuration comes first." in said(found).change


def test_hits_that_end_before_the_budget_are_marked(outcome: BenchmarkOutcome) -> None:
    name = outcome.configurations[1].name
    found = judged(outcome, [0.8, 0.7, 0.7], fetched=[99_999.0, 1_500.0, 99_999.0])
    marked = {one.name: one.ended for one in found.contenders}
    assert [share for share in marked.values() if share] == [marked[name]] == [1.0]
    assert f"The hits of {name} end before 2,000 tokens for 100 % of the questions." in " ".join(said(found).notes)
    assert found.strip is not None
    drawn = dict(zip(found.strip.budgets, found.strip.means[name], strict=True))
    assert drawn[1_414] is not None
    assert drawn[1_587] is None


def test_the_record_is_plain_data(outcome: BenchmarkOutcome, sample_run: Kept) -> None:
    scores = read_scores(sample_run.workspace, outcome)
    placed = scores.ranking(outcome.ranking_metric, [one.name for one in outcome.ranked()])
    found = verdict_of(outcome, scores, placed)
    again = json.loads(json.dumps(found.to_data(), allow_nan=False))
    assert [one["name"] for one in again["contenders"]] == [one.name for one in outcome.ranked()]
    strip = again["strip"]
    at = strip["budgets"].index(2_000)
    assert strip["first"][at] == again["contenders"][0]["name"]
    assert strip["means"][strip["first"][at]][at] == pytest.approx(again["contenders"][0]["mean"], abs=1e-6)


def test_of_equal_ones_the_smaller_context_comes_first_then_the_better_by_other_metrics(
    outcome: BenchmarkOutcome,
) -> None:
    def tied(**metrics: dict[str, float]) -> list[str]:
        one = outcome.configurations[0]
        made = [
            one.model_copy(update={"name": name, "metrics": one.metrics | {outcome.ranking_metric: 0.9} | own})
            for name, own in metrics.items()
        ]
        return [found.name for found in outcome.model_copy(update={"configurations": made}).ranked()]

    assert tied(a={"tokens_retrieved@2000tokens": 900.0}, b={"tokens_retrieved@2000tokens": 400.0}) == ["b", "a"]
    outcome = outcome.by("span_recall@5")
    assert tied(a={"tokens_retrieved@5": 900.0}, b={"tokens_retrieved@5": 400.0}) == ["b", "a"]
    assert tied(a={"span_precision@5": 0.1}, b={"span_precision@5": 0.2}) == ["b", "a"]
    assert tied(b={}, a={}) == ["a", "b"]
    assert tied(a={outcome.ranking_metric: 0.8, "tokens_retrieved@5": 1.0}, b={}) == ["b", "a"]


def test_what_makes_a_ranking_say_little_is_said(outcome: BenchmarkOutcome) -> None:
    one = outcome.configurations[0]
    outcome = outcome.by("span_recall@5")
    few = one.model_copy(update={"chunks": one.chunks.model_copy(update={"count": 7})})
    twin = few.model_copy(update={"configuration": outcome.configurations[-1].configuration})
    small = outcome.model_copy(update={"configurations": [few, twin]})
    assert [*cautions(small, replace(SURE, low=None, high=None, n=1, units=1, unit="queries"))] == [
        "One question says nothing about others: ask more.",
        "k = 5 of 7 chunks says little: use more documents, smaller chunks or a smaller k.",
        f"{few.configuration.chunker.label} and {twin.configuration.chunker.label} make the same chunks: "
        "keep one of them.",
    ]
    assert next(cautions(small, replace(SURE, units=3, unit="queries"))).endswith("holds for these documents only.")
    assert not [*cautions(outcome, SURE)]


@pytest.mark.parametrize(("unit", "every"), [("documents", "document"), ("queries", "question")])
def test_an_interval_without_width_is_not_taken_for_certainty(
    outcome: BenchmarkOutcome, unit: Unit, every: str
) -> None:
    equal = replace(SURE, mean=1.0, low=1.0, high=1.0 + 1e-16, unit=unit)
    assert [*cautions(outcome, equal)][-1] == (
        f"Every {every} scores the same: the interval has no width and says nothing about the uncertainty."
    )


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("chunk_recall@1", "finds 73.9 % [58.8, 86.2] of the relevant chunks in the first hit"),
        ("span_precision@20", "retrieves text of which 73.9 % [58.8, 86.2] is relevant in the first 20 hits"),
        ("house rule@5", "has house rule@5 0.739 [0.588, 0.862]"),
        ("precision_omega", "has precision_omega 73.9 % [58.8, 86.2]"),
    ],
)
def test_metrics_in_words(metric: str, words: str) -> None:
    assert finding(metric, SURE) == words
    counts = replace(SURE, mean=1234.4, low=None, high=None)
    assert finding("tokens_retrieved@5", counts) == "has tokens_retrieved@5 1,234"


def note(outcome: BenchmarkOutcome, *placed: Placed) -> str:
    one = outcome.configurations[0]
    rows = [Contender("1", one, outcome.ranking_metric, each) for each in placed]
    return ConfigurationRanking(outcome.ranking_metric, rows, []).note


def test_the_table_says_what_its_intervals_rest_on(outcome: BenchmarkOutcome) -> None:
    best, other = (Placed(one.name, SURE, None, True) for one in outcome.ranked()[:2])
    tested = " Differences are tested on the same 70 questions, with Holm's correction."
    assert note(outcome, best, other) == f"Intervals are 95 % confidence intervals over 14 documents.{tested}"
    one = replace(best, estimate=replace(SURE, low=None, high=None, n=1, units=1, unit="queries"))
    assert note(outcome, one) == "There are no intervals over 1 question."


def test_where_its_own_hits_end_another_is_not_called_better(outcome: BenchmarkOutcome) -> None:
    found = judged(outcome, [0.9, 0.5], fetched=[3_000, 99_999])
    assert found.contenders[0].name == outcome.configurations[0].name
    assert "Above about" not in said(found).change
    assert "At no budget from 250 to 2,828 tokens is another significantly better." in said(found).change


@pytest.mark.parametrize("metric", ["span_precision@5", "span_iou@5", "recall_within_tokens@1000"])
def test_any_metric_can_be_the_objective(sample_run: Kept, metric: str) -> None:
    ranked = sample_run.outcome.by(metric)
    scores = read_scores(sample_run.workspace, ranked)
    found = verdict_of(ranked, scores, scores.ranking(metric, [one.name for one in ranked.ranked()]))
    assert found.kind in ("ship", "tied")  # half of what is relevant is a limit of recall alone
    assert said(found).headline.startswith("For 1,000 tokens" if "within" in metric else f"By {metric}")
    assert ("budget" in said(found).change) == ("within" in metric)


def test_of_equal_ones_the_strip_has_the_first_of_the_ranking_at_each_budget(outcome: BenchmarkOutcome) -> None:
    few = outcome.model_copy(update={"configurations": outcome.configurations[:3]})
    strip = judged(few, [0.8] * 3, spread=0).strip
    assert strip is not None
    ranked = [few.by(f"recall_within_tokens@{budget}").ranked()[0].name for budget in strip.budgets]
    assert strip.first == ranked
    assert len(set(ranked)) > 1


def test_what_the_context_costs_is_known_at_other_budgets(outcome: BenchmarkOutcome) -> None:
    assert [name for name in outcome.beside if "tokens" in name] == [
        "tokens_retrieved@2000tokens",
        "tokens_retrieved@5",
    ]
    beside = outcome.by("recall_within_tokens@500").beside
    assert beside[0] == "tokens_retrieved@500tokens"
    assert not any("2000" in name for name in beside)
