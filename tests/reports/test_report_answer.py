"""The answer in words, for every way a ranking can come out."""

from dataclasses import replace

import pytest

from rag_eval.benchmark.outcome import BenchmarkOutcome, ConfigurationFailure
from rag_eval.reports.ranking import ConfigurationRanking, RankingRow
from rag_eval.reports.recommendation import cautions, finding, recommend
from rag_eval.stats.bootstrap import Estimate
from rag_eval.stats.comparison import Placed
from rag_eval.stats.scores import Unit
from tests.reports.conftest import Kept

SURE = Estimate(mean=0.739, low=0.588, high=0.8615, n=70, units=14, unit="documents")


@pytest.fixture
def outcome(sample_run: Kept) -> BenchmarkOutcome:
    return sample_run.outcome


def ranking(outcome: BenchmarkOutcome, rivals: int, others: int, mean: float = 0.72) -> list[Placed]:
    """The best, so many that are indistinguishable from it, and so many that are worse."""
    names = [one.name for one in outcome.ranked()]
    below = replace(SURE, mean=mean)
    placed = [Placed(names[0], SURE, None, True)]
    placed += [Placed(name, below, None, True) for name in names[1 : 1 + rivals]]
    return placed + [Placed(name, below, None, False) for name in names[1 + rivals : 1 + rivals + others]]


def test_what_to_ship_and_how_sure_that_is(outcome: BenchmarkOutcome) -> None:
    said = recommend(outcome, ranking(outcome, 1, 10, mean=0.6))
    assert said.headline == "Ship recursive-token 300/0, hybrid."
    assert said.sentences == [
        "It finds 73.9 % [58.8, 86.2] of the relevant text in the first five hits, "
        "on average over 70 questions about 14 documents.",
        "markdown 1000, hybrid is indistinguishable from it on these questions; the other 10 are worse.",
    ]


@pytest.mark.parametrize(
    ("rivals", "others", "words"),
    [
        (0, 1, "The other is worse."),
        (0, 5, "All 5 others are worse."),
        (
            2,
            1,
            "hybrid and markdown 1000, bm25 are indistinguishable from it on these questions; the other one is worse.",
        ),
        (
            4,
            2,
            "4 of the 6 others, such as markdown 1000, hybrid, are indistinguishable from it on these questions; "
            "the other 2 are worse.",
        ),
    ],
)
def test_rivals_are_named_or_counted(outcome: BenchmarkOutcome, rivals: int, others: int, words: str) -> None:
    assert words in str(recommend(outcome, ranking(outcome, rivals, others, mean=0.6)))


def test_a_much_smaller_context_is_named_only_when_it_is_nearly_as_good(outcome: BenchmarkOutcome) -> None:
    near, far = (str(recommend(outcome, ranking(outcome, 10, 1, mean=mean))) for mean in (0.72, 0.6))
    assert "Nearly as good with a smaller context: recursive-token 100/0, " in near
    assert " tokens a question instead of 1,190." in near
    assert "context" not in far


def test_without_any_difference_nothing_is_called_the_best(outcome: BenchmarkOutcome) -> None:
    said = recommend(outcome, ranking(outcome, 11, 0))
    assert said.headline == "These questions cannot tell the 12 configurations apart."
    assert said.sentences == [
        "Take the cheapest of those that come close, recursive-token 100/0, bm25 (367 tokens a question), "
        "or ask about more documents.",
        "recursive-token 300/0, hybrid comes first: it finds 73.9 % [58.8, 86.2] of the relevant text in the first "
        "five hits, on average over 70 questions about 14 documents.",
    ]
    far = recommend(outcome, ranking(outcome, 11, 0, mean=0.3))
    assert far.sentences[0].startswith(
        "Take the cheapest of those that come close, recursive-token 300/0, hybrid (1,190"
    )


def test_equally_good_ones_are_called_so(outcome: BenchmarkOutcome) -> None:
    best, second, *others = ranking(outcome, 1, 10, mean=0.6)
    said = str(recommend(outcome, [best, replace(second, estimate=SURE), *others]))
    assert "markdown 1000, hybrid is equally good" in said
    assert "All 10 others are worse." in said
    assert "indistinguishable" not in said


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

    assert tied(a={"tokens_retrieved@5": 900.0}, b={"tokens_retrieved@5": 400.0}) == ["b", "a"]
    assert tied(a={"span_precision@5": 0.1}, b={"span_precision@5": 0.2}) == ["b", "a"]
    assert tied(b={}, a={}) == ["a", "b"]
    assert tied(a={outcome.ranking_metric: 0.8, "tokens_retrieved@5": 1.0}, b={}) == ["b", "a"]


