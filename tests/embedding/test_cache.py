import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.embedding import cache
from rag_eval.embedding.cache import CachedEmbedder, CacheStatistics, VectorRows
from rag_eval.embedding.embedder import Embedder, Usage, Vectors, check_embedder
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.errors import ConfigurationError
from rag_eval.storage.rows import KEY, Keys, write_table

TEXTS = [f"text number {number}" for number in range(100)]


class OwnEmbedder:
    """What a user would write: no more than an embedder needs; questions are embedded differently."""

    def __init__(self, name: str = "own", dimension: int = 4) -> None:
        self.name, self.dimension = name, dimension
        self.embedded: list[str] = []
        self.fails_after: int | None = None

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self.fails_after is not None and len(self.embedded) >= self.fails_after:
            raise OSError("the lights went out")
        self.embedded += texts
        return np.array([self.vector(text) for text in texts], np.float32).reshape(-1, self.dimension)

    def embed_query(self, text: str) -> np.ndarray:
        self.embedded.append(text)
        return -np.array(self.vector(text), np.float32)

    def vector(self, text: str) -> list[float]:
        return [float(len(text)), float(sum(text.encode()) % 997), *[1.0] * (self.dimension - 2)]


def segment_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.arrow"))


def test_it_is_the_embedder_with_the_same_vectors(tmp_path: Path) -> None:
    local = LocalEmbedder()
    cached = CachedEmbedder(local, tmp_path)
    check_embedder(cached)
    assert isinstance(cached, Embedder)
    assert (cached.name, cached.dimension, cached.symmetric) == (local.name, local.dimension, True)
    for _ in range(2):
        assert np.array_equal(cached.embed(TEXTS), local.embed(TEXTS))
        assert np.array_equal(cached.embed_query(TEXTS[7]), local.embed_query(TEXTS[7]))


def test_only_unseen_texts_are_embedded_and_it_says_so(tmp_path: Path) -> None:
    own = OwnEmbedder()
    cached = CachedEmbedder(own, tmp_path)
    cached.embed(TEXTS[:60])
    assert cached.statistics == CacheStatistics(hits=0, misses=60)
    again = CachedEmbedder(own, tmp_path)
    given = again.embed(TEXTS[40:])
    assert np.array_equal(given, OwnEmbedder().embed(TEXTS[40:]))
    assert again.statistics == CacheStatistics(hits=20, misses=40)
    assert own.embedded == TEXTS
    again.embed(TEXTS)
    assert again.statistics == CacheStatistics(hits=120, misses=40)


class CountingEmbedder(OwnEmbedder):
    """Tells what it used, and can count tokens: here characters."""

    def __init__(self) -> None:
        super().__init__("counting")
        self.counted: list[str] = []

    @property
    def usage(self) -> Usage:
        return Usage(requests=0, texts=len(self.embedded), tokens=sum(map(len, self.embedded)), cost=0.0)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        self.counted += texts
        return [len(text) for text in texts]


def test_tokens_are_counted_once_and_are_the_same_number_whatever_was_kept(tmp_path: Path) -> None:
    own = CountingEmbedder()
    CachedEmbedder(own, tmp_path).embed(TEXTS[:30])
    own.embedded.clear()
    cached = CachedEmbedder(own, tmp_path)
    cached.embed([*TEXTS[:40], TEXTS[3]])
    assert (own.embedded, own.counted) == (TEXTS[30:40], TEXTS[:40])
    assert cached.tokens_read == sum(map(len, TEXTS[:40]))


def test_an_embedder_that_embeds_otherwise_than_its_class_is_asked_itself(tmp_path: Path) -> None:
    class Negative(LocalEmbedder):
        def embed(self, texts: Sequence[str]) -> Vectors:
            return -super().embed(texts)

    assert np.array_equal(CachedEmbedder(Negative(), tmp_path).embed(TEXTS), Negative().embed(TEXTS))


def test_questions_are_kept_apart_unless_the_embedder_says_they_are_the_same(tmp_path: Path) -> None:
    own = OwnEmbedder()
    for _ in range(2):
        cached = CachedEmbedder(own, tmp_path)
        assert cached.embed(["a"])[0, 0] == 1
        assert cached.embed_query("a")[0] == -1
        assert np.array_equal(cached.embed_queries(["a", "bb"])[:, 0], [-1, -2])
    assert own.embedded == ["a", "a", "bb"]


def test_a_dimension_that_would_have_to_be_asked_for_is_that_of_the_vectors_kept(tmp_path: Path) -> None:
    class Unsure(OwnEmbedder):
        @property
        def known_dimension(self) -> int | None:
            return None

    cached = CachedEmbedder(Unsure(), tmp_path)
    assert cached.known_dimension is None
    cached.embed(["a"])
    assert cached.known_dimension == 4
    assert CachedEmbedder(OwnEmbedder(), tmp_path / "other").known_dimension == 4


def test_nothing_to_embed(tmp_path: Path) -> None:
    cached = CachedEmbedder(LocalEmbedder(), tmp_path / "cache")
    assert cached.embed([]).shape == (0, 256)
    assert not (tmp_path / "cache").exists()


