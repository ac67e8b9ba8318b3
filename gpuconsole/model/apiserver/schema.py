"""Schemas of API fields as data: type, bounds, default, and validation rules.

Each kind is one `Schema`, built with the functions below; the name of a required field ends in `!`. Schemas are applied
elsewhere: defaults in `defaulting`, bounds in `checking`, rules in `rules`.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

from msgspec import Struct

from gpuconsole.model.documents.findings import Path
from gpuconsole.model.documents.reader import INT32, INT64


class ValueType(Enum):
    """Type of a value."""

    RECORD = auto()
    MAP = auto()
    LIST = auto()
    TEXT = auto()
    WHOLE = auto()
    FLAG = auto()
    INT_OR_TEXT = auto()
    QUANTITY = auto()


class SchemaRule(Struct, frozen=True):
    """Condition on a value (x-kubernetes-validations)."""

    message: str
    holds: Callable[[Any], bool]
    """May raise KeyError for an absent field, as CEL does."""
    remedy: str | Callable[[Any], str]
    code: str = "bad-value"
    deeper: Callable[[Any], Path] = lambda value: ()
    """Path from the value to the part that the user should correct."""


class Transition(Struct, frozen=True):
    """Condition on a value and the one that it replaces; checked on updates only."""

    message: str
    holds: Callable[[Any, Any], bool]
    """Called with the new value and the old one."""
    remedy: str
    code: str = "immutable"


class Empty(Enum):
    """Handling of an empty field by Kueue's mutating webhooks, which decode an object and write it back."""

    DROPPED = auto()
    KEPT = auto()


class Schema(Struct, frozen=True, kw_only=True):
    """Schema of one value in a document."""

    form: ValueType
    fields: Mapping[str, "Schema"] = {}
    required: tuple[str, ...] = ()
    items: "Schema | None" = None
    """Schema of a list's entries, or of a map's values."""
    default: Any = None
    """Default value; None if there is none."""
    words: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    least: int | None = None
    most: int | None = None
    """Bounds of a number, of a string's length, or of the number of entries."""
    keys: tuple[str, ...] = ()
    """Fields that identify an entry of a list (list type map)."""
    distinct: bool = False
    """True if a list has no equal entries (list type set)."""
    moment: bool = False
    """True if a string must be a date-time."""
    rules: tuple[SchemaRule | Transition, ...] = ()
    ruled: bool = False
    """True if this schema or one of its parts has rules."""
    empty: Empty = Empty.KEPT
    zero: Any = None
    """Value that Kueue's webhooks write for an absent field; None if they leave it out."""


def record(
    fields: Mapping[str, Schema] | None = None,
    /,
    *,
    default: Any = None,
    rules: tuple[SchemaRule | Transition, ...] = (),
    empty: Empty = Empty.KEPT,
    zero: Any = None,
    text: str = "",
    texts: str = "",
    flag: str = "",
    int32: str = "",
    int64: str = "",
) -> Schema:
    """Schema of an object; fields without settings may be listed by type: `text="name! path", flag="readOnly"`."""
    listed = {"text": text, "texts": texts, "flag": flag, "int32": int32, "int64": int64}
    everything = {name: _PLAIN[form] for form, names in listed.items() for name in names.split()} | dict(fields or {})
    own = {name.rstrip("!"): schema for name, schema in everything.items()}
    return Schema(
        form=ValueType.RECORD,
        fields=own,
        required=tuple(name[:-1] for name in everything if name.endswith("!")),
        default=default,
        rules=rules,
        ruled=bool(rules) or any(schema.ruled for schema in own.values()),
        empty=empty,
        zero=zero,
    )


def listed(
    items: Schema,
    *,
    least: int | None = None,
    most: int | None = None,
    by: tuple[str, ...] = (),
    distinct: bool = False,
    rules: tuple[SchemaRule | Transition, ...] = (),
) -> Schema:
    """Schema of a list; `by` names the key fields of its entries (list type map), `distinct` makes it a set."""
    return Schema(
        form=ValueType.LIST,
        items=items,
        least=least,
        most=most,
        keys=by,
        distinct=distinct,
        rules=rules,
        ruled=bool(rules) or items.ruled,
        empty=Empty.DROPPED,
    )


def mapped(items: Schema, *, most: int | None = None) -> Schema:
    """Schema of a map with string keys."""
    return Schema(form=ValueType.MAP, items=items, most=most, empty=Empty.DROPPED)


def a_text(
    pattern: re.Pattern[str] | None = None,
    *,
    least: int | None = None,
    most: int | None = None,
    default: str | None = None,
    rules: tuple[SchemaRule | Transition, ...] = (),
    empty: Empty = Empty.DROPPED,
    zero: str | None = None,
) -> Schema:
    """Schema of a string."""
    return Schema(
        form=ValueType.TEXT,
        pattern=pattern,
        least=least,
        most=most,
        default=default,
        rules=rules,
        ruled=bool(rules),
        empty=empty,
        zero=zero,
    )


def one_of(*words: str, default: str | None = None, most: int | None = None, empty: Empty = Empty.DROPPED) -> Schema:
    """Schema of an enum of strings."""
    return Schema(form=ValueType.TEXT, words=words, default=default, most=most, empty=empty)


def whole(least: int = -INT32 - 1, most: int = INT32, *, default: int | None = None) -> Schema:
    """Schema of an integer. The type's own minimum as `least` is reported as a type error, a larger one as a bound."""
    return Schema(form=ValueType.WHOLE, least=least, most=most, default=default)


def a_flag(default: bool | None = None) -> Schema:
    """Schema of a boolean."""
    return Schema(form=ValueType.FLAG, default=default)


def quantity(default: int | None = None, *, zero: str | None = None) -> Schema:
    """Schema of a quantity such as 500m or 1Gi, as a string or an integer."""
    return Schema(form=ValueType.QUANTITY, pattern=_QUANTITY, default=default, zero=zero)


_QUANTITY = re.compile(
    r"(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?"
)
TEXT = a_text()
FLAG = a_flag()
INT_32 = whole()
INT_64 = whole(-INT64 - 1, INT64)
MOMENT = Schema(form=ValueType.TEXT, moment=True)
INT_OR_TEXT = Schema(form=ValueType.INT_OR_TEXT)
TEXTS = listed(TEXT)
LABELS = mapped(TEXT)
AMOUNTS = mapped(quantity())
_PLAIN = {"text": TEXT, "texts": TEXTS, "flag": FLAG, "int32": INT_32, "int64": INT_64}
