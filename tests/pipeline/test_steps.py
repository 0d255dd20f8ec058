"""Steps and what they read: files as they were when their digest was taken, stores, and as many hits as are needed."""

import os
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.errors import ArtifactError, CorpusError, DamagedError, GroundTruthError
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.ground_truth.truth_files import write_chunk_level
from rag_eval.pipeline import document_steps, search_steps
from rag_eval.pipeline.document_steps import CorpusSource, load_corpus, write_chunks
from rag_eval.pipeline.ground_truth_steps import Observation, load_ground_truth
from rag_eval.pipeline.references import Effort
from rag_eval.pipeline.search_steps import MOST_HITS, SearchDepth, timed
from rag_eval.pipeline.step import Index, as_table, step
from rag_eval.pipeline.workspace import Workspace
from rag_eval.storage.files import contents_sha256, files_sha256
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.tables import documents_to_table
from rag_eval.types.chunks import Chunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query
from rag_eval.types.ids import ChunkId, DocumentId, QueryId, QueryText, text_sha256
from tasks.chunk import chunk
from tests.made_tables import plain_chunks

DOCUMENTS = [documents_to_table(Corpus([Document(DocumentId("a.md"), "One.")]))]
WHO = Query(QueryId("q"), QueryText("Who?"))


@step(version=1, write=as_table("numbers"))
def numbers() -> tuple[pa.Table, Effort]:
    return pa.table({"n": [1]}), Effort.of(1, "texts")


def test_a_step_says_when_and_how_long_it_worked(tmp_path: Path) -> None:
    workspace, before = Workspace(root=tmp_path), datetime.now(UTC)
    made = numbers.run(workspace)
    assert made.made is not None
    assert before <= made.made <= datetime.now(UTC)
    assert made.effort is not None
    assert (made.effort.total, made.effort.seconds > 0) == (1, True)


