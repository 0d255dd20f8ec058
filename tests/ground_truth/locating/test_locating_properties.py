"""Against plain searching, over ugly texts."""

from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein
from strategies import nasty_texts

from rag_eval import Document, DocumentId
from rag_eval.ground_truth.folding import FoldedText, folded_form
from rag_eval.ground_truth.locating import _FRAME, Located, Locator, Rejected

OURS = settings(deadline=None, derandomize=True, max_examples=150)


def starts_of(text: str, content: str) -> list[int]:
    return [start for start in range(len(content)) if content.startswith(text, start)]


@OURS
@given(nasty_texts(), st.data())
def test_the_very_text_is_found_where_plain_searching_finds_it_alone(content: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(content)))
    excerpt = content[start : data.draw(st.integers(start, len(content)))]
    text = excerpt.strip()
    result = Locator([Document(DocumentId("a.md"), content)]).locate(excerpt)
    starts = starts_of(text, content) if folded_form(text) else []
    if len(starts) == 1:
        assert isinstance(result, Located)
        assert (result.how, result.span.start, result.span.text) == ("exact", starts[0], text)
    else:
        assert isinstance(result, Rejected)
        assert result.reason == ("ambiguous" if starts else "empty")


@OURS
@given(nasty_texts(), nasty_texts(60))
def test_whatever_is_found_is_the_document_s_own_text(content: str, excerpt: str) -> None:
    result = Locator([Document(DocumentId("a.md"), content)]).locate(excerpt)
    if isinstance(result, Located):
        assert content[result.span.start : result.span.end] == result.span.text
        if result.how == "exact":
            assert result.span.text == excerpt.strip()
        if result.how == "normalised":
            assert folded_form(result.span.text).strip("'.") == folded_form(excerpt).strip("'.")
        if result.how == "fuzzy":
            sought = _FRAME.sub("", folded_form(excerpt))
            assert 0.85 <= Levenshtein.normalized_similarity(sought, folded_form(result.span.text)) < 1


@OURS
@given(nasty_texts())
def test_the_folded_form_with_places_is_the_folded_form(content: str) -> None:
    folded = FoldedText.of(content)
    assert folded.form == folded_form(content)
    assert len(folded.source_index) == len(folded.form)
    for char, place in zip(folded.form, folded.source_index.tolist(), strict=True):
        assert char in folded_form(content[place])
