"""The code keeps its shape: imports point down, names are unique, modules hold one idea, starting is light."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import flows
import rag_eval
import tasks
from rag_eval import errors

ROOT = Path(__file__).parent.parent
LAYERS = (
    "rag_eval.distribution rag_eval.documents rag_eval.errors rag_eval.formatting rag_eval.lazy "
    "rag_eval.parts rag_eval.retry rag_eval.storage rag_eval.tables rag_eval.tokens rag_eval.types",
    "rag_eval.chunking rag_eval.embedding rag_eval.llm rag_eval.metrics rag_eval.retrieval "
    "rag_eval.sample rag_eval.stats rag_eval.stores",
    "rag_eval.generation rag_eval.ground_truth rag_eval.services",
    "rag_eval.config",
    "rag_eval.pipeline",
    "rag_eval.evaluation rag_eval.results",
    "rag_eval.sweep",
    "rag_eval.experiments rag_eval.reports",
    "rag_eval",  # the names that the library offers
    "tasks",
    "flows",
    "rag_eval.cli",
)
LAYER = {package: layer for layer, packages in enumerate(LAYERS) for package in packages.split()}
HEAVY = {"lancedb", "openai", "langsmith", "prefect"}
SHORT = 60
LONG = 500
IMPORT_SHARE = 0.085


@cache
def sources() -> dict[str, Path]:
    """The file of every module of ours."""
    paths = sorted(path for top in ("rag_eval", "tasks", "flows") for path in (ROOT / top).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(sources()[module].read_text(encoding="utf-8"))


def line_count(module: str) -> int:
    return len(sources()[module].read_text(encoding="utf-8").splitlines())


def package_of(module: str) -> str:
    """The package or the lone module that has a place among the layers."""
    return next(name for name in (".".join(module.split(".")[:depth]) for depth in (2, 1)) if name in LAYER)


def imports(module: str) -> Iterator[str]:
    """What a module of ours imports of ours: at its top, inside functions and for type checkers only."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in sources())
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import: write the whole name"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in sources() else str(node.module) for name in inner if node.module in sources())


def named(module: str) -> Iterator[str]:
    """The modules that strings name, as registries do: ``package.module`` or ``package.module:Name``; and stubs."""
    if sources()[module].with_suffix(".pyi").exists():
        yield from stub_names(module).values()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            name = node.value.partition(":")[0]
            if name in sources():
                yield name


@cache
def package_edges() -> dict[tuple[str, str], set[str]]:
    """Which package depends on which other, and through which modules."""
    edges: dict[tuple[str, str], set[str]] = defaultdict(set)
    for module in sources():
        for found in (*imports(module), *named(module)):
            edges[package_of(module), package_of(found)].add(f"{module} -> {found}")
    return {edge: ways for edge, ways in edges.items() if edge[0] != edge[1]}


def cycle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """The nodes of one cycle; empty if there is none."""
    left = {node: set(below) for node, below in graph.items()}
    while free := [node for node, below in left.items() if not below & left.keys()]:
        for node in free:
            del left[node]
    path = [next(iter(left))] if left else []
    while path and path[-1] not in path[:-1]:
        path.append(min(left[path[-1]] & left.keys()))
    return path[path.index(path[-1]) :] if path else []


