"""What a part is: a class under ``@part`` whose fields are its settings.

The settings are checked when the part is constructed, in Python as from a file, by the same sentences. Label, identity
and remoteness are asked of the functions here, which have an answer for objects that are no parts as well.
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
"""The name of no part at all, which is None in Python."""

# What reads as one word wherever it is in a label.
_PLAIN = re.compile(r"[A-Za-z0-9._/:@+-]+")


class Aspect(Enum):
    """What a setting is for; it is put beside its type: ``Annotated[int, Running]``."""

    SHOWN = auto()
    RUNNING = auto()
    SEARCHING = auto()
    LOCATION = auto()
    PYTHON_ONLY = auto()


Shown = Aspect.SHOWN
"""In the label even where it is the default."""
Running = Aspect.RUNNING
"""How the work is done and never what comes out: no part of the identity."""
Searching = Aspect.SEARCHING
"""What is found in an index, and not the index."""
Location = Aspect.LOCATION
"""Where a part keeps its data, which whoever runs it decides: no setting of a file, no part of the identity."""
PythonOnly = Aspect.PYTHON_ONLY
"""For Python alone, such as a key or a live object: no setting of a file, no part of the identity."""

_REQUIRED = object()


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def part(cls: type[T]) -> type[T]:
    """Make a class a part: a frozen dataclass that checks its settings and is pickled as its settings.

    Construction raises ``ConfigurationError``. What ``__post_init__`` and methods keep on the object has a name with
    an underscore; it does not count for equality, and is made anew where the part is unpickled.
    """
    config = ConfigDict(
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
        validate_by_name=True,
        validate_by_alias=True,
    )
    made: Any = checked_dataclass(frozen=True, config=config)(cls)
    checked_init, frozen_setattr = made.__init__, made.__setattr__

    @functools.wraps(checked_init)
    def init(self: Any, *args: Any, **settings: Any) -> None:
        try:
            checked_init(self, *args, **settings)
        except ValidationError as error:
            faults = Faults()
            for steps, reason in faults_of(type(self), error):
                faults.add(Place(type(self).__name__).inside(steps).fault(reason))
            faults.raise_any()

    def set_attribute(self: Any, name: str, value: object) -> None:
        (object.__setattr__ if name.startswith("_") else frozen_setattr)(self, name, value)

    def values(self: Any) -> dict[str, Any]:
        return {name: getattr(self, name) for name in fields_of(type(self))}

    made.__init__, made.__setattr__, made.__checked_init__ = init, set_attribute, checked_init
    made.__reduce__ = lambda self: (functools.partial(self.__class__, **values(self)), ())
    made.__hash__ = lambda self: hash((type(self), *map(_hashable, values(self).values())))
    return cast("type[T]", made)


def faults_of(cls: type, error: ValidationError) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Yield where the construction of a part went wrong, arguments by name, and what was expected."""
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


