"""Parts that are not built in: objects of other libraries and of users, given live or as ``module:Name``.

``load`` imports a ``module:Name`` and makes the object that it stands for. A ``Foreign`` is that object as a part of
one kind: it has a name, a label and an identity, and its methods may be coroutines.
"""

import asyncio
import functools
import importlib.util
import inspect
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from rag_eval.errors import ConfigurationError, RagEvalError, as_sentence, preview
from rag_eval.formatting import suggestion
from rag_eval.parts.code import Code, UserModules, find_module, read_code
from rag_eval.parts.definition import label, parts_in, setting_identity, shown
from rag_eval.parts.live import live_identity, object_name
from rag_eval.storage.files import data_sha256, file_sha256

CODE_VERSION = "code_version"
"""The key beside ``type`` that stands for the code of an object whose code cannot be read."""

_finder = UserModules()
_importing = threading.RLock()
_imported: dict[Path, str] = {}
"""The files of users that are imported, with their digests at that time."""


def is_reference(name: object) -> bool:
    """Whether a text is ``module:Name``, and no built-in name."""
    return isinstance(name, str) and ":" in name


@dataclass(frozen=True)
class Origin:
    """A ``module:Name`` with settings, as a file has it, and what its code was when it was read.

    ``code`` is the digest of the code, or the version that was given for it; one of a kind where neither is known, so
    that nothing is reused: ``notes`` say where. ``reads`` says where the code reads what the digest does not see.
    """

    reference: str
    folder: Path
    settings: Mapping[str, Any]
    code: str
    version: str | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)
    completes: bool = False
    reads: tuple[str, ...] = field(default=(), compare=False)

    def __hash__(self) -> int:
        return hash((self.reference, self.code))

    def check_unchanged(self) -> None:
        """Raise ``ConfigurationError`` when the code is not what it was when it was read."""
        is_read = self.version is None and not self.notes
        if is_read and _code_of(self.reference, self.settings, self.folder) != self.code:
            raise ConfigurationError(
                f"the code of {self.reference} in {str(self.folder)!r} is not what it was when the run began: "
                "run again, with the same code on every machine"
            )


def load(
    reference: str, settings: Mapping[str, Any], folder: Path, version: str | None = None, *, completes: bool = False
) -> tuple[Any, Origin]:
    """Import ``module:Name`` and make the object that it stands for with these settings.

    A class or a factory is called where the settings fit its signature; another function is itself, with the settings
    bound; anything else is an instance, and takes none. A setting that is a mapping with a ``module:Name`` as its
    ``type`` is such an object itself. With ``completes`` a class is left to be called with what else it needs, as a
    ``functools.partial``. Raises ``ConfigurationError`` when the module or the name is
    not there, the import or the call fails, or the settings do not fit.
    """
    found, code = find(reference, folder)
    made, codes, unknown, reads = dict(settings), [code.digest], list(code.unknown), list(code.reads)
    for key, named, inner in _inside(settings):
        made[key], origin = load(named, inner, folder)
        codes.append(origin.code)
        unknown += origin.notes
        reads += origin.reads
    if version is not None:  # which stands for the code, whatever that does
        codes, unknown, reads = [version], [], []
    known = f"unknown {uuid.uuid4().hex}" if unknown else _joined(codes)
    origin = Origin(reference, folder, dict(settings), known, version, tuple(unknown), completes, tuple(reads))
    return _made(found, made, reference, completes), origin


