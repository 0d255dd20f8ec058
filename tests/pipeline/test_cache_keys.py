"""What the cache key of a task varies on, and what not."""

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rag_eval.chunking.recursive import RecursiveCharacterChunker, RecursiveTokenChunker
from rag_eval.chunking.semantic import SemanticChunker
from rag_eval.config.models import SECTIONS, Configuration
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.embedding.sentence_transformers import SentenceTransformersEmbedder
from rag_eval.errors import ConfigurationError
from rag_eval.ground_truth.sources import FileTruth, Observed
from rag_eval.parts import Running, Searching, replaced, settings_of, without
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.ground_truth_steps import Observation
from rag_eval.pipeline.references import (
    ChunksRef,
    Effort,
    HitsRef,
    IndexFilesRef,
    IndexRef,
    QueriesRef,
    RankingRef,
    TableRef,
    TruthRef,
)
from rag_eval.pipeline.step import Step, as_table, key_part
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.rerankers import CohereReranker
from rag_eval.retrieval.searching import VectorSearch
from rag_eval.stores.lance import Hnsw, IvfPq, LanceDBVectorStore
from tasks.chunk import chunk
from tasks.corpus import load_corpus
from tasks.embed import embed
from tasks.ground_truth import load_ground_truth
from tasks.index import index_vectors
from tasks.retrieve import retrieve, search
from tasks.score import score
from tests.chain import cache_key

HERE = Workspace(root=Path("/work"))
TABLE = TableRef(uri="tables/a.arrow", digest="a" * 64, rows=3)
OTHER = TableRef(uri="tables/b.arrow", digest="b" * 64, rows=3)
TRUTH = TruthRef(evaluation_type="chunk-level", queries=TABLE, answers=TABLE)
CHUNKS = ChunksRef(table=TABLE, characters=9, shortest=3, longest=3)
QUERIES, HITS = QueriesRef(searches=TABLE), HitsRef(stages={"vector": TABLE})
INDEX = IndexFilesRef(uri="indexes/x-1", digest="x", rows=3, size=10, checksum="1")
SMALL, LARGE = RecursiveTokenChunker(chunk_size=100), RecursiveTokenChunker(chunk_size=200)
LOCAL, LANCE = LocalEmbedder(), LanceDBVectorStore()
EFFORT = Effort(fresh=1, total=9, unit="documents")


NUMBERS = as_table("numbers")


def numbers() -> tuple[pa.Table, Effort]:
    return pa.table({"n": [1]}), Effort.of(1, "texts")


def searched_key(files: IndexFilesRef, store: object) -> str | None:
    index = IndexRef(chunks=[CHUNKS], vectors=[OTHER], store=files)
    return cache_key(search, VectorSearch(), index, QUERIES, 50, LOCAL, store, HERE)


def test_a_key_varies_on_inputs_and_settings() -> None:
    keys = {
        cache_key(chunk, TABLE, SMALL, HERE),
        cache_key(chunk, OTHER, SMALL, HERE),
        cache_key(chunk, TABLE, LARGE, HERE),
        cache_key(chunk, TABLE, SMALL, TRUTH, HERE),
        cache_key(chunk, TABLE, RecursiveCharacterChunker(chunk_size=100, chunk_overlap=0), HERE),
        cache_key(embed, TABLE, LOCAL, HERE),
        cache_key(embed, TABLE, OpenAIEmbedder(model="text-embedding-3-small"), HERE),
        cache_key(embed, TABLE, OpenAIEmbedder(model="text-embedding-3-large"), HERE),
        cache_key(index_vectors, [TABLE], [OTHER], LANCE, HERE),
        cache_key(index_vectors, [TABLE, TABLE], [OTHER, OTHER], LANCE, HERE),
        cache_key(index_vectors, [TABLE], [OTHER], LanceDBVectorStore(index=Hnsw()), HERE),
    }
    assert len(keys) == 11


def test_a_key_varies_on_the_step_its_version_and_the_packages_that_decide_its_result() -> None:
    def other() -> None: ...

    steps = [
        Step(numbers, 1, NUMBERS),
        Step(numbers, 2, NUMBERS),
        Step(other, 1, NUMBERS),
        Step(numbers, 1, NUMBERS, ("tiktoken",)),
    ]
    assert len({one.cache_key({}) for one in steps}) == 4


def test_a_key_varies_on_the_model_behind_a_setting() -> None:
    """A package that brings other weights brings another name, wherever the embedder stands."""
    packages = {"wordllama": version("wordllama"), "tokenizers": version("tokenizers")}
    assert key_part(LOCAL) == {"identity": LOCAL.name, "type": "local", "packages": packages}
    assert LOCAL.name in str(key_part(SemanticChunker()))


