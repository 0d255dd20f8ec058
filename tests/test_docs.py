"""The README keeps its promises: its code runs, and its commands, options and keys are the real ones."""

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

import rag_eval
from flows.cli.main import app
from rag_eval.benchmark.config import BenchmarkConfig
from rag_eval.benchmark.config_files import load_config
from rag_eval.ground_truth.files import read_chunk_level, read_token_level
from rag_eval.ground_truth.records import ChunkLevelLine, SpanLine, TokenLevelLine
from rag_eval.metrics import METRIC
from rag_eval.sample import CORPUS

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^ *```(\w+)\n(.*?)^ *```", README, re.MULTILINE | re.DOTALL)
NEEDS_A_MODEL = "## Beyond retrieval: experiments"  # its code is run by test_tutorial.py


def blocks(language: str) -> list[str]:
    return [textwrap.dedent(text) for kind, text in BLOCKS if kind == language]


def commands() -> dict[str, typer.core.TyperCommand]:
    """Every command by the words after ``rag-eval``."""
    return dict(_commands(get_command(app), ()))


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, typer.core.TyperCommand]]:
    if not hasattr(command, "commands"):
        yield " ".join(words), command
        return
    for name, inner in command.commands.items():
        yield from _commands(inner, (*words, name))


def test_the_python_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    model = {text for kind, text in BLOCKS if kind == "python" and text in README.split(NEEDS_A_MODEL)[1]}
    for text in [text for text in blocks("python") if text not in model]:
        exec(compile(text, "README.md", "exec"), names)  # noqa: S102  # the README's own code
    printed = capsys.readouterr().out
    assert "RecursiveTokenChunker(chunk_size=200, chunk_overlap=0, encoding=cl100k_base): 0." in printed


def test_every_command_and_option_is_in_the_readme_and_real() -> None:
    table = README.split("### Commands", 1)[1].split("\n\nExit codes", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if line[:3] == "| `"]
    documented = {
        re.sub(r" [A-Z\[].*", "", row[0].strip("`")): set(re.findall(r"`(--[\w-]+)`", row[2])) for row in rows
    }
    real = {
        name: {max(one.opts, key=len) for one in command.params if one.param_type_name == "option"} - {"--help"}
        for name, command in commands().items()
    }
    assert documented == real


def test_every_command_of_the_examples_is_real_and_has_an_example() -> None:
    used = [line.split("#")[0].split("rag-eval ", 1)[1] for text in blocks("bash") for line in example_lines(text)]
    known = commands()
    seen = set()
    for words in map(str.split, used):
        name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in known), None)
        assert name is not None, words
        seen.add(name)
        options = {option for parameter in known[name].params for option in parameter.opts}
        assert {word.split("=")[0] for word in words if word.startswith("--")} <= options, words
    assert seen == set(known)


def example_lines(text: str) -> list[str]:
    """The lines that run a command, but for ``--debug``, which stands before it."""
    return [line for line in text.splitlines() if "rag-eval " in line and "--debug" not in line]


def test_every_chunker_metric_and_part_named_exists() -> None:
    tables = README.split("## From your folder", 1)[1]
    for name in re.findall(r"`([A-Z]\w+(?:Chunker|Embedder|Store|Reranker|Retriever|Evaluation|Adapter))`", tables):
        assert hasattr(rag_eval, name), f"{name} is not exported"
    metrics = README.split("### Metrics", 1)[1].split("##", 1)[0]
    for name in METRIC.types:
        assert f"`{name}`" in metrics, f"{name} is not in the README"


def test_the_example_of_ground_truth_can_be_read(tmp_path: Path) -> None:
    (line,) = (text.strip() for text in blocks("json"))
    (tmp_path / "truth.jsonl").write_text(line, encoding="utf-8")
    (item,) = read_token_level(tmp_path / "truth.jsonl")
    assert item.relevant_spans[0].text == "The last ferry leaves Storvåg at 22:40."


def test_the_keys_of_ground_truth_are_those_documented(tmp_path: Path) -> None:
    table = README.split("### The ground-truth format", 1)[1].split("\n\nA span", 1)[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    models = (TokenLevelLine, ChunkLevelLine, SpanLine)
    assert documented == {key for model in models for key in model.model_fields} - {"doc_id", "start", "end", "text"}
    full = {"id": "query_1", "query": "?", "unanswerable": True, "metadata": {"chunker": "x"}}
    (tmp_path / "a.jsonl").write_text(json.dumps(full | {"relevant_spans": []}))
    (tmp_path / "b.jsonl").write_text(json.dumps(full | {"relevant_chunk_ids": []}))
    assert read_token_level(tmp_path / "a.jsonl")[0].query.id == read_chunk_level(tmp_path / "b.jsonl")[0].query.id


def test_the_benchmark_file_is_valid_and_its_keys_are_those_documented(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    (tmp_path / "benchmark.yaml").write_text(text)
    assert len(load_config(tmp_path / "benchmark.yaml").configurations()) == 18
    table = README.split("The keys of a benchmark file:", 1)[1].split("\n\nFiles may", 1)[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(BenchmarkConfig.model_fields)


def test_the_figures_are_those_of_the_benchmark() -> None:
    results = re.sub(" +", " ", (Path(__file__).parent / "bench" / "RESULTS.md").read_text(encoding="utf-8"))
    quoted = README.split("## Speed", 1)[1].split("\n\n", 2)[2].split("\n\n## ", 1)[0]
    rows = [line for line in quoted.splitlines() if line.startswith("| ") and "figure" not in line]
    assert len(rows) >= 8
    for row in rows:
        name, seen = (cell.strip() for cell in row.strip("|").split("|")[:2])
        assert f"| {name} | {seen} |" in results, name


def test_the_sample_document_named_is_there() -> None:
    assert (CORPUS / "fares-and-ticketing.md").is_file()
