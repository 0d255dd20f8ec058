"""A run on documents that have changed since the truth was made."""

from pathlib import Path

import pytest

from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import GroundTruthError
from rag_eval.pipeline.workspace import Workspace
from tests.flows.benchmarks import LARGE, folder_of
from tests.flows.server_runs import run

pytestmark = pytest.mark.usefixtures("prefect_server")


def test_a_run_stops_at_truth_that_no_longer_matches_unless_it_is_carried_over(tmp_path: Path) -> None:
    folder, truth = folder_of(tmp_path, 3)
    config = BenchmarkConfig(corpus=folder, ground_truth=truth, chunkers=[LARGE])
    before = truth.read_text()
    document = folder / "000.md"
    document.write_text(f"<!-- new -->\n\n{document.read_text()}")
    with pytest.raises(GroundTruthError, match=r"'000\.md' has .*rag-eval truth reanchor carries spans over"):
        run(config, Workspace(root=tmp_path / "work"))
    outcome = run(config, Workspace(root=tmp_path / "work"), reanchor=True)
    assert outcome.configurations[0].metrics["span_recall@5"] == 1
    assert truth.read_text() == before
