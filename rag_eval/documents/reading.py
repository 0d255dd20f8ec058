"""Read documents: text files unchanged, other formats with loaders in a separate process.

A parser may hang, crash or exhaust the memory on a malicious file. One process therefore runs the loaders for all
threads. It is killed if a file takes too long, and restarted for the next one.
"""

import atexit
import fnmatch
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, NamedTuple

from pydantic import ConfigDict, Field

from rag_eval.documents import FILE_DIGEST, LOADERS, PLACES, SUFFIXES
from rag_eval.documents.boxes import MOST, pack, words_at
from rag_eval.documents.loaders import BINARY, LoadedText, Loader, is_binary
from rag_eval.errors import (
    ConfigurationError,
    RagEvalError,
    TextEncodingError,
    UnfinishedDocumentError,
    UnreadableDocumentError,
    as_sentence,
    preview,
)
from rag_eval.formatting import counted, suggestion
from rag_eval.parts import PartRecord
from rag_eval.parts.kinds import Kind
from rag_eval.parts.objects import ForeignFunction, settled
from rag_eval.parts.part_settings import Record
from rag_eval.storage.files import read_text, unreadable

LOADER = Kind(
    "loader",
    {"text": None} | {name: path for name, (path, _) in LOADERS.items()},
    foreign="rag_eval.documents.reading:ForeignLoader",
    nothing="The unchanged file, which must be UTF-8.",
)
"""The kind of part that reads files. Files with other suffixes are read as text."""

SECONDS = 60.0
"""Time limit of a loader for a file; one second is added for every ``BYTES_A_SECOND`` of it."""
BYTES_A_SECOND = 100_000
MEMORY = 2**31
"""Memory limit of the process in bytes, on systems that support it."""
LOOK_SECONDS = 1.0
SHOWN = 3
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "VIRTUAL_ENV")
"""Environment variables that the process receives. API keys are not among them."""


