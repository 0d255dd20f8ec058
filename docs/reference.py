"""Write reference.md from the command line, the benchmark file, the parts, the metrics and the importers as they are.

``python docs/reference.py`` writes the page; the tests fail while it differs from what this prints.
"""

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from rag_eval.cli.main import app
from rag_eval.config.models import SECTIONS, BenchmarkConfig
from rag_eval.config.truth_sources import TRUTH_SOURCE
from rag_eval.documents.reading import LOADER
from rag_eval.metrics import METRIC
from rag_eval.parts import Kind, describe, label
from rag_eval.retrieval import FULL_TEXT, FUSION, LANCEDB_RERANKER, TOKENIZER
from rag_eval.stores import INDEX

PAGE = Path(__file__).with_name("reference.md")
SECTION_KINDS = tuple(one.kind for one in SECTIONS.values())
KINDS = (LOADER, TRUTH_SOURCE, *SECTION_KINDS, FUSION, TOKENIZER, INDEX, FULL_TEXT, LANCEDB_RERANKER)

PLACES = {
    "loader": "`loaders`, by suffix or pattern",
    TRUTH_SOURCE.name: "`ground_truth`",
    FUSION.name: "`fusion` of the retriever `hybrid`",
    TOKENIZER.name: "`tokenizer` of the retriever `bm25`",
    INDEX.name: "`index` of the retriever `lancedb` and of the store `lancedb`",
    FULL_TEXT.name: "`fts` of the retriever `lancedb`",
    LANCEDB_RERANKER.name: "`reranker` of the retriever `lancedb`",
}

EXIT_CODES = """\
Exit codes: 0 done; 1 a configuration, a check or a call failed, or something still waits to be sent (the rest is
kept); 2 bad input; 3 a gate failed, 4 it warned with `--fail-on-warn`; 130 or 143 stopped (what was finished is kept).
`rag-eval --debug run` shows where an error comes from, and `rag-eval --version` prints the version.

Runs go to the Prefect API that `PREFECT_API_URL` or the active Prefect profile names, else to a running `rag-eval up`,
else to a temporary server, whose runs the next `rag-eval up` shows. Prefect's settings in
files of the current folder count only with `RAG_EVAL_PREFECT_SETTINGS_HERE=1`."""

BENCHMARK = """\
Relative paths start at the file. `rag-eval parts --schema` prints the JSON schema for
editors. A part is a name (`markdown`) or a mapping with `type` and settings, and a list in a setting is a grid. API
keys are read from the environment (`OPENAI_API_KEY`, `CO_API_KEY`) and are never a setting.

```bash
rag-eval parts chunker                   # the chunkers, their settings and defaults
rag-eval parts --schema > benchmark.schema.json  # for an editor
```"""

METRICS = """\
Names parse and print the same: `span_recall@5` at five hits, `span_recall@2000tokens` at a budget of tokens. Recall is
0 on empty ground truth, precision 0 on empty retrieval, IoU 1 if both are empty and 0 if one is. A query without hits
counts. A query without ground truth is an error unless it is declared unanswerable; those are reported apart. A metric
of your own is an object with `name` and `calculate(retrieved, ground_truth)`."""

OMEGA = """\
Chroma's published Precision_Ω comes out to the printed decimal: [published figures](testing.md#published-figures)."""


def page() -> str:
    """Return the whole page."""
    sections = [
        "# Reference",
        "This page is written by `python docs/reference.py` from the code.",
        "## Commands",
        table(("command", "what it does", "options"), command_rows()),
        EXIT_CODES,
        "## The benchmark file",
        table(("key", "meaning", "default"), config_rows()),
        BENCHMARK,
    ]
    for kind in KINDS:
        ending = "es" if kind.name.endswith("x") else "s"
        sections += [f"## {kind.name[0].upper()}{kind.name[1:].replace('-', ' ')}{ending}", *part_sections(kind)]
    sections += [
        "## Metrics",
        table(("metric", "what it is"), metric_rows()),
        METRICS,
        OMEGA,
        "The file format of ground truth is in [ground truth](ground-truth.md#the-file-format); the evaluators of "
        "experiments are in [experiments](experiments.md).",
    ]
    return "\n\n".join(sections) + "\n"


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every command with the words that call it."""
    if not hasattr(command, "commands"):
        yield " ".join(words), command
        return
    for name, inner in sorted(command.commands.items()):
        if not inner.hidden:
            yield from commands(inner, (*words, name))


def command_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each command: how it is called, its help, its options."""
    for name, command in commands(get_command(app)):
        arguments = [
            f"[{one.name.upper()}]" if not one.required else one.name.upper()
            for one in command.params
            if one.param_type_name == "argument"
        ]
        options = [max(one.opts, key=len) for one in command.params if one.param_type_name == "option"]
        shown = ", ".join(f"`{option}`" for option in options if option != "--help")
        yield f"`{' '.join([name, *arguments])}`", first_sentences(command.help), shown


def config_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each key of a benchmark file."""
    given = {"corpus": "docs", "ground_truth": "truth.jsonl", "chunkers": ["markdown"]}
    least = BenchmarkConfig.model_validate(given)
    for name, field in BenchmarkConfig.model_fields.items():
        value = getattr(least, name)
        values = value if isinstance(value, list) else [] if value is None else [value]
        nothing = SECTIONS[name].default if name in SECTIONS else None
        told = [one if isinstance(one, str | int | float) else nothing if one is None else label(one) for one in values]
        shown = ", ".join(f"`{one}`" for one in told)
        yield (
            f"`{name}`",
            field.description or "",
            "required" if field.is_required() else "" if name in given else shown,
        )


def part_sections(kind: Kind) -> Iterator[str]:
    """Yield the types of a kind, and a table of settings for each that has some."""
    described = describe(kind)
    keys = [f"`{key}`" for key, section in SECTIONS.items() if section.kind is kind]
    yield f"In a benchmark file: {', '.join(keys) or PLACES[kind.name]}."
    yield table(
        (kind.name, "what it is", "uses the network", "cost"),
        [(f"`{one.name}`", one.summary, one.remote, one.cost) for one in described],
    )
    for one in described:
        if one.settings:
            rows = [(f"`{setting.name}`", setting.description, f"`{setting.default_text}`") for setting in one.settings]
            yield f"### {one.name}"
            yield table(("setting", "meaning", "default"), rows)


def metric_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each metric: its name and the first sentence of its documentation."""
    for name in METRIC.types:
        yield f"`{name}`", first_sentences(inspect.getdoc(METRIC.load(name)))


def first_sentences(text: str | None) -> str:
    """Return the first paragraph on one line, without the marks of code."""
    return " ".join((text or "").split("\n\n")[0].split()).replace("``", "`")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
