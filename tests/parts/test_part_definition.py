"""What ``@part`` makes of a class, and what is answered about objects that are no parts."""

import pickle
from dataclasses import KW_ONLY, FrozenInstanceError, field
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field, StrictFloat, TypeAdapter

from rag_eval.chunking import CHUNKER
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.config.models import BenchmarkConfig, BenchmarkRecord, Configuration, ConfigurationRecord
from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.errors import ConfigurationError, sentences
from rag_eval.parts import (
    Kind,
    Location,
    PartOf,
    PartRecord,
    PythonOnly,
    Running,
    Searching,
    Shown,
    as_data,
    digest,
    fresh,
    identity,
    is_part,
    is_remote,
    label,
    located,
    locations,
    part,
    replaced,
    settings_of,
    type_name,
    without,
)
from rag_eval.parts.definition import parts_in
from rag_eval.parts.part_settings import Count, Name, OptionalCount, Place
from rag_eval.retrieval import RERANKER


@part
class Inner:
    """A part inside a part."""

    remote = True

    depth: Annotated[Count, Field(description="How deep.")] = 3
    breadth: Annotated[Count, Searching, Field(description="How broad.")] = 5


INNER = Kind("inner", {"plain": f"{__name__}:Inner", "none": None})


@part
class Machine:
    """A part with every kind of setting."""

    packages = ("pydantic", "no-such-package")

    size: Annotated[Count, Shown, Field(description="How large.")] = 10
    names: Annotated[tuple[Name, ...], Field(description="What they are called.")] = ("a",)
    _: KW_ONLY
    speed: Annotated[StrictFloat, Running, Field(description="How fast.")] = 1.0
    limit: Annotated[OptionalCount, Field(description="How many.")] = None
    inner: Annotated[Inner | None, PartOf(INNER), Field(description="What is inside.")] = field(default_factory=Inner)
    home: Annotated[str | None, Location] = None
    options: Annotated[dict[str, str] | None, PythonOnly] = None

    def __post_init__(self) -> None:
        if self.limit == self.size:
            raise ConfigurationError(f"limit and size are both {self.size}: give two numbers")
        self._used = 0

    def use(self) -> int:
        self._used += 1
        return self._used


MACHINE = Kind("machine", {"machine": f"{__name__}:Machine"})


class Own:
    """An object of somebody else."""

    def __init__(self, **given: object) -> None:
        self.__dict__.update(given)


def test_a_part_is_its_settings() -> None:
    machine = Machine(3, ["b", "c"], limit=7)  # type: ignore[arg-type]  # a list is as good as a tuple
    assert (machine.size, machine.names, machine.limit) == (3, ("b", "c"), 7)
    assert machine == MACHINE.make({"type": "machine", "size": 3, "names": ["b", "c"], "limit": 7})
    assert hash(machine) == hash(replaced(machine)) != hash(replaced(machine, size=4))
    assert hash(Machine(options={"a": "b"})) == hash(Machine(options={"a": "b"}))
    assert repr(machine).startswith("Machine(size=3, names=('b', 'c'), speed=1.0, limit=7, inner=Inner(")
    with pytest.raises(FrozenInstanceError):
        machine.size = 4  # type: ignore[misc]  # that is the point
    assert is_part(machine)
    assert list(settings_of(Machine)) == ["size", "names", "speed", "limit", "inner"]


def test_what_a_part_did_is_no_part_of_it() -> None:
    machine = Machine()
    assert [machine.use(), machine.use()] == [1, 2]
    assert machine == Machine()
    copies = pickle.loads(pickle.dumps(machine)), fresh(machine)  # noqa: S301  # our own bytes
    assert copies == (machine, machine)
    assert [copy.use() for copy in copies] == [1, 1]
    own = Own()
    assert fresh(own) is own


