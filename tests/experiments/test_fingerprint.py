"""An interrupted experiment is known again by its code."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rag_eval.experiments.callables import fingerprint, named_evaluators, named_tasks
from rag_eval.experiments.composition import Normalised


def test_other_code_within_a_composition_is_other_code() -> None:
    def one(result: int, expected: int) -> float:
        return 1.0

    def other(result: int, expected: int) -> float:
        return 0.5

    other.__name__ = "one"
    tasks = named_tasks([str])
    prints = [fingerprint("x", tasks, named_evaluators([Normalised(part, 0, 1)])) for part in (one, other, one)]
    assert prints[0] == prints[2] != prints[1]


def test_an_object_that_a_task_is_given_does_not_make_it_another() -> None:
    def work(row: Any, client: object) -> None: ...

    kept = (object(), "a")
    prints = {fingerprint("x", named_tasks([partial(work, client=object())]), []) for _ in range(3)}
    prints |= {fingerprint("x", named_tasks([partial(work, client=client)]), []) for client in (object(), object())}
    assert len(prints) == 1
    assert fingerprint("x", named_tasks([partial(work, client=kept)]), []) not in prints
    assert fingerprint("x", named_tasks([partial(work, client="a")]), []) not in prints


def test_the_code_of_a_task_of_fields_is_its_own() -> None:
    class Joined:
        def __call__(self, input: str, output: str) -> str:
            return input + output

    class Other:
        def __call__(self, input: str, output: str) -> str:
            return output + input

    Other.__name__, Other.__qualname__ = Joined.__name__, Joined.__qualname__
    prints = [fingerprint("x", named_tasks([kind()]), []) for kind in (Joined, Other, Joined)]
    assert prints[0] == prints[2] != prints[1]


USES = """
PROMPT = "Answer: "
KINDS = ("a", "b")

class Client:
    def __init__(self, model="m"):
        self.model = model
    def ask(self, text):
        return text + self.model

def answered(row):
    return PROMPT + row["input"] if row["input"] in {"alpha", "beta", "gamma", "delta"} else KINDS[0]

def work(row):
    return [Client().ask(part) for part in answered(row)]
"""


def printed(code: str) -> str:
    module: dict[str, Any] = {"__name__": "answers"}
    exec(code, module)  # noqa: S102  # as a file is run
    return fingerprint("x", named_tasks([module["work"]]), [])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"Answer: "', '"Answer in one word: "'),
        ("PROMPT + row", "row['x'] + row"),
        ("text + self.model", "self.model + text"),
        ('model="m"', 'model="n"'),
        ('"gamma"', '"epsilon"'),
        ("KINDS[0]", "KINDS[1]"),
        ('("a", "b")', '("a", "c")'),
    ],
)
def test_what_a_task_uses_of_its_file_belongs_to_its_code(before: str, after: str) -> None:
    assert before in USES
    assert printed(USES) == printed(USES)
    assert printed(USES) != printed(USES.replace(before, after))


def test_the_same_code_is_the_same_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from rag_eval.experiments.callables import fingerprint\n"
        f"from rag_eval.experiments.callables import named_tasks\n{USES}\n"
        "print(fingerprint('x', named_tasks([work]), []))\n"
    )
    root = str(Path(__file__).parents[2])
    found = {
        subprocess.check_output(
            [sys.executable, "script.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": root, "PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    }
    assert len(found) == 1
