"""How fast the chunkers are, against tiktoken alone and against peers.

Times are CPU seconds, and every figure is a ratio of times taken in one run over the same texts, which are read or
made for it: the Chroma corpora beside the repository, varied word by word from a seed until there is enough distinct
text, or, where they are absent, generated text. Run ``python tests/bench/bench_chunking.py``.
"""

import logging
import sysconfig
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import chonkie
import semantic_text_splitter
import semchunk
from langchain_text_splitters import RecursiveCharacterTextSplitter
from langchain_text_splitters.base import Tokenizer, split_text_on_tokens

from rag_eval import tokens
from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.recursive import RecursiveCharacterChunker, RecursiveTokenChunker
from rag_eval.tokens import get_encoding
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId
from tests.bench.distinct_texts import CORPORA, base_texts, distinct_texts

ENCODING = "cl100k_base"
PASSES = 5
Figure = dict[str, Any]
Job = Callable[[str], object]


def short_lines(texts: Iterable[str]) -> list[str]:
    """The texts with a line for every five words."""
    lines = []
    for text in texts:
        words = text.split()
        lines.append("\n".join(" ".join(words[i : i + 5]) for i in range(0, len(words), 5)))
    return lines


def cpu_seconds(job: Job, text: str) -> float:
    """The CPU time of one call."""
    tokens._ends.clear()  # each chunker meets the text for the first time
    began = time.process_time()
    job(text)
    return time.process_time() - began


def totals(jobs: dict[str, Job], texts: Sequence[str]) -> dict[str, float]:
    """The CPU time of each job over all texts; the jobs take turns at going first, so that none has warm caches."""
    spent = dict.fromkeys(jobs, 0.0)
    names = list(jobs)
    for turn, text in enumerate(texts):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            spent[name] += cpu_seconds(jobs[name], text)
    return spent


def figure(name: str, value: float, target: float, unit: str, at_most: bool = False) -> Figure:
    """One row of the result."""
    ok = value <= target if at_most else value >= target
    return {"name": name, "value": round(value, 3), "target": target, "unit": unit, "ok": ok}


def character_figures() -> list[Figure]:
    """The recursive character chunker against LangChain's splitter, with the same settings."""
    chunker = RecursiveCharacterChunker(1000, 200)
    splitter = RecursiveCharacterTextSplitter(chunk_size=1000, chunk_overlap=200, add_start_index=True)
    corpora = base_texts()
    sources = [path.read_bytes().decode() for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))]

    def ratio(ours: Job, theirs: Job, texts: list[str]) -> float:
        spent = [totals({"ours": ours, "theirs": theirs}, texts) for _ in range(PASSES)]
        return median(each["theirs"] / each["ours"] for each in spent)

    def with_places(text: str) -> object:
        return chunker.chunk_with_positions(Document(DocumentId("d"), text))

    places = ratio(with_places, lambda text: splitter.create_documents([text]), corpora)
    cuts = ratio(chunker.cuts, lambda text: splitter.create_documents([text]), corpora)
    source = ratio(chunker.chunk, splitter.split_text, sources)
    lines = ratio(chunker.chunk, splitter.split_text, short_lines(corpora))
    unit = "x langchain"
    return [
        figure("recursive-character, chunks with ids and places, vs add_start_index", places, 7, unit),
        figure("recursive-character, places alone, vs add_start_index", cuts, 7, unit),
        figure("recursive-character, source code, vs bare split_text", source, 2, unit),
        figure("recursive-character, short lines, vs bare split_text", lines, 2, unit),
    ]


