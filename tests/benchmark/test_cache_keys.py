"""What a key varies on, and what not."""

from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rag_eval.benchmark.engine import run_in_memory
from rag_eval.benchmark.stage import Stage, stage

from rag_eval.benchmark import search_stages, stages
from rag_eval.benchmark.config import SECTIONS
from rag_eval.chunking.recursive import RecursiveCharacterChunker, RecursiveTokenChunker
from rag_eval.chunking.semantic import SemanticChunker
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.embedding.sentence_transformers import SentenceTransformersEmbedder
from rag_eval.errors import ArtifactError, ConfigurationError, GroundTruthError
from rag_eval.ground_truth.files import write_chunk_level
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.parts import Running, Searching, replaced, settings_of, without
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.ground_truth_steps import Observation, load_ground_truth
from rag_eval.pipeline.references import Effort, IndexRef, TableRef, TruthRef
from rag_eval.pipeline.step import Context, key_part
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.rerankers import CohereReranker
from rag_eval.stores.lance import Hnsw, IvfPq, LanceDBVectorStore
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.stores.store import VectorStore
from rag_eval.tables import documents_to_table
from rag_eval.types.chunks import Chunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, Query
from rag_eval.types.ids import ChunkId, DocumentId, QueryId, QueryText

TABLE = TableRef(uri="tables/a.arrow", digest="a" * 64, rows=3)
OTHER = TableRef(uri="tables/b.arrow", digest="b" * 64, rows=3)
SMALL, LARGE = RecursiveTokenChunker(chunk_size=100), RecursiveTokenChunker(chunk_size=200)
DOCUMENTS = [documents_to_table(Corpus([Document(DocumentId("a.md"), "One.")]))]
LOCAL, LANCE = LocalEmbedder(), LanceDBVectorStore()


def test_a_key_varies_on_inputs_and_settings() -> None:
    keys = {
        stages.chunk.key([TABLE], SMALL, None),
        stages.chunk.key([OTHER], SMALL, None),
        stages.chunk.key([TABLE], LARGE, None),
        stages.chunk.key([TABLE], SMALL, TruthRef(evaluation_type="chunk-level", queries=TABLE, answers=TABLE)),
        stages.chunk.key([TABLE], RecursiveCharacterChunker(chunk_size=100, chunk_overlap=0), None),
        stages.embed.key([TABLE], LOCAL),
        stages.embed.key([TABLE], OpenAIEmbedder(model="text-embedding-3-small")),
        stages.embed.key([TABLE], OpenAIEmbedder(model="text-embedding-3-large")),
        search_stages.index.key([TABLE], [OTHER], LANCE),
        search_stages.index.key([TABLE], [OTHER], LanceDBVectorStore(index=Hnsw())),
    }
    assert len(keys) == 10


def test_a_key_varies_on_the_stage_and_its_version() -> None:
    def work(table: pa.Table, *, context: Context) -> tuple[pa.Table, Effort]:
        return table, Effort(fresh=0, total=0, unit="texts")

    one, two = stage("numbers", version=1)(work), stage("numbers", version=2)(work)
    renamed = Stage("other", 1, work)
    assert len({made.key(TABLE) for made in (one, two, renamed)}) == 3


def test_a_search_is_made_once_before_any_is_timed_in_a_workspace_alone(tmp_path: Path) -> None:
    searches, asked = pa.table({"query_id": ["a", "b", "c"]}), []

    def answer(table: pa.Table) -> int:
        asked.append(table.column("query_id").to_pylist())
        return len(asked)

    assert Context(Workspace(root=tmp_path)).answered(searches, answer)[0] == 2
    assert asked == [["a"], ["a", "b", "c"]]
    found, effort = Context().answered(searches, answer)
    assert (found, effort.fresh, effort.total, effort.unit) == (3, 3, 3, "queries")
    assert asked[2:] == [["a", "b", "c"]]


def test_a_key_varies_on_the_model_behind_a_setting() -> None:
    """A package that brings other weights brings another name, wherever the embedder stands."""
    packages = {"wordllama": version("wordllama"), "tokenizers": version("tokenizers")}
    assert key_part(LOCAL) == {"identity": LOCAL.name, "type": "local", "packages": packages}
    assert LOCAL.name in str(key_part(SemanticChunker()))


