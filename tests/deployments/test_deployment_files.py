"""The files of ``deployments/`` say what the code does: entry points import, settings and commands are real."""

import inspect
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import httpx
import kubernetes.client
import pytest
import yaml
from prefect.events import DeploymentEventTrigger
from prefect.flows import load_flow_from_entrypoint
from prefect.settings import PREFECT_API_URL, Settings
from prefect.utilities.templating import apply_values, find_placeholders
from typer.main import get_command

from flows.benchmark_from_file import Runner, benchmark_from_file
from flows.deployments import PREFECT_FILE, Project, corpus_resource, deploy, read_deployments, remove
from flows.generate import generate
from rag_eval.cli.main import app
from rag_eval.config.models import NEEDED
from rag_eval.errors import ConfigurationError
from tests.cli.commands import CLEAN
from tests.deployments.compose import FOLDER, env_file, services

ROOT = FOLDER.parent
FIELDS = set(inspect.signature(benchmark_from_file.fn).parameters)


def test_every_deployment_has_parameters_of_the_flow_and_a_trigger_that_is_one() -> None:
    assert PREFECT_FILE == FOLDER / "prefect.yaml"
    for spec in read_deployments():
        fields = set(load_flow_from_entrypoint(spec["entrypoint"]).parameters.properties)
        assert set(spec["parameters"]) <= fields
        for trigger in spec.get("triggers", []):
            assert set(trigger["parameters"]) <= fields
            # A run waits longer than the trigger is deaf, or changes of that time would be in none.
            made = DeploymentEventTrigger(**trigger)
            assert made.schedule_after > made.within


@pytest.mark.parametrize("flow", [benchmark_from_file, generate])
def test_the_form_needs_no_json(flow: Any) -> None:
    properties = flow.parameters.properties
    assert set(properties) == set(inspect.signature(flow.fn).parameters)
    for name, field in properties.items():
        plain = field["items"] if field["type"] == "array" else field
        assert plain["type"] in ("string", "boolean", "number", "integer"), name
        assert len(field["description"]) > 20, name
    assert set(get_args(Runner)) == set(NEEDED)


