"""Resource vectors: requests and capacities by resource name, with saturating arithmetic; and which resources are
GPUs.
"""

from collections.abc import Iterable, Mapping

from gpuconsole.model import quantity
from gpuconsole.model.quantity import GPU, MIG_PREFIX, bounded

Resources = Mapping[str, int]
"""Resource name → amount in base units (see `quantity`). Treated as frozen: never edited in place."""

EMPTY: Resources = {}
GPU_RESOURCES = (GPU, f"{GPU}.shared", "amd.com/gpu", "gpu.intel.com/i915", "google.com/tpu")
HAMI_MEMORY, HAMI_CORES = f"{GPU}mem", f"{GPU}cores"
HAMI_SHARES = (HAMI_MEMORY, HAMI_CORES, f"{HAMI_MEMORY}-percentage", "nvidia.com/priority")
"""Requests for each of HAMi's vGPUs: MiB, percent of the cores. Its device plugin offers only nvidia.com/gpu."""
MANY = 2**31 - 1
"""Largest number of pods that is counted."""


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
    """Divide by a number of pods, rounding towards zero; 0 for 0 pods."""
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
    """Number of whole GPUs in a vector, without MIG instances."""
    return sum(vector.get(name, 0) for name in GPU_RESOURCES)


def short(names: Iterable[str]) -> list[str]:
    """Sort resource names for display: GPUs, MIG instances, cpu, memory, the rest."""
    return sorted(names, key=lambda name: (not is_gpu(name), not is_mig(name), name != quantity.CPU, name))
