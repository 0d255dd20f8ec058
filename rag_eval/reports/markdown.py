"""Results as Markdown and as rows of a table."""

from rag_eval.pipeline.outcome import BenchmarkOutcome, ConfigurationOutcome, StageWork
from rag_eval.stats.ranks import place_labels


def comparison_rows(outcome: BenchmarkOutcome) -> list[dict[str, str | int | float]]:
    """A row for each configuration, best first, all with the same keys."""
    rows: list[dict[str, str | int | float]] = []
    ranked = outcome.ranked()
    places = place_labels([one.metrics[outcome.ranking_metric] for one in ranked])
    for rank, one in zip(places, ranked, strict=True):
        averages = {name: round(value, 4) for name, value in one.metrics.items()}
        rows.append({"rank": rank, "configuration": one.name, "chunks": one.chunks.count, **averages})
    return rows


def configuration_markdown(outcome: ConfigurationOutcome) -> str:
    """One configuration: its averages, its chunks and its work."""
    chunks = outcome.chunks
    lines = [
        f"# {escape_markdown(outcome.name)}",
        "",
        f"{outcome.queries} queries, {chunks.count} chunks of {chunks.shortest} to {chunks.longest} characters "
        f"({chunks.mean:.0f} on average)",
        "",
        "| metric | mean |",
        "|---|---:|",
        *(f"| {escape_markdown(name)} | {value:.4f} |" for name, value in outcome.metrics.items()),
        "",
        "| stage | work | seconds |",
        "|---|---|---:|",
        *(f"| {name} | {work_in_words(stage)} | {stage.seconds:.2f} |" for name, stage in outcome.stages.items()),
    ]
    return "\n".join(lines) + "\n"


def work_in_words(stage: StageWork) -> str:
    """Such as ``computed (3 of 100 documents)``."""
    if stage.effort is None or stage.work != "computed":
        return stage.work
    return f"{stage.work} ({stage.effort.fresh} of {stage.effort.total} {stage.effort.unit})"


def escape_markdown(text: str) -> str:
    """Text from outside that stays text, on one line: no table cell, tag, link, entity or code begins or ends in it."""
    for character in "\\`*_{}[]<>|#~&":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
