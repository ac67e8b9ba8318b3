"""Resource vectors: what a pod requests, sums that saturate, and which resources are GPUs."""

from collections.abc import Iterable, Mapping

from gpuconsole.model import quantity
from gpuconsole.model.quantity import GPU, MAX, MIG_PREFIX

Resources = Mapping[str, int]
"""Resource name → amount in base units (see `quantity`). Treated as frozen: never edited in place."""

EMPTY: Resources = {}
GPU_RESOURCES = (GPU, "amd.com/gpu", "gpu.intel.com/i915", "google.com/tpu")


def add(*vectors: Resources) -> dict[str, int]:
    """Sum vectors by name, saturating at MaxInt64."""
    total: dict[str, int] = {}
    for vector in vectors:
        for name, value in vector.items():
            total[name] = min(MAX, total.get(name, 0) + value)
    return total


def largest(*vectors: Resources) -> dict[str, int]:
    """The greatest amount of each resource in any of the vectors."""
    top: dict[str, int] = {}
    for vector in vectors:
        for name, value in vector.items():
            top[name] = max(top.get(name, 0), value)
    return top


def scale(vector: Resources, count: int) -> dict[str, int]:
    """Multiply by a number of pods, saturating at MaxInt64."""
    return {name: min(MAX, value * count) for name, value in vector.items()}


def is_gpu(resource: str) -> bool:
    """True for whole GPUs (or other accelerators that take a whole device)."""
    return resource in GPU_RESOURCES


def is_mig(resource: str) -> bool:
    """True for MIG slices that the device plugin offers by profile (`nvidia.com/mig-1g.10gb`)."""
    return resource.startswith(MIG_PREFIX)


def gpus(vector: Resources) -> int:
    """How many whole GPUs a vector holds; MIG slices are counted apart."""
    return sum(vector.get(name, 0) for name in GPU_RESOURCES)


def short(names: Iterable[str]) -> list[str]:
    """Resource names for people, in a stable order: GPUs, MIG slices, cpu, memory, the rest."""
    return sorted(names, key=lambda name: (not is_gpu(name), not is_mig(name), name != quantity.CPU, name))
