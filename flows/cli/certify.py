"""``rag-eval certify``: check chunkers on texts that are hard to cut."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flows.cli import options
from flows.cli.console import visible
from rag_eval.errors import ConfigurationError
from rag_eval.formatting import counted
from rag_eval.types.documents import Corpus

if TYPE_CHECKING:
    from rag_eval.chunking.certify import Certificate, Check

MARKS = {"passed": ("✓", "green"), "failed": ("✗", "red"), "not applicable": ("–", "dim")}


def certify(
    chunkers: Annotated[
        list[str] | None,
        typer.Argument(help="Built-in names, or your own as module:name; by default all built-in ones."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Setting of the chunker, such as chunk_size=200.")
    ] = None,
    texts: Annotated[Path | None, typer.Option(help="Folder of texts, in place of the built-in ones.")] = None,
    glob: Annotated[
        list[str], typer.Option(help="Pattern of the text files; may be repeated.")
    ] = options.DOCUMENT_GLOB,
) -> None:
    """Check chunkers on texts that are hard to cut; exit code 1 if a check fails."""
    from rag_eval.chunking import CHUNKER
    from rag_eval.chunking.certify import certify

    given = {document.id: document.content for document in Corpus.from_folder(texts, glob)} if texts else None
    if settings and len(chunkers or []) != 1:
        raise ConfigurationError("--set goes with one chunker: name it")
    console, waiting = Console(markup=False, highlight=False), Console(stderr=True)
    certificates = []
    for name in chunkers or CHUNKER.types:
        with waiting.status(f"Certifying {visible(name)} …"):
            certificate = certify(find_chunker(name, settings or []), given)
        certificates.append(certificate)
        if chunkers:
            print_certificate(console, certificate)
    if not chunkers:
        print_comparison(console, dict(zip(CHUNKER.types, certificates, strict=True)))
    if not all(certificate.passed for certificate in certificates):
        raise typer.Exit(1)


def print_certificate(console: Console, certificate: "Certificate") -> None:
    """Print the checks of one chunker, and where each failed first."""
    from rag_eval.chunking.certify import POSITIONS

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


def print_comparison(console: Console, certificates: "Mapping[str, Certificate]") -> None:
    """Print several chunkers by name: a row per chunker, a column per check."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("chunker", no_wrap=True)
    for check in next(iter(certificates.values())).checks:
        table.add_column(check.name.replace(" ", "\n"), justify="center")
    for name, certificate in certificates.items():
        cells = [Text(_short(check), style=MARKS[check.status][1]) for check in certificate.checks]
        table.add_row(Text(name), *cells)
    console.print(table)


def _count(check: "Check") -> str:
    if check.status == "not applicable":
        return "does not apply"
    return f"{check.failures:,} of {check.looked_at:,} fail" if check.failures else f"{check.looked_at:,} looked at"


def _short(check: "Check") -> str:
    return f"✗ {check.failures:,}" if check.status == "failed" else MARKS[check.status][0]


def find_chunker(name: str, settings: list[str]) -> object:
    """Return a built-in chunker by name and settings, or a user's as ``module:Name``; raises ``ConfigurationError``."""
    from rag_eval.chunking import CHUNKER
    from rag_eval.parts.objects import Foreign
    from rag_eval.parts.settings import Place

    given = dict(options.assigned("--set", text, "chunk_size=200") for text in settings)
    made = CHUNKER.make({**given, "type": name}, Place(name))
    return made.source if isinstance(made, Foreign) else made  # which has a name and a size limit of its own
