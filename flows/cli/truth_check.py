"""``rag-eval truth check``: all that is wrong with ground truth, and what to know of the rest."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import JsonOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from rag_eval.ground_truth.audit import Finding, TruthAudit
    from rag_eval.ground_truth.audit_coverage import Coverage

SHOWN_REMARKS = 5
SHOWN_DOCUMENTS = 20


def check(
    truth: Annotated[Path, typer.Argument(help="Ground truth as JSON lines.")],
    corpus: Annotated[Path | None, typer.Option(help="Folder of documents that the spans are held against.")] = None,
    glob: Annotated[str, typer.Option(help="Which files of the folder are documents.")] = "**/*.md",
    as_json: JsonOption = False,
) -> None:
    """Check every span against its document, and report all that is wrong; exit code 1 when something is."""
    from rich.console import Console

    audit = audited(truth, corpus, glob)
    console = Console()
    if as_json:
        console.file.write(json.dumps(_as_data(audit), ensure_ascii=False, indent=2) + "\n")
    else:
        print_audit(console, audit, truth)
    if not audit.is_valid:
        raise typer.Exit(1)


def audited(truth: Path, corpus: Path | None, glob: str) -> "TruthAudit":
    """The audit of a file of either type; raises ``ConfigurationError`` for spans without a folder of documents."""
    from rag_eval.errors import ConfigurationError
    from rag_eval.ground_truth.audit import audit_chunk_level, audit_token_level
    from rag_eval.ground_truth.native import read_truth_text, truth_type
    from rag_eval.types.document import Corpus

    text = read_truth_text(truth)
    if truth_type(text) == "chunk-level":
        return audit_chunk_level(text)
    if corpus is None:
        raise ConfigurationError("spans are checked against their documents: give their folder with --corpus")
    return audit_token_level(text, Corpus.from_folder(corpus, glob))


def print_audit(console: "Console", audit: "TruthAudit", truth: Path) -> None:
    """Print the counts, every fault, the remarks by kind, and the documents with the truth they hold."""
    from flows.cli.text import say
    from rag_eval.wording import counted

    if audit.evaluation_type == "token-level":
        noun, valid = "spans", "all valid" if audit.is_valid else f"{audit.valid_answers:,} of them valid"
    else:
        noun, valid = "chunk ids", "which a run holds against the chunks of their chunker"
    unanswerable = f" ({audit.unanswerable:,} unanswerable)" if audit.unanswerable else ""
    found = f"{counted(audit.queries, 'queries')}{unanswerable}, {counted(audit.answers, noun)}, {valid}"
    say(console, f"{truth}: {found}")
    if audit.faults:
        console.print()
        say(console, counted(len(audit.faults), "faults"), "bold red")
        for finding in audit.faults:
            say(console, f"  {_sentence(finding)}")
    kinds = dict.fromkeys(remark.kind for remark in audit.remarks)
    for kind in kinds:
        remarks = [remark for remark in audit.remarks if remark.kind == kind]
        share = f", {audit.repeated_share:.1%} of the truth's text" if kind == "occurs more than once" else ""
        console.print()
        say(console, f"{kind}: {len(remarks):,}{share}", "bold")
        for finding in remarks[:SHOWN_REMARKS]:
            say(console, f"  {_sentence(finding)}")
        if len(remarks) > SHOWN_REMARKS:
            say(console, f"  … and {len(remarks) - SHOWN_REMARKS:,} more: --json lists them", "dim")
    if any(one.spans for one in audit.coverage):
        console.print()
        console.print(coverage_table(audit.coverage))


def coverage_table(coverage: "Sequence[Coverage]") -> "Table":
    """The documents by how much truth they hold; the others are counted below."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from flows.cli.text import visible
    from rag_eval.wording import counted

    asked = sorted((one for one in coverage if one.spans), key=lambda one: (-one.spans, one.doc_id))
    rest = len(coverage) - len(asked)
    caption = [f"{counted(rest, 'documents')} without truth"] if rest else []
    if len(asked) > SHOWN_DOCUMENTS:
        caption.append(f"{counted(len(asked) - SHOWN_DOCUMENTS, 'documents')} more: --json lists them")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption="; ".join(caption) or None, caption_justify="left")
    table.add_column("document", overflow="fold")
    for heading in ("queries", "spans", "truth", "characters", "share"):
        table.add_column(heading, justify="right")
    for one in asked[:SHOWN_DOCUMENTS]:
        counts = (one.queries, one.spans, one.truth_characters, one.characters)
        table.add_row(Text(visible(one.doc_id)), *(f"{count:,}" for count in counts), f"{one.share:.1%}")
    return table


def _sentence(finding: "Finding") -> str:
    from rag_eval.errors import preview
    from rag_eval.ground_truth.records import query_name

    if finding.query is None:
        return f"line {finding.line}: {finding.message}"
    name = query_name(finding.query_id, finding.query) if finding.query_id else preview(finding.query)
    return f"line {finding.line}, {name}: {finding.message}"


def _as_data(audit: "TruthAudit") -> dict[str, object]:
    return asdict(audit) | {
        "valid": audit.is_valid,
        "repeated": audit.repeated,
        "repeated_share": audit.repeated_share,
        "coverage": [asdict(one) | {"share": one.share} for one in audit.coverage],
    }