@pytest.mark.parametrize(
    ("given", "named", "told"),
    [
        (("x",), {}, ["Machine, size: expected a whole number, found the text 'x'"]),
        ((0,), {"names": []}, ["Machine, size: expected a number of at least 1, found 0"]),
        ((1, ["a", 2]), {}, ["Machine, names[1]: expected text, found 2"]),
        (
            (True,),
            {"speed": "fast"},
            [
                "Machine, size: expected a whole number, found true",
                "Machine, speed: expected a number, found the text 'fast'",
            ],
        ),
        ((), {"speed": float("nan")}, ["Machine, speed: expected a finite number, found nan"]),
        ((), {"sise": 3}, ["Machine, sise: Machine has no such key (did you mean size?): use one of size, names, "]),
        (
            (),
            {"inner": "plian"},
            ["Machine, inner: there is no inner 'plian' (did you mean plain?): use one of "],
        ),
        ((), {"inner": {"type": "plain", "depth": 0}}, ["Machine, inner: depth: expected a number of at least 1"]),
        ((), {"inner": LocalEmbedder()}, ["Machine, inner: expected an inner, found the embedder local"]),
        ((), {"limit": 10}, ["limit and size are both 10: give two numbers"]),
        ((1, ("a",), 2.0), {}, ["Machine: too many settings without a name: name them"]),
    ],
)
def test_what_cannot_be_is_one_sentence_each(given: tuple[Any, ...], named: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Machine(*given, **named)
    assert len(sentences(caught.value)) == len(told)
    for sentence, start in zip(sentences(caught.value), told, strict=True):
        assert sentence.startswith(start)


def test_only_what_decides_the_result_is_the_identity() -> None:
    usual = Machine()
    known = identity(usual)
    assert known["type"] == "machine"
    assert known["packages"]["no-such-package"] is None
    assert known["packages"]["pydantic"]
    for same in (Machine(speed=9.0), Machine(home="here"), Machine(options={"a": "b"})):
        assert digest(same) == digest(usual)
    changed = [Machine(4), Machine(names=("b",)), Machine(limit=3), Machine(inner=None), Machine(inner=Inner(4))]
    assert len({digest(one) for one in (usual, *changed)}) == len(changed) + 1


def test_labels_tell_parts_apart_and_show_nested_ones() -> None:
    assert label(Machine(7, speed=2.0)) == "machine 7"  # how it runs tells no results apart
    assert label(Machine(inner=Inner(4))) == "machine 10 inner=(plain depth=4)"
    assert label(Machine(inner=None)) == "machine 10 inner=null"


def test_aspects_are_put_back_in_nested_parts_too() -> None:
    machine = Machine(4, speed=3.0, inner=Inner(2, 9))
    assert without(machine, Searching) == Machine(4, speed=3.0, inner=Inner(2))
    assert without(machine, Running) == Machine(4, inner=Inner(2, 9))
    own = Own()
    assert without(own, Searching) is own


def test_a_location_is_where_it_is_run_and_no_setting() -> None:
    here = located(Machine(4), "here")
    assert (locations(here), locations(Machine(4))) == ({"home": "here"}, {"home": None})
    assert as_data(here) == as_data(Machine(4))
    inner = Inner()
    assert located(inner, "here") is inner


def test_a_part_is_as_remote_as_what_is_inside_it() -> None:
    assert is_remote(Machine())
    assert not is_remote(Machine(inner=None))
    assert is_remote(Own(remote=True))
    assert not is_remote(Own(remote="yes"))


def test_objects_that_are_no_parts_have_answers_too() -> None:
    own = Own(name="mine v2")
    assert type_name(own) == f"{__name__}:Own"
    assert label(own) == "mine v2"
    assert label(Own()) == f"{__name__}:Own"
    assert as_data(own) == {"type": f"{__name__}:Own", "name": "mine v2"}
    assert identity(Own(name="mine", identity="commit 7")) == {"identity": "commit 7"}
    assert identity(own) == identity(Own(name="mine v2", seen=3)) != identity(Own(name="other"))
    assert (label(None), type_name(None), identity(None)) == ("none", "none", {"type": "none"})


def test_a_field_of_a_kind_takes_names_settings_and_live_objects() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[Any, PartOf(CHUNKER)])
    own = Own(name="mine", chunk=str.split)
    assert adapter.validate_python("markdown") == MarkdownChunker()
    assert adapter.validate_python({"type": "markdown", "max_chunk_size": 5}) == MarkdownChunker(5)
    assert adapter.validate_python(own).source is own
    for wrong in (5, [MarkdownChunker()], None, MarkdownChunker, LocalEmbedder()):
        with pytest.raises(ValueError, match="expected a chunker"):
            adapter.validate_python(wrong)
    assert TypeAdapter(Annotated[Any, PartOf(RERANKER)]).validate_python(None) is None
    assert adapter.dump_python(MarkdownChunker(5)) == {"type": "markdown", "max_chunk_size": 5}
    with pytest.raises(ConfigurationError, match=r"^max_chunk_size: expected a whole number, found a list$"):
        CHUNKER.make({"type": "markdown", "max_chunk_size": [1, 2]})


