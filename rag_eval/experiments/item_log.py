"""Finished samples on disk, one line each: they survive a kill, and a rerun goes on where the last one ended.

Lines stand in the order in which samples were finished; only their places are held in memory.
"""

import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import re
import secrets
import time
import types
import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, overload

import orjson

from rag_eval.errors import ArtifactError
from rag_eval.experiments.naming import Named
from rag_eval.experiments.types import Average, ItemError, ItemResult, Row, Score

DEEPEST = 200
"""So many lists and objects within each other are written."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LONG_NUMBER = re.compile(rb"\d{19}")


def encode(value: object) -> bytes:
    """The value as one line of JSON, whatever it is: NaN becomes null, objects their fields, the rest its ``repr``.

    A value within itself becomes an ellipsis. An address in a ``repr`` is left out, so that the same value is the same
    text in every process.
    """
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        # Lone surrogates, integers beyond 64 bits and deep values, which the fast encoder does not take.
        return json.dumps(_strict(value), ensure_ascii=True).encode()


def decode(line: bytes) -> Any:
    """What a line of JSON holds; raises ``ValueError`` when it is none."""
    try:
        # Of an integer beyond 64 bits the fast decoder would make a float.
        return json.loads(line) if _LONG_NUMBER.search(line) else orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line)  # escaped surrogates
    except RecursionError:
        raise ValueError("lists or objects stand too deep in each other") from None


def item_record(item: ItemResult) -> dict[str, Any]:
    """A sample's result as it stands in files."""
    record: dict[str, Any] = {
        "input": item.input,
        "output": item.output,
        "taskResults": item.task_results,
        "scores": {key: score.value for key, score in item.scores.items()},
        "seconds": round(item.seconds, 6),
    }
    details = {
        key: {"explanation": score.explanation, "passed": score.passed}
        for key, score in item.scores.items()
        if score.explanation is not None or score.passed is not None
    }
    if details:
        record["scoreDetails"] = details
    if item.id is not None:
        record["id"] = item.id
    if item.errors:
        record["errors"] = [
            {"task": error.task, "evaluator": error.evaluator, "message": error.message} for error in item.errors
        ]
    return record


def item_of(index: int, record: Mapping[str, Any]) -> ItemResult:
    """The result that a record holds; raises ``KeyError`` or ``TypeError`` when it is none."""
    details = record.get("scoreDetails", {})
    return ItemResult(
        index=index,
        input=record["input"],
        output=record["output"],
        task_results=record["taskResults"],
        scores={key: Score(value, **details.get(key, {})) for key, value in record["scores"].items()},
        errors=[ItemError(**error) for error in record.get("errors", [])],
        seconds=record["seconds"],
        id=record.get("id"),
    )


def average_record(average: Average) -> dict[str, Any]:
    """An average as it stands in files."""
    return dataclasses.asdict(average)


def _plain(value: object) -> object:
    try:
        if hasattr(value, "model_dump") and not isinstance(value, type):
            return value.model_dump(mode="json")
        if hasattr(value, "item") and not hasattr(value, "__len__"):  # a scalar of numpy's
            return value.item()
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, set | frozenset):
            return sorted(value, key=repr)
        return _ADDRESS.sub("", repr(value))
    except Exception:  # noqa: BLE001  # code of the user's, for a value that is only to be shown
        return f"<{type(value).__name__}>"


