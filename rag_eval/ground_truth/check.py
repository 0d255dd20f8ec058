"""Whether ground truth and corpus belong together."""

from collections.abc import Iterable

from rag_eval.errors import GroundTruthError, SpanError
from rag_eval.types.document import Corpus
from rag_eval.types.ground_truth import TokenLevelGroundTruth


def check_against_corpus(truth: Iterable[TokenLevelGroundTruth], corpus: Corpus) -> None:
    """Raise ``GroundTruthError`` at the first query without truth, unknown document, or span its document denies."""
    documents = corpus.by_id()
    for item in truth:
        if not item.relevant_spans and not item.unanswerable:
            raise GroundTruthError(
                f"{item.query.id} has no relevant spans: add them, or declare the query unanswerable"
            )
        for span in item.relevant_spans:
            document = documents.get(span.doc_id)
            if document is None:
                raise GroundTruthError(
                    f"{item.query.id} has a span in {span.doc_id!r}, which is not in the corpus: "
                    "check the corpus folder and its pattern"
                )
            try:
                document.check_span(span)
            except SpanError as error:
                raise GroundTruthError(f"{item.query.id}: {error}") from None