def test_a_record_is_read_without_its_part() -> None:
    record = PartRecord.of(EMBEDDER, LocalEmbedder())
    assert (record.kind, record.type, record.label, record.settings) == ("embedder", "local", "local", {})
    foreign = record.model_copy(update={"type": "no_such_module:Thing", "label": "thing 7"})
    made = {"chunker": foreign, "retrieval": foreign, "embedder": None, "store": None, "reranker": foreign}
    text = ConfigurationRecord.model_validate(made).model_dump_json()
    assert ConfigurationRecord.model_validate_json(text, strict=True).name == "thing 7, thing 7, thing 7"


def test_the_record_of_a_configuration_has_its_name_and_its_settings() -> None:
    config = BenchmarkConfig.model_validate(
        {
            "corpus": "docs",
            "ground_truth": "truth.jsonl",
            "chunkers": ["markdown", {"type": "semantic", "embedder": "openai"}],
            "retrieval": ["vector", "bm25"],
            "stores": [{"type": "lancedb", "index": "hnsw"}],
            "rerankers": ["none", "lexical"],
        }
    )
    ways: list[Configuration] = config.configurations()
    assert [way.record().name for way in ways] == [way.name for way in ways]
    assert ways[0].record().chunker.settings == {"max_chunk_size": 1000}
    assert ways[0].record().chunker.digest == digest(ways[0].chunker)
    record = BenchmarkRecord.model_validate(config.model_dump())
    stored = record.model_dump_json()
    assert BenchmarkRecord.model_validate_json(stored, strict=True) == record
    assert BenchmarkConfig.model_validate_json(stored) == config


INSIDE = """
from typing import Annotated, Any

from rag_eval import RecursiveTokenChunker
from rag_eval.chunking import CHUNKER
from rag_eval.parts import PartOf, part


@part
class Outer:
    inner: Annotated[Any, PartOf(CHUNKER)] = RecursiveTokenChunker(chunk_size=300)
    plain: RecursiveTokenChunker = RecursiveTokenChunker()

    def chunk(self, text):
        return self.inner.chunk(text)
"""


def test_a_part_of_a_user_may_hold_parts(tmp_path: Path) -> None:
    (tmp_path / "parts_inside.py").write_text(INSIDE)
    place = Place("benchmark.yaml", "chunkers", tmp_path)
    small, large = ({"type": "recursive-token", "chunk_size": size} for size in (40, 400))
    nested = {"type": "parts_inside:Outer", "inner": small}
    given = [{"type": "parts_inside:Outer", "inner": one} for one in (small, large, nested)]
    made = [CHUNKER.make(one, place) for one in given]
    assert len({digest(one) for one in made}) == len(made)
    assert [digest(one) for one in made] == [digest(CHUNKER.make(one, place)) for one in given]
    assert [type_name(one) for one in parts_in(made[2])] == ["parts_inside:Outer"] * 2 + ["recursive-token"]
    assert digest(pickle.loads(pickle.dumps(made[2]))) == digest(made[2])  # noqa: S301  # our own
    with pytest.raises(ConfigurationError, match=r"plain\.type: there is no such setting"):
        CHUNKER.make({"type": "parts_inside:Outer", "plain": small}, place)
