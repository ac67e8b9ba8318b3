"""Schemas of API fields as data; pruning, defaulting and validation of values by them.

Each kind is one `Schema`, built with `record`, `listed`, `a_text` and the like; the name of a required field ends in
`!`. `with_defaults` drops unknown fields and adds defaults, `unreadable` finds what Kueue's Go types cannot decode,
`check` reports types, bounds, enums, patterns and duplicate entries, and `check_rules` evaluates the validation rules
(x-kubernetes-validations).

The texts are those of kube-openapi's validation and of apiextensions' list types. Unchanged values of an update are not
validated (ratcheting), so an invalid old value may stay. `invalid`, `required` and the like build the field errors: the
API server's text, and a remedy.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from enum import Enum, auto
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import parse_time
from gpuconsole.model.documents.findings import (
    LABEL,
    SUBDOMAIN,
    FieldError,
    FieldErrorKind,
    Key,
    Path,
    path_text,
    subdomain,
)
from gpuconsole.model.documents.reader import INT32, INT64
from gpuconsole.model.resources import canonical


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
    """Validation rule for a value (x-kubernetes-validations), with its error message and a remedy."""

    message: str
    holds: Callable[[Any], bool]
    """Returns True for a valid value. May raise KeyError for an absent field, as CEL does."""
    remedy: str | Callable[[Any], str]
    code: str = "bad-value"
    deeper: Callable[[Any], Path] = lambda value: ()
    """Path from the value to the part that the user should correct."""


class Transition(Struct, frozen=True):
    """Validation rule for the update of a value, such as that it is immutable."""

    message: str
    holds: Callable[[Any, Any], bool]
    """Called with the new value and the old one; returns True if the update is valid."""
    remedy: str
    code: str = "immutable"


class Empty(Enum):
    """Whether Kueue's mutating webhooks keep an empty field when they decode an object and write it back."""

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
    """Values of an enum; empty for other strings."""
    pattern: re.Pattern[str] | None = None
    least: int | None = None
    most: int | None = None
    """Upper bound of a number, of a string's length, or of the number of entries; `least` is the lower one."""
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


Unknown = Callable[[Path, Schema], None]
"""Callback for each unknown field that is dropped: its path, and the schema of the object that contained it."""


def ignore(path: Path, schema: Schema) -> None:
    """Do nothing: the default `unknown` callback of `with_defaults`, which drops unknown fields without a report."""


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


KIND = re.compile(r"[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?")
NODE_LABEL = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])"
)
"""Key of a label: an optional DNS subdomain and `/`, then a name."""
REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_URL_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
LONGEST_SUBDOMAIN = 253
LONGEST_LABEL = 63


def domain_path(text: str) -> Iterator[tuple[str, str]]:
    """Yield errors in a path such as `example.com/gate`, each with the part it is about (IsDomainPrefixedPath)."""
    if not text:
        yield text, "must not be empty"
        return
    domain, slash, path = text.partition("/")
    if not (domain and slash and path):
        yield text, 'must be a domain-prefixed path (such as "acme.io/foo")'
        return
    yield from ((domain, message) for message in subdomain(domain))
    if not _URL_PATH.fullmatch(path):
        yield path, f"Invalid path (regex used for validation is '{_URL_PATH.pattern}')"


def invalid(path: Path, value: object, detail: str, remedy: str, code: str = "") -> FieldError:
    """Error for a value that violates a rule."""
    return FieldError(FieldErrorKind.INVALID, path, detail, value, remedy, code)


def required(path: Path, detail: str, remedy: str, code: str = "") -> FieldError:
    """Error for a missing value."""
    return FieldError(FieldErrorKind.REQUIRED, path, detail, None, remedy, code)


def forbidden(path: Path, detail: str, remedy: str) -> FieldError:
    """Error for a value that is not allowed here."""
    return FieldError(FieldErrorKind.FORBIDDEN, path, detail, None, remedy)


def duplicate(path: Path, value: object, detail: str = "", deeper: Path = ()) -> FieldError:
    """Error for a value that must be unique."""
    return FieldError(FieldErrorKind.DUPLICATE, path, detail, value, deeper=deeper)


