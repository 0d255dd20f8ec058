"""Compute the digest of a user's code from the files that decide a ``module:Name``, without running them.

The file of the module counts, and every file of the project that it imports, directly or not, including imports inside
functions. Comments, layout, and code for scripts and type checkers do not count. Installed packages count as name and
version if one of these files imports them. ``Code.unknown`` lists what cannot be known: imports of computed names,
``eval`` and ``exec``.
"""

import ast
import functools
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

from rag_eval.distribution import PRODUCT, VERSION
from rag_eval.errors import ConfigurationError
from rag_eval.parts.definition import versions_of
from rag_eval.storage.files import data_sha256

OURS = ("rag_eval", "tasks", "flows", "deployments")
"""Top-level packages of this project, which count as one installed package."""

PROJECT_FOLDER = "RAG_EVAL_PROJECT_FOLDER"
"""Environment variable in which a pull step passes the project folder to the flow."""

_COMPUTED = frozenset({"eval", "exec", "run_path", "run_module", "spec_from_file_location", "exec_module"})
_READING = frozenset({"open", "read_text", "read_bytes", "environ", "getenv"})


class UserModules(MetaPathFinder):
    """Finds modules beside the benchmark file, after all other modules. It is an entry of ``sys.meta_path``."""

    folder: Path | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a top-level module in the folder; submodules are found by the path of their package."""
        return None if path is not None or self.folder is None else PathFinder.find_spec(name, [str(self.folder)])


@dataclass(frozen=True)
class Code:
    """The digest of the code behind a module, and its files.

    ``unknown`` says where code is chosen at run time, and ``reads`` where it reads files or the environment, which the
    digest does not cover.
    """

    digest: str
    files: tuple[Path, ...]
    unknown: tuple[str, ...]
    reads: tuple[str, ...]


def enter_folder(directory: str) -> dict[str, str]:
    """Set the project folder of the run: the pull step of a deployment.

    The flow changes to this folder when it starts; Prefect must not start there, or it would load modules and settings
    from it.
    """
    os.environ[PROJECT_FOLDER] = directory
    ours = str(Path(__file__).parents[2])
    sys.path.insert(0, ours)
    try:
        for name in OURS:  # a package in the current folder may be called flows or tasks
            import_module(name)
    finally:
        sys.path.remove(ours)
    return {}


def read_code(module: str, folder: Path) -> Code:
    """Read the code of a module, found as Python does or in ``folder``; raises ``ConfigurationError``."""
    files: dict[str, _File] = {}
    packages: dict[str, str] = {}
    todo, seen = [module], set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        spec = find_module(name, folder)
        if (path := project_file(spec)) is not None:
            files[name] = file = _File.read(name, path)
            todo += [name.rpartition(".")[0]] if "." in name else []
            todo += [used for used, is_certain in file.imports if is_certain or project_file(find_module(used, folder))]
        elif spec is None or spec.origin is not None:  # a namespace package is represented by the modules inside it
            packages |= package_versions(name.partition(".")[0])
    return _joined(files, packages)


def _joined(files: Mapping[str, "_File"], packages: Mapping[str, str]) -> Code:
    ordered = sorted(files.items())
    return Code(
        data_sha256([[[name, file.tree] for name, file in ordered], packages]),
        tuple(file.path for _, file in ordered),
        tuple(line for file in files.values() for line in file.unknown),
        tuple(line for file in files.values() for line in file.reads),
    )


@dataclass(frozen=True)
class _File:
    """A file of the project: its syntax tree as plain data, the modules it imports, and where its code is uncertain."""

    path: Path
    tree: list[object]
    imports: list[tuple[str, bool]]
    unknown: list[str]
    reads: list[str]

    @classmethod
    def read(cls, module: str, path: Path) -> "_File":
        statements = _statements(path)
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        nodes = [node for statement in statements for node in ast.walk(statement)]
        places = [(f"{path.name}, line {getattr(node, 'lineno', 0)}", node) for node in nodes]
        return cls(
            path,
            [_canonical(statement) for statement in statements],
            [found for node in nodes for found in _imported(node, package)],
            [f"{place}: {what}" for place, node in places for what in _computed(node)],
            [f"{place}: {used}" for place, node in places if (used := _named(node)) in _READING],
        )


def _named(node: ast.AST) -> str:
    """Return the name or the attribute that a node reads; empty for other nodes."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _statements(path: Path) -> list[ast.stmt]:
    """Parse a file; raises ``ConfigurationError`` when it is not Python."""
    try:
        statements = ast.parse(path.read_bytes(), str(path)).body
    except (OSError, SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ConfigurationError(f"{path.name}{line}: it cannot be read as Python ({error})") from None
    return [statement for statement in statements if not _never_runs(statement)]


def _never_runs(statement: ast.stmt) -> bool:
    """Return whether importing the file skips this node: code for type checkers, or the main block."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    test = ast.unparse(statement.test)
    return test == "__name__ == '__main__'" or test.rpartition(".")[2] == "TYPE_CHECKING"


def _imported(node: ast.AST, package: str) -> Iterator[tuple[str, bool]]:
    """Yield the modules that a node imports.

    The x of ``from m import x`` may be a module or not, and is marked as uncertain.
    """
    if isinstance(node, ast.Import):
        yield from ((alias.name, True) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        source = ".".join([*above, *([node.module] if node.module else [])])
        yield source, True
        yield from ((f"{source}.{alias.name}", False) for alias in node.names if alias.name != "*")
    elif _is_import_call(node) and (name := _literal_name(node)):
        yield name, True


def _computed(node: ast.AST) -> Iterator[str]:
    """Yield the reasons why the code of a call cannot be known."""
    if _is_import_call(node) and not _literal_name(node):
        yield f"{_called(node)} of a computed name"
    elif _called(node) in _COMPUTED:
        yield _called(node)


def _called(node: ast.AST) -> str:
    """Return the name of the function that a node calls, or an empty text."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _is_import_call(node: ast.AST) -> bool:
    return _called(node) in ("import_module", "__import__")


def _literal_name(node: ast.AST) -> str:
    """Return the absolute name in an import call with a literal, or an empty text."""
    argument = node.args[0] if isinstance(node, ast.Call) and node.args else None
    name = argument.value if isinstance(argument, ast.Constant) else None
    return name if isinstance(name, str) and not name.startswith(".") else ""


def _canonical(node: object) -> object:
    """Return a syntax tree as plain data that is the same in every version of Python, without its layout."""
    if isinstance(node, ast.AST):
        skipped = ("ctx", "type_comment", "kind")
        pairs = [(name, value) for name, value in ast.iter_fields(node) if name not in skipped]
        return [type(node).__name__, *([name, _canonical(value)] for name, value in pairs if value not in (None, []))]
    if isinstance(node, list):
        return [_canonical(item) for item in node]
    return repr(node)


def find_module(name: str, folder: Path) -> ModuleSpec | None:
    """Find a module without importing it or its packages; return None if there is none.

    Our own and installed packages come first, so that a file in ``folder`` cannot shadow them.
    """
    top, *inner = name.split(".")
    # Do not use sys.modules: the imported module may be from the folder of another benchmark.
    specs = (finder.find_spec(top, None) for finder in sys.meta_path if not isinstance(finder, UserModules))
    spec = next(filter(None, specs), None) or PathFinder.find_spec(top, [str(folder)])
    path = top
    for step in inner:
        if spec is None or spec.submodule_search_locations is None:
            return None
        path = f"{path}.{step}"
        spec = PathFinder.find_spec(path, list(spec.submodule_search_locations))
    return spec


def project_file(spec: ModuleSpec | None) -> Path | None:
    """Return the source file of a module of the user's project; None for our own, installed and built-in modules."""
    if spec is None or spec.name.partition(".")[0] in OURS or not spec.has_location or spec.origin is None:
        return None
    path = Path(spec.origin)
    is_installed = bool({"site-packages", "dist-packages"}.intersection(path.parts)) or any(
        folder in path.parents for folder in _standard_folders()
    )
    return None if is_installed or path.suffix != ".py" else path.resolve()


@functools.cache
def _standard_folders() -> tuple[Path, ...]:
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    return tuple(dict.fromkeys(Path(path) for path in paths if path))


@functools.cache
def _packages() -> dict[str, list[str]]:
    return dict(packages_distributions())


def package_versions(top: str) -> dict[str, str]:
    """Return the installed distributions that provide a top-level package, with their versions."""
    if top in sys.stdlib_module_names:
        return {}
    if top in OURS:
        return {PRODUCT: VERSION}
    names = _packages().get(top, [])
    return {name: known for name, known in versions_of(names).items() if known is not None}
