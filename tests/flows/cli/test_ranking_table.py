"""The ranking on a narrow terminal: what tells two configurations apart is never left out."""

import io

import pytest
from rich.console import Console

from flows.cli.ranking import ranking
from rag_eval.benchmark.config import BenchmarkConfig
from rag_eval.benchmark.outcome import BenchmarkOutcome, ChunkStatistics, ConfigurationOutcome

METRICS = {"span_recall@5": 0.938, "span_precision@5": 0.25, "span_iou@5": 0.2, "tokens_retrieved@5": 812.0}
NAMES = [f"recursive-token {size}/0, vector, openai text-embedding-3-small, lexical" for size in (200, 400)]


@pytest.mark.parametrize("width", [80, 60])
def test_no_two_names_look_the_same_and_no_heading_is_cut(width: int) -> None:
    config = BenchmarkConfig.model_validate({"corpus": "c", "ground_truth": "t", "chunkers": [{"type": "markdown"}]})
    chunks = ChunkStatistics(count=7, mean=1.0, shortest=1, longest=1)
    # Only what the table shows; all else of an outcome is references to files.
    ways = [ConfigurationOutcome.model_construct(name=name, metrics=METRICS, chunks=chunks) for name in NAMES]
    outcome = BenchmarkOutcome.model_construct(config=config, configurations=ways)
    out = io.StringIO()
    Console(file=out, width=width).print(ranking(outcome, width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in out.getvalue()
    assert "precision" in out.getvalue()
    words = " ".join(out.getvalue().split())
    assert "200/0" in words
    assert "400/0" in words
    assert words.count("lexical") == 2


def test_no_token_at_all_is_a_count_too() -> None:
    config = BenchmarkConfig.model_validate({"corpus": "c", "ground_truth": "t", "chunkers": [{"type": "markdown"}]})
    chunks = ChunkStatistics(count=7, mean=1.0, shortest=1, longest=1)
    found = {name: METRICS | {"tokens_retrieved@5": tokens} for name, tokens in (("some", 812.0), ("none", 0.0))}
    ways = [ConfigurationOutcome.model_construct(name=name, metrics=m, chunks=chunks) for name, m in found.items()]
    out = io.StringIO()
    Console(file=out, width=80).print(ranking(BenchmarkOutcome.model_construct(config=config, configurations=ways), 80))
    (line,) = (line for line in out.getvalue().splitlines() if " none " in line)
    assert line.split()[-1] == "0"
