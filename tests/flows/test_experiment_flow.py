"""General experiments as a flow on a real Prefect server."""

from pathlib import Path

import pytest

from rag_eval.errors import ConfigurationError, ExperimentError, ExperimentFailedError

FILE = """
from rag_eval.experiments import ExactMatch, evaluatorq

rows = [{"input": "a", "output": "a"}, {"input": "b", "output": "x"}]
evaluatorq("plain | one", data=rows, tasks=[lambda row: row["input"]], evaluators=[ExactMatch])
evaluatorq("second", data=rows, tasks=[TASK], evaluators=[ExactMatch])
"""


def written(folder: Path, task: str) -> str:
    path = folder / "experiments.py"
    path.write_text(FILE.replace("TASK", task))
    return str(path)


@pytest.mark.usefixtures("prefect_server")
def test_the_flow_completes_or_fails_with_the_reason_and_shows_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx
    from prefect.settings import PREFECT_API_URL

    from flows.experiment import experiment

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORQ_API_KEY", raising=False)
    good = written(tmp_path, "lambda row: row['output']")
    assert experiment(good, concurrency=1) == {"plain | one: ExactMatch": 0.5, "second: ExactMatch": 1.0}
    assert len(list((tmp_path / "evaluations").glob("*.json"))) == 2

    gated = experiment(good, fail_under=["ExactMatch=0.7"], return_state=True)
    assert gated.is_failed()
    assert gated.message is not None
    assert "plain | one: ExactMatch is 0.5000, below 0.7" in gated.message
    with pytest.raises(ExperimentFailedError, match=r"second: 2 calls failed, in task-1 \(2\)"):
        experiment(written(tmp_path, "lambda row: 1 / 0"), fail_under=["ExactMatch=0.7"])
    with pytest.raises(ExperimentError, match=r"'gone\.py' is missing"):
        experiment("gone.py")

    only = tmp_path / "only.py"
    only.write_text(FILE.partition('evaluatorq("second')[0].replace('lambda row: row["input"]', "lambda row: 1 / 0"))
    with pytest.raises(ExperimentFailedError, match="2 calls failed"):
        experiment(str(only), fail_under=["ExactMatch=0.7"])
    with pytest.raises(ConfigurationError, match=r"there is no average 'ExactMach' .*did you mean ExactMatch"):
        experiment(written(tmp_path, "lambda row: row['output']"), fail_under=["ExactMach=0.7"])

    artifacts = httpx.post(f"{PREFECT_API_URL.value()}/artifacts/filter", json={"limit": 200}).json()
    shown = [one["data"] for one in artifacts if one["key"] == "experiment"]
    assert len(shown) == 5
    assert any("| ExactMatch | 0.500 |" in text and "- html: evaluations/" in text for text in shown)
    assert any("- task\\-1 failed 2 times" in text or "- task-1 failed 2 times" in text for text in shown)


def test_the_form_has_plain_fields_with_descriptions() -> None:
    from prefect.utilities.callables import parameter_schema

    from flows.experiment import experiment

    fields = parameter_schema(experiment).properties
    assert {name: field["type"] for name, field in fields.items()} == {
        "file": "string",
        "concurrency": "integer",
        "fail_under": "array",
    }
    assert fields["fail_under"]["items"] == {"type": "string"}
    assert all(field["description"] for field in fields.values())
    assert experiment.validate_parameters({"file": "a.py", "concurrency": 0, "fail_under": []})
