"""Locating excerpts against a ``difflib.SequenceMatcher`` that slides over the document, in CPU seconds of one run.

The documents are Chroma's where they are at hand, and beyond that the same words in another order, seeded. An excerpt
is a stretch of whole words that its document has once; a third have other whitespace, a tenth have typos. Both ways
are told which document to look in. The time of ours includes preparing all documents.
"""

import random
import re
import time
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher

from rag_eval import CharacterSpan, Document, DocumentId
from rag_eval.ground_truth.locating import Located, Location, Locator
from rag_eval.sample import CORPUS
from tests.bench.chroma_data import FOLDER

CHARACTERS, DOCUMENT_CHARACTERS, EXCERPTS, SAMPLE = 5_000_000, 100_000, 10_000, 40
SPACES = (" ", "\n", "  ", "\r\n", "\t", "\u00a0", " \n ")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Excerpt:
    """A text as it is looked for, and where it comes from."""

    text: str
    span: CharacterSpan


def make_documents(rng: random.Random) -> list[Document]:
    """Real texts first, then their sentences in another order with words exchanged, cut into documents."""
    folder = FOLDER / "corpora" if FOLDER.is_dir() else CORPUS
    real = "\n\n".join(path.read_bytes().decode("utf-8") for path in sorted(folder.rglob("*.md")))
    words = re.findall(r"\S+\s*", real)
    pieces, length = [real[:CHARACTERS]], min(len(real), CHARACTERS)
    while length < CHARACTERS:
        start = rng.randrange(len(words))
        stretch = [word if rng.random() < 0.8 else rng.choice(words) for word in words[start : start + 200]]
        pieces.append("".join(stretch))
        length += len(pieces[-1])
    text = "".join(pieces)[:CHARACTERS]
    starts = range(0, len(text), DOCUMENT_CHARACTERS)
    return [Document(DocumentId(f"{start:08}.md"), text[start : start + DOCUMENT_CHARACTERS]) for start in starts]


def make_excerpts(documents: list[Document], rng: random.Random, number: int) -> list[Excerpt]:
    """Stretches of 60 to 600 characters, a third with other whitespace and a tenth with a typo in 25 characters."""
    excerpts: list[Excerpt] = []
    while len(excerpts) < number:
        document = rng.choice(documents)
        start = rng.randrange(len(document.content) - 700)
        length = rng.randint(60, 600)
        found = re.compile(rf"(?<=\s)\S.{{{length},{length + 60}}}?\S(?=\s)", re.DOTALL).search(document.content, start)
        if found is None or document.content.count(found[0]) > 1:
            continue
        text, kind = found[0], len(excerpts) % 30
        if kind < 10:
            text = re.sub(r"\s+", lambda _: rng.choice(SPACES), text)
        elif kind < 13:
            text = with_typos(text, rng)
        excerpts.append(Excerpt(text, document.span(found.start(), found.end())))
    return excerpts


def with_typos(text: str, rng: random.Random) -> str:
    """The text with letters exchanged, left out and put in."""
    chars = list(text)
    for place in rng.sample(range(len(chars)), max(1, len(chars) // 25)):
        chars[place] = rng.choice((rng.choice(LETTERS), "", chars[place] + rng.choice(LETTERS)))
    return "".join(chars)


def slide(excerpt: str, content: str) -> tuple[int, int]:
    """The best window, a quarter of the excerpt's length at a time, from its first to its last matching block."""
    matcher = SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(excerpt)
    best, best_start = 0.0, 0
    for start in range(0, len(content), max(1, len(excerpt) // 4)):
        matcher.set_seq1(content[start : start + len(excerpt)])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, best_start = ratio, start
    begin = max(0, best_start - len(excerpt) // 3)
    matcher.set_seq1(content[begin : best_start + len(excerpt) * 4 // 3])
    blocks = [block for block in matcher.get_matching_blocks() if block.size > 2] or matcher.get_matching_blocks()
    return begin + blocks[0].a, begin + blocks[-1].a + blocks[-1].size


def is_right(place: tuple[int, int], truth: CharacterSpan) -> bool:
    """Whether place and truth share nine tenths of what they cover together."""
    shared = min(place[1], truth.end) - max(place[0], truth.start)
    return shared >= 0.9 * (max(place[1], truth.end) - min(place[0], truth.start))


def share_right(excerpts: list[Excerpt], results: list[Location]) -> float:
    """The share of the excerpts that were placed where they come from."""
    right = [
        isinstance(result, Located)
        and result.span.doc_id == excerpt.span.doc_id
        and is_right((result.span.start, result.span.end), excerpt.span)
        for excerpt, result in zip(excerpts, results, strict=True)
    ]
    return sum(right) / len(right)


def run() -> list[dict[str, object]]:
    """The figures: speed and accuracy in the known document, and what searching all documents takes."""
    rng = random.Random(20240817)  # noqa: S311  # seeded inputs
    documents = make_documents(rng)
    contents = {document.id: document.content for document in documents}
    excerpts = make_excerpts(documents, rng, EXCERPTS)
    started = time.process_time()
    locator = Locator(documents)
    prepared = time.process_time()
    results = [locator.locate(excerpt.text, excerpt.span.doc_id) for excerpt in excerpts]
    located = time.process_time()
    anywhere = [locator.locate(excerpt.text) for excerpt in excerpts]
    everywhere_seconds = time.process_time() - located
    sample = excerpts[:: len(excerpts) // SAMPLE]
    sliding = time.process_time()
    places = [slide(excerpt.text, contents[excerpt.span.doc_id]) for excerpt in sample]
    slid = time.process_time() - sliding
    seconds, sliding_seconds = located - started, slid * len(excerpts) / len(sample)
    right = share_right(excerpts, results)
    right_too = share_right(sample, results[:: len(excerpts) // SAMPLE])
    sliding_right = sum(map(is_right, places, (excerpt.span for excerpt in sample))) / len(sample)
    wrong = sum(isinstance(one, Located) for one in results) / len(results) - right
    outcomes = Counter(result.how if isinstance(result, Located) else result.reason for result in results)
    ratio = sliding_seconds / seconds
    return [
        _figure("locating 10,000 excerpts in 5 MB, preparing included", seconds, None, "s CPU"),
        _figure("locating: of that, preparing 5 MB", prepared - started, None, "s CPU"),
        _figure("locating: a sliding SequenceMatcher, scaled from a sample", sliding_seconds, None, "s CPU"),
        _figure("locating: times the speed of sliding", ratio, 50, "x", ratio >= 50),
        _figure("locating: placed right", right, None, ""),
        _figure("locating: placed right, on the sample", right_too, sliding_right, "", right_too >= sliding_right),
        _figure("locating: placed right by sliding, on the sample", sliding_right, None, ""),
        _figure("locating: placed wrong", wrong, 0.001, "", wrong <= 0.001),
        _figure("locating: found through normalisation", outcomes["normalised"], None, "excerpts"),
        _figure("locating: found fuzzily", outcomes["fuzzy"], None, "excerpts"),
        _figure("locating: in any of the documents", everywhere_seconds, None, "s CPU"),
        _figure("locating: in any of the documents, placed right", share_right(excerpts, anywhere), None, ""),
    ]


def _figure(name: str, value: float, target: float | None, unit: str, ok: bool = True) -> dict[str, object]:
    return {"name": name, "value": value, "target": target, "unit": unit, "ok": ok}
