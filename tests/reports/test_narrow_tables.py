"""Tables of configurations on a narrow terminal: names are read whole, and what there is no room for is named."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rag_eval.cli.main import app
from tests.reports.conftest import Kept


@pytest.mark.parametrize("width", [72, 120])
@pytest.mark.parametrize(
    ("command", "needed", "others"),
    [
        ("holes", ["unjudged", "recall", "if all of", "relevant"], "unjudged@3, unjudged@10: "),
    ],
)
def test_figures_give_way_to_names(
    sample_run: Kept, tmp_path: Path, command: str, width: int, needed: list[str], others: str
) -> None:
    given = ["truth", command, sample_run.outcome.run, "--workspace", str(sample_run.workspace.root)]
    given += ["--output", str(tmp_path / "t.jsonl")] if command == "holes" else []
    done = CliRunner().invoke(app, given, env={"COLUMNS": str(width)}, catch_exceptions=False)
    head, _, rest = done.output.partition("\n")[2].partition("─")
    assert all(words in head for words in needed)
    for one in sample_run.outcome.ranked():
        assert f"\n {one.name}  " in rest
    assert (f"no room here for {others}" in " ".join(rest.split())) == (width == 72)
