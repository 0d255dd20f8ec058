"""The sample keeps its promises."""

from rag_eval import Corpus
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.ground_truth.truth_files import read_token_level
from rag_eval.sample import CORPUS, GROUND_TRUTH

CORPUS_READ = Corpus.from_folder(CORPUS)
TRUTH = read_token_level(GROUND_TRUTH)


def test_every_span_stands_in_its_document() -> None:
    check_against_corpus(TRUTH, CORPUS_READ)


def test_the_queries_are_varied() -> None:
    answerable = [item for item in TRUTH if not item.unanswerable]
    assert len(answerable) >= 50
    assert len(TRUTH) - len(answerable) == 2
    assert sum(len(item.relevant_spans) > 1 for item in answerable) >= 8
    assert sum(len({span.doc_id for span in item.relevant_spans}) > 1 for item in answerable) >= 4
    asked = {span.doc_id for item in answerable for span in item.relevant_spans}
    assert asked == {document.id for document in CORPUS_READ}
