"""Kubernetes quantities as integers: milli-CPU, bytes, whole units of everything else."""

import re
from fractions import Fraction
from functools import lru_cache

MAX = 2**63 - 1
"""Largest amount, at which sums saturate; a quota of this amount counts as infinite."""
MIN = -(2**63)
BILLIONTH = 10**9
"""Parts of a unit in the finest resolution of a quantity."""
CPU = "cpu"
MILLI = frozenset((CPU, "requests.cpu", "limits.cpu"))
"""Resources that are counted in thousandths: CPU, also under its names in quotas."""
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"
GPU = "nvidia.com/gpu"
MIG_PREFIX = "nvidia.com/mig-"

_SUFFIXES: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{name: Fraction(1000**power) for power, name in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{name: Fraction(1024**power) for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
LONGEST = 64
"""Most characters of a quantity."""
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)")


@lru_cache(4096, typed=True)
def parse_quantity(value: str | int | float) -> Fraction:
    """Parse a quantity exactly (`500m`, `1.5Gi`, `2e3`, `8`). Raises ValueError for anything else."""
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a quantity")
    text = str(value).strip()
    match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        raise ValueError(f"{text[:LONGEST]!r} is not a quantity; write it as 8, 500m, 1.5Gi or 2e3")
    number = Fraction(match[1])
    if match[2]:
        return number * Fraction(10) ** int(match[2][1:])
    return number * _SUFFIXES[match[3] or ""]


def to_int(resource: str, quantity: Fraction) -> int:
    """Return the amount in base units (CPU in milli), rounded up as Kubernetes does and saturated at MaxInt64."""
    scaled = quantity * 1000 if resource in MILLI else quantity
    return bounded(-(-scaled.numerator // scaled.denominator))


def bounded(value: int) -> int:
    """Clamp to 64 bits: sums saturate, they never wrap."""
    return MAX if value > MAX else MIN if value < MIN else value


def amount(resource: str, value: str | int | float) -> int:
    """Parse a quantity of `resource` to base units. Raises ValueError."""
    return to_int(resource, parse_quantity(value))


def is_binary(resource: str) -> bool:
    """True for resources that Kubernetes writes with Ki, Mi, Gi."""
    return resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-")


def format_quantity(resource: str, value: int) -> str:
    """Format base units in Kubernetes' canonical form: the largest suffix that leaves an integer.

    CPU is a milli-quantity (`1500m`, `2`), memory, ephemeral-storage and hugepages take binary suffixes, everything
    else decimal ones (resource.Quantity.String). Bytes that are not a multiple of 1Ki have decimal suffixes, `1500M`
    (Kueue 0.19 ResourceFormatter).
    """
    if resource in MILLI:
        if value % 1000:
            return f"{value}m"
        return _canonical(value // 1000, 1000, ("", "k", "M", "G", "T", "P", "E"))
    if is_binary(resource) and value % 1024 == 0:
        return _canonical(value, 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    return _canonical(value, 1000, ("", "k", "M", "G", "T", "P", "E"))


def _canonical(value: int, base: int, suffixes: tuple[str, ...]) -> str:
    power = 0
    while value and value % base == 0 and power < len(suffixes) - 1:
        value //= base
        power += 1
    return f"{value}{suffixes[power]}"


_MOST = Fraction(MAX)
_EXACT_DIGITS = 18
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")


@lru_cache(4096, typed=True)
def canonical(value: str | int | float) -> str:
    """Format a quantity as Kubernetes writes it back: `1000m` is `1`, `1024Mi` is `1Gi`, `0.5` is `500m`.

    The suffix is the largest that leaves an integer, of the same kind as in the input (decimal, binary or exponent).
    Fractions finer than a billionth are rounded up. There is no suffix beyond E, so `1000E` becomes `1`; quantities of
    more than 18 digits are limited to MaxInt64 (resource.Quantity). Raises ValueError.
    """
    text = str(value).strip()
    number = parse_quantity(value) if sum(map(str.isdigit, text)) <= _EXACT_DIGITS else capped(value)
    if text.endswith("i") and abs(number) >= 1024 and number.denominator == 1:
        return _canonical(number.numerator, 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    if not number:
        return "0"
    nanos = number * 10**9
    rounded = -(-nanos.numerator // nanos.denominator) if number > 0 else nanos.numerator // nanos.denominator
    power = 0
    while rounded % 1000 == 0:
        rounded //= 1000
        power += 1
    if "e" in text.lower()[1:-1] and power != 3:
        return f"{rounded}e{3 * power - 9}"
    return f"{rounded}{_DECIMAL[power] if power < len(_DECIMAL) else ''}"


def capped(value: str | int | float) -> Fraction:
    """Parse a quantity as Kubernetes stores it: at most MaxInt64. Raises ValueError."""
    return max(-_MOST, min(_MOST, parse_quantity(value)))
