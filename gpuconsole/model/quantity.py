"""Kubernetes quantities as integers: milli-CPU, bytes, whole units of everything else."""

import re
from fractions import Fraction

MAX = 2**63 - 1
CPU = "cpu"
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
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)")


def parse_quantity(value: str | int | float) -> Fraction:
    """Read a quantity exactly (`500m`, `1.5Gi`, `2e3`, `8`). Raises ValueError for anything else."""
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is no quantity")
    text = str(value).strip()
    match = _QUANTITY.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise ValueError(f"{text[:64]!r} is no quantity; write it as 8, 500m, 1.5Gi or 2e3")
    number = Fraction(match[1])
    if match[2]:
        return number * Fraction(10) ** int(match[2][1:])
    return number * _SUFFIXES[match[3] or ""]


def to_int(resource: str, quantity: Fraction) -> int:
    """Return the amount in base units (CPU in milli), rounded up as Kubernetes does and saturated at MaxInt64."""
    scaled = quantity * 1000 if resource == CPU else quantity
    return max(-MAX, min(MAX, -(-scaled.numerator // scaled.denominator)))


def amount(resource: str, value: str | int | float) -> int:
    """Read a quantity of `resource` straight into base units. Raises ValueError."""
    return to_int(resource, parse_quantity(value))


def is_binary(resource: str) -> bool:
    """True for resources that Kubernetes writes with Ki, Mi, Gi."""
    return resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-")


def format_quantity(resource: str, value: int) -> str:
    """Write base units in Kubernetes' canonical form: the largest suffix that leaves an integer.

    CPU is a milli-quantity (`1500m`, `2`), memory, ephemeral-storage and hugepages take binary suffixes, everything
    else decimal ones (resource.Quantity.String).
    """
    if resource == CPU:
        if value % 1000:
            return f"{value}m"
        return _canonical(value // 1000, 1000, ("", "k", "M", "G", "T", "P", "E"))
    if is_binary(resource):
        return _canonical(value, 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    return _canonical(value, 1000, ("", "k", "M", "G", "T", "P", "E"))


def _canonical(value: int, base: int, suffixes: tuple[str, ...]) -> str:
    power = 0
    while value and value % base == 0 and power < len(suffixes) - 1:
        value //= base
        power += 1
    return f"{value}{suffixes[power]}"
