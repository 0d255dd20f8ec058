"""Runs to report on, made once, and a browser to look at the reports with."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rag_eval import sample
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.config.loading import load_config
from rag_eval.config.models import BenchmarkConfig
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.report import Report, build_report
from rag_eval.reports.write import keep_report, page_of
from rag_eval.results.outcome import SUMMARY, BenchmarkOutcome
from rag_eval.results.runs import read_run
from rag_eval.storage.locks import wait_for_lock
from tests.chain import run_benchmark

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DESKTOP = {"width": 1440, "height": 900}


class Kept:
    """A run that was kept, and its workspace."""

    def __init__(self, workspace: Workspace, outcome: BenchmarkOutcome) -> None:
        self.workspace = workspace
        self.outcome = outcome

    @property
    def page(self) -> Path:
        """The run's page."""
        return page_of(self.workspace, self.outcome)


def run_and_report(root: Path, config: BenchmarkConfig) -> Kept:
    """Run a benchmark in a workspace of its own, and write its report."""
    workspace = Workspace(root=root)
    kept = Kept(workspace, run_benchmark(workspace, config))
    keep_report(workspace, kept.outcome)
    return kept


@pytest.fixture(scope="session")
def sample_run(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Twelve configurations on the sample's documents and questions, with their report.

    The first worker of pytest-xdist to ask for it makes it, and each has a copy of its own.
    """
    base, root = tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp("sample")
    made = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made-sample"
    with wait_for_lock(made.with_suffix(".lock")):
        if not made.exists():
            making = made.with_suffix(f".{os.getpid()}")
            make_sample_run(Workspace(root=making))
            making.rename(made)
    shutil.copytree(made, root, dirs_exist_ok=True)
    workspace = Workspace(root=root)
    return Kept(workspace, read_run(workspace))


def make_sample_run(workspace: Workspace) -> None:
    """Make it in a workspace."""
    chunkers = [RecursiveTokenChunker(100), RecursiveTokenChunker(300), MarkdownChunker(1000), SentenceChunker(500, 1)]
    grid = load_config(sample.BENCHMARK).model_copy(
        update={"chunkers": chunkers, "returns": [None], "objective": "span_recall@5"}
    )
    outcome = run_benchmark(workspace, grid)
    # What a search took differs every time, and may decide which configuration is the cheapest.
    timeless = [one.model_copy(update={"latency_ms": 0.0}) for one in outcome.configurations]
    outcome = outcome.model_copy(update={"configurations": timeless})
    workspace.write_file(workspace.runs / outcome.run / SUMMARY, outcome.model_dump_json().encode())
    keep_report(workspace, outcome)


@pytest.fixture(scope="session")
def sample_report(sample_run: Kept) -> Report:
    """The report of the sample's run, by span recall in the first five hits."""
    return build_report(sample_run.workspace, sample_run.outcome)


class Opened:
    """A report in the browser, and everything it said or asked for behind the reader's back."""

    def __init__(self, page: "Page", file: Path, shows: str) -> None:
        self.page = page
        self.messages: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_selector(shows)

    def choose(self, control: str, value: str) -> None:
        """Choose an option of a select, or type into a field."""
        element = self.page.locator(f"#{control}")
        if element.evaluate("element => element.tagName") == "SELECT":
            element.select_option(value)
        else:
            element.fill(value)

    def questions(self) -> list[str]:
        """The questions in the list, as far as they are in sight."""
        return self.page.locator("#list .asked").all_inner_texts()

    def asked(self) -> str:
        """The open question."""
        return self.page.locator("#question h3").inner_text()

    def address(self, part: str) -> None:
        """Wait until the address has a part."""
        self.page.wait_for_function("part => location.hash.includes(part)", arg=part)

    def waits_for(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        self.page.wait_for_function(f"() => {expression}")


@pytest.fixture
def open_report(chromium: "Browser") -> "Iterator[Callable[..., Opened]]":
    """Opens a report in a window of its own and waits for what it shows; options are those of a browser context."""
    contexts = []

    def opened(file: Path, shows: str = "#question[data-drawn]", **options: object) -> Opened:
        context = chromium.new_context(**({"viewport": DESKTOP} | options))  # type: ignore[arg-type]  # their options
        contexts.append(context)
        return Opened(context.new_page(), file, shows)

    yield opened
    for context in contexts:
        context.close()


def findings(page: "Page") -> list[tuple[str, str]]:
    """What axe finds wrong by WCAG 2.2, levels A and AA."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
    results: Any = axe.Axe().run(page, options={"runOnly": {"type": "tag", "values": tags}})
    return [(one["id"], node["html"][:200]) for one in results.response["violations"] for node in one["nodes"]]
