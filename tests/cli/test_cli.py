"""The command line as a user meets it: a process of its own."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL
from typer.testing import CliRunner

from rag_eval.cli.main import app
from rag_eval.config.loading import load_config
from rag_eval.distribution import VERSION
from rag_eval.sample import BENCHMARK
from rag_eval.types.documents import Corpus
from tests.cli.commands import CLEAN, COMMAND, TWO, in_process, rag_eval


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> "tuple[Path, subprocess.CompletedProcess[str]]":
    """A folder with a benchmark, and its first run, on a server of its own."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "two.yaml").write_text(TWO)
    return folder, rag_eval("run", "two.yaml", cwd=folder)


@pytest.fixture(scope="module")
def api(prefect_server: None) -> dict[str, str]:
    """The setting that names the server of the tests."""
    return {"PREFECT_API_URL": str(PREFECT_API_URL.value())}


def runs_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".rag-eval" / "runs").iterdir())


def test_a_benchmark_is_ranked(ran: "tuple[Path, subprocess.CompletedProcess[str]]") -> None:
    folder, first = ran
    assert first.returncode == 0, first.stderr
    start, *finished = first.stderr.splitlines()
    assert start == "rag-eval: starting a temporary Prefect server"  # of which no page is named: it ends with the run
    assert [line.partition(":")[2][:3] for line in finished] == [" 1:", " 2:"]
    assert {line.split(": ", 2)[2] for line in finished} == {
        "recursive-token 60/0: completed",
        "recursive-token 300/0: completed",
    }
    assert "14 documents, 72 questions, of which 70 have an answer\nranked" in first.stdout
    assert first.stdout.index("recursive-token 60/0") < first.stdout.index("recursive-token 300/0")
    assert "28 of 28 documents" in first.stdout
    (run,) = [Path(line.removeprefix("Kept in ")) for line in first.stdout.splitlines() if line.startswith("Kept in ")]
    assert {"summary.json", "report.html"} <= {path.name for path in run.iterdir()}
    shown = in_process("show", cwd=folder)
    assert shown.returncode == 0
    assert "recursive-token 300/0" in shown.stdout
    as_json = in_process("show", "--json", run.name, cwd=folder)
    assert json.loads(as_json.stdout)["run"] == run.name
    assert "cache/embeddings" in in_process("cache", cwd=folder).stdout


def test_where_nothing_has_changed_the_last_run_is_shown(
    ran: "tuple[Path, subprocess.CompletedProcess[str]]",
) -> None:
    folder, first = ran
    before = runs_in(folder)
    # It would not answer, and is not asked.
    again = rag_eval("run", "two.yaml", cwd=folder, PREFECT_API_URL="http://127.0.0.1:9/api")
    assert again.returncode == 0, again.stderr
    told = f"rag-eval: nothing has changed since run {before[-1]}: --refresh recomputes it\n"
    assert (again.stderr, again.stdout) == (told, first.stdout)
    traced = rag_eval("run", "two.yaml", cwd=folder, PYTHONPROFILEIMPORTTIME="1")
    assert told in traced.stderr
    imported = {line.rpartition("|")[2].strip() for line in traced.stderr.splitlines() if line.startswith("import ")}
    assert "rag_eval.results.unchanged" in imported
    assert "prefect" not in imported
    assert runs_in(folder) == before


