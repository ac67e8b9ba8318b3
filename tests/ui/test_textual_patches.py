"""Only textual_patches may use what Textual does not promise to keep: its private modules, methods and attributes."""

import ast
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType

import pytest

from gpuconsole import ui

ALLOWED = "gpuconsole.ui.textual_patches"
LIBRARIES = ("textual", "rich")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def in_library(module: str) -> bool:
    return module.split(".")[0] in LIBRARIES


def attributes_of_self(node: ast.AST) -> Iterator[str]:
    """The attributes that methods use of their own object."""
    for found in ast.walk(node):
        if isinstance(found, ast.Attribute) and isinstance(found.value, ast.Name) and found.value.id in ("self", "cls"):
            yield found.attr


@cache
def attributes_of_classes(module: str) -> dict[str, set[str]]:
    """Class → the attributes that its methods use of their own object, for a module of Textual or Rich."""
    try:
        tree = ast.parse(inspect.getsource(import_module(module)))
    except (OSError, TypeError):
        return {}
    return {node.name: set(attributes_of_self(node)) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def private_names(cls: type) -> frozenset[str]:
    """The private methods and attributes that a class of Textual or Rich has."""
    used = attributes_of_classes(cls.__module__).get(cls.__name__, set())
    return frozenset(filter(is_private, used.union(vars(cls))))


@cache
def all_private_names() -> frozenset[str]:
    """The private methods and attributes of the classes of Textual and Rich that the console loads."""
    for name in MODULES:
        import_module(name)
    loaded = [module for name, module in sys.modules.items() if in_library(name)]
    classes = {cls for module in loaded for cls in list(vars(module).values()) if inspect.isclass(cls)}
    return frozenset(name for cls in classes if in_library(cls.__module__) for name in private_names(cls))


def inherited(cls: type) -> frozenset[str]:
    """The private names that a class has from the classes of Textual and Rich that it is made of."""
    return frozenset(name for base in cls.__mro__ if in_library(base.__module__) for name in private_names(base))


def class_findings(cls: type, tree: ast.ClassDef) -> Iterator[str]:
    """The private names of Textual that a class overrides, or uses of its own object."""
    private = inherited(cls)
    for statement in tree.body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name in private:
            yield f"{tree.name} overrides {statement.name}"
        elif isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        for target in targets:
            if isinstance(target, ast.Name) and target.id in private:
                yield f"{tree.name} overrides {target.id}"
    for name in sorted(private.intersection(attributes_of_self(tree))):
        yield f"{tree.name} uses self.{name}"


def import_findings(tree: ast.AST) -> Iterator[str]:
    """Imports of private modules, or of private names, of Textual and Rich."""
    for node in ast.walk(tree):
        paths: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            paths = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            paths = [name.name for name in node.names]
        for path in paths:
            if in_library(path) and any(map(is_private, path.split("."))):
                yield f"imports {path}"


def foreign_findings(module: ModuleType, tree: ast.AST) -> Iterator[str]:
    """Private names of Textual that are used of another object, unless the module itself defines them."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own |= set(attributes_of_self(tree))
    for cls in vars(module).values():
        if inspect.isclass(cls) and cls.__module__ == module.__name__:
            own -= inherited(cls)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or ast.unparse(node.value) in ("self", "cls"):
            continue
        if node.attr in all_private_names() - own:
            yield f"uses {ast.unparse(node)}"


def findings(module: ModuleType) -> list[str]:
    """What a module uses of Textual's private parts."""
    tree = ast.parse(inspect.getsource(module))
    found = [*import_findings(tree), *foreign_findings(module, tree)]
    for node in ast.walk(tree):
        cls = vars(module).get(node.name) if isinstance(node, ast.ClassDef) else None
        if isinstance(node, ast.ClassDef) and inspect.isclass(cls):
            found += class_findings(cls, node)
    return found


MODULES = [found.name for found in pkgutil.walk_packages(ui.__path__, "gpuconsole.ui.") if found.name != ALLOWED]


@pytest.mark.parametrize("name", MODULES)
def test_private_textual_names_stay_in_one_module(name: str) -> None:
    assert findings(import_module(name)) == []


def test_private_names_are_found() -> None:
    found = findings(import_module(ALLOWED))
    wanted = {
        "imports textual.widgets._select.SelectOverlay",
        "uses timer._skip",
        "uses self.app._batch_count",
        "TunedApp overrides _build_driver",
        "TunedScreen uses self._size",
    }
    assert wanted <= set(found)
