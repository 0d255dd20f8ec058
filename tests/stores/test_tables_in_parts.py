"""Tables too large for memory are written, embedded and stored part by part: the same rows, the same hits."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rag_eval.pipeline.search_steps import ChunkVectors
from rag_eval.pipeline.workspace import Workspace
from rag_eval.stores.lance import IvfPq, LanceDBVectorStore
from rag_eval.tables import chunks_to_table, embeddings_schema
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.ids import generate_pa_chunk_id, text_sha256
from tests.stores.contract import assert_same

TEXTS = [f"text {number % 700}" for number in range(1_000)]
CHUNKS = chunks_to_table(
    PositionAwareChunk(generate_pa_chunk_id(text), text, "a.md", 10 * n, 10 * n + len(text))
    for n, text in enumerate(TEXTS)
)
VECTORS = np.random.default_rng(1).normal(size=(1_000, 16)).astype(np.float32)


def test_a_table_in_parts_reads_like_the_whole_and_keeps_its_digest(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    parts = [CHUNKS.slice(0, 400), CHUNKS.slice(400, 600)]
    first, again = (workspace.write_table("chunks", iter(parts)) for _ in range(2))
    assert (first.rows, first.digest) == (1_000, again.digest)
    assert workspace.read_table(first).equals(CHUNKS)


def test_what_making_a_part_raises_is_not_taken_for_the_disk(tmp_path: Path) -> None:
    def parts() -> object:
        yield CHUNKS
        raise ConnectionResetError("the service hung up")

    with pytest.raises(ConnectionResetError, match="the service hung up"):
        Workspace(root=tmp_path).write_table("chunks", parts())  # type: ignore[arg-type]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_vectors_are_found_in_whichever_part_they_are() -> None:
    def table(begin: int, end: int) -> pa.Table:
        column = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS[begin:end].reshape(-1)), 16)
        digests = [text_sha256(f"text {number}") for number in range(begin, end)]
        return pa.Table.from_arrays([pa.array(digests), column.cast(schema.field(1).type)], schema=schema)

    schema = embeddings_schema(16)
    shards = [CHUNKS.slice(0, 650), CHUNKS.slice(650)]
    embeddings = [pa.concat_tables([table(0, 300), table(300, 301), table(301, 700)]), table(0, 700)]
    vectors, numbers = ChunkVectors(shards, embeddings), np.random.default_rng(5).permutation(1_000)
    assert np.array_equal(vectors.of(numbers), VECTORS[numbers % 700])
    assert vectors.of(np.empty(0, np.int64)).shape == (0, 16)


def test_a_store_filled_in_parts_finds_what_one_filled_at_once_finds(tmp_path: Path) -> None:
    whole, parts = LanceDBVectorStore(tmp_path / "whole"), LanceDBVectorStore(tmp_path / "parts")
    whole.fill([VECTORS])
    steps = range(0, 1_000, 300)
    parts.fill(VECTORS[at : at + 300] for at in steps)
    for store in (parts, LanceDBVectorStore(tmp_path / "parts")):
        assert_same(store.search_many(VECTORS[:50], 20), whole.search_many(VECTORS[:50], 20))
    index = IvfPq(num_partitions=1, num_sub_vectors=4, refine_factor=50)
    indexed = LanceDBVectorStore(tmp_path / "indexed", index=index)
    indexed.fill(VECTORS[at : at + 300] for at in steps)
    reopened = LanceDBVectorStore(tmp_path / "indexed", index=index)
    assert np.array_equal(reopened.search_many(VECTORS[:50], 1).chunks, np.arange(50))
