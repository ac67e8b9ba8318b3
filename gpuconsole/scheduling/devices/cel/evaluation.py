"""Evaluation of a CEL expression tree over a set of variables.

`FUNCTIONS` has the functions, methods and operators that an expression may use. Kubernetes adds two value types to
those of CEL: `Quantity` and `Semver`.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import total_ordering
from typing import Any, assert_never

from msgspec import Struct

from gpuconsole.model.resources import parse_quantity
from gpuconsole.scheduling.devices.cel.parsing import (
    BindMacro,
    FieldAccess,
    FunctionCall,
    IndexAccess,
    ListLiteral,
    Literal,
    LogicalOperation,
    MapLiteral,
    Name,
    Ternary,
    Tree,
)

_SEMVER = re.compile(
    r"(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)


class EvaluationError(Exception):
    """Error: the expression has no value for this device."""


class Quantity(Struct, frozen=True):
    """A Kubernetes quantity, exact."""

    value: Fraction

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Read a quantity. Raises EvaluationError."""
        try:
            return cls(parse_quantity(text))
        except ValueError:
            raise EvaluationError("quantities must match the regular expression") from None


@total_ordering
class Semver(Struct, frozen=True, order=False):
    """A semantic version; a pre-release comes before its release."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Semver":
        """Read a version of at most 64 characters; build metadata is dropped. Raises EvaluationError."""
        match = _SEMVER.fullmatch(text) if len(text) <= 64 else None
        if match is None:
            raise EvaluationError(f"No Major.Minor.Patch elements found in {text!r}")
        return cls(int(match[1]), int(match[2]), int(match[3]), tuple(match[4].split(".")) if match[4] else ())

    def __lt__(self, other: "Semver") -> bool:
        return self._rank < other._rank

    @property
    def _rank(self) -> tuple[object, ...]:
        pre = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre)
        return self.major, self.minor, self.patch, not pre, pre


INT64 = 2**63
_LONGEST_PATTERN = 256
_LONGEST_MATCHED = 128
_LONGEST_VALUE = 20_000
_MOST_REPEATS = 3

Function = Callable[..., Any]


def _checked_integer(value: int) -> int:
    if not -INT64 <= value < INT64:
        raise EvaluationError("integer overflow")
    return value


def _divide(left: int, right: int) -> int:
    """Divide towards zero, as in Go."""
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return _checked_integer(quotient if (left < 0) == (right < 0) else -quotient)


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("modulus by zero")
    return left - right * _divide(left, right)


def _matches(text: str, pattern: str) -> bool:
    """True if the pattern matches anywhere in the text.

    Rejects patterns that could take long: many repetitions, repeated groups, lookarounds and backreferences.
    """
    repeats = re.sub(r"\\.|\[[^\]]*\]", "x", pattern)
    simple = len(pattern) <= _LONGEST_PATTERN and len(text) <= _LONGEST_MATCHED
    simple = simple and sum(repeats.count(sign) for sign in "*+{") <= _MOST_REPEATS
    simple = simple and not re.search(r"\)[*+{]|\(\?(?!:|i\))", repeats) and not re.search(r"\\[1-9]", pattern)
    # Python warns of these character sets, because it may interpret them differently from RE2.
    if not simple or re.search(r"\[[^\]]*(?:\[|--|&&|~~|\|\|)", pattern):
        raise EvaluationError("the regular expression is too complex")
    try:
        return re.search(pattern, text, re.ASCII) is not None
    except re.error:
        raise EvaluationError(f"error parsing regexp: {pattern}") from None


def _join(left: Any, right: Any) -> Any:
    if len(left) + len(right) > _LONGEST_VALUE:
        raise EvaluationError("the value is too long")
    return left + right


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _comparison_overloads(check: Callable[[Any, Any], bool]) -> Mapping[tuple[type, ...], Function]:
    kinds = (int, float, str, bool)
    return {(a, b): check for a in kinds for b in kinds if a is b or {a, b} == {int, float}}


FUNCTIONS: Mapping[str, Mapping[tuple[type, ...], Function]] = {
    "+": {
        (int, int): lambda a, b: _checked_integer(a + b),
        (float, float): lambda a, b: a + b,
        (str, str): _join,
        (list, list): _join,
    },
    "-": {(int, int): lambda a, b: _checked_integer(a - b), (float, float): lambda a, b: a - b},
    "*": {(int, int): lambda a, b: _checked_integer(a * b), (float, float): lambda a, b: a * b},
    "/": {(int, int): _divide},
    "%": {(int, int): _remainder},
    "-x": {(int,): lambda a: _checked_integer(-a), (float,): lambda a: -a},
    "!x": {(bool,): lambda a: not a},
    "<": _comparison_overloads(lambda a, b: a < b),
    "<=": _comparison_overloads(lambda a, b: a <= b),
    ">": _comparison_overloads(lambda a, b: a > b),
    ">=": _comparison_overloads(lambda a, b: a >= b),
    "size": {(str,): len, (list,): len, (dict,): len},
    "startsWith": {(str, str): str.startswith},
    "endsWith": {(str, str): str.endswith},
    "contains": {(str, str): lambda a, b: b in a},
    "matches": {(str, str): _matches},
    "lowerAscii": {(str,): lambda a: "".join(c.lower() if c.isascii() else c for c in a)},
    "upperAscii": {(str,): lambda a: "".join(c.upper() if c.isascii() else c for c in a)},
    "trim": {(str,): str.strip},
    "string": {(str,): str, (int,): str, (bool,): lambda a: "true" if a else "false"},
    "quantity": {(str,): Quantity.parse},
    "semver": {(str,): Semver.parse},
    "compareTo": {(Quantity, Quantity): lambda a, b: _compare(a.value, b.value), (Semver, Semver): _compare},
    "isGreaterThan": {(Quantity, Quantity): lambda a, b: a.value > b.value, (Semver, Semver): lambda a, b: a > b},
    "isLessThan": {(Quantity, Quantity): lambda a, b: a.value < b.value, (Semver, Semver): lambda a, b: a < b},
    "isInteger": {(Quantity,): lambda a: a.value.denominator == 1},
    "sign": {(Quantity,): lambda a: _compare(a.value, 0)},
    "add": {(Quantity, Quantity): lambda a, b: Quantity(a.value + b.value)},
    "sub": {(Quantity, Quantity): lambda a, b: Quantity(a.value - b.value)},
    "major": {(Semver,): lambda a: a.major},
    "minor": {(Semver,): lambda a: a.minor},
    "patch": {(Semver,): lambda a: a.patch},
}
"""Name → types of the arguments, for a method with its receiver first → function. `-x` and `!x` are unary."""


def call_function(name: str, arguments: list[Any]) -> Any:
    """Call the overload for the types of the arguments. Raises EvaluationError if there is none."""
    if name in ("==", "!="):
        return _equal(*arguments) == (name == "==")
    if name == "in":
        item, container = arguments
        if not isinstance(container, (list, dict)):
            raise EvaluationError("no such overload: in")
        return any(_equal(item, other) for other in container)
    function = FUNCTIONS[name].get(tuple(map(type, arguments)))
    if function is None:
        raise EvaluationError(f"no such overload: {name}")
    return function(*arguments)


def _equal(left: Any, right: Any) -> bool:
    """Values of different types are not equal; numbers are compared by value."""
    if type(left) is type(right) or {type(left), type(right)} == {int, float}:
        return bool(left == right)
    return False


def evaluate(tree: Tree, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression; `names` are its variables. Raises EvaluationError."""
    match tree:
        case Literal(value):
            return value
        case Name(name):
            return names[name]
        case FieldAccess():
            return _field_access(tree, names)
        case IndexAccess(of, key):
            return _element(evaluate(of, names), evaluate(key, names))
        case FunctionCall(name, arguments):
            return call_function(name, [evaluate(argument, names) for argument in arguments])
        case LogicalOperation():
            return _evaluate_logical(tree, names)
        case Ternary(test, then, otherwise):
            return evaluate(then if _boolean(evaluate(test, names)) else otherwise, names)
        case ListLiteral(items):
            return [evaluate(item, names) for item in items]
        case MapLiteral(items):
            return {_map_key(evaluate(key, names)): evaluate(value, names) for key, value in items}
        case BindMacro(name, value, body):
            return evaluate(body, {**names, name: evaluate(value, names)})
        case _:
            assert_never(tree)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError("no such overload")
    return value


def _map_key(value: Any) -> str | int | bool:
    if not isinstance(value, (str, int, bool)):
        raise EvaluationError("unsupported key type")
    return value


def _field_access(tree: FieldAccess, names: Mapping[str, Any]) -> Any:
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
        return owner[_map_key(key)]
    except KeyError:
        raise EvaluationError(f"no such key: {key}") from None


def _evaluate_logical(tree: LogicalOperation, names: Mapping[str, Any]) -> bool:
    """Evaluate `||` or `&&`: an operand that decides the result alone wins over errors of the others, as in CEL."""
    failure: EvaluationError | None = None
    for item in tree.operands:
        try:
            if _boolean(evaluate(item, names)) is tree.decisive:
                return tree.decisive
        except EvaluationError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return not tree.decisive
