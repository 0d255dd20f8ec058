"""What certification found, and how it reads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Positions = Literal["own", "claimed", "found"]
"""Whose positions were checked: the chunker's own, those it claims, or those the adapter found for it."""

POSITIONS = {
    "own": "its own positions",
    "claimed": "the positions it claims",
    "found": "positions found by ChunkerPositionAdapter",
}
"""The same, in words."""


@dataclass(frozen=True, slots=True)
class CounterExample:
    """Where a check failed: the text's name, the place if there is one, and what was seen, escaped.

    ``cases`` says for how many failures it stands: the characters of a stretch that no chunk holds, else 1.
    """

    text_name: str
    start: int | None
    detail: str
    cases: int = 1

    def __str__(self) -> str:
        where = self.text_name if self.start is None else f"{self.text_name} at {self.start}"
        return f"{where}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Check:
    """One property over all texts: how many cases were looked at, how many failed, and the first that did."""

    name: str
    applies: bool
    failures: int
    looked_at: int
    example: CounterExample | None

    @property
    def status(self) -> Literal["passed", "failed", "not applicable"]:
        """What the check came to; passed when there was nothing to look at."""
        if not self.applies:
            return "not applicable"
        return "failed" if self.failures else "passed"


@dataclass(frozen=True, slots=True)
class Certificate:
    """The checks of one chunker, and what they were made on."""

    chunker: str
    positions: Positions
    texts: int
    chunks: int
    skipped_chunks: int
    """Chunks without a place: not claimed, or not found."""
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.status != "failed" for check in self.checks)

    def to_markdown(self) -> str:
        """The certificate as a Markdown table, readable as plain text."""
        rows = [("check", "result", "failures", "first counter-example")]
        for check in self.checks:
            failures = f"{check.failures:,} of {check.looked_at:,}" if check.applies else "–"
            rows.append((check.name, check.status, failures, str(check.example) if check.example else "–"))
        skipped = f", {self.skipped_chunks:,} without a place" if self.skipped_chunks else ""
        return (
            f"**{_escaped(self.chunker)}**: {'passed' if self.passed else 'FAILED'} "
            f"({self.texts:,} texts, {self.chunks:,} chunks{skipped}; {POSITIONS[self.positions]})\n\n{_table(rows)}"
        )


def compare_certificates(certificates: Iterable[Certificate]) -> str:
    """Several certificates as one Markdown table: a row for each chunker, a column for each check."""
    certificates = list(certificates)
    if not certificates:
        return ""
    header = ("chunker", "positions", *(check.name for check in certificates[0].checks))
    rows = [(each.chunker, each.positions, *map(_cell, each.checks)) for each in certificates]
    return _table([header, *rows])


def _cell(check: Check) -> str:
    if check.status == "failed":
        return f"{check.failures:,} of {check.looked_at:,} fail"
    return "–" if check.status == "not applicable" else "✓"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    escaped = [[_escaped(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*escaped, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in escaped
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def _escaped(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "\\<").replace("`", "\\`").replace("\n", " ")