def _inside(settings: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The settings that are objects themselves, each with its ``module:Name`` and its own settings."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and is_reference(value.get("type")):
            yield key, value["type"], {name: one for name, one in value.items() if name != "type"}


def _joined(codes: list[str]) -> str:
    return codes[0] if len(codes) == 1 else data_sha256(codes)


def _code_of(reference: str, settings: Mapping[str, Any], folder: Path) -> str:
    """The digest of the code of an object and of those in its settings."""
    module, name = _split(reference)
    inner = [_code_of(named, own, folder) for _, named, own in _inside(settings)]
    return _joined([read_code(module, name.partition(".")[0], folder).digest, *inner])


def find(reference: str, folder: Path) -> tuple[Any, Code]:
    """Import what ``module:Name`` names, and return it with its code, which is read before; raises as ``load``."""
    module, name = _split(reference)
    if find_module(module, folder) is None:
        raise ConfigurationError(
            f"there is no module {preview(module)}: it is not installed, and not in {str(folder)!r}, "
            "where it was looked for"
        )
    code = read_code(module, name.partition(".")[0], folder)
    return _attribute(_import(module, folder, code), name, reference), code


def _split(reference: str) -> tuple[str, str]:
    module, _, name = reference.partition(":")
    if not all(step.isidentifier() for step in (*module.split("."), *name.split("."))):
        raise ConfigurationError(f"{preview(reference)} is no module:Name: write it like my_package.my_module:MyClass")
    return module, name


def _import(module: str, folder: Path, code: Code) -> Any:
    """Import a module as its files are now, also where an older state of them is imported."""
    with _importing:
        if _finder not in sys.meta_path:
            sys.meta_path.append(_finder)
        _finder.folder = folder
        digests = {path: file_sha256(path) for path in code.files}
        if any(_imported.get(path) != digest for path, digest in digests.items()):
            for name, loaded in list(sys.modules.items()):
                path = getattr(loaded, "__file__", None)
                if name != "__main__" and path and Path(path).resolve() in _imported.keys() | digests.keys():
                    del sys.modules[name]
            _imported.clear()
            importlib.invalidate_caches()
            for path in digests:  # Python takes compiled code for that of a file edited within a second to equal size
                with suppress(OSError):
                    Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)
        _imported.update(digests)
        try:
            return importlib.import_module(module)
        except RagEvalError:
            raise
        except Exception as error:  # whatever a user's module raises
            raise ConfigurationError(f"importing {module} failed ({as_sentence(error)}): mend the module") from error


def _attribute(module: Any, name: str, reference: str) -> Any:
    found = module
    for step in name.split("."):
        if not hasattr(found, step):
            where = f"{module.__name__} ({getattr(module, '__file__', None) or 'built in'})"
            raise ConfigurationError(f"{where} has no {name}, named by {reference}{suggestion(step, dir(found))}")
        found = getattr(found, step)
    return found


def signature_of(candidate: Any) -> inspect.Signature | None:
    """Return the parameters of a class or a function; None where they are not told."""
    try:
        return inspect.signature(candidate)
    except (TypeError, ValueError):
        return None


def is_callable_part(candidate: object) -> bool:
    """Whether an object is made or asked by a call, and is no instance."""
    return inspect.isclass(candidate) or inspect.isroutine(candidate) or isinstance(candidate, functools.partial)


def _made(found: Any, settings: Mapping[str, Any], reference: str, completes: bool) -> Any:
    if not is_callable_part(found):
        if settings:
            raise ConfigurationError(
                f"{reference} is an object and takes no settings: leave out {', '.join(settings)}, or name its class"
            )
        return found
    signature = signature_of(found)
    refused = _refusal(signature.bind, settings) if signature else None
    is_left = completes and inspect.isclass(found)
    if signature and (is_left or (refused and not inspect.isclass(found))):
        refused = _refusal(signature.bind_partial, settings)
        if not refused:
            return functools.partial(found, **settings) if settings or is_left else found
    if refused:
        raise ConfigurationError(f"{reference} does not take these settings ({refused}): its own are {signature}")
    try:
        return found(**settings)
    except RagEvalError:
        raise
    except Exception as error:  # whatever a user's code raises
        raise ConfigurationError(f"{reference} could not be made ({as_sentence(error)})") from error


def _refusal(bind: Callable[..., object], settings: Mapping[str, Any]) -> str:
    """Why settings do not fit a signature; empty where they do."""
    try:
        bind(**settings)
    except TypeError as error:
        return str(error)
    return ""


# Coroutines run on one loop of their own, which clients that keep connections need, also inside a running loop.

_starting = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def settled(value: Any) -> Any:
    """Return a value; of something that is to be awaited, its result."""
    global _loop
    if not inspect.isawaitable(value):
        return value
    with _starting:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="rag-eval async parts", daemon=True).start()

    async def awaited() -> Any:
        return await value

    return asyncio.run_coroutine_threadsafe(awaited(), _loop).result()


_turns: dict[int, tuple[Any, threading.RLock]] = {}
"""The lock of each object that a ``Foreign`` was made of; the objects are held, so that no id is used again."""


