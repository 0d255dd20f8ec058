"""``rag-eval init``: a benchmark file that fits a folder."""

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
"""How many characters of a document its language and its tokens are estimated from."""
FEWEST_WORDS, KNOWN_SHARE = 8, 0.12
"""From this share of stop words on a text counts as written in their language; code and tables stay below."""
SHOWN = 3
"""How many of the files that cannot be read are named."""
SHORT, TINY = 2_000, 150
"""Median characters of documents that get smaller chunks, and of those that are one chunk of under 50 tokens each."""
LITTLE, MUCH = 1_000, 2_000_000
"""Tokens below which any context holds much of the text, and above which a guided search pays."""
MUCH_SHARE = 0.2
"""The share of a folder's text from which on its prose, and its code, is searched."""


@dataclass
class Survey:
    """The files of a folder that can be documents, by suffix, the others, and statistics of the documents."""

    used: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    lengths: list[int] = field(default_factory=list)
    tokens: int = 0
    headed: int = 0
    languages: Counter[str] = field(default_factory=Counter)
    faults: list[RagEvalError] = field(default_factory=list)
    """Why files that would be documents have no text."""
    not_utf8: list[str] = field(default_factory=list)
    first: str = ""
    """The name of one of the documents."""

    @property
    def globs(self) -> list[str]:
        """The patterns of the documents."""
        return [f"**/*{suffix}" for suffix, _ in self.used.most_common()]

    @property
    def median(self) -> float:
        """The median of the documents' lengths in characters."""
        return statistics.median(self.lengths)

    @property
    def is_headed(self) -> bool:
        """Whether most documents have headings."""
        return self.headed > len(self.lengths) / 2

    @property
    def language(self) -> str:
        """The language of most documents; empty where it is not known."""
        return self.languages.most_common(1)[0][0]

    @property
    def stopping(self) -> str:
        """A sentence about the documents at which a run would stop; empty where there are none."""
        names = [visible(name) for name in self.not_utf8 if Path(name).suffix in self.used]
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        stops = "not UTF-8, and rag-eval run stops at them: convert them to UTF-8, or move them away"
        return f"{', '.join(names[:SHOWN])}{more}: {stops}" if names else ""

    @property
    def budget(self) -> int:
        """A fifth of the tokens, or as many as a document of 50 tokens or less has: fewer would find nothing."""
        budget = max(1, self.tokens // 5, min(50, self.tokens // len(self.lengths)))
        return budget if budget < 50 else budget // 10 * 10

    def __str__(self) -> str:
        kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in self.used.most_common())
        languages = ", ".join(name.capitalize() if name else "not known" for name, _ in self.languages.most_common(3))
        sizes = f"about {self.tokens:,} tokens, median {self.median:,.0f} characters"
        return f"{counted(len(self.lengths), 'documents')} ({kinds}), {sizes}; language: {languages}"


def survey_folder(folder: Path) -> Survey:
    """Look at the files of a folder; raise ``ConfigurationError`` where none can be a document."""
    from rag_eval.tokens import count_tokens

    files = matching_files(folder, "**/*")
    sizes = Counter[str]()
    for path in files:
        sizes["prose" if path.suffix in PROSE else "code" if path.suffix in CODE else ""] += path.stat().st_size
    # Both where both are much: a script beside documents is no document, nor is a readme beside code.
    much = MUCH_SHARE * (sizes["prose"] + sizes["code"])
    wanted = (*(PROSE if sizes["prose"] >= much else ()), *(CODE if sizes["code"] >= much else ()))
    survey, sampled = Survey(), 0
    for path in files:
        name = path.relative_to(folder)
        text = _read(path, name.as_posix(), survey) if path.suffix in wanted else ""
        if not text.strip():
            survey.left_out[path.suffix or path.name] += not any(part.startswith(".") for part in name.parts)
            continue
        survey.used[path.suffix] += 1
        survey.first = survey.first or name.as_posix()
        survey.lengths.append(len(text))
        survey.headed += path.suffix in (*MARKDOWN, *SUFFIXES) and bool(re.search(r"(?m)^#{1,6} ", text))
        sample = text[:SAMPLED_CHARACTERS]
        sampled += len(sample)
        survey.tokens += count_tokens(sample, "cl100k_base")
        survey.languages[language_of(sample)] += 1
    survey.left_out = +survey.left_out  # without hidden files
    if not survey.used:
        files_there = ", ".join(f"{count:,} {suffix}" for suffix, count in survey.left_out.most_common(5))
        why = "".join(f"; {fault}" for fault in survey.faults[:SHOWN])
        raise ConfigurationError(
            f"no file in {str(folder)!r} is text that can be a document ({files_there}): convert them to .md or "
            f".txt{why}"
        )
    survey.tokens = round(survey.tokens * sum(survey.lengths) / sampled)
    return survey


