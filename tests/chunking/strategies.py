"""Texts that break chunkers: fixed samples and hypothesis strategies, shared by the chunking tests.

Every text can be written as UTF-8; beyond that anything goes.
"""

from hypothesis import strategies as st

FRAGMENTS = [
    " ",
    "  ",
    "\n",
    "\n\n",
    "\n\n\n",
    "\r\n",
    "\r\n\r\n",
    "\r",
    "\t",
    "\x00",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\u00a0",
    "\u2028",
    "\u2029",
    "\u3000",
    "\u200b",
    "\ufeff",
    ".",
    ". ",
    "?",
    "!",
    "...",
    "a",
    "aa",
    "word",
    "Word's",
    "end.",
    "1234567",
    "e\u0301",
    "\u0301",
    "ﬁ",
    "ß",
    "İ",
    "👍🏽",
    "👩\u200d👩\u200d👧",
    "🇳🇱",
    "𝒳",
    "漢字",
    "日本語。",
    "한국어",
    "مرحبا",
    "שלום",
    "\u202eabc\u202c",
    "<|endoftext|>",
    "<|fim_prefix|>",
    "# Heading\n",
    "```python\nx = 1\n```\n",
    "| a | b |\n|---|---|\n",
    "    return x\n",
    "\ufffd",
    "\U0010ffff",
]

NASTY_SAMPLES = [
    "",
    " ",
    "\n",
    "\n\n \t\r\n\u2028\u3000",
    "a",
    "\n\n\na",
    "a\n\n\n",
    "aa aa aa aa aa aa aa aa aa aa aa aa",
    "Same paragraph.\n\nSame paragraph.\n\nSame paragraph.\n\nSame paragraph.",
    "Line one\r\nLine two\r\n\r\nParagraph two\rlone return\r\r",
    "NUL\x00in\x00text\x00\x00 and \x0bvertical\x0cfeeds \x1cseparators\x85next",
    "line\u2028separator\u2029paragraph\u2028\u2029 no-break\u00a0space zero\u200bwidth",
    "\ufeff",
    "\ufeff\nB",
    "\ufeff \r\n# B",
    "\ufeffbyte-order mark at the start, and one \ufeff inside",
    "👍🏽 👩\u200d👩\u200d👧 🇳🇱🇧🇪 " * 12,
    "👍🏽" * 60,
    "e\u0301\u0301\u0301" * 40,
    "漢字かな交じり文。改行もなく、空白もない文章が続く。" * 8,
    "한국어 문장입니다. 또 하나의 문장! 질문입니까? " * 6,
    "مرحبا بالعالم، هذا نص طويل. " * 8 + "\u202eשלום עולם\u202c " * 8,
    "<|endoftext|> ordinary <|fim_prefix|>text<|endofprompt|>\n\n<|endoftext|>" * 4,
    "a" * 700,
    " " * 300 + "x" + " " * 300,
    "\n" * 300 + "x" + "\n" * 300,
    "x. y? z! " * 60 + "\n\n" + "p.q?r!s" * 40,
    "# Title\n\nIntro text.\n\n## Code\n\n```python\ndef f():\n\n    return 1\n```\n\n"
    "| a | b |\n|---|---|\n| 1 | 2 |\n\nEnd",
    "word\t" * 100 + "\n" + "  indented\n\n\n    more\n" * 12,
]


def nasty_texts(max_size: int = 200) -> st.SearchStrategy[str]:
    """Texts of at most ``max_size`` code points: ugly fragments joined, repeated, or characters of any kind."""
    any_characters = st.text(st.characters(codec="utf-8"), max_size=min(max_size, 60))
    joined = st.lists(st.sampled_from(FRAGMENTS) | any_characters, max_size=max(1, max_size // 3)).map("".join)
    repeated = st.builds(
        lambda fragments, times: "".join(fragments) * times,
        st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=8),
        st.integers(1, max(1, max_size // 4)),
    )
    marked = joined.map(lambda text: "\ufeff" + text)
    return (joined | repeated | any_characters | marked).map(lambda text: text[:max_size])
