"""CEL device selectors: compiles them and checks whether a device matches.

Expressions can use `device.driver`, and `device.attributes` and `device.capacity` by domain; a domain that the device
does not have is empty (k8s.io/dynamic-resource-allocation/cel).
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from gpuconsole.model.devices import Attribute, Device, Version
from gpuconsole.scheduling.devices.cel.evaluation import FUNCTIONS, EvaluationError, Quantity, Semver, evaluate
from gpuconsole.scheduling.devices.cel.parsing import SyntaxProblem, Tree, parse

_NAMES = frozenset({"device"})


class DomainValues(dict[str, dict[str, Any]]):
    """Values by domain and name; a missing domain is empty."""

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


@lru_cache(maxsize=1024)
def compile_selector(expression: str) -> Tree | str:
    """Compile an expression: its tree, or the error message as a string."""
    try:
        return parse(expression, _NAMES, FUNCTIONS)
    except SyntaxProblem as problem:
        before = expression[: problem.column]
        line, column = before.count("\n") + 1, problem.column - (before.rfind("\n") + 1) + 1
        shown = (expression.split("\n") or [""])[line - 1][:200]
        place = f"<input>:{line}:{column}"
        return f"compilation failed: ERROR: {place}: {problem}\n | {shown}\n | {'.' * min(column - 1, 200)}^"


def fault(expression: str) -> str:
    """The compile error of an expression; empty if there is none."""
    found = compile_selector(expression)
    return found if isinstance(found, str) else ""


def selects(trees: Iterable[Tree], driver: str, device: Device) -> bool:
    """True if all expressions match the device, or if there are none. Raises EvaluationError, for example for a missing
    attribute.
    """
    values: dict[str, Any] | None = None
    for tree in trees:
        if values is None:
            values = {"device": _seen(driver, device)}
        answer = evaluate(tree, values)
        if not isinstance(answer, bool):
            raise EvaluationError("must evaluate to bool")
        if not answer:
            return False
    return True


def _seen(driver: str, device: Device) -> dict[str, Any]:
    """The fields of the `device` variable of an expression."""
    attributes, capacity = DomainValues(), DomainValues()
    for name, value in device.attributes.items():
        domain, short = _qualified(driver, name)
        attributes.setdefault(domain, {})[short] = _plain(f"{domain}/{short}", value)
    for name, offered in device.capacity.items():
        domain, short = _qualified(driver, name)
        capacity.setdefault(domain, {})[short] = Quantity(Fraction(offered.value))
    return {"driver": driver, "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": False}


def _qualified(driver: str, name: str) -> tuple[str, str]:
    domain, slash, short = name.rpartition("/")
    return (domain, short) if slash else (driver, name)


def _plain(name: str, value: Attribute) -> Any:
    if value is None:
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    return Semver.parse(value.version) if isinstance(value, Version) else value