def test_a_table_that_is_damaged_during_a_run_is_one_sentence(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    ref = workspace.write_table("documents", DOCUMENTS[0])
    path = tmp_path / ref.uri
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(
        DamagedError, match=r"^tables/documents/.* was altered \(sha256 .*\): run again to compute it again$"
    ):
        chunk.fn(ref, RecursiveTokenChunker(), workspace=workspace)


def test_a_step_is_the_same_step_in_another_process() -> None:
    assert pickle.loads(pickle.dumps(document_steps.chunk)) is document_steps.chunk  # noqa: S301  # written here


def test_a_search_is_made_once_before_any_is_timed_to_warm_up() -> None:
    searches, asked = pa.table({"query_id": ["a", "b", "c"]}), []

    def answer(table: pa.Table) -> int:
        asked.append(table.column("query_id").to_pylist())
        return len(asked)

    assert timed(searches, answer, warm_up=True)[0] == 2
    assert asked == [["a"], ["a", "b", "c"]]
    found, effort = timed(searches, answer)
    assert (found, effort.fresh, effort.total, effort.unit) == (3, 3, 3, "queries")
    assert asked[2:] == [["a", "b", "c"]]


def test_a_store_is_empty_before_it_is_filled_and_a_workspace_takes_one_of_its_own(tmp_path: Path) -> None:
    store, vector = InMemoryVectorStore(), np.ones(2, np.float32)
    nothing = Index([])
    for workspace in (None, Workspace(root=tmp_path)):
        for name in ("a.md", "b.md"):
            with search_steps._searchable(store, nothing, workspace) as used:
                used.add([Chunk(ChunkId("chunk_0123456789ab"), "x", DocumentId(name))], vector[None])
                found: Any = used
                assert found.search_many(vector[None], 9).chunks.tolist() == [0]
                assert (used is store) == (workspace is None)
        assert len(store) == 1


def test_the_digest_of_a_folder_is_that_of_what_is_read_from_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, text in {"b.md": "\ufefftext\r\n👩🏽‍🚀\0", "a é.md": "", "sub/c.md": "x"}.items():
        (tmp_path / name).write_bytes(text.encode())
    contents = [(document.id, text_sha256(document.content)) for document in Corpus.from_folder(tmp_path)]
    digest = CorpusSource.of(tmp_path, "**/*.md").digest
    assert contents_sha256(contents) == digest
    assert contents_sha256([*contents, ("d.md", text_sha256(""))]) != digest
    (tmp_path / "b.md").write_text("other")
    assert CorpusSource.of(tmp_path, "**/*.md").digest != digest


def test_the_names_count_too(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    before = files_sha256(tmp_path, [tmp_path / "a.md"])
    (tmp_path / "a.md").rename(tmp_path / "b.md")
    assert files_sha256(tmp_path, [tmp_path / "b.md"]) != before


def test_documents_that_changed_since_their_digest_was_taken_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("One.")
    (shard,) = CorpusSource.of(tmp_path, "*.md").shards()
    documents, _ = load_corpus(shard)
    assert documents.column("content").to_pylist() == ["One."]
    (tmp_path / "a.md").write_text("Two.")
    with pytest.raises(ArtifactError, match=r"the corpus folder .* changed while it was read: run again"):
        load_corpus(shard)


def test_files_without_a_text_are_said_as_they_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, data in {"a.md": b"Bread.", "b.md": b"\x7fELF\0\xff" * 9}.items():
        (tmp_path / name).write_bytes(data)
    for pattern, left_out in (("a.md", 0), ("*.md", 1)):
        caplog.clear()
        (shard,) = CorpusSource.of(tmp_path, pattern).shards()
        documents, effort = load_corpus(shard)
        assert (documents.num_rows, effort.skipped) == (1, left_out)
        assert ("1 file left out: " in caplog.text) == bool(left_out)


def test_ground_truth_that_changed_since_its_digest_was_taken_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    write_chunk_level(path, [ChunkLevelGroundTruth(WHO, [ChunkId("chunk_0123456789ab")])])
    source = Observation.of(FileTruth(path), "chunk-level")
    truth, effort = load_ground_truth(source, DOCUMENTS, "chunk-level")
    assert (truth.queries.num_rows, effort.total) == (1, 1)
    path.write_text(path.read_text().replace("Who?", "When?"))
    with pytest.raises(ArtifactError, match=r"the ground-truth file .* changed while it was read: run again"):
        load_ground_truth(source, DOCUMENTS, "chunk-level")


def test_ground_truth_without_an_answerable_query_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    write_chunk_level(path, [ChunkLevelGroundTruth(WHO, [], True)])
    with pytest.raises(GroundTruthError, match=r"every query of .* is declared unanswerable: there is nothing"):
        load_ground_truth(Observation.of(FileTruth(path), "chunk-level"), DOCUMENTS, "chunk-level")


def test_a_truth_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GroundTruthError, match=r"truth\.jsonl' does not exist"):
        FileTruth(tmp_path / "truth.jsonl").observe("token-level")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    (tmp_path / "a.md").chmod(0)
    with pytest.raises(CorpusError, match=r"a\.md' cannot be read \(Permission denied\)"):
        CorpusSource.of(tmp_path, "*.md")
    with pytest.raises(GroundTruthError, match=r"a\.md' cannot be read \(Permission denied\)"):
        FileTruth(tmp_path / "a.md").observe("token-level")


@pytest.mark.parametrize(
    ("length", "hits"), [(600, 160), (100, MOST_HITS), (6_000, 50)], ids=["enough", "no more than that", "no fewer"]
)
def test_as_many_hits_are_fetched_as_fill_the_largest_budget(tmp_path: Path, length: int, hits: int) -> None:
    table = plain_chunks([(f"chunk_{n}", "a.md", n, "x" * length) for n in range(3)])
    for shards in ([table], [table.slice(0, 1), table.slice(1), table.slice(3)]):
        chunks = [write_chunks(Workspace(root=tmp_path), shard) for shard in shards]
        assert [(one.shortest, one.longest) for one in chunks if one.rows] == [(length, length)] * len(chunks[:2])
        assert (
            SearchDepth(candidates=50, tokens=16_000).hits(
                sum(one.characters for one in chunks), sum(one.rows for one in chunks)
            )
            == hits
        )
