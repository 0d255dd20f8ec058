import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from rag_eval.errors import ConfigurationError
from rag_eval.parts import label
from rag_eval.retrieval import TOKENIZER
from rag_eval.retrieval.bm25 import BM25Index
from rag_eval.retrieval.tokenizers import stop_words, words


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


def test_stems_leave_out_stop_words_of_a_language() -> None:
    german = TOKENIZER.make({"type": "stemmed", "language": "german"})
    assert german.words("Die Fähren und die Fähre") == ["fahr", "fahr"]
    assert TOKENIZER.make({"type": "stemmed", "language": "english", "stop_words": False}).words("the boats") == [
        "the",
        "boat",
    ]
    assert label(german) == "stemmed german"


def test_threads_that_share_a_tokenizer_get_the_stems_of_one_alone() -> None:
    made = [f"{first}{rest}ingly" for first in "bcdfghjk" for rest in ("arun", "ewalk", "ination", "orelat", "uargu")]
    alone, shared = (TOKENIZER.make({"type": "stemmed", "language": "english"}) for _ in range(2))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda first: [shared.words(word) for word in made[first:]], range(0, 40, 5)))
    finally:
        sys.setswitchinterval(before)
    assert found == [[alone.words(word) for word in made[first:]] for first in range(0, 40, 5)]


@pytest.mark.parametrize("language", sorted(stop_words()))
def test_stop_words_are_written_as_words_are(language: str) -> None:
    listed = stop_words()[language]
    assert len(listed) > 40
    assert [words(word) for word in listed] == [[word] for word in listed]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"language": "germn"}, "no list of stop words for 'germn' .did you mean german"),
        ({"language": "klingon", "stop_words": False}, "there is no stemmer for 'klingon'"),
    ],
)
def test_a_language_that_is_not_known_is_told(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        TOKENIZER.make({"type": "stemmed", **settings}).words("text")


def test_a_function_gives_the_words() -> None:
    letters = TOKENIZER.take(lambda text: [*text.replace(" ", "")])
    assert BM25Index(["ab", "cd"], tokenizer=letters).scores("d").tolist()[0] == 0
    with pytest.raises(ConfigurationError, match="returned '1': return a list of words"):
        TOKENIZER.take(lambda text: 1).words("a")
    with pytest.raises(ConfigurationError, match="is not a tokenizer: give a function"):
        TOKENIZER.take(object())
