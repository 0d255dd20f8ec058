"""The digest of a user's code: everything that decides the result of a ``module:Name``, read without running it.

Starting at the statements that bind the name, every name they use is followed through the files of the project,
including imports inside functions. ``from m import x`` follows x; ``import m`` counts all of m. Comments, docstrings
and layout do not count. Statements with effects at import (registrations, changes of other objects) always count, as
does all of a file with a module ``__getattr__``, a metaclass or an ``__init_subclass__``. Installed packages count as
name and version if the followed code imports them directly.

``Code.unknown`` lists what cannot be known from the code: imports of computed names, ``eval`` and ``exec``.
"""

import ast
import functools
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
"""The top-level packages of this project, which count as one installed package."""

PROJECT_FOLDER = "RAG_EVAL_PROJECT_FOLDER"
"""The environment variable in which a pull step leaves the folder for the flow."""

_IMPORTING = frozenset({"import_module", "__import__"})
_COMPUTED = frozenset({"eval", "exec", "run_path", "run_module", "spec_from_file_location", "exec_module"})
_READING = frozenset({"open", "read_text", "read_bytes", "environ", "getenv"})
_RUNNING = (ast.If, ast.Try, ast.For, ast.While, ast.With, ast.Match, ast.AugAssign)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_ALL = "*"


class UserModules(MetaPathFinder):
    """Finds modules beside the benchmark file, after all other modules; it is in ``sys.meta_path``."""

    folder: Path | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a top-level module in the folder; submodules are found by the path of their package."""
        return None if path is not None or self.folder is None else PathFinder.find_spec(name, [str(self.folder)])


@dataclass(frozen=True)
class Code:
    """The digest of the code behind a name, and its files.

    ``unknown`` says where code is chosen only at run time; ``reads`` where it reads files or the environment, which the
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


def read_code(module: str, name: str, folder: Path) -> Code:
    """Read the code of ``module:name``, found as Python does or in ``folder``; raises ``ConfigurationError``."""
    walk = _Walk(folder)
    walk.follow(module, name)
    return walk.code()


def find_module(name: str, folder: Path) -> ModuleSpec | None:
    """Find a module without importing it or its packages; return None if there is none.

    Our own and installed packages come first, so that a file in ``folder`` cannot shadow them.
    """
    top, *inner = name.split(".")
    # Not sys.modules: the imported module may be from the folder of another benchmark.
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
    """Return the source file of a module of the user's project; None for ours, installed and built-in ones."""
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


@dataclass
class _Import:
    """What an import binds: a module, or an attribute of it."""

    alias: str
    module: str
    attribute: str | None