def test_a_refreshed_run_and_a_changed_one_are_runs_of_their_own(
    ran: "tuple[Path, subprocess.CompletedProcess[str]]", api: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    shutil.copytree(ran[0], folder)
    first = runs_in(folder)[-1]
    refreshed = rag_eval(
        "run", "two.yaml", "--json", cwd=folder, PREFECT_TASKS_REFRESH_CACHE="true", **api
    )  # --refresh
    assert refreshed.returncode == 0, refreshed.stderr
    assert "rag-eval: starting on the Prefect server\nrag-eval: its page in Prefect: http" in refreshed.stderr
    told = json.loads(refreshed.stdout)
    assert runs_in(folder) == [first, told["run"]]
    works = [one["state"] for each in (told, *told["configurations"]) for one in each["steps"].values()]
    assert set(works) == {"computed"}
    (folder / "one.yaml").write_text(TWO.replace("[60, 300]", "60") + "retrieval: bm25\n")
    other = rag_eval("run", "one.yaml", "--json", cwd=folder, **api)
    assert other.returncode == 0, other.stderr
    (one,) = json.loads(other.stdout)["configurations"]
    assert (one["steps"]["chunk"]["state"], one["steps"]["score"]["state"]) == ("cached", "computed")
    assert len(runs_in(folder)) == 3
    assert "cleared: " in in_process("cache", "--clear", cwd=folder).stdout


def test_a_failing_configuration_is_exit_1(tmp_path: Path, api: dict[str, str]) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("one two three")
    span = '{"doc_id": "a.md", "start": 0, "end": 3, "text": "one"}'
    (tmp_path / "t.jsonl").write_text(f'{{"query": "which?", "relevant_spans": [{span}]}}')
    (tmp_path / "b.yaml").write_text(
        "corpus: docs\nground_truth: t.jsonl\nchunkers: markdown\n"
        "embedders: [local, openai]\nretrieval: [vector, hybrid]\n"
    )
    failed = rag_eval("run", "b.yaml", "--json", cwd=tmp_path, **api)
    assert failed.returncode == 1, failed.stderr
    outcome = json.loads(failed.stdout)
    assert [one["name"] for one in outcome["configurations"]] == ["markdown 1000, vector", "markdown 1000, hybrid"]
    assert "OPENAI_API_KEY" in str(outcome["failures"])
    start, key, page, chunking, last = failed.stderr.splitlines()
    assert start == "rag-eval: starting on the Prefect server"
    assert key == (
        "rag-eval: openai text-embedding-3-small needs a key: set OPENAI_API_KEY; without it only cached results "
        "can be used"
    )
    assert page.startswith("rag-eval: its page in Prefect: ")
    assert chunking == "rag-eval: 1: markdown 1000: failed"
    assert last.startswith("rag-eval: 2 of 4 configurations failed: ")
    (reason,) = (line for line in in_process("show", cwd=tmp_path).stdout.splitlines() if line.startswith("failed: "))
    assert reason.startswith("failed: markdown 1000, vector, openai text-embedding-3-small and 1 other: ")
    assert reason.endswith("set OPENAI_API_KEY")


WRONG_SPAN = '{"doc_id": "a.txt", "start": 0, "end": 3, "text": "two"}'


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--corpus", "nowhere", "--truth", "t.jsonl"], "nowhere' does not exist: check the path"),
        (["--corpus", ".", "--truth", "t.jsonl"], "no file in"),
        (["--corpus", ".", "--glob", "*.txt", "--truth", "none.jsonl"], "none.jsonl' does not exist"),
        (["--corpus", ".", "--glob", "*.txt", "--truth", "broken.jsonl"], "broken.jsonl, line 1: not JSON"),
        (["--corpus", ".", "--glob", "*.txt", "--truth", "t.jsonl"], "has 'one' at [0, 3), the span says 'two'"),
        (["--corpus", "caf\udce9", "--glob", "*.txt", "--truth", "t.jsonl"], "rename the folder"),
    ],
)
def test_wrong_documents_and_ground_truth_are_one_sentence_and_exit_2(
    tmp_path: Path, api: dict[str, str], arguments: list[str], sentence: str
) -> None:
    (tmp_path / "a.txt").write_text("one two three")
    (tmp_path / "caf\udce9").mkdir()
    (tmp_path / "caf\udce9" / "a.txt").write_text("one two three")
    (tmp_path / "t.jsonl").write_text(f'{{"query": "which?", "relevant_spans": [{WRONG_SPAN}]}}')
    (tmp_path / "broken.jsonl").write_text("{")
    done = rag_eval("run", *arguments, cwd=tmp_path, **api)
    assert (done.returncode, done.stdout) == (2, "")
    start, *page, last = done.stderr.splitlines()
    assert start == "rag-eval: starting on the Prefect server"
    assert len(page) <= 1
    assert all(line.startswith("rag-eval: its page in Prefect: ") for line in page)
    assert last.startswith("rag-eval: ")
    assert sentence in last


