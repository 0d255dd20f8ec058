"""Texts that break chunkers: fixed samples and hypothesis strategies, shared by the chunking tests.

Every text can be written as UTF-8; beyond that anything goes.
"""

from hypothesis import strategies as st

FRAGMENTS = [
    " ", "  ", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", "\r", "\t", "\x00", "\x0b", "\x0c", "\x1c", "\x85",
    "\u00a0", "\u2028", "\u2029", "\u3000", "\u200b", "\ufeff", ".", ". ", "?", "!", "...", "a", "aa", "word",
    "Word's", "end.", "1234567", "e\u0301", "\u0301", "ﬁ", "ß", "İ", "👍🏽", "👩\u200d👩\u200d👧", "🇳🇱", "𝒳", "漢字",
    "日本語。", "한국어", "مرحبا", "שלום", "\u202eabc\u202c", "<|endoftext|>", "<|fim_prefix|>", "# Heading\n",
    "```python\nx = 1\n```\n", "| a | b |\n|---|---|\n", "    return x\n", "\ufffd", "\U0010ffff",
]  # fmt: skip


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


_MEGABYTE = 1_000_000


def known_texts() -> dict[str, str]:
    """Return longer texts by name."""
    sentence = "The quick brown fox jumps over the lazy dog, again and again. "
    paragraph = "Repeated paragraphs are where a search finds the first copy instead of the right one.\n\n"
    return {
        "empty": "",
        "whitespace only": " \t\r\n\u2028\u00a0\u3000\n\n " * 20,
        "one character": "x",
        "plain English": "".join(f"Sentence number {i} says something about topic {i % 7}. " for i in range(400)),
        "repeated paragraphs": paragraph * 60,
        "repeated words": "aa aa aa " * 300,
        "emoji": "👍🏽 fine 👩\u200d👩\u200d👧\u200d👦 family 🇳🇱🇧🇪 flags ❤️\u200d🔥 1️⃣ 🏴󠁧󠁢󠁳󠁣󠁴󠁿 " * 60,
        "emoji without spaces": "👍🏽👩🏿\u200d🚀" * 200,
        "combining marks": (
            "e\u0301a\u0323\u0302o\u0308 " + "z" + "\u0300\u0301\u0316\u0327" * 6 + " naïve nai\u0308ve "
        )
        * 60,
        "compatibility characters": "ﬁne ofﬁce ½ № ™ Ⅷ ﷺ ｆｕｌｌ ｗｉｄｔｈ ﾊﾟ … “quotes” ‘here’ " * 60,
        "CRLF": ("First line\r\nsecond line.\r\n\r\n" + sentence + "\r\n") * 40,
        "lone CR": ("First line\rsecond line.\r\r" + sentence + "\r") * 40,
        "odd line ends": "one\u2028two\u2029three\x85four\x0bfive\x0csix\x1cseven\n\n" * 60,
        "Chinese and Japanese": "汉字没有空格。句子很长，分词很难！真的吗？「はい。」と彼は言った。" * 50,
        "Thai, no spaces": "ภาษาไทยเขียนติดกันโดยไม่เว้นวรรค" * 60,
        "Hindi": "यह एक वाक्य है। क्या यह दूसरा है? हाँ॥ " * 60,
        "right to left": "مرحبا بالعالم؟ هذا نص طويل. שלום עולם! \u202eabc\u202c \u200fمزيج mixed עברית " * 50,
        "special tokens": "<|endoftext|> text <|fim_prefix|>more<|endofprompt|> </s><s>[INST] <pad>\n\n" * 50,
        "NUL and control characters": "before\x00after \x00\x00 \x07bell\x1b[31mred\x1b[0m \x7f \ufffd\n" * 60,
        "byte-order marks": "\ufeff\r\n"
        + "\ufeff# Title\n\nText with one\ufeff inside and zero\u200bwidth\u00adsoft parts.\n" * 30,
        "Markdown": _MARKDOWN * 12,
        "source code": _CODE * 20,
        "long blank runs": ("word" + " " * 700 + "word\n" + "\n" * 300) * 5,
        "one word": "a" * 5000,
        "many short lines": "".join(f"{i}\n" for i in range(3000)),
        "1 MB line": "".join(f"word{i * 7919 % 99991} " for i in range(_MEGABYTE // 9))[:_MEGABYTE],
    }


_MARKDOWN = """# Title #

Setext heading
--------------

Some *text* with a [link](https://example.com/a_(b)) and `code`.

- item one
- item two
  continued

````python
# not a heading
```
def f(x):

    return x  # <|endoftext|>
````

| name | value |
|:-----|------:|
| a    |     1 |
| b    |     2 |

> quoted text. Ends here?

"""

_CODE = '''def transform(rows: list[dict[str, float]]) -> dict[str, float]:
\t"""Doc."""
\tfor row in rows:
\t\tif row["value"] != 0.5e-3:
\t\t\tyield {**row, "key": f"{row['name']!r:>10}"}


'''
