"""Structs as closed forms, with every problem as a line: what of a scenario does not fit, and what is meant."""

from collections.abc import Iterable
from typing import Any, TypeVar

from msgspec import inspect

from gpuconsole.model.documents.closed import Misfit, UnknownKey, fit, unknown_keys
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.text import clean

T = TypeVar("T")


def convert(data: object, form: type[T], path: str, problems: list[str]) -> T | None:
    """Read `data` as `form`. What is wrong is added to `problems`, a line each; then the result is None."""
    unknown = [_line(path, found.path[:-1], _unknown(found)) for found in unknown_keys(data, form)]
    if unknown:
        problems.extend(unknown)
        return None
    result, misfits = fit(data, form)
    named = {_line("", misfit.path, "") for misfit in misfits}
    for misfit in misfits:
        missing = misfit.problem.removeprefix("Object missing required field `").rstrip("`")
        # A value that does not fit was left out; that it is missing then is no news.
        if missing == misfit.problem or _line("", (*misfit.path, missing), "") not in named:
            problems.append(_line(path, misfit.path, misfit.problem + _choices(form, misfit)))
    return None if misfits else result


def _choices(form: Any, misfit: Misfit) -> str:
    """The texts that may stand where another one stands."""
    if not misfit.problem.startswith("Invalid enum value"):
        return ""
    kind = inspect.type_info(form)
    for key in misfit.path:
        kind = _below(kind, key)
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


def _below(kind: inspect.Type, key: str | int) -> inspect.Type:
    match kind:
        case inspect.StructType(fields=fields):
            return next((field.type for field in fields if field.encode_name == key), kind)
        case inspect.VarTupleType(item_type=item):
            return item
        case inspect.UnionType(types=types):
            inner = [_below(member, key) for member in types]
            return next((found for found, member in zip(inner, types, strict=True) if found is not member), kind)
    return kind


def _line(path: str, below: Path, text: str) -> str:
    parts = (f"[{key}]" if isinstance(key, int) else f".{clean(key, 80)}" for key in below)
    where = f"{path}{''.join(parts)}".removeprefix(".")
    return f"{where}: {text}" if where else text


def _unknown(found: UnknownKey) -> str:
    return f"unknown key {clean(repr(found.key), 80)}; {found.advice}"
