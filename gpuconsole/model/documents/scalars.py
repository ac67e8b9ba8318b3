"""Plain YAML scalars as Kubernetes resolves them (sigs.k8s.io/yaml: YAML 1.1 without timestamps and base 60)."""

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
    """Return the value of a plain scalar. A number that is too long stays a string."""
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
        # JSON has no infinity, so such a number cannot reach an API server; it stays a string.
        return number if abs(number) < float("inf") else text
    return text


def _in_base(match: re.Match[str]) -> int:
    sign, hexadecimal, binary, octal = match.groups()
    digits, base = (hexadecimal, 16) if hexadecimal else (binary, 2) if binary else (octal, 8)
    number = int(digits.replace("_", ""), base)
    return -number if sign == "-" else number


def key_text(value: Scalar) -> str:
    """Return a mapping key as in JSON: always a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
