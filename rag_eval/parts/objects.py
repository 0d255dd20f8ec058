"""Use parts that are not built in: objects of users and of other libraries, live or as ``module:Name``.

``load`` imports a ``module:Name`` and makes its object. A ``Foreign`` wraps an object as a part of one kind: it has a
name, a label and an identity, and its methods may be coroutines.
"""

import asyncio
import functools
import importlib.util
import inspect
import sys
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Self, TypeGuard

from rag_eval.errors import ConfigurationError, RagEvalError, as_sentence, preview
from rag_eval.formatting import suggestion
from rag_eval.parts.code import Code, UserModules, find_module, read_code
from rag_eval.parts.definition import label, parts_in, setting_identity, shown
from rag_eval.parts.live import live_identity, object_name
from rag_eval.storage.files import data_sha256, file_sha256

CODE_VERSION = "code_version"
"""Key beside ``type`` whose value replaces the digest of code that cannot be read."""

_finder = UserModules()
_importing = threading.RLock()
_imported: dict[Path, str] = {}
"""Imported files of users, with their digests at import."""


def is_reference(name: object) -> bool:
    """Return whether a name is ``module:Name`` rather than a built-in name."""
    return isinstance(name, str) and ":" in name


@dataclass(frozen=True)
class Origin:
    """A ``module:Name`` with settings, as written in a file, and its code when it was read.

    ``code`` is the digest of the code, or its stated version. If neither is known it is unique, so that no result is
    reused, and ``notes`` say why. ``reads`` says where the code reads data that the digest does not cover.
    """

    reference: str
    folder: Path
    settings: Mapping[str, object]
    code: str
    version: str | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)
    completes: bool = False
    reads: tuple[str, ...] = field(default=(), compare=False)

    def __hash__(self) -> int:
        return hash((self.reference, self.code))

    def check_unchanged(self) -> None:
        """Raise ``ConfigurationError`` if the code has changed since it was read."""
        is_read = self.version is None and not self.notes
        if is_read and read_code(_split(self.reference)[0], self.folder).digest != self.code:
            raise ConfigurationError(
                f"the code of {self.reference} in {str(self.folder)!r} changed during the run: "
                "run again, with the same code on every machine"
            )


def load(
    reference: str, settings: Mapping[str, object], folder: Path, version: str | None = None, *, completes: bool = False
) -> tuple[Any, Origin]:
    """Import ``module:Name`` and make its object with these settings.

    A class or a factory is called if the settings fit its signature; any other function is returned with the settings
    bound; anything else is an instance and takes no settings. With ``completes`` a class is not called but returned as
    a ``functools.partial``. A ``version`` replaces the digest of the code.

    Raises:
        ConfigurationError: The module or the name is missing, the import or the call fails, or the settings do not fit.
    """
    target, code = find(reference, folder)
    unknown, reads, known = code.unknown, code.reads, code.digest
    if version is not None:
        unknown, reads, known = (), (), version
    elif unknown:
        known = f"unknown {uuid.uuid4().hex}"
    origin = Origin(reference, folder, dict(settings), known, version, unknown, completes, reads)
    return _make(target, settings, reference, completes), origin


def find(reference: str, folder: Path) -> tuple[Any, Code]:
    """Import ``module:Name`` and return it with its code, which is read first; raises like ``load``."""
    module, name = _split(reference)
    if find_module(module, folder) is None:
        raise ConfigurationError(
            f"there is no module {preview(module)}: it is neither installed nor in {str(folder)!r}"
        )
    code = read_code(module, folder)
    return _attribute(_import(module, folder, code), name, reference), code


def _split(reference: str) -> tuple[str, str]:
    module, _, name = reference.partition(":")
    if not all(step.isidentifier() for step in (*module.split("."), *name.split("."))):
        raise ConfigurationError(
            f"{preview(reference)} is not a module:Name: write it like my_package.my_module:MyClass"
        )
    return module, name


def _import(module: str, folder: Path, code: Code) -> ModuleType:
    """Import a module from its current files, even if an older version of them is imported."""
    with _importing:
        if _finder not in sys.meta_path:
            sys.meta_path.append(_finder)
        _finder.folder = folder
        digests = {path: file_sha256(path) for path in code.files}
        if any(_imported.get(path) != digest for path, digest in digests.items()):
            _forget_modules(_imported.keys() | digests.keys())
        _imported.update(digests)
        with _own_errors(f"importing {module} failed", ": correct the module"):
            return importlib.import_module(module)


