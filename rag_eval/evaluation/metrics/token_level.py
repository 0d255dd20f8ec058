"""Token-level metrics, on character spans, for LangSmith."""

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from rag_eval.evaluation.metrics.feedback import LangSmithMetric
from rag_eval.metrics.span_metrics import SpanIoU, SpanMetric, SpanPrecision, SpanRecall
from rag_eval.publishing.langsmith_records import RELEVANT_SPANS, relevant_spans, retrieved_spans
from rag_eval.types.span import CharacterSpan

if TYPE_CHECKING:
    from langsmith.schemas import Example, Run


class TokenLevelMetrics(LangSmithMetric[CharacterSpan]):
    """A metric on character spans: write ``calculate``, and an extraction where the dataset or the target differs."""

    level = "token-level"
    truth_keys = RELEVANT_SPANS

    @abstractmethod
    def calculate(self, retrieved_spans: list[CharacterSpan], ground_truth_spans: list[CharacterSpan]) -> float:
        """The score of one query: what was retrieved, best first and cut at k, against what is relevant."""

    def extract_ground_truth_spans(self, example: "Example | None") -> list[CharacterSpan]:
        """The relevant spans: the output ``relevant_spans`` or ``relevantSpans`` of the example.

        [] without an example or without either. Raises ``GroundTruthError`` when they are not a list of spans.
        """
        return relevant_spans(example)

    def extract_retrieved_spans(self, run: "Run") -> list[CharacterSpan]:
        """The retrieved spans, best first: outputs that are a list of spans, or that hold one.

        As ``retrieved_spans``, ``retrievedSpans``, ``spans``, ``output`` or ``outputs``. [] without outputs.
        Raises ``ConfigurationError`` when the outputs hold no list of spans.
        """
        return retrieved_spans(run)

    def _retrieved(self, run: "Run") -> list[CharacterSpan]:
        return self.extract_retrieved_spans(run)

    def _ground_truth(self, example: "Example | None") -> list[CharacterSpan]:
        return self.extract_ground_truth_spans(example)


class SpanLevelMetrics(TokenLevelMetrics):
    """A built-in metric; an example without ground truth is not scored."""

    needs_ground_truth = True
    metric: ClassVar[SpanMetric]

    def calculate(self, retrieved_spans: list[CharacterSpan], ground_truth_spans: list[CharacterSpan]) -> float:
        """The metric of one query, counted in characters; a character counts once."""
        return self.metric.calculate(retrieved_spans, ground_truth_spans)


class TokenLevelRecall(SpanLevelMetrics):
    """|retrieved ∩ truth| / |truth|; ``calculate`` gives 0 on empty truth."""

    metric = SpanRecall()


class TokenLevelPrecision(SpanLevelMetrics):
    """|retrieved ∩ truth| / |retrieved|; 0 on empty retrieval."""

    metric = SpanPrecision()


class TokenLevelIoU(SpanLevelMetrics):
    """|retrieved ∩ truth| / |retrieved ∪ truth|; ``calculate`` gives 1 when both are empty, 0 when one is."""

    metric = SpanIoU()
