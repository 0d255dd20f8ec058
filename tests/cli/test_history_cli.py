"""``history``, ``compare`` and ``gate`` as a user meets them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.cli.main import app
from rag_eval.errors import ConfigurationError, RagEvalError
from rag_eval.formatting import visible
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.gate_report import gate_annotations, gate_junit
from rag_eval.results.gate import run_gate
from rag_eval.results.runs import note_end, note_start, run_names
from tests.cli.commands import rag_eval
from tests.results.made_runs import LARGE_NAME, SMALL_NAME, Store, make_run, write_data


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A baseline, and three runs after it, the last with a failure."""
    folder = tmp_path_factory.mktemp("kept")
    config = write_data(folder)
    workspace = Workspace(root=folder / ".rag-eval")
    runs = [make_run(workspace, config, lost=lost) for lost in (0, 0.05, 0.3)]
    runs.append(make_run(workspace, config, failing=[LARGE_NAME]))
    found = Store(workspace, config, *runs)
    assert "The baseline is now" in said(found, "gate", runs[0].run[:-1], "--accept")
    return found


def said(store: Store, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments, "--workspace", str(store.workspace.root)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def told(store: Store, *arguments: str, code: int = 0) -> Any:
    return json.loads(said(store, *arguments, "--json", code=code))


def test_history_shows_runs_intervals_the_baseline_and_the_trend(kept: Store) -> None:
    shown = said(kept, "history")
    (marked,) = (line.split() for line in shown.splitlines() if " * " in line)
    assert kept.good.run.startswith(marked[0])
    assert "0.550…0.824" in shown
    assert "A: 12 documents, 60 questions with an answer (corpus " in shown
    assert "█▇▁█  span_recall@3 on data A: 1.000 to 0.983" in shown
    data = told(kept, "history", "--metric", "span_precision@1", "--last", "2")
    assert (data["metric"], data["earlier"], len(data["entries"])) == ("span_precision@1", 2, 2)
    assert data["trend"] == [entry["run"] for entry in data["entries"]]
    assert data["entries"][0]["estimate"]["unit"] == "documents"


def renamed(kept: Store, folder: Path) -> Store:
    """The store as if its runs had not begun in the same second."""
    shutil.copytree(kept.workspace.root, folder)
    for place, run in enumerate(kept.runs):
        name = f"2026-01-3{place % 2}T0{place}-00-00{run.run[19:]}"
        (folder / "runs" / run.run).rename(folder / "runs" / name)
        summary = folder / "runs" / name / "summary.json"
        summary.write_text(summary.read_text(encoding="utf-8").replace(run.run, name), encoding="utf-8")
    return replace(kept, workspace=Workspace(root=folder))


def test_compare_names_the_stage_that_a_drop_is_in(kept: Store) -> None:
    runs = kept.good.run, kept.much_worse.run
    drops = told(kept, "compare", *runs)["drops"]
    assert [one.split(", which loses ")[0] for one in drops] == [
        f"{name}: the drop is in: search (words)" for name in (LARGE_NAME, SMALL_NAME)
    ]
    shown = " ".join(said(kept, "compare", *runs).split())
    assert all(one in shown for one in drops)
    assert told(kept, "compare", runs[0], runs[0])["drops"] == []


def test_history_fits_a_terminal_of_80_columns(kept: Store, tmp_path: Path) -> None:
    own = renamed(kept, tmp_path / "own")
    (own.workspace.root / "baseline.json").write_text("{")
    make_run(own.workspace, write_data(tmp_path / "other", documents=6))
    shown = said(own, "history")
    assert max(map(len, shown.splitlines()[:12])) <= 80
    words = shown.split()
    # No name is broken inside a word, and a run is named by as much as tells it from the others.
    assert words.count("recursive-token") == 5
    assert {"2026-01-30T00-00-00", "2026-01-31T01-00-00", "failed", "B"} <= set(words)
    assert "is not a baseline: choose one with rag-eval gate RUN --accept" in shown
    assert "2 earlier runs: rag-eval history --last 5" in said(own, "history", "--last", "3")
    for run in own.workspace.runs.iterdir():
        (run / "summary.json").write_text("damaged")
    nothing = said(own, "history")
    assert "configuration" not in nothing
    assert nothing.count("summary.json") == 5


def test_history_gives_no_change_between_the_bests_of_two_grids(kept: Store, tmp_path: Path) -> None:
    own = renamed(kept, tmp_path / "own")
    make_run(own.workspace, own.config.model_copy(update={"chunkers": own.config.chunkers[:1]}))
    shown = said(own, "history")
    assert "grid" in shown
    assert "Runs with other grids have other configurations" in shown
    assert " on data A" not in shown  # there is nothing to compare the last run with
    followed = said(own, "history", "--configuration", SMALL_NAME)
    assert "grid" not in followed
    assert "span_recall@3 on data A: " in followed


def test_history_tells_benchmarks_of_one_workspace_apart(kept: Store, tmp_path: Path) -> None:
    own = renamed(kept, tmp_path / "own")
    assert "bench-" not in said(own, "history")
    few = own.config.model_copy(update={"chunkers": own.config.chunkers[:1], "name": "few"})
    make_run(own.workspace, few)
    shown = said(own, "history")
    assert "bench-" in shown
    assert "grid" not in shown.splitlines()[3]  # the benchmark tells it
    assert " few " in shown
    assert [one["benchmark"] for one in told(own, "history")["entries"]] == [own.config.name] * 4 + ["few"]


def test_a_run_by_another_objective_is_shown_by_its_own(kept: Store, tmp_path: Path) -> None:
    own = renamed(kept, tmp_path / "own")
    latest = make_run(own.workspace, own.config.model_copy(update={"objective": "span_recall@2"}))
    shown = " ".join(said(own, "history").split())
    assert latest.ranking_metric == "span_recall@2"
    assert shown.count("(by span_recall@3)") == 4
    assert "no score" not in shown
    entries = told(own, "history")["entries"]
    assert [one["metric"] for one in entries] == ["span_recall@3"] * 4 + ["span_recall@2"]
    assert told(own, "history")["trend"] == [latest.run]
    asked = " ".join(said(own, "history", "--metric", "span_recall@2").split())
    assert "no score by span_recall@2" in asked


def test_compare_shows_differences_and_single_queries_whatever_they_hold(kept: Store) -> None:
    shown = said(kept, "compare", "baseline", kept.much_worse.run, "--queries", "99")
    assert "verdict" in shown
    assert "-0.300" in shown
    assert "worse" in shown
    assert f"{LARGE_NAME}, span_recall@3: 0 better, 18 worse, 42 equal" in shown
    # Text from outside neither steers the terminal nor is taken for markup.
    assert "\x1b[31m" not in shown
    assert "[red]" in shown
    pair = f"{SMALL_NAME}={LARGE_NAME}"
    data = told(kept, "compare", "latest", "baseline", "--configuration", pair, "--metric", "span_recall@3")
    (row,) = data["comparisons"]
    assert (row["before"], row["after"], row["metric"]) == (SMALL_NAME, LARGE_NAME, "span_recall@3")
    assert row["comparison"]["verdict"] == "better"
    assert len(row["queries"]["better"]) == 5
    same = said(kept, "compare", "baseline", "baseline")
    assert "In 2 of 2 configurations every query has the same span_recall@3 as before." in same
    assert "By the other metrics no difference is significant after correction for all 4 comparisons." in same
    # The objective leads; the other metrics are corrected together and folded into a sentence.
    assert [line.strip() for line in shown.splitlines() if line.strip() in kept.good.measured] == ["span_recall@3"]
    assert "Significant by other metrics after correction for all 4 comparisons: tokens_retrieved@3 (2 better)" in shown
    # What is named is shown, whatever it comes to, with all its metrics and without the others.
    named = said(kept, "compare", "baseline", "baseline", "--configuration", SMALL_NAME).splitlines()
    assert len([line for line in named if "the same" in line]) == 3
    assert {"span_recall@3", "tokens_retrieved@3", "span_precision@3"} <= {line.strip() for line in named}
    only = said(kept, "compare", "baseline", kept.partly_failed.run, "--configuration", f"{LARGE_NAME}={SMALL_NAME}")
    assert "Left out" not in only
    # What stands beside a count of tokens is a count.
    tokens = said(kept, "compare", "baseline", kept.much_worse.run, "--metric", "tokens_retrieved@3")
    (line,) = (line for line in tokens.splitlines() if line.split()[-6:-5] == ["27"])
    assert line.split()[-5:-3] == ["19", "-8"]
    assert "Significant by other" not in tokens


def test_the_gate_passes_warns_fails_and_says_what_is_missing(kept: Store) -> None:
    passed = said(kept, "gate", kept.slightly_worse.run, "--metric", "span_recall@3", "--max-drop", "0.02")
    assert "PASS: 2 configurations dropped by more than 0.02, but not significantly." in passed
    assert "With 12 documents and 2 configurations only a drop of 0.1" in passed
    assert "FAIL rests on Gaffke's bound, which is conjectured, not proven, and assumes that no document" in passed
    failed = said(kept, "gate", kept.much_worse.run, "--metric", "span_recall@3", "--max-drop", "0.02", code=3)
    assert "FAIL: 2 configurations dropped by more than 0.02." in failed
    warned = said(kept, "gate", kept.much_worse.run, "--max-drop", "0.155")
    assert "WARN: 2 configurations probably dropped by more than 0.155, which is not certain; this does not" in warned
    assert "or let warnings fail: rag-eval gate --fail-on-warn" in warned
    strict = told(kept, "gate", kept.much_worse.run, "--max-drop", "0.155", "--fail-on-warn", code=4)
    assert (strict["answer"], strict["passed"]) == ("WARN", False)
    assert {check["answer"] for check in strict["checks"]} == {"WARN"}
    assert failed.endswith(f"If this is intended: rag-eval gate {kept.much_worse.run} --accept\n")
    costs = said(kept, "gate", "--metric", "tokens_retrieved@3", kept.slightly_worse.run, "--max-drop", "5")
    assert "tokens_retrieved@3 may rise by 5" in costs
    assert " rise " in costs
    assert "only a rise of " in costs
    data = told(kept, "gate", kept.much_worse.run, "--configuration", LARGE_NAME, "--max-drop", "0.02", code=3)
    assert (data["passed"], len(data["checks"]), data["metric"]) == (False, 1, "span_recall@3")
    assert told(kept, "gate", kept.slightly_worse.run)["max_drop"] == 0.02
    assert "Warning: A drop of 0.3 is large beside" in said(kept, "gate", kept.slightly_worse.run, "--max-drop", "0.3")
    assert "Warning" not in said(kept, "gate", kept.slightly_worse.run)
    pair = told(kept, "gate", kept.good.run, "--configuration", f"{SMALL_NAME}={LARGE_NAME}")
    assert [check["configuration"] for check in pair["checks"]] == [f"{SMALL_NAME} → {LARGE_NAME}"]
    missing = said(kept, "gate", code=3)
    assert f"{LARGE_NAME} is in the baseline and has no score in this run: it failed: no key" in missing
    assert "1 configuration with the same scores as in the baseline." in missing
    assert missing.endswith("; or gate what you ship: rag-eval gate --configuration NAME\n")


def test_show_says_how_sure_the_ranking_is_and_ranks_by_another_metric(kept: Store) -> None:
    shown = said(kept, "show", kept.good.run)
    assert (
        f"By span_recall@3, ship {LARGE_NAME}. {LARGE_NAME} finds 100.0 % [91.1, 100.0] of the relevant text"
        in " ".join(shown.split())
    )
    assert "The other is significantly worse." in " ".join(shown.split())
    assert "≈" not in shown
    first = said(kept, "show", kept.good.run, "--objective", "recall_within_tokens@250")
    assert "ranked by recall_within_tokens@250" in first
    assert "For 250 tokens of context, " in first
    with pytest.raises(ConfigurationError, match=r"was not measured by 'span_recall@7' \(did you mean span_recall"):
        said(kept, "show", "--objective", "span_recall@7")
    data = told(kept, "show", kept.good.run)
    assert data["verdict"]["shipped"] == LARGE_NAME


def test_the_gate_writes_a_junit_report(kept: Store, tmp_path: Path) -> None:
    file = tmp_path / "new" / "gate.xml"
    said(kept, "gate", kept.partly_failed.run, "--junit", str(file), code=3)
    suite = ElementTree.parse(file).getroot()[0]  # noqa: S314  # what we wrote
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("2", "1")
    cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
    assert cases.keys() == {SMALL_NAME, LARGE_NAME}
    failure = cases[LARGE_NAME].find("failure")
    assert failure is not None
    assert failure.attrib["type"] == "missing"
    assert failure.attrib["message"].startswith("FAIL: no score in this run: it failed: ")
    assert cases[SMALL_NAME].findtext("system-out") == "PASS: span_recall@3: every query scores as in the baseline"
    terms = {one.attrib["name"]: one.attrib["value"] for one in suite.iter("property")}
    assert terms.pop("note").startswith("FAIL rests on Gaffke's bound")
    assert terms == {
        "answer": "FAIL",
        "verdict": "FAIL: 1 configuration without scores.",
        "metric": "span_recall@3",
        "max_drop": "0.02",
        "baseline": kept.good.run,
        "run": kept.partly_failed.run,
    }
    said(kept, "gate", kept.much_worse.run, "--junit", str(file), code=3)
    text = file.read_text(encoding="utf-8")
    assert 'failures="2"' in text
    assert 'type="drop" message="FAIL: span_recall@3 went from 0.983 to ' in text
    # A warning is a passed test case that says so, or with --fail-on-warn a failure.
    said(kept, "gate", kept.much_worse.run, "--max-drop", "0.155", "--junit", str(file))
    warned = file.read_text(encoding="utf-8")
    assert 'failures="0"' in warned
    assert '<property name="answer" value="WARN"' in warned
    assert "<system-out>WARN: span_recall@3 went from 0.983 to " in warned
    said(kept, "gate", kept.much_worse.run, "--max-drop", "0.155", "--fail-on-warn", "--junit", str(file), code=4)
    assert 'type="warn" message="WARN: span_recall@3 went from 0.983 to ' in file.read_text(encoding="utf-8")


def test_the_gate_tells_github(kept: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    with pytest.raises(ConfigurationError, match="needs GITHUB_STEP_SUMMARY"):
        said(kept, "gate", "--github")
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    first, *lines = said(kept, "gate", kept.much_worse.run, "--github", code=3).splitlines()
    token = first.removeprefix("::stop-commands::")
    place = lines.index(f"::{token}::")
    assert not [line for line in lines[:place] if line.startswith("::")]
    assert [line.split(" ")[0] for line in lines[place + 1 :]] == ["::error"] * 2 + ["::notice"] * 3
    assert lines[place + 1].startswith(
        f"::error title={SMALL_NAME.replace(',', '%2C')}::FAIL: span_recall@3 went from "
    )
    assert lines[-1].endswith("::FAIL: 2 configurations dropped by more than 0.02.")
    page = summary.read_text()
    assert page.startswith("before\n## Retrieval\n\n**FAIL: ")
    assert f"| {SMALL_NAME} |" in page
    output = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    assert told(kept, "gate", kept.good.run, "--github")["passed"]
    warned = said(kept, "gate", kept.much_worse.run, "--max-drop", "0.155", "--github").splitlines()
    assert [line.split(" ")[0] for line in warned if line.startswith("::")][2:4] == ["::warning"] * 2
    assert output.read_text() == "answer=PASS\nanswer=WARN\n"


def test_no_name_begins_a_command_or_leaves_its_element(kept: Store) -> None:
    ugly = "x, y: 100 %\r\n::add-mask::oh<a b='\"]]>&\x00\ud800\ufffe"
    found = run_gate(kept.workspace, kept.good, kept.much_worse, "span_recall@3")
    found = replace(found, checks=[replace(found.checks[0], configuration=ugly)], missing={f"{ugly}2": ugly})
    annotations = gate_annotations(found)
    assert annotations[0].startswith("::error title=x%2C y%3A 100 %25\\r\\n%3A%3Aadd-mask%3A%3Aoh<a b=")
    assert all("\n" not in line and line.startswith(("::error title=", "::notice title=")) for line in annotations)
    cases = list(ElementTree.fromstring(gate_junit(found)).iter("testcase"))  # noqa: S314  # what we wrote
    assert [case.attrib["name"] for case in cases] == [visible(ugly), visible(f"{ugly}2")]


def test_too_little_to_fail_a_gate_is_said_when_the_baseline_is_set(kept: Store, tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path / ".rag-eval")
    chunkers = [RecursiveTokenChunker(chunk_size=size) for size in (20, 30, 60, 90)]
    config = write_data(tmp_path, documents=6, queries=1).model_copy(update={"chunkers": chunkers})
    good = make_run(workspace, config)
    own = Store(workspace, config, good, good, good, good)
    sentence = "With 6 documents and 4 configurations only a drop of 0.343 or more can fail; a smaller one can warn."
    assert sentence in said(own, "gate", "latest", "--accept")
    alone = said(own, "gate", "--configuration", SMALL_NAME)
    assert "With 6 documents and 1 configuration only a drop of 0.214 or more can fail" in alone
    shown = said(own, "show")
    assert "6 questions are too few to recommend a configuration." in shown
    assert "≈ not significantly different from the first on these questions" in shown
    assert ["≈" in line for line in shown.splitlines() if ", bm25  " in line] == [False, True, True, True]
    larger = [*chunkers[1:], RecursiveTokenChunker(chunk_size=70)]
    changed = make_run(workspace, config.model_copy(update={"chunkers": larger}))
    compared = said(own, "compare", "baseline", "latest")
    assert "Left out, only in the run before: recursive-token 20/0, bm25.\n" in compared
    assert "Left out, only in the run after: recursive-token 70/0, bm25.\n" in compared
    pair = "recursive-token 20/0, bm25=recursive-token 70/0, bm25"
    assert f"rag-eval compare {good.run} {changed.run} --configuration BEFORE=AFTER.\n" in compared
    assert "20/0, bm25 → recursive-token 70/0" in said(own, "compare", good.run, changed.run, "--configuration", pair)


def test_other_data_is_compared_only_when_allowed(kept: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(root=tmp_path / ".rag-eval")
    first = make_run(workspace, write_data(tmp_path / "a", documents=6))
    second = make_run(workspace, write_data(tmp_path / "b", documents=5))
    own = Store(workspace, kept.config, first, second, second, second)
    said(own, "gate", first.run, "--accept")
    with pytest.raises(ConfigurationError, match=r"the corpus differs: 6 documents"):
        said(own, "compare", "baseline", "latest")
    # CI is told of a gate that cannot be judged, too.
    file, summary = tmp_path / "gate.xml", tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    options = ["--junit", str(file), "--github", "--workspace", str(workspace.root)]
    refused = CliRunner().invoke(app, ["gate", *options])
    assert isinstance(refused.exception, ConfigurationError)
    unjudged = "The gate could not be tested"
    assert refused.output.startswith(
        f"::error title=rag-eval gate::{unjudged}: the runs were not measured on the same data"
    )
    suite = ElementTree.parse(file).getroot()[0]  # noqa: S314  # what we wrote
    assert (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["errors"]) == ("1", "0", "1")
    assert ["the corpus differs: 6 documents" in one.attrib["message"] for one in suite.iter("error")] == [True]
    assert summary.read_text().startswith(f"## Retrieval\n\n**{unjudged}**: the runs were not measured")
    assert "Warning: the corpus differs" in said(own, "compare", "baseline", "latest", "--allow-different")
    gate = said(own, "gate", "--allow-different")
    assert "25 questions with an answer in both runs, about too few documents to generalise" in gate
    assert "PASS." in gate
    assert "B: 5 documents, 25 questions with an answer (" in said(own, "history")


def test_a_gate_after_a_failed_run_has_no_verdict(kept: Store, tmp_path: Path) -> None:
    own = renamed(kept, tmp_path / "own")
    for run in own.workspace.runs.iterdir():
        if not run.name.endswith(own.good.run[19:]):
            shutil.rmtree(run)
    said(own, "gate", "latest", "--accept")
    assert "The run is the baseline itself: nothing has changed since" in said(own, "gate")
    missing = tmp_path / "missing.yaml"
    missing.write_text("corpus: nowhere\nground_truth: none.jsonl\nretrieval: bm25\nchunkers: markdown\n")
    with pytest.raises(RagEvalError, match="check the path"):
        said(own, "run", str(missing))
    with pytest.raises(ConfigurationError, match=r"the last rag-eval run has not finished .* nothing new to compare"):
        said(own, "gate")
    (only,) = run_names(own.workspace)
    assert "The run is the baseline itself" in said(own, "gate", only)  # named on purpose
    noted = note_start(own.workspace)
    note_end(own.workspace, noted, only)  # as after a run that found nothing changed
    assert "The run is the baseline itself" in said(own, "gate")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["gate", "--max-drop", "0.02"], 3, ""),
        (["gate", "--max-drop", "-1"], 2, "the largest drop allowed is -1.0"),
    ],
)
def test_exit_codes_of_the_program(kept: Store, arguments: list[str], code: int, sentence: str) -> None:
    done = rag_eval(*arguments, cwd=kept.workspace.root.parent)
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == (1 if sentence else 0)
