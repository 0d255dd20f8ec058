"""The documentation keeps its promises: its code runs, and its commands, options, names and links are real."""

import importlib.util
import json
import re
import runpy
import subprocess
import sys
import textwrap
import tomllib
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

import rag_eval
from rag_eval.cli.main import app
from rag_eval.config.loading import load_config
from rag_eval.distribution import DISTRIBUTION
from rag_eval.ground_truth.records import ChunkLevelLine, SpanLine, TokenLevelLine
from rag_eval.ground_truth.truth_files import read_chunk_level, read_token_level
from rag_eval.pipeline.workspace import Workspace
from rag_eval.sample import CORPUS, GROUND_TRUTH
from tests.chain import evaluate, load_inputs
from tests.flows.server_runs import asked, edges, settled, step_of, task_runs

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TOP = [README, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "deployments/README.md"))]
PAGES = [*TOP, *sorted((ROOT / "docs").glob("*.md"))]
NEEDS_A_MODEL = "experiments.md"  # its code is run by test_tutorial.py


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in this language."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in found]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if page.name == NEEDS_A_MODEL:
        pytest.skip("it needs a model: test_tutorial.py runs it with a double")
    names: dict[str, object] = {}
    for text in blocks(page, "python"):
        exec(compile(text, page.name, "exec"), names)  # noqa: S102  # the project's own documentation
    assert capsys.readouterr().out.strip()


def test_the_notebook_prints_the_recall_of_the_chunker_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(blocks(ROOT / "docs" / "notebook.md", "python")[0], "notebook.md", "exec"), {})  # noqa: S102  # ours
    assert "RecursiveTokenChunker(chunk_size=200, chunk_overlap=0, encoding=cl100k_base): 0." in capsys.readouterr().out


def test_the_reference_is_what_the_code_says(reference: ModuleType) -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), "run python docs/reference.py"


def test_every_command_of_the_examples_is_real_and_has_an_example(reference: ModuleType) -> None:
    known: dict[str, Any] = dict(reference.commands(get_command(app)))
    seen = set()
    for page in PAGES:
        for text in blocks(page, "bash"):
            for words in (line.split("#")[0].split("rag-eval ", 1)[1].split() for line in example_lines(text)):
                name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in known), None)
                assert name is not None, words
                seen.add(name)
                options = {option for parameter in known[name].params for option in parameter.opts}
                assert {word.split("=")[0] for word in words if word.startswith("--")} <= options, words
    assert seen == set(known)


