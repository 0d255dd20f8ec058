import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from rag_eval import Corpus, Document, DocumentId
from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import GroundTruthError
from rag_eval.pipeline.ground_truth_steps import document_versions
from rag_eval.pipeline.references import TruthRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import documents_to_table
from tests.chain import load_inputs

A, B = DocumentId("a.md"), DocumentId("b.md")
OLD = "One boat leaves at noon. Tickets cost 5 euro. Tickets are sold on board."


def keep(workspace: Workspace, used: int, **texts: str) -> Path:
    corpus = Corpus([Document(DocumentId(f"{name}.md"), text) for name, text in texts.items()])
    path = workspace.root / workspace.write_table("documents", documents_to_table(corpus)).uri
    os.utime(path, (used, used))
    return path


def test_the_versions_of_a_document_are_found_the_last_used_first(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    assert document_versions(workspace, [A]) == {}
    keep(workspace, 100, a="first", b="other")
    keep(workspace, 300, a="third")
    keep(workspace, 200, a="second", b="other")
    keep(workspace, 400, a="first", b="same again")
    assert document_versions(workspace, [A]) == {A: ["first", "third", "second"]}
    assert document_versions(workspace, [B])[B] == ["same again", "other"]


def test_tables_that_were_altered_or_are_none_are_passed_over(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    altered = keep(workspace, 100, a="first")
    altered.write_bytes(altered.read_bytes()[:-20])
    workspace.write_table("documents", pa.table({"other": [1]}))
    workspace.write_table("documents", pa.table({"doc_id": ["a.md"]}))
    keep(workspace, 50, a="second")
    assert document_versions(workspace, [A]) == {A: ["second"]}


def test_the_step_stops_at_truth_that_no_longer_matches_unless_it_is_carried_over(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path / "work")
    folder, truth = tmp_path / "docs", tmp_path / "truth.jsonl"
    folder.mkdir()
    (folder / "a.md").write_text(OLD)
    start = OLD.index("Tickets are")
    truth.write_text(
        '{"id": "q1", "query": "where?", "relevant_spans": '
        f'[{{"doc_id": "a.md", "start": {start}, "end": {start + 7}, "text": "Tickets"}}]}}\n'
    )

    config = BenchmarkConfig(corpus=folder, ground_truth=truth, chunkers=["markdown"], copies="off")  # type: ignore[list-item,arg-type]

    def load(*, reanchor: bool) -> TruthRef:
        return load_inputs(workspace, config, reanchor=reanchor).truth

    def answers(found: TruthRef) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = workspace.read_table(found.answers).to_pylist()
        return rows

    (before,) = answers(load(reanchor=False))
    (folder / "a.md").write_text(OLD.replace("noon", "half past two"))
    with pytest.raises(GroundTruthError, match=r"truth\.jsonl, line 1, q1 .*'a\.md' has .*rag-eval truth reanchor"):
        load(reanchor=False)
    # The text stands there twice: it is the stored version that tells which.
    assert answers(load(reanchor=True)) == [before | {"start": start + 9, "end": start + 16}]
    assert "Tickets" in truth.read_text(), "the file is left alone"
    span = {"doc_id": "a.md", "start": 0, "end": 4, "text": "gone"}
    truth.write_text(f"{truth.read_text()}{json.dumps({'id': 'q2', 'query': 'what?', 'relevant_spans': [span]})}\n")
    effort = load(reanchor=True).effort
    assert effort is not None
    assert (effort.fresh, effort.total) == (1, 1), "a question that is left out is none of those that were read"
    assert effort.unfinished == 1, "what is lost may be found when the workspace has another version of the document"
    (folder / "a.md").write_text("Something else.")
    with pytest.raises(GroundTruthError, match="none of the 2 queries"):
        load(reanchor=True)
