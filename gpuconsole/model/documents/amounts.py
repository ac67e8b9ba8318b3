"""Quantities in documents: exact, bounded, and integers for devices."""

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

from gpuconsole.model.documents.reader import Reader, shown
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
from gpuconsole.model.text import clean

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
