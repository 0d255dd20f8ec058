"""Import the public names of a package on first use."""

import pkgutil
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` for the names that the package's ``__init__.pyi`` imports.

    Type checkers read the same stub, so that every name is listed once.
    """
    stub = (pkgutil.get_data(package, "__init__.pyi") or b"").decode()
    modules = {name: module for module, name in re.findall(r"(?m)^from (\S+) import (\w+) as ", stub)}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    order = sorted(modules, key=lambda name: (not name.isupper(), name[0].islower(), name))
    return order, load, lambda: sorted({*vars(sys.modules[package]), *modules})