def example_lines(text: str) -> list[str]:
    """The lines that run a command, but for ``--debug``, which stands before it."""
    return [line for line in text.splitlines() if line.startswith("rag-eval ") and "--debug" not in line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        linked = page.parent / name if name else page
        assert linked.is_file(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}, target


def test_every_file_that_a_page_names_is_there() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`((?:tests|flows|tasks|rag_eval|docs|deployments)/[\w/.-]+)`", text):
            assert (ROOT / name).exists(), f"{name}, in {page.name}"


def test_the_way_of_a_document_is_drawn_as_it_is() -> None:
    drawing = next(text for text in blocks(ROOT / "docs" / "architecture.md", "text") if "timetable.md" in text)
    stops = re.findall(r"  (\S+\.py) (\w+)$", drawing, re.MULTILINE)
    assert len(stops) > 20
    for file, name in stops:
        assert re.search(rf"^(def|class) {name}\b", (ROOT / file).read_text("utf-8"), re.MULTILINE), (file, name)


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(r": (\S+\.md)$", (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= set(listed)


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="MkDocs is not installed: pip install '.[docs]'")
def test_the_site_is_built_without_a_warning_and_asks_no_other_server() -> None:
    built = subprocess.run([sys.executable, "docs/site.py"], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "INFO" in built.stderr  # where MkDocs is quiet, --strict sees no warning
    built_pages = list((ROOT / "build" / "site").rglob("*.html"))
    assert len(built_pages) > len(PAGES)
    for page in built_pages:
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|iframe)[^>]+src=\"?(?:https?:)?//", text), page
        assert not re.findall(r"<link[^>]+(?:stylesheet|preconnect|preload)[^>]+href=\"?(?:https?:)?//", text), page


def test_every_name_of_the_library_exists() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`([A-Z]\w+(?:Chunker|Embedder|Store|Reranker|Retriever|Evaluation|Adapter))`", text):
            assert hasattr(rag_eval, name), f"{name}, in {page.name}, is not exported"


def test_the_example_of_ground_truth_can_be_read(tmp_path: Path) -> None:
    (line,) = (text.strip() for text in blocks(README, "json"))
    (tmp_path / "truth.jsonl").write_text(line, encoding="utf-8")
    (item,) = read_token_level(tmp_path / "truth.jsonl")
    assert item.relevant_spans[0].text == "The last ferry leaves Storvåg at 22:40."


def test_the_examples_of_quotes_can_be_read(tmp_path: Path) -> None:
    (lines,) = (text.strip() for text in blocks(ROOT / "docs" / "ground-truth.md", "json"))
    (tmp_path / "truth.jsonl").write_text("\n".join(lines.splitlines()[:2]), encoding="utf-8")
    first, second = read_token_level(tmp_path / "truth.jsonl", rag_eval.Corpus.from_folder(CORPUS).by_id)
    assert [first.relevant_spans[0].text, second.relevant_spans[0].text] == [
        "Skerry Line charges by route, not by distance.",
        "Children under six",
    ]


def test_the_keys_of_ground_truth_are_those_documented(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "ground-truth.md").read_text(encoding="utf-8")
    table = text.split("## The file format", 1)[1].split("\n\nA span", 1)[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    models = (TokenLevelLine, ChunkLevelLine, SpanLine)
    assert documented == {key for model in models for key in model.model_fields} - {"doc_id", "start", "end", "text"}
    full = {"id": "query_1", "query": "?", "unanswerable": True, "metadata": {"chunker": "x"}}
    (tmp_path / "a.jsonl").write_text(json.dumps(full | {"relevant_spans": []}))
    (tmp_path / "b.jsonl").write_text(json.dumps(full | {"relevant_chunk_ids": []}))
    assert read_token_level(tmp_path / "a.jsonl")[0].query.id == read_chunk_level(tmp_path / "b.jsonl")[0].query.id


def test_the_benchmark_file_is_valid(tmp_path: Path) -> None:
    (text,) = blocks(README, "yaml")
    (tmp_path / "benchmark.yaml").write_text(text)
    assert len(load_config(tmp_path / "benchmark.yaml").configurations()) == 18


OWN = """\
def place(chunk): return "a place"
def expand(question): return [question]
def words(text): return text.split()
def as_drawn(data): return data.decode()

class Overlap:
    def search(self, query, k): return []
"""


@pytest.mark.parametrize(
    ("page", "count"), [("retrieval.md", 4), ("sweeps.md", 1), ("integrations.md", 1), ("documents.md", 1)]
)
def test_the_benchmark_files_of_a_page_are_valid(page: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "my_parts.py").write_text(OWN)
    (tmp_path / "hits.jsonl").touch()
    found = blocks(ROOT / "docs" / page, "yaml")
    assert len(found) >= count
    for text in found:
        if "table: docs" in text:  # it reads the table: tests/retrieval/test_lancedb_table.py has one
            continue
        (tmp_path / "benchmark.yaml").write_text(text)
        assert len(load_config(tmp_path / "benchmark.yaml").configurations()) > 1


def test_every_part_of_the_page_on_parts_runs_in_its_benchmark(tmp_path: Path) -> None:
    page = ROOT / "docs" / "extending.md"
    parts = [text for text in blocks(page, "python") if "from rag_eval" not in text]
    (tmp_path / "my_parts.py").write_text("\n\n".join(parts), encoding="utf-8")
    text, *_ = blocks(page, "yaml")
    (tmp_path / "benchmark.yaml").write_text(text)
    answer = "The last ferry leaves Storvåg at 22:40."
    (tmp_path / "docs").mkdir()
    for name, last in (("timetable.md", answer), ("winter.md", "The last ferry leaves Vik at 18:05.")):
        (tmp_path / "docs" / name).write_text(f"# Times\n\nSee the map.\n\n{last}\n\nBuses wait.\n", encoding="utf-8")
    config, workspace = load_config(tmp_path / "benchmark.yaml"), Workspace(root=tmp_path / ".rag-eval")
    inputs = load_inputs(workspace, config)
    found = {}
    for one in config.configurations():
        rows = workspace.read_table(evaluate(workspace, one, inputs).scores.table).to_pylist()
        found[one.name] = sum(row["value"] for row in rows if row["metric"] == "found_anything")
    assert len(found) == 4 * 4 + 1
    assert found.pop("my_parts:search") == 1  # it knows one of the two answers
    assert set(found.values()) == {2}


@pytest.mark.usefixtures("prefect_server")
def test_the_flow_of_the_page_on_parts_has_edges_and_is_cached_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (text,) = (text for text in blocks(ROOT / "docs" / "extending.md", "python") if "def count_chunks" in text)
    (tmp_path / "my_flow.py").write_text(text, encoding="utf-8")
    for _ in range(2):
        runpy.run_path("my_flow.py", run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert printed[0] == printed[1]
    first, second = asked("flow_runs", {"flows": {"name": {"any_": ["count-chunks"]}}, "sort": "START_TIME_ASC"})
    runs = settled(lambda: task_runs([second["id"]]))
    assert edges(runs) >= {("find_documents", "load_corpus"), ("load_corpus", "chunk"), ("chunk", "embed")}
    cached = ["chunk"] * 3 + ["embed"] * 3 + ["load_corpus"]
    assert sorted(step_of(one) for one in runs if one["state"]["name"] == "Cached") == cached
    assert "Cached" not in {one["state"]["name"] for one in settled(lambda: task_runs([first["id"]]))}


@pytest.mark.usefixtures("prefect_server")
def test_the_flow_of_all_steps_gives_the_scores_of_a_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (text,) = (text for text in blocks(ROOT / "docs" / "extending.md", "python") if "def measure_recall" in text)
    (tmp_path / "my_flow.py").write_text(text, encoding="utf-8")
    flow = runpy.run_path("my_flow.py", run_name="__main__")
    lines = [f"corpus: {CORPUS}", f"ground_truth: {GROUND_TRUTH}", "chunkers: markdown", "k: [5]", "fetch_k: 20"]
    (tmp_path / "benchmark.yaml").write_text("\n".join([*lines, "metrics: [span_recall]"]), encoding="utf-8")
    config = load_config(tmp_path / "benchmark.yaml")
    inputs = load_inputs(workspace := Workspace(root=tmp_path / "other"), config)
    means = evaluate(workspace, flow["parts"], inputs).scores.means
    assert json.loads(capsys.readouterr().out.replace("'", '"')) == {"span_recall@5": means["span_recall@5"]}
    (run,) = asked("flow_runs", {"flow_runs": {}, "flows": {"name": {"any_": ["measure-recall"]}}})
    chain = ["load_corpus", "chunk", "embed", "index_vectors", "search", "retrieve", "score"]
    assert edges(settled(lambda: task_runs([run["id"]]))) >= set(pairwise(chain))


def test_the_sample_document_named_is_there() -> None:
    assert (CORPUS / "fares-and-ticketing.md").is_file()


def test_the_extras_are_those_documented() -> None:
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == set(project["optional-dependencies"]) - {
        "bench",
        "dev",
        "docs",
    }
    told = {name for path in PAGES for name in re.findall(r"pip install '?([\w-]+)", path.read_text(encoding="utf-8"))}
    assert told == {DISTRIBUTION, "rag-eval"}, "rag-eval is told to be another project"


def test_the_files_for_ci_name_what_is_there(tmp_path: Path) -> None:
    workflow, hooks = (yaml.safe_load(text) for text in blocks(ROOT / "docs" / "gate.md", "yml"))
    action = yaml.safe_load((ROOT / "deployments" / "github-action" / "action.yml").read_text(encoding="utf-8"))
    (used,) = (step for step in workflow["jobs"]["retrieval"]["steps"] if "rag-eval" in step["uses"])
    assert used["with"].keys() <= action["inputs"].keys()
    assert used["uses"].split("@")[0].endswith("/deployments/github-action")
    (offered,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    (named,) = hooks["repos"][0]["hooks"]
    assert named == {"id": offered["id"], "args": offered["args"]}
    words = f"{offered['entry']} {GROUND_TRUTH} --corpus {CORPUS}".split()
    assert CliRunner().invoke(app, words[1:]).exit_code == 0
    damaged = tmp_path / "truth.jsonl"
    damaged.write_text(GROUND_TRUTH.read_text(encoding="utf-8").replace('"start": ', '"start": 1', 1), encoding="utf-8")
    assert CliRunner().invoke(app, [*words[1:3], str(damaged), *words[4:]]).exit_code == 1
