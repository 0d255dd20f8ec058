"""Reading documents: text as it is, and other formats by their loaders, in a process of its own that has limits.

Files come from anywhere, and a parser may hang, crash or eat all memory on a crafted one. So one process parses for all
threads; it is ended when a file takes too long, and a new one goes on with the next.
"""

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from rag_eval.disk.files import read_text, unreadable
from rag_eval.documents import FILE_DIGEST, PLACES, SUFFIXES
from rag_eval.errors import ConfigurationError, UnreadableDocumentError
from rag_eval.formatting import counted
from rag_eval.parts.kinds import Kind

LOADER = Kind(
    "loader",
    {
        "html": "rag_eval.documents.loaders:HtmlLoader",
        "docx": "rag_eval.documents.loaders:DocxLoader",
        "notebook": "rag_eval.documents.loaders:NotebookLoader",
        "pdf": "rag_eval.documents.loaders:PdfLoader",
    },
)
"""What makes text of a file; files of other suffixes are text as they are."""

SECONDS = 60.0
"""How long a loader may take for one file."""
MEMORY = 2**31
"""How many bytes the process of the loaders may take, where the system can limit that."""
SHOWN = 3
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "VIRTUAL_ENV")


def is_plain(path: Path) -> bool:
    """Whether a file is text that is read as it is."""
    return path.suffix.lower() not in SUFFIXES


def read_document(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, and what its loader tells of it as metadata.

    Raises what ``read_text`` raises, and ``UnreadableDocumentError`` on a file of another format of which no text can
    be made: it is broken, encrypted or scanned, or takes more time or memory than it may.
    """
    if is_plain(path):
        return read_text(path), {}
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    told = _parser.ask(SUFFIXES[path.suffix.lower()], data)
    if "missing" in told:
        raise ConfigurationError(f"{str(path)!r} cannot be read: {told['missing']}")
    if "fault" in told:
        raise UnreadableDocumentError(f"{str(path)!r} {told['fault']}")
    places = {PLACES: told["places"]} if told["places"] else {}
    return str(told["text"]), {FILE_DIGEST: sha256(data).hexdigest(), **places}


def read_all(folder: Path, paths: Iterable[Path], left_out: list[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the name, the text and the metadata of each file.

    Those of which no text can be made are passed over; why is added to ``left_out``, a sentence each.
    """
    for path in paths:
        try:
            text, metadata = read_document(path)
        except UnreadableDocumentError as error:
            left_out.append(str(error))
            continue
        yield path.relative_to(folder).as_posix(), text, metadata


def left_out_sentence(left_out: Sequence[str]) -> str:
    """Return one sentence about the files that were left out."""
    more = f"; and {len(left_out) - SHOWN} more" if len(left_out) > SHOWN else ""
    return f"{counted(len(left_out), 'files')} left out: {'; '.join(left_out[:SHOWN])}{more}"


class _Parser:
    """A process that runs loaders, started when it is first asked, and again after it was ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[bytes] = queue.Queue()

    def ask(self, loader: str, data: bytes) -> dict[str, Any]:
        """Return what the loader made of a file, or ``fault``, or what is ``missing`` to run it."""
        with self._lock:
            for _ in range(2):  # a process may be ended by others, or starve: a fault counts when it comes again
                try:
                    answer = self._asked(loader, data)
                except BaseException:
                    self.end()  # what it answers later is of this file, and would be taken for that of the next
                    raise
                if "broken" not in answer:
                    return answer
                self.end()
            return {"fault": answer["broken"]}

    def _asked(self, loader: str, data: bytes) -> dict[str, Any]:
        process = self._running()
        threading.Thread(target=_send, args=(process, loader, data), daemon=True).start()
        try:
            answer = self._answers.get(timeout=SECONDS)
        except queue.Empty:
            return {"broken": f"takes longer than {SECONDS:.0f} seconds to read"}
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
        if self._process is None or self._process.poll() is not None:
            self.end()
            # Neither the folder that one is in nor the keys of the environment are for who reads documents.
            command = [sys.executable, "-P", "-c", "from rag_eval.documents.reading import serve; serve()"]
            environment = {name: value for name, value in os.environ.items() if name.upper() in PASSED_ON}
            environment["PYTHONPATH"] = os.pathsep.join(one for one in sys.path if isinstance(one, str) and one)
            self._process = subprocess.Popen(  # noqa: S603  # our own code
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
            )
            self._answers = queue.Queue()
            threading.Thread(target=_receive, args=(self._process.stdout, self._answers), daemon=True).start()
            self._answers.get()  # it is ready, or has ended: starting is no part of a file's time
        return self._process


def _send(process: "subprocess.Popen[bytes]", loader: str, data: bytes) -> None:
    try:
        if process.stdin is not None:
            process.stdin.write(f"{loader} {len(data)}\n".encode() + data)
            process.stdin.flush()
    except OSError:
        pass  # it ended, and its answers end with it


def _receive(answers: IO[bytes] | None, into: "queue.Queue[bytes]") -> None:
    try:
        for line in answers or ():
            into.put(line)
    except (OSError, ValueError):
        pass  # it was ended
    into.put(b"")


_parser = _Parser()
atexit.register(lambda: _parser.end())  # of the process that ends, which may be a fork
if hasattr(os, "register_at_fork"):  # a child must not share its parent's pipes
    os.register_at_fork(after_in_child=lambda: globals().__setitem__("_parser", _Parser()))


def serve() -> None:
    """Load what comes from standard input until it ends, each file within the limits; what the process above runs."""
    _limit()
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    answers.write(b"ready\n")
    answers.flush()
    while header := asked.readline().split():
        data = asked.read(int(header[1]))
        answers.write(json.dumps(_loaded(header[0].decode(), data)).encode() + b"\n")
        answers.flush()


def _loaded(loader: str, data: bytes) -> dict[str, Any]:
    try:
        found = LOADER.make(loader).load(data)
        # Half a surrogate pair is no text.
        text = found.text.encode("utf-8", "replace").decode()
        if not text.strip():
            return {"fault": "has no text"}
    except UnreadableDocumentError as error:
        return {"fault": str(error)}
    except ConfigurationError as error:
        return {"missing": str(error)}
    except MemoryError:
        return {"fault": f"takes more than {MEMORY / 2**30:.0f} GB of memory to read"}
    except Exception as error:  # noqa: BLE001  # a loader's own fault must not end the others' work
        return {"fault": f"cannot be read ({type(error).__name__})"}
    return {"text": text, "places": found.places}


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
