"""Parts: classes under ``@part`` whose fields are their settings.

Settings are checked when a part is constructed, in Python as from a file, with the same messages. The functions below
return the label, the identity and other properties of a part, and of any other object that is used as a part.
"""

import functools
import json
import operator
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Annotated, Any, TypeVar, cast, dataclass_transform, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from rag_eval.distribution import install_command
from rag_eval.errors import ConfigurationError, Faults
from rag_eval.parts.live import live_digest, live_identity
from rag_eval.parts.part_settings import Place, reason_of, unknown_key
from rag_eval.storage.files import data_sha256

T = TypeVar("T")

NONE = "none"
"""The name of "no part", which is None in Python."""

# Text that labels show without quotes.
_PLAIN = re.compile(r"[A-Za-z0-9._/:@+-]+")


class Aspect(Enum):
    """The role of a setting, beside its type: ``Annotated[int, Running]``."""

    SHOWN = auto()
    RUNNING = auto()
    SEARCHING = auto()
    LOCATION = auto()
    PYTHON_ONLY = auto()


Shown = Aspect.SHOWN
"""Always shown in the label, even at its default."""
Running = Aspect.RUNNING
"""Changes how a part runs but not its result, and is not in the identity."""
Searching = Aspect.SEARCHING
"""Changes the search in an index, but not the index."""
Location = Aspect.LOCATION
"""Where a part stores its data. Not a setting in files, and not in the identity."""
PythonOnly = Aspect.PYTHON_ONLY
"""Given only in Python, such as a key or a live object. Not a setting in files, and not in the identity."""

_REQUIRED = object()
_CHECKS = ConfigDict(
    extra="forbid",
    allow_inf_nan=False,
    hide_input_in_errors=True,
    arbitrary_types_allowed=True,
    validate_by_name=True,
    validate_by_alias=True,
)


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def part(cls: type[T]) -> type[T]:
    """Make a class a part: a frozen dataclass that checks its settings and is pickled as its settings.

    Construction raises ``ConfigurationError``. Attributes that methods set must start with an underscore; they do not
    count for equality and are not pickled.

    >>> from rag_eval.parts import part
    >>> @part
    ... class Lines:
    ...     lines: int = 5
    """
    checked = checked_dataclass(frozen=True, config=_CHECKS)(cls)
    checked_init, frozen_setattr = checked.__init__, checked.__setattr__

    @functools.wraps(checked_init)
    def init(self: object, *args: object, **settings: object) -> None:
        try:
            checked_init(self, *args, **settings)
        except ValidationError as error:
            faults = Faults()
            for steps, reason in faults_of(type(self), error):
                faults.add(Place(type(self).__name__).inside(steps).fault(reason))
            faults.raise_any()

    def set_attribute(self: object, name: str, value: object) -> None:
        (object.__setattr__ if name.startswith("_") else frozen_setattr)(self, name, value)

    methods: dict[str, object] = {
        "__init__": init,
        "__checked_init__": checked_init,
        "__setattr__": set_attribute,
        "__reduce__": lambda self: (functools.partial(self.__class__, **_values(self, fields_of(type(self)))), ()),
        "__hash__": lambda self: hash((type(self), *map(_hashable, _values(self, fields_of(type(self))).values()))),
    }
    for name, method in methods.items():
        setattr(checked, name, method)
    return cast("type[T]", checked)


def _values(candidate: object, names: Iterable[str]) -> dict[str, object]:
    return {name: getattr(candidate, name) for name in names}


