"""Syntax tree of a CEL expression.

`&&` and `||` have a node type of their own, because they may absorb errors of their operands.
"""

from collections.abc import Iterator

from msgspec import Struct

Constant = str | int | float | bool | None


class Literal(Struct, frozen=True):
    """A constant."""

    value: Constant


class Name(Struct, frozen=True):
    """A variable."""

    name: str


class FieldAccess(Struct, frozen=True):
    """`of.field`; with `test` it is has(of.field)."""

    of: "Tree"
    field: str
    test: bool = False


class Element(Struct, frozen=True):
    """`of[key]`."""

    of: "Tree"
    key: "Tree"


class FunctionCall(Struct, frozen=True):
    """A call of a function, a method (its receiver is the first argument) or an operator (named by its sign)."""

    name: str
    arguments: tuple["Tree", ...]
    method: bool = False


class Either(Struct, frozen=True):
    """Operands joined by `||`, or by `&&`."""

    items: tuple["Tree", ...]
    decisive: bool
    """The operand value that decides the result alone: true for `||`, false for `&&`."""


class Ternary(Struct, frozen=True):
    """`test ? then : otherwise`."""

    test: "Tree"
    then: "Tree"
    otherwise: "Tree"


class Listed(Struct, frozen=True):
    """A list, `[item, ...]`."""

    items: tuple["Tree", ...]


class Mapped(Struct, frozen=True):
    """A map, `{key: value, ...}`."""

    items: tuple[tuple["Tree", "Tree"], ...]


class BindMacro(Struct, frozen=True):
    """`cel.bind(name, value, body)`."""

    name: str
    value: "Tree"
    body: "Tree"


Tree = Literal | Name | FieldAccess | Element | FunctionCall | Either | Ternary | Listed | Mapped | BindMacro


def height(tree: Tree) -> int:
    """Return the number of levels of a tree."""
    level, tallest = [tree], 0
    while level:
        level = [child for node in level for child in _children(node)]
        tallest += 1
    return tallest


def _children(tree: Tree) -> Iterator[Tree]:
    match tree:
        case FieldAccess(of):
            yield of
        case Element(of, key):
            yield from (of, key)
        case FunctionCall(arguments=items) | Either(items) | Listed(items):
            yield from items
        case Ternary(test, then, otherwise):
            yield from (test, then, otherwise)
        case Mapped(items):
            yield from (part for pair in items for part in pair)
        case BindMacro(_, value, body):
            yield from (value, body)
