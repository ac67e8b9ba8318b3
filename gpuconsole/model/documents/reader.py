"""Typed access to the values of a document.

A `Reader` reads one value after another; a value of the wrong type becomes a finding with its path. `fit` decodes a
document into a struct at once, and lists its invalid values; `unknown_keys` lists the keys that the struct lacks.
`decode_strictly` reports both, each with the valid alternatives.

Quantities in documents are exact and bounded, and integers for devices.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, inspect

from gpuconsole.model.clock import SECOND, Span, Time, parse_span, parse_time
from gpuconsole.model.documents.findings import DocumentFindings, Key, Path
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.resources import (
    BILLIONTH,
    CPU,
    EMPTY,
    EPHEMERAL_STORAGE,
    LONGEST,
    MAX,
    MEMORY,
    Resources,
    amount,
    format_quantity,
    is_gpu,
    is_mig,
    parse_quantity,
    to_int,
)
from gpuconsole.model.text import MAX_NAME, clean

T = TypeVar("T")

_STEP = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]")
MOST_MISFITS = 100


class UnknownKey(Struct, frozen=True):
    """Key of a document that the struct into which it is decoded does not have."""

    path: Path
    known: tuple[str, ...]
    """Keys that are valid there."""

    @property
    def key(self) -> str:
        return str(self.path[-1])

    @property
    def advice(self) -> str:
        """Remedy for the user: the most similar valid key, or all of them."""
        near = get_close_matches(self.key[:80], self.known, n=1)
        return f"did you mean {near[0]!r}?" if near else f"the keys here are {', '.join(self.known)}"


class DecodeError(Struct, frozen=True):
    """A value that does not have the type of its field."""

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


E = TypeVar("E", bound=StrEnum)

INT32 = 2**31 - 1
INT64 = 2**63 - 1
_MISSING: dict[str, Any] = {}
_KINDS = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def kind_of(value: object) -> str:
    """Name the type of a value for messages."""
    return _KINDS.get(type(value), "a number")


def shown(value: object, limit: int = 60) -> str:
    """Return a value as written in the document, cleaned and cut."""
    if isinstance(value, (dict, list)):
        return kind_of(value)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "a number with more than 70 digits"
    return clean(repr(value), limit)


_MISSING_FIELD = re.compile(r"Object missing required field `(\w+)`")
_WRONG_TYPE = re.compile(r"Expected `(.+?)`, got `(.+?)`")
_TYPE_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
"""msgspec's names of types → words for error messages."""


def decode_strictly(data: object, form: type[T], path: str, problems: list[str]) -> T | None:
    """Decode `data` as `form`; None if it has errors, which are added to `problems`, one line each, with their path."""
    unknown = [_error_line(path, found.path[:-1], _unknown_key(found)) for found in unknown_keys(data, form)]
    result, misfits = fit(data, form)
    problems += unknown
    named = {misfit.path for misfit in misfits}
    for misfit in misfits:
        missing = _MISSING_FIELD.fullmatch(misfit.problem)
        # A value of the wrong type was left out, so it is not reported as missing, too.
        if missing is None or (*misfit.path, missing[1]) not in named:
            problems.append(_error_line(path, misfit.path, _error_text(data, form, misfit)))
    return None if unknown or misfits else result


def _error_text(data: object, form: type[Any], misfit: DecodeError) -> str:
    """The error, and the valid form."""
    wrong = _WRONG_TYPE.fullmatch(misfit.problem)
    if wrong is not None:
        wanted = " or ".join(_TYPE_WORDS.get(name, name) for name in wrong[1].split(" | "))
        # Below plain mappings msgspec names no keys, so the value itself is unknown.
        value = _value_at(data, misfit.path)
        found = (
            shown(value) if _type_name(value) == wrong[2] else f"a value that is {_TYPE_WORDS.get(wrong[2], wrong[2])}"
        )
        return f"{found} stands where {wanted} belongs; write {wanted}"
    missing = _MISSING_FIELD.fullmatch(misfit.problem)
    if missing is not None:
        return f"{missing[1]} is missing; write it"
    return misfit.problem + (_choices(form, misfit) or "; write a value of that type")


