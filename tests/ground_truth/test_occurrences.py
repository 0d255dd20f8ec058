"""Counting many texts at once agrees with counting them one by one."""

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import nasty_texts

from rag_eval import Document, DocumentId
from rag_eval.ground_truth.check import count_occurrences


def one_by_one(text: str, content: str) -> int:
    return sum(content.startswith(text, place) for place in range(len(content))) if text else 0


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(nasty_texts(max_size=90), max_size=4), st.data())
def test_counts_are_those_of_a_naive_search(contents: list[str], data: st.DataObject) -> None:
    documents = [Document(DocumentId(str(number)), content) for number, content in enumerate(contents)]
    whole = "".join(contents)
    cuts = st.tuples(st.integers(0, len(whole)), st.integers(0, 70)).map(lambda cut: whole[cut[0] : cut[0] + cut[1]])
    texts = data.draw(st.lists(cuts | nasty_texts(max_size=5), max_size=8))
    expected = {
        text: {document.id: count for document in documents if (count := one_by_one(text, document.content))}
        for text in texts
    }
    assert count_occurrences(texts, documents) == expected


def test_copies_are_found_in_every_document_and_not_across_two() -> None:
    sentence = "The same sentence is in many documents, at any place. "
    contents = ["x" * 10_000 + sentence, sentence * 2, sentence[:30], sentence[30:], "\x00\x00\x00", "a" * 5000]
    documents = [Document(DocumentId(str(number)), content) for number, content in enumerate(contents)]
    found = count_occurrences([sentence, "\x00\x00", "\x00", "aa"], iter(documents))
    assert found == {sentence: {"0": 1, "1": 2}, "\x00\x00": {"4": 2}, "\x00": {"4": 3}, "aa": {"5": 4999}}