def _read(path: Path, name: str, survey: Survey) -> str:
    """Return the text of a file; empty where it has none or cannot be read, which the survey notes."""
    from rag_eval.documents.reading import read_document

    try:
        return read_document(path).text
    except RagEvalError as error:
        survey.faults.append(error)
        survey.not_utf8 += [name] * isinstance(error, TextEncodingError)
        return ""


def language_of(text: str) -> str:
    """Return the language whose stop words a text has most of; empty where it has few of any."""
    from rag_eval.retrieval.tokenizers import stop_words, words

    spoken = words(text)
    counts = {language: sum(word in stop for word in spoken) for language, stop in stop_words().items()}
    best = max(counts, key=lambda language: counts[language])
    return best if len(spoken) >= FEWEST_WORDS and counts[best] >= KNOWN_SHARE * len(spoken) else ""


def find_truth(folder: Path, chosen: Path | None) -> tuple[Path, int] | None:
    """Return the ground truth about the spans of a folder, chosen or lying beside it, and its number of questions.

    Raises ``GroundTruthError`` on a file that is chosen and cannot be read.
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
            # It may be about other documents.
            if any((folder / span.doc_id).is_file() for item in truth for span in item.relevant_spans):
                return path, len(truth)
    return None


BENCHMARK = """\
# Written by rag-eval init: {survey}.
# A list in any setting is a grid: every value in it is tried. `rag-eval parts` lists all settings.

# Paths start at the folder of this file.
corpus: {corpus}
glob: {glob}
{notes}ground_truth: {truth}    # {questions}

# How documents are cut; sizes of recursive-token are in tokens, those of the others in characters.
chunkers:
  - type: recursive-token
    chunk_size: {sizes}
{chunkers}
# How they are searched: by meaning, by words, by both.
retrieval:
  - vector
  - bm25
  - hybrid
{stemmed}
# What makes vectors. The local one needs no key{english}.
embedders:
  - local
  # - {{type: openai, model: {model}}}    # needs OPENAI_API_KEY; {cost} once, for these documents

# What is handed on for a hit: the chunk, or more of its document around it.
returns: {returns}

# How many hits count, and what is measured. The ranking is by recall within a budget of tokens, so that
# small and large chunks compete fairly.
{budget}
k: [1, 5, 10]
metrics: [span_recall, span_precision, span_iou, tokens_retrieved]
{search}"""
HEADINGS = "  - type: markdown    # along the headings\n    max_chunk_size: 1000\n"
LINES = "  - type: recursive-character    # along blank lines and lines\n"
GUIDED = "\n# So much text need not be embedded for every configuration (docs/sweeps.md).\nsearch: guided\n"


def benchmark_text(survey: Survey, corpus: str, truth: str, questions: int | None) -> str:
    """Return a commented benchmark file; ``questions`` is None where the ground truth is not there yet."""
    from rag_eval.embedding.openai import PRICES
    from rag_eval.metrics.formulas import BUDGET

    model, price = next(iter(PRICES.items()))
    dollars = 3 * survey.tokens * price / 1e6
    sizes = "50    # most documents are shorter, and one chunk each" if survey.median < TINY else "[100, 400]"
    little = (
        f"budget: {survey.budget}    # of about {survey.tokens:,} tokens in all: with more, anything would be found"
    )
    has_code = any(suffix in CODE for suffix in survey.used)
    return BENCHMARK.format(
        survey=visible(str(survey)),
        corpus=_yaml(corpus),
        glob=_yaml(survey.globs if len(survey.globs) > 1 else survey.globs[0]),
        notes="".join(f"# {note}\n" for note in _notes(survey)),
        truth=_yaml(truth),
        questions="not there yet" if questions is None else counted(questions, "questions"),
        sizes="[50, 150]" if TINY <= survey.median < SHORT else sizes,
        chunkers=HEADINGS if survey.is_headed else LINES if has_code else "",
        stemmed=_stemmed(survey.language),
        english="" if survey.language == "english" else ", and knows English best",
        model=model,
        cost=f"about {cost_in_words(dollars)}" if dollars > 0.01 else "less than a cent",
        returns=f"[hit, {'section' if survey.is_headed else 'window'}]",
        budget=little
        if survey.tokens < 5 * BUDGET
        else f"# budget: {2 * BUDGET}    # tokens of context a question may cost; without it {BUDGET:,}",
        search=GUIDED if survey.tokens > MUCH else "",
    )


def _notes(survey: Survey) -> Iterator[str]:
    """Say which files are not read, and at which a run would stop."""
    if survey.left_out:
        unread = ", ".join(f"{count:,} {visible(suffix)}" for suffix, count in survey.left_out.most_common(8))
        others = [suffix for suffix in survey.left_out if suffix not in survey.used]
        texts = [f"'**/*{suffix}'" for suffix in others if suffix in (*PROSE, *CODE) and suffix not in SUFFIXES]
        how = " Put their text beside them as .md or .txt." if others else ""
        how = f" Add {', '.join(texts)} to glob to have those searched." if texts else how
        extra = f" PDF needs {install_command('documents')}."
        is_needed = ".pdf" in survey.left_out and not find_spec("pypdfium2")
        yield f"Not read: {unread}.{how}{extra if is_needed else ''}"
    if survey.stopping:
        yield f"{survey.stopping}."


def _stemmed(language: str) -> str:
    """Return the line of a search on the stems of a language's words; commented where that is not installed."""
    if language in ("", "english"):
        return ""
    part = f"{{type: bm25, tokenizer: {{type: stemmed, language: {language}}}}}"
    is_there = find_spec("snowballstemmer") is not None
    return f"  - {part}\n" if is_there else f"  # - {part}    # needs {install_command('stemming')}\n"


