"""``rag-eval truth``: import, check, review, re-anchor, pool and push ground truth."""

import os
import shlex
import webbrowser
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rag_eval.cli import options
from rag_eval.cli.console import NO_BROWSER, print_json, say
from rag_eval.cli.processes import Stopped, leaving, watched
from rag_eval.cli.publish_commands import push
from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import cost_in_words, counted
from rag_eval.ground_truth.importing import IMPORTERS, import_truth
from rag_eval.storage.files import patterns_of
from rag_eval.types.documents import Corpus

if TYPE_CHECKING:
    from rag_eval.ground_truth.check import Finding, TruthAudit
    from rag_eval.ground_truth.drift import ReanchorReport, SpanOutcome
    from rag_eval.ground_truth.importing.output import ImportSummary
    from rag_eval.ground_truth.truth_files import Truth
    from rag_eval.results.outcome import BenchmarkOutcome

MOST_PLACES, MOST_REMARKS, MOST_FAULTS, MOST_SPANS = 3, 5, 50, 20
"""How many lines of each kind are printed; --json prints all of them."""
TruthArgument = Annotated[Path, typer.Argument(help="Ground-truth file (JSON lines).")]
OutputOption = Annotated[Path, typer.Option("--output", "-o", help="Ground-truth file to write.")]
DEFAULT_OUTPUT = Path("truth.jsonl")


