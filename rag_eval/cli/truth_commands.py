"""``rag-eval truth``: import, check, review, re-anchor, push and pull ground truth.

Heavy imports stay inside the functions.
"""

import os
import shlex
import webbrowser
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rag_eval.cli import options
from rag_eval.cli.console import NO_BROWSER, print_json, print_table, say
from rag_eval.cli.processes import Stopped, leaving, watched
from rag_eval.cli.publish_commands import push
from rag_eval.cli.result_commands import RunArgument
from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import cost_in_words, counted, percent
from rag_eval.ground_truth.importing import IMPORTERS, import_truth
from rag_eval.storage.files import patterns_of
from rag_eval.types.documents import Corpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag_eval.ground_truth.check import Finding, TruthAudit
    from rag_eval.ground_truth.drift import ReanchorReport, SpanOutcome, Way
    from rag_eval.ground_truth.importing.output import ImportSummary
    from rag_eval.ground_truth.pooling import Judging, PassageJudge
    from rag_eval.ground_truth.truth_files import Truth
    from rag_eval.llm.writing import Answers
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.results.outcome import BenchmarkOutcome

SHOWN = 3
DEFAULT_OUTPUT = Path("truth.jsonl")


def import_(
    kind: Annotated[str, typer.Argument(help=f"Format: {', '.join(IMPORTERS)} or langsmith.")],
    source: Annotated[str, typer.Argument(metavar="PATH", help="File or folder; for langsmith the name of a dataset.")],
    output: Annotated[Path, typer.Option(help="Ground-truth file to write.")] = DEFAULT_OUTPUT,
    corpus_output: Annotated[
        Path | None,
        typer.Option(help="Folder to write the documents to; by default only those that no folder holds yet."),
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="Folder of documents, if it is not next to the file.")] = None,
    glob: Annotated[list[str] | None, typer.Option(help="Pattern of the document files; may be repeated.")] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of a BEIR dataset; by default test, or the only one.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Convert ground truth of another format to a native file; exit code 1 if something had to be left out."""
    from rag_eval.ground_truth.importing.output import write_import
    from rag_eval.services.langsmith_truth import read_langsmith

    found = import_truth(kind, source, {"langsmith": read_langsmith}, corpus=corpus, glob=glob or None, split=split)
    summary = write_import(found, output, corpus_output, overwrite=overwrite)
    console = Console()
    if as_json:
        print_json(console, summary.as_data())
    else:
        print_summary(console, summary)
    if summary.left_out:
        raise typer.Exit(1)


def print_summary(console: Console, summary: "ImportSummary") -> None:
    """Print what was imported, everything that did not go straight, and what to do next."""
    noun = "spans" if summary.evaluation_type == "token-level" else "chunk ids"
    unanswerable = f" ({summary.unanswerable:,} unanswerable)" if summary.unanswerable else ""
    valid = ", every one as its document has it" if summary.documents else ""
    say(
        console,
        f"Imported {counted(summary.queries, 'queries')}{unanswerable} with {counted(summary.answers, noun)}{valid}.",
    )
    if summary.repeated:
        share = f"{percent(summary.repeated_share, 1)} of the truth's text"
        verb = "have" if summary.repeated != 1 else "has"
        say(console, f"{summary.repeated:,} of them {verb} a text that occurs more than once, {share}.")
    for title, kinds, style in (("Left out", summary.left_out, "yellow"), ("Mended", summary.mended, "bold")):
        for kind, places in kinds.items():
            say(console, f"{title}: {kind}: {len(places):,}", style)
            say_some(console, places, SHOWN)
    say(console, f"The ground truth is in {summary.truth}")
    if summary.corpus is not None:
        verb = "are" if summary.documents != 1 else "is"
        say(console, f"Its {counted(summary.documents, 'documents')} {verb} in {summary.corpus}")
    if summary.other_files:
        say(console, f"That folder holds {counted(summary.other_files, 'files')} besides.", "yellow")
    if summary.next_command:
        say(console, f"Next: {summary.next_command}")


def say_some(console: Console, lines: "Sequence[str]", most: int) -> None:
    """Print the first lines, and how many more there are."""
    for line in lines[:most]:
        say(console, f"  {line}")
    if len(lines) > most:
        say(console, f"  … and {len(lines) - most:,} more: --json lists them", "dim")


def pull(
    dataset: Annotated[str, typer.Argument(help="Name of the LangSmith dataset.")],
    output: Annotated[Path, typer.Option(help="Ground-truth file to write.")] = DEFAULT_OUTPUT,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
) -> None:
    """Write the ground truth of a LangSmith dataset to a file."""
    import_("langsmith", dataset, output, overwrite=overwrite)


def review(
    truth: Annotated[Path, typer.Argument(help="Ground-truth file (JSON lines); decisions are saved to it.")],
    corpus: Annotated[Path, typer.Option(help=options.DOCUMENTS)],
    glob: options.DocumentGlobOption = options.DOCUMENT_GLOB,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 picks a free one.")] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address without opening a browser.")
    ] = False,
) -> None:
    """Judge questions and passages in the browser, by keyboard, on a page that only this machine can reach.

    Several people may review one file at the same time: each sees the decisions of the others, and the last one counts.
    """
    from rag_eval.ground_truth.review.app import serve_review

    console = Console()

    def started(address: str) -> None:
        say(console, f"Review at {address}")
        say(console, "Every decision is saved at once; Ctrl+C ends the review.")
        if not no_browser and not webbrowser.open(address):
            say(console, NO_BROWSER, "yellow")

    try:
        serve_review(truth, *options.documents_at(corpus, glob), port, on_start=started)
    except Stopped:
        say(console, "Ended; every decision is saved.")


SHOWN_REMARKS = 5
SHOWN_FAULTS = 50
SHOWN_DOCUMENTS = 20


def check(
    truth: Annotated[Path, typer.Argument(help="Ground-truth file (JSON lines).")],
    corpus: Annotated[Path | None, typer.Option(help=options.DOCUMENTS)] = None,
    glob: options.DocumentGlobOption = options.DOCUMENT_GLOB,
    fix: Annotated[
        bool, typer.Option("--fix", help="Write to the file what its documents leave no doubt about.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Check every span against its document; exit code 1 if one does not match."""
    from rag_eval.ground_truth.check import REANCHORING, audit_chunk_level, audit_token_level
    from rag_eval.ground_truth.fixing import fix_truth, fixed_truth
    from rag_eval.ground_truth.truth_files import read_truth_text, truth_type

    text = read_truth_text(truth)
    is_chunk_level = truth_type(text) == "chunk-level"
    if corpus is None and not is_chunk_level:
        raise ConfigurationError("spans are checked against their documents: give their folder with --corpus")
    documents = options.read_documents(corpus, glob) if corpus and not is_chunk_level else None
    fixed = fix_truth(truth, documents) if fix else []
    text = read_truth_text(truth) if fixed else text
    audit = audit_token_level(text, documents) if documents else audit_chunk_level(text)
    console = Console()
    if as_json:
        derived = {"valid": audit.is_valid, "repeated": audit.repeated, "repeated_share": audit.repeated_share}
        coverage = [asdict(one) | {"share": one.share} for one in audit.coverage]
        told = {"fixed": list(map(asdict, fixed))} if fix else {}
        print_json(console, asdict(audit) | derived | {"coverage": coverage} | told)
    else:
        if fix:
            say(console, f"{truth}: {counted(len(fixed), 'places')} corrected", "bold")
            say_some(console, list(map(_sentence, fixed)), SHOWN_FAULTS)
        print_audit(console, audit, truth)
        if audit.faults and not fix and (sure := fixed_truth(text, documents)[1]):
            say(
                console, f"--fix corrects {counted(len(sure), 'places')}, where there is no doubt about what was meant."
            )
        if any(fault.doc_id for fault in audit.faults):
            say(console, f"{REANCHORING}.")
    if not audit.is_valid:
        raise typer.Exit(1)


