"""Vectors that are made again replace the kept ones."""

import logging
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from rag_eval.embedding import cache
from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ArtifactError
from rag_eval.storage.rows import MANY_FILES

TEXTS = [f"text number {number}" for number in range(60)]


class Model:
    """A model whose vectors tell which version of it made them; questions are embedded like texts."""

    name = "model"
    symmetric = True

    def __init__(self, version: float, dimension: int = 3) -> None:
        self.version, self.dimension = version, dimension
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.embedded += texts
        return np.array([[len(text), *[self.version] * (self.dimension - 1)] for text in texts], np.float32)

    def embed_query(self, text: str) -> np.ndarray:
        return self.embed([text])[0]


def age(folder: Path) -> None:
    """Let all that is kept be an hour old."""
    for path in folder.glob("*/*.arrow"):
        os.utime(path, (time.time() - 3_600,) * 2)


def versions(folder: Path, texts: Sequence[str]) -> tuple[list[float], list[str]]:
    """The version of each text's kept vector, and the texts that had none."""
    reader = Model(-1.0)
    found = CachedEmbedder(reader, folder).embed(texts)
    return found[:, 1].tolist(), reader.embedded


def test_what_was_kept_before_is_made_again_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "BLOCK", 7)
    CachedEmbedder(Model(1.0), tmp_path).embed(TEXTS)
    age(tmp_path)
    again = CachedEmbedder(Model(2.0), tmp_path, made_since=datetime.now(UTC))
    assert set(again.embed(TEXTS[:40])[:, 1]) == {2.0}
    assert (again.statistics.misses, again.statistics.hits) == (40, 0)
    assert versions(tmp_path, TEXTS) == ([2.0] * 40 + [1.0] * 20, [])


def test_what_one_made_again_the_next_one_uses(tmp_path: Path) -> None:
    CachedEmbedder(Model(1.0), tmp_path).embed(TEXTS)
    age(tmp_path)
    begun = datetime.fromtimestamp(time.time() - 60, UTC)
    CachedEmbedder(Model(2.0), tmp_path, made_since=begun).embed(TEXTS[:40])
    second = Model(3.0)
    found = CachedEmbedder(second, tmp_path, made_since=begun).embed(TEXTS[20:])
    assert second.embedded == TEXTS[40:]
    assert found[:, 1].tolist() == [2.0] * 20 + [3.0] * 20


def test_many_small_refreshes_lose_nothing(tmp_path: Path) -> None:
    """Segments are merged on the way; old and new must not be mixed up in it."""
    for text in TEXTS:
        CachedEmbedder(Model(1.0), tmp_path).embed([text])
    age(tmp_path)
    begun = datetime.fromtimestamp(time.time() - 60, UTC)
    for text in TEXTS[: 2 * MANY_FILES]:
        CachedEmbedder(Model(2.0), tmp_path, made_since=begun).embed([text])
    made = 2 * MANY_FILES
    assert versions(tmp_path, TEXTS) == ([2.0] * made + [1.0] * (len(TEXTS) - made), [])
    for number in range(3 * MANY_FILES):
        CachedEmbedder(Model(4.0), tmp_path).embed([f"another {number}"])
    assert versions(tmp_path, TEXTS) == ([2.0] * made + [1.0] * (len(TEXTS) - made), [])


def test_a_failure_on_the_way_keeps_the_old_and_the_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "BLOCK", 10)

    class Failing(Model):
        def embed(self, texts: Sequence[str]) -> Vectors:
            if len(self.embedded) >= 20:
                raise OSError("the lights went out")
            return super().embed(texts)

    CachedEmbedder(Model(1.0), tmp_path).embed(TEXTS)
    age(tmp_path)
    failing = CachedEmbedder(Failing(2.0), tmp_path, made_since=datetime.now(UTC))
    with pytest.raises(OSError, match="the lights went out"):
        failing.embed(TEXTS)
    assert versions(tmp_path, TEXTS)[1] == []


def test_a_model_of_another_size_takes_the_place_of_the_old_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    CachedEmbedder(Model(1.0), tmp_path).embed(TEXTS)
    age(tmp_path)
    with pytest.raises(ArtifactError, match="has vectors of 3 and of 5 numbers"):
        CachedEmbedder(Model(2.0, 5), tmp_path).embed(TEXTS)
    larger = CachedEmbedder(Model(2.0, 5), tmp_path, made_since=datetime.now(UTC))
    with caplog.at_level(logging.WARNING):
        assert larger.embed(TEXTS[:10]).shape == (10, 5)
    assert CachedEmbedder(Model(2.0, 5), tmp_path).embed(TEXTS).shape == (60, 5)
    assert caplog.text == ""
