"""``rag-eval truth reanchor``: carry spans over to documents that have changed."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import DEFAULT_WORKSPACE, WorkspaceOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from rag_eval.ground_truth.drift import DocumentOutcome, ReanchorReport, SpanOutcome, Way
    from rag_eval.types.document import Corpus
    from rag_eval.types.ground_truth import TokenLevelGroundTruth

SHOWN_SPANS = 20
SHOWN_DOCUMENTS = 20
WAYS: "dict[Way, str]" = {
    "unchanged": "nothing to do",
    "diff": "its earlier version",
    "text": "the spans' text",
    "gone": "nothing: it is gone",
}


def reanchor(
    truth: Annotated[Path, typer.Argument(help="Ground truth as JSON lines, of character spans.")],
    corpus: Annotated[Path, typer.Option(help="Folder of the documents as they are now.")],
    old: Annotated[Path | None, typer.Option(help="Folder of the documents that the truth was made on.")] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    glob: Annotated[str, typer.Option(help="Which files of the folders are documents.")] = "**/*.md",
    output: Annotated[Path | None, typer.Option(help="Write to this file, in place of the one read.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every outcome as JSON, for machines.")] = False,
) -> None:
    """Carry spans over to documents that have changed; exit code 1 when one is lost.

    They are carried through the difference to an earlier version: those in --old and those that runs left in the
    workspace. Without one, a span is looked for by its text. Only the lines of queries whose spans change are written.
    """
    from rich.console import Console

    from flows.cli.text import say
    from rag_eval.ground_truth.drift import check_not_empty, keep_reanchored
    from rag_eval.ground_truth.native import read_token_level
    from rag_eval.types.document import Corpus

    items = read_token_level(truth)
    report = reanchored(items, Corpus.from_folder(corpus, glob), old, workspace, glob)
    check_not_empty(report)
    target, lost = output or truth, None
    is_written = not dry_run and (output is not None or not report.is_unchanged)
    if is_written:
        lost = keep_reanchored(report, truth, target)
    console = Console()
    if as_json:
        written = {"written": str(target) if is_written else None, "lost_file": str(lost) if lost else None}
        console.file.write(json.dumps(_as_data(report) | written, ensure_ascii=False, indent=2) + "\n")
    else:
        print_report(console, report, {item.query.id: item.query.text for item in items}, str(truth))
        unwritten = "Nothing to write." if report.is_unchanged else "Nothing was written."
        where = f"Written to {target}" + (f"; what was lost is in {lost}" if lost else "")
        say(console, where if is_written else unwritten)
    if report.counts["lost"]:
        raise typer.Exit(1)


def reanchored(
    truth: "Sequence[TokenLevelGroundTruth]", corpus: "Corpus", old: Path | None, workspace: str, glob: str
) -> "ReanchorReport":
    """The truth carried over with the versions of a folder and of a workspace."""
    from rag_eval.ground_truth.drift import documents_that_no_longer_match, reanchor
    from rag_eval.pipeline.old_documents import document_versions
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.types.document import Corpus

    versions = document_versions(Workspace.at(workspace), documents_that_no_longer_match(truth, corpus))
    for document in Corpus.from_folder(old, glob) if old is not None else ():
        versions.setdefault(document.id, []).insert(0, document.content)
    return reanchor(truth, corpus, versions)


def print_report(console: "Console", report: "ReanchorReport", queries: dict[str, str], name: str) -> None:
    """Print the counts, the documents that have changed, and the spans that are not what they were."""
    from flows.cli.text import say
    from rag_eval.ground_truth.records import query_name
    from rag_eval.wording import counted

    total = f"{counted(len(report.spans), 'spans')} in {counted(len(report.documents), 'documents')}"
    say(console, f"{name}: {total}: {summary(report)}")
    changed = [document for document in report.documents if document.way != "unchanged"]
    if changed:
        console.print(documents_table(changed))
    told = [outcome for outcome in report.spans if outcome.status in ("altered", "lost")]
    for outcome in told[:SHOWN_SPANS]:
        say(console, f"  {query_name(outcome.query_id, queries[outcome.query_id])}: {_sentence(outcome)}")
    if len(told) > SHOWN_SPANS:
        say(console, f"  … and {len(told) - SHOWN_SPANS:,} more: --json lists them")
    if report.unanswered:
        count = counted(len(report.unanswered), "queries")
        say(console, f"{count} lost every span and {'is' if len(report.unanswered) == 1 else 'are'} left out.")


def summary(report: "ReanchorReport") -> str:
    """The counts in a few words."""
    return ", ".join(f"{count:,} {status}" for status, count in report.counts.items() if count) or "no spans"


def documents_table(documents: "Sequence[DocumentOutcome]") -> "Table":
    """The documents, how their spans were found again and what became of them."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from flows.cli.text import visible
    from rag_eval.ground_truth.drift.outcomes import STATUSES
    from rag_eval.wording import counted

    rest = len(documents) - SHOWN_DOCUMENTS
    caption = f"{counted(rest, 'documents')} more: --json lists them" if rest > 0 else None
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    table.add_column("document", overflow="fold")
    table.add_column("found by")
    for status in STATUSES:
        table.add_column(status, justify="right")
    for one in documents[:SHOWN_DOCUMENTS]:
        table.add_row(Text(visible(one.doc_id)), WAYS[one.way], *(f"{one.counts[status]:,}" for status in STATUSES))
    return table


def _sentence(outcome: "SpanOutcome") -> str:
    from rag_eval.errors import preview
    from rag_eval.ground_truth.check import contrasted

    old, new = outcome.old, outcome.new
    place = f"{old.doc_id!r} [{old.start}, {old.end})"
    if new is None:
        return f"lost ({outcome.reason}): {place} {preview(old.text)}"
    now, before = contrasted(new.text, old.text)
    return f"altered: {place} {before} is now [{new.start}, {new.end}) {now}"


def _as_data(report: "ReanchorReport") -> dict[str, object]:
    return {
        "counts": report.counts,
        "unanswered": [item.query.id for item in report.unanswered],
        "documents": [asdict(document) for document in report.documents],
        "spans": [asdict(outcome) for outcome in report.spans],
    }
