"""Files of runs and tables of their workspace, as a server of ours shows them."""

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from rag_eval.cli.server import RunPages
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import QUERIES, table_of
from tasks.artifacts import link_to

ROWS = [("q1", "Où est <script>alert(1)</script>?", False, "{}"), ("q2", "When?", True, "{}")]


def test_a_table_is_read_by_its_link_and_nothing_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(root=tmp_path / "work")
    table = workspace.write_table("queries", table_of(QUERIES, ROWS))
    workspace.runs.mkdir()
    (workspace.runs / "2026").mkdir()
    (workspace.runs / "2026" / "ground_truth.jsonl").write_text("{}")
    assert link_to(workspace, table.uri) == (workspace.root / table.uri).as_uri()
    monkeypatch.setenv("RAG_EVAL_RUNS_URL", "http://testserver")
    server = TestClient(Starlette(routes=[Mount("/", app=RunPages(directory=workspace.runs))]))
    shown = server.get(link_to(workspace, table.uri))
    assert shown.headers["content-type"] == "text/plain; charset=utf-8"
    assert shown.headers["content-security-policy"].startswith("sandbox")
    assert shown.headers["x-content-type-options"] == "nosniff"
    told, first, second = shown.text.splitlines()
    assert told == "# 2 rows, the first 2 of them:"
    assert "<script>alert(1)</script>" in first
    assert '"unanswerable": true' in second
    assert server.get("/2026/ground_truth.jsonl").text == "{}"
    (tmp_path / "secret.arrow").write_text("secret")
    for path in ("/tables/../../secret.arrow", "/tables/queries/../secret.arrow", f"/tables/queries/{'0' * 64}.arrow"):
        assert server.get(path).status_code == 404
    (workspace.root / table.uri).write_bytes(b"altered")
    assert (gone := server.get(f"/{table.uri}")).status_code == 404
    assert "altered" not in gone.text
