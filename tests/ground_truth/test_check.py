import pytest

from rag_eval import CharacterSpan, Corpus, Document, DocumentId, Query, TokenLevelGroundTruth
from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.check import check_against_corpus

CORPUS = Corpus([Document(DocumentId("a.md"), "one two three")])
QUERY = Query.from_text("why?")


def truth(doc_id: str, start: int, end: int, text: str) -> TokenLevelGroundTruth:
    return TokenLevelGroundTruth(QUERY, [CharacterSpan(DocumentId(doc_id), start, end, text)])


def test_truth_that_its_corpus_bears_out_passes() -> None:
    check_against_corpus([truth("a.md", 4, 7, "two"), TokenLevelGroundTruth(QUERY, [], unanswerable=True)], CORPUS)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (truth("b.md", 4, 7, "two"), r"span in 'b\.md', which is not in the corpus"),
        (truth("a.md", 4, 7, "ten"), r"'a\.md' has 'two' at \[4, 7\), the span says 'ten'"),
        (truth("a.md", 10, 17, "reeeeee"), "reaches past the end"),
        (TokenLevelGroundTruth(QUERY, []), "has no relevant spans"),
    ],
)
def test_truth_that_its_corpus_denies_is_named(item: TokenLevelGroundTruth, reason: str) -> None:
    with pytest.raises(GroundTruthError, match=rf"{QUERY.id}.*{reason}"):
        check_against_corpus([item], CORPUS)
