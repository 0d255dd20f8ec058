"""A loader is a part: chosen by suffix or pattern, built in or a user's, and what it reads is kept by what it is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from rag_eval.cli.run_commands import check_files
from rag_eval.config.loading import load_config
from rag_eval.documents import reading
from rag_eval.documents.boxes import WordBox
from rag_eval.documents.loaders import LoadedText
from rag_eval.documents.pdf import PdfLoader
from rag_eval.documents.reading import Loaders
from rag_eval.errors import ConfigurationError, UnfinishedDocumentError
from rag_eval.pipeline import document_steps
from rag_eval.pipeline.document_steps import CorpusSource, StoredDocuments
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.compare import compare_runs
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.types.documents import Corpus, LeftOutWarning
from tasks.corpus import load_corpus
from tests.chain import run_benchmark
from tests.cli.commands import wait_for
from tests.documents.made_files import pdf
from tests.documents.made_pdfs import paper_of

MODULE = '''
import os
import pypdfium2
from rag_eval import LoadedText, WordBox

class AsDrawn:
    """The text of a PDF in the order in which its file draws it."""

    def __init__(self, mark=""):
        self.mark = mark

    def load(self, data):
        pages = [page.get_textpage().get_text_bounded() for page in pypdfium2.PdfDocument(data)]
        text = self.mark + "\\n".join(pages).replace("\\r\\n", "\\n")
        return LoadedText(text, [(0, "page 1")], [WordBox(0, 5, 1, 0.1, 0.2, 0.3, 0.4)])

def shout(data):
    return data.decode().upper()

def environment(data):
    return " ".join(sorted(os.environ))

def broken(data):
    return {}["no such key"]

def nothing(data):
    return 7

def misplaced(data):
    return LoadedText("quiet", [(9, "page 1")])

def boxed_beyond(data):
    return LoadedText("quiet", [], [WordBox(0, 6, 1, 0.1, 0.2, 0.3, 0.4)])

def disordered(data):
    return LoadedText("quiet", [(3, "two\\ud800"), (0, "one")])

def offline(data):
    raise ConnectionError("nobody answers")

def endless(data):
    with open(data.decode(), "w") as file:
        file.write(str(os.getpid()))
    while True:
        pass

def greedy(data):
    raise MemoryError
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "own_loaders.py").write_text(MODULE)
    (tmp_path / "docs" / "a.pdf").write_bytes(pdf([["Guests pay", "on board."]]))
    (tmp_path / "docs" / "b.log").write_text("quiet")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_loaders", raising=False)
    return tmp_path


def texts(folder: Path, loaders: dict[str, Any], glob: str = "*") -> dict[str, str]:
    return {document.id: document.content for document in Corpus.from_folder(folder / "docs", glob, loaders)}


def test_a_loader_is_chosen_by_suffix_or_pattern(folder: Path) -> None:
    assert texts(folder, {".LOG": "own_loaders:shout"})["b.log"] == "QUIET"
    assert texts(folder, {"x*": "own_loaders:shout", "b.*": "text"})["b.log"] == "quiet"
    assert texts(folder, {".pdf": {"type": "own_loaders:AsDrawn", "mark": "# "}})["a.pdf"].startswith("# Guests")
    assert texts(folder, {".pdf": PdfLoader(running_lines=True)})["a.pdf"] == texts(folder, {})["a.pdf"]
    (document,) = Corpus.from_folder(folder / "docs", "*.pdf", {".pdf": "own_loaders:AsDrawn"})
    assert document.boxes(0, 5)[0].page == 1
    assert document.place_at(3) == "page 1"


def test_an_object_is_sent_to_the_loader_process(folder: Path) -> None:
    class Live:
        def load(self, data: bytes) -> LoadedText:
            return LoadedText(f"{len(data)} bytes", boxes=[WordBox(0, 1, 2, 0, 0, 1, 1)])

    assert texts(folder, {".log": Live()})["b.log"] == "5 bytes"
    with pytest.raises(ConfigurationError, match="cannot be sent to the loader process"):
        texts(folder, {".log": Holding()})


class Holding:
    """An object that cannot be taken elsewhere."""

    def __init__(self) -> None:
        self.file = sys.stderr

    def load(self, data: bytes) -> str:
        return str(self.file)


def test_mistakes_of_a_loader_are_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(LeftOutWarning, match=r"b.log' cannot be read: own_loaders:nothing returned '7'"):
        texts(folder, {".log": "own_loaders:nothing"})
    with pytest.warns(LeftOutWarning, match=r"b.log' cannot be read by own_loaders:broken \(.*no such key"):
        texts(folder, {".log": "own_loaders:broken"})
    for name in ("misplaced", "boxed_beyond"):
        with pytest.warns(LeftOutWarning, match=r"b.log' cannot be read: its loader returned places or boxes outside"):
            texts(folder, {".log": f"own_loaders:{name}"})
    (document,) = Corpus.from_folder(folder / "docs", "*.log", {".log": "own_loaders:disordered"})
    assert document.places == [(0, "one"), (3, "two?")]
    monkeypatch.setenv("SECRET_KEY", "hidden")
    reading._process.end()
    assert "SECRET_KEY" not in texts(folder, {".log": "own_loaders:environment"})["b.log"]
    for given in ({".log": "own_loaders:missing"}, {".log": "no_module:Loader"}, {".log": "pdff"}, {".log": 7}):
        with pytest.raises(ConfigurationError):
            texts(folder, given)


@pytest.mark.parametrize(("name", "told"), [("offline", "nobody answers"), ("greedy", "2 GB of memory")])
def test_temporary_failures_differ_from_unreadable_files(folder: Path, name: str, told: str) -> None:
    with pytest.raises(UnfinishedDocumentError, match=told):
        reading.load_file(reading.LOADER.make(f"own_loaders:{name}"), b"")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not tell that a parent has ended")
def test_the_loader_process_ends_when_its_parent_is_killed(folder: Path) -> None:
    noted = folder / "pid"
    load = (
        "from rag_eval.documents.reading import LOADER, load_file\nload_file(LOADER.make('own_loaders:endless'), {!r})"
    )
    command = [sys.executable, "-c", load.format(str(noted).encode())]
    with subprocess.Popen(command, cwd=folder) as run:
        wait_for(lambda: noted.exists() and noted.read_text() != "")
        run.kill()
    wait_for(lambda: not psutil.pid_exists(int(noted.read_text())))


def benchmark(folder: Path, name: str, loaders: str, truth: str = "truth.jsonl") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(
        f"corpus: docs\nglob: '**/*.pdf'\nground_truth: {truth}\nretrieval: bm25\n{loaders}"
        "chunkers: {type: sentence, max_chunk_size: 60}\nk: [1]\nobjective: span_recall@1\n"
    )
    return path


def test_a_benchmark_file_sets_loaders(folder: Path) -> None:
    (folder / "truth.jsonl").write_text("")
    config = load_config(benchmark(folder, "own", "loaders: {.pdf: {type: 'own_loaders:AsDrawn', mark: '> '}}\n"))
    assert Loaders(config.loaders).of("x/a.PDF") is config.loaders[".pdf"]
    assert config.loaders[".pdf"] in config.parts()
    for wrong, message in (
        ("{.pdf: pdff}", r"loaders.'.pdf'.*there is no loader 'pdff' \(did you mean pdf\?\)"),
        (
            "{.pdf: {type: pdf, running: true}}",
            r"loaders.'.pdf'.running.*pdf has no such key",
        ),
        ("[pdf]", "loaders"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            load_config(benchmark(folder, "wrong", f"loaders: {wrong}\n"))


def whole(folder: Path, glob: str, loaders: dict[str, Any] | None = None) -> CorpusSource:
    """All files of a folder, as one shard."""
    return CorpusSource.of(folder, glob, loaders).shards(1)[0]


def test_a_file_is_parsed_once_for_each_loader(folder: Path) -> None:
    workspace, docs = Workspace(root=folder / "work"), folder / "docs"

    def loaded(loaders: dict[str, Any]) -> dict[str, str]:
        table = load_corpus.fn(whole(docs, "*.pdf", loaders), workspace=workspace)
        stored = StoredDocuments([workspace.read_table(table)], workspace=workspace)
        assert stored["a.pdf"].boxes(0, 5)
        return {name: document.content for name, document in stored.items()}

    first = loaded({})
    process = reading._process._process
    assert process is not None
    reading._process.end()
    (docs / "c.pdf").write_bytes((docs / "a.pdf").read_bytes())  # another folder to read, and no other file
    assert loaded({}) == {"a.pdf": first["a.pdf"], "c.pdf": first["a.pdf"]}
    (folder / "truth.jsonl").write_text('{"query": "Who pays?", "unanswerable": true, "relevant_spans": []}')
    assert check_files(load_config(benchmark(folder, "again", "")), workspace).documents == 2
    assert reading._process._process is None, "nothing was parsed"
    assert loaded({".pdf": "own_loaders:AsDrawn"})["a.pdf"] != first["a.pdf"]
    given: tuple[Any, ...] = ({}, {".pdf": {"type": "pdf"}}, {".pdf": "own_loaders:AsDrawn"})
    none, same, own = (
        document_steps.load_corpus.cache_key({"source": whole(docs, "*.pdf", loaders)}) for loaders in given
    )
    assert none == same != own


def test_a_file_that_took_too_long_is_tried_again_by_the_next_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(root=folder / "work")
    (folder / "docs" / "slow.pdf").write_bytes(pdf([["Slow."] * 40] * 300))
    source = whole(folder / "docs", "*.pdf")
    load_corpus.fn(whole(folder / "docs", "a.pdf"), workspace=workspace)  # which is parsed by now
    with monkeypatch.context() as patched:
        patched.setattr(reading, "SECONDS", 0.01)
        patched.setattr(reading, "BYTES_A_SECOND", 10**12)
        table = load_corpus.fn(source, workspace=workspace)
    assert table.effort is not None
    assert (table.rows, table.effort.skipped, table.effort.unfinished) == (1, 1, 1)
    assert load_corpus.fn(source, workspace=workspace).rows == 2


def test_two_loaders_can_be_compared(folder: Path) -> None:
    """A file that is drawn across its columns, read as drawn by a user's loader: spans are carried over, and differ."""
    paper = paper_of("across columns", 2)
    (folder / "docs" / "a.pdf").write_bytes(paper.data())
    text = texts(folder, {}, "*.pdf")["a.pdf"]
    rows = []
    for sentence in paper.sentences[::6]:
        start = text.index(sentence.text) if sentence.text in text else -1
        if start >= 0:
            span = {"doc_id": "a.pdf", "start": start, "end": start + len(sentence.text), "text": sentence.text}
            rows.append(json.dumps({"query": sentence.text, "relevant_spans": [span]}))
    (folder / "truth.jsonl").write_text("\n".join(rows))
    workspace, outcomes = Workspace(root=folder / "work"), list[BenchmarkOutcome]()
    for name, loaders in (("built-in", ""), ("drawn", "loaders: {.pdf: 'own_loaders:AsDrawn'}\n")):
        config = load_config(benchmark(folder, name, loaders))
        outcomes.append(run_benchmark(workspace, config, reanchor=name == "drawn"))
    before, after = outcomes
    assert before.corpus.digest == after.corpus.digest
    with pytest.raises(ConfigurationError, match=r"were read differently: \.pdf by pdf .*by own_loaders"):
        compare_runs(workspace, before, after)
    assert compare_runs(workspace, before, after, allow_different=True).queries > 0
    assert before.configurations[0].metrics["span_recall@1"] > 0.5
    queries = [outcome.inputs.truth.queries.rows for outcome in outcomes]
    assert queries[1] < queries[0], "sentences that the other loader tears apart are no spans any more"


def test_a_pattern_without_files_is_reported(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.html").write_text("<p>The ferry leaves at noon.")
    (tmp_path / "truth.jsonl").write_text('{"query": "Who pays?", "unanswerable": true, "relevant_spans": []}')
    file = tmp_path / "benchmark.yaml"
    file.write_text(
        "{corpus: docs, glob: '*.html', ground_truth: truth.jsonl, chunkers: recursive-token, retrieval: bm25, "
        "loaders: {html: text, .HTML: html, old/*: text}}"
    )
    told = ["loaders: 'html' fits no file (did you mean .html?)", "loaders: 'old/*' fits no file"]
    assert [note for note in check_files(load_config(file)).notes if note.startswith("loaders")] == told