def faults() -> Iterator[str]:
    """Everything that breaks a rule on edges, names and sizes, each in a few words."""
    for user, used in package_edges():
        if LAYER[user] < LAYER[used]:
            yield f"{user} -> {used}"
    classes = Counter(
        node.name
        for module in sources()
        for node in tree(module).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    yield from (f"class {name}" for name, count in classes.items() if count > 1)
    graph = {module: set(imports(module)) - {module} for module in sources()}
    while cycle := cycle_in(graph):
        yield f"cycle {', '.join(sorted(set(cycle)))}"
        graph[cycle[0]].discard(cycle[1])
    basenames = Counter(path.name for path in sources().values() if path.name != "__init__.py")
    yield from (f"basename {name}" for name, count in basenames.items() if count > 1)
    importers: dict[str, set[str]] = defaultdict(set)
    for module in sources():
        for found in (*imports(module), *named(module)):
            importers[found] |= {module} - {found}
    # A part that a registry names and a step of the pipeline are rooms of their own, however small.
    alone = {found for module in sources() for found in named(module)} | {
        module for module, path in sources().items() if path.name == "__init__.py" or module.startswith("tasks.")
    }
    for module in sources():
        if line_count(module) < SHORT and len(importers[module]) == 1 and module not in alone:
            yield f"short {module}"
        if line_count(module) > LONG:
            yield f"long {module}"
    statements = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for module in sources()
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    if sum(statements) > IMPORT_SHARE * sum(map(line_count, sources())):
        yield "share of imports"


def test_every_name_in_a_registry_is_there() -> None:
    texts = {
        (module, node.value)
        for module in sources()
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named = [(module, text) for module, text in texts if re.fullmatch(r"(rag_eval|tasks|flows)(\.\w+)+:\w+", text)]
    missing = [(module, text) for module, text in sorted(named) if not hasattr(*_module_and_name(text))]
    assert (len(named) > 40, missing) == (True, [])


def _module_and_name(path: str) -> tuple[object, str]:
    module, _, name = path.partition(":")
    return importlib.import_module(module) if module in sources() else None, name


def test_every_package_has_its_layer() -> None:
    assert {package_of(module) for module in sources()} == set(LAYER)


def test_edges_names_and_sizes_keep_the_rules() -> None:
    ways = {f"{user} -> {used}": sorted(ways) for (user, used), ways in package_edges().items()}
    assert {fault: ways.get(fault, []) for fault in faults()} == {}


def test_packages_of_one_layer_form_no_cycle() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for user, used in package_edges():
        if LAYER[user] == LAYER[used]:
            graph[user].add(used)
    assert cycle_in(graph) == []


def test_a_cycle_would_be_seen() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) in (["a", "b", "c", "a"], ["b", "c", "a", "b"])
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_the_library_does_not_know_prefect() -> None:
    for module in sources():
        if module.startswith("rag_eval") and not module.startswith("rag_eval.cli"):
            nodes = [node for node in ast.walk(tree(module)) if isinstance(node, ast.Import | ast.ImportFrom)]
            names = {alias.name for node in nodes for alias in node.names} | {
                getattr(node, "module", "") for node in nodes
            }
            assert not [name for name in names if str(name).split(".")[0] == "prefect"], f"{module} imports Prefect"


ONE_SYSTEM = {"fcntl", "grp", "msvcrt", "pty", "pwd", "resource", "syslog", "termios", "winreg"}
SOME_SYSTEMS = {"fork", "getuid", "geteuid", "killpg", "setsid", "uname", "sched_getaffinity", "SIGKILL", "SIGHUP"}


def test_nothing_that_some_systems_lack_is_used_without_asking() -> None:
    for module in sources():
        at_import = [node for node in tree(module).body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {alias.name for node in at_import for alias in node.names} | {
            getattr(node, "module", "") for node in at_import
        }
        assert not names & ONE_SYSTEM, f"{module} cannot be imported everywhere"
        for part in tree(module).body:
            used = {node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute)} & SOME_SYSTEMS
            if used:
                asked = any(word in ast.unparse(part) for word in ("hasattr(os", "sys.platform", "os.name"))
                assert asked, f"{module} uses {used}, which not every system has"


def drawn_tree() -> dict[str, str]:
    """Each error in the drawing of the docstring, with the one that it is drawn below."""
    parents: list[str] = []
    drawn = {}
    for indent, name in re.findall(r"^( +)(\w+(?:Error|Exception))\b", errors.__doc__ or "", re.MULTILINE):
        depth = len(indent) // 4 - 1
        drawn[name] = parents[depth - 1] if depth else ""
        parents[depth:] = [name]
    return drawn


def test_the_errors_are_drawn_as_they_are() -> None:
    classes = [found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, Exception)]
    bases = {found.__name__: found.__base__.__name__ for found in classes if found.__base__ is not None}
    assert drawn_tree() == bases | {"RagEvalError": ""}


