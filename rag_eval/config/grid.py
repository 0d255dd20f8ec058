"""Grids: settings with a list where a value can stand, which is every combination of the values listed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import get_origin

from pydantic import ValidationError

from rag_eval.config.places import EMPTY_GRID, Place, describe, reason_of, suggestion
from rag_eval.config.registry import Kind, members_of
from rag_eval.config.settings import Component
from rag_eval.errors import ConfigurationError, preview


@dataclass(frozen=True)
class Value:
    """One value of a setting, and where it stands."""

    value: object
    place: Place

    @property
    def size(self) -> int:
        """1."""
        return 1

    def values(self) -> Iterator["Value"]:
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

    def values(self) -> Iterator[Value]:
        """Its components as values of a setting."""
        for component in self.components():
            yield Value(component, self.place)

    def components(self) -> Iterator[Component]:
        """Every combination, the setting written first changing slowest; raises ``ConfigurationError``."""
        choices = [[value for choice in axis for value in choice.values()] for axis in self.axes.values()]
        for combination in product(*choices):
            component = self._validated(dict(zip(self.axes, combination, strict=True)))
            try:
                component.check()
            except ConfigurationError as error:
                raise self.place.fault(str(error)) from None
            yield component

    def _validated(self, chosen: dict[str, Value]) -> Component:
        try:
            return self.model.model_validate({key: value.value for key, value in chosen.items()})
        except ValidationError as error:
            first = error.errors()[0]
            key, *inside = first["loc"]
            place = chosen[str(key)].place if key in chosen else self.place.key(key)
            for number in inside:
                place = place.item(int(number))
            raise place.fault(reason_of(first)) from None


def read_grids(value: object, place: Place, kind: Kind) -> list[Grid]:
    """One component or a list of them, each a name or settings; raises ``ConfigurationError`` on what is neither."""
    if not isinstance(value, list):
        return [_read_grid(value, place, kind)]
    if not value:
        raise place.fault(EMPTY_GRID)
    return [_read_grid(item, place.item(number), kind) for number, item in enumerate(value)]


def _read_grid(value: object, place: Place, kind: Kind) -> Grid:
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
        raise named.fault(f"there is no {kind.name} {preview(name)}{suggestion(name, kind.members)}: {_choice(kind)}")
    model = kind.members[name]
    for key in settings:
        if key not in model.model_fields:
            raise unknown_key(place, key, name, list(model.model_fields))
    return Grid(model, place, {key: _read_axis(model, key, settings[key], place.key(key)) for key in settings})


def _read_axis(model: type[Component], key: str, value: object, place: Place) -> list[Value | Grid]:
    annotation = model.model_fields[key].annotation
    members = members_of(annotation)
    if members:
        return list(read_grids(value, place, Kind(key, members)))
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
    return place.key(key).fault(f"{owner} has no such key{meant}: use one of {', '.join(allowed)}{hint}")


def _choice(kind: Kind) -> str:
    return f"use one of {kind.names}"
