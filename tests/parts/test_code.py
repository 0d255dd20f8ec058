import ast
import copy
import importlib
import random
import sys
from collections.abc import Callable, Iterable, Iterator
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


def files_of(folder: Path, reference: str) -> set[Path]:
    """The files that Python reads when the part is used; an edit of another one changes nothing for it."""
    module, _, name = reference.partition(":")
    with imports_from(folder):
        part = getattr(importlib.import_module(module), name)
        for text in TEXTS:
            PARTS[reference](part, text)
        return {Path(file) for one in [*sys.modules.values()] if (file := getattr(one, "__file__", None))}


def digests(folder: Path, references: Iterable[str] = PARTS) -> dict[str, str]:
    found = {}
    for reference in references:
        try:
            found[reference] = read_code(reference.partition(":")[0], folder).digest
        except ConfigurationError as error:
            found[reference] = str(error)
    return found


class Edit(ast.NodeTransformer):
    """One edit: the chosen node is changed."""

    def __init__(self, chosen: int) -> None:
        self.count, self.chosen, self.done = 0, chosen, ""

    def generic_visit(self, node: ast.AST) -> Any:
        super().generic_visit(node)
        for changed in variants(node):
            self.count += 1
            if self.count - 1 == self.chosen:
                self.done = f"line {getattr(node, 'lineno', 0)}: {type(node).__name__}"
                return changed
        return node


def variants(node: Any) -> Iterator[ast.AST]:
    """What an edit could make of a node."""

    def but(**fields: Any) -> Any:
        changed = copy.copy(node)
        for name, value in fields.items():
            setattr(changed, name, value)
        return changed

    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        yield from (but(value=node.value + 1), but(value=node.value + 7))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from (but(value=node.value + "x"), but(value="y" + node.value))
    elif isinstance(node, ast.Compare):
        swap: dict[type, type] = {ast.Gt: ast.LtE, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
        yield but(ops=[swap.get(type(op), type(op))() for op in node.ops])
    elif isinstance(node, ast.BinOp):
        yield from (but(op=op()) for op in (ast.Add, ast.Sub, ast.Mult) if not isinstance(node.op, op))
    elif isinstance(node, ast.Return) and node.value is not None:
        yield from (but(value=ast.Tuple([node.value], ast.Load())), but(value=None))
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield but(ifs=[])
    elif isinstance(node, ast.Slice):
        yield from (but(lower=ast.Constant(1)), but(upper=ast.Constant(2)))
    elif isinstance(node, ast.FunctionDef) and node.decorator_list:
        yield but(decorator_list=[])
    elif isinstance(node, ast.Expr | ast.Assign):
        yield ast.copy_location(ast.Pass(), node)


def all_edits() -> list[tuple[str, int]]:
    edits = []
    for name, source in PROJECT.items():
        counter = Edit(-1)
        counter.visit(ast.parse(source))
        edits += [(name, number) for number in range(counter.count)]
    return edits


def test_no_edit_that_changes_a_part_goes_unnoticed(tmp_path: Path) -> None:
    folder = write_project(tmp_path)
    before, gave = digests(folder), {reference: outcome(folder, reference) for reference in PARTS}
    assert not any("Error" in one for one in gave.values())
    files = {reference: files_of(folder, reference) for reference in PARTS}
    edits = all_edits()
    random.Random(1).shuffle(edits)  # noqa: S311  # an order that is the same every time
    assert len(edits) >= 80
    noticed, missed, needless = 0, [], 0
    for file, number in edits:
        edit = Edit(number)
        changed = ast.unparse(ast.fix_missing_locations(edit.visit(ast.parse(PROJECT[file]))))
        (folder / file).write_text(changed)
        now = digests(folder, [reference for reference in PARTS if folder / file in files[reference]])
        for reference in now:
            differs = outcome(folder, reference) != gave[reference]
            noticed += differs and now[reference] != before[reference]
            needless += not differs and now[reference] != before[reference]
            if differs and now[reference] == before[reference]:
                missed.append(f"{file} {edit.done}: {reference}")
        (folder / file).write_text(PROJECT[file])
    assert missed == []
    assert noticed >= 60
    assert digests(folder) == before
    print(f"{len(edits)} edits, {len(PARTS)} parts: {noticed} noticed, 0 missed, {needless} needless")


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
