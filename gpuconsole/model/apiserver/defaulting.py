"""Pruning and defaulting before validation: drops unknown fields, adds defaults; pure functions of schema and value."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from gpuconsole.model.apiserver.schema import Empty, Schema, ValueType
from gpuconsole.model.documents.findings import Key, Path
from gpuconsole.model.quantity import canonical

Unknown = Callable[[Path, Schema], None]
"""Callback for each dropped field, with its path and the schema of the object that contained it."""


def ignore(path: Path, schema: Schema) -> None:
    """Callback that ignores unknown fields."""


def with_defaults(schema: Schema, value: Any, unknown: Unknown = ignore, path: Path = ()) -> Any:
    """Drop unknown fields and nulls, and add defaults, as an API server does (structural defaulting and pruning).

    A value of the wrong type is returned as it is, for `check` to report. The given value is not modified; the result
    may share parts of it.
    """
    if schema.form is ValueType.RECORD:
        return _record(schema, value, unknown, path) if isinstance(value, dict) else value
    items = schema.items
    if items is None:
        return value
    if schema.form is ValueType.LIST:
        if not isinstance(value, list):
            return value
        return [_or_default(items, entry, unknown, (*path, n)) for n, entry in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kept = {key: _or_default(items, entry, unknown, (*path, key)) for key, entry in value.items()}
    return {key: entry for key, entry in kept.items() if entry is not None}


def _or_default(schema: Schema, value: Any, unknown: Unknown, path: Path) -> Any:
    if value is None:
        value = deepcopy(schema.default)
    return with_defaults(schema, value, unknown, path)


def _record(schema: Schema, value: dict[Key, Any], unknown: Unknown, path: Path) -> dict[Key, Any]:
    found: dict[Key, Any] = {}
    fields = schema.fields
    for key, entry in value.items():
        field = fields.get(key) if isinstance(key, str) else None
        if field is None:
            unknown((*path, key), schema)
        elif entry is not None:
            found[key] = with_defaults(field, entry, unknown, (*path, key))
    for key, field in fields.items():
        if field.default is not None and key not in found:
            found[key] = with_defaults(field, deepcopy(field.default), unknown, (*path, key))
    return found


def written_back(schema: Schema, value: Any) -> Any:
    """Return a value as Kueue's mutating webhook writes it after decoding it.

    Empty fields are dropped, quantities become canonical, and fields with a `zero` are written even if they were
    absent.
    """
    if schema.form is ValueType.QUANTITY:
        return canonical(value)
    if schema.form is ValueType.RECORD:
        written: dict[Key, Any] = {}
        for key, field in schema.fields.items():
            entry = written_back(field, value[key]) if key in value else field.zero
            if entry is not None and (field.zero is not None or not _drops(field, entry)):
                written[key] = entry
        return written
    if schema.items is None:
        return value
    if schema.form is ValueType.LIST:
        return [written_back(schema.items, entry) for entry in value]
    return {key: written_back(schema.items, entry) for key, entry in value.items()}


def _drops(schema: Schema, entry: Any) -> bool:
    return schema.empty is Empty.DROPPED and entry in ("", [], {})
