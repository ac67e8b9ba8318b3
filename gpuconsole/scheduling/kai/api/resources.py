"""Resources of a session: requests of tasks, and amounts of nodes and jobs (KAI 0.13 api/resource_info).

`ResourceRequirements` is the request of one task. `ResourceAmounts` are the free resources of a node or the allocated
resources of a job.
"""

import math
import re
from collections.abc import Hashable, Mapping

from msgspec import Struct

MIN_GPUS = 0.01
_MIN_CPU, _MIN_MEMORY, _MIN_SCALAR = 10, 10 * 1024 * 1024, 10


def gpu_sum(portion: float, count: int) -> float:
    """GPUs that `count` devices with this portion each add up to; the portion is rounded to hundredths."""
    return math.floor(portion * 100 + 0.5) * count / 100


class ResourceRequirements(Struct, frozen=True, kw_only=True):
    """A task's request: CPU in milli, memory in bytes, `count` devices of `portion` GPU or `gpu_memory` MiB each."""

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
    def dra_gpus(self) -> int:
        """GPUs that come from resource claims."""
        return sum(self.claims.values())

    @property
    def is_fractional(self) -> bool:
        return self.gpu_memory > 0 or (self.count > 0 and self.portion < 1)

    @property
    def is_empty(self) -> bool:
        """True if the request is negligible: such a task is best effort."""
        return (
            self.gpus <= MIN_GPUS
            and not any(n > 0 for n in self.claims.values())
            and not any(n > 0 for n in self.mig.values())
            and self.cpu < _MIN_CPU
            and self.memory < _MIN_MEMORY
            and not any(n >= _MIN_SCALAR for n in self.scalars.values())
        )

    def is_within(self, other: "ResourceRequirements") -> bool:
        """True if no part of the request is larger than in `other`; portions may differ by less than a hundredth.

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


class DifferentGpuPortions(ValueError):
    """Requests for different fractions of a GPU have no common maximum."""


def largest_request(one: ResourceRequirements, other: ResourceRequirements) -> ResourceRequirements:
    """The larger of two requests, part by part, with the GPU memory of `one`. Raises PortionsDiffer."""
    if one.portion and other.portion and one.portion != other.portion:
        raise DifferentGpuPortions(f"{one.portion} and {other.portion} of a GPU")
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


def new_request(gpus: float, *, cpu: float = 0, memory: float = 0, gpu_memory: int = 0) -> ResourceRequirements:
    """Create a request for this many GPUs: whole ones as devices, less than one as a portion of one device."""
    if gpus >= 1:
        return ResourceRequirements(cpu=cpu, memory=memory, count=int(gpus), portion=1, gpu_memory=gpu_memory)
    count = 1 if gpus > 0 or gpu_memory > 0 else 0
    return ResourceRequirements(cpu=cpu, memory=memory, count=count, portion=gpus, gpu_memory=gpu_memory)


PODS = "pods"
GPU = "nvidia.com/gpu"
CPU = "cpu"
MIG_PREFIX = "nvidia.com/mig-"
_PROFILE = re.compile(r"nvidia\.com/mig-(\d+)g\.(\d+)gb")


def mig_profile(name: str) -> tuple[int, int] | None:
    """(GPU slices, gigabytes) from a MIG resource's name; None if KAI cannot parse it, as with 1g.10gb+me."""
    found = _PROFILE.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def mig_slices(amounts: dict[str, int]) -> float:
    """GPU slices of all MIG resources among these: KAI counts one slice as one GPU of quota."""
    if not any(name.startswith(MIG_PREFIX) for name in amounts):
        return 0.0
    return float(sum(profile[0] * n for name, n in amounts.items() if (profile := mig_profile(name))))


