import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rag_eval.errors import ConfigurationError
from rag_eval.metrics import METRIC
from rag_eval.metrics.formulas import ChromaIoU, ChunkNDCG, SpanRecall, TokensRetrieved
from rag_eval.metrics.metric import (
    ALL,
    MIN,
    Cut,
    MetricName,
    TokenLevelMetric,
    built_in_metric,
    metric_names,
    metric_of,
    score_name,
    split_name,
)


@given(
    base=st.sampled_from([*METRIC.types, "mine"]),
    cut=st.one_of(
        st.just(ALL), st.just(MIN), st.builds(Cut, st.sampled_from(["hits", "tokens"]), st.integers(1, 10**6))
    ),
)
@settings(deadline=None, derandomize=True, max_examples=200)
def test_a_name_parses_to_what_was_printed(base: str, cut: Cut) -> None:
    name = MetricName(base, cut)
    assume(cut.kind != "hits" or name.metric.number == "hits")
    assert MetricName.parse(str(name)) == name
    assert split_name(str(name))[0] == name.base
    assert score_name(name.base, cut.kind, cut.size) == str(name)


@pytest.mark.parametrize(
    ("text", "base", "cut"),
    [
        ("span_recall", "span_recall", ALL),
        ("span_recall@5", "span_recall", Cut("hits", 5)),
        ("span_recall@2000tokens", "span_recall", Cut("tokens", 2000)),
        ("recall_within_tokens@2000", "recall_within_tokens", Cut("tokens", 2000)),
        ("chroma_iou@min", "chroma_iou", MIN),
    ],
)
def test_names_as_they_are_written(text: str, base: str, cut: Cut) -> None:
    name = MetricName.parse(text)
    assert name == MetricName(base, cut)
    assert str(name) == text


def test_a_budget_is_read_with_its_kind_and_printed_without_it_where_there_is_no_other() -> None:
    assert MetricName.parse("recall_within_tokens@2000tokens") == MetricName.parse("recall_within_tokens@2000")
    assert str(MetricName.parse("recall_within_tokens@2000tokens")) == "recall_within_tokens@2000"


def test_any_name_has_a_cut() -> None:
    assert split_name("My metric@7") == ("My metric", Cut("hits", 7))
    assert split_name("My metric@7tokens") == ("My metric", Cut("tokens", 7))
    assert split_name("a@1@2") == ("a@1", Cut("hits", 2))
    assert [split_name(text) for text in ("My metric", "m@07", "m@", "")] == [
        ("My metric", ALL),
        ("m@07", ALL),
        ("m@", ALL),
        ("", ALL),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "span_recall@",
        "span_recall@0",
        "@5",
        "span recall",
        "span_recall@05",
        "a(b",
        "a@1@2",
        "a@mintokens",
        "a@5 tokens",
    ],
)
def test_what_is_not_a_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a metric's name"):
        MetricName.parse(text)


@pytest.mark.parametrize(
    "text",
    ["span_recall", "span_ndcg@10", "chroma_iou@min", "chroma_recall@2", "precision_omega", "tokens_retrieved@5",
     "span_map@500tokens", "recall_within_tokens@250", "tokens_fetched"],
)  # fmt: skip
def test_a_metric_prints_the_name_it_was_made_from(text: str) -> None:
    metric = built_in_metric(text, "token-level")
    assert metric.name == text
    assert isinstance(metric, TokenLevelMetric)


@pytest.mark.parametrize("name", METRIC.types)
def test_the_registry_has_every_metric_under_its_own_label(name: str) -> None:
    metric = metric_of(name)
    assert metric.label == name
    assert METRIC.types[name] == f"{metric.__module__}:{metric.__name__}"
    assert metric.levels
    assert all(name in metric_names(level) for level in metric.levels)


def test_an_unknown_metric_is_named_with_those_there_are() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'span_recal'.*mean span_recall.*span_recall, span_precision.* or 11 others"
    ):
        built_in_metric("span_recal@5", "token-level")
    with pytest.raises(ConfigurationError, match=r"'span_recall'.*chunk_recall.* or 6 others"):
        built_in_metric("span_recall", "chunk-level")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("span_recall@min", "no @min"),
        ("span_iou(cl100k_base)", "is not a metric's name"),
        ("precision_omega@5", "leave out @5"),
        ("recall_within_tokens", "needs a budget of tokens, such as recall_within_tokens@2000"),
        ("recall_within_tokens@min", "needs a budget of tokens"),
        ("precision_omega@5tokens", "leave out @5tokens"),
        ("span_recall@2147483648", "whole number of 1 to 2147483647"),
        ("span_recall@2147483648tokens", "whole number of 1 to 2147483647"),
    ],
)
def test_what_a_metric_cannot_do_is_said(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        built_in_metric(text, "token-level")


@pytest.mark.parametrize("k", [0, -1, 2.5, True, "5", 2**31])
def test_a_cut_is_a_whole_number_of_one_or_more(k: object) -> None:
    for make in (lambda: SpanRecall(k), lambda: ChunkNDCG(k), lambda: TokensRetrieved(k), lambda: ChromaIoU(k)):
        with pytest.raises(ConfigurationError, match="whole number"):
            make()
