"""Token-level ground truth from a language model: questions, and the spans of the documents that answer them."""

from functools import cached_property
from typing import ClassVar

from rag_eval.generation.answers import SpanQuestion, SpanQuestions
from rag_eval.generation.assignments import Reply
from rag_eval.generation.briefs import Brief
from rag_eval.generation.candidates import AnyQuestion, Candidate, DropError, placed_spans
from rag_eval.generation.generator import SyntheticDatasetGenerator
from rag_eval.generation.planning import Level
from rag_eval.generation.windows import Window, text_windows
from rag_eval.ground_truth.locating import Locator
from rag_eval.types.document import Document
from rag_eval.types.ground_truth import Query, TokenLevelGroundTruth
from rag_eval.types.ids import EvaluationType


class TokenLevelSyntheticDatasetGenerator(SyntheticDatasetGenerator[TokenLevelGroundTruth]):
    """Questions with verbatim excerpts, located as character spans: no chunker is needed, and any can be evaluated.

    A question with an excerpt that cannot be placed for sure is dropped and counted.
    ``TokenLevelSyntheticDatasetGenerator(llm_client, corpus, model=…)``; the other arguments are those of
    ``SyntheticDatasetGenerator``.
    """

    evaluation_type: ClassVar[EvaluationType] = "token-level"
    level = Level("token_level", "cross_document", SpanQuestions)

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self._corpus.documents)

    def _windows(self, document: Document, size: int) -> list[Window]:
        return text_windows(document, size, self._options.window_overlap, self._options.encoding)

    def _place(self, reply: Reply, brief: Brief, text: str, question: AnyQuestion) -> Candidate:
        if not isinstance(question, SpanQuestion):
            raise DropError("no excerpt", text)
        places = placed_spans(question, reply.assignment.windows, self._locator)
        spans = tuple(place.span for place in places)
        if reply.assignment.purpose == "cross-document" and len({span.doc_id for span in spans}) < 2:
            raise DropError("one document only", spans[0].doc_id)
        evidence = tuple(span.text for span in spans)
        return Candidate(text, reply, brief, evidence, spans, hows=tuple(place.how for place in places))

    def _truth(self, query: Query, candidate: Candidate) -> TokenLevelGroundTruth:
        return TokenLevelGroundTruth(query, candidate.spans, candidate.unanswerable)


TokenLevelDataGenerator = TokenLevelSyntheticDatasetGenerator
