"""The kinds of parts: their built-in types by name, read from a file, described for people and for editors."""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
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
    type_name,
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
_SECRET = re.compile(r"(^|_)(api_?key|secret|password|(access|auth|bearer)_token)(_|$)", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of part, and where its built-in types are: ``name: "module:Class"``; None stands for no part at all.

    ``foreign`` names, as ``module:Name``, what makes a ``Foreign`` of this kind of an object that is not
    built in; None where only built-in ones will do. ``completes`` says that it gives classes what they lack,
    ``nothing`` what it means that there is no part, and ``implied`` which type settings without one are of.
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
        """Import the class of a built-in type; None for no part at all."""
        path = self.types[name]
        return None if path is None else _named(path)

    def make(self, value: object, place: Place | None = None) -> Any:
        """Construct a part from its name or a mapping of ``type`` and settings; raise ``ConfigurationError``.

        A type is the name of a built-in one, or ``module:Name``; see ``rag_eval.parts.objects.load``.
        """
        faults = Faults()
        made = list(_read_grid(value, place or Place(), self, faults, is_grid=False).parts(faults))
        faults.raise_any()
        return made[0]

    def take(self, candidate: Any, origin: Origin | None = None) -> Any:
        """Return an object as a part of this kind: a built-in one as it is, any other as its ``Foreign``.

        Raises ``ConfigurationError`` on plain data, on a part of another kind, and on an object that is no such part.
        """
        if candidate is None and None in self.types.values():
            return None
        is_class = isinstance(candidate, type) and not self.completes
        if candidate is None or is_class or isinstance(candidate, str | int | float | list | tuple | Mapping):
            raise ConfigurationError(self.expected(candidate))
        kind, name = REGISTERED.get(path_of(candidate), (self.name, ""))
        kind, name = (candidate.kind, candidate.label) if isinstance(candidate, Foreign) else (kind, name)
        if kind != self.name:
            raise ConfigurationError(f"expected {self._one}, found the {kind} {name}")
        if isinstance(candidate, Foreign) or (name and origin is None):
            return candidate
        if self.foreign is None:
            raise ConfigurationError(self.expected(candidate))
        return _named(self.foreign)(candidate, origin)

    def of(self, given: Any) -> Any:
        """Return a part from its name, a mapping of ``type`` and settings, or an object; raises as both."""
        return self.make(given) if isinstance(given, str | Mapping) else self.take(given)

    def expected(self, found: object) -> str:
        """Return the sentence about something that is no part of this kind."""
        told = f"expected {self._one}, by name or with settings, found {value_in_words(found)}"
        return f"{told}: {choices(self.types)}"

    @property
    def _one(self) -> str:
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"


@dataclass(frozen=True)
class PartOf:
    """Mark a field that is a part: ``Annotated[Embedder, PartOf(EMBEDDER)]``.

    The field takes a live object, a name, or a mapping of ``type`` and settings, and is dumped as such a mapping.
    """

    kind: Kind

    def __get_pydantic_core_schema__(self, _: object, __: object) -> CoreSchema:
        serialization = core_schema.plain_serializer_function_ser_schema(as_data)
        return core_schema.no_info_plain_validator_function(self._checked, serialization=serialization)

    def __get_pydantic_json_schema__(self, _: object, __: object) -> Schema:
        # No form asks for parts: what can be written is kind_schema's to tell, which loads every part there is.
        return {"title": self.kind.name}

    def _checked(self, value: object) -> object:
        try:
            return self.kind.of(value)
        except ConfigurationError as error:
            raise ValueError("; ".join(sentences(error))) from None


@dataclass(frozen=True)
class PartsOf:
    """Mark a field that is a list of parts: ``Annotated[list[Any], PartsOf(RETRIEVER)]``; else as ``PartOf``."""

    items: Kind

    def __get_pydantic_core_schema__(self, _: object, __: object) -> CoreSchema:
        serialization = core_schema.plain_serializer_function_ser_schema(lambda parts: [as_data(one) for one in parts])
        return core_schema.no_info_plain_validator_function(self._checked, serialization=serialization)

    def __get_pydantic_json_schema__(self, _: object, __: object) -> Schema:
        return {"type": "array", "minItems": 1}  # its items may be of the kind that is being described

    def _checked(self, value: object) -> object:
        if not isinstance(value, list | tuple):
            raise ValueError(f"expected a list, found {value_in_words(value)}")
        return [PartOf(self.items)._checked(one) for one in value]


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


class PartRecord(Settings):
    """A part as a run keeps it: inert data, read without importing the part."""

    kind: str
    type: str
    label: str
    settings: dict[str, Any]
    digest: str
    remote: bool = False

    @classmethod
    def of(cls, kind: Kind, candidate: object) -> "PartRecord":
        settings = as_data(candidate)
        named = settings.pop("type")
        known = {"kind": kind.name, "type": named, "label": label(candidate), "settings": settings}
        return cls.model_validate(known | {"digest": digest(candidate), "remote": is_remote(candidate)})


# Reading: a part is a name or settings; a list in a setting makes a grid.


@dataclass(frozen=True)
class Value:
    """One value of a setting, and where it is written."""

    value: object
    place: Place
    size = 1

    def values(self, _: Faults) -> Iterator["Value"]:
        yield self


@dataclass(frozen=True)
class Grid:
    """A type of part and, for each setting that was given, what it can be, in the order written."""

    cls: Any
    place: Place
    axes: dict[str, list["Value | Grid"]]
    make: Callable[..., Any]

    @property
    def size(self) -> int:
        """How many parts the grid stands for, without making them."""
        return math.prod(sum(choice.size for choice in axis) for axis in self.axes.values())

    def values(self, faults: Faults) -> Iterator[Value]:
        for one in self.parts(faults):
            yield Value(one, self.place)

    def parts(self, faults: Faults) -> Iterator[Any]:
        """Yield every combination that can be, the setting written first changing slowest; note what is wrong."""
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


def _built_in(cls: Any) -> Callable[..., Any]:
    """What makes a part of this class and raises pydantic's error, which knows the places inside."""

    def make(**settings: Any) -> Any:
        if not is_part(cls):
            return None if cls is None else cls(**settings)
        made = cls.__new__(cls)
        cls.__checked_init__(made, **settings)
        return made

    return make


def read_grids(value: object, place: Place, kind: Kind, faults: Faults) -> list[Grid]:
    """Read one part or a list of them, each a name or settings; what is wrong is put among the faults, or raised."""
    if not isinstance(value, list):
        return [_read_grid(value, place, kind, faults)]
    if not value:
        raise place.fault(EMPTY_GRID)
    grids = []
    for number, item in enumerate(value):
        with faults.noted():
            grids.append(_read_grid(item, place.item(number), kind, faults))
    return grids


def _read_grid(value: object, place: Place, kind: Kind, faults: Faults, *, is_grid: bool = True) -> Grid:
    settings = {"type": value} if isinstance(value, str) else value
    if not isinstance(settings, Mapping):
        raise place.fault(kind.expected(value))
    name = settings.get("type", kind.implied)
    if "type" not in settings and name is None:
        raise place.fault(f"the type of the {kind.name} is missing: {choices(kind.types)}")
    named = place if settings is not value else place.key("type")
    if not isinstance(name, str):
        raise named.fault(f"expected one name, found {value_in_words(name)}: {choices(kind.types)}")
    if is_reference(name):
        return _read_reference(name, settings, place, named, kind, faults, is_grid=is_grid)
    if name == NONE and None in kind.types.values():
        name = next(one for one, path in kind.types.items() if path is None)  # which may have a name of its own
    if name not in kind.types:
        meant = suggestion(name, kind.types)
        own = ", or module:Name for your own" if kind.foreign else ""
        raise named.fault(f"there is no {kind.name} {preview(name)}{meant}: {choices(kind.types, name)}{own}")
    cls = kind.load(name)
    known = settings_of(cls)
    axes: dict[str, list[Value | Grid]] = {}
    for key, given in settings.items():
        if key in known:
            axes[key] = _read_axis(known[key], given, place.key(key), faults, is_grid=is_grid)
        elif key != "type":
            faults.add(unknown_key(place, key, name, ["type", *known]))
    for key, one in known.items():
        if key not in axes and isinstance(one.default, Path):
            axes[key] = [Value(_located(one, str(one.default), place), place.key(key))]
    return Grid(cls, place, axes, _built_in(cls))


def _read_reference(
    name: str, settings: Mapping[str, Any], place: Place, named: Place, kind: Kind, faults: Faults, *, is_grid: bool
) -> Grid:
    """Read a part that is ``module:Name``: its settings are the parameters that it has."""
    version = settings.get(CODE_VERSION)
    if version is not None and not isinstance(version, str | int | float):
        raise place.key(CODE_VERSION).fault(f"expected a text or a number, found {value_in_words(version)}")
    try:
        found, _ = find(name, place.folder)
    except ConfigurationError as error:
        raise named.fault(str(error)) from None
    known = settings_of(found) if is_part(found) else _parameters(found)
    axes = {}
    for key, given in settings.items():
        if _SECRET.search(str(key)):
            raise place.key(key).fault(
                "keys are not written in benchmark files, as results tell the settings of a part: make the object in a "
                "module of yours that reads the environment"
            )
        if key not in ("type", CODE_VERSION):
            setting = known.get(key) or Setting(str(key), Any, None, "", frozenset(), None, is_list=False)
            axes[str(key)] = _read_axis(setting, given, place.key(key), faults, is_grid=is_grid)

    def make(**chosen: Any) -> Any:
        given = None if version is None else str(version)
        return kind.take(*load(name, chosen, place.folder, given, completes=kind.completes))

    return Grid(found, place, axes, make)


def _parameters(found: Any) -> dict[str, Setting]:
    """The parameters of a class or a function; one that is a list, by its annotation or default, makes no grid."""
    signature = signature_of(found) if is_callable_part(found) else None
    parameters = {} if signature is None else signature.parameters
    return {
        name: Setting(name, Any, None, "", frozenset(), None, is_list=_is_list(one)) for name, one in parameters.items()
    }


def _is_list(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", None) or str(annotation)
    is_told = re.search(r"\b(list|sequence|tuple|iterable|set)\b", text, re.IGNORECASE) is not None
    return is_told or isinstance(parameter.default, list | tuple)


def _read_axis(setting: Setting, value: object, place: Place, faults: Faults, *, is_grid: bool) -> list[Value | Grid]:
    if setting.kind is not None:
        if is_grid:
            return list(read_grids(value, place, setting.kind, faults))
        return [_read_grid(value, place, setting.kind, faults, is_grid=False)]
    if value == []:
        if setting.default == []:
            return [Value(value, place)]
        raise place.fault(EMPTY_GRID)
    if setting.items is not None and isinstance(value, list):
        lists = value if all(isinstance(one, list) for one in value) else [value]
        made: list[Value | Grid] = []
        for items in lists:
            grids = [
                _read_grid(one, place.item(n), setting.items, faults, is_grid=False) for n, one in enumerate(items)
            ]
            made.append(Value([part for grid in grids for part in grid.parts(faults)], place))
        return made
    is_one = setting.is_list and isinstance(value, list) and not all(isinstance(item, list) for item in value)
    if not is_grid or not isinstance(value, list) or is_one:
        return [Value(_located(setting, value, place), place)]
    return [Value(_located(setting, item, place), place.item(number)) for number, item in enumerate(value)]


def _located(setting: Setting, value: object, place: Place) -> object:
    """The value of a setting; a path in a file starts at its folder."""
    return place.folder / value if setting.is_path and place.file and isinstance(value, str) and value else value


# Descriptions, for listings, the documentation and editors.


class PartDescription(NamedTuple):
    """A built-in type for people; ``remote`` is yes, no, or when; ``cost`` is what using it costs."""

    name: str
    summary: str
    settings: list[Setting]
    remote: str
    cost: str

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, defaults as a YAML file has them."""
        settings = [
            {"name": one.name, "default": one.default_text, "description": one.description} for one in self.settings
        ]
        return self._asdict() | {"settings": settings}


def describe(kind: Kind) -> list[PartDescription]:
    """Describe every built-in type of a kind, in the order of its registry."""
    found = []
    for name in kind.types:
        cls = kind.load(name)
        remote = inspect.getattr_static(cls, "remote", False)
        told = first_line(remote.fget) if isinstance(remote, property) else "yes" if remote else "no"
        summary = first_line(cls) if cls is not None else kind.nothing or f"No {kind.name}."
        cost = getattr(cls, "cost", "nothing")
        found.append(PartDescription(name, summary, list(settings_of(cls).values()), told, cost))
    return found


def first_line(documented: Callable[..., object] | None) -> str:
    """Return the first line of a docstring, without the backquotes that mark code."""
    return (inspect.getdoc(documented) or "").partition("\n")[0].replace("``", "")


def kind_schema(kind: Kind, definitions: dict[str, Schema] | None = None) -> Schema:
    """Return the JSON schema of any part of a kind: its name, or its type and settings.

    With ``definitions`` a list in a setting makes a grid, and the schemas are put there and referred to.
    """
    if definitions is not None and kind.name in definitions:
        return {"$ref": f"#/$defs/{kind.name}"}
    if definitions is not None:
        definitions[kind.name] = {}  # keeps its place before those of its types
    bare, settings = [], []
    for name in kind.types:
        schema = _type_schema(kind, name, definitions)
        bare += [name] if schema["required"] == ["type"] and name != kind.implied else []
        if definitions is not None:
            definitions[f"{kind.name}.{name}"] = schema
            schema = {"$ref": f"#/$defs/{kind.name}.{name}"}
        settings.append(schema)
    settings += own_schemas() if kind.foreign else []
    either = {"anyOf": [{"title": "name", "enum": bare, "description": "With its default settings."}, *settings]}
    if definitions is None:
        return either
    definitions[kind.name] = either
    return {"$ref": f"#/$defs/{kind.name}"}


def own_schemas() -> list[Schema]:
    """Return the schemas of a part that is not built in: its ``module:Name``, alone or with settings."""
    named = {"type": "string", "pattern": r"^\w+(\.\w+)*:\w+(\.\w+)*$"}
    settings = {"type": "object", "properties": {"type": named}, "required": ["type"]}
    told = {"title": "your own", "description": "module:Name of a class, a function or an object."}
    return [told | named, told | settings]


def one_or_more(item: Schema, more: Schema | None = None) -> Schema:
    """Return the schema of an item, or a list of at least one."""
    return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1} | (more or {})]}


def _type_schema(kind: Kind, name: str, definitions: dict[str, Schema] | None) -> Schema:
    cls = kind.load(name)
    settings = settings_of(cls)
    properties: dict[str, Schema] = {"type": {"const": name, "title": "type"}}
    for key, one in settings.items():
        item = kind_schema(one.kind, definitions) if one.kind else _setting_schema(one)
        described: Schema = {"description": one.description, "title": key}
        if one.default is not None and not one.is_required:
            default = type_name(one.default) if one.kind else one.default
            default = [type_name(each) for each in one.default] if one.items else default  # type: ignore[attr-defined]  # a list of parts
            described["default"] = plain_data(default)
        properties[key] = described | (item if definitions is None else one_or_more(item))
    return {
        "title": name,
        "description": first_line(cls) if cls is not None else kind.nothing or f"No {kind.name}.",
        "type": "object",
        "properties": properties,
        "required": [
            *([] if name == kind.implied else ["type"]),
            *(key for key, one in settings.items() if one.is_required),
        ],
        "additionalProperties": False,
    }


def _setting_schema(setting: Setting) -> Schema:
    schema = TypeAdapter(setting.type).json_schema()
    inner = schema.pop("$defs", {})
    bare = {key: value for key, value in schema.items() if key not in ("title", "description", "default")}
    return dict(_without_references(bare, inner))


def _without_references(schema: Any, inner: dict[str, Schema]) -> Any:
    """Write out the models inside a setting: their own definitions are not those of the whole schema."""
    if isinstance(schema, list):
        return [_without_references(one, inner) for one in schema]
    if not isinstance(schema, dict):
        return schema
    told = inner.get(str(schema.get("$ref")).removeprefix("#/$defs/"), {})
    found = told | {key: value for key, value in schema.items() if key != "$ref"} if told else schema
    return {key: _without_references(value, inner) for key, value in found.items()}
