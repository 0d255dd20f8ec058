"""Pages of known text are read in the order of their lines, and every span is found on its page and in its place."""

import re
from collections import Counter

import pytest

from rag_eval.documents.boxes import boxes_at
from rag_eval.documents.loaders import LoadedText
from rag_eval.documents.pdf import MOST_BLANKS, PdfLoader
from tests.documents.made_files import written
from tests.documents.made_pdfs import HEIGHT, KINDS, SIZE, WIDTH, Paper, paper_of, width_of


def placed(paper: Paper, loaded: LoadedText) -> Counter[str]:
    """How many sentences are read whole and on the right page, and how many in the right place of it."""
    counts: Counter[str] = Counter()
    for sentence in paper.sentences:
        counts["spans"] += 1
        found = re.search(r"\s+".join(map(re.escape, sentence.text.split())), loaded.text)
        boxes = boxes_at(loaded.boxes, *found.span()) if found else []
        lines: dict[tuple[int, float], tuple[float, float]] = {}
        for word in sentence.words:
            left, right = lines.get((word.page, word.baseline), (word.left, word.right))
            lines[word.page, word.baseline] = min(left, word.left), max(right, word.right)
        counts["on page"] += {box.page for box in boxes} == {word.page for word in sentence.words}
        counts["in box"] += bool(boxes) and all(
            any(
                (box.page, abs(box.left * WIDTH - left) < 4, abs(box.right * WIDTH - right) < 4) == (page, True, True)
                and box.top * HEIGHT < baseline - 0.3 * SIZE < box.bottom * HEIGHT < baseline + 0.6 * SIZE
                for box in boxes
            )
            for (page, baseline), (left, right) in lines.items()
        )
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_spans_are_on_their_page_and_in_their_box(kind: str) -> None:
    paper = paper_of(kind, 3)
    loaded = PdfLoader().load(paper.data())
    counts = placed(paper, loaded)
    assert counts["on page"] >= 0.99 * counts["spans"], counts
    assert counts["in box"] >= 0.97 * counts["spans"], counts
    assert "Annual report" not in loaded.text
    assert not re.search(r"^\d$", loaded.text, re.MULTILINE)
    assert [name for _, name in loaded.places] == ["page 1", "page 2", "page 3"]


def test_running_lines_may_stay() -> None:
    assert PdfLoader(running_lines=True).load(paper_of("one column", 3).data()).text.count("Annual report") == 3


def drawn(*texts: tuple[float, float, float, str]) -> LoadedText:
    return PdfLoader().load(
        written(WIDTH, HEIGHT, [[(x, HEIGHT - y, size, text) for x, y, size, text in texts]], width_of)
    )


def test_headings_items_and_code() -> None:
    body = [(60.0, 200 + 12 * n, 10.0, f"A line of the body that is number {n} of the text in it") for n in range(12)]
    loaded = drawn((60, 100, 20, "The title"), (60, 124, 20, "goes on"), (60, 170, 14, "A section"), *body)
    assert loaded.text.startswith("# The title goes on\n\n## A section\n\nA line of the body")
    items = drawn(
        (60, 100, 10, "•"), (72, 100, 10, "First item of a list"), (60, 112, 10, "•"), (72, 112, 10, "Second one")
    )
    assert items.text == "• First item of a list\n• Second one\n"


def test_a_line_breaks_if_the_next_word_had_room() -> None:
    full = "A line that is as wide as the column in which it stands here,"
    loaded = drawn(
        (60, 100, 10, full), (60, 112, 10, "and its end."), (60, 124, 10, "Another."), (60, 160, 10, "Far away.")
    )
    assert loaded.text == f"{full} and its end.\nAnother.\n\nFar away.\n"


