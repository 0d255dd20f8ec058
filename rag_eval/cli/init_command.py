"""``rag-eval init``: a benchmark file that fits a folder."""

import json
import os
import re
import shlex
import statistics
import unicodedata
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
LOOKED_AT = 20_000
"""How many characters of a document are looked at for its language and its tokens."""

SCRIPTS = {"HIRAGANA": "japanese", "CJK": "chinese", "HANGUL": "korean", "THAI": "thai", "GREEK": "greek"}
FEWEST_WORDS = 8
KNOWN_SHARE = 0.12
"""From this share of stop words on a text counts as written in their language; code and tables stay below."""

SHOWN = 3
"""How many of the files that cannot be read are named."""

SHORT = 2_000
"""Characters below which documents are cut into smaller pieces."""

TINY = 150
"""Characters below which a document has fewer than 50 tokens."""

LITTLE = 1_000
"""Tokens below which much of all text is in any context."""

MUCH_SHARE = 0.2
"""The share of a folder's text from which on its prose, and its code, is searched."""

MUCH = 2_000_000
"""Tokens from which on a search of the grid pays."""


@dataclass
class Survey:
    """What is in a folder: the files that can be documents, by suffix, the others, and how the documents are."""

    used: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    lengths: list[int] = field(default_factory=list)
    tokens: int = 0
    headed: int = 0
    languages: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    """Why no text could be made of files that would be documents."""
    not_utf8: list[str] = field(default_factory=list)
    """The names of texts that are not UTF-8."""
    first: str = ""
    """The name of one of the documents."""

    @property
    def globs(self) -> list[str]:
        """The patterns of the documents."""
        return [f"**/*{suffix}" for suffix, _ in self.used.most_common()]

    @property
    def is_short(self) -> bool:
        """Whether most documents have but some hundred tokens."""
        return statistics.median(self.lengths) < SHORT

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

    @property
    def language(self) -> str:
        """The language of most documents; empty where it is not known."""
        return self.languages.most_common(1)[0][0] if self.languages else ""

    def __str__(self) -> str:
        kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in self.used.most_common())
        told = ", ".join(name.capitalize() if name else "not known" for name, _ in self.languages.most_common(3))
        sizes = f"about {self.tokens:,} tokens, median {statistics.median(self.lengths):,.0f} characters"
        return f"{counted(len(self.lengths), 'documents')} ({kinds}), {sizes}; language: {told}"


def look_into(folder: Path) -> Survey:
    """Look at the files of a folder; raises ``ConfigurationError`` where none can be a document."""
    from rag_eval.tokens import count_tokens

    files = matching_files(folder, "**/*")
    sizes = Counter[str]()
    for path in files:
        sizes["prose" if path.suffix in PROSE else "code" if path.suffix in CODE else ""] += path.stat().st_size
    # Both where both are much: a script beside documents is no document, nor is a readme beside code.
    kinds = {"prose": PROSE, "code": CODE}
    much = [kind for kind in kinds if sizes[kind] >= MUCH_SHARE * (sizes["prose"] + sizes["code"])]
    wanted = [suffix for kind in much for suffix in kinds[kind]]
    found, counted_in = Survey(), 0
    for path in files:
        text = _text(path, path.relative_to(folder).as_posix(), found) if path.suffix in wanted else ""
        if not text.strip():
            if not any(part.startswith(".") for part in path.relative_to(folder).parts):
                found.left_out[path.suffix or path.name] += 1
            continue
        found.used[path.suffix] += 1
        found.first = found.first or path.relative_to(folder).as_posix()
        found.lengths.append(len(text))
        found.headed += (path.suffix in MARKDOWN or path.suffix in SUFFIXES) and bool(re.search(r"(?m)^#{1,6} ", text))
        part = text[:LOOKED_AT]
        counted_in += len(part)
        found.tokens += count_tokens(part, "cl100k_base")
        found.languages[language_of(part)] += 1
    if not found.used:
        there = ", ".join(f"{count:,} {suffix}" for suffix, count in found.left_out.most_common(5))
        why = "".join(f"; {one}" for one in found.faults[:SHOWN])
        raise ConfigurationError(
            f"no file in {str(folder)!r} is text that can be a document ({there}): convert them to .md or .txt{why}"
        )
    found.tokens = round(found.tokens * sum(found.lengths) / counted_in)
    return found


