"""Schemas of API fields as data: type, bounds, default, and validation rules.

A kind is one `Schema`, built with the small functions below; a field whose name ends in `!` is required. What an API
server does with it is elsewhere: defaults in `defaulting`, bounds in `checking`, rules in `rules`.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

from msgspec import Struct

from gpuconsole.model.documents.findings import Path
from gpuconsole.model.documents.reader import INT32, INT64


class ValueType(Enum):
    """The type of a value."""

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
    """Given a value that is absent it may raise KeyError, as CEL does."""
    remedy: str | Callable[[Any], str]
    code: str = "bad-value"
    deeper: Callable[[Any], Path] = lambda value: ()
    """The part of a value that breaks it which a person should look at."""


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
    """Of a list's entries, or of a map's values."""
    default: Any = None
    """What stands there if nothing else does; None is no default."""
    words: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    least: int | None = None
    most: int | None = None
    """Bounds of a number, of a text's length, or of the number of entries."""
    keys: tuple[str, ...] = ()
    """A list whose entries differ in these fields."""
    distinct: bool = False
    """A list without equal entries."""
    moment: bool = False
    """A text that is a time."""
    rules: tuple[SchemaRule | Transition, ...] = ()
    ruled: bool = False
    """True if a rule stands here or below."""
    empty: Empty = Empty.KEPT
    zero: Any = None
    """What Kueue's webhooks write where nothing stands."""


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
    """An object with these fields; the plain ones may be listed by type: `text="name! path", flag="readOnly"`."""
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
    """A list; `by` names the key fields of its entries (list type map), `distinct` makes it a set."""
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
    """A map with string keys."""
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
    """An enum of strings."""
    return Schema(form=ValueType.TEXT, words=words, default=default, most=most, empty=empty)


def whole(least: int = -INT32 - 1, most: int = INT32, *, default: int | None = None) -> Schema:
    """An integer; `least` above the type's own minimum is a bound that the server reports."""
    return Schema(form=ValueType.WHOLE, least=least, most=most, default=default)


def a_flag(default: bool | None = None) -> Schema:
    return Schema(form=ValueType.FLAG, default=default)


def quantity(default: int | None = None, *, zero: str | None = None) -> Schema:
    """An amount such as 500m or 1Gi, as a text or a whole number."""
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