@pytest.mark.parametrize(
    "entrypoint", ["flows.benchmark_from_file.benchmark_from_file", "flows/benchmark_from_file.py:benchmark_from_file"]
)
def test_the_entry_point_imports_from_a_checkout_and_from_where_it_is_installed(
    tmp_path: Path, entrypoint: str
) -> None:
    installed = "/" not in entrypoint
    code = "from prefect.flows import load_flow_from_entrypoint as load; import sys; print(load(sys.argv[1]).name)"
    done = subprocess.run(
        [sys.executable, "-c", code, entrypoint],
        cwd=tmp_path if installed else ROOT,
        env=CLEAN,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "rag-eval-benchmark-from-file", done.stderr


def test_what_is_installed_holds_the_deployments() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert "deployments" in tools["packages"]["find"]["include"]
    assert "prefect.yaml" in tools["package-data"]["deployments"] or "*.yaml" in tools["package-data"]["deployments"]


@pytest.mark.parametrize("name", ["server.env", "worker.env"])
def test_the_settings_of_the_env_files_are_prefects(name: str) -> None:
    known = set(Settings().to_environment_variables(include_aliases=True)) | setting_names(Settings)
    for variable in env_file(name):
        assert variable in known or not variable.startswith("PREFECT_"), variable


def setting_names(model: Any, prefix: str = "PREFECT_") -> set[str]:
    found = set()
    for name, field in model.model_fields.items():
        inner = [kind for kind in (field.annotation, *get_args(field.annotation)) if hasattr(kind, "model_fields")]
        found |= setting_names(inner[0], f"{prefix}{name.upper()}_") if inner else {f"{prefix}{name.upper()}"}
    return found


def test_the_services_name_files_commands_and_each_other() -> None:
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]  # a group has commands
    for name, service in services().items():
        for needed in service.get("depends_on", {}):
            assert needed in services()
        if "env_file" in service:
            assert (FOLDER / service["env_file"]).is_file()
        if service.get("command", [""])[0] == "rag-eval":
            _, word, *arguments = service["command"]
            options = {option for parameter in commands[word].params for option in parameter.opts}
            assert {word for word in arguments if word.startswith("--")} <= options, name
    assert yaml.safe_load((FOLDER / "compose.yaml").read_text())["x-image"]["build"]["dockerfile"].endswith(
        "Dockerfile"
    )
    copied = re.findall(r"^COPY (.*) \S+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert all((ROOT / name).exists() for line in copied for name in line.split())


PARAMETERS: dict[str, str | float | list[str]] = {
    "benchmark_file": "b.yaml",
    "workspace": "s3://bucket/work",
    "runner": "dask",
}


def ask(path: str, **body: Any) -> Any:
    """What the server answers to a POST."""
    return httpx.post(f"{PREFECT_API_URL.value()}{path}", json=body, timeout=30).json()


@pytest.mark.usefixtures("prefect_server")
def test_deploying_again_replaces_and_kubernetes_gets_its_job(tmp_path: Path) -> None:
    api = str(PREFECT_API_URL.value())
    project = Project("jobs", tmp_path, tmp_path / "docs", PARAMETERS)
    first = deploy(project)
    assert deploy(project) == first
    other = replace(project, cron="30 4 * * *", pool="kubernetes", job_template=FOLDER / "kubernetes-job.json")
    again = deploy(other)
    assert {what: one.id for what, one in first.items()} == {what: one.id for what, one in again.items()}
    assert [first["nightly"].schedule, again["nightly"].schedule, again["adhoc"].schedule] == [
        *("0 3 * * *", "30 4 * * *", "")
    ]
    for one in again.values():
        made = httpx.get(f"{api}/deployments/{one.id}", timeout=30).json()
        assert made["work_pool_name"] == "kubernetes"
        has_none = made["name"] in ("experiment-jobs", "generate-jobs")
        assert has_none or PARAMETERS.items() <= made["parameters"].items()
        assert [one["schedule"]["cron"] for one in made["schedules"]] == (
            ["30 4 * * *"] if made["name"] == "nightly-jobs" else []
        )
    pool = httpx.get(f"{api}/work_pools/kubernetes", timeout=30).json()
    assert pool["type"] == "kubernetes"
    used = {found.name for found in find_placeholders(json.dumps(pool["base_job_template"]["job_configuration"]))}
    assert used == set(pool["base_job_template"]["variables"]["properties"])


def test_the_kubernetes_job_holds_nothing_that_kubernetes_does_not_know() -> None:
    template = json.loads((FOLDER / "kubernetes-job.json").read_text())
    values = {name: one.get("default") for name, one in template["variables"]["properties"].items()}
    values |= {"command": ["prefect", "flow-run", "execute"], "env": [], "labels": {"app": "rag-eval"}}
    job = apply_values(template["job_configuration"]["job_manifest"], values)
    strange = list(unknown_fields(job, "V1Job"))
    assert strange == []
    assert list(unknown_fields({"spec": {"template": {"spec": {"parallelism": 1}}}}, "V1Job")) == [
        "spec.template.spec.parallelism"
    ]
    # Prefect's Kubernetes worker insists on these; where the job has the first two, it takes them for the pod's.
    assert job["spec"]["parallelism"] == job["spec"]["completions"] == 1
    pod = job["spec"]["template"]["spec"]
    assert (pod["restartPolicy"], pod["containers"][0]["name"]) == ("Never", "prefect-job")
    mounted = {one["name"] for one in pod["containers"][0]["volumeMounts"]}
    assert mounted == {one["name"] for one in pod["volumes"]} == {"work", "cache"}


def unknown_fields(data: Any, kind: str, place: str = "") -> Iterator[str]:
    """The fields that the models of Kubernetes' own client do not have, and values that are of another kind."""
    inner = re.fullmatch(r"(?i:(list|dict))[\[(](?:str, )?(\w+)[\])]", kind)
    if inner:
        assert isinstance(data, list if inner[1].lower() == "list" else dict), place
        for name, one in enumerate(data) if isinstance(data, list) else data.items():
            yield from unknown_fields(one, inner[2], f"{place}.{name}".lstrip("."))
    elif hasattr(kubernetes.client, kind):
        model = getattr(kubernetes.client, kind)
        kinds = {written: model.openapi_types[name] for name, written in model.attribute_map.items()}
        for name, one in data.items():
            path = f"{place}.{name}".lstrip(".")
            if name not in kinds:
                yield path
            else:
                yield from unknown_fields(one, kinds[name], path)
    else:
        assert isinstance(data, {"str": str, "int": int, "bool": bool}[kind]), place


@pytest.mark.usefixtures("prefect_server")
def test_what_is_no_schedule_or_no_template_is_said(tmp_path: Path) -> None:
    wrong = Project("wrong", tmp_path, tmp_path, {})
    with pytest.raises(ConfigurationError, match="'every night' is not a cron schedule"):
        deploy(replace(wrong, cron="every night"))
    (tmp_path / "t.json").write_text("[]")
    for path in (tmp_path / "t.json", tmp_path / "none.json"):
        with pytest.raises(ConfigurationError, match="is not a base job template"):
            deploy(replace(wrong, pool="k", job_template=path))


@pytest.mark.usefixtures("prefect_server")
def test_a_project_has_its_own_and_takes_it_along_when_it_goes(tmp_path: Path) -> None:
    def there(project: str) -> dict[str, list[str]]:
        tags = {"tags": {"all_": ["rag-eval", f"project:{project}"]}}
        return {
            "deployments": sorted(one["name"] for one in ask("/deployments/filter", deployments=tags)),
            "automations": sorted(one["name"] for one in ask("/automations/filter", automations=tags)),
            "queues": [one["name"] for one in ask("/work_pools/rag-eval/queues/filter") if one["name"] == project],
        }

    alpha, beta = (Project(name, tmp_path / name, tmp_path / name / "docs", PARAMETERS) for name in ("one", "one-more"))
    for project in (alpha, beta, alpha):
        deploy(project)
    # One that another version of the package had goes when it is deployed again.
    flow = ask("/flows/", name="of-another-version")["id"]
    ask("/deployments/", name="hourly-one-more", flow_id=flow, tags=["rag-eval", "project:one-more"])
    deploy(beta)
    kept = there("one-more")
    assert kept["deployments"] == sorted(f"{spec['name']}-one-more" for spec in read_deployments())
    assert (len(kept["automations"]), kept["queues"]) == (len(set(kept["automations"])), ["one-more"])
    (trigger,) = [one["trigger"] for one in ask("/automations/filter") if one["name"] == "corpus-changed-one"]
    assert trigger["match"] == {
        "prefect.resource.id": corpus_resource(tmp_path / "one" / "docs")["prefect.resource.id"]
    }

    elsewhere = replace(alpha, folder=tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match=r"already has a project 'one' with the benchmark file '.*one/b.yaml'"):
        deploy(elsewhere)
    gone = remove("one")
    assert {"deployment nightly-one", "automation corpus-changed-one", "work queue one"} <= set(gone)
    assert there("one") == {"deployments": [], "automations": [], "queues": []}
    assert there("one-more") == kept
    with pytest.raises(ConfigurationError, match=r"there is no project 'one' on the server: use one of .*one-more"):
        remove("one")
    deploy(elsewhere)
    remove("one")


@pytest.mark.usefixtures("prefect_server")
def test_prefect_deploys_the_file_as_it_is(tmp_path: Path) -> None:
    api = str(PREFECT_API_URL.value())
    httpx.post(f"{api}/work_pools/", json={"name": "rag-eval", "type": "process"}, timeout=30)
    done = subprocess.run(
        [Path(sys.executable).with_name("prefect"), "--no-prompt", "deploy", "--all", "--prefect-file", PREFECT_FILE],
        cwd=tmp_path,
        env=CLEAN | {"PREFECT_API_URL": api, "PWD": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for spec in read_deployments():
        flow = load_flow_from_entrypoint(spec["entrypoint"]).name
        assert flow.startswith("rag-eval-")  # by which the server knows whose worker has died
        made = httpx.get(f"{api}/deployments/name/{flow}/{spec['name']}", timeout=30).json()
        assert made["parameters"] == spec["parameters"]
        assert made["pull_steps"] == [{"rag_eval.parts.code.enter_folder": {"directory": str(tmp_path)}}]