def _text(path: Path, name: str, found: Survey) -> str:
    """The text of a file; empty where it has none, or none can be made of it, which is noted."""
    from rag_eval.documents.reading import read_document

    try:
        return read_document(path).text
    except RagEvalError as error:
        found.faults.append(str(error))
        if isinstance(error, TextEncodingError):
            found.not_utf8.append(name)
        return ""


def language_of(text: str) -> str:
    """The language whose stop words a text has most of, or the script of another one; empty where neither is known."""
    from rag_eval.retrieval.tokenizers import stop_words, words

    letters = Counter(unicodedata.name(one, "").partition(" ")[0] for one in text if one.isalpha())
    kana = letters["HIRAGANA"] + letters["KATAKANA"]
    script = "HIRAGANA" if 10 * kana > letters.total() else letters.most_common(1)[0][0] if letters else ""
    if script in SCRIPTS:
        return SCRIPTS[script]
    said = words(text)
    if script not in ("LATIN", "CYRILLIC") or len(said) < FEWEST_WORDS:
        return f"{script.lower()} script" if script not in ("", "LATIN") else ""
    counts = {language: sum(one in stop for one in said) for language, stop in stop_words().items()}
    best = max(counts, key=lambda language: counts[language])
    return best if counts[best] >= KNOWN_SHARE * len(said) else "" if script == "LATIN" else "cyrillic script"


def find_truth(folder: Path, given: Path | None) -> tuple[Path, int] | None:
    """The ground truth about the spans of a folder, and how many questions it has: what is given, or lies beside.

    Raises ``GroundTruthError`` on a file that is given and cannot be read.
    """
    from rag_eval.ground_truth.review.session import DocumentFolder
    from rag_eval.ground_truth.truth_files import read_token_level

    usual = [place / name for place in (Path(), folder.parent, folder) for name in USUAL_TRUTH]
    for path in [given] if given else usual:
        if given or path.is_file():
            try:
                truth = read_token_level(path, lambda: DocumentFolder(folder, "**/*"))
                # One that lies beside may be about other documents.
                if given or any((folder / span.doc_id).is_file() for one in truth for span in one.relevant_spans):
                    return path, len(truth)
            except RagEvalError:
                if given:
                    raise
    return None


def benchmark_text(found: Survey, corpus: str, truth: str, questions: int | None) -> str:
    """A commented benchmark file for what was found; ``questions`` is None where the truth is not there yet."""
    from rag_eval.embedding.openai import PRICES
    from rag_eval.metrics.budget import BUDGET
    from rag_eval.retrieval.tokenizers import stop_words

    is_headed, is_english = found.headed > len(found.lengths) / 2, found.language == "english"
    sizes = "[50, 150]" if found.is_short else "[100, 400]"
    if statistics.median(found.lengths) < TINY:
        sizes = "50    # most documents are shorter, and one chunk each"
    chunkers = ["  - type: recursive-token", f"    chunk_size: {sizes}"]
    if is_headed:
        chunkers += ["  - type: markdown    # along the headings", "    max_chunk_size: 1000"]
    elif any(suffix in CODE for suffix in found.used):
        chunkers += ["  - type: recursive-character    # along blank lines and lines"]
    retrieval = ["  - vector", "  - bm25", "  - hybrid"]
    if found.language in stop_words() and not is_english:
        stemmed = f"{{type: bm25, tokenizer: {{type: stemmed, language: {found.language}}}}}"
        is_there = find_spec("snowballstemmer") is not None
        retrieval += [f"  - {stemmed}" if is_there else f"  # - {stemmed}    # needs {install_command('stemming')}"]
    extra = f" PDF needs {install_command('documents')}." * (".pdf" in found.left_out and not find_spec("pypdfium2"))
    unread = ", ".join(f"{count:,} {visible(suffix)}" for suffix, count in found.left_out.most_common(8))
    others = [suffix for suffix in found.left_out if suffix not in found.used]
    texts = [f"'**/*{suffix}'" for suffix in others if suffix in (*PROSE, *CODE) and suffix not in SUFFIXES]
    how = (
        f" Add {', '.join(texts)} to glob to have those searched."
        if texts
        else " Put their text beside them as .md or .txt." * bool(others)
    )
    known = "not there yet" if questions is None else counted(questions, "questions")
    model, price = next(iter(PRICES.items()))
    dollars = 3 * found.tokens * price / 1e6
    cost = f"about {cost_in_words(dollars)}" if dollars > 0.01 else "less than a cent"
    budget = (
        f"budget: {found.budget}    # of about {found.tokens:,} tokens in all: with more, anything would be found"
        if found.tokens < 5 * BUDGET
        else f"# budget: {2 * BUDGET}    # tokens of context a question may cost; without it {BUDGET:,}"
    )
    lines = [
        f"# Written by rag-eval init: {visible(str(found))}.",
        "# A list in any setting is a grid: every value in it is tried. `rag-eval parts` lists all settings.",
        "",
        "# Paths start at the folder of this file.",
        f"corpus: {_yaml(corpus)}",
        f"glob: {_yaml(found.globs if len(found.globs) > 1 else found.globs[0])}",
        *[f"# Not read: {unread}.{how}{extra}"] * bool(unread),
        *[f"# {found.stopping}."] * bool(found.stopping),
        f"ground_truth: {_yaml(truth)}    # {known}",
        "",
        "# How documents are cut; sizes of recursive-token are in tokens, those of the others in characters.",
        "chunkers:",
        *chunkers,
        "",
        "# How they are searched: by meaning, by words, by both.",
        "retrieval:",
        *retrieval,
        "",
        f"# What makes vectors. The local one needs no key{'' if is_english else ', and knows English best'}.",
        "embedders:",
        "  - local",
        f"  # - {{type: openai, model: {model}}}    # needs OPENAI_API_KEY; {cost} once, for these documents",
        "",
        "# What is handed on for a hit: the chunk, or more of its document around it.",
        f"returns: {'[hit, section]' if is_headed else '[hit, window]'}",
        "",
        "# How many hits count, and what is measured. The ranking is by recall within a budget of tokens, so that",
        "# small and large chunks compete fairly.",
        budget,
        "k: [1, 5, 10]",
        "metrics: [span_recall, span_precision, span_iou, tokens_retrieved]",
    ]
    if found.tokens > MUCH:
        lines += ["", "# So much text need not be embedded for every configuration (docs/sweeps.md).", "search: guided"]
    return "\n".join(lines) + "\n"


