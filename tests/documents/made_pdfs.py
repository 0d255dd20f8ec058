"""PDFs that are drawn of known text, word by word, so that the place of each is known."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.documents.made_files import written

WIDTH, HEIGHT, SIZE, LEADING = 595, 842, 10, 12.5
SYLLABLES = [a + b + c for a in "bdfgklmnprstvz" for b in "aeiou" for c in ("", "n", "r", "s")]
HEBREW = "אבגדהוזחטיכלמנסעפצקרשת"
_NARROW, _WIDE = set("iljtf.,|'-ויןז"), set("mwMW@שצ")


def width_of(text: str, size: float = SIZE) -> float:
    """How wide a text is drawn."""
    return (
        sum(
            0.3 if character in _NARROW else 0.75 if character in _WIDE else 0.44 + ord(character) % 5 * 0.03
            for character in text
        )
        * size
    )


@dataclass
class Drawn:
    """A word as it is drawn: its page, and its box in points from the upper left corner."""

    text: str
    page: int
    left: float
    baseline: float
    right: float


@dataclass
class Sentence:
    """What a reader reads, and the words that it is drawn as."""

    text: str
    words: list[Drawn] = field(default_factory=list)


class Paper:
    """Pages on which sentences are drawn; ``sentences`` are those drawn so far."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)  # noqa: S311  # the same pages every time
        self.sentences: list[Sentence] = []
        self._pages: list[list[tuple[float, float, float, str]]] = []

    def add_page(self) -> None:
        self._pages.append([])

    def word(self) -> str:
        return "".join(self.rng.choices(SYLLABLES, k=self.rng.randint(2, 4)))

    def draw(self, text: str, left: float, baseline: float, size: float = SIZE, shown: str = "") -> Drawn:
        """Draw a word, or something else in its place."""
        self._pages[-1].append((left, HEIGHT - baseline, size, shown or text))
        return Drawn(text, len(self._pages), left, baseline, left + width_of(shown or text, size))

    def data(self) -> bytes:
        """Return the file."""
        return written(WIDTH, HEIGHT, self._pages, width_of)

    def column(
        self,
        left: float,
        right: float,
        lines: int,
        top: float = 130,
        *,
        divides: bool = False,
        has_ligatures: bool = False,
    ) -> list[Callable[[], None]]:
        """Fill a column with sentences, justified; returns what draws each line."""
        drawing: list[Callable[[], None]] = []
        sentence, words = Sentence(""), list[str]()
        for number in range(lines):
            line: list[tuple[str, Sentence]] = []
            room = right - left
            while True:
                if not words:
                    words = [self.word() for _ in range(self.rng.randint(6, 14))]
                    words[0], words[-1] = words[0].capitalize(), f"{words[-1]}."
                    if has_ligatures:
                        words[1:-1] = [word.replace("fi", "\ufb01").replace("fe", "\ufb03") for word in words[1:-1]]
                    text = " ".join(words).replace("\ufb01", "fi").replace("\ufb03", "ffi")
                    sentence = Sentence(text)
                    self.sentences.append(sentence)
                needed = width_of(words[0]) + (0.25 * SIZE if line else 0)
                if needed > room:
                    half = 2 * (len(words[0]) // 4)
                    fits = width_of(words[0][:half]) + 0.55 * SIZE <= room
                    if divides and fits and half > 1 and words[0].isalpha() and words[0].islower():
                        line.append((f"{words[0][:half]}-", sentence))
                        words[0] = words[0][half:]
                    break
                line.append((words[0], sentence))
                room -= needed
                words.pop(0)
            total = sum(width_of(shown) for shown, _ in line)
            is_last = number == lines - 1
            gap = 0.25 * SIZE if is_last or len(line) < 2 else (right - left - total) / (len(line) - 1)
            drawing.append(partial(self._draw_line, line, left, top + number * LEADING, gap))
        if words:  # the last sentence goes on nowhere
            drawn = len(sentence.text.split()) - len(words)
            sentence.text = " ".join(sentence.text.split()[:drawn])
            self.sentences = [sentence for sentence in self.sentences if sentence.text]
        return drawing

    def _draw_line(self, line: Sequence[tuple[str, Sentence]], left: float, baseline: float, gap: float) -> None:
        for shown, sentence in line:
            drawn = self.draw(shown, left, baseline)
            sentence.words.append(drawn)
            left = drawn.right + gap

    def table(self, rows: int, edges: Sequence[float], top: float, *, is_by_column: bool = False) -> None:
        """Draw a table of short cells, row by row or column by column."""
        texts = [[f"{self.word()} {self.rng.randint(10, 999)}" for _ in edges] for _ in range(rows)]
        made = [Sentence(" | ".join(row)) for row in texts]
        cells = [(row, column) for row in range(rows) for column in range(len(edges))]
        found: dict[tuple[int, int], list[Drawn]] = {}
        for row, column in sorted(cells, key=lambda cell: cell[::-1]) if is_by_column else cells:
            left = edges[column]
            for word in texts[row][column].split():
                drawn = self.draw(word, left, top + row * 1.4 * LEADING)
                found.setdefault((row, column), []).append(drawn)
                left = drawn.right + 0.25 * SIZE
        for row, sentence in enumerate(made):
            sentence.words = [word for column in range(len(edges)) for word in found[row, column]]
        self.sentences += made

    def right_to_left(self, left: float, right: float, lines: int, top: float) -> None:
        """Draw sentences of Hebrew letters and numbers, each word from left to right as it is seen."""
        for number in range(lines):
            place, words = right, list[str]()
            sentence = Sentence("")
            while place > left + 60:
                is_number = len(words) > 1 and self.rng.random() < 0.15
                letters = [self.rng.choice(HEBREW) for _ in range(self.rng.randint(2, 7))]
                text = str(self.rng.randint(10, 9999)) if is_number else "".join(letters)
                place -= width_of(text)
                shown = text if is_number else text[::-1]
                sentence.words.append(self.draw(text, place, top + number * LEADING, shown=shown))
                words.append(text)
                place -= 0.3 * SIZE
            sentence.text = " ".join(words)
            self.sentences.append(sentence)


KINDS = ("one column", "columns", "across columns", "three columns", "hyphens", "ligatures", "tables", "rtl")


def paper_of(kind: str, pages: int, seed: int = 0) -> Paper:
    """A paper of so many pages, with a header and a page number on each, and what its kind says."""
    two, three = ((60, 285), (310, 535)), ((60, 205), (225, 370), (390, 535))
    paper = Paper(seed)
    for number in range(pages):
        paper.add_page()
        header = paper.draw("Annual", 60, 60)
        paper.draw("report", header.right + 3, 60)
        paper.draw(str(number + 7), 290, 800)
        if kind == "tables":
            paper.table(8, (60, 200, 340), 130, is_by_column=number % 2 == 1)
            for draw in paper.column(60, 535, 12, 320):
                draw()
            paper.table(5, (60, 240), 520)
            continue
        if kind == "rtl":
            paper.right_to_left(60, 535, 30, 130)
            continue
        if number % 2 and "columns" in kind:  # a heading across
            place = 60.0
            for text in (paper.word().capitalize() for _ in range(14)):
                place = paper.draw(text, place, 110).right + 3
        edges = three if kind == "three columns" else two if "columns" in kind or kind == "hyphens" else ((60, 535),)
        drawing = [
            paper.column(*column, 45, divides=kind == "hyphens", has_ligatures=kind == "ligatures") for column in edges
        ]
        if kind == "across columns":
            for across in zip(*drawing, strict=True):
                for draw in across:
                    draw()
        else:
            for column in drawing:
                for draw in column:
                    draw()
    return paper
