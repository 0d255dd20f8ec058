"""``rag-eval experiment`` as a person and as a CI job use it."""

import json
import os
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rag_eval.cli.main import app
from rag_eval.errors import ExperimentFailedError, RagEvalError
from tests.cli.commands import children, is_running, rag_eval, started, wait_for

GOOD = """
from rag_eval.experiments import ExactMatch, evaluatorq

print("hello from the file")
evaluatorq("good", data=[{"input": "a", "output": "a"}, {"input": "b", "output": "x"}],
           tasks=[lambda row: row["input"]], evaluators=[ExactMatch])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "failing.py").write_text(GOOD.replace('lambda row: row["input"]', "lambda row: 1 / 0"))
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("x = 1\ny = undefined\n")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(5)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORQ_API_KEY", raising=False)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["experiment", "run", *words])


def test_a_run_prints_its_table_and_keeps_its_results(folder: Path) -> None:
    done = rag_eval("experiment", "run", "good.py", cwd=folder, ORQ_API_KEY="")
    assert done.returncode == 0, done.stderr
    assert "✓ good completed in" in done.stdout
    assert "• Average ExactMatch: 0.500" in done.stdout
    assert len(list(folder.glob("evaluations/good-*.json"))) == 1
    assert len(list(folder.glob("evaluations/good-*.html"))) == 1


def test_a_failing_call_fails_the_command_in_one_sentence(folder: Path) -> None:
    done = rag_eval("experiment", "run", "failing.py", cwd=folder, ORQ_API_KEY="")
    assert done.returncode == 1
    assert "good: 2 calls failed, in task-1 (2)" in " ".join(done.stderr.split())
    told = "• task-1 failed 2 times, first in sample 1: ZeroDivisionError: division by zero"
    assert told in done.stdout.splitlines()
    assert "Traceback" not in done.stderr


def test_json_alone_stands_on_standard_output(folder: Path) -> None:
    done = run("good.py", "--json", "--concurrency", "1", "--output-dir", "elsewhere")
    (result,) = json.loads(done.stdout)
    assert result["experimentName"] == "good"
    assert result["summary"]["scores"]["ExactMatch"]["n"] == 2
    assert (folder / result["saved"]["json"]).is_file()
    assert (folder / result["saved"]["html"]).parent.name == "elsewhere"
    assert "hello from the file" in done.stderr


def test_an_average_below_its_gate_has_an_exit_code_of_its_own(folder: Path) -> None:
    assert run("good.py", "--fail-under", "ExactMatch=0.5").exit_code == 0
    below = run("good.py", "--fail-under", "ExactMatch=0.6")
    assert below.exit_code == 3
    assert "good: ExactMatch is 0.5000, below 0.6" in below.stderr


@pytest.mark.usefixtures("folder")
def test_failed_calls_go_before_gates() -> None:
    assert isinstance(run("failing.py", "--fail-under", "ExactMatch=0.9").exception, ExperimentFailedError)


@pytest.mark.usefixtures("folder")
def test_a_misspelt_gate_is_told_with_the_name_that_is_meant() -> None:
    done = run("good.py", "--fail-under", "ExactMach=0.9")
    assert str(done.exception) == ("there is no average 'ExactMach' (did you mean ExactMatch?): use one of ExactMatch")


def test_a_gate_may_be_for_one_of_several_experiments(folder: Path) -> None:
    second = GOOD.replace('"good"', '"second"').replace("ExactMatch", "Contains")
    (folder / "two.py").write_text(GOOD + second)
    assert run("two.py", "--fail-under", "Contains=0.5").exit_code == 0
    assert "there is no average 'BLEU'" in str(run("two.py", "--fail-under", "BLEU=0.5").exception)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["good.py", "--fail-under", "BLEU=0.6"], "there is no average 'BLEU'"),
        (["good.py", "--fail-under", "high"], "'high' is not a minimum"),
        (["empty.py"], "'empty.py' runs no experiment"),
        (["broken.py"], "'broken.py', line 2: NameError: name 'undefined' is not defined"),
        (["leaving.py"], "'leaving.py' exited with code 5"),
        (["gone.py"], "the file 'gone.py' is missing"),
    ],
)
def test_a_mistake_is_said_in_a_sentence(words: list[str], sentence: str) -> None:
    done = run(*words)
    assert isinstance(done.exception, RagEvalError)
    assert sentence in str(done.exception)


@pytest.mark.usefixtures("folder")
def test_a_dry_run_prints_what_would_be_sent() -> None:
    assert json.loads(run("good.py", "--dry-run").stdout)["_name"] == "good"


def test_settings_stand_in_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text('[tool.rag-eval.experiment]\noutput_dir = "kept"\n')
    assert run("good.py").exit_code == 0
    assert len(list(folder.glob("kept/good-*.json"))) == 1
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert run("../good.py").exit_code == 0
    assert len(list(folder.glob("kept/good-*.json"))) == 2
    monkeypatch.chdir(folder)
    (folder / "rag-eval.toml").write_text("[experiment]\nconcurency = 3\n")
    wrong = run("good.py")
    assert "experiment.concurency: unknown key: the keys are output_dir, concurrency" in str(wrong.exception)
    (folder / "rag-eval.toml").write_text("concurrency = 3\n")
    assert "rag-eval.toml' has no [experiment] table" in str(run("good.py").exception)


def test_evaluators_are_listed_with_their_settings() -> None:
    listed = json.loads(CliRunner().invoke(app, ["parts", "evaluator", "--json"]).stdout)["evaluator"]
    defaults = {one["name"]: {each["name"]: each["default"] for each in one["settings"]} for one in listed}
    assert defaults["ExactMatch"] == {"ignore_case": "False", "strip": "False"}
    assert defaults["LLMJudge"]["model"] == "'gpt-4o-mini'"


def test_the_outputs_that_a_file_names_are_used_with_json_too(folder: Path) -> None:
    (folder / "own.py").write_text(
        GOOD.replace(
            "evaluators=[ExactMatch])", 'evaluators=[ExactMatch], outputs=[JsonOutput("own"), Shown()])'
        ).replace("import ExactMatch, evaluatorq", "import ExactMatch, JsonOutput, TerminalOutput as Shown, evaluatorq")
    )
    (result,) = json.loads(run("own.py", "--json").stdout)
    assert list(result["saved"]) == ["json"]
    assert len(list(folder.glob("own/good-*.json"))) == 1


def test_whoever_reads_the_beginning_alone_has_all_the_results(folder: Path) -> None:
    (folder / "good.py").write_text(GOOD.replace("print(", "str("))
    with started("experiment", "run", "good.py", cwd=folder, ORQ_API_KEY="") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert len(list(folder.glob("evaluations/good-*.json"))) == 1
    assert list(folder.glob("evaluations/.unfinished/*")) == []


WAITING = """
import pathlib, time
pathlib.Path("begun").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.02)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_says_what_is_kept(folder: Path, number: int, code: int) -> None:
    task = "lambda row: exec(open('waiting.py').read(), {})"
    (folder / "waiting.py").write_text(WAITING)
    (folder / "stuck.py").write_text(GOOD.replace('lambda row: row["input"]', task))
    process = started("experiment", "run", "stuck.py", cwd=folder, ORQ_API_KEY="")
    wait_for((folder / "begun").exists)
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == code
    assert told == "rag-eval: stopped; finished samples are saved, and the same command continues from there\n"


def test_watching_runs_again_after_a_change_and_ends_with_ctrl_c(folder: Path) -> None:
    (folder / "good.py").write_text(WAITING + GOOD)
    process = started("experiment", "watch", "good.py", cwd=folder, ORQ_API_KEY="")
    wait_for((folder / "begun").exists)
    # As an editor saves, during the first run.
    (folder / "good.py~").write_text(GOOD.replace('"good"', '"better"'))
    os.replace(folder / "good.py~", folder / "good.py")
    (folder / "go").touch()
    wait_for(lambda: list(folder.glob("evaluations/better-*.html")))
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.splitlines()[-1] == "rag-eval: stopped; finished samples are saved"
    assert "Watching" in told
    assert len(list(folder.glob("evaluations/better-*.json"))) == 1


def test_stopping_to_watch_ends_the_run_that_is_under_way(folder: Path) -> None:
    (folder / "good.py").write_text(WAITING + GOOD)
    process = started("experiment", "watch", "good.py", cwd=folder, ORQ_API_KEY="")
    wait_for((folder / "begun").exists)
    (run,) = children(process.pid)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not is_running(run)
