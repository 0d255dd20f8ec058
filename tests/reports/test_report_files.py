"""The files of a report, and the command that writes them."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.cli.main import app
from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.markdown_report import report_markdown
from rag_eval.reports.report import build_report
from rag_eval.reports.write import keep_report, page_of
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.sample import CORPUS, GROUND_TRUTH
from tests.chain import run_benchmark
from tests.doubles.broken_chunker import BrokenChunker
from tests.reports.conftest import Kept

BROKEN = BrokenChunker()
SMALL = BenchmarkConfig(
    corpus=CORPUS,
    ground_truth=GROUND_TRUTH,
    chunkers=[RecursiveCharacterChunker(chunk_size=600, chunk_overlap=0)],
    retrieval=["bm25"],
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    workspace = Workspace(root=tmp_path_factory.mktemp("small"))
    return Kept(workspace, run_benchmark(workspace, SMALL))


@pytest.fixture
def small_run(made: Kept, tmp_path: Path) -> Kept:
    """A copy that a test may damage."""
    root = tmp_path / "work"
    shutil.copytree(made.workspace.root, root)
    return Kept(Workspace(root=root), made.outcome)


def test_a_run_has_a_page_a_text_and_its_scores(sample_run: Kept) -> None:
    folder = sample_run.page.parent
    reports, data = {"report.html", "report.md"}, {"summary.json", "scores.parquet", "ground_truth.jsonl"}
    assert {path.name for path in folder.iterdir()} == reports | data
    assert pq.read_table(folder / "scores.parquet").num_rows > 12 * 70 * 20
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert text.startswith(
        "# By span\\_recall@5, ship recursive-token 300/0, hybrid\n\n**How sure.** recursive-token 300/0, "
    )
    rows = [line for line in text.splitlines() if line.startswith("| ") and "not significant" in line]
    assert len(rows) == 5
    assert sample_run.outcome.corpus.digest in text


def test_failures_are_shown_and_nothing_else_is_hidden(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    outcome = run_benchmark(workspace, SMALL.model_copy(update={"chunkers": [*SMALL.chunkers, BROKEN]}))
    assert list(outcome.failures) == ["recursive-token 60/90, bm25"]
    report = keep_report(workspace, outcome)
    assert report.words.notes[-1] == "1 configuration failed."
    page = page_of(workspace, outcome).read_text(encoding="utf-8")
    assert "<strong>recursive-token 60/90, bm25</strong>: " in page
    assert "must be smaller" in page
    assert "must be smaller" in report_markdown(report)


def test_lost_tables_are_said(small_run: Kept) -> None:
    (small_run.workspace.root / small_run.outcome.configurations[0].hits.uri).unlink()
    with pytest.raises(ArtifactError, match=r"is missing from the workspace .* run again"):
        keep_report(small_run.workspace, small_run.outcome)


def different(kept: Kept) -> BenchmarkOutcome:
    """The same run as if on another corpus."""
    outcome = kept.outcome
    documents = [outcome.inputs.documents[0].model_copy(update={"digest": "0" * 64})]
    inputs = outcome.inputs.model_copy(update={"documents": documents})
    corpus = outcome.corpus.model_copy(update={"digest": "0" * 64})
    return outcome.model_copy(update={"inputs": inputs, "corpus": corpus})


def test_runs_on_other_data_are_not_compared_unless_that_is_allowed(sample_run: Kept) -> None:
    workspace, outcome = sample_run.workspace, sample_run.outcome
    before = different(sample_run)
    with pytest.raises(ConfigurationError, match="the corpus differs"):
        build_report(workspace, outcome, against=before)
    report = build_report(workspace, outcome, against=before, allow_different=True)
    assert report.overlay is not None
    assert report.overlay.notes == [f"The hits of {outcome.run} are not shown: they were found in other data."]
    assert len(report.overlay.manifest["configurations"]) == 12


def test_an_earlier_run_whose_tables_are_gone_is_compared_without_its_hits(small_run: Kept) -> None:
    workspace, outcome = small_run.workspace, small_run.outcome
    keep_report(workspace, outcome)
    one = outcome.configurations[0]
    gone = one.hits.model_copy(update={"uri": "tables/hits/gone.arrow"})
    before = outcome.model_copy(update={"configurations": [one.model_copy(update={"hits": gone})]})
    report = build_report(workspace, outcome, against=before)
    assert report.overlay is not None
    assert len(report.overlay.manifest["configurations"]) == 1
    assert "tables/hits/gone.arrow is missing" in report.overlay.notes[0]


def command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["report", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_the_command_writes_the_latest_run_and_says_where(small_run: Kept, tmp_path: Path) -> None:
    workspace = str(small_run.workspace.root)
    code, output = command("--workspace", workspace)
    assert code == 0
    assert "recursive-character 600/0, bm25 was measured alone." in output
    assert f"Report: {small_run.page}" in output
    assert small_run.page.is_file()

    target = tmp_path / "there.md"
    code, output = command(small_run.outcome.run[:10], "--output", str(target), "--workspace", workspace)
    assert code == 0
    assert target.read_text(encoding="utf-8").startswith("# recursive-character 600/0, bm25 was measured alone\n")

    code, output = command("latest", "--against", small_run.outcome.run, "--workspace", workspace)
    assert code == 0
    assert "every question scores as before in 1 configuration." in " ".join(output.split())
    assert page_of(small_run.workspace, small_run.outcome, small_run.outcome).is_file()


def test_the_command_names_what_is_wrong(small_run: Kept, tmp_path: Path) -> None:
    workspace = str(small_run.workspace.root)
    with pytest.raises(ConfigurationError, match="there is no run 'nope'"):
        command("nope", "--workspace", workspace)
    with pytest.raises(ConfigurationError, match=r"cannot be written as 'report\.pdf': end its name in \.html or \.md"):
        command("--output", str(tmp_path / "report.pdf"), "--workspace", workspace)
    page = page_of(small_run.workspace, small_run.outcome)
    page.unlink(missing_ok=True)
    page.mkdir()  # where nothing can be written, whoever runs this
    with pytest.raises(
        ArtifactError, match=r"report\.html.* cannot be written .*; --output FILE writes the report els"
    ):
        command("--workspace", workspace)
    page.rmdir()
    assert command("--output", str(tmp_path / "report.html"), "--workspace", workspace)[0] == 0
