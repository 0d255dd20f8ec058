"""The house keeps its shape: imports point down, exports are sorted and real, starting is light."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import flows
import rag_eval
import tasks

ROOT = Path(__file__).parent.parent
FORBIDDEN = {"rag_eval": {"prefect", "tasks", "flows"}, "tasks": {"flows"}, "flows": set[str]()}
HEAVY = {"lancedb", "openai", "langsmith", "prefect"}


def imported_packages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("floor", FORBIDDEN)
def test_imports_point_down_only(floor: str) -> None:
    files = list((ROOT / floor).rglob("*.py"))
    assert files
    for path in files:
        assert not imported_packages(path) & FORBIDDEN[floor], f"{path} imports from a floor above"


def export_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, each by name: the order that ruff keeps."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


@pytest.mark.parametrize("package", [rag_eval, tasks, flows])
def test_every_module_imports_and_its_exports_are_sorted_and_real(package: object) -> None:
    name = package.__name__  # type: ignore[attr-defined]  # a module
    path = package.__path__  # type: ignore[attr-defined]  # a package
    modules = [name, *(module.name for module in pkgutil.walk_packages(path, f"{name}."))]
    for module in map(importlib.import_module, modules):
        exported = getattr(module, "__all__", [])
        assert list(exported) == sorted(exported, key=export_order), f"__all__ of {module.__name__} is not sorted"
        assert len(exported) == len(set(exported))
        assert [entry for entry in exported if not hasattr(module, entry)] == []


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return {module.split(".")[0] for module in done.stdout.split()}


def test_importing_the_library_is_light() -> None:
    assert not modules_after("import rag_eval") & HEAVY


def test_help_is_light() -> None:
    code = "import contextlib, sys; sys.argv = ['rag-eval', '--help']; from flows.cli.main import main"
    code += "\nwith contextlib.suppress(SystemExit): main()"
    loaded = modules_after(code)
    assert "typer" in loaded
    assert not loaded & HEAVY