FULL = """
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_disk_that_is_full_is_said_in_the_last_line(tmp_path: Path, api: dict[str, str]) -> None:
    (tmp_path / "two.yaml").write_text(TWO)
    words = [sys.executable, "-c", FULL, COMMAND, "run", "two.yaml"]
    done = subprocess.run(
        words, cwd=tmp_path, env=CLEAN | api, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "File too large" in done.stderr.splitlines()[-1], done.stderr


def test_a_workspace_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(TWO)
    done = rag_eval("run", "two.yaml", "--workspace", "two.yaml", cwd=tmp_path)
    assert done.returncode == 2
    folder = tmp_path / "two.yaml"
    assert done.stderr == f"rag-eval: the folder '{folder}' cannot be created (File exists): use another\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "--corpus", "."], "--corpus and --truth belong together"),
        (["run", "."], "write one with rag-eval init ., or run it with rag-eval run --corpus . --truth FILE"),
        (["validate", "."], "'.' is a folder: give a benchmark file"),
        (["run", "none.yaml"], "none.yaml"),
        (["run", "--search", "guded"], "there is no search 'guded' (did you mean guided?): use one of full, guided"),
        (["run", "--search", "sure"], "there is no search 'sure': use one of full, guided"),
        (["run", "--runner", "processes"], "there is no runner 'processes': use one of threads, dask, ray"),
        (["validate", "bad.yaml"], "bad.yaml, chunkers.chunk_sise"),
        (["show"], "there is no run yet"),
        (["show", "2020"], "there is no run yet"),
        (["cache"], "there is no workspace"),
        (["export", "latest", "--format", "csv"], "there is no run yet"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    (tmp_path / "t.jsonl").write_text('{"query": "none?", "unanswerable": true}')
    (tmp_path / "bad.yaml").write_text(TWO.replace("chunk_size", "chunk_sise"))
    done = in_process(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert not (tmp_path / ".rag-eval").exists()


def test_an_estimate_comes_before_anything_is_spent(tmp_path: Path, api: dict[str, str]) -> None:
    (tmp_path / "b.yaml").write_text(f"{TWO}\nretrieval: hybrid\nmax_cost: 100 tokens\n")
    shown = in_process("validate", "--estimate", "b.yaml", cwd=tmp_path, COLUMNS="100")
    assert shown.returncode == 0, shown.stderr
    rows = [line.split()[:2] for line in shown.stdout.splitlines() if "$" in line]
    assert rows == [["full", "2"]]
    assert "Note: max_cost is 100 tokens and the first chunking alone takes" in shown.stdout
    assert (
        in_process("validate", "--estimate", "b.yaml", "--glob", "f*.md", cwd=tmp_path).returncode == 2
    )  # without most documents
    (told,) = json.loads(
        in_process("validate", "--estimate", "b.yaml", "--search", "full", "--json", cwd=tmp_path).stdout
    )["estimates"]
    assert told["all"] == told["left"]
    assert told["left"]["tokens"] > 10_000
    (tmp_path / "more.yaml").write_text(f"{TWO}\nretrieval: hybrid\nmax_cost: 30000 tokens\n")
    more = in_process("validate", "--estimate", "more.yaml", cwd=tmp_path, COLUMNS="100")
    rows = [line.split()[:2] for line in more.stdout.splitlines() if "$" in line]
    assert rows == [["full", "2"], ["guided", "1"]]
    refused = rag_eval("run", "b.yaml", cwd=tmp_path, **api)
    assert refused.returncode == 2
    assert "max_cost is 100 tokens, and the full grid has" in refused.stderr


def test_validate_lists_every_mistake(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("chunkers: [markdwn, {type: sentence, max_chunk_size: 0}]\nk: 0\ncorpus: docs\n")
    done = in_process("validate", "bad.yaml", cwd=tmp_path)
    assert done.returncode == 2
    places = [re.split(r":| \(line", line.removeprefix("rag-eval: bad.yaml, "))[0] for line in done.stderr.splitlines()]
    assert places == ["chunkers[0]", "chunkers[1].max_chunk_size", "ground_truth", "k"]

    (tmp_path / "good.yaml").write_text("corpus: docs\nground_truth: t.jsonl\nchunkers: markdown\n")
    missing = in_process("validate", "good.yaml", cwd=tmp_path)
    assert missing.returncode == 2
    first, second = missing.stderr.splitlines()
    assert "docs'" in first
    assert "t.jsonl'" in second


@pytest.mark.skipif(find_spec("sentence_transformers") is not None, reason="the extra is installed")
def test_validate_says_which_extra_is_not_installed(tmp_path: Path) -> None:
    parts = "embedders: {type: sentence-transformers, model: some/model}\nrerankers: {type: cross-encoder, model: m}\n"
    (tmp_path / "b.yaml").write_text(TWO + parts)
    done = in_process("validate", "b.yaml", cwd=tmp_path)
    needs = "needs the extra sentence-transformers: pip install 'rag-span-eval[sentence-transformers]'"
    assert done.stderr.splitlines() == [
        f"rag-eval: sentence-transformers some/model {needs}",
        f"rag-eval: cross-encoder m {needs}",
    ]
    assert done.returncode == 2


def test_a_missing_key_is_said_before_anything_is_computed(tmp_path: Path) -> None:
    parts = "embedders: openai\nqueries: hyde\nrerankers: {type: cohere}\n"
    (tmp_path / "b.yaml").write_text(TWO + parts)
    told = in_process("validate", "b.yaml", cwd=tmp_path, CO_API_KEY="")
    notes = [line for line in told.stdout.splitlines() if "needs a key" in line]
    assert notes == [
        f"Note: {part} needs a key: set {key}; without it only cached results can be used."
        for part, key in (
            ("openai text-embedding-3-small", "OPENAI_API_KEY"),
            ("hyde gpt-4.1-mini", "OPENAI_API_KEY"),
            ("cohere rerank-v3.5", "CO_API_KEY"),
        )
    ]
    given = {"OPENAI_API_KEY": "key-of-mine", "CO_API_KEY": "other-key"}
    silent = in_process("validate", "b.yaml", cwd=tmp_path, **given)
    elsewhere = in_process("validate", "b.yaml", cwd=tmp_path, OPENAI_BASE_URL="http://127.0.0.1:9/v1", CO_API_KEY="x")
    assert "key" not in silent.stdout + elsewhere.stdout


def folder_of(place: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = place / "my docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return place / "my docs"


FOUND = [
    ({"a.md": "# Ferries\n\nThe ferry leaves at noon and it does not wait for the bus.\n" * 40}, "markdown"),
    ({"a.txt": "Die Fähre fährt um acht Uhr ab.", "c.pdf": "%PDF"}, "  # - {type: bm25, tokenizer: {type: stemmed"),
    ({"a.py": "x = 1\n" * 900, "readme.md": "Short."}, "Add '**/*.md' to glob to search them.\n"),
    ({"a.md": "The ferry leaves at noon and waits.", "b.py": "noon = 12\n" * 9}, "glob: ['**/*.md', '**/*.py']"),
]


@pytest.mark.parametrize(("files", "holds"), FOUND, ids=["headings", "pdf", "code", "both"])
def test_init_writes_a_benchmark_that_fits_the_folder(tmp_path: Path, files: dict[str, str], holds: str) -> None:
    folder_of(tmp_path, files)
    done = in_process("init", "my docs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "benchmark.yaml").read_text(encoding="utf-8")
    assert holds in text
    assert ("# Not read: 1 .pdf." in text) == ("c.pdf" in files)
    config = load_config(tmp_path / "benchmark.yaml")
    assert f"Wrote benchmark.yaml with {len(config.configurations())} configurations." in done.stdout
    documents = Corpus.from_folder(config.corpus, config.glob)
    assert {one.id for one in documents} == {name for name in files if name not in ("c.pdf", "readme.md")}
    assert "OPENAI_API_KEY is not set" in done.stdout
    assert "  rag-eval generate benchmark.yaml --dry-run" in done.stdout
    (example,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith('  {"query"'))
    assert example["relevant_spans"][0]["doc_id"] in files


def test_init_finds_the_truth_replaces_nothing_and_knows_the_next_step(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"a.md": "The ferry leaves at noon.\n"})
    keyed = in_process("init", "my docs", "--output", "first.yaml", cwd=tmp_path, OPENAI_API_KEY="k")
    assert "not set" not in keyed.stdout
    assert load_config(tmp_path / "first.yaml").budget == 6  # no more than its one document has
    assert "With so little text" in keyed.stdout
    assert in_process("init", str(BENCHMARK.parent / "corpus"), "--output", "large.yaml", cwd=tmp_path).returncode == 0
    large = (tmp_path / "large.yaml").read_text(encoding="utf-8")
    (tmp_path / "large.yaml").write_text(large.replace("# budget: ", "budget: "), encoding="utf-8")
    assert load_config(tmp_path / "large.yaml").objective == "recall_within_tokens@4000"
    assert "rag-eval generate first.yaml --output truth.jsonl --max-cost 2" in keyed.stdout
    span = {"doc_id": "a.md", "start": 0, "end": 25, "text": "The ferry leaves at noon."}
    (tmp_path / "truth.jsonl").write_text(json.dumps({"query": "When?", "relevant_spans": [span]}) + "\n")
    (tmp_path / "sub").mkdir()
    found = in_process("init", str(folder), "--output", "sub/b.yaml", cwd=tmp_path)
    assert "Next, run it on the 1 question of truth.jsonl: rag-eval run sub/b.yaml" in found.stdout
    assert "ground_truth: ../truth.jsonl    # 1 question\n" in (tmp_path / "sub" / "b.yaml").read_text()
    assert in_process("validate", "sub/b.yaml", cwd=tmp_path).returncode == 0
    before = (tmp_path / "sub" / "b.yaml").read_bytes()
    again = in_process("init", str(folder), "--output", "sub/b.yaml", cwd=tmp_path)
    assert (again.returncode, before) == (2, (tmp_path / "sub" / "b.yaml").read_bytes())
    assert "'sub/b.yaml' already exists: remove it, or write to another file with --output" in again.stderr


def test_init_says_what_is_wrong_with_a_folder(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.pdf").write_bytes(b"%PDF\xff")
    refused = in_process("init", "docs", cwd=tmp_path)
    assert (refused.returncode, list(tmp_path.glob("*.yaml"))) == (2, [])
    assert "no file in 'docs' can be read as a document (1 .pdf): convert them to .md or .txt" in refused.stderr
    assert "'docs/a.pdf' is not a PDF" in refused.stderr
    ugly = tmp_path / "docs" / "x.\n- evil"
    ugly.write_text("x")
    (tmp_path / "docs" / "a.md").write_text("The ferry leaves at noon and waits for nobody, as it is late.")
    assert in_process("init", "docs", cwd=tmp_path).returncode == 0
    assert load_config(tmp_path / "benchmark.yaml").glob == "**/*.md"
    assert in_process("init", "nowhere", "--output", "c.yaml", cwd=tmp_path).returncode == 2


def test_init_names_the_texts_at_which_a_run_stops(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"a.md": "The ferry leaves at noon and waits for nobody, as it is late."})
    (folder / "old.md").write_bytes("Prêt à partir".encode("latin-1"))
    (folder / "binary.md").write_bytes(b"\x7fELF\0\xff")
    done = in_process("init", "my docs", cwd=tmp_path)
    told = "old.md: not UTF-8, which stops rag-eval run: convert"
    text = (tmp_path / "benchmark.yaml").read_text(encoding="utf-8")
    assert told in " ".join(done.stdout.split())
    assert f"# Not read: 2 .md.\n# {told}" in text


COMPLETED = {
    ("tr",): ["truth"],
    ("truth", "ch"): ["check"],
    ("truth", "check", "--c"): ["--corpus"],
    ("show", "--w"): ["--workspace"],
    ("run", ""): [],
    ("--debug", "ini"): ["init"],
}


def test_the_shell_completes_commands_and_options(tmp_path: Path) -> None:
    for words, offered in COMPLETED.items():
        asked = {"COMP_WORDS": shlex.join(["rag-eval", *words]), "COMP_CWORD": str(len(words))}
        done = rag_eval(cwd=tmp_path, _RAG_EVAL_COMPLETE="complete_bash", **asked)
        assert (done.returncode, done.stdout.split()) == (0, offered), words


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    done = rag_eval("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"rag-eval {VERSION}\n")


def test_debug_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    done = rag_eval("--debug", "run", "none.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("section", "name", "setting"),
    [
        ("chunkers", "semantic", "breakpoint_percentile  95"),
        ("embedder", "openai", "price_per_million_tokens  null"),
        ("indexes", "hnsw", "ef_construction  300"),
        ("metrics", "span_recall", "precision_omega"),
        ("ground_truth", "generate", "queries_per_doc  5"),
        ("evaluators", "LLMJudge", "at_least"),
    ],
)
def test_the_parts_of_a_kind_are_listed(section: str, name: str, setting: str) -> None:
    listed = CliRunner().invoke(app, ["parts", section], env={"COLUMNS": "80"})
    assert listed.exit_code == 0
    assert name in listed.output
    assert setting in listed.output
    assert max(map(len, listed.output.splitlines())) <= 80


def test_all_parts_are_listed_as_json_and_a_wrong_kind_is_refused() -> None:
    everything = json.loads(CliRunner().invoke(app, ["parts", "--json"]).output)
    assert set(everything) >= {"chunker", "embedder", "store", "index", "reranker", "metric", "evaluator"}
    assert (everything["embedder"][1]["name"], everything["embedder"][1]["remote"]) == ("openai", "yes")
    refused = CliRunner().invoke(app, ["parts", "chunkrs"]).exception
    assert "there is no kind of part 'chunkrs' (did you mean chunkers?): use one of loader, " in str(refused)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("", "ranked by recall_within_tokens@2000; a budget of 2,000 tokens, the default\n14 documents, 72 questions"),
        ("budget: 1000\nobjective: span_recall@5", "ranked by span_recall@5; a budget of 1,000 tokens\n"),
        ("objective: recall_within_tokens@4000", "ranked by recall_within_tokens@4000\n"),
    ],
)
def test_validate_says_what_is_compared(tmp_path: Path, settings: str, sentence: str) -> None:
    (tmp_path / "b.yaml").write_text(f"{TWO}{settings}\n")
    shown = CliRunner().invoke(app, ["validate", str(tmp_path / "b.yaml")]).output
    assert "2 configurations, token-level, k = 5\n" in shown
    assert sentence in shown


@pytest.mark.parametrize("days", ["--dry-run", "-1", "nan"])
def test_prune_says_that_it_wants_days(tmp_path: Path, days: str) -> None:
    refused = in_process("cache", "--prune", days, cwd=tmp_path, COLUMNS="200")
    assert (refused.returncode, f"{days!r} is not a number of days" in refused.stderr) == (2, True)


@pytest.mark.parametrize("command", [[], ["init"], ["run"], ["up"], ["show"], ["truth", "check"]])
def test_help_names_no_python_type(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"])
    assert shown.exit_code == 0
    assert "--help" in shown.output
    assert not re.search(r"bool|<(str|path|list)", shown.output)
