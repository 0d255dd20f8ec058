"""Define kinds of parts: their built-in types by name, and how files are read into parts."""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import CoreSchema, core_schema

from rag_eval.errors import ConfigurationError, Faults, preview, sentences
from rag_eval.formatting import choices, suggestion
from rag_eval.parts.definition import (
    NONE,
    REGISTERED,
    Setting,
    as_data,
    digest,
    faults_of,
    is_part,
    is_remote,
    label,
    path_of,
    plain_data,
    settings_of,
)
from rag_eval.parts.objects import (
    CODE_VERSION,
    Foreign,
    Origin,
    find,
    is_callable_part,
    is_reference,
    load,
    signature_of,
)
from rag_eval.parts.part_settings import EMPTY_GRID, Place, Settings, unknown_key, value_in_words

Schema = dict[str, Any]
_PLAIN = (str, int, float, list, tuple, Mapping, type(None))
_SECRET = re.compile(r"(^|_)(api_?key|secret|password|(access|auth|bearer)_token)(_|$)", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of part, such as chunker, and its built-in types.

    Attributes:
        name: What a part of this kind is called in messages.
        types: The class of each built-in type, ``name: "module:Class"``; None for a type that is no part.
        foreign: The ``Foreign`` class that wraps objects of users, ``module:Name``; None if they are not accepted.
        completes: Whether classes are accepted too; the pipeline calls them with further arguments.
        nothing: The summary of the type None.
        implied: The type of settings without a ``type``.
    """

    name: str
    types: Mapping[str, str | None]
    foreign: str | None = None
    completes: bool = False
    nothing: str = ""
    implied: str | None = None

    def __post_init__(self) -> None:
        REGISTERED.update({path: (self.name, name) for name, path in self.types.items() if path is not None})

    def load(self, name: str) -> Any:
        """Import the class of a built-in type; None for the type that is no part."""
        path = self.types[name]
        return None if path is None else _named(path)

    def make(self, value: object, place: Place | None = None) -> Any:
        """Construct a part from its name or a mapping of ``type`` and settings.

        A type is a built-in name, or ``module:Name`` (see ``rag_eval.parts.objects.load``). Raises
        ``ConfigurationError`` with the path of the setting.
        """
        faults = Faults()
        parts = list(_Reader(faults, is_grid=False).grid(value, place or Place(), self).parts(faults))
        faults.raise_any()
        return parts[0]

    def take(self, candidate: Any, origin: Origin | None = None) -> Any:
        """Return an object as a part of this kind: a built-in part unchanged, any other one wrapped as ``Foreign``.

        Raises ``ConfigurationError`` on plain data, and on objects that are not of this kind.
        """
        if candidate is None and None in self.types.values():
            return None
        if isinstance(candidate, _PLAIN) or (isinstance(candidate, type) and not self.completes):
            raise ConfigurationError(self.expected(candidate))
        kind, name = REGISTERED.get(path_of(candidate), (self.name, ""))
        kind, name = (candidate.kind, candidate.label) if isinstance(candidate, Foreign) else (kind, name)
        if kind != self.name:
            raise ConfigurationError(f"expected {self._noun}, found the {kind} {name}")
        if isinstance(candidate, Foreign) or (name and origin is None):
            return candidate
        if self.foreign is None:
            raise ConfigurationError(self.expected(candidate))
        return _named(self.foreign)(candidate, origin)

    def of(self, value: object) -> Any:
        """Return a part from its name, a mapping of ``type`` and settings, or an object; raises as those do."""
        return self.make(value) if isinstance(value, str | Mapping) else self.take(value)

    def known(self, name: str, place: Place) -> str:
        """Return the name of a built-in type; raise ``ConfigurationError`` with the place if it is unknown."""
        if name == NONE and None in self.types.values():
            return next(known for known, path in self.types.items() if path is None)
        if name not in self.types:
            yours = ", or module:Name for your own" if self.foreign else ""
            meant = suggestion(name, self.types)
            raise place.fault(f"there is no {self.name} {preview(name)}{meant}: {choices(self.types, name)}{yours}")
        return name

    def summary(self, cls: type | None) -> str:
        """Describe a built-in type in one sentence."""
        return first_line(cls) if cls is not None else self.nothing or f"No {self.name}."

    def expected(self, value: object) -> str:
        """Return the error message for a value that is not a part of this kind."""
        return f"expected {self._noun}, by name or with settings, found {value_in_words(value)}: {choices(self.types)}"

    @property
    def _noun(self) -> str:
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"


@dataclass(frozen=True)
class PartOf:
    """Mark a field that is a part: ``Annotated[Embedder, PartOf(EMBEDDER)]``.

    The field accepts an object, a name, or a mapping of ``type`` and settings, and is dumped as such a mapping.
    """

    kind: Kind

    def __get_pydantic_core_schema__(self, _: object, __: object) -> CoreSchema:
        serialization = core_schema.plain_serializer_function_ser_schema(self.dump)
        return core_schema.no_info_plain_validator_function(self.check, serialization=serialization)

    def __get_pydantic_json_schema__(self, _: object, __: object) -> Schema:
        return {"title": self.kind.name}  # kind_schema describes it, which imports every part of the kind

    def check(self, value: object) -> object:
        """Validate the value of the field; raises ``ValueError``."""
        try:
            return self.kind.of(value)
        except ConfigurationError as error:
            raise ValueError("; ".join(sentences(error))) from None

    def dump(self, value: object) -> object:
        """Return the value of the field as plain data."""
        return as_data(value)


class PartsOf(PartOf):
    """Mark a field that is a list of parts: ``Annotated[list[Any], PartsOf(RETRIEVER)]``."""

    def __get_pydantic_json_schema__(self, _: object, __: object) -> Schema:
        return {"type": "array", "minItems": 1}

    def check(self, value: object) -> object:
        """Validate the parts; raises ``ValueError``."""
        if not isinstance(value, list | tuple):
            raise ValueError(f"expected a list, found {value_in_words(value)}")
        return [super(PartsOf, self).check(item) for item in value]

    def dump(self, value: object) -> object:
        """Return the parts as plain data."""
        return plain_data(value)


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


class PartRecord(Settings):
    """A part as recorded by a run: plain data that can be read without importing the part."""

    kind: str
    type: str
    label: str
    settings: dict[str, Any]
    digest: str
    remote: bool = False
    is_reference: bool = False
    """Whether it is a reference to measure against, which no search engine runs."""

    @classmethod
    def of(cls, kind: Kind, candidate: object) -> "PartRecord":
        settings = as_data(candidate)
        return cls(
            kind=kind.name,
            type=settings.pop("type"),
            label=label(candidate),
            settings=settings,
            digest=digest(candidate),
            remote=is_remote(candidate),
            is_reference=getattr(candidate, "is_reference", False),
        )


@dataclass(frozen=True)
class Value:
    """One value of a setting, and its place in the file."""

    value: object
    place: Place
    size = 1

    def values(self, _: Faults) -> Iterator["Value"]:
        yield self


@dataclass(frozen=True)
class Grid:
    """A type of part and the possible values of each of its settings, in the order written."""

    cls: Any
    place: Place
    axes: dict[str, Sequence["Value | Grid"]]
    make: Callable[..., Any]

    @property
    def size(self) -> int:
        """The number of parts in the grid, without constructing them."""
        return math.prod(sum(choice.size for choice in axis) for axis in self.axes.values())

    def values(self, faults: Faults) -> Iterator[Value]:
        for value in self.parts(faults):
            yield Value(value, self.place)

    def parts(self, faults: Faults) -> Iterator[Any]:
        """Yield every valid combination, the first setting varying slowest; add errors to the faults."""
        options = [[value for choice in axis for value in choice.values(faults)] for axis in self.axes.values()]
        for combination in product(*options):
            chosen = dict(zip(self.axes, combination, strict=True))
            try:
                yield self.make(**{key: value.value for key, value in chosen.items()})
            except ValidationError as error:
                for (key, *inside), reason in faults_of(self.cls, error):
                    place = chosen[str(key)].place if key in chosen else self.place.key(key)
                    faults.add(place.inside(inside).fault(reason))
            except ConfigurationError as error:
                faults.add(self.place.fault(str(error)))


def read_grids(value: object, place: Place, kind: Kind, faults: Faults) -> list[Grid]:
    """Read a part, or a list of parts, each a name or settings; add errors to the faults, or raise them."""
    return _Reader(faults).grids(value, place, kind)


class _Reader:
    """Reads parts from plain data; without ``is_grid``, a list is a single value of its setting."""

    def __init__(self, faults: Faults, *, is_grid: bool = True) -> None:
        self.faults, self.is_grid = faults, is_grid

    def grids(self, value: object, place: Place, kind: Kind) -> list[Grid]:
        if not isinstance(value, list):
            return [self.grid(value, place, kind)]
        if not value:
            raise place.fault(EMPTY_GRID)
        grids = []
        for number, item in enumerate(value):
            with self.faults.noted():
                grids.append(self.grid(item, place.item(number), kind))
        return grids

    def grid(self, value: object, place: Place, kind: Kind) -> Grid:
        settings = {"type": value} if isinstance(value, str) else value
        if not isinstance(settings, Mapping):
            raise place.fault(kind.expected(value))
        named = place if settings is not value else place.key("type")
        name = settings.get("type", kind.implied)
        if "type" not in settings and name is None:
            raise place.fault(f"the type of the {kind.name} is missing: {choices(kind.types)}")
        if not isinstance(name, str):
            raise named.fault(f"expected one name, found {value_in_words(name)}: {choices(kind.types)}")
        if is_reference(name):
            return self._reference(name, settings, place, named, kind)
        return self._built_in(kind.known(name, named), settings, place, kind)

    def _built_in(self, name: str, settings: Mapping[str, object], place: Place, kind: Kind) -> Grid:
        cls = kind.load(name)
        known = settings_of(cls)
        axes: dict[str, Sequence[Value | Grid]] = {}
        for key, value in settings.items():
            if key in known:
                axes[key] = self._axis(known[key], value, place.key(key))
            elif key != "type":
                self.faults.add(unknown_key(place, key, name, ["type", *known]))
        for key, setting in known.items():
            if key not in axes and isinstance(setting.default, Path):
                axes[key] = [Value(_located(setting, str(setting.default), place), place.key(key))]

        def make(**chosen: object) -> object:
            if not is_part(cls):
                return None if cls is None else cls(**chosen)
            instance = cls.__new__(cls)
            cls.__checked_init__(instance, **chosen)  # raises pydantic's error, which has the nested places
            return instance

        return Grid(cls, place, axes, make)

    def _reference(self, name: str, settings: Mapping[str, object], place: Place, named: Place, kind: Kind) -> Grid:
        """Read a ``module:Name`` part, whose settings are the parameters of the class or function."""
        version = settings.get(CODE_VERSION)
        if version is not None and not isinstance(version, str | int | float):
            raise place.key(CODE_VERSION).fault(f"expected a text or a number, found {value_in_words(version)}")
        try:
            target, _ = find(name, place.folder)
        except ConfigurationError as error:
            raise named.fault(str(error)) from None
        known = settings_of(target) if is_part(target) else _parameters(target)
        axes: dict[str, Sequence[Value | Grid]] = {}
        for key, value in settings.items():
            if _SECRET.search(str(key)):
                raise place.key(key).fault(
                    "keys must not be in benchmark files, because results show all settings: create the object in a "
                    "module of yours that reads the environment"
                )
            if key not in ("type", CODE_VERSION):
                axes[str(key)] = self._axis(known.get(key) or Setting(str(key)), value, place.key(key))

        def make(**chosen: object) -> object:
            code_version = None if version is None else str(version)
            return kind.take(*load(name, chosen, place.folder, code_version, completes=kind.completes))

        return Grid(target, place, axes, make)

    def _axis(self, setting: Setting, value: object, place: Place) -> Sequence[Value | Grid]:
        """Return what a grid tries for a setting: parts, or plain values."""
        if not setting.is_part:
            return self._values(setting, value, place)
        return self.grids(value, place, setting.kind) if self.is_grid else [self.grid(value, place, setting.kind)]

    def _values(self, setting: Setting, value: object, place: Place) -> list[Value]:
        """Return the plain values to try: the items of a list, or the value alone.

        If the setting itself takes a list, a list is one value and a list of lists has several.
        """
        if not isinstance(value, list) or value == setting.default == []:
            return [Value(_located(setting, value, place), place)]
        if not value:
            raise place.fault(EMPTY_GRID)
        if setting.is_list and not all(isinstance(item, list) for item in value):
            return [self._list(setting, value, place)]
        if setting.kind is not None:  # lists of parts
            return [self._list(setting, items, place) for items in value]
        if not self.is_grid:
            return [Value(value, place)]
        return [Value(_located(setting, item, place), place.item(number)) for number, item in enumerate(value)]

    def _list(self, setting: Setting, items: list[object], place: Place) -> Value:
        """Read a list that is one value of its setting, including the parts in it."""
        if setting.kind is None:
            return Value(items, place)
        single = _Reader(self.faults, is_grid=False)
        grids = [single.grid(item, place.item(number), setting.kind) for number, item in enumerate(items)]
        return Value([value for grid in grids for value in grid.parts(self.faults)], place)


def _parameters(target: object) -> dict[str, Setting]:
    """Return the parameters of a class or a function as settings; those annotated as lists take a list as one value."""
    signature = signature_of(target) if is_callable_part(target) else None
    parameters = {} if signature is None else signature.parameters
    return {name: Setting(name, is_list=_is_list(parameter)) for name, parameter in parameters.items()}


def _is_list(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", None) or str(annotation)
    is_annotated = re.search(r"\b(list|sequence|tuple|iterable|set)\b", text, re.IGNORECASE) is not None
    return is_annotated or isinstance(parameter.default, list | tuple)


def _located(setting: Setting, value: object, place: Place) -> object:
    """Return the value of a setting; a path in a file is relative to the folder of the file."""
    is_path = setting.is_path and place.file and isinstance(value, str) and value and "://" not in value
    return place.folder / str(value) if is_path else value


def first_line(documented: Callable[..., object] | None) -> str:
    """Return the first line of a docstring, without backquotes."""
    return (inspect.getdoc(documented) or "").partition("\n")[0].replace("``", "")