def test_a_key_does_not_vary_on_where_things_are_kept_nor_on_what_they_took() -> None:
    moved = TABLE.model_copy(update={"uri": "elsewhere.arrow", "effort": Effort(fresh=1, total=9, unit="documents")})
    assert stages.chunk.key([TABLE], SMALL, None) == stages.chunk.key([moved], SMALL, None)
    here = CorpusSource(folder=Path("/docs"), glob="*.md", digest="c")
    there = CorpusSource(folder=Path("/copy"), glob="**/*.md", digest="c")
    assert stages.load_corpus.key(here) == stages.load_corpus.key(there)


def test_a_key_does_not_vary_on_how_the_work_goes() -> None:
    usual = OpenAIEmbedder(model="text-embedding-3-small")
    hurried = OpenAIEmbedder(
        model="text-embedding-3-small",
        max_texts=7,
        max_tokens=999_999,
        encoding_format="float",
        concurrency=9,
        timeout=1.0,
        max_retries=0,
        price_per_million_tokens=3.0,
    )
    assert stages.embed.key([TABLE], usual) == stages.embed.key([TABLE], hurried)
    # Wherever the embedder stands.
    keys = {stages.chunk.key([TABLE], SemanticChunker(embedder=one), None) for one in (usual, hurried)}
    assert len(keys) == 1
    rerankers = [CohereReranker(), CohereReranker(timeout=1.0, max_retries=0)]
    assert len({stages.rerank.key(TABLE, [TABLE], TABLE, one) for one in rerankers}) == 1
    models = [
        SentenceTransformersEmbedder(model="m"),
        SentenceTransformersEmbedder(model="m", device="cpu", batch_size=1),
    ]
    assert len({stages.embed.key([TABLE], one) for one in models}) == 1


def test_a_key_varies_on_whatever_changes_a_vector() -> None:
    settings: list[dict[str, Any]] = [
        {},
        {"dimensions": 64},
        {"base_url": "http://localhost:1/v1"},
        {"too_long": "truncate"},
        {"too_long": "truncate", "max_tokens_per_text": 100},
    ]
    embedders = [OpenAIEmbedder(**one) for one in settings]
    assert len({stages.embed.key([TABLE], one) for one in embedders}) == len(settings)
    models: list[dict[str, Any]] = [{}, {"revision": "v1"}, {"normalize": True}, {"truncate_dim": 8}]
    keys = {stages.embed.key([TABLE], SentenceTransformersEmbedder(model="m", **one)) for one in models}
    assert len(keys) == len(models)


@pytest.mark.parametrize(
    ("index", "tuned", "built_otherwise"),
    [
        (IvfPq(), {"nprobes": 1, "refine_factor": 2}, {"num_partitions": 2}),
        (Hnsw(), {"nprobes": 1, "ef": 9, "refine_factor": 2}, {"m": 8}),
    ],
    ids=["ivf-pq", "hnsw"],
)
def test_a_search_setting_changes_the_search_and_not_the_index(
    index: IvfPq | Hnsw, tuned: dict[str, int], built_otherwise: dict[str, int]
) -> None:
    stores = [LanceDBVectorStore(index=replaced(index, **one)) for one in ({}, tuned, built_otherwise)]
    built = [search_stages.index.key([TABLE], [OTHER], without(store, Searching)) for store in stores]
    assert built[0] == built[1] != built[2]
    ref = IndexRef(uri="indexes/x-1", digest="x", rows=3, size=10, checksum="1")
    searched = [search_stages.retrieve_by_vector.key([TABLE], [ref], TABLE, LOCAL, store, 50) for store in stores]
    assert len(set(searched)) == 3


def test_only_settings_with_a_default_can_be_left_out_of_a_key() -> None:
    for kind in (one.kind for one in SECTIONS.values()):
        for name in kind.types:
            for setting in settings_of(kind.load(name)).values():
                assert not (setting.is_required and setting.aspects & {Running, Searching})