def _value_at(data: Any, path: Path) -> Any:
    for key in path:
        data = data[key]
    return data


def _type_name(value: object) -> str:
    """The name of a value's type as in msgspec's messages."""
    match value:
        case None:
            return "null"
        case list() | tuple():
            return "array"
        case dict():
            return "object"
        case _:
            return type(value).__name__


def _choices(form: type[Any], misfit: DecodeError) -> str:
    """The valid values."""
    if not misfit.problem.startswith("Invalid enum value"):
        return ""
    kind = inspect.type_info(form)
    for key in misfit.path:
        kind = _type_below(kind, key)
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


def _type_below(kind: inspect.Type, key: str | int) -> inspect.Type:
    match kind:
        case inspect.StructType(fields=fields):
            return next((field.type for field in fields if field.encode_name == key), kind)
        case inspect.VarTupleType(item_type=item):
            return item
        case inspect.UnionType(types=types):
            inner = [_type_below(member, key) for member in types]
            return next((found for found, member in zip(inner, types, strict=True) if found is not member), kind)
    return kind


def _error_line(path: str, below: Path, text: str) -> str:
    parts = (f"[{key}]" if isinstance(key, int) else f".{clean(key, 80)}" for key in below)
    where = f"{path}{''.join(parts)}".removeprefix(".")
    return f"{where}: {text}" if where else text


def _unknown_key(found: UnknownKey) -> str:
    return f"unknown key {clean(repr(found.key), 80)}; {found.advice}"