def test_a_key_does_not_vary_on_where_things_are_stored_what_they_took_and_how_runs_are_called() -> None:
    moved = TABLE.model_copy(update={"uri": "elsewhere.arrow", "effort": EFFORT, "made": datetime.now(UTC)})
    there = Workspace(root=Path("/elsewhere"), refresh=True)
    assert cache_key(chunk, TABLE, SMALL, HERE) == cache_key(chunk, moved, SMALL, there)
    rebuilt = INDEX.model_copy(update={"uri": "indexes/x-2", "size": 12, "checksum": "2"})
    assert searched_key(INDEX, LANCE) == searched_key(rebuilt, LANCE)
    folders = [
        CorpusSource(folder=Path("/docs"), glob="*.md", digest="c"),
        CorpusSource(folder=Path("/copy"), glob="**/*.md", digest="c", names=["a.md"], corpus="d"),
    ]
    assert len({cache_key(load_corpus, one, HERE) for one in folders}) == 1
    other = TRUTH.model_copy(update={"answers": OTHER})
    slow = TRUTH.model_copy(update={"effort": EFFORT, "source": "read from here"})
    scored = HITS, TRUTH, [TABLE], ["span_iou"], [5]
    keys = [cache_key(score, HITS, one, *scored[2:], name, HERE) for one, name in ((TRUTH, "a"), (slow, "b"))]
    assert keys[0] == keys[1] != cache_key(score, HITS, other, *scored[2:], HERE)


def test_a_key_does_not_vary_on_how_the_work_is_done() -> None:
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
    models = [
        SentenceTransformersEmbedder(model="m"),
        SentenceTransformersEmbedder(model="m", device="cpu", batch_size=1),
    ]
    for embedders in ([usual, hurried], models):
        assert len({cache_key(embed, TABLE, one, HERE) for one in embedders}) == 1
    # Wherever the embedder stands.
    assert len({cache_key(chunk, TABLE, SemanticChunker(embedder=one), HERE) for one in (usual, hurried)}) == 1
    ranking = RankingRef(hits=TABLE, index=IndexRef(chunks=[CHUNKS]), queries=QUERIES, depth=50)
    keys = {
        cache_key(
            retrieve, Configuration(chunker=SMALL, retrieval="bm25", reranker=one), [[ranking]], *(TABLE, [], 9, HERE)
        )
        for one in (CohereReranker(), CohereReranker(timeout=1.0, max_retries=0))
    }
    assert len(keys) == 1


def test_a_key_varies_on_whatever_changes_a_vector() -> None:
    settings: list[dict[str, Any]] = [
        {},
        {"dimensions": 64},
        {"base_url": "http://localhost:1/v1"},
    ]
    models: list[dict[str, Any]] = [{}, {"revision": "v1"}, {"normalize": True}, {"truncate_dim": 8}]
    embedders = [OpenAIEmbedder(**one) for one in settings]
    embedders += [SentenceTransformersEmbedder(model="m", **one) for one in models]
    assert len({cache_key(embed, TABLE, one, HERE) for one in embedders}) == len(settings) + len(models)


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
    built = [cache_key(index_vectors, [TABLE], [OTHER], without(store, Searching), HERE) for store in stores]
    assert built[0] == built[1] != built[2]
    assert len({searched_key(INDEX, store) for store in stores}) == 3


def test_only_settings_with_a_default_can_be_left_out_of_a_key() -> None:
    for kind in (one.kind for one in SECTIONS.values()):
        for name in kind.types:
            for setting in settings_of(kind.load(name)).values():
                assert not (setting.is_required and setting.aspects & {Running, Searching})


def test_a_key_is_a_file_name() -> None:
    key = cache_key(chunk, TABLE, SMALL, HERE)
    assert key is not None
    assert key.startswith("chunk-v2-")
    assert "/" not in key
    assert len(key) < 100


def test_ground_truth_that_grows_as_it_is_read_has_no_key() -> None:
    class Growing(FileTruth):
        grows = True

    sources = [
        Observation(source=kind(Path("t.jsonl")), level="token-level", found=Observed("d"))
        for kind in (FileTruth, Growing)
    ]
    keys = [cache_key(load_ground_truth, one, [TABLE], "token-level", HERE) for one in sources]
    assert keys[0] is not None
    assert keys[1] is None


def test_what_has_no_digest_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a set cannot be part of a cache key"):
        Step(numbers, 1, NUMBERS).cache_key({"given": {1}})
