"""Write a benchmark file that fits a folder: ``rag-eval init``."""

import json
import os
import re
import shlex
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console

from rag_eval.cli.console import say
from rag_eval.distribution import install_command
from rag_eval.documents import SUFFIXES
from rag_eval.errors import ConfigurationError, RagEvalError, TextEncodingError
from rag_eval.formatting import cost_in_words, counted, visible
from rag_eval.storage.files import matching_files, writing

MARKDOWN = (".md", ".markdown", ".mdx")
PROSE = (*MARKDOWN, ".txt", ".rst", ".adoc", ".org", ".tex", *SUFFIXES)
# fmt: off
CODE = (".py", ".js", ".ts", ".tsx", ".jsx", ".java", ".kt", ".go", ".rs", ".c", ".h", ".cpp", ".hpp", ".cs", ".rb",
        ".php", ".swift", ".scala", ".sh", ".sql", ".r", ".jl")
# fmt: on
USUAL_TRUTH = ("truth.jsonl", "ground_truth.jsonl", "ground-truth.jsonl")
SAMPLED_CHARACTERS = 20_000
"""Number of characters of a document from which its number of tokens is estimated."""
SHOWN = 3
SHORT, TINY = 2_000, 150
"""Median document lengths in characters: below ``SHORT`` smaller chunks are used, below ``TINY`` one per document."""
LITTLE, MUCH = 1_000, 2_000_000
"""Corpus sizes in tokens: below ``LITTLE`` any context holds much of the text; above ``MUCH`` a guided search pays off.
"""
MUCH_SHARE = 0.2
"""Prose, or code, is included if it makes up at least this share of the text."""


@dataclass
class Survey:
    """The files of a folder that can be documents, the others, and statistics of the documents."""

    used: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    lengths: list[int] = field(default_factory=list)
    tokens: int = 0
    headed: int = 0
    faults: list[RagEvalError] = field(default_factory=list)
    not_utf8: list[str] = field(default_factory=list)
    first: str = ""
    """The name of the first document found."""

    def add(self, name: Path, text: str) -> None:
        """Count a document."""
        self.used[name.suffix] += 1
        self.first = self.first or name.as_posix()
        self.lengths.append(len(text))
        self.headed += name.suffix in (*MARKDOWN, *SUFFIXES) and bool(re.search(r"(?m)^#{1,6} ", text))

    @property
    def globs(self) -> list[str]:
        return [f"**/*{suffix}" for suffix, _ in self.used.most_common()]

    @property
    def median(self) -> float:
        return statistics.median(self.lengths)

    @property
    def is_headed(self) -> bool:
        """Whether most documents have headings."""
        return self.headed > len(self.lengths) / 2

    @property
    def stopping(self) -> str:
        """Name the documents that would stop a run because they are not UTF-8; empty if there are none."""
        names = [visible(name) for name in self.not_utf8 if Path(name).suffix in self.used]
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        advice = "not UTF-8, which stops rag-eval run: convert to UTF-8 or remove"
        return f"{', '.join(names[:SHOWN])}{more}: {advice}" if names else ""

    @property
    def budget(self) -> int:
        """Return a fifth of the tokens, but enough for one small document."""
        budget = max(1, self.tokens // 5, min(50, self.tokens // len(self.lengths)))
        return budget if budget < 50 else budget // 10 * 10

    def __str__(self) -> str:
        kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in self.used.most_common())
        sizes = f"about {self.tokens:,} tokens, median {self.median:,.0f} characters"
        return f"{counted(len(self.lengths), 'documents')} ({kinds}), {sizes}"


def survey_folder(folder: Path) -> Survey:
    """Survey the files of a folder; raise ``ConfigurationError`` if none can be a document."""
    from rag_eval.tokens import count_tokens

    files = matching_files(folder, "**/*")
    prose, code = (sum(path.stat().st_size for path in files if path.suffix in kinds) for kinds in (PROSE, CODE))
    # A script beside documents is not a document, nor is a readme beside code.
    much = MUCH_SHARE * (prose + code)
    suffixes = (*(PROSE if prose >= much else ()), *(CODE if code >= much else ()))
    survey, sampled = Survey(), 0
    for path in files:
        name = path.relative_to(folder)
        text = _read(path, name, survey) if path.suffix in suffixes else ""
        if text.strip():
            survey.add(name, text)
            sample = text[:SAMPLED_CHARACTERS]
            sampled += len(sample)
            survey.tokens += count_tokens(sample, "cl100k_base")
        elif not any(part.startswith(".") for part in name.parts):
            survey.left_out[path.suffix or path.name] += 1
    if not survey.used:
        present = ", ".join(f"{count:,} {suffix}" for suffix, count in survey.left_out.most_common(5))
        reasons = "".join(f"; {fault}" for fault in survey.faults[:SHOWN])
        raise ConfigurationError(
            f"no file in {str(folder)!r} can be read as a document ({present}): convert them to .md or .txt{reasons}"
        )
    survey.tokens = round(survey.tokens * sum(survey.lengths) / sampled)
    return survey


