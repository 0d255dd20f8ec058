"""What a key varies on, and what not."""

from pathlib import Path

import pytest

from rag_eval.config.chunkers import RecursiveCharacterConfig, RecursiveTokenConfig, SemanticConfig
from rag_eval.config.embedders import LocalEmbedderConfig, OpenAIEmbedderConfig
from rag_eval.config.stores import HnswConfig, LanceDBConfig
from rag_eval.errors import ConfigurationError
from rag_eval.pipeline import stages
from rag_eval.pipeline.references import CorpusSource, Effort, IndexRef, TableRef, TruthRef
from rag_eval.pipeline.stage import Stage, key_part, stage
from rag_eval.pipeline.workspace import Workspace

HERE, THERE = Workspace(root=Path("/here")), Workspace(root=Path("/there"), refresh=True)
TABLE = TableRef(uri="tables/a.arrow", digest="a" * 64, rows=3)
OTHER = TableRef(uri="tables/b.arrow", digest="b" * 64, rows=3)
SMALL, LARGE = RecursiveTokenConfig(chunk_size=100), RecursiveTokenConfig(chunk_size=200)
LOCAL, LANCE = LocalEmbedderConfig(), LanceDBConfig()


def test_a_key_varies_on_inputs_and_settings() -> None:
    keys = {
        stages.chunk.key(HERE, TABLE, SMALL, None),
        stages.chunk.key(HERE, OTHER, SMALL, None),
        stages.chunk.key(HERE, TABLE, LARGE, None),
        stages.chunk.key(HERE, TABLE, SMALL, TruthRef(evaluation_type="chunk-level", queries=TABLE, answers=TABLE)),
        stages.chunk.key(HERE, TABLE, RecursiveCharacterConfig(chunk_size=100, chunk_overlap=0), None),
        stages.embed.key(HERE, TABLE, LOCAL),
        stages.embed.key(HERE, TABLE, OpenAIEmbedderConfig(model="text-embedding-3-small")),
        stages.embed.key(HERE, TABLE, OpenAIEmbedderConfig(model="text-embedding-3-large")),
        stages.index.key(HERE, TABLE, OTHER, LANCE),
        stages.index.key(HERE, TABLE, OTHER, LanceDBConfig(index=HnswConfig())),
    }
    assert len(keys) == 10


def test_a_key_varies_on_the_stage_and_its_version() -> None:
    def work(workspace: Workspace, table: TableRef) -> TableRef:
        return table

    one, two = stage(version=1)(work), stage(version=2)(work)
    renamed = Stage("other", 1, work)
    assert len({made.key(HERE, TABLE) for made in (one, two, renamed)}) == 3


def test_a_key_varies_on_the_model_behind_a_setting() -> None:
    """A package that brings other weights brings another name, wherever the embedder stands."""
    assert key_part(LOCAL) == {"identity": LOCAL.build().name, "type": "local"}
    assert LOCAL.build().name in str(key_part(SemanticConfig()))


def test_a_key_does_not_vary_on_where_things_are_kept_nor_on_what_they_took() -> None:
    moved = TABLE.model_copy(update={"uri": "elsewhere.arrow", "effort": Effort(fresh=1, total=9, unit="documents")})
    assert stages.chunk.key(HERE, TABLE, SMALL, None) == stages.chunk.key(THERE, moved, SMALL, None)
    here = CorpusSource(folder=Path("/docs"), glob="*.md", digest="c")
    there = CorpusSource(folder=Path("/copy"), glob="**/*.md", digest="c")
    assert stages.load_corpus.key(HERE, here) == stages.load_corpus.key(HERE, there)


def test_a_key_does_not_vary_on_the_way_of_calling() -> None:
    called = stages.chunk.key(chunk_truth=None, chunker=SMALL, documents=TABLE, workspace=HERE)
    assert stages.chunk.key(HERE, TABLE, SMALL, None) == called


def test_a_key_of_an_index_does_not_vary_on_its_build() -> None:
    built = IndexRef(uri="indexes/x-1", digest="x", rows=3, size=10, checksum="1")
    again = IndexRef(uri="indexes/x-2", digest="x", rows=3, size=12, checksum="2")
    keys = {stages.retrieve_by_vector.key(HERE, TABLE, one, TABLE, LOCAL, LANCE, 50) for one in (built, again)}
    assert len(keys) == 1


def test_nested_references_count_by_digest() -> None:
    truth = TruthRef(evaluation_type="token-level", queries=TABLE, answers=TABLE)
    other = TruthRef(evaluation_type="token-level", queries=TABLE, answers=OTHER)
    keys = {stages.score.key(HERE, TABLE, one, TABLE, TABLE, ["span_iou"], [5]) for one in (truth, other)}
    assert len(keys) == 2


def test_a_key_is_a_file_name() -> None:
    key = stages.chunk.key(HERE, TABLE, SMALL, None)
    assert key.startswith("chunk-v1-")
    assert "/" not in key
    assert len(key) < 100


def test_what_has_no_digest_is_refused() -> None:
    @stage(version=1)
    def careless(table: object) -> None: ...

    with pytest.raises(ConfigurationError, match="a set cannot be part of a cache key"):
        careless.key({1})
