"""Kubernetes quantities as integers, and resource vectors: requests and capacities by resource name.

Amounts are in base units: thousandths of a CPU, bytes, whole units of everything else. Sums saturate at 64 bits, as in
Kubernetes. Quantities are parsed to exact fractions and rounded up.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

MAX = 2**63 - 1
"""Largest amount, at which sums saturate; a quota of this amount counts as infinite."""
MIN = -(2**63)
BILLIONTH = 10**9
"""Number of billionths in a unit; a quantity has no finer resolution."""
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


Resources = Mapping[str, int]
"""Resource name → amount in base units (see `to_int`). Treated as frozen: never edited in place."""

EMPTY: Resources = {}
GPU_RESOURCES = (GPU, f"{GPU}.shared", "amd.com/gpu", "gpu.intel.com/i915", "google.com/tpu")
HAMI_MEMORY, HAMI_CORES = f"{GPU}mem", f"{GPU}cores"
HAMI_SHARES = (HAMI_MEMORY, HAMI_CORES, f"{HAMI_MEMORY}-percentage", "nvidia.com/priority")
"""Resources that request a share of each HAMi vGPU (MiB, percent of the cores); nodes offer only nvidia.com/gpu."""
MANY = 2**31 - 1
"""Largest number of pods that `count_in` returns."""


def add(*vectors: Resources) -> dict[str, int]:
    """Sum vectors by name, saturating at 64 bits."""
    total: dict[str, int] = {}
    for vector in vectors:
        for name, value in vector.items():
            total[name] = bounded(total.get(name, 0) + value)
    return total


def subtract(vector: Resources, other: Resources) -> Resources:
    """Subtract by name, saturating at 64 bits; may be negative. Returns the vector itself if nothing is subtracted."""
    if not other:
        return vector
    return {**vector, **{name: bounded(vector.get(name, 0) - value) for name, value in other.items()}}


def largest(*vectors: Resources) -> dict[str, int]:
    """Return the largest amount of each resource in any of the vectors."""
    top: dict[str, int] = {}
    for vector in vectors:
        for name, value in vector.items():
            top[name] = max(top.get(name, 0), value)
    return top


def scale(vector: Resources, count: int) -> dict[str, int]:
    """Multiply by a number of pods, saturating at 64 bits."""
    return {name: bounded(value * count) for name, value in vector.items()}


def divide(vector: Resources, count: int) -> dict[str, int]:
    """Divide by a number of pods, rounding towards zero. Amounts of 0 pods must be 0, and stay 0."""
    return {name: (abs(value) // count * (1 if value > 0 else -1) if value else 0) for name, value in vector.items()}


def not_negative(vector: Resources) -> dict[str, int]:
    """Replace negative amounts by zero."""
    return {name: max(0, value) for name, value in vector.items()}


def exceeding(vector: Resources, bounds: Resources) -> list[str]:
    """Return sorted names whose amount exceeds the bound; names without a bound never do."""
    return sorted(name for name, value in vector.items() if name in bounds and value > bounds[name])


def count_in(requests: Resources, capacity: Resources) -> tuple[int, str]:
    """Return how many times the requests fit, at most `MANY`, and the scarcest resource.

    Of equally scarce resources it is the first by name. Empty requests fit 0 times; negative capacity counts as 0.
    """
    least, scarcest = 0, ""
    for name, amount in requests.items():
        count = min(MANY, max(0, capacity.get(name, 0) // amount)) if amount else MANY
        if not scarcest or count < least or (count == least and name < scarcest):
            least, scarcest = count, name
    return least, scarcest


def is_gpu(resource: str) -> bool:
    """True for whole GPUs (or other whole accelerators), and for replicas of shared ones."""
    return resource in GPU_RESOURCES


def is_mig(resource: str) -> bool:
    """True for MIG instances that the device plugin offers by profile (`nvidia.com/mig-1g.10gb`)."""
    return resource.startswith(MIG_PREFIX)


def gpus(vector: Resources) -> int:
    """Number of whole GPUs and of replicas of shared ones (see `is_gpu`) in a vector, without MIG instances."""
    return sum(vector.get(name, 0) for name in GPU_RESOURCES)


def short(names: Iterable[str]) -> list[str]:
    """Sort resource names for display: GPUs, MIG instances, cpu, then the rest by name."""
    return sorted(names, key=lambda name: (not is_gpu(name), not is_mig(name), name != CPU, name))