def test_what_makes_a_ranking_say_little_is_said(outcome: BenchmarkOutcome) -> None:
    one = outcome.configurations[0]
    few = one.model_copy(update={"chunks": one.chunks.model_copy(update={"count": 7})})
    twin = few.model_copy(update={"configuration": outcome.configurations[-1].configuration})
    small = outcome.model_copy(update={"configurations": [few, twin]})
    assert cautions(small, replace(SURE, low=None, high=None, n=1, units=1, unit="queries")) == [
        "One question says nothing about others: ask more.",
        "k = 5 of 7 chunks says little: use more documents, smaller chunks or a smaller k.",
        f"{twin.configuration.chunker.label} cuts the same as {few.configuration.chunker.label}: "
        "leave one of them out.",
    ]
    assert cautions(small, replace(SURE, units=3, unit="queries"))[0].endswith("holds for these documents only.")
    assert cautions(outcome, SURE) == []


@pytest.mark.parametrize(("unit", "every"), [("documents", "document"), ("queries", "question")])
def test_an_interval_without_width_is_not_taken_for_certainty(
    outcome: BenchmarkOutcome, unit: Unit, every: str
) -> None:
    equal = replace(SURE, mean=1.0, low=1.0, high=1.0 + 1e-16, unit=unit)
    assert cautions(outcome, equal)[-1] == (
        f"Every {every} scores the same: the interval has no width, and says nothing of how sure that is."
    )


def test_only_documents_that_are_asked_about_are_counted(outcome: BenchmarkOutcome) -> None:
    best, *others = ranking(outcome, 1, 10)
    about_eight = replace(SURE, n=30, units=8)
    assert ", on average over 30 questions about 8 documents." in str(
        recommend(outcome, [replace(best, estimate=about_eight), *others])
    )
    about_few = replace(SURE, n=30, units=30, unit="queries")
    said = str(recommend(outcome, [replace(best, estimate=about_few), *others]))
    assert "on average over 30 questions. " in said
    assert "about so few documents" in said


def test_alone_or_failed(outcome: BenchmarkOutcome) -> None:
    alone = str(recommend(outcome, ranking(outcome, 0, 0)))
    assert alone.startswith("recursive-token 300/0, hybrid was measured alone. It finds")
    configuration = outcome.configurations[0].configuration
    failure = ConfigurationFailure(configuration=configuration, reason="it broke", stages={})
    nothing = outcome.model_copy(update={"configurations": [], "failures": {"x": failure}})
    assert str(recommend(nothing, [])) == "No configuration finished. 1 configuration failed."


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("chunk_recall@1", "finds 73.9 % [58.8, 86.2] of the relevant chunks in the first hit"),
        ("span_precision@20", "retrieves text of which 73.9 % [58.8, 86.2] is relevant in the first 20 hits"),
        ("house rule@5", "has house rule@5 0.739 [0.588, 0.862]"),
        ("span_recall(cl100k_base)@5", "has span_recall(cl100k_base)@5 73.9 % [58.8, 86.2]"),
        ("precision_omega", "has precision_omega 73.9 % [58.8, 86.2]"),
    ],
)
def test_metrics_in_words(metric: str, words: str) -> None:
    assert finding(metric, SURE) == words


def test_counts_in_words() -> None:
    assert (
        finding("tokens_retrieved@5", replace(SURE, mean=1234.4, low=None, high=None)) == "has tokens_retrieved@5 1,234"
    )


def note(outcome: BenchmarkOutcome, *placed: Placed) -> str:
    one = outcome.configurations[0]
    return ConfigurationRanking(outcome.ranking_metric, [RankingRow("1", one, each) for each in placed], []).note


def test_the_table_says_what_its_intervals_rest_on(outcome: BenchmarkOutcome) -> None:
    best, other = ranking(outcome, 1, 0)
    tested = " Differences are tested on the same 70 questions, with Holm's correction."
    assert note(outcome, best, other) == (f"Intervals are 95 % bootstrap intervals over 14 documents.{tested}")
    few = replace(best, estimate=replace(SURE, units=7))
    assert note(outcome, few) == (
        "Intervals are 95 % bootstrap intervals over 7 documents, slightly too narrow for fewer than ten."
    )
    one = replace(best, estimate=replace(SURE, low=None, high=None, n=1, units=1, unit="queries"))
    assert note(outcome, one) == "There are no intervals: 1 question cannot be resampled."