def _yaml(value: object) -> str:
    """Return a text, or a list of texts, as YAML writes it in a line."""
    import yaml

    return str(yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=10**6))[1:-2]


def init(
    documents: Annotated[Path, typer.Argument(help="Folder of documents.")],
    output: Annotated[Path, typer.Option(help="Benchmark file to write; one that is there is not replaced.")] = Path(
        "benchmark.yaml"
    ),
    truth: Annotated[Path | None, typer.Option(help="Ground-truth file; by default truth.jsonl, where it is.")] = None,
) -> None:
    """Write a benchmark file that fits a folder of documents, and say what to do next."""
    from rag_eval.config.loading import load_config

    if output.exists() and documents.is_dir():
        raise ConfigurationError(f"{str(output)!r} is there already: give another name with --output, or remove it")
    survey = survey_folder(documents)
    known = find_truth(documents, truth)
    new = output.parent / USUAL_TRUTH[0]
    path = known[0] if known else new.with_name(f"truth-{documents.name}.jsonl") if new.exists() else new
    text = benchmark_text(survey, _relative(documents, output), _relative(path, output), known[1] if known else None)
    with writing(output), open(output, "x", encoding="utf-8") as file:
        file.write(text)
    console = Console(highlight=False)
    say(console, f"{documents}: {survey}")
    if survey.left_out:
        say(console, f"Not read: {counted(survey.left_out.total(), 'other files')}", "yellow")
    if survey.stopping:
        say(console, survey.stopping, "yellow")
    if survey.tokens < LITTLE:
        say(console, "So little text says little: any context holds much of it. Add documents if you can.", "yellow")
    configurations = len(load_config(output).configurations())
    say(console, f"{output}: {counted(configurations, 'configurations')}; look through it, it explains itself")
    for line in _next_steps(survey, output, path, known[1] if known else None):
        say(console, line)


def _relative(path: Path, beside: Path) -> str:
    """Return the path from the folder of a file; the whole one where there is no way to it, as on Windows."""
    try:
        return Path(os.path.relpath(path, beside.absolute().parent)).as_posix()
    except ValueError:
        return str(path.absolute())


def _next_steps(survey: Survey, output: Path, truth: Path, questions: int | None) -> Iterator[str]:
    file, truth_file = shlex.quote(str(output)), shlex.quote(str(truth))
    if questions is not None:
        yield f"Next, with the {counted(questions, 'questions')} of {truth}: rag-eval run {file}"
        return
    generate = f"rag-eval generate {file}"
    yield f"Next, the questions: {truth} is not there."
    has_key = bool(os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"))
    if not has_key:
        yield "  OPENAI_API_KEY is not set. With one, or OPENAI_BASE_URL of a server of yours, a model writes them:"
    yield f"  {generate} --dry-run    # what it costs, asking nobody"
    yield f"  {generate} --output {truth_file} --max-cost 2"
    yield f"  rag-eval truth review {truth_file} --corpus {file}    # in the browser, before you trust them"
    if not has_key:
        yield "  Without one: write them by hand, a line each, or import what you have (docs/ground-truth.md):"
        example = {"query": "…?", "relevant_spans": [{"doc_id": survey.first, "text": "the sentence that answers it"}]}
        yield f"  {json.dumps(example, ensure_ascii=False)}"
    yield f"Then: rag-eval run {file}"
