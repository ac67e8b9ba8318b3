"""The functions, methods and operators that an expression may use, by name and by the types of their arguments."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from gpuconsole.scheduling.devices.cel.values import EvaluationError, Quantity, Semver

INT64 = 2**63
_LONGEST_PATTERN = 256
_LONGEST_MATCHED = 128
_LONGEST_VALUE = 20_000
_MOST_REPEATS = 3

Function = Callable[..., Any]


def _whole(value: int) -> int:
    if not -INT64 <= value < INT64:
        raise EvaluationError("integer overflow")
    return value


def _divide(left: int, right: int) -> int:
    """Divide towards zero, as in Go."""
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return _whole(quotient if (left < 0) == (right < 0) else -quotient)


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


def _ordered(check: Callable[[Any, Any], bool]) -> Mapping[tuple[type, ...], Function]:
    kinds = (int, float, str, bool)
    return {(a, b): check for a in kinds for b in kinds if a is b or {a, b} == {int, float}}


FUNCTIONS: Mapping[str, Mapping[tuple[type, ...], Function]] = {
    "+": {
        (int, int): lambda a, b: _whole(a + b),
        (float, float): lambda a, b: a + b,
        (str, str): _join,
        (list, list): _join,
    },
    "-": {(int, int): lambda a, b: _whole(a - b), (float, float): lambda a, b: a - b},
    "*": {(int, int): lambda a, b: _whole(a * b), (float, float): lambda a, b: a * b},
    "/": {(int, int): _divide},
    "%": {(int, int): _remainder},
    "-x": {(int,): lambda a: _whole(-a), (float,): lambda a: -a},
    "!x": {(bool,): lambda a: not a},
    "<": _ordered(lambda a, b: a < b),
    "<=": _ordered(lambda a, b: a <= b),
    ">": _ordered(lambda a, b: a > b),
    ">=": _ordered(lambda a, b: a >= b),
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


def apply(name: str, arguments: list[Any]) -> Any:
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