def print_audit(console: Console, audit: "TruthAudit", truth: Path) -> None:
    """Print the counts, the first faults, the remarks by kind, and the documents with the truth they hold."""
    if audit.evaluation_type == "token-level":
        noun, valid = "spans", "all valid" if audit.is_valid else f"{audit.valid_answers:,} of them valid"
    else:
        noun, valid = "chunk ids", "which a run holds against the chunks of their chunker"
    unanswerable = f" ({audit.unanswerable:,} unanswerable)" if audit.unanswerable else ""
    found = f"{counted(audit.queries, 'queries')}{unanswerable}, {counted(audit.answers, noun)}, {valid}"
    say(console, f"{truth}: {found}")
    if sum(audit.leakage.values()):
        bins = ", ".join(f"{kind} {count:,}" for kind, count in audit.leakage.items())
        say(console, f"questions by the share of their words that is copied from their passages: {bins}")
    if audit.faults:
        console.print()
        say(console, counted(len(audit.faults), "faults"), "bold red")
        kinds = Counter(finding.kind for finding in audit.faults)
        if len(audit.faults) > SHOWN_FAULTS and len(kinds) > 1:
            say(console, f"  by kind: {', '.join(f'{kind} {count:,}' for kind, count in kinds.most_common())}")
        say_some(console, [_sentence(finding) for finding in audit.faults], SHOWN_FAULTS)
    for kind in dict.fromkeys(remark.kind for remark in audit.remarks):
        remarks = [remark for remark in audit.remarks if remark.kind == kind]
        share = f", {percent(audit.repeated_share, 1)} of the truth's text" if kind == "occurs more than once" else ""
        console.print()
        say(console, f"{kind}: {len(remarks):,}{share}", "bold")
        say_some(console, [_sentence(finding) for finding in remarks], SHOWN_REMARKS)
    asked = sorted((one for one in audit.coverage if one.spans), key=lambda one: (-one.spans, one.doc_id))
    if asked:
        rest = len(audit.coverage) - len(asked)
        rows = [
            [one.doc_id]
            + [f"{count:,}" for count in (one.queries, one.spans, one.truth_characters, one.characters)]
            + [percent(one.share, 1)]
            for one in asked
        ]
        columns = dict.fromkeys(("queries", "spans", "truth", "characters", "share"), True)
        console.print()
        print_documents(console, columns, rows, f"{counted(rest, 'documents')} without truth" if rest else "")