class Reader:
    """A value in a document with its path. Reading never raises: invalid values are reported."""

    __slots__ = ("_key", "_parent", "report", "value")

    def __init__(self, value: Any, report: DocumentFindings, parent: "Reader | None" = None, key: Key = "") -> None:
        self.value = value
        self.report = report
        self._parent = parent
        self._key = key

    def reporting(self, report: DocumentFindings, value: Any) -> "Reader":
        """Return a reader for `value` instead, at the same path of the document, that reports to `report`."""
        return Reader(value, report, self._parent, self._key)

    @property
    def path(self) -> Path:
        """Path from the document to this value."""
        keys: list[Key] = []
        place: Reader = self
        while place._parent is not None:
            keys.append(place._key)
            place = place._parent
        return tuple(reversed(keys))

    def at(self, *keys: Key) -> Path:
        """Return the path of a value at these keys below this one."""
        return (*self.path, *keys)

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and self.value.get(key) is not None

    def raw(self, key: str) -> Any:
        """Return the value under `key` as decoded; None if absent or null, which Kubernetes treats the same."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def wrong_type(self, key: Key, value: object, wanted: str) -> None:
        """Report a value of the wrong type."""
        self.report.error(
            self.at(key), f"expected {wanted}, found {shown(value)}", f"write {wanted} here", "wrong-type"
        )

    def mapping(self, key: str) -> "Reader":
        """Return the mapping under `key`; an empty one if it is absent, or of the wrong type (which is reported)."""
        value = self.raw(key)
        if value is not None and not isinstance(value, dict):
            self.wrong_type(key, value, "a mapping")
            value = None
        return Reader(_MISSING if value is None else value, self.report, self, key)

    def down(self, *keys: str) -> "Reader":
        """Return the mapping below several keys."""
        place = self
        for key in keys:
            place = place.mapping(key)
        return place

    def items(self, key: str, limit: int = 100_000) -> "Iterator[Reader]":
        """Yield the mappings in the list under `key`; entries of other types are reported and left out."""
        for position, value in enumerate(self._list(key, limit)):
            if isinstance(value, dict):
                yield Reader(value, self.report, Reader(None, self.report, self, key), position)
            else:
                Reader(None, self.report, self, key).wrong_type(position, value, "a mapping")

    def _list(self, key: str, limit: int = 100_000) -> list[Any]:
        value = self.raw(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.wrong_type(key, value, "a list")
            return []
        if len(value) > limit:
            self.report.refused(
                self.at(key), f"it has {len(value)} entries, {limit} are allowed", "shorten the list", "too-many"
            )
            return value[:limit]
        return value

    def text(self, key: str, default: str = "", *, limit: int = MAX_NAME) -> str:
        """Read a string, cleaned. A number or boolean is read as a string and reported (Kubernetes requires quotes)."""
        value = self.raw(key)
        return default if value is None else self._text(key, value, limit, default)

    def _text(self, key: Key, value: object, limit: int, default: str = "") -> str:
        if isinstance(value, str):
            return clean(value, limit)
        if isinstance(value, (bool, int, float)):
            text = shown(value).lower() if isinstance(value, bool) else shown(value)
            self.report.refused(
                self.at(key), f"{text} is {kind_of(value)}, not a text", f'put it in quotes: "{text}"', "not-a-text"
            )
            return text
        self.wrong_type(key, value, "a text")
        return default

    def required(self, key: str) -> str:
        """Read a string that the API server requires."""
        text = self.text(key)
        if not text and not self._is_wrong(key):
            self.report.refused(self.at(key), f"{key} is missing", f"{key} is required; name it", "required")
        return text

    def _is_wrong(self, key: str) -> bool:
        value = self.raw(key)
        return value is not None and not isinstance(value, str)

    def texts(self, key: str, limit: int = 100_000) -> tuple[str, ...]:
        """Read a list of strings."""
        place = Reader(None, self.report, self, key)
        return tuple(place._text(n, value, 4096) for n, value in enumerate(self._list(key, limit)))

    def labels(self, key: str, *, limit: int = 4096) -> Mapping[str, str]:
        """Read a mapping of strings: labels, annotations, a node selector."""
        place = self.mapping(key)
        if not place.value:
            return NO_LABELS
        return {
            clean(str(name), 400): "" if value is None else place._text(name, value, limit)
            for name, value in place.value.items()
        }

    def flag(self, key: str, default: bool = False) -> bool:
        """Read a boolean; a quoted one is reported, but used."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            self.report.refused(self.at(key), f'"{value}" is a text', f"write {value.lower()} without quotes", "quoted")
            return value.lower() == "true"
        self.wrong_type(key, value, "true or false")
        return default

    def number(self, key: str, default: int, *, low: int = -INT32 - 1, high: int = INT32) -> int:
        """Read an integer; outside `low` … `high` it is reported and clamped."""
        value = self.raw(key)
        if value is None:
            return default
        whole = self._whole(key, value)
        if whole is None:
            return default
        if not low <= whole <= high:
            self.report.error(
                self.at(key),
                f"{shown(whole)} is out of range",
                f"it must be {low if low > -INT32 else 'at least -2147483648'} to {high}",
                "out-of-range",
            )
            return max(low, min(high, whole))
        return whole

    def optional(self, key: str, *, low: int = -INT32 - 1, high: int = INT32) -> int | None:
        """Read an integer, or None if absent."""
        return None if self.raw(key) is None else self.number(key, low, low=low, high=high)

    def _whole(self, key: str, value: object) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, str) and len(value) <= 20 and value.lstrip("-").isascii() and value.lstrip("-").isdigit():
            self.report.refused(self.at(key), f'"{value}" is a text', f"write {value} without quotes", "quoted")
            return int(value)
        self.wrong_type(key, value, "a whole number")
        return None

    def choice(self, key: str, default: E, *, also: Mapping[str, E] | None = None, without: Collection[E] = ()) -> E:
        """Read a value of an enum; `also` maps older spellings. Unknown values and those in `without` are errors and
        give the default.
        """
        value = self.raw(key)
        if value is None or value == "":
            return default
        kind = type(default)
        words = [word for word in kind if word not in without]
        for word in words:
            if value == word.value:
                return word
        if isinstance(value, str) and also and value in also:
            return also[value]
        allowed = ", ".join(word.value for word in words)
        self.report.error(
            self.at(key), f"{shown(value)} is none of the values that {key} takes", f"it takes {allowed}", "bad-value"
        )
        return default

    def one_of(self, key: str, default: str, allowed: tuple[str, ...]) -> str:
        """Read a string from a set; another one is reported as refused, but used."""
        text = self.text(key, default)
        if text and text not in allowed:
            self.report.refused(
                self.at(key),
                f"{shown(text)} is none of the values that {key} takes",
                f"it takes {', '.join(allowed)}",
                "bad-value",
            )
        return text

    def moment(self, key: str) -> Time | None:
        """Read an RFC 3339 time; None if it is absent, or invalid (which is reported)."""
        text = self.text(key)
        if not text:
            return None
        try:
            return parse_time(text)
        except (ValueError, OverflowError):
            self.report.error(
                self.at(key), f"{shown(text)} is not a time", "write it as 2026-01-05T08:00:00Z", "bad-time"
            )
            return None

    def span(self, key: str) -> Span | None:
        """Read a duration such as `90s` or `1h30m`, or None. A bare number is read as seconds, and reported."""
        value = self.raw(key)
        if value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            number = value if isinstance(value, float) else min(max(value, -INT32), INT32)
            if not 0 <= number <= INT32:
                problem = f"{shown(value)} is not a duration"
                self.report.error(self.at(key), problem, "write it as 90s or 30m", "bad-span")
                return None
            self.report.refused(
                self.at(key),
                f"{shown(value)} has no unit; it is read as {shown(value)} seconds",
                f"write {shown(value)}s",
                "no-unit",
            )
            return round(number * SECOND)
        return self._span(key, value)

    def _span(self, key: str, value: object) -> Span | None:
        if not isinstance(value, str):
            self.wrong_type(key, value, "a duration")
            return None
        try:
            if len(value) > 60:
                raise ValueError("too long")
            return min(parse_span(value), INT64)
        except (ValueError, OverflowError):
            problem = f"{shown(value)} is not a duration"
            self.report.error(self.at(key), problem, "write it as 90s, 30m, 1h30m or 2d", "bad-span")
            return None

    def only(self, *known: str) -> None:
        """Report unknown fields, with the most similar `known` one (kubectl's strict field validation)."""
        if not isinstance(self.value, dict) or not self.report.is_recorded:
            return
        for name in self.value:
            if name not in known:
                near = get_close_matches(str(name)[:60], known, 1)
                remedy = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}"
                self.report.refused(self.at(name), f"unknown field {shown(name)} is ignored", remedy, "unknown-field")


