import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rag_eval.errors import ConfigurationError
from rag_eval.parts.code import read_code

PROJECT = {
    "plain.py": '''
"""Parts that use names of their own file."""
import re

SIZE = 5
SEPARATOR = " "
UNUSED = 99


def words(text):
    """Words, lower case."""
    found = re.split(SEPARATOR, text)
    return [word.lower() for word in found if len(word) > 1]


def pairs(text, step=2):
    made = words(text)
    return [SEPARATOR.join(made[n : n + step]) for n in range(0, len(made), step)]


def unrelated(text):
    return text * UNUSED


class Windows:
    """Windows of characters."""

    overlap = 1

    def __init__(self, size=SIZE):
        self.size = size

    def chunk(self, text):
        step = self.size - self.overlap
        return [text[n : n + self.size] for n in range(0, len(text), step)]
''',
    "base.py": """
class Splitter:
    mark = "."

    def split(self, text):
        return [one + self.mark for one in text.split(self.mark) if one]


class Other(Splitter):
    mark = "!"
""",
    "derived.py": """
from base import Splitter
import helpers.numbers as numbers
from helpers import text as text_tools


class Trimmed(Splitter):
    def split(self, text):
        limit = numbers.limit(text)
        return [text_tools.trim(one, limit) for one in super().split(text)]


def lazily(text):
    from helpers.late import reverse

    return [reverse(one) for one in text.split()]
""",
    "helpers/__init__.py": """
from .numbers import limit as most

DEFAULT = 3
numbers_used = most("abc")
""",
    "helpers/numbers.py": """
FACTOR = 2


def limit(text):
    if len(text) > 10:
        return FACTOR * 4
    return FACTOR


def never(text):
    return FACTOR - 100
""",
    "helpers/text.py": """
from . import numbers
from .late import *


def trim(text, limit):
    cut = text.strip()[:limit]
    return cut if cut != numbers.FACTOR else reverse(cut)
""",
    "helpers/late.py": """
def reverse(text):
    return text[::-1]


def twice(text):
    return text + text
""",
    "lookups.py": """
import importlib

LATE = importlib.import_module("helpers.late")


def by_name(text):
    return [getattr(LATE, name)(text) for name in ("reverse", "twice")]
""",
}
TEXTS = ("One two three. Four five! six", "a bc def.ghij klmnop", "")
PARTS: dict[str, Callable[[Any, str], Any]] = {
    "plain:pairs": lambda part, text: part(text),
    "plain:Windows": lambda part, text: part().chunk(text),
    "derived:Trimmed": lambda part, text: part().split(text),
    "derived:lazily": lambda part, text: part(text),
    "lookups:by_name": lambda part, text: part(text),
}


def write_project(folder: Path) -> Path:
    for name, source in PROJECT.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(source)
    return folder


@contextmanager
def imports_from(folder: Path) -> Iterator[None]:
    known, sys.dont_write_bytecode = set(sys.modules), True
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = False
        for name in set(sys.modules) - known:
            del sys.modules[name]


def outcome(folder: Path, reference: str) -> str:
    """What the part gives, or how it fails, from files read anew."""
    module, _, name = reference.partition(":")
    with imports_from(folder):
        try:
            part = getattr(importlib.import_module(module), name)
            return repr([PARTS[reference](part, text) for text in TEXTS])
        except Exception as error:  # noqa: BLE001  # an edit may break anything
            return f"{type(error).__name__}: {error}"


def digests(folder: Path) -> dict[str, str]:
    return {reference: read_code(reference.partition(":")[0], folder).digest for reference in PARTS}