def print_documents(
    console: Console, columns: dict[str, bool], rows: "Sequence[Sequence[str]]", note: str = ""
) -> None:
    """Print documents by name with further columns; of many the first, and how many more there are."""
    more = len(rows) - SHOWN_DOCUMENTS
    notes = [note, f"{counted(more, 'documents')} more: --json lists them" if more > 0 else ""]
    caption = "; ".join(filter(None, notes)) or None
    print_table(console, {"document": False} | columns, rows[:SHOWN_DOCUMENTS], caption=caption)


def _sentence(finding: "Finding") -> str:
    from rag_eval.ground_truth.records import query_name

    if finding.query is None:
        return f"line {finding.line}: {finding.message}"
    name = query_name(finding.query_id, finding.query) if finding.query_id else preview(finding.query)
    return f"line {finding.line}, {name}: {finding.message}"


SHOWN_SPANS = 20
WAYS: "dict[Way, str]" = {
    "unchanged": "nothing to do",
    "diff": "its earlier version",
    "text": "the spans' text",
    "gone": "nothing: it is gone",
}


def reanchor(
    truth: Annotated[Path, typer.Argument(help="Ground-truth file (JSON lines) of character spans.")],
    corpus: Annotated[Path, typer.Option(help="Folder of the current documents, or the benchmark file that names it.")],
    old: Annotated[
        Path | None, typer.Option(help="Folder of the documents that the ground truth was written for.")
    ] = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    glob: options.DocumentGlobOption = options.DOCUMENT_GLOB,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change without writing.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Move spans to where their text is in changed documents; exit code 1 if one is lost.

    Spans follow the differences to an earlier version, from --old or from earlier runs in the workspace. Without one, a
    span is found by its text. Only the lines of queries whose spans change are rewritten.
    """
    from rag_eval.ground_truth import drift
    from rag_eval.ground_truth.truth_files import read_token_level
    from rag_eval.pipeline.ground_truth_steps import document_versions

    documents = options.read_documents(corpus, glob)
    items = read_token_level(truth, documents.by_id)
    versions = document_versions(workspace, drift.documents_that_no_longer_match(items, documents))
    _, patterns, loaders = options.documents_at(corpus, glob)
    for document in Corpus.from_folder(old, patterns, loaders) if old is not None else ():
        versions.setdefault(document.id, []).insert(0, document.content)
    report = drift.reanchor(items, documents, versions)
    drift.check_not_empty(report)
    is_written = not (dry_run or report.is_unchanged)
    lost = drift.write_reanchored(report, truth, documents.by_id) if is_written else None
    console = Console()
    if as_json:
        data = {
            "counts": report.counts,
            "unanswered": [item.query.id for item in report.unanswered],
            "documents": [asdict(document) for document in report.documents],
            "spans": [asdict(outcome) for outcome in report.spans],
            "written": str(truth) if is_written else None,
            "lost_file": str(lost) if lost else None,
        }
        print_json(console, data)
    else:
        print_reanchoring(console, report, {item.query.id: item.query.text for item in items}, str(truth))
        unwritten = "Nothing to write." if report.is_unchanged else "Nothing was written."
        written = f"Written to {truth}" + (f"; what was lost is in {lost}" if lost else "")
        say(console, written if is_written else unwritten)
    if report.counts["lost"]:
        raise typer.Exit(1)


def print_reanchoring(console: Console, report: "ReanchorReport", queries: dict[str, str], name: str) -> None:
    """Print the counts, the documents that have changed, and the spans that are not what they were."""
    from rag_eval.ground_truth.drift import STATUSES

    total = f"{counted(len(report.spans), 'spans')} in {counted(len(report.documents), 'documents')}"
    say(console, f"{name}: {total}: {summary(report)}")
    changed = [document for document in report.documents if document.way != "unchanged"]
    if changed:
        rows = [(one.doc_id, WAYS[one.way], *(f"{one.counts[status]:,}" for status in STATUSES)) for one in changed]
        print_documents(console, {"found by": False} | dict.fromkeys(STATUSES, True), rows)
    told = [outcome for outcome in report.spans if outcome.status in ("altered", "lost")]
    say_some(console, [_outcome(outcome, queries[outcome.query_id]) for outcome in told], SHOWN_SPANS)
    if report.unanswered:
        count = counted(len(report.unanswered), "queries")
        say(console, f"{count} lost every span and {'is' if len(report.unanswered) == 1 else 'are'} left out.")


def summary(report: "ReanchorReport") -> str:
    """The counts in a few words."""
    return ", ".join(f"{count:,} {status}" for status, count in report.counts.items() if count) or "no spans"


def _outcome(outcome: "SpanOutcome", query: str) -> str:
    from rag_eval.ground_truth.check import contrasted
    from rag_eval.ground_truth.records import query_name

    old, new = outcome.old, outcome.new
    name, place = query_name(outcome.query_id, query), f"{old.doc_id!r} [{old.start}, {old.end})"
    if new is None:
        return f"{name}: lost ({outcome.reason}): {place} {preview(old.text)}"
    now, before = contrasted(new.text, old.text)
    return f"{name}: altered: {place} {before} is now [{new.start}, {new.end}) {now}"


def pool(
    run: RunArgument = "latest",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Ground-truth file to write; an existing one is added to.")
    ] = Path("truth.judged.jsonl"),
    k: Annotated[int, typer.Option(min=1, help="Number of hits of each configuration to pool.")] = 5,
    sample: Annotated[
        int, typer.Option(min=0, help="Draw this many pooled passages at random, for people to judge.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the sample.")] = 0,
    judge: Annotated[str | None, typer.Option(metavar="MODEL", help="Model that grades every pooled passage.")] = None,
    base_url: options.BaseUrlOption = None,
    max_cost: options.MaxCostOption = None,
    input_price: options.InputPriceOption = None,
    output_price: options.OutputPriceOption = None,
    concurrency: options.RequestsOption = 4,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Pool what a run retrieved and nobody judged, and have it judged; exit code 1 if a model left some out.

    The passages are in the metadata of the questions, to be judged with rag-eval truth review.
    """
    from rag_eval.ground_truth.pooling import PassageJudge, draw_sample, with_grades
    from rag_eval.ground_truth.review.entries import lock_path
    from rag_eval.ground_truth.sources import read_truth
    from rag_eval.ground_truth.truth_files import write_truth
    from rag_eval.llm.writing import Answers
    from rag_eval.reports.unjudged import pooled_truth
    from rag_eval.results.runs import read_run
    from rag_eval.storage.locks import wait_for_lock

    outcome = read_run(workspace, run)
    level = outcome.inputs.evaluation_type
    with wait_for_lock(lock_path(output)):  # people may be reviewing it
        items = pooled_truth(workspace, outcome, k, list(read_truth(output, level)) if output.is_file() else None)
        items = draw_sample(items, sample, seed) if sample else items
        write_truth(output, items)
    report: dict[str, object] = {"run": outcome.run, "output": str(output)}
    console, ungraded = Console(), 0
    if judge is not None:
        grader = PassageJudge(
            judge,
            base_url=base_url,
            max_cost=max_cost,
            input_price=input_price,
            output_price=output_price,
            concurrency=concurrency,
        )
        answers = Answers(workspace.root / "cache" / "answers", workspace.storage)
        judging = _judging(workspace, outcome, items, grader, answers)
        with wait_for_lock(lock_path(output)):
            items = with_grades(read_truth(output, level), judge, judging.grades)
            write_truth(output, items)
        graded, ungraded = len(judging.grades), judging.ungraded
        paid = {"paid_calls": answers.fresh, "tokens": answers.tokens, "cost": answers.cost}
        report["judge"] = {"model": judge, "graded": graded, "not_graded": ungraded, **paid}
        if not as_json:
            requests = f"{counted(answers.fresh, 'requests')} paid, {cost_in_words(answers.cost)}"
            say(console, f"{judge} graded {counted(graded, 'passages')} ({requests}).")
    counts = _passage_counts(items)
    if as_json:
        print_json(console, report | {"passages": counts})
    else:
        shares = ", ".join(f"{count:,} {what}" for what, count in counts.items())
        say(console, f"Passages that were retrieved and were not in the ground truth: {shares}.")
        say(console, f"They are in {output}, to be judged with {_review_command(output, outcome)}")
    if ungraded:
        say(console, f"{counted(ungraded, 'passages')} have no grade: run again with a higher --max-cost.")
        raise typer.Exit(1)


def _judging(
    workspace: "Workspace",
    outcome: "BenchmarkOutcome",
    truth: "Sequence[Truth]",
    judge: "PassageJudge",
    answers: "Answers",
) -> "Judging":
    """Have a model grade pooled passages, in a thread, so that an interrupt ends waiting."""
    from rag_eval.ground_truth.pooling import judge_passages
    from rag_eval.reports.unjudged import passage_texts

    texts = passage_texts(workspace, outcome)
    workspace.fetch_missing(answers.folder)
    with leaving("what was answered is stored, and the same command continues"):
        return watched(lambda: judge_passages(truth, judge, answers, texts))


def _review_command(truth: Path, outcome: "BenchmarkOutcome") -> str:
    """Return the command that reviews ground truth on the documents of a run."""
    words = ["rag-eval", "truth", "review", str(truth), "--corpus", os.path.relpath(outcome.corpus.folder)]
    if (patterns := patterns_of(outcome.corpus.glob)) != options.DOCUMENT_GLOB:
        words += [word for pattern in patterns for word in ("--glob", pattern)]
    return shlex.join(words)


def _passage_counts(truth: "Sequence[Truth]") -> dict[str, int]:
    """Count the pooled passages: all, those without a grade, the relevant ones, and those drawn for people."""
    from rag_eval.types.evidence import RELEVANT_GRADE, judgements

    passages = [one for item in truth for one in judgements(item.query) if one.is_pooled]
    return {
        "pooled": len(passages),
        "waiting": sum(one.grade is None for one in passages),
        "relevant": sum((one.grade or 0) >= RELEVANT_GRADE for one in passages),
        "sampled": sum(one.sampled for one in passages),
    }


app = typer.Typer(help="Import, check, review, re-anchor, push and pull ground truth.", no_args_is_help=True)
app.command("import")(import_)
for command in (check, review, reanchor, pool, push, pull):
    app.command()(command)
