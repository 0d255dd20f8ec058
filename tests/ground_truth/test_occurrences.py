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
