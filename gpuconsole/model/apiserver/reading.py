"""Type checks: a value against its schema's type, and against what Kueue's Go types can decode."""

from collections.abc import Iterable
from typing import Any

from gpuconsole.model.apiserver.refusals import invalid, wrong_type
from gpuconsole.model.apiserver.schema import Schema, ValueType
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import Path, path_text
from gpuconsole.model.quantity import canonical

_TYPES = {
    ValueType.RECORD: "object",
    ValueType.MAP: "object",
    ValueType.LIST: "array",
    ValueType.TEXT: "string",
    ValueType.WHOLE: "integer",
    ValueType.FLAG: "boolean",
    ValueType.INT_OR_TEXT: "integer,string",
    ValueType.QUANTITY: "integer,string",
}
_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_QUANTITIES = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def is_of(form: ValueType, value: Any) -> bool:
    """True if a value is of this type."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    match form:
        case ValueType.RECORD | ValueType.MAP:
            return isinstance(value, dict)
        case ValueType.LIST:
            return isinstance(value, list)
        case ValueType.TEXT:
            return isinstance(value, str)
        case ValueType.FLAG:
            return isinstance(value, bool)
        case ValueType.WHOLE:
            return is_whole or (isinstance(value, float) and value.is_integer())
        case _:
            return is_whole or isinstance(value, str)


def type_error(form: ValueType, value: Any, path: Path) -> FieldError:
    """Return the API server's error for a value of another type."""
    got = _NAMES.get(type(value), "null")
    return wrong_type(path, value, f'{path_text(path)} in body must be of type {_TYPES[form]}: "{got}"')


def unreadable(schema: Schema, value: Any, path: Path = ()) -> FieldError | None:
    """Return the error for the first value that Go's decoder rejects; None if the value can be decoded."""
    form = schema.form
    if form is ValueType.QUANTITY and isinstance(value, (str, int, float)):
        return _no_quantity(value, path)
    if not is_of(form, value):
        return type_error(form, value, path)
    if form is ValueType.RECORD:
        fields = schema.fields
        return _first((fields[key], entry, (*path, key)) for key, entry in value.items())
    if schema.items is not None:
        pairs = value.items() if form is ValueType.MAP else enumerate(value)
        return _first((schema.items, entry, (*path, key)) for key, entry in pairs)
    return None


def _first(parts: Iterable[tuple[Schema, Any, Path]]) -> FieldError | None:
    for schema, value, path in parts:
        problem = unreadable(schema, value, path)
        if problem is not None:
            return problem
    return None


def _no_quantity(value: str | int | float, path: Path) -> FieldError | None:
    try:
        canonical(value)
    except ValueError:
        return invalid(path, value, _QUANTITIES, "write it as 8, 500m, 1.5Gi or 2e3", "bad-quantity")
    return None