def _hashable(value: object) -> object:
    if isinstance(value, Mapping):
        return tuple((key, _hashable(one)) for key, one in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class Setting:
    """A setting of a part as its class declares it.

    ``type`` has the constraints; ``kind`` is the ``Kind`` of a setting that is a part itself, ``items`` that of the
    parts in a list, else None.
    """

    name: str
    type: Any
    default: object
    description: str
    aspects: frozenset[Aspect]
    kind: Any
    is_list: bool
    items: Any = None

    @property
    def is_required(self) -> bool:
        return self.default is _REQUIRED

    @property
    def is_path(self) -> bool:
        """Whether it is a path, which in a file starts at its folder."""
        return Path in (self.type.__origin__, *get_args(self.type.__origin__)) if get_args(self.type) else False

    @property
    def default_text(self) -> str:
        """The default as it is written in a YAML file."""
        if self.is_required:
            return "required"
        return type_name(self.default) if self.kind else shown(self.default)


def fields_of(cls: Any) -> dict[str, Setting]:
    """Return every field of a part's class by name; of a class that is no part, none."""
    return _read_fields(cls)


@functools.cache  # whose type takes no classes for hashable, so that it is called above
def _read_fields(cls: Any) -> dict[str, Setting]:
    found = {}
    for name, info in getattr(cls, "__pydantic_fields__", {}).items():
        origin = get_origin(info.annotation)
        found[name] = Setting(
            name=name,
            type=operator.getitem(Annotated, (info.annotation, *info.metadata, name)),
            default=_REQUIRED if info.is_required() else info.get_default(call_default_factory=True),
            description=info.description or "",
            aspects=frozenset(one for one in info.metadata if isinstance(one, Aspect)),
            kind=next((one.kind for one in info.metadata if hasattr(one, "kind")), None),
            is_list=isinstance(origin, type) and issubclass(origin, Sequence),
            items=next((one.items for one in info.metadata if hasattr(one, "items")), None),
        )
    return found


def settings_of(cls: Any) -> dict[str, Setting]:
    """Return the settings of a part's class that a file may give, by name."""
    unset = {Aspect.LOCATION, Aspect.PYTHON_ONLY}
    return {name: one for name, one in fields_of(cls).items() if not one.aspects & unset}


def is_part(candidate: object) -> bool:
    """Whether an object, or a class, is made by ``@part``."""
    return hasattr(candidate, "__checked_init__")


REGISTERED: dict[str, tuple[str, str]] = {}
"""The kind and the name of every registered class, by ``module:Name``."""


def path_of(candidate: object) -> str:
    """Return where the object's class is, as ``module:Name``."""
    return f"{type(candidate).__module__}:{type(candidate).__qualname__}"


def type_name(candidate: object) -> str:
    """Return what a file calls the object's type: its registered name, or ``module:Name``."""
    origin = getattr(candidate, "origin", None)
    path = path_of(candidate) if origin is None else str(origin.reference)
    return NONE if candidate is None else REGISTERED.get(path, ("", path))[1]


def label(candidate: object) -> str:
    """Return the name for tables: the type, the settings that are always shown, and the others that are not default.

    Parts that make different things have different labels: settings of running are not in it. An object may have a
    ``label`` of its own; one that is no part is called by its ``name``.
    """
    own = NONE if candidate is None else getattr(candidate, "label", None)
    if isinstance(own, str):
        return own
    if not is_part(candidate):
        named = getattr(candidate, "name", None)
        return named if isinstance(named, str) else type_name(candidate)
    return settings_label(candidate)


def settings_label(candidate: object) -> str:
    """Return the label of a part that has none of its own."""
    sizes, others = [], []
    for name, one in settings_of(type(candidate)).items():
        value = getattr(candidate, name)
        if Shown in one.aspects:
            sizes.append(shown(value))
        elif value != one.default and Running not in one.aspects:
            others.append(f"{name}={shown(value)}")
    return " ".join(filter(None, (type_name(candidate), "/".join(sizes), *others)))


def shown(value: object) -> str:
    """Return a setting for a label: different values are written differently, and none can be taken for two."""
    if isinstance(value, str | PurePath):
        value = str(value)
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list | tuple) and any(is_part(one) or hasattr(one, "origin") for one in value):
        return f"[{' + '.join(map(label, value))}]"
    if value is None or isinstance(value, int | float | list | tuple | Mapping | BaseModel):
        return json.dumps(plain_data(value), ensure_ascii=False, separators=(",", ":"))
    return f"({label(value)})"


def as_data(candidate: object) -> dict[str, Any]:
    """Return type and settings as plain data, which ``Kind.make`` reads; of a live object, its name."""
    data: dict[str, Any] = {"type": type_name(candidate)}
    origin = getattr(candidate, "origin", None)
    if origin is not None:
        version = {} if origin.version is None else {"code_version": origin.version}
        return data | version | dict(plain_data(origin.settings))
    if candidate is None or is_part(candidate):
        for name, one in settings_of(type(candidate)).items():
            value = getattr(candidate, name)
            data[name] = as_data(value) if one.kind else plain_data(value)
        return data
    return data | {"name": label(candidate)}