def _forget_modules(files: Collection[Path]) -> None:
    """Make Python read the modules of these files again on their next import."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name != "__main__" and path and Path(path).resolve() in files:
            del sys.modules[name]
    _imported.clear()
    importlib.invalidate_caches()
    for path in files:  # Python reuses compiled code if an edit within a second does not change the file size
        with suppress(OSError):
            Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)


def _attribute(module: ModuleType, name: str, reference: str) -> Any:
    target = module
    for step in name.split("."):
        if not hasattr(target, step):
            where = f"{module.__name__} ({getattr(module, '__file__', None) or 'built in'})"
            raise ConfigurationError(f"{where} has no {name}, named by {reference}{suggestion(step, dir(target))}")
        target = getattr(target, step)
    return target


def signature_of(candidate: Callable[..., object]) -> inspect.Signature | None:
    """Return the signature of a class or a function, or None if Python does not know it."""
    try:
        return inspect.signature(candidate)
    except (TypeError, ValueError):
        return None


def is_callable_part(candidate: object) -> TypeGuard[Callable[..., Any]]:
    """Return whether an object is a class or a function, and not an instance."""
    return inspect.isclass(candidate) or inspect.isroutine(candidate) or isinstance(candidate, functools.partial)


def _make(target: object, settings: Mapping[str, object], reference: str, completes: bool) -> object:
    if not is_callable_part(target):
        if settings:
            raise ConfigurationError(
                f"{reference} is an object and takes no settings: remove {', '.join(settings)}, or name its class"
            )
        return target
    is_class, refusal = inspect.isclass(target), _refusal(target, settings)
    is_partial = completes if is_class else bool(refusal)
    if is_partial:
        refusal = _refusal(target, settings, is_partial)
    if refusal:
        shown = signature_of(target)
        raise ConfigurationError(f"{reference} does not take these settings ({refusal}): its signature is {shown}")
    if is_partial:
        return functools.partial(target, **settings) if settings or is_class else target
    with _own_errors(f"{reference} could not be constructed"):
        return target(**settings)


@contextmanager
def _own_errors(what: str, advice: str = "") -> Iterator[None]:
    """Raise ``ConfigurationError`` for an error in a user's code."""
    try:
        yield
    except RagEvalError:
        raise
    except Exception as error:  # users' code may raise anything
        raise ConfigurationError(f"{what} ({as_sentence(error)}){advice}") from error


def _refusal(target: Callable[..., object], settings: Mapping[str, object], is_partial: bool = False) -> str:
    """Return why settings do not fit the signature of a class or a function, or an empty text if they fit."""
    if (signature := signature_of(target)) is not None:
        try:
            (signature.bind_partial if is_partial else signature.bind)(**settings)
        except TypeError as error:
            return str(error)
    return ""


# Coroutines run on one loop in a thread, so that clients keep their connections and no running loop interferes.

_starting = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def settled(value: object) -> Any:
    """Return a value, or the result of an awaitable."""
    global _loop
    if not inspect.isawaitable(value):
        return value
    with _starting:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="rag-eval async parts", daemon=True).start()

    async def awaited() -> object:
        return await value

    return asyncio.run_coroutine_threadsafe(awaited(), _loop).result()


_locks: dict[int, tuple[object, threading.RLock]] = {}
"""The lock of each object by its id. The objects stay referenced, so that no id is reused."""


