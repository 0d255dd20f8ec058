import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.chroma import ChromaIoU, ChunkedCorpus
from rag_eval.metrics.chunk_metrics import ChunkNDCG
from rag_eval.metrics.metric import ChunkLevelMetric, MetricName, TokenLevelMetric
from rag_eval.metrics.registry import CHUNK_LEVEL_METRICS, TOKEN_LEVEL_METRICS, chunk_level_metric, token_level_metric
from rag_eval.metrics.span_metrics import SpanRecall, TokensRetrieved, TokenUnit
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

DOCUMENTS = [Document(DocumentId("a.md"), "some text")]


@given(
    base=st.sampled_from([*TOKEN_LEVEL_METRICS, *CHUNK_LEVEL_METRICS]),
    unit=st.sampled_from([None, "cl100k_base", "o200k_base"]),
    k=st.one_of(st.none(), st.just("min"), st.integers(1, 10**6)),
)
@settings(deadline=None, derandomize=True, max_examples=100)
def test_a_name_parses_to_what_was_printed(base: str, unit: str | None, k: int | None) -> None:
    name = MetricName(base, unit, k)
    assert MetricName.parse(str(name)) == name


@pytest.mark.parametrize(
    ("text", "base", "unit", "k"),
    [
        ("span_recall", "span_recall", None, None),
        ("span_recall@5", "span_recall", None, 5),
        ("chroma_iou@min", "chroma_iou", None, "min"),
        ("span_recall(cl100k_base)@5", "span_recall", "cl100k_base", 5),
    ],
)
def test_names_as_they_are_written(text: str, base: str, unit: str | None, k: int | None) -> None:
    assert MetricName.parse(text) == MetricName(base, unit, k)


@pytest.mark.parametrize(
    "text", ["", "span_recall@", "span_recall@0", "@5", "span recall", "span_recall@05", "a(b", "a@1@2"]
)
def test_what_is_not_a_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a metric's name"):
        MetricName.parse(text)


@pytest.mark.parametrize(
    "text",
    ["span_recall", "span_ndcg@10", "span_iou(o200k_base)@3", "chroma_iou@min", "chroma_recall@2", "precision_omega",
     "tokens_retrieved@5", "tokens_retrieved(o200k_base)"],
)  # fmt: skip
def test_a_token_level_metric_prints_the_name_it_was_made_from(text: str) -> None:
    metric = token_level_metric(text, documents=DOCUMENTS, chunks=[])
    assert metric.name == text
    assert isinstance(metric, TokenLevelMetric)


@pytest.mark.parametrize("base", CHUNK_LEVEL_METRICS)
def test_a_chunk_level_metric_prints_the_name_it_was_made_from(base: str) -> None:
    metric = chunk_level_metric(f"{base}@7")
    assert metric.name == f"{base}@7"
    assert isinstance(metric, ChunkLevelMetric)


@pytest.mark.parametrize("registry", [CHUNK_LEVEL_METRICS, TOKEN_LEVEL_METRICS])
def test_the_registry_has_every_metric_under_its_own_label(registry: dict[str, type]) -> None:
    assert {name: metric.label for name, metric in registry.items()} == {name: name for name in registry}


def test_equal_settings_are_equal_metrics() -> None:
    assert chunk_level_metric("chunk_ndcg@5") == ChunkNDCG(k=5) != ChunkNDCG(k=6)
    assert token_level_metric("span_recall@5") == SpanRecall(k=5)


def test_an_unknown_metric_is_named_with_those_there_are() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'span_recal'.*mean span_recall.*span_recall, span_precision.* or 6 others"
    ):
        token_level_metric("span_recal@5")
    with pytest.raises(ConfigurationError, match=r"'span_recall'.*chunk_recall.*chunk_ndcg"):
        chunk_level_metric("span_recall")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("span_recall@min", "no @min"),
        ("chroma_iou(cl100k_base)", "not counted in tokens"),
        ("precision_omega@5", "leave out @5"),
        ("precision_omega", "needs the chunks"),
        ("chroma_iou@min", "needs the chunks"),
        ("span_recall(cl100k_base)", "needs the documents"),
        ("tokens_retrieved(klingon)", "klingon"),
    ],
)
def test_what_a_metric_cannot_do_is_said(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        token_level_metric(text)


@pytest.mark.parametrize("k", [0, -1, 2.5, True, "5", 2**31])
def test_a_cut_is_a_whole_number_of_one_or_more(k: object) -> None:
    for make in (lambda: SpanRecall(k), lambda: ChunkNDCG(k), lambda: TokensRetrieved(k), lambda: ChromaIoU(k)):
        with pytest.raises(ConfigurationError, match="whole number"):
            make()


def test_min_needs_the_chunks() -> None:
    with pytest.raises(ConfigurationError, match="give it the chunks"):
        ChromaIoU("min")
    assert ChromaIoU("min", ChunkedCorpus([])).name == "chroma_iou@min"


def test_an_unknown_tokenizer_is_refused_when_it_is_named() -> None:
    with pytest.raises(ConfigurationError, match="klingon"):
        TokenUnit("klingon", DOCUMENTS)