def plain_data(value: object) -> Any:
    """Return a setting as a YAML or JSON file has it."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain_data(one) for one in value]
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, Mapping):
        return {str(key): plain_data(one) for key, one in value.items()}
    return as_data(value)


def identity(candidate: object) -> dict[str, Any]:
    """Return, as plain data, all that decides what a part makes: equal identities mean interchangeable results.

    That is its type, its settings except those of running, the versions of the ``packages`` that make the result, and
    its own ``identity``, such as the commit of a model; its code too where it is not built in. What is no part has its
    ``identity``, or else its name and its code.
    """
    own = getattr(candidate, "identity", None)
    known: dict[str, Any] = {"identity": own} if isinstance(own, str) else {}
    if candidate is None or is_part(candidate):
        known["type"] = type_name(candidate)
        if candidate is not None and path_of(candidate) not in REGISTERED:
            known["code"] = live_digest(type(candidate))
        packages = versions_of(getattr(candidate, "packages", ()))
        known |= {"packages": packages} if packages else {}
        for name, one in settings_of(type(candidate)).items():
            if Running not in one.aspects:
                value = getattr(candidate, name)
                known[name] = identity(value) if one.kind else setting_identity(value)
    return known or {"identity": live_identity(candidate)}


def setting_identity(value: object) -> Any:
    """Return a setting as plain data, and the parts in it by their identities."""
    if isinstance(value, list | tuple):
        return [setting_identity(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): setting_identity(one) for key, one in value.items()}
    return identity(value) if is_part(value) or hasattr(value, "origin") else plain_data(value)


def digest(candidate: object) -> str:
    """Return the sha256 of the identity."""
    return data_sha256(identity(candidate))


def versions_of(packages: Iterable[str]) -> dict[str, str | None]:
    """Return the installed version of each package, None where it is not there."""
    return {package: _version(package, tuple(sys.path)) for package in packages}


@functools.cache
def _version(package: str, path: tuple[str, ...]) -> str | None:
    """The version that is found on the path; each is looked for once."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def is_remote(candidate: object) -> bool:
    """Whether a part, or one inside it, says that it uses the network."""
    return any(getattr(one, "remote", False) is True for one in parts_in(candidate))


def parts_in(value: Any) -> Iterator[Any]:
    """Yield an object and the parts in its settings, all the way down; of a list, those of its items."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from parts_in(one)
        return
    yield value
    settings = getattr(getattr(value, "origin", None), "settings", None)
    if settings is None:
        settings = {name: getattr(value, name) for name in settings_of(type(value))}
    for one in settings.values():
        if any(is_part(each) or hasattr(each, "origin") for each in (one if isinstance(one, list | tuple) else [one])):
            yield from parts_in(one)


def check_extras(candidate: Any) -> None:
    """Raise ``ConfigurationError`` when a part, or one inside it, needs an ``extra`` that is missing."""
    for one in parts_in(candidate):
        name, module = getattr(one, "extra", None) or ("", "")
        if module and find_spec(module) is None:
            raise ConfigurationError(f"{label(one)} needs the extra {name}: {install_command(name)}")


def without(candidate: T, aspect: Aspect) -> T:
    """Return the part with every setting of this aspect at its default, in the parts inside it too."""
    settled: dict[str, Any] = {}
    for name, one in settings_of(type(candidate)).items():
        if aspect in one.aspects:
            settled[name] = one.default
        elif one.kind:
            settled[name] = without(getattr(candidate, name), aspect)
    return replaced(candidate, **settled) if settled else candidate


def located(candidate: T, location: object) -> T:
    """Return the part with its data at a location; itself where its class keeps none."""
    places = locations(candidate)
    return replaced(candidate, **dict.fromkeys(places, location)) if places else candidate


def locations(candidate: object) -> dict[str, Any]:
    """Return the settings of a part that say where it keeps its data, by name; None where it does not know yet."""
    fields = fields_of(type(candidate)).items()
    return {name: getattr(candidate, name) for name, one in fields if Location in one.aspects}


def replaced(candidate: T, **settings: object) -> T:
    """Return the part with other settings."""
    return replace(candidate, **settings)  # type: ignore[type-var]  # every part is a dataclass


def fresh(candidate: T) -> T:
    """Return a part of its own with the same settings, which has used nothing yet; itself where it is no part."""
    anew = getattr(candidate, "anew", None)
    return cast("T", anew()) if callable(anew) else replaced(candidate) if is_part(candidate) else candidate
