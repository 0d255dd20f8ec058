"""Texts that make a careless algorithm quadratic: what a text costs against one of a quarter of its length."""

import gc
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rag_eval.chunking.foreign_chunkers import Piece
from rag_eval.chunking.placement import place
from rag_eval.chunking.recursive import RecursiveCharacterChunker, RecursiveTokenChunker
from rag_eval.tokens import ENCODINGS, token_ends

UNITS = ["a", "1", " ", "\n", "!", "x\n\n", "👍🏽", "漢", "\u0301"]
PARAGRAPH = "Once in a paragraph. " + "The same  words again and\nagain. " * 29 + "\n\n"
TIMES = 4
_NUMBERS = itertools.count()
MOST = 10
"""Four times the text costs 4 times as much where the cost is linear, and 16 times where it is square."""

CHANGES: dict[str, Callable[[str], str]] = {
    "as they are": lambda piece: piece,
    "with blanks collapsed": lambda piece: " ".join(piece.split()),
    "cut short": lambda piece: piece[:200],
    "that are not there": lambda piece: piece.replace("a", "§"),
}


def run() -> list[dict[str, Any]]:
    figures = []
    for name in ENCODINGS:
        worst = worst_growth(partial(token_ends, encoding=name), 200_000)
        figures.append(figure(f"hostile: tokens of a line of one kind, {name}", worst))
    for chunker, size in ((RecursiveCharacterChunker(1000, 200), 250_000), (RecursiveTokenChunker(), 75_000)):
        worst = worst_growth(chunker.cuts, size)
        figures.append(figure(f"hostile: {type(chunker).__name__}, a text of one kind", worst))
    for name, change in CHANGES.items():
        piece = change(PARAGRAPH.strip())
        ratio = growth(lambda count, piece=piece: place(PARAGRAPH * count, map(Piece, [piece] * count)), 600)
        figures.append(figure(f"hostile: placing pieces of repeated text {name}", ratio))
    figures.append(
        figure("hostile: placing overlapping windows of a text of one kind", worst_growth(place_windows, 50_000))
    )
    return figures


def place_windows(text: str) -> None:
    place(text, [Piece(text[start : start + 100]) for start in range(0, len(text) - 50, 50)])


def worst_growth(work: Callable[[str], object], size: int) -> float:
    return max(growth(lambda characters, unit=unit: work(line(unit, characters)), size) for unit in UNITS)


def line(unit: str, characters: int) -> str:
    return unit * (characters // len(unit)) + f"end {next(_NUMBERS)}"  # what was seen before may be remembered


def growth(work: Callable[[int], object], size: int) -> float:
    """CPU seconds at four times the size over those at the size, each the best of two."""
    return best(work, TIMES * size) / best(work, size)


def best(work: Callable[[int], object], size: int) -> float:
    seconds = []
    for _ in range(2):
        gc.collect()
        began = time.process_time()
        work(size)
        seconds.append(time.process_time() - began)
    return max(min(seconds), 0.005)


def figure(name: str, value: float) -> dict[str, Any]:
    unit = "x the cost of a quarter"
    return {"name": f"{name} (at most)", "value": value, "target": MOST, "unit": unit, "ok": value <= MOST}