class ResourceAmounts:
    """Resources of a node or job: CPU in milli, memory in bytes, GPUs as a number, others by name. Mutates."""

    __slots__ = ("cpu", "gpus", "memory", "scalars")

    def __init__(
        self, cpu: float = 0, memory: float = 0, gpus: float = 0, scalars: dict[str, int] | None = None
    ) -> None:
        self.cpu, self.memory, self.gpus = cpu, memory, gpus
        self.scalars: dict[str, int] = {} if scalars is None else scalars

    def copy(self) -> "ResourceAmounts":
        """An independent copy."""
        return ResourceAmounts(self.cpu, self.memory, self.gpus, self.scalars.copy())

    @property
    def key(self) -> Hashable:
        return (self.cpu, self.memory, self.gpus, *self.scalars.items())

    @property
    def is_empty(self) -> bool:
        return not (self.cpu or self.memory or self.gpus or self.scalars)

    def add(self, other: "ResourceAmounts") -> None:
        """Add amounts, resource by resource."""
        self._add_signed(other, 1)

    def subtract(self, other: "ResourceAmounts") -> None:
        """Subtract amounts, resource by resource; results may be negative."""
        self._add_signed(other, -1)

    def _add_signed(self, other: "ResourceAmounts", sign: int) -> None:
        self.cpu += sign * other.cpu
        self.memory += sign * other.memory
        self.gpus += sign * other.gpus
        for name, amount in other.scalars.items():
            total = self.scalars.get(name, 0) + sign * amount
            if total:
                self.scalars[name] = total
            else:
                self.scalars.pop(name, None)

    def add_request(self, request: ResourceRequirements, sign: int = 1) -> None:
        """Add a task's request, or subtract it (`sign` -1): MIG instances by name, devices of claims as GPUs."""
        self._add_signed(
            ResourceAmounts(request.cpu, request.memory, request.gpus + request.dra_gpus, dict(request.scalars)), sign
        )
        for name, count in request.mig.items():
            self.scalars[name] = self.scalars.get(name, 0) + sign * count

    def get(self, name: str) -> float:
        """The amount of a resource by its Kubernetes name; 0 if there is none."""
        match name:
            case "cpu":
                return self.cpu
            case "memory":
                return self.memory
            case "nvidia.com/gpu" | "amd.com/gpu":
                return self.gpus
        return float(self.scalars.get(name, 0))

    def is_within(self, other: "ResourceAmounts") -> bool:
        """True if no amount is more than in `other`."""
        return (
            self.gpus <= other.gpus
            and self.cpu <= other.cpu
            and self.memory <= other.memory
            and all(name in other.scalars and n <= other.scalars[name] for name, n in self.scalars.items())
        )

    def set_max(self, other: "ResourceAmounts") -> None:
        """Raise each amount to that in `other`, if that is more."""
        self.cpu, self.memory = max(self.cpu, other.cpu), max(self.memory, other.memory)
        self.gpus = max(self.gpus, other.gpus)
        for name, amount in other.scalars.items():
            self.scalars[name] = max(self.scalars.get(name, amount), amount)

    @property
    def gpu_quota(self) -> float:
        """GPUs and MIG slices together."""
        return self.gpus + mig_slices(self.scalars)

    @property
    def mig(self) -> dict[str, int]:
        return {name: n for name, n in self.scalars.items() if name.startswith(MIG_PREFIX)}


def fits_whole_devices(free: ResourceAmounts, request: ResourceRequirements) -> bool:
    """True if a request for whole GPUs, MIG instances or no GPU at all fits what is free."""
    return (
        fits_without_gpus(free, request)
        and request.gpus + request.dra_gpus <= free.gpus
        and all(name in free.scalars and n <= free.scalars[name] for name, n in request.mig.items())
    )


def fits_without_gpus(free: ResourceAmounts, request: ResourceRequirements) -> bool:
    """True if CPU, memory and other resources fit; GPUs are checked separately."""
    return (
        request.cpu <= free.cpu
        and request.memory <= free.memory
        and all(name in free.scalars and n <= free.scalars[name] for name, n in request.scalars.items())
    )