def test_a_stage_says_when_and_how_long_it_worked(tmp_path: Path) -> None:
    @stage("numbers", version=1)
    def work(*, context: Context) -> tuple[pa.Table, Effort]:
        return pa.table({"n": [1]}), Effort(fresh=1, total=1, unit="texts")

    before = datetime.now(UTC)
    made = work(Workspace(root=tmp_path))
    assert made.made is not None
    assert before <= made.made <= datetime.now(UTC)
    assert made.effort is not None
    assert made.effort.seconds > 0
    silent = made.model_copy(update={"made": None, "effort": None})
    assert stages.chunk.key([made], SMALL, None) == stages.chunk.key([silent], SMALL, None)


def test_a_key_of_an_index_does_not_vary_on_its_build() -> None:
    built = IndexRef(uri="indexes/x-1", digest="x", rows=3, size=10, checksum="1")
    again = IndexRef(uri="indexes/x-2", digest="x", rows=3, size=12, checksum="2")
    keys = {search_stages.retrieve_by_vector.key([TABLE], [one], TABLE, LOCAL, LANCE, 50) for one in (built, again)}
    assert len(keys) == 1


def test_nested_references_count_by_digest() -> None:
    truth = TruthRef(evaluation_type="token-level", queries=TABLE, answers=TABLE)
    other = TruthRef(evaluation_type="token-level", queries=TABLE, answers=OTHER)
    slow = truth.model_copy(update={"effort": Effort(fresh=1, total=9, unit="queries"), "made": datetime.now(UTC)})
    keys = {stages.score.key(TABLE, one, [TABLE], [TABLE], ["span_iou"], [5]) for one in (truth, other, slow)}
    assert len(keys) == 2


def test_a_key_is_a_file_name() -> None:
    key = stages.chunk.key([TABLE], SMALL, None)
    assert key.startswith("chunk-v2-")
    assert "/" not in key
    assert len(key) < 100


def test_what_has_no_digest_is_refused() -> None:
    @stage("numbers", version=1)
    def careless(table: object, *, context: Context) -> None: ...

    with pytest.raises(ConfigurationError, match="a set cannot be part of a cache key"):
        careless.key({1})


def test_documents_that_changed_since_their_digest_was_taken_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("One.")
    source = CorpusSource.of(tmp_path, "*.md")
    (shard,) = run_in_memory(stages.load_corpus, source)
    assert shard.column("content").to_pylist() == ["One."]
    (tmp_path / "a.md").write_text("Two.")
    with pytest.raises(ArtifactError, match=r"the corpus folder .* changed while it was read: run again"):
        stages.load_corpus(Workspace(root=tmp_path / "work"), source)


def test_ground_truth_that_changed_since_its_digest_was_taken_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    answered = ChunkLevelGroundTruth(Query(QueryId("q"), QueryText("Who?")), [ChunkId("chunk_0123456789ab")])
    write_chunk_level(path, [answered])
    source, documents = Observation.of(FileTruth(path), "chunk-level"), DOCUMENTS
    truth, effort = load_ground_truth.compute(source, documents, "chunk-level", context=Context())
    assert (truth.queries.num_rows, effort.total) == (1, 1)
    path.write_text(path.read_text().replace("Who?", "When?"))
    with pytest.raises(ArtifactError, match=r"the ground-truth file .* changed while it was read: run again"):
        load_ground_truth.compute(source, documents, "chunk-level", context=Context())


def test_ground_truth_without_an_answerable_query_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    write_chunk_level(path, [ChunkLevelGroundTruth(Query(QueryId("q"), QueryText("Who?")), [], True)])
    source, documents = Observation.of(FileTruth(path), "chunk-level"), DOCUMENTS
    with pytest.raises(GroundTruthError, match=r"every query of .* is declared unanswerable: there is nothing"):
        load_ground_truth.compute(source, documents, "chunk-level", context=Context())


def test_a_store_in_memory_holds_what_it_was_filled_with_last() -> None:
    store, vector = InMemoryVectorStore(), np.ones(2, np.float32)

    def fill(name: str) -> Callable[[VectorStore], None]:
        return lambda empty: empty.add([Chunk(ChunkId("chunk_0123456789ab"), "x", DocumentId(name))], vector[None])

    for name in ("a.md", "b.md"):
        assert Context().filled(store, 1, fill(name)) is store
        assert [hit.chunk.doc_id for hit in store.search(vector, 9)] == [name]