@dataclass
class _Module:
    """A source file of the project, and the top-level statements that bind each name."""

    name: str
    path: Path
    statements: list[ast.stmt]
    bindings: dict[str, list[int]] = field(default_factory=dict)
    counted: set[int] = field(default_factory=set)

    @classmethod
    def read(cls, name: str, path: Path) -> "_Module":
        """Parse a file; raises ``ConfigurationError`` when it is not Python."""
        try:
            statements = ast.parse(path.read_bytes(), str(path)).body
        except (OSError, SyntaxError, ValueError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            raise ConfigurationError(f"{path.name}{line}: it cannot be read as Python ({error})") from None
        module = cls(name, path, statements)
        for number, statement in enumerate(statements):
            for bound in () if _never_runs(statement) else _bound(statement):
                module.bindings.setdefault(bound, []).append(number)
        return module

    @property
    def is_whole(self) -> bool:
        """Whether its statements affect one another in ways that names do not show."""
        return "__getattr__" in self.bindings or any(map(_watches_subclasses, self.statements))

    def imports_in(self, tree: ast.AST) -> Iterator[_Import]:
        """Yield the names that imports bind; ``import a.b`` yields both modules."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    yield _Import(alias.asname or top, alias.name, None)
                    if alias.asname is None and top != alias.name:
                        yield _Import(top, top, None)
            elif isinstance(node, ast.ImportFrom):
                source = self._absolute(node)
                for alias in node.names:
                    yield _Import(alias.asname or alias.name, source, alias.name)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.name.split(".") if self.path.name == "__init__.py" else self.name.split(".")[:-1]
        return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])


class _Walk:
    """Counts the statements that a name depends on, each once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[str, _Module | None] = {}
        self._followed: set[tuple[str, str]] = set()
        self._imports: set[str] = set()
        self._packages: dict[str, str] = {}
        self._unknown: dict[str, None] = {}
        self._reads: dict[str, None] = {}
        self._keeps_docs = False

    def code(self) -> Code:
        modules = sorted((module for module in self._modules.values() if module), key=lambda module: module.name)
        trees = {}
        for module in modules:
            docs = {n for n, text in enumerate(module.statements) if _is_text(text)} if self._keeps_docs else set()
            counted = sorted(module.counted | docs)
            trees[module.name] = [_canonical(module.statements[number], self._keeps_docs) for number in counted]
        digest = data_sha256([trees, sorted(self._imports), self._packages])
        return Code(digest, tuple(module.path for module in modules), tuple(self._unknown), tuple(self._reads))

    def follow(self, module_name: str, name: str) -> None:
        """Count the statements that bind a name in a module, and all that they use; ``*`` counts the whole module."""
        if (module_name, name) in self._followed:
            return
        self._followed.add((module_name, name))
        module = self._load(module_name)
        if module is None:
            return
        for number in range(len(module.statements)) if name == _ALL else module.bindings.get(name, ()):
            statement = module.statements[number]
            if not isinstance(statement, _IMPORTS):
                self._count(module, number)
                continue
            for imported in module.imports_in(statement):
                if name in (imported.alias, _ALL):
                    self._follow_import(module, imported)
        if name not in module.bindings:
            for number in module.bindings.get(_ALL, ()):
                for imported in module.imports_in(module.statements[number]):
                    self.follow(imported.module, name)

    def _follow_import(self, module: _Module, imported: _Import) -> None:
        self._imports.add(f"{module.name}.{imported.alias} is {imported.module}:{imported.attribute or ''}")
        submodule = f"{imported.module}.{imported.attribute}"
        if imported.attribute is None or self._is_project_module(submodule):
            self.follow(imported.module if imported.attribute is None else submodule, _ALL)
        else:
            self.follow(imported.module, imported.attribute)

    def _is_project_module(self, name: str) -> bool:
        return project_file(find_module(name, self._folder)) is not None

    def _load(self, name: str) -> _Module | None:
        """Return a module of the project, with what its import runs counted; None for other modules."""
        if name in self._modules:
            return self._modules[name]
        spec = find_module(name, self._folder)
        path = project_file(spec)
        if path is None:
            self._modules[name] = None
            # A namespace package has no file, and counts by the modules inside it.
            if spec is None or spec.origin is not None:
                self._packages |= package_versions(name.partition(".")[0])
            return None
        module = self._modules[name] = _Module.read(name, path)
        if "." in name:
            self._load(name.rpartition(".")[0])
        for number, statement in enumerate(module.statements):
            if isinstance(statement, _IMPORTS):
                for imported in module.imports_in(statement):
                    if self._is_project_module(imported.module):
                        self._load(imported.module)
            elif module.is_whole or self._has_effects(module, statement):
                self._count(module, number)
        return module

    def _has_effects(self, module: _Module, statement: ast.stmt) -> bool:
        """Return whether importing the file runs this statement for more than the names it binds."""
        if isinstance(statement, _RUNNING) or not any(_bound(statement)):
            return True
        called: list[ast.expr] = []
        if isinstance(statement, _SCOPES):
            called += statement.decorator_list
            called += statement.bases if isinstance(statement, ast.ClassDef) else []
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            called += [node.func for node in ast.walk(statement.value) if isinstance(node, ast.Call)]
        roots = {node.id for expression in called for node in ast.walk(expression) if isinstance(node, ast.Name)}
        return any(self._is_project_name(module, root) for root in roots)

    def _is_project_name(self, module: _Module, name: str) -> bool:
        """Return whether a name is bound to code of the project, which may change other objects when called."""
        statements = [module.statements[number] for number in module.bindings.get(name, module.bindings.get(_ALL, ()))]
        return any(
            not isinstance(statement, _IMPORTS)
            or any(
                self._is_project_module(imported.module) or self._is_project_module(f"{imported.module}.{name}")
                for imported in module.imports_in(statement)
                if imported.alias in (name, _ALL)
            )
            for statement in statements
        )

    def _count(self, module: _Module, number: int) -> None:
        """Count a statement and follow the names that it uses."""
        statement = module.statements[number]
        if number in module.counted or _never_runs(statement):
            return
        module.counted.add(number)
        for imported in module.imports_in(statement):
            self._follow_import(module, imported)
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                self._check_call(module, node)
            if isinstance(node, ast.Attribute | ast.Name):
                name = node.id if isinstance(node, ast.Name) else node.attr
                self._keeps_docs |= name == "__doc__"
                if name in _READING:
                    self._reads[f"{module.path.name}, line {node.lineno}: {name}"] = None
                if isinstance(node, ast.Name):
                    self.follow(module.name, name)

    def _check_call(self, module: _Module, call: ast.Call) -> None:
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        where = f"{module.path.name}, line {call.lineno}"
        if name in _IMPORTING:
            target = call.args[0] if call.args else None
            if isinstance(target, ast.Constant) and isinstance(target.value, str) and not target.value.startswith("."):
                self.follow(target.value, _ALL)
            else:
                self._unknown[f"{where}: {name} of a computed name"] = None
        elif name in _COMPUTED:
            self._unknown[f"{where}: {name}"] = None
        elif name == "globals":
            self.follow(module.name, _ALL)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds at the top level; ``*`` for ``from m import *``."""
    if isinstance(statement, _SCOPES):
        yield statement.name
        return
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, _SCOPES):
            yield node.name
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            todo += ast.iter_child_nodes(node)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _never_runs(statement: ast.stmt) -> bool:
    """Return whether importing the file skips this: a docstring, code for type checkers, or the main block."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return _is_text(statement)
    test = ast.unparse(statement.test)
    return test == "__name__ == '__main__'" or test.rpartition(".")[2] == "TYPE_CHECKING"


def _watches_subclasses(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.ClassDef):
        return False
    methods = {node.name for node in statement.body if isinstance(node, _SCOPES)}
    return any(keyword.arg == "metaclass" for keyword in statement.keywords) or "__init_subclass__" in methods


def _canonical(node: object, keeps_docs: bool) -> object:
    """Return a syntax tree as plain data that is the same on every version of Python; layout is not in it."""
    if isinstance(node, ast.AST):
        fields: list[object] = [type(node).__name__]
        for name, value in ast.iter_fields(node):
            if name in ("ctx", "type_comment", "kind") or value is None or value == []:
                continue
            if name == "body" and isinstance(node, _SCOPES) and not keeps_docs and _is_text(value[0]):
                value = value[1:]
            fields.append([name, _canonical(value, keeps_docs)])
        return fields
    if isinstance(node, list):
        return [_canonical(item, keeps_docs) for item in node]
    return repr(node)
