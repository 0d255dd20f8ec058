import asyncio
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.embedder import embed_queries, text_vectors
from rag_eval.embedding.foreign_embedders import ForeignEmbedder
from rag_eval.errors import ConfigurationError
from rag_eval.parts import as_data, digest, label
from rag_eval.parts.part_settings import Place

MODULE = """
import asyncio


def lengths(texts):
    return [[len(text), 1.0] for text in texts]


class Scaled:
    def __init__(self, factor=1):
        self.factor = factor

    def embed(self, texts):
        return [[len(text) * self.factor, 1.0] for text in texts]


class Waiting:
    async def embed(self, texts):
        await asyncio.sleep(0)
        return lengths(texts)

    async def embed_query(self, text):
        await asyncio.sleep(0)
        return [0.0, float(len(text))]


ready = Scaled(3)


def short(texts):
    return lengths(texts)[1:]


def raising(texts):
    raise RuntimeError("the service is down")
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "my_embedders.py").write_text(MODULE)
    return Place("benchmark.yaml", "embedders", tmp_path)


@pytest.mark.parametrize(
    ("reference", "first"),
    [
        ("my_embedders:lengths", [2.0, 1.0]),
        ("my_embedders:Scaled", [2.0, 1.0]),
        ("my_embedders:ready", [6.0, 1.0]),
        ("my_embedders:Waiting", [2.0, 1.0]),
    ],
)
def test_functions_classes_instances_and_coroutines_embed(place: Place, reference: str, first: list[float]) -> None:
    embedder = EMBEDDER.make(reference, place)
    assert text_vectors(embedder, ["ab", "c", "ab"])[0].tolist() == first
    assert embedder.dimension == 2
    assert label(embedder) == reference
    assert text_vectors(pickle.loads(pickle.dumps(embedder)), ["ab"])[0].tolist() == first  # noqa: S301  # our own


def test_settings_make_the_label_and_the_digest(place: Place) -> None:
    one = EMBEDDER.make({"type": "my_embedders:Scaled", "factor": 2}, place)
    other = EMBEDDER.make({"type": "my_embedders:Scaled", "factor": 5}, place)
    assert label(one) == "my_embedders:Scaled factor=2"
    assert as_data(one) == {"type": "my_embedders:Scaled", "factor": 2}
    assert digest(one) != digest(other)
    assert digest(one) == digest(EMBEDDER.make({"type": "my_embedders:Scaled", "factor": 2}, place))
    assert one != other


def test_a_question_may_be_embedded_in_its_own_way(place: Place) -> None:
    waiting = EMBEDDER.make("my_embedders:Waiting", place)
    assert embed_queries(waiting, ["abc"])[0].tolist() == [0.0, 3.0]

    async def inside_a_loop() -> list[float]:
        found: list[float] = embed_queries(waiting, ["abcd"])[0].tolist()
        return found

    assert asyncio.run(inside_a_loop()) == [0.0, 4.0]


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("my_embedders:short", r"the embedder my_embedders:short gave an array of shape \(1, 2\) for 2 texts"),
        ("my_embedders:raising", r"the embedder my_embedders:raising failed \(RuntimeError: the service is down\)"),
    ],
)
def test_one_that_breaks_its_word_is_named(place: Place, reference: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        text_vectors(EMBEDDER.make(reference, place), ["a", "b"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("my_embedders:Missing", r"my_embedders \(.*my_embedders\.py\) has no Missing"),
        ("my_embeders:Scaled", r"there is no module 'my_embeders': it is neither installed nor in "),
        ({"type": "my_embedders:Scaled", "size": 2}, r"does not take these settings \(got an unexpected keyword"),
        ({"type": "my_embedders:ready", "factor": 2}, r"my_embedders:ready is an object and takes no settings"),
        ("my_embedders:asyncio", r"is not an embedder: give an object with embed"),
        ("my embedders:x", r"is not a module:Name"),
    ],
)
def test_what_cannot_be_used_is_told_where_it_is_written(place: Place, given: object, told: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^benchmark\.yaml, embedders.*" + told):
        EMBEDDER.make(given, place)


def test_an_edit_changes_the_digest_and_the_code_that_runs(place: Place) -> None:
    before = EMBEDDER.make("my_embedders:lengths", place)
    path = place.folder / "my_embedders.py"
    path.write_text(MODULE.replace("[[len(text), 1.0]", "[[len(text), 2.0]"))
    after = EMBEDDER.make("my_embedders:lengths", place)
    assert digest(after) != digest(before)
    assert after.embed(["ab"]).tolist() == [[2.0, 2.0]]
    with pytest.raises(ConfigurationError, match="changed during the run"):
        pickle.loads(pickle.dumps(before))  # noqa: S301  # our own


def test_embedders_of_other_libraries_are_taken_as_they_are() -> None:
    from chonkie.embeddings.base import BaseEmbeddings
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from llama_index.core import MockEmbedding

    class Counting(BaseEmbeddings):
        @property
        def dimension(self) -> int:
            return 2

        def embed(self, text: str) -> np.ndarray:
            return np.array([len(text), 1.0], np.float32)

        def similarity(self, u: np.ndarray, v: np.ndarray) -> np.float32:
            return np.float32(u @ v)

        def get_tokenizer(self) -> object:
            return len

        @classmethod
        def is_available(cls) -> bool:
            return True

    langchain = DeterministicFakeEmbedding(size=7)
    wanted = np.asarray(langchain.embed_documents(["a", "b"]), np.float32)
    assert np.array_equal(ForeignEmbedder(langchain).embed(["a", "b"]), wanted)
    assert ForeignEmbedder(MockEmbedding(embed_dim=5)).dimension == 5
    assert ForeignEmbedder(Counting()).embed(["abc", "d"]).tolist() == [[3.0, 1.0], [1.0, 1.0]]


def test_a_live_object_is_known_by_its_code_and_state() -> None:
    def made(factor: int) -> ForeignEmbedder:
        def embed(texts: Sequence[str]) -> list[list[float]]:
            return [[float(len(text) * factor)] for text in texts]

        return ForeignEmbedder(embed)

    assert digest(made(1)) == digest(made(1))
    assert digest(made(1)) != digest(made(2))