def import_(
    kind: Annotated[str, typer.Argument(help=f"Format: {', '.join(IMPORTERS)} or langsmith.")],
    source: Annotated[str, typer.Argument(metavar="PATH", help="File or folder, or name of a LangSmith dataset.")],
    output: OutputOption = DEFAULT_OUTPUT,
    corpus_output: Annotated[
        Path | None,
        typer.Option(help="Folder to write the documents to.", show_default="beside the file, if not in a folder yet"),
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Folder of documents.", show_default="found beside the file")
    ] = None,
    glob: Annotated[list[str] | None, typer.Option(help="Pattern of document files; repeatable.")] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of a BEIR dataset.", show_default="test, or the only one")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Convert ground truth from another format; exit code 1 if something was left out."""
    from rag_eval.ground_truth.importing.output import write_import
    from rag_eval.services.langsmith_truth import read_langsmith

    imported = import_truth(kind, source, {"langsmith": read_langsmith}, corpus=corpus, glob=glob or None, split=split)
    summary = write_import(imported, output, corpus_output, overwrite=overwrite)
    console = Console()
    if as_json:
        print_json(console, summary.as_data())
    else:
        print_summary(console, summary)
    if summary.left_out:
        raise typer.Exit(1)


def print_summary(console: Console, summary: "ImportSummary") -> None:
    """Print what was imported, left out and corrected, and the next command."""
    noun = "spans" if summary.evaluation_type == "token-level" else "chunk ids"
    unanswerable = f" ({summary.unanswerable:,} unanswerable)" if summary.unanswerable else ""
    verified = ", all matching their documents" if summary.documents else ""
    answers = f"{counted(summary.answers, noun)}{verified}"
    say(console, f"Imported {counted(summary.queries, 'queries')}{unanswerable} with {answers}.")
    for title, kinds, style in (("Left out", summary.left_out, "yellow"), ("Corrected", summary.mended, "bold")):
        for kind, places in kinds.items():
            say(console, f"{title}: {kind}: {len(places):,}", style)
            say_some(console, places, MOST_PLACES)
    say(console, f"Ground truth: {summary.truth}")
    if summary.corpus is not None:
        say(console, f"Documents: {summary.corpus} ({summary.documents:,})")
    if summary.other_files:
        say(console, f"That folder also holds {counted(summary.other_files, 'other files')}.", "yellow")
    if summary.next_command:
        say(console, f"Next: {summary.next_command}")


def say_some(console: Console, lines: Sequence[str], most: int) -> None:
    """Print the first lines, and how many more there are."""
    for line in lines[:most]:
        say(console, f"  {line}")
    if len(lines) > most:
        say(console, f"  … and {len(lines) - most:,} more, listed by --json", "dim")


def review(
    truth: Annotated[Path, typer.Argument(help="Ground-truth file (JSON lines); decisions are saved to it.")],
    corpus: Annotated[Path, typer.Option(help=options.DOCUMENTS)],
    glob: options.DocumentGlobOption = options.DOCUMENT_GLOB,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page (0: any free port).")] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address without opening a browser.")
    ] = False,
) -> None:
    """Review questions and passages in the browser, on a page that only this machine can reach.

    Several people can review one file at the same time: each sees the decisions of the others, and the last one counts.
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
        say(console, "Review ended; every decision is saved.")


def check(
    truth: TruthArgument,
    corpus: Annotated[Path | None, typer.Option(help=options.DOCUMENTS)] = None,
    glob: options.DocumentGlobOption = options.DOCUMENT_GLOB,
    fix: Annotated[
        bool, typer.Option("--fix", help="Correct mistakes that have only one possible correction.")
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
        raise ConfigurationError(f"{str(truth)!r} has spans, which need their documents: give the folder with --corpus")
    documents = options.read_documents(corpus, glob) if corpus and not is_chunk_level else None
    fixed = fix_truth(truth, documents) if fix else []
    text = read_truth_text(truth) if fixed else text
    audit = audit_token_level(text, documents) if documents else audit_chunk_level(text)
    console = Console()
    if as_json:
        data = asdict(audit) | {"valid": audit.is_valid}
        print_json(console, data | ({"fixed": list(map(asdict, fixed))} if fix else {}))
    else:
        if fix:
            say(console, f"{truth}: {counted(len(fixed), 'places')} corrected", "bold")
            say_some(console, list(map(_sentence, fixed)), MOST_FAULTS)
        print_audit(console, audit, truth)
        if audit.faults and not fix and (fixable := fixed_truth(text, documents)[1]):
            say(console, f"--fix corrects {counted(len(fixable), 'places')} that have only one possible correction.")
        if any(fault.doc_id for fault in audit.faults):
            say(console, f"{REANCHORING}.")
    if not audit.is_valid:
        raise typer.Exit(1)


def print_audit(console: Console, audit: "TruthAudit", truth: Path) -> None:
    """Print the counts, the first faults, and the remarks by kind."""
    if audit.evaluation_type == "token-level":
        noun, valid = "spans", "all valid" if audit.is_valid else f"{audit.valid_answers:,} of them valid"
    else:
        noun, valid = "chunk ids", "which a run checks against its chunks"
    unanswerable = f" ({audit.unanswerable:,} unanswerable)" if audit.unanswerable else ""
    say(console, f"{truth}: {counted(audit.queries, 'queries')}{unanswerable}, {counted(audit.answers, noun)}, {valid}")
    if sum(audit.leakage.values()):
        bins = ", ".join(f"{kind} {count:,}" for kind, count in audit.leakage.items())
        say(console, f"questions by the share of their words copied from their passages: {bins}")
    if audit.faults:
        console.print()
        say(console, counted(len(audit.faults), "faults"), "bold red")
        kinds = Counter(finding.kind for finding in audit.faults)
        if len(audit.faults) > MOST_FAULTS and len(kinds) > 1:
            say(console, f"  by kind: {', '.join(f'{kind} {count:,}' for kind, count in kinds.most_common())}")
        say_some(console, list(map(_sentence, audit.faults)), MOST_FAULTS)
    remarks: dict[str, list[Finding]] = {}
    for remark in audit.remarks:
        remarks.setdefault(remark.kind, []).append(remark)
    for kind, found in remarks.items():
        console.print()
        say(console, f"{kind}: {len(found):,}", "bold")
        say_some(console, list(map(_sentence, found)), MOST_REMARKS)


def _sentence(finding: "Finding") -> str:
    from rag_eval.ground_truth.records import query_name

    if finding.query is None:
        return f"line {finding.line}: {finding.message}"
    name = query_name(finding.query_id, finding.query) if finding.query_id else preview(finding.query)
    return f"line {finding.line}, {name}: {finding.message}"


def reanchor(
    truth: TruthArgument,
    corpus: Annotated[Path, typer.Option(help=options.DOCUMENTS)],
    old: Annotated[
        Path | None,
        typer.Option(help="Folder with the version of the documents that the ground truth was written for."),
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
    if old is not None:
        for document in Corpus.from_folder(old, *options.documents_at(corpus, glob)[1:]):
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
            "spans": [asdict(outcome) for outcome in report.spans],
            "written": str(truth) if is_written else None,
            "lost_file": str(lost) if lost else None,
        }
        print_json(console, data)
    else:
        print_reanchoring(console, report, {item.query.id: item.query.text for item in items}, str(truth))
        unwritten = "Nothing to write." if report.is_unchanged else "Nothing was written."
        written = f"Written to {truth}" + (f"; the lost spans are in {lost}" if lost else "")
        say(console, written if is_written else unwritten)
    if report.counts["lost"]:
        raise typer.Exit(1)


def print_reanchoring(console: Console, report: "ReanchorReport", queries: dict[str, str], name: str) -> None:
    """Print the counts, and the altered or lost spans."""
    doc_ids = {outcome.old.doc_id for outcome in report.spans}
    say(
        console,
        f"{name}: {counted(len(report.spans), 'spans')} in {counted(len(doc_ids), 'documents')}: {summary(report)}",
    )
    changed = [outcome for outcome in report.spans if outcome.status in ("altered", "lost")]
    say_some(console, [_outcome(outcome, queries[outcome.query_id]) for outcome in changed], MOST_SPANS)
    if report.unanswered:
        verb = "is" if len(report.unanswered) == 1 else "are"
        say(console, f"{counted(len(report.unanswered), 'queries')} lost every span and {verb} left out.")


def summary(report: "ReanchorReport") -> str:
    """Return the counts in a few words."""
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
    run: options.RunArgument = "latest",
    output: OutputOption = Path("truth.judged.jsonl"),
    k: Annotated[int, typer.Option(min=1, help="Number of hits of each configuration to pool.")] = 5,
    sample: Annotated[
        int, typer.Option(min=0, help="Mark this many randomly chosen passages for people to judge.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the sample.")] = 0,
    judge: Annotated[str | None, typer.Option(metavar="MODEL", help="Model to grade every pooled passage.")] = None,
    base_url: options.BaseUrlOption = None,
    max_cost: options.MaxCostOption = None,
    input_price: options.InputPriceOption = None,
    output_price: options.OutputPriceOption = None,
    concurrency: options.RequestsOption = 4,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Pool retrieved passages that nobody has judged, and have a model judge them; exit code 1 if some are left.

    Existing ground truth in the output file is kept. People judge the passages with rag-eval truth review.
    """
    from rag_eval.ground_truth.pooling import PassageJudge, draw_sample, judge_passages, with_grades
    from rag_eval.ground_truth.review.entries import lock_path
    from rag_eval.ground_truth.truth_files import read_truth, write_truth
    from rag_eval.llm.writing import Answers
    from rag_eval.reports.unjudged import passage_texts, pooled_truth
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
        texts = passage_texts(workspace, outcome)
        workspace.fetch_missing(answers.folder)
        with leaving("answers are saved, and the same command continues from there"):
            judging = watched(lambda: judge_passages(items, grader, answers, texts))
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
        shares = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
        say(console, f"Retrieved passages outside the ground truth: {shares}.")
        say(console, f"They are in {output}; judge them with {_review_command(output, outcome)}")
    if ungraded:
        say(console, f"{counted(ungraded, 'passages')} have no grade: run again with a higher --max-cost.")
        raise typer.Exit(1)


def _review_command(truth: Path, outcome: "BenchmarkOutcome") -> str:
    """Return the command that reviews ground truth on the documents of a run."""
    words = ["rag-eval", "truth", "review", str(truth), "--corpus", os.path.relpath(outcome.corpus.folder)]
    if (patterns := patterns_of(outcome.corpus.glob)) != options.DOCUMENT_GLOB:
        words += [word for pattern in patterns for word in ("--glob", pattern)]
    return shlex.join(words)


def _passage_counts(truth: "Sequence[Truth]") -> dict[str, int]:
    """Count the pooled passages: all, those without a grade, the relevant ones, and those sampled for people."""
    from rag_eval.types.evidence import RELEVANT_GRADE, judgements

    passages = [passage for item in truth for passage in judgements(item.query) if passage.is_pooled]
    return {
        "pooled": len(passages),
        "waiting": sum(passage.grade is None for passage in passages),
        "relevant": sum((passage.grade or 0) >= RELEVANT_GRADE for passage in passages),
        "sampled": sum(passage.sampled for passage in passages),
    }


app = typer.Typer(help="Import, check, review, re-anchor, pool and push ground truth.", no_args_is_help=True)
app.command("import")(import_)
for command in (check, review, reanchor, pool, push):
    app.command()(command)
