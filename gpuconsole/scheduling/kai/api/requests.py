"""Resource requirements of one task (KAI 0.13 api/resource_info ResourceRequirements and GpuResourceRequirement)."""

import math
from collections.abc import Mapping

from msgspec import Struct

MIN_GPUS = 0.01
_MIN_CPU, _MIN_MEMORY, _MIN_SCALAR = 10, 10 * 1024 * 1024, 10


def gpu_sum(portion: float, count: int) -> float:
    """GPUs that `count` devices with this portion each make, the portion rounded to hundredths."""
    return math.floor(portion * 100 + 0.5) * count / 100


class ResourceRequirements(Struct, frozen=True, kw_only=True):
    """CPU in milli, memory in bytes; `count` devices of `portion` GPU each, or of `gpu_memory` MiB each."""

    cpu: float = 0
    memory: float = 0
    scalars: Mapping[str, int] = {}
    count: int = 0
    portion: float = 0
    gpu_memory: int = 0
    claims: Mapping[str, int] = {}
    """Devices by device class, from resource claims."""
    mig: Mapping[str, int] = {}

    @property
    def gpus(self) -> float:
        return gpu_sum(self.portion, self.count)

    @property
    def claimed(self) -> int:
        """GPUs that come from resource claims."""
        return sum(self.claims.values())

    @property
    def fractional(self) -> bool:
        return self.gpu_memory > 0 or (self.count > 0 and self.portion < 1)

    @property
    def empty(self) -> bool:
        """True if the request is negligible: such a task is best effort."""
        return (
            self.gpus <= MIN_GPUS
            and not any(n > 0 for n in self.claims.values())
            and not any(n > 0 for n in self.mig.values())
            and self.cpu < _MIN_CPU
            and self.memory < _MIN_MEMORY
            and not any(n >= _MIN_SCALAR for n in self.scalars.values())
        )

    def within(self, other: "ResourceRequirements") -> bool:
        """True if no part is larger than the other's; GPU portions may differ by less than a hundredth.

        GPU memory and claims are not compared.
        """
        return (
            self.cpu <= other.cpu
            and self.memory <= other.memory
            and _counts_within(self.scalars, other.scalars)
            and self.count <= other.count
            and (self.portion < other.portion or abs(self.portion - other.portion) < MIN_GPUS)
            and _counts_within(self.mig, other.mig)
        )


def _counts_within(counts: Mapping[str, int], others: Mapping[str, int]) -> bool:
    return all(name in others and n <= others[name] for name, n in counts.items())


class PortionsDiffer(ValueError):
    """Requests for different fractions of a GPU have no common maximum."""


def largest_request(one: ResourceRequirements, other: ResourceRequirements) -> ResourceRequirements:
    """The larger of both, part by part, with the GPU memory of `one`. Raises PortionsDiffer."""
    if one.portion and other.portion and one.portion != other.portion:
        raise PortionsDiffer(f"{one.portion} and {other.portion} of a GPU")
    wider = other if other.gpus > one.gpus else one
    return ResourceRequirements(
        cpu=max(one.cpu, other.cpu),
        memory=max(one.memory, other.memory),
        scalars=_largest(one.scalars, other.scalars),
        count=wider.count,
        portion=wider.portion,
        gpu_memory=one.gpu_memory,
        claims=_largest(one.claims, other.claims),
        mig=_largest(one.mig, other.mig),
    )


def _largest(counts: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {name: max(counts.get(name, n), n) for name, n in (*counts.items(), *others.items())} | {
        name: max(n, others[name]) for name, n in counts.items() if name in others
    }


def asking(gpus: float, *, cpu: float = 0, memory: float = 0, gpu_memory: int = 0) -> ResourceRequirements:
    """A request for this many GPUs: whole ones as devices, less than one as a portion of one device."""
    if gpus >= 1:
        return ResourceRequirements(cpu=cpu, memory=memory, count=int(gpus), portion=1, gpu_memory=gpu_memory)
    count = 1 if gpus > 0 or gpu_memory > 0 else 0
    return ResourceRequirements(cpu=cpu, memory=memory, count=count, portion=gpus, gpu_memory=gpu_memory)