_OF_NODES = (CPU, MEMORY, EPHEMERAL_STORAGE, "storage")
_DIVISIBLE = frozenset(f"{part}{name}" for part in ("", "requests.", "limits.") for name in _OF_NODES)
"""Resources with fractional amounts, also under their names in ResourceQuotas."""


def is_extended(resource: str) -> bool:
    """True for extended resources of device plugins: whole numbers, never overcommitted."""
    return "/" in resource and not resource.startswith("kubernetes.io/")


def quantity(reader: Reader, key: str, resource: str) -> int | None:
    """Read the amount under `key` in base units of `resource`; None if it is absent, or unreadable (which is
    reported).
    """
    value = reader.raw(key)
    if value is None:
        return None
    if isinstance(value, str) and len(value) <= LONGEST and (plain := _plain(value, resource)) is not None:
        return plain
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        reader.wrong_type(key, value, "a quantity")
        return None
    try:
        exact = parse_quantity(value) if not _too_long(value) else None
    except (ValueError, OverflowError):
        reader.report.error(
            reader.at(key), f"{shown(value)} is not a quantity", "write it as 8, 500m, 1.5Gi or 2e3", "bad-quantity"
        )
        return None
    if exact is None or abs(exact) > MAX:
        reader.report.warning(
            reader.at(key),
            f"{shown(value)} is larger than Kubernetes can hold; it is taken as {MAX}",
            f"the largest quantity is {MAX}",
            "huge-quantity",
        )
        return MAX if exact is None or exact > 0 else -MAX
    if exact.denominator != 1 and resource not in _DIVISIBLE:
        _fractional(reader, key, resource, value)
    return to_int(resource, exact)