class Foreign:
    """Wrap an object that is not built in as a part of one kind; subclasses call its methods.

    It is pickled as its ``module:Name``, or with the object if it has none.
    """

    kind: ClassVar[str]

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        self.source, self.origin, self._name = source, origin, name
        locks = {} if is_callable_part(source) else _locks
        self.lock = locks.setdefault(id(source), (source, threading.RLock()))[1]
        """Held during calls that belong together, because all threads share the instance of a module."""

    @property
    def name(self) -> str:
        """The stated name, or the name of the object, or its class and settings."""
        return self._name or self._stated("name") or object_name(self.source)

    @property
    def label(self) -> str:
        """The ``module:Name`` with its settings, or the name."""
        if self.origin is None:
            return self._stated("label") or self.name
        settings = [f"{key}={shown(value)}" for key, value in self.origin.settings.items()]
        return " ".join([self._name or self.origin.reference, *settings])

    @property
    def identity(self) -> str:
        """The digest of the code, the settings, and the ``identity`` of the object."""
        if self.origin is None:
            return live_identity(self.source)
        settings = setting_identity(self.origin.settings)
        return data_sha256([self.origin.reference, settings, self.origin.code, self._stated("identity")])

    @property
    def remote(self) -> bool:
        """Whether the object declares that it uses the network."""
        return getattr(self.source, "remote", False) is True

    def _stated(self, name: str) -> str | None:
        """Return an attribute of the object if it is a string."""
        value = getattr(self.source, name, None)
        return value if isinstance(value, str) else None

    def ask(self, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        """Call a function of the object; raise ``ConfigurationError`` with the part's label if it fails."""
        try:
            if self.origin is None or is_callable_part(self.source):
                return settled(function(*args, **kwargs))
            with self.lock:
                return settled(function(*args, **kwargs))
        except RagEvalError:
            raise
        except Exception as error:  # users' parts may raise anything
            raise ConfigurationError(f"the {self.kind} {self.label} failed ({as_sentence(error)})") from error

    def anew(self) -> Self:
        """Return a new wrapper of the same object, without the state of this one."""
        return type(self)(self.source, self.origin, self._name)

    def close(self) -> None:
        close = getattr(self.source, "close", None)
        if callable(close) and not inspect.isclass(self.source):
            settled(close())

    def _key(self) -> tuple[object, ...]:
        return type(self), self.origin or id(self.source), self._name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Foreign) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[object, ...]:
        if self.origin is None:
            return type(self), (self.source, None, self._name)
        return _reloaded, (type(self), self.origin, self._name)


class ForeignFunction(Foreign):
    """Wrap a function, or an object with one of ``methods``; raises ``ConfigurationError`` if it cannot be called."""

    methods: ClassVar[tuple[str, ...]]
    wanted: ClassVar[str]
    """What to give instead, for the error message."""
    section: ClassVar[str] = ""
    """Prefix of the label, for kinds whose functions look alike."""

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        known = (getattr(source, method) for method in self.methods if hasattr(source, method))
        self._call: Callable[..., Any] = next(known, source)
        if inspect.isclass(source) or not callable(self._call):
            raise ConfigurationError(f"{preview(repr(source))} is not a {self.kind}: give {self.wanted}")

    @property
    def label(self) -> str:
        """The section, and the reference or the name."""
        return f"{self.section} {super().label}".strip()

    def ask_about(self, chunk: object, document: object) -> Any:
        """Call a function with a chunk, and with its document if it takes two parameters; raises like ``ask``."""
        signature = signature_of(self._call)
        takes_document = signature is not None and len(signature.parameters) > 1
        return self.ask(self._call, chunk, *([document] if takes_document else []))


def check_unchanged(value: object) -> None:
    """Raise ``ConfigurationError`` if the code of a part, or of one inside it, has changed since it was read."""
    for origin in _origins(value):
        origin.check_unchanged()


def _origins(value: object) -> list[Origin]:
    return [inner.origin for inner in parts_in(value) if isinstance(inner, Foreign) and inner.origin is not None]


def notices(value: object) -> list[str]:
    """Return a sentence for each part whose key is missing, whose code cannot be known, or that reads other data."""
    keys = {label(inner): key for inner in parts_in(value) if (key := getattr(inner, "missing_key", None))}
    sentences = [
        f"{name} needs a key: set {key}; without it only cached results can be used" for name, key in keys.items()
    ]
    for origin in _origins(value):
        if origin.notes:
            sentences.append(
                f"the code of {origin.reference} cannot be known ({origin.notes[0]}), so its results are not cached; "
                f"set {CODE_VERSION}: beside its type, and change it with the code"
            )
        if origin.reads:
            sentences.append(
                f"{origin.reference} reads data that its digest does not cover ({origin.reads[0]}): when that changes, "
                "run with --refresh, or give the object an identity"
            )
    return list(dict.fromkeys(sentences))


def _reloaded(cls: type[Foreign], origin: Origin, name: str | None) -> Foreign:
    """Load a part when it is unpickled; raises ``ConfigurationError`` if its code differs there."""
    origin.check_unchanged()
    source, _ = load(origin.reference, origin.settings, origin.folder, origin.version, completes=origin.completes)
    return cls(source, origin, name)
