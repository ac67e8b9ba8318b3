"""Plain YAML scalars as Kubernetes gets them (sigs.k8s.io/yaml, a YAML 1.1 without its times and base 60)."""

import re

_TRUE = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE = frozenset(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_BASED = re.compile(r"([-+]?)0(?:[xX]([0-9a-fA-F_]+)|[bB]([01_]+)|[oO]?([0-7_]+))")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?")
_FIRST = frozenset("+-.0123456789")
LONGEST_NUMBER = 64

Scalar = str | int | float | bool | None


def resolve(text: str) -> Scalar:
    """The value of a plain scalar. A number that is too long to be one stays a text."""
    if not text:
        return None
    if text[0] in _FIRST:
        return _number(text) if len(text) <= LONGEST_NUMBER else text
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    return None if text in _NULL else text


def _number(text: str) -> Scalar:
    if _DECIMAL.fullmatch(text):
        return int(text.replace("_", ""))
    based = _BASED.fullmatch(text)
    if based is not None:
        return _in_base(based) if any(g and g.strip("_") for g in based.groups()[1:]) else text
    plain = text if text[0] == "." else text.replace("_", "")
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        # JSON knows no infinity; such a number cannot reach an API server, so it stays what was written.
        return number if abs(number) < float("inf") else text
    return text


def _in_base(match: re.Match[str]) -> int:
    sign, hexadecimal, binary, octal = match.groups()
    digits, base = (hexadecimal, 16) if hexadecimal else (binary, 2) if binary else (octal, 8)
    number = int(digits.replace("_", ""), base)
    return -number if sign == "-" else number


def key_text(value: Scalar) -> str:
    """A mapping key as JSON has it: always a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
