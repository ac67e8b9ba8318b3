"""Columns of a table that show a field of its objects, which the operator names by its path in the manifest."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from msgspec import Struct

from gpuconsole.config import ColumnSettings
from gpuconsole.insight.tables import field_name, seconds
from gpuconsole.model.objects import Object
from gpuconsole.model.text import clean
from gpuconsole.ui.field_filter import quantity_in
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.yaml_view import as_manifest

T = TypeVar("T")

_GROUPS = ("metadata", "spec", "status")
_NAMES = {"queue_name": "queue", "creation_timestamp": "created", "priority_class_name": "priority_class"}
"""Fields of manifests, and what they are called here."""
_CAPITAL = re.compile("(?<=[a-z0-9])(?=[A-Z])")
_UNKNOWN = object()


def custom_column(settings: ColumnSettings, object_of: Callable[[T], object]) -> Column[T]:
    """Return a column that shows a field of the object of a row; filters and sorts know it."""

    def text(row: T) -> str:
        return text_at(object_of(row), settings.path)

    def order(row: T) -> tuple[bool, float, str]:
        found = text(row)
        quantity = quantity_in(found)
        return quantity is None, quantity.value if quantity is not None else 0.0, found.casefold()

    return Column(settings.name, text, name=field_name(settings.name), width=settings.width, sort=order, rank=7)


def text_at(found: object, path: str) -> str:
    """Return the field of an object at a path such as `metadata.labels.team` or `spec.priority`, as text.

    Empty where the object has no such field. A path goes on after a list in each of its items. Most fields are found
    without making the manifest, which takes too long for 100,000 rows.
    """
    if found is None:
        return ""
    parts = path.split(".")
    value = _at(found, parts)
    if value is _UNKNOWN:
        value = _at(as_manifest(cast("Object", found)), parts)
    if path.endswith("creationTimestamp") and isinstance(value, int):
        return seconds(value)
    return _text(value)


def _at(value: object, parts: Sequence[str]) -> object:
    if not parts or value is None or value is _UNKNOWN:
        return value
    if isinstance(value, dict) and isinstance(value.get(parts[0]), (dict, list)):
        return _at(value[parts[0]], parts[1:])
    if isinstance(value, Mapping):
        # Keys of labels have dots.
        return value.get(".".join(parts))
    if isinstance(value, (list, tuple)):
        return [_at(one, parts) for one in value]
    if parts[0] in _GROUPS and not hasattr(value, parts[0]):
        return _at(value, parts[1:])
    name = _CAPITAL.sub("_", parts[0]).lower()
    return _at(getattr(value, _NAMES.get(name, name), _UNKNOWN), parts[1:])


def _text(value: object) -> str:
    match value:
        case None | Struct():
            return ""
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return ",".join(f"{clean(str(key))}={_text(one)}" for key, one in value.items())
        case list() | tuple() | frozenset():
            return ",".join(filter(None, map(_text, value)))
        case _:
            return clean(str(value))
