"""What a reader sees of a file, as text; and files that are made to break a parser."""

import json
import random
from pathlib import Path

import pytest

from rag_eval.config.loading import load_config
from rag_eval.documents import reading
from rag_eval.documents.reading import FileText, read_document
from rag_eval.errors import EmptyCorpusError, TextEncodingError, UnreadableDocumentError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.exports import export_run
from rag_eval.types.documents import Corpus, LeftOutWarning
from tests.chain import run_benchmark
from tests.documents.made_files import docx, packed, pdf

PAGE = """<!doctype html><html><head><title>Guide</title><style>p {color: red}</style><script>alert("gone")</script>
</head><body onload="alert(1)"><nav hidden>Menu <div>of divs</div></nav><h1>Ferry &amp; pier</h1>
<p>The last   ferry <b>leaves</b> at
22:40.<p hidden>Hidden until a block begins.<ul><li>One<li>Two &lt;script&gt;</ul>
<div style="display: none">Secret</div><table><tr><th>Day<th>Time<tr><td>Monday<td>9:00</table><pre>a  b
  c</pre><p>End"""
SEEN = """Guide

# Ferry & pier

The last ferry leaves at 22:40.

- One
- Two <script>

Day | Time
Monday | 9:00

a  b
  c

End
"""


def read(tmp_path: Path, name: str, data: bytes) -> FileText:
    (tmp_path / name).write_bytes(data)
    return read_document(tmp_path / name)


@pytest.mark.parametrize(
    "data",
    [
        "Prêt".encode("cp1252"),
        "\ufeffPrêt".encode(),
        "Prêt".encode("utf-16"),
        b'<meta charset="iso-8859-15">' + "Prêt".encode("iso-8859-15"),
        b'<meta charset="no-such">' + "Prêt".encode("cp1252"),
    ],
)
def test_html_in_other_encodings(tmp_path: Path, data: bytes) -> None:
    assert read(tmp_path, "a.htm", data).text == "Prêt\n"


@pytest.mark.parametrize("name", ["a.html", "a.md"])
@pytest.mark.parametrize("data", [b"\x7fELF\0\xff" * 9, bytes(range(1, 256)) * 9], ids=["zeros", "controls"])
def test_binary_files_are_refused_under_any_name(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(UnreadableDocumentError, match="is not text: it contains binary data"):
        read(tmp_path, name, data)


def test_text_files_must_be_utf8(tmp_path: Path) -> None:
    assert read(tmp_path, "a.md", b"a\0b").text == "a\0b"
    for data in ("Prêt".encode("cp1252"), "Prêt".encode("utf-16")):
        with pytest.raises(TextEncodingError, match="convert the file to UTF-8"):
            read(tmp_path, "b.md", data)


def test_a_word_document(tmp_path: Path) -> None:
    made = docx(
        [("Heading1", "Ferry"), ("Normal", "It  leaves."), ("berschrift2", "Pier")], [["Day", "Time"], ["Mo", "9"]]
    )
    assert read(tmp_path, "a.docx", made).text == "# Ferry\n\nIt leaves.\n\n## Pier\n\nDay | Time\nMo | 9\n"


def test_a_notebook(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Ferry\n", "Text."]},
        {"cell_type": "code", "source": "print(1)", "outputs": [{"text": ["1\n"]}, {"data": {"text/plain": "2"}}]},
    ]
    text, metadata, _ = read(tmp_path, "a.ipynb", json.dumps({"cells": cells}).encode())
    assert text == "# Ferry\nText.\n\n```python\nprint(1)\n```\n\n```\n1\n```\n\n```\n2\n```\n"
    assert metadata["places"] == [[0, "cell 1"], [15, "cell 2"]]


def test_the_pages_of_a_pdf(tmp_path: Path) -> None:
    pages = [["The ferry leaves the har-", "bour at nine.", "A well-", "known pier."], [], ["The well-known lamp."]]
    text, metadata, _ = read(tmp_path, "a.pdf", pdf(pages))
    assert "leaves the harbour at nine." in " ".join(text.split())
    assert "well-known pier" in " ".join(text.split()), "elsewhere it is written with its hyphen"
    starts = [(name, text[start:].strip().split("\n")[0]) for start, name in metadata["places"]]
    assert starts[0] == ("page 1", text.split("\n")[0])
    assert starts[-1] == ("page 3", "The well-known lamp.")


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.pdf", b"no PDF", "is not a PDF"),
        ("a.pdf", pdf([[], []]), "has no text layer"),
        ("a.docx", b"PK no archive", "is not a Word document"),
        ("a.docx", packed(b'<!DOCTYPE x [<!ENTITY a "aa">]><w/>'), "has a DOCTYPE"),
        ("a.docx", packed(b"<w:document"), "is a Word document with broken XML"),
        ("a.docx", packed(b" " * 200_000_001), "has more than 200,000,000 bytes when unpacked"),
        ("a.ipynb", b"[1, 2]", "is not a Jupyter notebook"),
        ("a.ipynb", b"[" * 100_000, "is not a Jupyter notebook"),
    ],
    ids=["broken", "scanned", "no archive", "entities", "broken XML", "bomb", "list", "deep"],
)
def test_unreadable_files_are_reported(tmp_path: Path, name: str, data: bytes, told: str) -> None:
    with pytest.raises(UnreadableDocumentError, match=f"{name}' {told}"):
        read(tmp_path, name, data)