def _hashable(value: object) -> object:
    if isinstance(value, Mapping):
        return tuple((key, _hashable(inner)) for key, inner in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def faults_of(cls: type, error: ValidationError) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Yield the name of the wrong setting and the reason for each error in the construction of a part."""
    names = list(fields_of(cls))
    for fault in error.errors():
        key, *inside = fault["loc"] or ("",)
        if fault["type"] == "unexpected_positional_argument":
            yield (), f"too many settings without a name: name them, such as {names[-1]}=…"
        elif fault["type"] == "unexpected_keyword_argument" and inside:
            yield (key, *inside), "there is no such setting"
        elif fault["type"] == "unexpected_keyword_argument":
            yield (key,), str(unknown_key(Place(), key, cls.__name__, names)).partition(": ")[2]
        else:
            yield (names[key] if isinstance(key, int) else key, *inside), reason_of(fault)


@dataclass(frozen=True)
class Setting:
    """A setting of a part, as its class declares it.

    ``type`` includes the constraints; ``kind`` is the ``Kind`` of a setting that is a part or, with ``is_list``, a list
    of parts.
    """

    name: str
    type: Any = None
    default: object = None
    description: str = ""
    aspects: frozenset[Aspect] = frozenset()
    kind: Any = None
    is_list: bool = False

    @property
    def is_required(self) -> bool:
        return self.default is _REQUIRED

    @property
    def is_part(self) -> bool:
        return self.kind is not None and not self.is_list

    @property
    def is_path(self) -> bool:
        """Whether it is a path, which in a file is relative to the folder of the file."""
        return bool(get_args(self.type)) and Path in (self.type.__origin__, *get_args(self.type.__origin__))

    @property
    def default_text(self) -> str:
        """The default as written in a YAML file."""
        if self.is_required:
            return "required"
        return type_name(self.default) if self.is_part else shown(self.default)


_FIELDS: dict[type, dict[str, Setting]] = {}


def fields_of(cls: type) -> dict[str, Setting]:
    """Return every field of a part's class by name; empty for other classes."""
    if cls not in _FIELDS:
        _FIELDS[cls] = {name: _setting(name, info) for name, info in getattr(cls, "__pydantic_fields__", {}).items()}
    return _FIELDS[cls]


def _setting(name: str, info: Any) -> Setting:
    origin = get_origin(info.annotation)
    return Setting(
        name=name,
        type=operator.getitem(Annotated, (info.annotation, *info.metadata, name)),
        default=_REQUIRED if info.is_required() else info.get_default(call_default_factory=True),
        description=info.description or "",
        aspects=frozenset(marker for marker in info.metadata if isinstance(marker, Aspect)),
        kind=next((marker.kind for marker in info.metadata if hasattr(marker, "kind")), None),
        is_list=isinstance(origin, type) and issubclass(origin, Sequence),
    )


def settings_of(cls: type) -> dict[str, Setting]:
    """Return the settings of a part's class that a file may have, by name."""
    hidden = {Aspect.LOCATION, Aspect.PYTHON_ONLY}
    return {name: setting for name, setting in fields_of(cls).items() if not setting.aspects & hidden}


def is_part(candidate: object) -> bool:
    """Return whether an object, or a class, was made by ``@part``."""
    return hasattr(candidate, "__checked_init__")


def _is_used_as_part(value: object) -> bool:
    return is_part(value) or hasattr(value, "origin")


REGISTERED: dict[str, tuple[str, str]] = {}
"""The kind and the name of every registered class, by ``module:Name``."""


def path_of(candidate: object) -> str:
    """Return the path of the object's class, ``module:Name``."""
    return f"{type(candidate).__module__}:{type(candidate).__qualname__}"


def type_name(candidate: object) -> str:
    """Return the type of an object as written in a file: its registered name, or ``module:Name``."""
    origin = getattr(candidate, "origin", None)
    path = path_of(candidate) if origin is None else str(origin.reference)
    return NONE if candidate is None else REGISTERED.get(path, ("", path))[1]


def label(candidate: object) -> str:
    """Return the name for tables: the type, the settings that are always shown, and those that are not the default.

    Parts with different results have different labels: ``Running`` settings are not shown. An object may define its own
    ``label``; the label of an object that is not a part is its ``name``.
    """
    stated = NONE if candidate is None else getattr(candidate, "label", None)
    if isinstance(stated, str):
        return stated
    if not is_part(candidate):
        name = getattr(candidate, "name", None)
        return name if isinstance(name, str) else type_name(candidate)
    return settings_label(candidate)


def settings_label(candidate: object) -> str:
    """Return the label of a part made from its settings."""
    sizes, others = [], []
    for name, setting in settings_of(type(candidate)).items():
        value = getattr(candidate, name)
        if Shown in setting.aspects:
            sizes.append(shown(value))
        elif value != setting.default and Running not in setting.aspects:
            others.append(f"{name}={shown(value)}")
    return " ".join(filter(None, (type_name(candidate), "/".join(sizes), *others)))


def shown(value: object) -> str:
    """Return the text of a setting for a label: different values have different texts."""
    if isinstance(value, str | PurePath):
        value = str(value)
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list | tuple) and any(map(_is_used_as_part, value)):
        return f"[{' + '.join(map(label, value))}]"
    if value is None or isinstance(value, int | float | list | tuple | Mapping | BaseModel):
        return json.dumps(plain_data(value), ensure_ascii=False, separators=(",", ":"))
    return f"({label(value)})"


def as_data(candidate: object) -> dict[str, Any]:
    """Return type and settings as plain data, which ``Kind.make`` reads; of a live object, the type and the name."""
    data: dict[str, Any] = {"type": type_name(candidate)}
    origin = getattr(candidate, "origin", None)
    if origin is not None:
        version = {} if origin.version is None else {"code_version": origin.version}
        return data | version | dict(plain_data(origin.settings))
    if candidate is None or is_part(candidate):
        for name, setting in settings_of(type(candidate)).items():
            value = getattr(candidate, name)
            data[name] = as_data(value) if setting.is_part else plain_data(value)
        return data
    return data | {"name": label(candidate)}