def _read(path: Path, name: Path, survey: Survey) -> str:
    """Return the text of a file; empty, with the fault in the survey, if it cannot be read."""
    from rag_eval.documents.reading import read_document

    try:
        return read_document(path).text
    except RagEvalError as error:
        survey.faults.append(error)
        survey.not_utf8 += [name.as_posix()] * isinstance(error, TextEncodingError)
        return ""


def find_truth(folder: Path, chosen: Path | None) -> tuple[Path, int | None]:
    """Return the ground truth for a folder and its number of questions; None if the file does not exist yet.

    Unless a file is ``chosen``, look for one with a usual name in or beside the folder that is about its documents.
    Raises ``GroundTruthError`` if a chosen file cannot be read.
    """
    from rag_eval.ground_truth.review.session import DocumentFolder
    from rag_eval.ground_truth.truth_files import read_token_level

    if chosen is not None:
        return chosen, len(read_token_level(chosen, lambda: DocumentFolder(folder, "**/*")))
    for path in (place / name for place in (Path(), folder.parent, folder) for name in USUAL_TRUTH):
        if path.is_file():
            try:
                truth = read_token_level(path, lambda: DocumentFolder(folder, "**/*"))
            except RagEvalError:
                continue
            if any((folder / span.doc_id).is_file() for item in truth for span in item.relevant_spans):
                return path, len(truth)
    return Path(USUAL_TRUTH[0]), None


BENCHMARK = """\
# Written by rag-eval init: {survey}.
# A list in any setting is a grid: every value in it is tried. `rag-eval parts` lists all settings.

# Paths are relative to the folder of this file.
corpus: {corpus}
glob: {glob}
{notes}ground_truth: {truth}    # {questions}

# How documents are split; sizes of recursive-token and fixed-token are in tokens, other sizes in characters.
chunkers:
  - type: recursive-token
    chunk_size: {sizes}
{chunkers}
# How chunks are found: by meaning, by words, by both.
retrieval:
  - vector
  - bm25
  - hybrid
  # - {{type: bm25, tokenizer: {{type: stemmed, language: german}}}}    # by the stems of words, needs {stemming}

# What computes vectors. The local model needs no key, and knows English best.
embedders:
  - local
  # - {{type: openai, model: {model}}}    # needs OPENAI_API_KEY; {cost} once, for these documents

# What is returned for a hit: the chunk, or more of its document around it.
returns: {returns}

# How many hits count, and what is measured. The ranking is by recall within a budget of tokens, so that
# small and large chunks compete fairly.
{budget}
k: [1, 5, 10]
metrics: [span_recall, span_precision, span_iou, tokens_retrieved]
{search}"""
HEADINGS = "  - type: markdown    # along the headings\n    max_chunk_size: 1000\n"
LINES = "  - type: recursive-character    # along blank lines and lines\n"
GUIDED = "\n# With this much text, not every configuration has to be embedded (docs/sweeps.md).\nsearch: guided\n"


def benchmark_text(survey: Survey, corpus: str, truth: str, questions: int | None) -> str:
    """Return a commented benchmark file; ``questions`` is None if the ground truth does not exist yet."""
    from rag_eval.embedding.openai import PRICES
    from rag_eval.metrics.formulas import BUDGET

    model, price = next(iter(PRICES.items()))
    dollars = 3 * survey.tokens * price / 1e6
    sizes = "50    # most documents are shorter, and one chunk each" if survey.median < TINY else "[100, 400]"
    budget = f"# budget: {2 * BUDGET}    # tokens of context per question; default {BUDGET:,}"
    if survey.tokens < 5 * BUDGET:
        budget = f"budget: {survey.budget}    # of about {survey.tokens:,} tokens: a larger one would hold everything"
    has_code = any(suffix in CODE for suffix in survey.used)
    return BENCHMARK.format(
        survey=visible(str(survey)),
        corpus=_yaml(corpus),
        glob=_yaml(survey.globs if len(survey.globs) > 1 else survey.globs[0]),
        notes="".join(f"# {note}\n" for note in _notes(survey)),
        truth=_yaml(truth),
        questions="does not exist yet" if questions is None else counted(questions, "questions"),
        sizes="[50, 150]" if TINY <= survey.median < SHORT else sizes,
        chunkers=HEADINGS if survey.is_headed else LINES if has_code else "",
        stemming=install_command("stemming"),
        model=model,
        cost=f"about {cost_in_words(dollars)}" if dollars > 0.01 else "less than a cent",
        returns=f"[hit, {'section' if survey.is_headed else 'window'}]",
        budget=budget,
        search=GUIDED if survey.tokens > MUCH else "",
    )