def _yaml(value: object) -> str:
    """A text, or a list of texts, as YAML writes it in a line."""
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
    found = look_into(documents)
    known = find_truth(documents, truth)
    new = output.parent / USUAL_TRUTH[0]
    path = known[0] if known else new.with_name(f"truth-{documents.name}.jsonl") if new.exists() else new
    text = benchmark_text(found, _relative(documents, output), _relative(path, output), known[1] if known else None)
    with writing(output), open(output, "x", encoding="utf-8") as file:
        file.write(text)
    console = Console(highlight=False)
    say(console, f"{documents}: {found}")
    if found.left_out:
        say(console, f"Not read: {counted(sum(found.left_out.values()), 'other files')}", "yellow")
    if found.stopping:
        say(console, found.stopping, "yellow")
    if found.tokens < LITTLE:
        say(console, "So little text says little: any context holds much of it. Add documents if you can.", "yellow")
    configurations = len(load_config(output).configurations())
    say(console, f"{output}: {counted(configurations, 'configurations')}; look through it, it explains itself")
    for line in _next_steps(found, output, path, known):
        say(console, line)


def _relative(path: Path, beside: Path) -> str:
    """The path from the folder of a file; the whole one where there is no way from one to the other, as on Windows."""
    try:
        return Path(os.path.relpath(path, beside.absolute().parent)).as_posix()
    except ValueError:
        return str(path.absolute())


def _next_steps(found: Survey, output: Path, truth: Path, known: tuple[Path, int] | None) -> Iterator[str]:
    file, asked = shlex.quote(str(output)), shlex.quote(str(truth))
    if known:
        yield f"Next, with the {counted(known[1], 'questions')} of {truth}: rag-eval run {file}"
        return
    generate = f"rag-eval generate {file}"
    yield f"Next, the questions: {truth} is not there."
    has_key = bool(os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"))
    if not has_key:
        yield "  OPENAI_API_KEY is not set. With one, or OPENAI_BASE_URL of a server of yours, a model writes them:"
    yield f"  {generate} --dry-run    # what it costs, asking nobody"
    yield f"  {generate} --output {asked} --max-cost 2"
    yield f"  rag-eval truth review {asked} --corpus {file}    # in the browser, before you trust them"
    if not has_key:
        yield "  Without one: write them by hand, a line each, or import what you have (docs/ground-truth.md):"
        example = {"query": "…?", "relevant_spans": [{"doc_id": found.first, "text": "the sentence that answers it"}]}
        yield f"  {json.dumps(example, ensure_ascii=False)}"
    yield f"Then: rag-eval run {file}"