def test_too_many_pages_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UnreadableDocumentError, match="has 5,001 pages, more than 5,000: split it"):
        read(tmp_path, "a.pdf", pdf([["x"]] * 5_001))


def test_a_slow_file_is_stopped_and_the_next_one_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SECONDS", 0.05)
    monkeypatch.setattr(reading, "BYTES_A_SECOND", 10**12)
    with pytest.raises(UnreadableDocumentError, match="takes longer than 0 seconds"):
        read(tmp_path, "slow.html", b"<p>word " * 2_000_000)
    monkeypatch.undo()
    assert read(tmp_path, "next.html", b"<p>word").text == "word\n"


def test_a_killed_process_is_replaced(tmp_path: Path) -> None:
    read(tmp_path, "a.html", b"x")
    process = reading._process._process
    assert process is not None
    process.kill()
    process.wait()
    assert read(tmp_path, "b.html", b"y").text == "y\n"


def test_mutated_files_are_read_or_reported(tmp_path: Path) -> None:
    rng = random.Random(7)  # noqa: S311  # the same faults every time
    made = {
        "pdf": pdf([["Ferry and pier."] * 20] * 3),
        "docx": docx([("Heading1", "Ferry")] * 9),
        "html": PAGE.encode(),
    }
    outcomes = {"read": 0, "told": 0}
    for number in range(210):
        suffix = ("pdf", "docx", "html")[number % 3]
        data = bytearray(made[suffix])
        for _ in range(rng.randint(1, 30)):
            place = rng.randrange(len(data))
            data[place : place + rng.randint(0, 9)] = rng.randbytes(rng.randint(0, 9))
        try:
            text = read(tmp_path, f"{number}.{suffix}", bytes(data)).text
            assert "alert(" not in text.replace("onload", "") or suffix == "html"
            outcomes["read"] += 1
        except UnreadableDocumentError:
            outcomes["told"] += 1
    assert sum(outcomes.values()) == 210
    assert min(outcomes.values()) > 20, outcomes


def test_unreadable_files_are_left_out_of_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "scan.pdf").write_bytes(pdf([[]]))
    with pytest.raises(
        EmptyCorpusError, match=r"no document can be read, 1 file left out: .*scan.pdf' has no text layer"
    ):
        Corpus.from_folder(tmp_path, "*.pdf")
    (tmp_path / "good.pdf").write_bytes(pdf([["Ferry."]]))
    with pytest.warns(LeftOutWarning, match="1 file left out: .*scan.pdf"):
        corpus = Corpus.from_folder(tmp_path, "*.pdf")
    assert [document.id for document in corpus] == ["good.pdf"]


