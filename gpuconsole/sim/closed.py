"""Structs as closed forms: a mapping is converted, and every key that has no place in it is named."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from gpuconsole.model.text import clean

T = TypeVar("T")


def convert(data: object, form: type[T], path: str, problems: list[str]) -> T | None:
    """Read `data` as `form`. What is wrong is added to `problems`, a line each; then the result is None."""
    unknown = list(_unknown(data, inspect.type_info(form), path))
    if unknown:
        problems.extend(unknown)
        return None
    try:
        return msgspec.convert(data, form)
    except msgspec.ValidationError as error:
        text, _, place = clean(str(error)).partition(" - at `$")
        where = f"{path}{place.rstrip('`')}".removeprefix(".")
        problems.append(f"{where}: {text}" if where else text)
        return None


def _unknown(data: object, kind: inspect.Type, path: str) -> Iterator[str]:
    match kind:
        case inspect.StructType(fields=fields):
            yield from _in_struct(data, fields, path)
        case inspect.UnionType(types=types):
            for member in types:
                if _suits(data, member):
                    yield from _unknown(data, member, path)
        case inspect.VarTupleType(item_type=item) if isinstance(data, (list, tuple)):
            for index, value in enumerate(data):
                yield from _unknown(value, item, f"{path}[{index}]")
        case inspect.DictType(value_type=item) if isinstance(data, Mapping):
            for key, value in data.items():
                yield from _unknown(value, item, f"{path}.{clean(str(key), 80)}")
        case _:
            pass


def _in_struct(data: object, fields: tuple[inspect.Field, ...], path: str) -> Iterator[str]:
    if not isinstance(data, Mapping):
        return
    known = {field.encode_name: field.type for field in fields}
    for key, value in data.items():
        if key in known:
            yield from _unknown(value, known[key], f"{path}.{key}".removeprefix("."))
        else:
            yield f"{path}{': ' if path else ''}{advice(str(key), list(known))}"


def advice(key: str, known: list[str]) -> str:
    """Say that a key is unknown, and which is meant, or which there are."""
    near = get_close_matches(key, known, n=1)
    right = f"did you mean {near[0]!r}?" if near else f"the keys here are {', '.join(known)}"
    return f"unknown key {clean(repr(key), 80)}; {right}"


def _suits(data: Any, member: inspect.Type) -> bool:
    if not isinstance(member, inspect.StructType):
        return False
    if not isinstance(data, Mapping):
        return False
    return member.tag_field is None or data.get(member.tag_field) == member.tag
