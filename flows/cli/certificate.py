"""Certificates of chunkers, for a terminal."""

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flows.cli.text import visible
from rag_eval.chunking.certificate import POSITIONS, Certificate, Check
from rag_eval.wording import counted

MARKS = {"passed": ("✓", "green"), "failed": ("✗", "red"), "not applicable": ("–", "dim")}


def print_certificate(console: Console, certificate: Certificate) -> None:
    """One chunker: each check, and where the first failure of it is."""
    verdict = Text("passed", style="bold green") if certificate.passed else Text("FAILED", style="bold red")
    console.print(Text.assemble((visible(certificate.chunker), "bold"), "  ", verdict))
    skipped = f", {certificate.skipped_chunks:,} without a place" if certificate.skipped_chunks else ""
    seen = f"{counted(certificate.texts, 'texts')}, {counted(certificate.chunks, 'chunks')}{skipped}"
    console.print(Text(f"{seen}; {POSITIONS[certificate.positions]}", style="dim"))
    width = max(len(check.name) for check in certificate.checks)
    for check in certificate.checks:
        mark, style = MARKS[check.status]
        console.print(Text.assemble("  ", (mark, style), f" {check.name:{width}}  ", (_count(check), style)))
        if check.example is not None:
            console.print(Padding(Text(f"first: {visible(str(check.example))}"), (0, 0, 0, width + 6)))
    console.print()


def print_comparison(console: Console, certificates: Mapping[str, Certificate]) -> None:
    """Several chunkers by name: a row each, a column a check."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("chunker", no_wrap=True)
    for check in next(iter(certificates.values())).checks:
        table.add_column(check.name.replace(" ", "\n"), justify="center")
    for name, certificate in certificates.items():
        cells = [Text(_short(check), style=MARKS[check.status][1]) for check in certificate.checks]
        table.add_row(Text(name), *cells)
    console.print(table)


def _count(check: Check) -> str:
    if check.status == "not applicable":
        return "does not apply"
    return f"{check.failures:,} of {check.looked_at:,} fail" if check.failures else f"{check.looked_at:,} looked at"


def _short(check: Check) -> str:
    return f"✗ {check.failures:,}" if check.status == "failed" else MARKS[check.status][0]
