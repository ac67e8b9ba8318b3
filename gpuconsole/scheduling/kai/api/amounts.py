"""Resource amounts: free resources of a node, allocated resources of a job (KAI 0.13 api/resource_info Resource)."""

import re
from collections.abc import Hashable

from gpuconsole.scheduling.kai.api.requests import ResourceRequirements

PODS = "pods"
GPU = "nvidia.com/gpu"
CPU = "cpu"
MIG_PREFIX = "nvidia.com/mig-"
_PROFILE = re.compile(r"nvidia\.com/mig-(\d+)g\.(\d+)gb")


def mig_profile(name: str) -> tuple[int, int] | None:
    """GPU slices and gigabytes from a MIG resource's name; None if KAI cannot parse it, as with 1g.10gb+me."""
    found = _PROFILE.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def mig_slices(amounts: dict[str, int]) -> float:
    """GPU slices of all MIG resources among these: KAI counts one slice as one GPU of quota."""
    if not any(name.startswith(MIG_PREFIX) for name in amounts):
        return 0.0
    return float(sum(profile[0] * n for name, n in amounts.items() if (profile := mig_profile(name))))


class ResourceAmounts:
    """CPU in milli, memory in bytes, GPUs as a number, and everything else by name. Mutates."""

    __slots__ = ("cpu", "gpus", "memory", "scalars")

    def __init__(
        self, cpu: float = 0, memory: float = 0, gpus: float = 0, scalars: dict[str, int] | None = None
    ) -> None:
        self.cpu, self.memory, self.gpus = cpu, memory, gpus
        self.scalars: dict[str, int] = {} if scalars is None else scalars

    def clone(self) -> "ResourceAmounts":
        """An independent copy."""
        return ResourceAmounts(self.cpu, self.memory, self.gpus, self.scalars.copy())

    @property
    def key(self) -> Hashable:
        return (self.cpu, self.memory, self.gpus, *self.scalars.items())

    @property
    def nothing(self) -> bool:
        return not (self.cpu or self.memory or self.gpus or self.scalars)

    def add(self, other: "ResourceAmounts") -> None:
        """Add amounts, resource by resource."""
        self._shift(other, 1)

    def subtract(self, other: "ResourceAmounts") -> None:
        """Subtract amounts, resource by resource; results may be negative."""
        self._shift(other, -1)

    def _shift(self, other: "ResourceAmounts", sign: int) -> None:
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
        self._shift(
            ResourceAmounts(request.cpu, request.memory, request.gpus + request.claimed, dict(request.scalars)), sign
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

    def within(self, other: "ResourceAmounts") -> bool:
        """True if no resource is above the other's."""
        return (
            self.gpus <= other.gpus
            and self.cpu <= other.cpu
            and self.memory <= other.memory
            and all(name in other.scalars and n <= other.scalars[name] for name, n in self.scalars.items())
        )

    def raise_to(self, other: "ResourceAmounts") -> None:
        """Become the larger of both, resource by resource."""
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


def accommodates(free: ResourceAmounts, request: ResourceRequirements) -> bool:
    """True if a request for whole GPUs, MIG instances or no GPU at all fits what is free."""
    return (
        plain_part_fits(free, request)
        and request.gpus + request.claimed <= free.gpus
        and all(name in free.scalars and n <= free.scalars[name] for name, n in request.mig.items())
    )


def plain_part_fits(free: ResourceAmounts, request: ResourceRequirements) -> bool:
    """True if CPU, memory and other resources fit; GPUs are checked separately."""
    return (
        request.cpu <= free.cpu
        and request.memory <= free.memory
        and all(name in free.scalars and n <= free.scalars[name] for name, n in request.scalars.items())
    )
