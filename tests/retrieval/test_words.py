import pytest

from rag_eval.retrieval.bm25 import words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Ferry's deck, 22 m/s!", ["the", "ferry", "s", "deck", "22", "m", "s"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        ("café cafe\u0301 ﬁne", ["café", "café", "fine"]),
        ("東京大学へ行く", ["東京", "京大", "大学", "学へ", "へ行", "行く"]),
        ("木 と abc東京", ["木", "と", "abc", "東京"]),
        ("هل تحتاج", ["هل", "تحتاج"]),
        ("👩🏽‍🚀 \x00 \u2028", []),
        ("", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected
