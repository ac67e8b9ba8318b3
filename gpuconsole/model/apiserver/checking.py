"""Schema validation of values: types, bounds, enums, patterns, and unique list entries.

The texts are those of kube-openapi's validation and of apiextensions' list types. Unchanged values of an update are not
validated (ratcheting), so an invalid old value may stay.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuconsole.model.apiserver.forms import KIND, LABEL, NODE_LABEL, REASON, SUBDOMAIN
from gpuconsole.model.apiserver.reading import is_of, type_error
from gpuconsole.model.apiserver.refusals import (
    duplicate,
    invalid,
    missing,
    not_supported,
    too_long,
    too_many,
    wrong_type,
)
from gpuconsole.model.apiserver.schema import Schema, ValueType
from gpuconsole.model.clock import parse_time
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import Path, path_text
from gpuconsole.model.documents.reader import INT32, INT64

Say = Callable[[FieldError], None]

_REMEDIES = {
    SUBDOMAIN: "use lower-case letters, digits, '-' and '.', at most 253 of them",
    LABEL: "use lower-case letters, digits and '-', at most 63 of them",
    KIND: "use letters, digits and '-', at most 63 of them",
    NODE_LABEL: "name the label of a node",
    REASON: "write it in CamelCase",
}
_OWN_BOUNDS = (-INT32 - 1, -INT64 - 1)


def check(schema: Schema, value: Any, say: Say, path: Path = (), old: Any = None) -> None:
    """Report errors in a value and its parts; `old` is the value that it replaces, or None."""
    if old is not None and value == old:
        return
    match schema.form:
        case ValueType.RECORD | ValueType.MAP if isinstance(value, dict):
            _check_object(schema, value, say, path, old if isinstance(old, dict) else {})
        case ValueType.LIST if isinstance(value, list):
            _check_list(schema, value, say, path, old)
        case form if form not in (ValueType.RECORD, ValueType.MAP, ValueType.LIST) and is_of(form, value):
            for refusal in _scalar(schema, value, path):
                say(refusal)
        case form:
            say(type_error(form, value, path))


def _check_object(schema: Schema, value: Mapping[str, Any], say: Say, path: Path, old: Mapping[str, Any]) -> None:
    if schema.most is not None and len(value) > schema.most:
        say(too_many(path, len(value), schema.most))
        return
    for name in schema.required:
        if name not in value:
            say(missing((*path, name)))
    for key, entry in value.items():
        field = schema.fields.get(key) if schema.form is ValueType.RECORD else schema.items
        if field is not None:
            check(field, entry, say, (*path, key), old.get(key))


def _check_list(schema: Schema, value: list[Any], say: Say, path: Path, old: Any) -> None:
    items = schema.items
    assert items is not None
    before = by_keys(schema, old)
    for n, entry in enumerate(value):
        check(items, entry, say, (*path, n), before.get(identity(schema, entry)))
    if schema.most is not None and len(value) > schema.most:
        say(too_many(path, len(value), schema.most))
    if schema.least is not None and len(value) < schema.least:
        detail = f"{path_text(path)} in body should have at least {schema.least} items"
        remedy = f"it needs at least {schema.least} {'entry' if schema.least == 1 else 'entries'}"
        say(invalid(path, value, detail, remedy, "required"))
    for n in _repeated(schema, value):
        say(duplicate((*path, n), value[n], deeper=schema.keys[:1]))


def identity(schema: Schema, entry: Any) -> tuple[Any, ...] | None:
    """Return the values of a list entry's key fields; None if the list has no keys or the entry has none of them."""
    if not schema.keys or not isinstance(entry, dict) or not any(key in entry for key in schema.keys):
        return None
    values = tuple(entry.get(key) for key in schema.keys)
    return None if any(isinstance(value, (dict, list)) for value in values) else values


def by_keys(schema: Schema, entries: Any) -> dict[tuple[Any, ...] | None, Any]:
    """Return a list's entries by key."""
    if not schema.keys or not isinstance(entries, list):
        return {}
    found = {identity(schema, entry): entry for entry in entries}
    found.pop(None, None)
    return found


def _repeated(schema: Schema, value: list[Any]) -> Iterator[int]:
    """Yield the positions of duplicate entries in a list whose type forbids them."""
    if not schema.keys and not schema.distinct:
        return
    seen: set[Any] = set()
    for n, entry in enumerate(value):
        mark = entry if schema.distinct else identity(schema, entry)
        if mark is None or isinstance(mark, (dict, list)):
            continue
        if mark in seen:
            yield n
        seen.add(mark)


def _scalar(schema: Schema, value: Any, path: Path) -> Iterator[FieldError]:
    if isinstance(value, str):
        yield from _text(schema, value, path)
    elif schema.form is ValueType.WHOLE:
        yield from _number(schema, int(value), path)


def _number(schema: Schema, value: int, path: Path) -> Iterator[FieldError]:
    least, most = schema.least, schema.most
    assert least is not None
    assert most is not None
    if (value < least and least in _OWN_BOUNDS) or value > most:
        detail = f"{path_text(path)} in body must be of type int{most.bit_length() + 1}"
        yield wrong_type(path, value, detail, f"it must be {least} to {most}")
    elif value < least:
        detail = f"{path_text(path)} in body should be greater than or equal to {least}"
        yield invalid(path, value, detail, f"write {least} or more", "out-of-range")


def _text(schema: Schema, value: str, path: Path) -> Iterator[FieldError]:
    """Yield the first error in a text's length or pattern, and an error if it is not in the enum."""
    place = path_text(path)
    if schema.most is not None and len(value) > schema.most:
        yield too_long(path, schema.most, "bad-name")
    elif schema.least is not None and len(value) < schema.least:
        yield invalid(path, value, f"{place} in body should be at least {schema.least} chars long", "write it")
    elif schema.pattern is not None and not schema.pattern.fullmatch(value):
        remedy = _REMEDIES.get(schema.pattern, "write it as 8, 500m, 1.5Gi or 2e3")
        code = "bad-name" if schema.pattern in _REMEDIES else "bad-quantity"
        yield invalid(path, value, f"{place} in body should match '^{schema.pattern.pattern}$'", remedy, code)
    if schema.words and value not in schema.words:
        yield not_supported(path, value, schema.words)
    if schema.moment and not _is_moment(value):
        yield invalid(
            path, value, f"{place} in body must be of type date-time", "write it as 2026-01-05T08:00:00Z", "bad-time"
        )


def _is_moment(text: str) -> bool:
    try:
        parse_time(text)
    except (ValueError, OverflowError):
        return False
    return True