@lru_cache(4096)
def _plain(text: str, resource: str) -> int | None:
    """Parse an amount that needs no report. Cached, because a cluster has few distinct amounts."""
    try:
        exact = parse_quantity(text)
    except (ValueError, OverflowError):
        return None
    if abs(exact) > MAX or (exact.denominator != 1 and resource not in _DIVISIBLE):
        return None
    return to_int(resource, exact)


def _too_long(value: str | int | float) -> bool:
    return isinstance(value, int) and value.bit_length() > 200


def _fractional(reader: Reader, key: str, resource: str, value: object) -> None:
    if is_gpu(resource) or is_mig(resource):
        remedy = (
            "GPUs are given out whole: ask for 1, for a MIG slice such as nvidia.com/mig-1g.10gb: 1, "
            "or let the device plugin share GPUs by time-slicing"
        )
    else:
        remedy = "ask for a whole number"
    reader.report.error(
        reader.at(key), f"{resource}: {shown(value)} is not a whole number", remedy, "fractional-device"
    )


def not_negative(reader: Reader, key: str, resource: str) -> int | None:
    """Read a quantity that must be 0 or more; a negative one is reported and read as 0."""
    found = quantity(reader, key, resource)
    if found is None or found >= 0:
        return found
    reader.report.error(
        reader.at(key),
        f"{shown(reader.raw(key))} is negative: must be greater than or equal to 0",
        "write 0 or more",
        "negative",
    )
    return 0


def resources(reader: Reader, key: str) -> Resources:
    """Read a resource list, such as `requests` or `allocatable`, in base units."""
    place = reader.mapping(key)
    if not place.value:
        return EMPTY
    found: dict[str, int] = {}
    for name in place.value:
        resource = clean(str(name), 316)
        value = not_negative(place, name, resource)
        if value is not None:
            found[resource] = value
    return found


def fractions(reader: Reader, key: str) -> Mapping[str, str]:
    """Return the device amounts of a resource list that are not integers (`500m`); `resources` rounds them up."""
    values = reader.raw(key)
    if not isinstance(values, dict):
        return NO_LABELS
    found = {
        clean(str(name), 316): format_quantity(CPU, amount(CPU, value))
        for name, value in values.items()
        if isinstance(name, str) and is_extended(name) and isinstance(value, (str, float)) and _is_fraction(value)
    }
    return found or NO_LABELS


def _is_fraction(value: str | float) -> bool:
    try:
        return parse_quantity(value).denominator != 1
    except (ValueError, OverflowError):
        return False


def weight(reader: Reader) -> float:
    """Read `spec.fairSharing.weight` as a float; 1 by default."""
    place = reader.mapping("fairSharing")
    value = place.raw("weight")
    if value is None:
        return 1.0
    if not_negative(place, "weight", CPU) is None:
        return 1.0
    try:
        number = float(parse_quantity(value))
    except (ValueError, OverflowError):
        return 1.0
    if 0 < number <= 1e-9:
        place.report.refused(
            place.at("weight"), "weight must be greater than 1n, or 0", "write 0 or a larger weight", "bad-weight"
        )
    return max(0.0, number)


def billionths(reader: Reader, key: str) -> dict[str, int]:
    """Read a status's resource list with amounts finer than base units, such as decayed usage, in billionths."""
    place = reader.mapping(key)
    found = {}
    for name in place.value:
        with suppress(ValueError, OverflowError):
            found[clean(str(name), 316)] = int(parse_quantity(place.raw(name)) * BILLIONTH)
    return found
