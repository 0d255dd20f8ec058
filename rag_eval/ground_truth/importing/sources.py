"""Reading the files of a source: JSON, JSON lines and the folder of documents, with errors that name the place."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rag_eval.errors import CorpusError, GroundTruthError
from rag_eval.files import read_text
from rag_eval.ground_truth.importing.result import ImportNotes
from rag_eval.ground_truth.records import line_faults, parsed_line


def source_text(path: Path) -> str:
    """A file's text without its byte-order mark; raises ``GroundTruthError`` when it cannot be read."""
    if not path.is_file():
        raise GroundTruthError(f"{str(path)!r} is not there or is no file: check the path")
    try:
        return read_text(path).removeprefix("\ufeff")
    except CorpusError as error:
        raise GroundTruthError(str(error)) from None


def json_file(path: Path) -> Any:
    """A JSON file's content; raises ``GroundTruthError`` when it cannot be read or is not JSON."""
    try:
        return json.loads(source_text(path))
    except json.JSONDecodeError as error:
        raise GroundTruthError(
            f"{str(path)!r} is not JSON ({error.msg} in line {error.lineno}): check that it is whole"
        ) from None
    except RecursionError:
        raise GroundTruthError(f"{str(path)!r} has objects too deep in each other: check the file") from None


def json_lines(path: Path, notes: ImportNotes) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file with one a line, each with its place; lines that hold none are noted as left out."""
    for number, line in enumerate(source_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path.name}, line {number}"
        try:
            data = parsed_line(line)
        except (ValueError, RecursionError) as error:
            notes.leave_out("broken line", f"{place}: {line_faults(error)[0]}")
            continue
        if isinstance(data, dict):
            yield place, data
        else:
            notes.leave_out("broken line", f"{place}: not an object")


def documents_folder(given: Path | None, usual: list[Path]) -> Path:
    """The folder of documents that was given, or the first of the usual places that is there.

    Raises ``GroundTruthError`` when there is none.
    """
    if given is not None:
        return given
    found = next((folder for folder in usual if folder.is_dir()), None)
    if found is None:
        raise GroundTruthError(f"the documents are not in {str(usual[0])!r}: give their folder with --corpus")
    return found