def test_usage_is_that_of_the_embedder(tmp_path: Path) -> None:
    cached = CachedEmbedder(LocalEmbedder(), tmp_path)
    cached.embed(TEXTS)
    used = cached.usage
    cached.embed(TEXTS)
    assert cached.usage == used
    assert used.texts == 100
    own = CachedEmbedder(OwnEmbedder(), tmp_path)
    own.embed(["a", "a"])
    assert own.usage == Usage(requests=0, texts=1, tokens=None, cost=None)


def test_what_was_finished_before_an_error_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "BLOCK", 10)
    own = OwnEmbedder()
    own.fails_after = 70
    cached = CachedEmbedder(own, tmp_path)
    with pytest.raises(OSError, match="lights"):
        cached.embed(TEXTS)
    assert len(segment_files(tmp_path)) == 7
    own.fails_after = None
    cached.embed(TEXTS)
    assert own.embedded == TEXTS


@pytest.mark.parametrize("harm", ["cut", "emptied", "flipped", "renamed"])
def test_an_altered_file_is_dropped_said_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    own = OwnEmbedder()
    open_already = CachedEmbedder(own, tmp_path)
    open_already.embed(TEXTS[:50])
    first = segment_files(tmp_path)
    open_already.embed(TEXTS)
    (path,) = first
    content = bytearray(path.read_bytes())
    if harm == "flipped":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif harm == "renamed":
        os.replace(path, path.with_name("0" * 64 + ".arrow"))
        path = path.with_name("0" * 64 + ".arrow")
    else:
        os.truncate(path, 0 if harm == "emptied" else len(content) - 100)
    for cached in (open_already, CachedEmbedder(own, tmp_path)):
        own.embedded.clear()
        assert np.array_equal(cached.embed(TEXTS), OwnEmbedder().embed(TEXTS))
        assert own.embedded == (TEXTS[:50] if cached is open_already else [])
    assert f"{path} is damaged" in caplog.text
    assert caplog.text.count("is damaged") == 1
    assert not path.exists() or harm != "renamed"


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    blocked = tmp_path / "cache"
    blocked.write_text("a file where the folder should be")
    with pytest.raises(ConfigurationError, match="not a folder"):
        CachedEmbedder(OwnEmbedder(), blocked)


@pytest.mark.parametrize("symmetric", [False, True])
def test_questions_that_several_ask_at_once_are_embedded_once(tmp_path: Path, symmetric: bool) -> None:
    class Slow(OwnEmbedder):
        def vector(self, text: str) -> list[float]:
            time.sleep(0.01)
            return super().vector(text)

    embedder, shared = Slow(), tmp_path
    embedder.symmetric = symmetric  # type: ignore[attr-defined]  # optional
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(CachedEmbedder(embedder, shared).embed_queries, TEXTS[:20]) for _ in range(4)]
        vectors = [one.result() for one in asked]
    assert sorted(embedder.embedded) == sorted(TEXTS[:20])
    assert all(np.array_equal(one, vectors[0]) for one in vectors)


def test_bad_vectors_are_refused_and_not_kept(tmp_path: Path) -> None:
    class Wrong(OwnEmbedder):
        def embed(self, texts: Sequence[str]) -> Vectors:
            return np.full((len(texts), 4), np.nan, np.float32)

    with pytest.raises(ConfigurationError, match="NaN"):
        CachedEmbedder(Wrong(), tmp_path).embed(["a"])
    assert segment_files(tmp_path) == []


def test_vectors_are_the_callers_own(tmp_path: Path) -> None:
    cached = CachedEmbedder(OwnEmbedder(), tmp_path)
    cached.embed(TEXTS)
    vectors = cached.embed(TEXTS)
    vectors[:] = 0
    assert cached.embed(TEXTS).any()


# Digests with few different bytes, so that many share their first 8 without being equal.
digest_lists = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=40)


def as_digests(pairs: list[tuple[int, int]]) -> Keys:
    return np.array([[255] * 7 + [first] + [0] * 23 + [last] for first, last in pairs], np.uint8)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(digest_lists, max_size=4), digest_lists)
def test_lookup_agrees_with_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, written: list[list[tuple[int, int]]], asked: list[tuple[int, int]]
) -> None:
    kept = VectorRows(tmp_path_factory.mktemp("segments"))
    for pairs in written:
        kept.keep(as_digests(pairs), np.array(pairs, np.float32))
    found, vectors, _ = kept.find(as_digests(asked))
    known = {pair for pairs in written for pair in pairs}
    assert found.tolist() == [pair in known for pair in asked]
    for pair, vector in zip(asked, vectors, strict=True):
        if pair in known:
            assert tuple(vector) == pair


@pytest.mark.parametrize(("key", "number"), [(KEY, pa.float64()), (pa.binary(), pa.float32())])
def test_a_file_with_other_columns_is_dropped_said_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: pa.DataType, number: pa.DataType
) -> None:
    own = OwnEmbedder()
    cached = CachedEmbedder(own, tmp_path)
    cached.embed(TEXTS[:3])
    (path,) = segment_files(tmp_path)
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    columns = [table.column(0).cast(key), table.column(1).cast(pa.list_(number, own.dimension)), table.column(2)]
    other = pa.table(columns, names=table.column_names)
    path.unlink()
    path = write_table(path.parent, other.schema, [other])
    assert np.array_equal(cached.embed(TEXTS[:3]), OwnEmbedder().embed(TEXTS[:3]))
    assert own.embedded == TEXTS[:3] * 2
    assert f"{path} is damaged (its columns are wrong)" in caplog.text
    assert not path.exists()