class ForeignLoader(ForeignFunction):
    """A user's loader: a function of the bytes of a file, or an object with ``load(data)``.

    It returns a ``LoadedText`` or a str.
    """

    kind = "loader"
    methods: ClassVar = ("load",)
    wanted = "a function of a file's bytes that returns its text, or an object with load(data)"

    def load(self, data: bytes) -> LoadedText:
        """Return the text of a file. Raises ``UnreadableDocumentError`` if the user's loader fails."""
        try:
            loaded = settled(self._call(data))
        except (RagEvalError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  # user code may raise anything
            is_network = isinstance(error, ConnectionError | TimeoutError)
            fault = UnfinishedDocumentError if is_network else UnreadableDocumentError
            raise fault(f"cannot be read by {self.label} ({as_sentence(error)})") from None
        if isinstance(loaded, str):
            return LoadedText(loaded)
        if not isinstance(loaded, LoadedText):
            raise UnreadableDocumentError(
                f"cannot be read: {self.label} returned {preview(repr(loaded))}, return a LoadedText or a str"
            )
        return loaded


class Loaders:
    """The loaders by suffix (``.pdf``) or pattern (``old/*.htm``), before the built-in ones.

    The first pattern that matches a name applies; ``*`` matches ``/`` too. Raises ``ConfigurationError`` if a value is
    not a loader.
    """

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.given: dict[str, Loader | None] = {
            pattern: None if loader is None else LOADER.of(loader) for pattern, loader in (given or {}).items()
        }

    def __eq__(self, other: object) -> bool:
        """Return whether the other object is a ``Loaders``. Cache keys contain the records of the loaders used."""
        return isinstance(other, Loaders)

    __hash__ = None  # type: ignore[assignment]

    def of(self, name: str) -> Loader | None:
        """Return the loader of a file, or None if it is read as text."""
        pattern, suffix = self._pattern(name), Path(name).suffix.lower()
        if pattern is not None:
            return self.given[pattern]
        return _built_in(SUFFIXES[suffix]) if suffix in SUFFIXES else None

    def _pattern(self, name: str) -> str | None:
        return next((pattern for pattern in self.given if _matches(name, pattern)), None)

    def used(self, names: Iterable[str]) -> dict[str, PartRecord]:
        """Return the records of the loaders of these files, by the pattern or suffix that selects them."""
        records: dict[str, PartRecord] = {}
        for name in names:
            key = self._pattern(name) or Path(name).suffix.lower()
            if key not in records and (loader := self.of(name)) is not None:
                records[key] = PartRecord.of(LOADER, loader)
        return dict(sorted(records.items()))

    def idle(self, names: Iterable[str]) -> list[str]:
        """Return a message for each pattern that matches none of these files."""
        known = list(names)
        suffixes = {Path(name).suffix.lower() for name in known}
        return [
            f"loaders: {pattern!r} fits no file{suggestion(pattern, suffixes)}"
            for pattern in self.given
            if not any(_matches(name, pattern) for name in known)
        ]


@cache
def _built_in(name: str) -> Loader:
    loader: Loader = LOADER.make(name)
    return loader


def _matches(name: str, pattern: str) -> bool:
    is_suffix = pattern.startswith(".") and "*" not in pattern
    return name.lower().endswith(pattern.lower()) if is_suffix else fnmatch.fnmatchcase(name, pattern)


class FileText(NamedTuple):
    """The text of a file, the metadata from its loader, and the packed boxes of its words."""

    text: str
    metadata: dict[str, object]
    boxes: bytes = b""


Load = Callable[[Loader, bytes], FileText]


def load_file(loader: Loader, data: bytes) -> FileText:
    """Run a loader on the bytes of a file, in the loader process.

    Raises ``UnreadableDocumentError`` if the file is broken, encrypted or scanned, or needs too much time or memory,
    and ``ConfigurationError`` if the loader cannot run.
    """
    answer = _process.ask(_pickled(loader), data)
    return FileText(answer.text, {PLACES: answer.places} if answer.places else {}, answer.boxes)


def read_document(path: Path, loaders: Loaders | None = None, name: str = "", load: Load = load_file) -> FileText:
    """Return the text and the metadata of a file, with the loader for ``name``, its path in the corpus folder.

    Raises like ``read_text`` and ``load_file``, and ``UnreadableDocumentError`` if a text file is binary.
    """
    loader = (loaders or Loaders()).of(name or path.name)
    if loader is None:
        try:
            return FileText(read_text(path), {})
        except TextEncodingError:
            if is_binary(path.read_bytes()):
                raise UnreadableDocumentError(f"{str(path)!r} {BINARY}") from None
            raise
    data = _bytes_of(path)
    try:
        loaded = load(loader, data)
    except UnreadableDocumentError as error:
        raise type(error)(f"{str(path)!r} {error}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{str(path)!r} cannot be read: {error}") from None
    return loaded._replace(metadata={FILE_DIGEST: sha256(data).hexdigest(), **loaded.metadata})


def page_picture(source: Path | bytes, page: int, width: int = 800) -> bytes:
    """Return a page of a PDF, counted from 1, as a PNG of this width, drawn in the loader process.

    Raises ``CorpusError`` if the file cannot be opened, otherwise as ``load_file``.
    """
    data = source if isinstance(source, bytes) else _bytes_of(source)
    return _process.ask(json.dumps([page, width]).encode(), data).picture


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None


class LeftOut:
    """Collects the files that cannot be read. Its text lists the first ones."""

    def __init__(self) -> None:
        self.sentences: dict[str, str] = {}
        """Reasons by file name."""
        self.unfinished = 0
        """Number of files that may be readable at another time."""

    def __len__(self) -> int:
        return len(self.sentences)

    def __str__(self) -> str:
        more = f"; and {len(self) - SHOWN} more" if len(self) > SHOWN else ""
        return f"{counted(len(self), 'files')} left out: {'; '.join(list(self.sentences.values())[:SHOWN])}{more}"

    def read(
        self, folder: Path, paths: Iterable[Path], loaders: Loaders | None = None, load: Load = load_file
    ) -> Iterator[tuple[str, FileText]]:
        """Yield the name and the text of each file that can be read, and collect the others."""
        for path in paths:
            name = path.relative_to(folder).as_posix()
            try:
                yield name, read_document(path, loaders, name, load)
            except UnreadableDocumentError as error:
                self.sentences[name] = str(error)
                self.unfinished += isinstance(error, UnfinishedDocumentError)


FAULTS = {kind.__name__: kind for kind in (ConfigurationError, UnfinishedDocumentError, UnreadableDocumentError)}


class _Answer(Record):
    """Answer of the loader process for a file: its text, the picture of a page, or an error."""

    model_config = ConfigDict(frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    text: str = ""
    places: list[list[int | str]] = Field(default_factory=list)
    boxes: bytes = b""
    picture: bytes = b""
    fault: str = ""
    """Name of the error."""
    reason: str = ""
    is_broken: bool = False
    """Whether the process must be replaced."""


def _broken(reason: str) -> _Answer:
    return _Answer(fault=UnfinishedDocumentError.__name__, reason=reason, is_broken=True)


def _unreadable(reason: str) -> _Answer:
    return _Answer(fault=UnreadableDocumentError.__name__, reason=reason)


class _LoaderProcess:
    """A process that runs loaders. It is started on first use and after every failure."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._path = ""

    def ask(self, task: bytes, data: bytes) -> _Answer:
        """Return the answer for a file. Raises like ``load_file``."""
        with self._lock:
            for _ in range(2):  # the process may have been killed or have run out of memory for another reason
                try:
                    answer = self._answer(task, data)
                except BaseException:
                    self.end()  # a late answer would be attributed to the next file
                    raise
                if not answer.is_broken:
                    break
                self.end()
        if answer.fault:
            raise FAULTS[answer.fault](answer.reason)
        return answer

    def _answer(self, task: bytes, data: bytes) -> _Answer:
        process, seconds = self._running(), SECONDS + len(data) // BYTES_A_SECOND
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        started, line = time.monotonic(), b""
        timer.start()
        try:
            if process.stdin is not None and process.stdout is not None:
                process.stdin.write(f"{len(task)} {len(data)}\n".encode() + task + data)
                process.stdin.flush()
                line = process.stdout.readline()
        except OSError:
            pass  # the process ended
        finally:
            timer.cancel()
        if line.endswith(b"\n"):
            return _Answer.model_validate_json(line)
        if time.monotonic() - started >= seconds:
            return _broken(f"takes longer than {seconds:.0f} seconds to read")
        return _broken(f"crashes its loader with exit code {process.wait()}: it may need too much memory")

    def end(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _running(self) -> "subprocess.Popen[bytes]":
        path = os.pathsep.join(folder for folder in sys.path if isinstance(folder, str) and folder)
        if self._process is None or self._process.poll() is not None or path != self._path:
            self.end()
            self._path = path
            # -P keeps modules in the current folder from being imported.
            command = [sys.executable, "-P", "-c", "from rag_eval.documents.reading import serve; serve()"]
            environment = {name: value for name, value in os.environ.items() if name.upper() in PASSED_ON}
            environment["PYTHONPATH"] = path  # for users' modules
            self._process = subprocess.Popen(  # noqa: S603  # our own code
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
            )
            if self._process.stdout is not None:
                self._process.stdout.readline()  # wait until it is ready, so that the time limit excludes starting
        return self._process


_process = _LoaderProcess()
atexit.register(lambda: _process.end())  # looks up the process at exit, because a fork replaces it
if hasattr(os, "register_at_fork"):  # a child must not share the pipes of its parent
    os.register_at_fork(after_in_child=lambda: globals().__setitem__("_process", _LoaderProcess()))


def _pickled(loader: Loader) -> bytes:
    import cloudpickle  # type: ignore[import-untyped]

    try:
        return bytes(cloudpickle.dumps(loader))
    except Exception as error:  # noqa: BLE001  # a user's object may raise anything
        raise ConfigurationError(
            f"the loader {getattr(loader, 'label', loader)} cannot be sent to the loader process "
            f"({as_sentence(error)}): define it in a module of its own"
        ) from None


# The code below runs in the loader process.


def serve() -> None:
    """Answer tasks from standard input until it closes, within the limits."""
    _limit_memory()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    tasks, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    answers.write(b"ready\n")
    answers.flush()
    while header := tasks.readline().split():
        task, data = tasks.read(int(header[0])), tasks.read(int(header[1]))
        answers.write(_answer_to(task, data).model_dump_json().encode() + b"\n")
        answers.flush()


def _end_with(parent: int) -> None:
    """End this process when its parent is killed, because only the parent enforces the time limit."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)


def _answer_to(task: bytes, data: bytes) -> _Answer:
    """Return the text of a file read by a pickled loader, or the picture of a page if the task is JSON."""
    try:
        if task.startswith(b"["):
            from rag_eval.documents.pdf import draw_page

            return _Answer(picture=draw_page(data, *json.loads(task)))
        return _text_answer(_loader(task).load(data))
    except tuple(FAULTS.values()) as error:
        return _Answer(fault=type(error).__name__, reason=str(error))
    except MemoryError:  # earlier files may have filled the memory, so a new process tries again
        return _broken(f"takes more than {MEMORY / 2**30:.0f} GB of memory to read")
    except Exception as error:  # noqa: BLE001  # a faulty loader must not end the process
        return _unreadable(f"cannot be read ({as_sentence(error)})")


def _text_answer(loaded: LoadedText) -> _Answer:
    text = _without_surrogates(loaded.text)
    if not text.strip():
        return _unreadable("has no text")
    boxes = loaded.boxes if isinstance(loaded.boxes, bytes) else pack(loaded.boxes)
    places = sorted((int(start), _without_surrogates(str(name))) for start, name in loaded.places)
    is_outside = any(not 0 <= start <= len(text) for start, _ in places)
    if is_outside or (boxes and len(words_at(boxes, len(text), MOST))):
        return _unreadable("cannot be read: its loader returned places or boxes outside of the text")
    return _Answer(text=text, places=[list(place) for place in places], boxes=boxes)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _loader(task: bytes) -> Loader:
    import pickle

    try:
        loader: Loader = pickle.loads(task)  # noqa: S301  # from the parent process
    except Exception as error:  # noqa: BLE001  # a user's module may raise anything
        raise ConfigurationError(
            f"its loader cannot be imported in the process that reads files ({as_sentence(error)})"
        ) from None
    return loader


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:
        return  # Windows
    for kind in ("RLIMIT_AS", "RLIMIT_DATA"):
        try:
            resource.setrlimit(getattr(resource, kind), (MEMORY, MEMORY))
        except (ValueError, OSError, AttributeError):
            continue
