"""Strict decoding of documents into structs: unknown keys and invalid values are listed."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, inspect

from gpuconsole.model.documents.findings import Path
from gpuconsole.model.text import clean

T = TypeVar("T")

_STEP = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]")
MOST_MISFITS = 100


class UnknownKey(Struct, frozen=True):
    """Key that the struct does not have."""

    path: Path
    known: tuple[str, ...]
    """Keys of the struct."""

    @property
    def key(self) -> str:
        return str(self.path[-1])

    @property
    def advice(self) -> str:
        """The most similar key, or all valid ones."""
        near = get_close_matches(self.key[:80], self.known, n=1)
        return f"did you mean {near[0]!r}?" if near else f"the keys here are {', '.join(self.known)}"


class DecodeError(Struct, frozen=True):
    """A value of the wrong type."""

    path: Path
    problem: str


def unknown_keys(data: object, form: type[Any]) -> Iterator[UnknownKey]:
    """Yield the keys of `data` that `form` does not have, at any depth."""
    yield from _unknown(data, inspect.type_info(form), ())


def fit(data: object, form: type[T]) -> tuple[T | None, list[DecodeError]]:
    """Decode `data` as `form`; invalid values are left out and listed. None if nothing can be decoded."""
    misfits: list[DecodeError] = []
    while len(misfits) < MOST_MISFITS:
        try:
            return msgspec.convert(data, form), misfits
        except msgspec.ValidationError as error:
            text, _, place = clean(str(error)).partition(" - at `$")
            path = _path(place)
            misfits.append(DecodeError(path, text))
            if not path:
                return None, misfits
            data = _without(data, path)
    return None, misfits


def _path(place: str) -> Path:
    """Return the path in msgspec's message, up to the first key of a plain mapping, which msgspec does not name."""
    known = place.partition("[...]")[0].rstrip("`")
    return tuple(int(index) if index else key for key, index in _STEP.findall(known))


def _without(data: Any, path: Path) -> Any:
    """Return a copy without the value at `path`; for an entry of a list without the list, to keep positions valid."""
    head, rest = path[0], path[1:]
    if isinstance(data, list):
        return [_without(value, rest) if place == head else value for place, value in enumerate(data)] if rest else []
    if not rest or (isinstance(rest[0], int) and len(rest) == 1):
        return {key: value for key, value in data.items() if key != head}
    return {key: _without(value, rest) if key == head else value for key, value in data.items()}


def _unknown(data: object, kind: inspect.Type, path: Path) -> Iterator[UnknownKey]:
    match kind:
        case inspect.StructType(fields=fields) if isinstance(data, Mapping):
            known = {field.encode_name: field.type for field in fields}
            for key, value in data.items():
                if key in known:
                    yield from _unknown(value, known[key], (*path, key))
                else:
                    yield UnknownKey((*path, str(key)), tuple(known))
        case inspect.UnionType(types=types):
            for member in types:
                if _suits(data, member):
                    yield from _unknown(data, member, path)
        case inspect.VarTupleType(item_type=item) if isinstance(data, (list, tuple)):
            for index, value in enumerate(data):
                yield from _unknown(value, item, (*path, index))
        case inspect.DictType(value_type=item) if isinstance(data, Mapping):
            for key, value in data.items():
                yield from _unknown(value, item, (*path, str(key)))
        case _:
            pass


def _suits(data: Any, member: inspect.Type) -> bool:
    match member:
        case inspect.StructType(tag_field=field, tag=tag):
            return isinstance(data, Mapping) and (field is None or data.get(field) == tag)
        case inspect.VarTupleType() | inspect.DictType():
            return True
    return False