class Foreign:
    """An object that is not of this library as a part of one kind; subclasses know how to ask it.

    It is pickled as its ``module:Name`` where it has one, and else with the object.
    """

    kind: ClassVar[str]

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        self.source, self.origin, self._name = source, origin, name
        held = {} if is_callable_part(source) else _turns
        self.turn = held.setdefault(id(source), (source, threading.RLock()))[1]
        """Whoever uses the object for more than one call holds it: an instance of a module is shared by all threads."""

    @property
    def name(self) -> str:
        """The name given, or what the object calls itself, or its class and settings."""
        own = getattr(self.source, "name", None)
        return self._name or (own if isinstance(own, str) and own else object_name(self.source))

    @property
    def label(self) -> str:
        """The reference with the settings given, or the name."""
        if self.origin is None:
            own = getattr(self.source, "label", None)
            return own if isinstance(own, str) else self.name
        given = [f"{key}={shown(value)}" for key, value in self.origin.settings.items()]
        return " ".join([self._name or self.origin.reference, *given])

    @property
    def identity(self) -> str:
        """The digest of what decides its results: code and settings, or what the object itself gives for it."""
        if self.origin is None:
            return live_identity(self.source)
        own = getattr(self.source, "identity", None)
        told = own if isinstance(own, str) else None
        return data_sha256([self.origin.reference, setting_identity(self.origin.settings), self.origin.code, told])

    @property
    def remote(self) -> bool:
        """Whether the object says that it uses the network."""
        return getattr(self.source, "remote", False) is True

    def ask(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of the object; raises ``ConfigurationError`` with the part's name when it raises."""
        try:
            if self.origin is None or is_callable_part(self.source):
                return settled(function(*args, **kwargs))
            with self.turn:
                return settled(function(*args, **kwargs))
        except RagEvalError:
            raise
        except Exception as error:  # whatever a user's part raises
            raise ConfigurationError(f"the {self.kind} {self.label} failed ({as_sentence(error)})") from error

    def anew(self) -> Self:
        """Return the same object as a part that has kept nothing of it yet."""
        return type(self)(self.source, self.origin, self._name)

    def close(self) -> None:
        close = getattr(self.source, "close", None)
        if callable(close) and not inspect.isclass(self.source):
            settled(close())

    def _key(self) -> tuple[Any, ...]:
        return type(self), self.origin or id(self.source), self._name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Foreign) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        if self.origin is None:
            return type(self), (self.source, None, self._name)
        return _reloaded, (type(self), self.origin, self._name)


class ForeignFunction(Foreign):
    """A function, or an object with one of ``methods``, that is asked in one way; raises when it cannot be called."""

    methods: ClassVar[tuple[str, ...]]
    wanted: ClassVar[str]
    """What to give, in words."""
    section: ClassVar[str] = ""
    """What the label begins with, where functions for several sections of a benchmark look alike."""

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        own = (getattr(source, method) for method in self.methods if hasattr(source, method))
        self._call: Callable[..., Any] = next(own, source)
        if inspect.isclass(source) or not callable(self._call):
            raise ConfigurationError(f"{preview(repr(source))} is no {self.kind}: give {self.wanted}")

    @property
    def label(self) -> str:
        """The section, and the reference or the name."""
        return f"{self.section} {super().label}".strip()

    def ask_about(self, chunk: Any, document: Any) -> Any:
        """Ask a function of a chunk, or of a chunk and its document; raises as ``ask``."""
        signature = signature_of(self._call)
        takes_document = signature is not None and len(signature.parameters) > 1
        return self.ask(self._call, chunk, *([document] if takes_document else []))


def check_unchanged(value: object) -> None:
    """Raise ``ConfigurationError`` when the code of a part, or of one inside it, is another than when it was read."""
    for one in parts_in(value):
        if isinstance(one, Foreign) and one.origin is not None:
            one.origin.check_unchanged()


def notices(value: object) -> list[str]:
    """Return a sentence for each part whose key is missing, whose code cannot be known, or that reads other things."""
    keys = {label(one): key for one in parts_in(value) if (key := getattr(one, "missing_key", None))}
    told = [f"{one} needs a key: set {key}; without it only what is kept can be used" for one, key in keys.items()]
    for origin in [one.origin for one in parts_in(value) if isinstance(one, Foreign) and one.origin is not None]:
        if origin.notes:
            told.append(
                f"the code of {origin.reference} cannot be known ({origin.notes[0]}): what it makes is not reused; "
                f"give {CODE_VERSION}: beside its type, and another one whenever it changes"
            )
        if origin.reads:
            told.append(
                f"{origin.reference} reads what its digest does not see ({origin.reads[0]}): when that changes, run "
                "with --refresh, or give the object an identity"
            )
    return list(dict.fromkeys(told))


def _reloaded(cls: type[Foreign], origin: Origin, name: str | None) -> Foreign:
    """Load a part again where it is unpickled; raises ``ConfigurationError`` when its code is another there."""
    origin.check_unchanged()
    source, _ = load(origin.reference, origin.settings, origin.folder, origin.version, completes=origin.completes)
    return cls(source, origin, name)
