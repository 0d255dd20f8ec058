"""What became of a generation, as Markdown."""

from rag_eval.generation.ledger import ChatUsage
from rag_eval.generation.report import GenerationReport
from rag_eval.reports.markdown import escape_markdown
from rag_eval.wording import counted


def generation_markdown(report: GenerationReport) -> str:
    """How many questions were kept, why others were not, and what it took."""
    stopped = [
        f"Stopped: {escape_markdown(report.stopped or '')}; {counted(report.unasked, 'questions')} not asked",
        "",
    ]
    documents, model = counted(report.documents, "documents"), escape_markdown(report.model)
    lines = [
        f"# {report.kept:,} of {counted(report.asked, 'questions')} kept",
        "",
        f"{report.evaluation_type} ground truth for {documents} by {model}",
        "",
        *(stopped if report.stopped else []),
        "| dropped because | questions | such as |",
        "|---|---:|---|",
        *(
            f"| {reason} | {dropped.count} | {escape_markdown(dropped.examples[0])} |"
            for reason, dropped in report.dropped.items()
        ),
        "",
        "| purpose | paid | cost | from the cache | failed |",
        "|---|---|---:|---|---:|",
        *(
            f"| {entry.purpose} | {usage_in_words(entry.fresh)} | {cost_in_words(entry.fresh.cost)} "
            f"| {usage_in_words(entry.cached)} | {entry.failed} |"
            for entry in report.ledger
        ),
    ]
    return "\n".join(lines) + "\n"


def usage_in_words(usage: ChatUsage) -> str:
    """Such as ``3 calls, 1,200 + 340 tokens``."""
    return f"{counted(usage.calls, 'calls')}, {usage.input_tokens:,} + {usage.output_tokens:,} tokens"


def cost_in_words(cost: float | None) -> str:
    """US dollars, to a hundredth of a cent; ``unknown`` without prices."""
    return "unknown" if cost is None else f"${cost:,.4f}"
