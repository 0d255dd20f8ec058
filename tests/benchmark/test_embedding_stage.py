"""What the stages that need vectors read of the disk."""

from pathlib import Path

import psutil
import pytest

from rag_eval.benchmark import stages
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.pipeline.references import TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import chunks_to_table
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id


def chunk_table(workspace: Workspace, count: int) -> TableRef:
    texts = [f"text number {number}" for number in range(count)]
    return workspace.write_table(
        "chunks",
        chunks_to_table(
            PositionAwareChunk(generate_pa_chunk_id(text), text, DocumentId(f"{number:05}"), 0, len(text))
            for number, text in enumerate(texts)
        ),
    )


@pytest.mark.skipif(not hasattr(psutil.Process, "io_counters"), reason="this system does not tell what is read")
def test_kept_vectors_are_checked_once_in_a_process(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    stages.embed(workspace, [chunk_table(workspace, 3_000)], LocalEmbedder())
    kept = sum(path.stat().st_size for path in (workspace.root / "cache" / "embeddings").rglob("*.arrow"))
    few = chunk_table(workspace, 10)
    before = psutil.Process().io_counters().read_chars
    stages.embed(workspace, [few], LocalEmbedder())
    assert psutil.Process().io_counters().read_chars - before < kept / 10


def test_tokens_read_are_the_same_number_whatever_was_kept(tmp_path: Path) -> None:
    at_once, in_two = Workspace(root=tmp_path / "a"), Workspace(root=tmp_path / "b")
    (whole,) = stages.embed(at_once, [chunk_table(at_once, 300)], LocalEmbedder())
    (part,) = stages.embed(in_two, [chunk_table(in_two, 200)], LocalEmbedder())
    (rest,) = stages.embed(in_two, [chunk_table(in_two, 300)], LocalEmbedder())
    assert whole.effort is not None
    assert part.effort is not None
    assert rest.effort is not None
    assert (whole.effort.fresh, rest.effort.fresh) == (300, 100)
    assert rest.effort.tokens == whole.effort.tokens
    assert 0 < (part.effort.tokens or 0) < (whole.effort.tokens or 0)
