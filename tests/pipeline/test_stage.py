"""What a key varies on, and what not."""

from pathlib import Path

import pytest

from rag_eval.config.chunkers import RecursiveCharacterConfig, RecursiveTokenConfig
from rag_eval.config.embedders import LocalEmbedderConfig
from rag_eval.errors import ConfigurationError
from rag_eval.pipeline import stages
from rag_eval.pipeline.references import CorpusSource, IndexRef, TableRef, TokenLevelTruthRef
from rag_eval.pipeline.stage import Stage, stage
from rag_eval.pipeline.workspace import Workspace

HERE, THERE = Workspace(root=Path("/here")), Workspace(root=Path("/there"))
TABLE = TableRef(uri="tables/a.arrow", digest="a" * 64, rows=3)
OTHER = TableRef(uri="tables/b.arrow", digest="b" * 64, rows=3)
SMALL, LARGE = RecursiveTokenConfig(chunk_size=100), RecursiveTokenConfig(chunk_size=200)


def test_a_key_varies_on_inputs_and_settings() -> None:
    keys = {
        stages.chunk.key(HERE, TABLE, SMALL),
        stages.chunk.key(HERE, OTHER, SMALL),
        stages.chunk.key(HERE, TABLE, LARGE),
        stages.chunk.key(HERE, TABLE, RecursiveCharacterConfig(chunk_size=100, chunk_overlap=0)),
        stages.embed.key(HERE, TABLE, LocalEmbedderConfig()),
    }
    assert len(keys) == 5


def test_a_key_varies_on_the_stage_and_its_version() -> None:
    def work(workspace: Workspace, table: TableRef) -> TableRef:
        return table

    one, two = stage(version=1)(work), stage(version=2)(work)
    renamed = Stage("other", 1, work)
    assert len({made.key(HERE, TABLE) for made in (one, two, renamed)}) == 3


def test_a_key_does_not_vary_on_where_things_are_kept() -> None:
    moved = TABLE.model_copy(update={"uri": "elsewhere.arrow"})
    assert stages.chunk.key(HERE, TABLE, SMALL) == stages.chunk.key(THERE, moved, SMALL)
    here = CorpusSource(folder=Path("/docs"), glob="*.md", digest="c")
    there = CorpusSource(folder=Path("/copy"), glob="**/*.md", digest="c")
    assert stages.load_corpus.key(HERE, here) == stages.load_corpus.key(HERE, there)


def test_a_key_does_not_vary_on_the_way_of_calling() -> None:
    assert stages.chunk.key(HERE, TABLE, SMALL) == stages.chunk.key(chunker=SMALL, documents=TABLE, workspace=HERE)


def test_a_key_of_an_index_does_not_vary_on_its_build() -> None:
    built = IndexRef(uri="indexes/x-1", digest="x", rows=3, checksum="1")
    again = IndexRef(uri="indexes/x-2", digest="x", rows=3, checksum="2")
    embedder = LocalEmbedderConfig()
    assert stages.retrieve.key(HERE, built, TABLE, embedder, 5) == stages.retrieve.key(HERE, again, TABLE, embedder, 5)


def test_nested_references_count_by_digest() -> None:
    truth = TokenLevelTruthRef(queries=TABLE, spans=TABLE)
    other = TokenLevelTruthRef(queries=TABLE, spans=OTHER)
    assert stages.score.key(HERE, TABLE, truth, ["span_iou"], 5) != stages.score.key(
        HERE, TABLE, other, ["span_iou"], 5
    )


def test_a_key_is_a_file_name() -> None:
    key = stages.chunk.key(HERE, TABLE, SMALL)
    assert key.startswith("chunk-v1-")
    assert "/" not in key
    assert len(key) < 100


def test_what_has_no_digest_is_refused() -> None:
    @stage(version=1)
    def careless(table: object) -> None: ...

    with pytest.raises(ConfigurationError, match="a set cannot be part of a cache key"):
        careless.key({1})