EDITS = [
    ("plain.py", "SIZE = 5", "SIZE = 6"),
    ("plain.py", 'SEPARATOR = " "', 'SEPARATOR = "."'),
    ("plain.py", "len(word) > 1", "len(word) > 2"),
    ("plain.py", ".lower()", ".upper()"),
    ("plain.py", "step=2", "step=3"),
    ("plain.py", "    overlap = 1", "    overlap = 0"),
    ("plain.py", "self.size = size", "self.size = size + 1"),
    ("base.py", 'mark = "."', 'mark = " "'),
    ("base.py", "one + self.mark", "self.mark + one"),
    ("derived.py", "import helpers.numbers as numbers", "import helpers.late as numbers\nnumbers.limit = len"),
    ("derived.py", "(one, limit)", "(one, limit + 1)"),
    ("derived.py", "[reverse(one)", "[reverse(one) * 2"),
    ("helpers/__init__.py", 'most("abc")', "most(3)"),
    ("helpers/numbers.py", "FACTOR = 2", "FACTOR = 3"),
    ("helpers/numbers.py", "len(text) > 10", "len(text) > 99"),
    ("helpers/text.py", "text.strip()[:limit]", "text[:limit]"),
    ("helpers/late.py", "text[::-1]", "text[::-2]"),
    ("helpers/late.py", "text + text", "text"),
    ("lookups.py", '("reverse", "twice")', '("twice",)'),
]


@pytest.mark.parametrize(("file", "old", "new"), EDITS, ids=[f"{file} {new}" for file, _, new in EDITS])
def test_an_edit_that_changes_a_part_changes_its_digest(tmp_path: Path, file: str, old: str, new: str) -> None:
    folder = write_project(tmp_path)
    before, gave = digests(folder), {reference: outcome(folder, reference) for reference in PARTS}
    assert not any("Error" in one for one in gave.values())
    assert old in PROJECT[file]
    (folder / file).write_text(PROJECT[file].replace(old, new))
    now = digests(folder)
    differing = {reference for reference in PARTS if outcome(folder, reference) != gave[reference]}
    assert differing
    assert differing <= {reference for reference in PARTS if now[reference] != before[reference]}


def test_comments_layout_and_code_of_scripts_count_for_nothing(tmp_path: Path) -> None:
    folder = write_project(tmp_path)
    before = digests(folder)
    (folder / "plain.py").write_text(
        "# a comment\n\n"
        + PROJECT["plain.py"].replace("return text * UNUSED", "return (text\n        * UNUSED)  # aside")
        + '\n\nif __name__ == "__main__":\n    print(words("a b"))\n'
    )
    assert digests(folder) == before


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("import importlib\nf = importlib.import_module(NAME)", "import_module of a computed name"),
        ("f = eval(NAME)", "eval"),
        ("exec(NAME)\nf = 1", "exec"),
    ],
)
def test_what_cannot_be_known_is_told_with_its_line(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "computed_part.py").write_text(f"NAME = 'os'.lower()\n{line}\n")
    (unknown,) = read_code("computed_part", tmp_path).unknown
    assert unknown.startswith("computed_part.py, line ")
    assert unknown.endswith(told)


def test_what_is_read_at_run_time_is_told(tmp_path: Path) -> None:
    (tmp_path / "reading_part.py").write_text("def f(text):\n    return open('stop.txt').read()\n")
    assert read_code("reading_part", tmp_path).reads == ("reading_part.py, line 2: open",)


def test_installed_packages_count_as_name_and_version(tmp_path: Path) -> None:
    (tmp_path / "packaged_part.py").write_text("import numpy\n\n\ndef f(text):\n    return numpy.array([1])\n")
    first = read_code("packaged_part", tmp_path)
    assert [path.name for path in first.files] == ["packaged_part.py"]
    (tmp_path / "packaged_part.py").write_text(
        "import polars as numpy\n\n\ndef f(text):\n    return numpy.array([1])\n"
    )
    assert read_code("packaged_part", tmp_path).digest != first.digest


def test_a_file_that_is_not_python_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken_part.py").write_text("def f(:\n")
    with pytest.raises(ConfigurationError, match=r"broken_part\.py, line 1: it cannot be read as Python"):
        read_code("broken_part", tmp_path)


def test_an_own_module_never_shadows_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("def f(text):\n    return [text]\n")
    assert read_code("tasks", tmp_path).files == ()
