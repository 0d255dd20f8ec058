"""What a full disk does to whatever writes: a child process that may not write files beyond a size."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PREPARE = """
import resource, sys
from pathlib import Path
import numpy as np
import pyarrow as pa
from rag_eval.stores.lance import LanceDBVectorStore
from rag_eval.errors import ArtifactError
from rag_eval.storage.files import write_atomically
from rag_eval.pipeline.document_steps import write_chunks
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import chunks_to_table, embeddings_schema
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id, text_sha256
from tasks.index import index_vectors
workspace = Workspace(root=Path(sys.argv[1]))
text = "one text"
chunks = [
    PositionAwareChunk(generate_pa_chunk_id(text), text, DocumentId(f"{n}.md"), 0, len(text)) for n in range(300)
]
column = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(256, np.float32)), 256)
vectors = pa.Table.from_arrays([pa.array([text_sha256(text)]), column], schema=embeddings_schema(256))
stored = [write_chunks(workspace, chunks_to_table(chunks))], [workspace.write_table("embeddings", vectors)]
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
try:
    {work}
except ArtifactError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("work", "place"),
    [
        ('workspace.write_table("numbers", pa.table({"n": range(9_999)}))', "tables/numbers"),
        ('write_atomically(workspace.root / "runs" / "summary.json", b"1" * 9_999)', "runs/summary.json"),
        ("index_vectors.fn(*stored, LanceDBVectorStore(), workspace=workspace)", "indexes"),
    ],
    ids=["table", "file", "index"],
)
def test_a_full_disk_is_one_sentence_and_leaves_nothing_behind(tmp_path: Path, work: str, place: str) -> None:
    command = [sys.executable, "-c", PREPARE.replace("{work}", work), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"'{tmp_path / place}' cannot be written (File too large): make room, then run again\n"
    assert [path for path in (tmp_path / place).rglob("*") if path.is_file()] == []
    assert list(tmp_path.rglob(".part-*")) == []