def test_every_error_that_is_raised_to_a_caller_stands_in_the_tree() -> None:
    strays = []
    for module in sources():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef) and module != "rag_eval.errors":
                found = [base.id for base in node.bases if isinstance(base, ast.Name)]
                strays += [f"{module}.{node.name}" for base in found if base in vars(errors)]
    assert strays == []


def test_the_errors_know_no_other_module_of_ours() -> None:
    assert list(imports("rag_eval.errors")) == []


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


def stub_names(package: str) -> dict[str, str]:
    """The names that a package's stub offers, and their modules."""
    stub = ast.parse(sources()[package].with_suffix(".pyi").read_text(encoding="utf-8"))
    found = [node for node in ast.walk(stub) if isinstance(node, ast.ImportFrom)]
    return {str(alias.asname): str(node.module) for node in found for alias in node.names if alias.asname == alias.name}


@pytest.mark.parametrize("package", ["rag_eval", "rag_eval.experiments"])
def test_a_type_checker_sees_the_names_that_are_offered(package: str) -> None:
    offered = importlib.import_module(package)
    assert sorted(stub_names(package)) == sorted(offered.__all__)
    named = stub_names(package).items()
    assert not [name for name, module in named if not hasattr(importlib.import_module(module), name)]
    assert not [name for name in offered.__all__ if name not in dir(offered)]


@pytest.mark.parametrize("package", ["rag_eval", "rag_eval.experiments"])
def test_every_method_that_users_may_call_says_what_it_does(package: str) -> None:
    offered = [getattr(importlib.import_module(package), name) for name in stub_names(package)]
    methods = {
        f"{one.__name__}.{name}": inspect.getdoc(found)
        for one in offered
        if isinstance(one, type) and not issubclass(one, Exception)
        for base in one.__mro__
        if base.__module__.startswith("rag_eval.")
        for name in vars(base)
        if not name.startswith("_") and (callable(found := getattr(one, name)) or isinstance(found, property))
    }
    assert [name for name, told in methods.items() if not told] == []


def all_modules_after(code: str) -> set[str]:
    code += "\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def modules_after(code: str) -> set[str]:
    return {module.split(".")[0] for module in all_modules_after(code)}


def test_importing_the_library_is_light() -> None:
    code = "import time; began = time.process_time(); import rag_eval; taken = time.process_time() - began"
    assert not modules_after(f"{code}\nassert taken < 0.1, taken") & HEAVY


def test_a_name_loads_only_its_own_module() -> None:
    ours = {module for module in all_modules_after("from rag_eval import Document") if module.startswith("rag_eval.")}
    below = {
        f"rag_eval.{name}" for name in ("storage", "distribution", "documents", "errors", "formatting", "lazy", "types")
    }
    assert {package_of(module) for module in ours} <= below


def test_the_result_of_an_experiment_has_its_public_type(tmp_path: Path) -> None:
    result = rag_eval.evaluatorq("one", data=[{"input": 1}], tasks=[dict], output_dir=tmp_path, outputs=[])
    assert isinstance(result, rag_eval.ExperimentResult)


def test_help_is_light() -> None:
    code = "import contextlib, sys; sys.argv = ['rag-eval', '--help']; from rag_eval.cli.main import main"
    code += "\nwith contextlib.suppress(SystemExit): main()"
    loaded = modules_after(code)
    assert "typer" in loaded
    assert not loaded & (HEAVY | {"numpy", "polars", "pyarrow", "pydantic", "starlette"})
