"""Decodes data into structs and reports every error: unknown keys, wrong types, and the valid alternatives."""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

from msgspec import inspect

from gpuconsole.model.documents.findings import Path
from gpuconsole.model.documents.reader import DecodeError, UnknownKey, fit, shown, unknown_keys
from gpuconsole.model.text import clean

T = TypeVar("T")

_MISSING = re.compile(r"Object missing required field `(\w+)`")
_WRONG = re.compile(r"Expected `(.+?)`, got `(.+?)`")
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
"""msgspec's names of types → words for error messages."""


def convert(data: object, form: type[T], path: str, problems: list[str]) -> T | None:
    """Decode `data` as `form`; None if it has errors, which are added to `problems`, one line each, with their path."""
    unknown = [_error_line(path, found.path[:-1], _unknown_key(found)) for found in unknown_keys(data, form)]
    result, misfits = fit(data, form)
    problems += unknown
    named = {misfit.path for misfit in misfits}
    for misfit in misfits:
        missing = _MISSING.fullmatch(misfit.problem)
        # A value of the wrong type was left out, so it is not reported as missing, too.
        if missing is None or (*misfit.path, missing[1]) not in named:
            problems.append(_error_line(path, misfit.path, _error_text(data, form, misfit)))
    return None if unknown or misfits else result


def _error_text(data: object, form: Any, misfit: DecodeError) -> str:
    """The error, and the valid form."""
    wrong = _WRONG.fullmatch(misfit.problem)
    if wrong is not None:
        wanted = " or ".join(_WORDS.get(name, name) for name in wrong[1].split(" | "))
        # Below plain mappings msgspec names no keys, so the value itself is unknown.
        value = _value_at(data, misfit.path)
        found = shown(value) if _type_name(value) == wrong[2] else f"a value that is {_WORDS.get(wrong[2], wrong[2])}"
        return f"{found} stands where {wanted} belongs; write {wanted}"
    missing = _MISSING.fullmatch(misfit.problem)
    if missing is not None:
        return f"{missing[1]} is missing; write it"
    return misfit.problem + (_choices(form, misfit) or "; write a value of that type")


def _value_at(data: Any, path: Path) -> Any:
    for key in path:
        data = data[key]
    return data


def _type_name(value: object) -> str:
    """The name of a value's type as in msgspec's messages."""
    match value:
        case None:
            return "null"
        case list() | tuple():
            return "array"
        case dict():
            return "object"
        case _:
            return type(value).__name__


def _choices(form: Any, misfit: DecodeError) -> str:
    """The valid values."""
    if not misfit.problem.startswith("Invalid enum value"):
        return ""
    kind = inspect.type_info(form)
    for key in misfit.path:
        kind = _type_below(kind, key)
    values = [str(value) for one in _members(kind) for value in _values(one)]
    return f"; it must be one of {', '.join(values)}" if values else ""


def _members(kind: inspect.Type) -> Iterable[inspect.Type]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _values(kind: inspect.Type) -> Iterable[Any]:
    match kind:
        case inspect.LiteralType(values=values):
            return values
        case inspect.EnumType(cls=cls):
            return [member.value for member in cls]
    return ()


def _type_below(kind: inspect.Type, key: str | int) -> inspect.Type:
    match kind:
        case inspect.StructType(fields=fields):
            return next((field.type for field in fields if field.encode_name == key), kind)
        case inspect.VarTupleType(item_type=item):
            return item
        case inspect.UnionType(types=types):
            inner = [_type_below(member, key) for member in types]
            return next((found for found, member in zip(inner, types, strict=True) if found is not member), kind)
    return kind


def _error_line(path: str, below: Path, text: str) -> str:
    parts = (f"[{key}]" if isinstance(key, int) else f".{clean(key, 80)}" for key in below)
    where = f"{path}{''.join(parts)}".removeprefix(".")
    return f"{where}: {text}" if where else text


def _unknown_key(found: UnknownKey) -> str:
    return f"unknown key {clean(repr(found.key), 80)}; {found.advice}"