def _notes(survey: Survey) -> Iterator[str]:
    """Yield notes on files that are not read or would stop a run."""
    if survey.left_out:
        unread = ", ".join(f"{count:,} {visible(suffix)}" for suffix, count in survey.left_out.most_common(8))
        others = [suffix for suffix in survey.left_out if suffix not in survey.used]
        texts = [f"'**/*{suffix}'" for suffix in others if suffix in (*PROSE, *CODE) and suffix not in SUFFIXES]
        advice = f" Add {', '.join(texts)} to glob to search them." if texts else ""
        if others and not texts:
            advice = " Put their text beside them as .md or .txt."
        if ".pdf" in survey.left_out and not find_spec("pypdfium2"):
            advice += f" PDF needs {install_command('documents')}."
        yield f"Not read: {unread}.{advice}"
    if survey.stopping:
        yield f"{survey.stopping}."


def _yaml(value: object) -> str:
    """Return a text or a list of texts as YAML on one line."""
    return str(yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=10**6))[1:-2]


def init(
    documents: Annotated[Path, typer.Argument(help="Folder of documents.")],
    output: Annotated[Path, typer.Option(help="Benchmark file to write; must not exist.")] = Path("benchmark.yaml"),
    truth: Annotated[
        Path | None, typer.Option(help="Ground-truth file.", show_default="truth.jsonl, if it exists")
    ] = None,
) -> None:
    """Write a benchmark file that fits a folder of documents, and print the next steps."""
    from rag_eval.config.loading import load_config

    if output.exists() and documents.is_dir():
        raise ConfigurationError(f"{str(output)!r} already exists: remove it, or write to another file with --output")
    survey = survey_folder(documents)
    path, questions = find_truth(documents, truth)
    if questions is None:
        path = output.parent / path
        path = path.with_name(f"truth-{documents.name}.jsonl") if path.exists() else path
    corpus, relative = (os.path.relpath(target, output.absolute().parent) for target in (documents, path))
    text = benchmark_text(survey, corpus, relative, questions)
    with writing(output), open(output, "x", encoding="utf-8") as file:
        file.write(text)
    console = Console(highlight=False)
    say(console, f"{documents}: {survey}")
    if survey.left_out:
        say(console, f"Not read: {counted(survey.left_out.total(), 'other files')}", "yellow")
    if survey.stopping:
        say(console, survey.stopping, "yellow")
    if survey.tokens < LITTLE:
        say(console, "With so little text any context holds much of it: add documents if you can.", "yellow")
    configurations = len(load_config(output).configurations())
    say(console, f"Wrote {output} with {counted(configurations, 'configurations')}. Its comments explain each setting.")
    for line in _next_steps(survey, output, path, questions):
        say(console, line)


def _next_steps(survey: Survey, output: Path, truth: Path, questions: int | None) -> Iterator[str]:
    file, truth_file = shlex.quote(str(output)), shlex.quote(str(truth))
    if questions is not None:
        yield f"Next, run it on the {counted(questions, 'questions')} of {truth}: rag-eval run {file}"
        return
    generate = f"rag-eval generate {file}"
    yield f"Next, {truth} needs questions. A model can write them:"
    yield f"  {generate} --dry-run    # print the cost only"
    yield f"  {generate} --output {truth_file} --max-cost 2"
    yield f"  rag-eval truth review {truth_file} --corpus {file}    # check them in the browser"
    if not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        yield "OPENAI_API_KEY is not set: set it, or OPENAI_BASE_URL for a server of your own. Or write questions by"
        yield "hand, one JSON object per line, or import them (docs/ground-truth.md):"
        example = {"query": "…?", "relevant_spans": [{"doc_id": survey.first, "text": "the sentence that answers it"}]}
        yield f"  {json.dumps(example, ensure_ascii=False)}"
    yield f"Then: rag-eval run {file}"