def _strict(value: object, around: frozenset[int] = frozenset()) -> object:
    """The value in the types that the standard encoder takes, without NaN; ``around`` are the ids of what it is in."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if id(value) in around or len(around) == DEEPEST:
        return "…"
    around |= {id(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _strict(part, around) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part, around) for part in value]
    return _strict(_plain(value), around)


_PLAIN = (str, bytes, int, float, bool, type(None), tuple, frozenset)


def fingerprint(name: str, tasks: list[Named], evaluators: list[Named]) -> str:
    """The same for the same experiment; another as soon as the code of a task or an evaluator is another.

    To the code belong the functions, classes and plain constants of its own module that it uses, and what those use.
    Further modules, and lists and objects, whose content may change while it runs, are not looked at.
    """
    parts = [[one.name, _Code().of(one.call)] for one in (*tasks, *evaluators)]
    return hashlib.sha256(encode([name, len(tasks), parts])).hexdigest()


class _Code:
    """The code of one callable as plain data, everything in it once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def of(self, call: Any) -> list[Any]:
        if isinstance(call, functools.partial):
            return ["partial", self.of(call.func), self._values(call.args), self._values(sorted(call.keywords.items()))]
        if isinstance(call, types.MethodType):
            return ["method", self.of(call.__func__), self._object(call.__self__)]
        if isinstance(call, types.FunctionType):
            return ["function", *self._function(call)]
        return ["object", self._object(call)]

    def _function(self, call: types.FunctionType) -> Iterator[Any]:
        if id(call) in self._seen:
            return
        self._seen.add(id(call))
        yield _code(call.__code__)
        yield self._values(call.__defaults__ or ())
        yield self._values(cell.cell_contents for cell in call.__closure__ or () if _is_filled(cell))
        for name in sorted(_names(call.__code__) & call.__globals__.keys()):
            used = call.__globals__[name]
            if isinstance(used, _PLAIN):
                yield [name, _stable(used)]
            elif isinstance(used, types.FunctionType | type) and used.__module__ == call.__module__:
                yield [name, self._type(used) if isinstance(used, type) else self.of(used)]

    def _object(self, value: Any) -> list[Any]:
        # The plain representation holds an address, which is another in every process.
        shown = repr(value)
        settings = None if " at 0x" in shown else shown
        parts = [self.of(part.call) for part in getattr(value, "parts", ()) if isinstance(part, Named)]
        return [settings, self._type(type(value)), parts]

    def _type(self, kind: type) -> list[Any]:
        """The methods of a class and of those of its module that it derives from."""
        told: list[Any] = [f"{kind.__module__}.{kind.__qualname__}"]
        if id(kind) not in self._seen:
            self._seen.add(id(kind))
            bases = [base for base in kind.__mro__ if base.__module__ == kind.__module__ != "builtins"]
            methods = [getattr(found, "__func__", found) for base in bases for found in vars(base).values()]
            told += [self.of(method) for method in methods if isinstance(method, types.FunctionType)]
        return told

    def _values(self, values: Iterable[Any]) -> list[Any]:
        return [self._value(value) for value in values]

    def _value(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return _stable(value)
        is_code = isinstance(value, types.FunctionType | types.MethodType | functools.partial)
        return self.of(value) if is_code else type(value).__qualname__


def _code(code: types.CodeType) -> list[Any]:
    constants = [
        _code(one) if isinstance(one, types.CodeType) else _stable(one)
        for one in code.co_consts
        if one is not code.co_name
    ]
    return [code.co_code.hex(), constants, list(code.co_names)]


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return {*code.co_names}.union(*inner)


def _stable(value: Any) -> Any:
    """A plain value as text that is the same in every process: the order of a set is not."""
    if isinstance(value, tuple | frozenset):
        parts = [str(_stable(part)) for part in value]
        return [type(value).__name__, *(sorted(parts) if isinstance(value, frozenset) else parts)]
    return repr(value)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # reading is the question
    except ValueError:
        return False
    return True


FOLDER = ".unfinished"
LEFT_DAYS = 30


class ItemLog(Sequence[ItemResult]):
    """The samples of one run by their place in the data; open it with ``open_log``."""

    def __init__(self, path: Path, descriptor: int, header: dict[str, Any], places: "array[int]") -> None:
        self._path, self._descriptor, self._places = path, descriptor, places
        # A program may run experiments without end, and keep none of their results.
        self.close = weakref.finalize(self, os.close, descriptor)
        """Let the log go."""
        self._end = os.fstat(descriptor).st_size
        self.run = str(header["run"])
        self.started = datetime.fromisoformat(header["started"])
        self._resumable = sum(place >= 0 for place in places)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> ItemResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[ItemResult]: ...
    def __getitem__(self, index: int | slice) -> ItemResult | list[ItemResult]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return item_of(index, self._read(self._places[index])["item"])

    def __iter__(self) -> Iterator[ItemResult]:
        return (self[index] for index in range(len(self)))

    def records(self) -> Iterator[dict[str, Any]]:
        """The samples as they stand in files, in the order of the data."""
        return (self._read(place)["item"] for place in self._places)

    def finished(self, index: int, row: Row) -> ItemResult | None:
        """What an interrupted run made of the same row without an error; None where it has to be done."""
        if self._resumable == 0 or index >= len(self._places) or self._places[index] < 0:
            return None
        record = self._read(self._places[index])
        if record["row"] != row_digest(row) or "errors" in record["item"]:
            return None
        return item_of(index, record["item"])

    def add(self, item: ItemResult, row: Row) -> None:
        """Keep a finished sample; raises ``ArtifactError`` when it cannot be written."""
        line = encode({"index": item.index, "row": row_digest(row), "item": item_record(item)}) + b"\n"
        try:
            written = os.write(self._descriptor, line)
        except OSError as error:
            raise ArtifactError(f"{str(self._path)!r} cannot be written ({error.strerror}): make room") from None
        if written != len(line):
            raise ArtifactError(f"{str(self._path)!r} cannot be written: the disk is full")
        self._places.extend([-1] * (item.index + 1 - len(self._places)))
        self._places[item.index] = self._end
        self._end += len(line)

    @property
    def size(self) -> int:
        """How many bytes the samples take on disk."""
        return self._end

    def cut(self, count: int) -> None:
        """Forget what stands beyond the data, which has become shorter since an interrupted run."""
        del self._places[count:]

    def done(self) -> None:
        """Take the log's name away: what is kept elsewhere need not be continued; it can still be read from here."""
        self._path.unlink(missing_ok=True)

    def interrupted(self) -> None:
        """Let the log go, to be continued by a later run; one without a sample is not left behind."""
        if not self._places:
            self.done()
        self.close()

    def _read(self, place: int) -> dict[str, Any]:
        size = 4_096
        while True:
            block = os.pread(self._descriptor, size, place)
            end = block.find(b"\n")
            if end >= 0:
                found: dict[str, Any] = decode(block[:end])
                return found
            if len(block) < size:
                raise ArtifactError(f"{str(self._path)!r} was cut while it was read: run again")
            size *= 4


def open_log(folder: Path, name: str, fingerprint: str) -> ItemLog:
    """The log of an interrupted run with this fingerprint, or a new one; raises ``ArtifactError`` without a place.

    Where other processes are at the same experiment right now, the log is another one beside theirs. Logs that nobody
    has gone on with for ``LEFT_DAYS`` are removed: their experiments have other code by now.
    """
    unfinished = folder / FOLDER
    stem = f"{file_stem(name)}-{fingerprint[:16]}"
    try:
        unfinished.mkdir(parents=True, exist_ok=True)
        _remove_old(unfinished)
        others = sorted(path.name for path in unfinished.glob(f"{stem}.*.jsonl"))
        new = (f"{stem}.{secrets.token_hex(4)}.jsonl" for _ in count())
        paths = (unfinished / file for file in chain([f"{stem}.jsonl"], others, new))
        path, descriptor = next((path, found) for path in paths if (found := _locked(path)) is not None)
    except OSError as error:
        raise ArtifactError(f"{str(unfinished)!r} cannot be written ({error.strerror}): use another folder") from None
    header, places = _survey(descriptor)
    return ItemLog(path, descriptor, header, places)


def _remove_old(unfinished: Path) -> None:
    for path in unfinished.glob("*.jsonl"):
        with suppress(FileNotFoundError):  # another process is as tidy
            if time.time() - path.stat().st_mtime < LEFT_DAYS * 86_400:
                continue
            descriptor = _locked(path)
            if descriptor is not None:
                path.unlink()
                os.close(descriptor)


def _locked(path: Path) -> int | None:
    """The open file, locked for as long as this process has it open; None when another process has."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        try:
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)  # the run it belonged to ended meanwhile, and took its name away


def _survey(descriptor: int) -> tuple[dict[str, Any], "array[int]"]:
    """The header and where each sample stands; what a kill left half written is cut off."""
    places: array[int] = array("q")
    header: dict[str, Any] | None = None
    end = 0
    with os.fdopen(os.dup(descriptor), "rb") as lines:
        lines.seek(0)
        for line in lines:
            try:
                record = decode(line) if line.endswith(b"\n") else None
            except ValueError:
                record = None
            if not isinstance(record, dict):
                break
            if header is None:
                header = record
            else:
                index = int(record["index"])
                places.extend([-1] * (index + 1 - len(places)))
                places[index] = end
            end += len(line)
    os.ftruncate(descriptor, end)
    if header is None:
        header = {"run": secrets.token_hex(8), "started": datetime.now(UTC).isoformat(timespec="milliseconds")}
        os.write(descriptor, encode(header) + b"\n")
    return header, places


def row_digest(row: Row) -> str:
    """What tells a row from every other."""
    return hashlib.blake2b(encode(row), digest_size=16).hexdigest()


def file_stem(name: str) -> str:
    """An experiment's name as it may stand in a file name on any system; raises nothing, loses what does not fit."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:100] or "experiment"
