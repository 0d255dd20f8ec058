"""Grids: settings with a list where a value can stand, which is every combination of the values listed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args, get_origin

from pydantic import ValidationError

from rag_eval.benchmark.chunker_settings import ChunkerConfig
from rag_eval.benchmark.component import Component
from rag_eval.benchmark.embedder_settings import EmbedderConfig
from rag_eval.benchmark.reranker_settings import RerankerConfig
from rag_eval.benchmark.store_settings import StoreConfig
from rag_eval.errors import ConfigurationError, Faults, preview
from rag_eval.formatting import choices, suggestion
from rag_eval.parts.settings import EMPTY_GRID, Place, reason_of
from rag_eval.parts.settings import value_in_words as describe


@dataclass(frozen=True)
class Kind:
    """A kind of part, by what it is called, and its members by their ``type``."""

    name: str
    members: dict[str, type[Component]]


def members_of(union: Any) -> dict[str, type[Component]]:
    """The components of a union, or of a single class, by their ``type``; empty if it holds anything else."""
    classes: list[type[Any]] = [part for part in _flattened(union) if isinstance(part, type)]
    if not all(issubclass(part, Component) for part in classes):
        return {}
    return {part.model_fields["type"].default: part for part in classes}


def _flattened(union: Any) -> list[Any]:
    parts = get_args(union)
    return [leaf for part in parts for leaf in _flattened(part)] if parts else [union]


CHUNKERS = members_of(ChunkerConfig)
EMBEDDERS = members_of(EmbedderConfig)
STORES = members_of(StoreConfig)
RERANKERS = members_of(RerankerConfig)

SECTIONS = {
    "chunkers": Kind("chunker", CHUNKERS),
    "embedders": Kind("embedder", EMBEDDERS),
    "stores": Kind("store", STORES),
    "rerankers": Kind("reranker", RERANKERS),
}
"""The sections of a benchmark that list parts."""


@dataclass(frozen=True)
class Value:
    """One value of a setting, and where it stands."""

    value: object
    place: Place

    @property
    def size(self) -> int:
        """1."""
        return 1

    def values(self, _: Faults) -> Iterator["Value"]:
        """Itself."""
        yield self


@dataclass(frozen=True)
class Grid:
    """A component and, for each setting that was given, what it can be, in the order written."""

    model: type[Component]
    place: Place
    axes: dict[str, list["Value | Grid"]]

    @property
    def size(self) -> int:
        """How many components the grid stands for, without making them."""
        return math.prod(sum(choice.size for choice in axis) for axis in self.axes.values())

    def values(self, faults: Faults) -> Iterator[Value]:
        """Its components as values of a setting."""
        for component in self.components(faults):
            yield Value(component, self.place)

    def components(self, faults: Faults) -> Iterator[Component]:
        """Every combination that can be, the setting written first changing slowest; what is wrong goes to faults."""
        choices = [[value for choice in axis for value in choice.values(faults)] for axis in self.axes.values()]
        for combination in product(*choices):
            component = self._validated(dict(zip(self.axes, combination, strict=True)), faults)
            if component is not None:
                yield component

    def _validated(self, chosen: dict[str, Value], faults: Faults) -> Component | None:
        try:
            component = self.model.model_validate({key: value.value for key, value in chosen.items()})
            component.check()
        except ValidationError as error:
            for fault in error.errors():
                key, *inside = fault["loc"]
                place = chosen[str(key)].place if key in chosen else self.place.key(key)
                for number in inside:
                    place = place.item(int(number))
                faults.add(place.fault(reason_of(fault)))
            return None
        except ConfigurationError as error:
            faults.add(self.place.fault(str(error)))
            return None
        return component


def read_grids(value: object, place: Place, kind: Kind, faults: Faults) -> list[Grid]:
    """One component or a list of them, each a name or settings.

    What is neither, and a setting that is not declared, is left out and put among the faults. Raises
    ``ConfigurationError`` when it is the only one, or there is none.
    """
    if not isinstance(value, list):
        return [_read_grid(value, place, kind, faults)]
    if not value:
        raise place.fault(EMPTY_GRID)
    grids = []
    for number, item in enumerate(value):
        with faults.noted():
            grids.append(_read_grid(item, place.item(number), kind, faults))
    return grids


def _read_grid(value: object, place: Place, kind: Kind, faults: Faults) -> Grid:
    settings = {"type": value} if isinstance(value, str) else value
    if not isinstance(settings, dict):
        raise place.fault(f"expected a {kind.name}, by name or with settings, found {describe(value)}: {_choice(kind)}")
    if "type" not in settings:
        raise place.fault(f"the type of the {kind.name} is missing: {_choice(kind)}")
    name = settings["type"]
    named = place if settings is not value else place.key("type")
    if not isinstance(name, str):
        raise named.fault(f"expected one name, found {describe(name)}: {_choice(kind)}")
    if name not in kind.members:
        meant = suggestion(name, kind.members)
        raise named.fault(f"there is no {kind.name} {preview(name)}{meant}: {_choice(kind, name)}")
    model = kind.members[name]
    axes = {}
    for key in settings:
        if key not in model.model_fields:
            faults.add(unknown_key(place, key, name, list(model.model_fields)))
        else:
            axes[key] = _read_axis(model, key, settings[key], place.key(key), faults)
    return Grid(model, place, axes)


def _read_axis(model: type[Component], key: str, value: object, place: Place, faults: Faults) -> list[Value | Grid]:
    annotation = model.model_fields[key].annotation
    members = members_of(annotation)
    if members:
        return list(read_grids(value, place, Kind(key, members), faults))
    if value == []:
        raise place.fault(EMPTY_GRID)
    is_list = get_origin(annotation) is tuple
    if not isinstance(value, list) or (is_list and not all(isinstance(item, list) for item in value)):
        return [Value(value, place)]
    return [Value(item, place.item(number)) for number, item in enumerate(value)]


def unknown_key(place: Place, key: object, owner: str, allowed: list[str]) -> ConfigurationError:
    """The error for a key that is not declared; a value is not quoted, it may be a secret."""
    hint = "" if not str(key).lower().endswith("key") else " (keys of services are read from the environment)"
    meant = suggestion(key, allowed)
    return place.key(key).fault(f"{owner} has no such key{meant}: {choices(allowed, key)}{hint}")


def _choice(kind: Kind, written: object = "") -> str:
    return choices(kind.members, written)