def not_supported(path: Path, value: object, supported: tuple[str, ...], code: str = "") -> FieldError:
    """Error for a value that is not in an enum."""
    listed = ", ".join(f'"{word}"' for word in supported)
    detail, remedy = (f"supported values: {listed}", f"it takes {', '.join(supported)}") if supported else ("", "")
    return FieldError(FieldErrorKind.NOT_SUPPORTED, path, detail, value, remedy, code)


def too_long(path: Path, most: int, code: str = "") -> FieldError:
    """Error for a string longer than `most` bytes."""
    return FieldError(FieldErrorKind.TOO_LONG, path, f"may not be more than {most} bytes", code=code)


def too_many(path: Path, count: int, most: int) -> FieldError:
    """Error for more than `most` entries."""
    detail = f"must have at most {most} items"
    return FieldError(FieldErrorKind.TOO_MANY, path, detail, count, f"{most} are allowed, shorten it")


def missing(path: Path) -> FieldError:
    """Error for a missing field that the schema requires."""
    return FieldError(FieldErrorKind.REQUIRED, path, remedy=f"write {path[-1]}")


def wrong_type(path: Path, value: object, detail: str, remedy: str = "") -> FieldError:
    """Error for a value of the wrong type."""
    return FieldError(FieldErrorKind.TYPE_INVALID, path, detail, value, remedy)


def not_found(path: Path, value: object) -> FieldError:
    """Error for a reference to an object that does not exist."""
    return FieldError(FieldErrorKind.NOT_FOUND, path, "", value)


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
    """True if a value is of the type `form`."""
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
    """Return the API server's error for a value that is not of the type `form`."""
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


Say = Callable[[FieldError], None]
"""Callback that receives each error."""

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
    """Return the values of a list entry's key fields (list type map); None if it has none of them."""
    if not schema.keys or not isinstance(entry, dict) or not any(key in entry for key in schema.keys):
        return None
    values = tuple(entry.get(key) for key in schema.keys)
    return None if any(isinstance(value, (dict, list)) for value in values) else values


def by_keys(schema: Schema, entries: Any) -> dict[tuple[Any, ...] | None, Any]:
    """Return the entries of a list by the values of their key fields (see `identity`)."""
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


def check_rules(
    schema: Schema, value: Any, say: Say, path: Path = (), old: Any = None, *, lenient: bool = False
) -> None:
    """Report the rules that a value or its parts violate.

    `old` is the value that it replaces, or None; transition rules are evaluated only if it is given, and other rules
    only if the value changed (ratcheting). A missing key violates a rule, as in CEL, unless `lenient`.
    """
    if not schema.ruled:
        return
    for rule in schema.rules:
        broken = _broken(rule, value, old)
        if broken and not (lenient and broken != rule.message):
            remedy = rule.remedy if isinstance(rule.remedy, str) else rule.remedy(value)
            deeper = rule.deeper(value) if isinstance(rule, SchemaRule) else ()
            say(replace(invalid(path, value, broken, remedy, rule.code), deeper=deeper))
    if schema.form is ValueType.RECORD:
        before = old if isinstance(old, dict) else {}
        for key, field in schema.fields.items():
            if field.ruled and key in value:
                check_rules(field, value[key], say, (*path, key), before.get(key), lenient=lenient)
    elif schema.form is ValueType.LIST and schema.items is not None:
        earlier = by_keys(schema, old)
        for n, entry in enumerate(value):
            known = earlier.get(identity(schema, entry))
            check_rules(schema.items, entry, say, (*path, n), known, lenient=lenient)


def _broken(rule: SchemaRule | Transition, value: Any, old: Any) -> str:
    """Return the message of a violated rule; empty if it holds or nothing changed."""
    try:
        if isinstance(rule, SchemaRule):
            held = (old is not None and value == old) or rule.holds(value)
        else:
            held = old is None or rule.holds(value, old)
    except KeyError as missing:
        return f"no such key: {missing.args[0]} evaluating rule: {rule.message}"
    return "" if held else rule.message