def test_a_benchmark_on_mixed_files(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("The ferry leaves at nine.\n")
    (docs / "b.html").write_text("<p>The pier is <b>red</b>.")
    (docs / "c.pdf").write_bytes(pdf([["First page."], ["Guests pay on board."]]))
    (docs / "d.docx").write_bytes(docx([("Normal", "The lamp is blue.")]))
    (docs / "e.pdf").write_bytes(pdf([[]]))
    glob = ["**/*.md", "**/*.html", "**/*.pdf", "**/*.docx"]
    with pytest.warns(LeftOutWarning):
        texts = {document.id: document for document in Corpus.from_folder(docs, glob)}
    rows = []
    for doc_id, answer in (
        ("b.html", "The pier is red."),
        ("c.pdf", "Guests pay on board."),
        ("d.docx", "The lamp is blue."),
    ):
        start = texts[doc_id].content.index(answer)
        span = {"doc_id": doc_id, "start": start, "end": start + len(answer), "text": answer}
        rows.append(json.dumps({"query": answer, "relevant_spans": [span]}))
    (tmp_path / "truth.jsonl").write_text("\n".join(rows))
    (tmp_path / "benchmark.yaml").write_text(
        f"corpus: docs\nglob: {json.dumps(glob)}\nground_truth: truth.jsonl\nretrieval: bm25\nshards: 7\n"
        "chunkers: {type: sentence, max_chunk_size: 20}\nk: [1]\nobjective: span_recall@1\n"
    )
    workspace = Workspace(root=tmp_path / ".rag-eval")
    outcome = run_benchmark(workspace, load_config(tmp_path / "benchmark.yaml"))
    assert outcome.configurations[0].metrics["span_recall@1"] == 1.0
    assert outcome.documents == 4
    assert texts["c.pdf"].place_at(texts["c.pdf"].content.index("Guests")) == "page 2"
    (file,) = export_run(workspace, outcome, "jsonl", tmp_path).files
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["passages"][0]["place"] for line in lines} == {None, "page 2"}


def test_an_interrupted_file_does_not_affect_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(tmp_path, "first.html", b"<p>first")
    (tmp_path / "interrupting.py").write_text(
        "import os, signal, time\n"
        "def load(data):\n    os.kill(os.getppid(), signal.SIGINT)\n    time.sleep(1)\n    return 'secret'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        reading.load_file(reading.LOADER.make("interrupting:load"), b"")
    assert read(tmp_path, "next.html", b"<p>next").text == "next\n"


def test_the_process_gets_neither_the_current_folder_nor_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zipfile.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    reading._process.end()
    assert read(tmp_path, "a.html", b"<p>x").text == "x\n"
    assert not (tmp_path / "ran").exists()
    process = reading._process._process
    assert process is not None
    if Path("/proc/self/environ").exists():
        assert b"sk-0123456789" not in Path(f"/proc/{process.pid}/environ").read_bytes()


@pytest.mark.parametrize(
    ("page", "seen"),
    [
        (PAGE, SEEN),
        ('<body style="visibility:hidden">Shown by a script.', "Shown by a script.\n"),
        ("<dl><dt hidden>a<dd>b</dl>", "b\n"),
        ("<p>a<p hidden=''>b <b>c</b></p>d<p style='display:none'>e<h2>f</h2>", "a\n\nd\n\n## f\n"),
        ("<div><p hidden>a<br></div>b", "b\n"),
        ("<ul><li>a<li hidden>b<ul><li>c<li>d</ul>e<li>f</ul>", "- a\n- f\n"),
        ("<ul><li>a<li style='visibility:hidden'>b<ul><li>c</ul></ul>d", "- a\n\nd\n"),
        ("<table><tr><td>a<td hidden>b<table><tr><td>c</table><td>d<tr hidden><td>e<tr><td>f</table>", "a | d\nf\n"),
        ("<dialog>a<p>b</dialog><dialog open>c</dialog>", "c\n"),
        ("<table><tr><td><p>a</p></td><td><p>b</p></td></tr></table>end", "a | b\n\nend\n"),
        ("<ul><li><p>item</p></li></ul>", "- item\n"),
    ],
)
def test_html_with_optional_end_tags_and_hidden_elements(tmp_path: Path, page: str, seen: str) -> None:
    assert read(tmp_path, "a.html", page.encode()).text == seen


def test_word_documents_with_moved_text_fields_and_nested_tables(tmp_path: Path) -> None:
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    body = (
        "<w:p><w:r><w:t>Kept.</w:t></w:r><w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom></w:p>"
        "<w:sdt><w:sdtContent><w:p><w:r><w:t>In a field.</w:t></w:r></w:p></w:sdtContent></w:sdt>"
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>inner</w:t></w:r></w:p>"
        "</w:tc></w:tr></w:tbl></w:tc></w:tr></w:tbl>"
    )
    made = packed(f'<w:document xmlns:w="{strict}"><w:body>{body}</w:body></w:document>'.encode())
    assert read(tmp_path, "a.docx", made).text == "Kept.\n\nIn a field.\n\na inner\n"
    twice = packed('<!DOCTYPE x [<!ENTITY a "aa">]><w/>'.encode("utf-16"))
    with pytest.raises(UnreadableDocumentError, match="has a DOCTYPE"):
        read(tmp_path, "b.docx", twice)
