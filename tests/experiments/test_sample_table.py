"""The table of samples on terminals of several widths."""

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from rag_eval.experiments.evaluators import (
    BLEU,
    Contains,
    CosineSimilarity,
    ExactMatch,
    LevenshteinSimilarity,
)
from rag_eval.experiments.file_outputs import experiment_markdown
from rag_eval.experiments.running import evaluatorq
from rag_eval.experiments.terminal_output import TerminalOutput
from rag_eval.formatting import escape_markdown

TEXTS = ["When does the last ferry leave?", "[bold]x[/bold] \x1b[31m红色的字很长很长很长很长很长", "boom", "🛳️", ""]
EVALUATORS = [ExactMatch, LevenshteinSimilarity, BLEU, CosineSimilarity, Contains]


def concise(row: Any) -> str:
    if row["input"] == "boom":
        raise ValueError("no boom")
    return str(row["input"]).upper()


def thorough_and_with_a_long_name(row: Any) -> str:
    return str(row["input"]) * 3


def table(width: int, tasks: list[Any], evaluators: list[Any]) -> list[str]:
    shown = io.StringIO()
    evaluatorq(
        "t",
        data=[{"input": text, "output": text.upper()} for text in TEXTS],
        tasks=tasks,
        evaluators=evaluators,
        outputs=[TerminalOutput(Console(file=shown, width=width))],
        raise_errors=False,
    )
    return shown.getvalue().partition("Summary:")[0].splitlines()[2:]


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("count", [0, 1, 3, 5])
@pytest.mark.parametrize("tasks", [[concise], [concise, thorough_and_with_a_long_name]], ids=["one", "two"])
def test_the_table_fits_and_keeps_its_frame(width: int, count: int, tasks: list[Any]) -> None:
    lines = [line for line in table(width, tasks, EVALUATORS[:count]) if line]
    assert max(map(cell_len, lines)) <= width
    assert {line[-1] for line in lines} <= set("┓┃┩│┘")
    assert all(line.isprintable() for line in lines)


def test_scores_stand_in_columns_where_they_fit_and_else_below_each_other() -> None:
    wide = table(120, [concise], EVALUATORS[:2])
    assert "ExactMatch ┃ LevenshteinSimilarity" in wide[1]
    assert wide[3].count("1.00") == 2
    narrow = table(80, [concise, thorough_and_with_a_long_name], EVALUATORS)
    assert "Scores" in narrow[1]
    assert "1.00   ExactMatch" in narrow[3]
    assert any("✗ ValueEr" in line and "failed ExactMatch" in line for line in narrow)


def test_what_outputs_and_names_hold_does_not_steer_the_terminal() -> None:
    class Placed:
        name = "mine\x1b[2J"

        def handle(self, results: Any) -> str:
            return "https://service/\x9b2J\x1b]0;owned"

    shown = io.StringIO()
    evaluatorq(
        "name\x1b[31m",
        data=[{"input": "x"}],
        tasks=[concise],
        outputs=[Placed(), TerminalOutput(Console(file=shown, width=80))],
    )
    assert "mine [2J: https://service/ 2J ]0;owned" in shown.getvalue()
    assert "name [31m completed" in shown.getvalue()
    assert all(line.isprintable() for line in shown.getvalue().split("\n"))


@pytest.mark.parametrize(
    "address", ["https://x)<img/src=x>", "https://x)[y](javascript:z)", "https://a\n\n# b", "file:///x"]
)
def test_an_address_that_would_end_its_link_is_text(address: str) -> None:
    class Placed:
        name = "<b>"

        def handle(self, results: Any) -> str:
            return address

    result = evaluatorq("t", data=[{"input": "x"}], tasks=[concise], outputs=[Placed()])
    *_, last = experiment_markdown(result).split("\n")
    assert last == f"- \\<b\\>: {escape_markdown(address)}"
    result.saved["<b>"] = "https://service/a?b=c%2Cd#e"
    assert experiment_markdown(result).endswith("- \\<b\\>: [open](https://service/a?b=c%2Cd#e)")


@pytest.mark.parametrize(("count", "more"), [(20, False), (21, True)])
def test_samples_beyond_the_table_are_counted(count: int, more: bool) -> None:
    shown = io.StringIO()
    outputs = [TerminalOutput(Console(file=shown, width=80))]
    evaluatorq("t", data=[{"input": "x"}] * count, tasks=[concise], outputs=outputs)
    assert ("… and 1 more" in shown.getvalue()) == more
    assert "… and 0 more" not in shown.getvalue()
