"""The ranking on a narrow terminal: what tells two configurations apart is never left out."""

import io

import pytest
from rich.console import Console

from rag_eval.cli.ranking_table import ranking_table
from rag_eval.config.models import BenchmarkConfig, ConfigurationRecord
from rag_eval.reports.ranking import ConfigurationRanking
from rag_eval.results.outcome import BenchmarkOutcome, ChunkStatistics, ConfigurationOutcome

METRICS = {"span_recall@5": 0.938, "span_precision@5": 0.25, "span_iou@5": 0.2, "tokens_retrieved@5": 812.0}
NAMES = [f"recursive-token {size}/0, vector, openai text-embedding-3-small, lexical" for size in (200, 400)]


def printed(found: dict[str, dict[str, float]], width: int) -> str:
    """The ranking of configurations by name with these averages, on a terminal of this width."""
    given = {"corpus": "c", "ground_truth": "t", "chunkers": [{"type": "markdown"}], "objective": "span_recall@5"}
    config = BenchmarkConfig.model_validate(given)
    chunks = ChunkStatistics(count=7, mean=1.0, shortest=1, longest=1)
    # Only what the ranking shows; all else of an outcome is references to files.
    costs = dict.fromkeys(("latency_ms", "cost", "tokens")) | {"indexes": []}
    record = ConfigurationRecord()
    ways = [
        ConfigurationOutcome.model_construct(name=name, configuration=record, metrics=metrics, chunks=chunks, **costs)
        for name, metrics in found.items()
    ]
    outcome = BenchmarkOutcome.model_construct(config=config, configurations=ways)
    out = io.StringIO()
    Console(file=out, width=width).print(ranking_table(ConfigurationRanking.of(outcome), width))
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 60])
def test_no_two_names_look_the_same_and_no_heading_is_cut(width: int) -> None:
    table = printed(dict.fromkeys(NAMES, METRICS), width)
    assert max(map(len, table.splitlines())) <= width
    assert "…" not in table
    assert ("precision" in table) == (width == 80), "a column that there is no room for is left out"
    words = " ".join(table.split())
    assert "200/0" in words
    assert "400/0" in words
    assert words.count("lexical") == 2


def test_no_token_at_all_is_a_count_too() -> None:
    found = {name: METRICS | {"tokens_retrieved@5": tokens} for name, tokens in (("some", 812.0), ("none", 0.0))}
    (line,) = (line for line in printed(found, 80).splitlines() if " none " in line)
    assert line.split()[-5:] == ["0.938", "0", "0.250", "0.200", "7"]