def token_figures() -> list[Figure]:
    """The token chunkers as shares of the speed of ``tiktoken.encode`` over text that none has seen."""
    coder = get_encoding(ENCODING)
    jobs: dict[str, Job] = {
        "encode": lambda text: coder.encode(text, disallowed_special=()),
        "fixed": FixedTokenChunker(encoding=ENCODING).chunk,
        "recursive": RecursiveTokenChunker(encoding=ENCODING).chunk,
    }
    spent = [totals(jobs, distinct_texts(10_000_000, seed)) for seed in range(PASSES)]
    fixed = median(each["encode"] / each["fixed"] for each in spent)
    recursive = median(each["encode"] / each["recursive"] for each in spent)
    return [
        figure("fixed-token, 100/0, over 10 MB of distinct text", fixed, 0.90, "of tiktoken.encode"),
        figure("recursive-token, 400/0, over 10 MB of distinct text", recursive, 0.65, "of tiktoken.encode"),
    ]


def peer_figures() -> list[Figure]:
    """The token chunkers against peers set to the same encoding and size."""
    coder = get_encoding(ENCODING)

    def count(text: str) -> int:
        return len(coder.encode_ordinary(text))

    windows = Tokenizer(chunk_overlap=0, tokens_per_chunk=100, decode=coder.decode, encode=coder.encode_ordinary)
    splitter = RecursiveCharacterTextSplitter(chunk_size=400, chunk_overlap=0, length_function=count)
    kinds: dict[str, dict[str, Job]] = {
        "fixed-token, 100/0": {
            "ours": FixedTokenChunker(encoding=ENCODING).chunk,
            "langchain": lambda text: split_text_on_tokens(text=text, tokenizer=windows),
            "chonkie": chonkie.TokenChunker(tokenizer=coder, chunk_size=100, chunk_overlap=0).chunk,
            "semchunk": semchunk.chunkerify(coder, 100),
            "semantic-text-splitter": semantic_text_splitter.TextSplitter.from_tiktoken_model("gpt-4", 100).chunks,
        },
        "recursive-token, 400/0": {
            "ours": RecursiveTokenChunker(encoding=ENCODING).chunk,
            "langchain": splitter.split_text,
            "chonkie": chonkie.RecursiveChunker(tokenizer=coder, chunk_size=400).chunk,
            "semchunk": semchunk.chunkerify(coder, 400),
            "semantic-text-splitter": semantic_text_splitter.TextSplitter.from_tiktoken_model("gpt-4", 400).chunks,
        },
    }
    figures = []
    for kind, jobs in kinds.items():
        spent = [totals(jobs, distinct_texts(1_000_000, 100 + seed)) for seed in range(3)]
        for peer in list(jobs)[1:]:
            ratio = median(each[peer] / each["ours"] for each in spent)
            figures.append(figure(f"{kind}, vs {peer}", ratio, 1, f"x {peer}"))
    return figures


def linearity_figures() -> list[Figure]:
    """The cost of one text of 60 MB, in units of the cost of its tenths."""
    whole = "\n\n".join(distinct_texts(60_000_000, 1000))
    tenth = -(-len(whole) // 10)
    figures = []
    for chunker in (
        RecursiveCharacterChunker(),
        FixedTokenChunker(encoding=ENCODING),
        RecursiveTokenChunker(encoding=ENCODING),
    ):
        parts = sum(cpu_seconds(chunker.cuts, whole[i : i + tenth]) for i in range(0, len(whole), tenth))
        growth = cpu_seconds(chunker.cuts, whole) / parts
        name = f"{type(chunker).__name__}, a text of 60 MB vs its tenths"
        figures.append(figure(name, growth, 1.5, "x the cost", at_most=True))
    return figures


def run() -> list[Figure]:
    """All figures: name, value, target, unit, ok."""
    logging.getLogger("langchain_text_splitters").setLevel(logging.ERROR)
    return character_figures() + token_figures() + peer_figures() + linearity_figures()


def main() -> None:
    """Print the figures as a table."""
    print(f"text: {'the Chroma corpora' if CORPORA.is_dir() else f'generated, for want of {CORPORA}'}")
    for row in run():
        mark = "ok" if row["ok"] else "LOW"
        print(f"{mark:<3} {row['value']:8.2f} {row['unit']:<24} (target {row['target']}) {row['name']}")


if __name__ == "__main__":
    main()
