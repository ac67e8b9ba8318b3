"""Evaluation of a CEL expression tree over a set of variables."""

from collections.abc import Mapping
from typing import Any, assert_never

from gpuconsole.scheduling.devices.cel.functions import apply
from gpuconsole.scheduling.devices.cel.tree import (
    BindMacro,
    Either,
    Element,
    FieldAccess,
    FunctionCall,
    Listed,
    Literal,
    Mapped,
    Name,
    Ternary,
    Tree,
)
from gpuconsole.scheduling.devices.cel.values import EvaluationError


def evaluate(tree: Tree, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression; `names` are its variables. Raises EvaluationError."""
    match tree:
        case Literal(value):
            return value
        case Name(name):
            return names[name]
        case FieldAccess():
            return _member(tree, names)
        case Element(of, key):
            return _element(evaluate(of, names), evaluate(key, names))
        case FunctionCall(name, arguments):
            return apply(name, [evaluate(argument, names) for argument in arguments])
        case Either():
            return _either(tree, names)
        case Ternary(test, then, otherwise):
            return evaluate(then if _truth(evaluate(test, names)) else otherwise, names)
        case Listed(items):
            return [evaluate(item, names) for item in items]
        case Mapped(items):
            return {_key(evaluate(key, names)): evaluate(value, names) for key, value in items}
        case BindMacro(name, value, body):
            return evaluate(body, {**names, name: evaluate(value, names)})
        case _:
            assert_never(tree)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError("no such overload")
    return value


def _key(value: Any) -> str | int | bool:
    if not isinstance(value, (str, int, bool)):
        raise EvaluationError("unsupported key type")
    return value


def _member(tree: FieldAccess, names: Mapping[str, Any]) -> Any:
    owner = evaluate(tree.of, names)
    if not isinstance(owner, Mapping):
        raise EvaluationError(f"no such key: {tree.field}")
    if tree.test:
        return tree.field in owner
    return _element(owner, tree.field)


def _element(owner: Any, key: Any) -> Any:
    if isinstance(owner, list):
        if type(key) is not int or not 0 <= key < len(owner):
            raise EvaluationError(f"index out of bounds: {key}")
        return owner[key]
    if not isinstance(owner, Mapping):
        raise EvaluationError("no such overload")
    try:
        return owner[_key(key)]
    except KeyError:
        raise EvaluationError(f"no such key: {key}") from None


def _either(tree: Either, names: Mapping[str, Any]) -> bool:
    """Evaluate `||` or `&&`: an operand that decides the result alone wins over errors of the others, as in CEL."""
    failure: EvaluationError | None = None
    for item in tree.items:
        try:
            if _truth(evaluate(item, names)) is tree.decisive:
                return tree.decisive
        except EvaluationError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return not tree.decisive
