"""``rag-eval truth import``: ground truth from other people's formats."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import JsonOption

if TYPE_CHECKING:
    from rich.console import Console

    from rag_eval.ground_truth.importing.summary import ImportSummary

SHOWN = 3
DEFAULT_OUTPUT = Path("truth.jsonl")


def import_(
    kind: Annotated[str, typer.Argument(help="chroma, legalbench-rag, beir, squad or langsmith.")],
    source: Annotated[str, typer.Argument(metavar="PATH", help="A file or folder; for langsmith a dataset's name.")],
    output: Annotated[Path, typer.Option(help="Where the ground truth is written.")] = DEFAULT_OUTPUT,
    corpus_output: Annotated[
        Path | None, typer.Option(help="Where the documents are written; by default only those no folder holds yet.")
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="Folder of the documents, if it is not beside the file.")] = None,
    glob: Annotated[str | None, typer.Option(help="Which files of that folder are documents.")] = None,
    split: Annotated[str | None, typer.Option(help="BEIR: which judgements; test, or the only ones.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Turn ground truth of another format into a native file; exit code 1 when something had to be left out."""
    from rich.console import Console

    from rag_eval.ground_truth.importing.kinds import ImportOptions, import_truth
    from rag_eval.ground_truth.importing.output import write_import
    from rag_eval.ground_truth.importing.summary import summarise

    found = import_truth(kind, source, ImportOptions(corpus, glob, split))
    summary = summarise(found, write_import(found, output, corpus_output, overwrite=overwrite))
    console = Console()
    if as_json:
        console.file.write(json.dumps(summary.as_data(), ensure_ascii=False, indent=2) + "\n")
    else:
        print_summary(console, summary)
    if summary.left_out:
        raise typer.Exit(1)


def print_summary(console: "Console", summary: "ImportSummary") -> None:
    """Print what was imported, everything that did not go straight, and what to do next."""
    from flows.cli.text import say
    from rag_eval.wording import counted

    noun = "spans" if summary.evaluation_type == "token-level" else "chunk ids"
    unanswerable = f" ({summary.unanswerable:,} unanswerable)" if summary.unanswerable else ""
    valid = ", every one as its document has it" if summary.documents else ""
    say(
        console,
        f"Imported {counted(summary.queries, 'queries')}{unanswerable} with {counted(summary.answers, noun)}{valid}.",
    )
    if summary.repeated:
        share = f"{summary.repeated_share:.1%} of the truth's text"
        verb = "have" if summary.repeated != 1 else "has"
        say(console, f"{summary.repeated:,} of them {verb} a text that occurs more than once, {share}.")
    for title, kinds, style in (("Left out", summary.left_out, "yellow"), ("Mended", summary.mended, "bold")):
        for kind, places in kinds.items():
            say(console, f"{title}: {kind}: {len(places):,}", style)
            for place in places[:SHOWN]:
                say(console, f"  {place}")
            if len(places) > SHOWN:
                say(console, f"  … and {len(places) - SHOWN:,} more: --json lists them", "dim")
    say(console, f"The ground truth is in {summary.truth}")
    if summary.corpus is not None:
        verb = "are" if summary.documents != 1 else "is"
        say(console, f"Its {counted(summary.documents, 'documents')} {verb} in {summary.corpus}")
    if summary.other_files:
        say(console, f"That folder holds {counted(summary.other_files, 'files')} besides.", "yellow")
    if summary.next_command:
        say(console, f"Next: {summary.next_command}")