def plain_data(value: object) -> Any:
    """Return a setting as JSON data; None stays None."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain_data(item) for item in value]
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, Mapping):
        return {str(key): plain_data(inner) for key, inner in value.items()}
    return as_data(value)


def identity(candidate: object) -> dict[str, object]:
    """Return, as plain data, everything that decides the result of a part. Equal identities mean equal results.

    This is the type, the settings except ``Running`` ones, the versions of its ``packages``, its ``identity`` (such as
    the commit of a model), and the code of a part that is not built in. The identity of any other object is its
    ``identity``, or else its name and code.
    """
    stated = getattr(candidate, "identity", None)
    known: dict[str, object] = {"identity": stated} if isinstance(stated, str) else {}
    if candidate is not None and not is_part(candidate):
        return known or {"identity": live_identity(candidate)}
    known["type"] = type_name(candidate)
    if candidate is not None and path_of(candidate) not in REGISTERED:
        known["code"] = live_digest(type(candidate))
    if packages := versions_of(getattr(candidate, "packages", ())):
        known["packages"] = packages
    for name, setting in settings_of(type(candidate)).items():
        if Running not in setting.aspects:
            value = getattr(candidate, name)
            known[name] = identity(value) if setting.is_part else setting_identity(value)
    return known


def setting_identity(value: object) -> object:
    """Return a setting as plain data, with the identities of nested parts."""
    if isinstance(value, list | tuple):
        return [setting_identity(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): setting_identity(inner) for key, inner in value.items()}
    return identity(value) if _is_used_as_part(value) else plain_data(value)


def digest(candidate: object) -> str:
    """Return the sha256 of the identity."""
    return data_sha256(identity(candidate))


def versions_of(packages: Iterable[str]) -> dict[str, str | None]:
    """Return the installed version of each package, or None if it is missing."""
    return {package: _version(package, tuple(sys.path)) for package in packages}


@functools.cache
def _version(package: str, path: tuple[str, ...]) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def is_remote(candidate: object) -> bool:
    """Return whether a part, or one inside it, declares that it uses the network."""
    return any(getattr(inner, "remote", False) is True for inner in parts_in(candidate))


def parts_in(value: object) -> Iterator[Any]:
    """Yield an object and all parts nested in its settings; for a list, the parts of its items."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from parts_in(item)
        return
    yield value
    origin = getattr(value, "origin", None)
    settings = _values(value, settings_of(type(value))) if origin is None else origin.settings
    for inner in settings.values():
        is_plain = inner is None or isinstance(inner, str | int | float)
        if not is_plain and any(map(_is_used_as_part, inner if isinstance(inner, list | tuple) else [inner])):
            yield from parts_in(inner)


def check_extras(candidate: object) -> None:
    """Raise ``ConfigurationError`` if a part, or a nested one, needs an ``extra`` that is not installed."""
    for inner in parts_in(candidate):
        name, module = getattr(inner, "extra", None) or ("", "")
        if module and find_spec(module) is None:
            raise ConfigurationError(f"{label(inner)} needs the extra {name}: {install_command(name)}")


def without(candidate: T, aspect: Aspect) -> T:
    """Return the part with every setting of this aspect at its default, including nested parts."""
    changed: dict[str, object] = {}
    for name, setting in settings_of(type(candidate)).items():
        if aspect in setting.aspects:
            changed[name] = setting.default
        elif setting.is_part:
            changed[name] = without(getattr(candidate, name), aspect)
    return replaced(candidate, **changed) if changed else candidate


def located(candidate: T, location: object) -> T:
    """Return the part with its data at a location, or the part itself if its class stores no data."""
    names = locations(candidate)
    return replaced(candidate, **dict.fromkeys(names, location)) if names else candidate


def locations(candidate: object) -> dict[str, object]:
    """Return the ``Location`` settings of a part by name; a location that is not set is None."""
    fields = fields_of(type(candidate)).items()
    return _values(candidate, [name for name, setting in fields if Location in setting.aspects])


def replaced(candidate: T, **settings: object) -> T:
    """Return a copy of the part with other settings."""
    return replace(candidate, **settings)  # type: ignore[type-var]  # every part is a dataclass


def fresh(candidate: T) -> T:
    """Return an unused copy of the part with the same settings; the object itself if it is not a part."""
    anew = getattr(candidate, "anew", None)
    return anew() if callable(anew) else replaced(candidate) if is_part(candidate) else candidate