def test_text_of_both_directions() -> None:
    words = [(300.0, "שלום"), (260.0, "Rag"), (285.0, "Eval"), (230.0, "עולם")]
    loaded = drawn(*((x, 100.0, 10.0, text if text.isascii() else text[::-1]) for x, text in words))
    assert loaded.text == "שלום Rag Eval עולם\n"
    start = loaded.text.index("עולם")
    (box,) = boxes_at(loaded.boxes, start, start + 1)
    assert box.left * WIDTH > 230 + width_of("עולם") / 2, "its first letter is the rightmost"


def test_boxes_of_rotated_and_cropped_pages() -> None:
    data = written(WIDTH, HEIGHT, [[(100, 700, 10, "Turned")]], width_of)
    shown = data.replace(b"/MediaBox [0 0 595 842]", b"/Rotate 90/MediaBox[0 0 595 842]")
    (box,) = boxes_at(PdfLoader().load(shown).boxes, 0, 6)
    assert abs(box.left - 700 / HEIGHT) < 0.02
    assert abs(box.top - 100 / WIDTH) < 0.02
    cropped = data.replace(b"/MediaBox [0 0 595 842]", b"/CropBox [50 600 200 800] /MediaBox [0 0 595 842]")
    (box,) = boxes_at(PdfLoader().load(cropped).boxes, 0, 6)
    assert abs(box.left - 50 / 150) < 0.01
    assert abs(box.bottom - 100 / 200) < 0.03


def test_a_page_starts_a_new_paragraph() -> None:
    body = [(60.0, 500 - 14.0 * n, 10.0, f"A sentence that is number {n}.") for n in range(9)]
    pages = [
        [(60.0, 740.0, 24.0, "Welcome")],
        [(60.0, 726.0, 24.0, "Agenda"), *body],
        [(60.0, 372.0, 10.0, "The end.")],
    ]
    text = PdfLoader().load(written(WIDTH, HEIGHT, pages)).text
    assert text.startswith("# Welcome\n\n# Agenda\n\nA sentence")
    assert text.endswith("number 8.\n\nThe end.\n")


def test_a_table_of_numbers_keeps_its_rows() -> None:
    cells = [["Port", "2025", "2026"], *([f"Pier {n}", f"{137 * n}", f"{2011 + n}"] for n in range(1, 6))]
    page = [(60.0 + 100 * x, 700.0 - 14 * y, 10.0, cell) for y, row in enumerate(cells) for x, cell in enumerate(row)]
    assert PdfLoader().load(written(WIDTH, HEIGHT, [page])).text == "".join(f"{' | '.join(row)}\n" for row in cells)


def test_flat_text_and_empty_pages_do_not_affect_other_text() -> None:
    page = [(60.0 + 200 * (n % 2), 700.0 - 14 * (n // 2), 10.0, f"Text of number {n}") for n in range(12)]
    data = written(WIDTH, HEIGHT, [page, page[:1]])
    box, flat = (
        b"/MediaBox [0 0 595 842]",
        re.sub(rb"(\S+ \S+) Td \((?=Text of number \d\d)", rb"1 0 0 0 \1 Tm (", data),
    )
    assert "Text of number 9" in PdfLoader().load(flat).text
    assert PdfLoader().load(data.replace(box, box + b" /CropBox [900 900 999 999]", 1)).text == "Text of number 0\n"


def test_upside_down_words_keep_the_order_of_the_file() -> None:
    texts = [(300.0, 100.0 + 14 * n, -10.0, f"Upside down number {n}") for n in range(3)]
    assert PdfLoader().load(written(WIDTH, HEIGHT, [texts])).text == f"{' '.join(text for *_, text in texts)}\n"


def test_code_is_aligned_by_a_limited_number_of_blanks() -> None:
    code = [(x, 700.0 - n, 0.05, "abcdef") for n in range(3) for x in (60.0, 500.0)]
    loaded = PdfLoader().load(written(WIDTH, HEIGHT, [code]).replace(b"Helvetica", b"Courier"))
    assert max(map(len, loaded.text.splitlines())) == 12 + MOST_BLANKS
