"""Read documents: text as it is, and other formats by their loaders, in a separate process with limits.

A parser may hang, crash or use up all memory on a crafted file. So one process parses for all threads; it is killed
when a file takes too long, and another one continues with the next file.
"""

import atexit
import base64
import fnmatch
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

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
from rag_eval.storage.files import read_text, unreadable

LOADER = Kind(
    "loader",
    {"text": None} | {name: path for name, (path, _) in LOADERS.items()},
    foreign="rag_eval.documents.reading:ForeignLoader",
    nothing="The file as it is, which must be UTF-8.",
)
"""What reads a file; files of other suffixes are text as they are."""

SECONDS = 60.0
"""How long a loader may take for a file, with one more second for every ``BYTES_A_SECOND`` of it."""
BYTES_A_SECOND = 100_000
MEMORY = 2**31
"""The bytes that the process may use, if the system can limit them."""
LOOK_SECONDS = 1.0
SHOWN = 3
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "VIRTUAL_ENV")


class ForeignLoader(ForeignFunction):
    """A loader that is not built in: a function of the bytes of a file, or an object with ``load(data)``.

    It returns a ``LoadedText``, or the text alone.
    """

    kind = "loader"
    methods: ClassVar = ("load",)
    wanted = "a function of a file's bytes that returns its text, or an object with load(data)"

    def load(self, data: bytes) -> LoadedText:
        """Return the text of a file; raises ``UnreadableDocumentError`` whatever the loader raises."""
        try:
            loaded = settled(self._call(data))
        except (RagEvalError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  # whatever a user's code raises
            may_pass = isinstance(error, ConnectionError | TimeoutError)
            fault = UnfinishedDocumentError if may_pass else UnreadableDocumentError
            raise fault(f"cannot be read by {self.label} ({as_sentence(error)})") from None
        if isinstance(loaded, str):
            return LoadedText(loaded)
        if not isinstance(loaded, LoadedText):
            raise UnreadableDocumentError(
                f"cannot be read: {self.label} returned {preview(repr(loaded))}, give a LoadedText or a str"
            )
        return loaded


class Loaders:
    """Which loader reads which files: by suffix (``.pdf``) or pattern (``old/*.htm``), otherwise the built-in loaders.

    The first pattern that a name matches counts; ``*`` matches ``/`` too. Raises ``ConfigurationError`` on what is not
    a loader.
    """

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.given: dict[str, Loader | None] = {
            pattern: None if loader is None else LOADER.of(loader) for pattern, loader in (given or {}).items()
        }

    def __eq__(self, other: object) -> bool:
        """Return whether the other are loaders too; the records of those used tell them apart."""
        return isinstance(other, Loaders)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def _built_in(self) -> dict[str, Loader]:
        return {suffix: LOADER.make(name) for suffix, name in SUFFIXES.items()}

    def of(self, name: str) -> Loader | None:
        """Return the loader of a file by its name; None where it is text as it is."""
        for pattern, loader in self.given.items():
            if _matches(name, pattern):
                return loader
        return self._built_in.get(Path(name).suffix.lower())

    def used(self, names: Iterable[str]) -> dict[str, PartRecord]:
        """Return the records of the loaders of files by the pattern or suffix that chooses them, in order."""
        records: dict[str, PartRecord] = {}
        for name in names:
            suffix = Path(name).suffix.lower()
            chosen = next((pattern for pattern in self.given if _matches(name, pattern)), suffix)
            if chosen not in records and (loader := self.of(name)) is not None:
                records[chosen] = PartRecord.of(LOADER, loader)
        return dict(sorted(records.items()))

    def idle(self, names: Iterable[str]) -> list[str]:
        """Return a sentence for each pattern that fits none of these files."""
        known = list(names)
        suffixes = {Path(name).suffix.lower() for name in known}
        return [
            f"loaders: {pattern!r} fits no file{suggestion(pattern, suffixes)}"
            for pattern in self.given
            if not any(_matches(name, pattern) for name in known)
        ]


def _matches(name: str, pattern: str) -> bool:
    is_suffix = pattern.startswith(".") and "*" not in pattern
    return name.lower().endswith(pattern.lower()) if is_suffix else fnmatch.fnmatchcase(name, pattern)


class FileText(NamedTuple):
    """The text of a file, its metadata from the loader, and the packed boxes of its words."""

    text: str
    metadata: dict[str, object]
    boxes: bytes = b""


def load_file(loader: Loader, data: bytes) -> FileText:
    """Return what a loader reads from the bytes of a file, in the process of the loaders.

    Raises:
        UnreadableDocumentError: The file has no text, because it is broken, encrypted or scanned, or takes too much
            time or memory.
        ConfigurationError: The loader cannot run.
    """
    answer = _parser.ask(_pickled(loader), data)
    metadata = {PLACES: answer["places"]} if answer["places"] else {}
    return FileText(str(answer["text"]), metadata, base64.b64decode(answer["boxes"]))


Load = Callable[[Loader, bytes], FileText]


def read_document(path: Path, loaders: Loaders | None = None, name: str = "", load: Load = load_file) -> FileText:
    """Return the text of a file with its metadata; ``name`` is its path in the folder of documents.

    Raises as ``read_text``, and as ``load_file`` with the name of the file.
    """
    loader = (loaders or Loaders()).of(name or path.name)
    if loader is None:
        try:
            return FileText(read_text(path), {})
        except TextEncodingError:
            if is_binary(path.read_bytes()):
                raise UnreadableDocumentError(f"{str(path)!r} {BINARY}") from None
            raise
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    try:
        loaded = load(loader, data)
    except UnreadableDocumentError as error:
        raise type(error)(f"{str(path)!r} {error}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{str(path)!r} cannot be read: {error}") from None
    return loaded._replace(metadata={FILE_DIGEST: sha256(data).hexdigest(), **loaded.metadata})


def page_picture(source: Path | bytes, page: int, width: int = 800) -> bytes:
    """Return a page of a PDF, which counts from 1, as a PNG of this width, made in the process of the loaders.

    Raises ``UnreadableDocumentError`` on what has no such page or cannot be drawn, ``CorpusError`` on a file that
    cannot be read, and ``ConfigurationError`` without pypdfium2.
    """
    try:
        data = source if isinstance(source, bytes) else source.read_bytes()
    except OSError as error:
        raise unreadable(Path(error.filename), error) from None
    return base64.b64decode(_parser.ask(json.dumps([page, width]).encode(), data)["picture"])


class LeftOut:
    """The files without a text, each with a sentence that says why."""

    def __init__(self) -> None:
        self.sentences: dict[str, str] = {}
        """By the files' names."""
        self.unfinished = 0
        """How many may have a text when they are read again."""

    def __len__(self) -> int:
        return len(self.sentences)

    def __str__(self) -> str:
        more = f"; and {len(self) - SHOWN} more" if len(self) > SHOWN else ""
        return f"{counted(len(self), 'files')} left out: {'; '.join(list(self.sentences.values())[:SHOWN])}{more}"

    def read(
        self, folder: Path, paths: Iterable[Path], loaders: Loaders | None = None, load: Load = load_file
    ) -> Iterator[tuple[str, FileText]]:
        """Yield the name and the text of each file; note the files that have none."""
        for path in paths:
            name = path.relative_to(folder).as_posix()
            try:
                yield name, read_document(path, loaders, name, load)
            except UnreadableDocumentError as error:
                self.sentences[name] = str(error)
                self.unfinished += isinstance(error, UnfinishedDocumentError)


class _Parser:
    """A process that runs loaders, started on first use and after each end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._path = ""

    def ask(self, task: bytes, data: bytes) -> dict[str, Any]:
        """Return the answer of the process about a file; raises as ``load_file``."""
        with self._lock:
            for _ in range(2):  # others may end the process, or it may starve: a fault counts if it comes again
                try:
                    answer = self._answer(task, data)
                except BaseException:
                    self.end()  # a late answer would be taken for that of the next file
                    raise
                if "broken" not in answer:
                    break
                self.end()
        for name, error in FAULTS.items():
            if name in answer:
                raise error(answer[name])
        return answer

    def _answer(self, task: bytes, data: bytes) -> dict[str, Any]:
        process, seconds = self._running(), SECONDS + len(data) // BYTES_A_SECOND
        threading.Thread(target=_send, args=(process, task, data), daemon=True).start()
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            return {"broken": f"takes longer than {seconds:.0f} seconds to read"}
        if not answer.endswith(b"\n"):
            return {"broken": f"breaks its loader, which ends with {process.wait()}: it may need too much memory"}
        return dict(json.loads(answer))

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _running(self) -> "subprocess.Popen[bytes]":
        path = os.pathsep.join(folder for folder in sys.path if isinstance(folder, str) and folder)
        if self._process is None or self._process.poll() is not None or path != self._path:
            self.end()
            self._path = path
            # The process sees neither the current folder nor the keys of the environment.
            command = [sys.executable, "-P", "-c", "from rag_eval.documents.reading import serve; serve()"]
            environment = {name: value for name, value in os.environ.items() if name.upper() in PASSED_ON}
            environment["PYTHONPATH"] = path  # where a user's loader may be
            self._process = subprocess.Popen(  # noqa: S603  # our own code
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
            )
            self._answers = queue.Queue()
            threading.Thread(target=_receive, args=(self._process.stdout, self._answers), daemon=True).start()
            self._answers.get()  # it is ready, or has ended: the time of a file excludes starting
        return self._process


def _send(process: "subprocess.Popen[bytes]", task: bytes, data: bytes) -> None:
    try:
        if process.stdin is not None:
            process.stdin.write(f"{len(task)} {len(data)}\n".encode() + task + data)
            process.stdin.flush()
    except (OSError, ValueError):
        pass  # the process ended, and its answers with it


def _receive(answers: IO[bytes] | None, into: "queue.Queue[bytes]") -> None:
    try:
        for line in answers or ():
            into.put(line)
    except (OSError, ValueError):
        pass  # the process ended
    into.put(b"")


FAULTS = {
    "broken": UnfinishedDocumentError,
    "unfinished": UnfinishedDocumentError,
    "fault": UnreadableDocumentError,
    "missing": ConfigurationError,
}
"""The errors that the process reports, by their key in its answer; a broken process is ended."""

_parser = _Parser()
atexit.register(lambda: _parser.end())  # of the process that ends, which may be a fork
if hasattr(os, "register_at_fork"):  # a child must not share its parent's pipes
    os.register_at_fork(after_in_child=lambda: globals().__setitem__("_parser", _Parser()))


def _pickled(loader: Loader) -> bytes:
    import cloudpickle  # type: ignore[import-untyped]

    try:
        return bytes(cloudpickle.dumps(loader))
    except Exception as error:  # noqa: BLE001  # whatever a user's object raises
        raise ConfigurationError(
            f"the loader {getattr(loader, 'label', loader)} cannot go to the process that reads files "
            f"({as_sentence(error)}): define it in a module of its own"
        ) from None


def serve() -> None:
    """Answer the tasks of standard input until it ends, within the limits: the code of the process above."""
    _limit()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    tasks, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not an answer
    answers.write(b"ready\n")
    answers.flush()
    while header := tasks.readline().split():
        task, data = tasks.read(int(header[0])), tasks.read(int(header[1]))
        answers.write(json.dumps(_done(task, data)).encode() + b"\n")
        answers.flush()


def _end_with(parent: int) -> None:
    """End this process if its parent was killed, which alone limits the time of a file."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)


def _done(task: bytes, data: bytes) -> dict[str, object]:
    """Return the answer about a file: its text by a pickled loader, or the picture of a page."""
    try:
        if task.startswith(b"["):
            from rag_eval.documents.pdf import page_picture as drawn

            return {"picture": base64.b64encode(drawn(data, *json.loads(task))).decode()}
        loaded = _loader(task).load(data)
        text = _without_surrogates(loaded.text)
        if not text.strip():
            return {"fault": "has no text"}
        boxes = loaded.boxes if isinstance(loaded.boxes, bytes) else pack(loaded.boxes)
        places = sorted((int(start), _without_surrogates(str(name))) for start, name in loaded.places)
        is_outside = places and not 0 <= places[0][0] <= places[-1][0] <= len(text)
        if is_outside or (boxes and len(words_at(boxes, len(text), MOST))):
            return {"fault": "cannot be read: its loader tells of places or boxes outside of the text"}
        return {"text": text, "places": places, "boxes": base64.b64encode(boxes).decode()}
    except UnfinishedDocumentError as error:
        return {"unfinished": str(error)}
    except UnreadableDocumentError as error:
        return {"fault": str(error)}
    except ConfigurationError as error:
        return {"missing": str(error)}
    except MemoryError:  # which other files may have filled: another process starts empty
        return {"broken": f"takes more than {MEMORY / 2**30:.0f} GB of memory to read"}
    except Exception as error:  # noqa: BLE001  # a faulty loader must not end the process
        return {"fault": f"cannot be read ({as_sentence(error)})"}


def _without_surrogates(text: str) -> str:
    """Return a text without halves of surrogate pairs, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def _loader(task: bytes) -> Loader:
    import pickle

    try:
        loader: Loader = pickle.loads(task)  # noqa: S301  # of the process that started this one
    except Exception as error:  # noqa: BLE001  # as above
        raise ConfigurationError(
            f"its loader cannot be imported in the process that reads files ({as_sentence(error)})"
        ) from None
    return loader


def _limit() -> None:
    try:
        import resource
    except ImportError:
        return  # Windows has no such limits
    for kind in ("RLIMIT_AS", "RLIMIT_DATA"):
        try:
            resource.setrlimit(getattr(resource, kind), (MEMORY, MEMORY))
        except (ValueError, OSError, AttributeError):
            continue
