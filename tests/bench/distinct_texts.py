"""As much text as a benchmark wants, of which no part is like another."""

import random
import re
from pathlib import Path

CORPORA = Path(__file__).parents[2].parent / "shared" / "data" / "chroma" / "corpora"


def base_texts() -> list[str]:
    """The Chroma corpora, or as much generated text."""
    if CORPORA.is_dir():
        return [path.read_bytes().decode() for path in sorted(CORPORA.glob("*.md"))]
    rng = random.Random(0)  # noqa: S311  # for words, not for secrets
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 10))) for _ in range(5000)]
    sentences = (" ".join(rng.choices(words, k=rng.randint(4, 25))).capitalize() + "." for _ in range(15_000))
    text = "".join(sentence + rng.choices([" ", "\n", "\n\n"], [6, 1, 1])[0] for sentence in sentences)
    return [text[i : i + 300_000] for i in range(0, len(text), 300_000)]


def distinct_texts(characters: int, seed: int) -> list[str]:
    """At least so many characters, in documents in which every seventh word or so is another each time."""
    base = base_texts()
    rng = random.Random(seed)  # noqa: S311  # for words, not for secrets
    words = sorted({word for text in base for word in re.findall("[a-z]{3,}", text)})

    def vary(match: re.Match[str]) -> str:
        return rng.choice(words) if rng.random() < 0.15 else match[0]

    texts: list[str] = []
    while sum(map(len, texts)) < characters:
        texts += [re.sub("[A-Za-z]{3,}", vary, text) for text in base]
    return texts
