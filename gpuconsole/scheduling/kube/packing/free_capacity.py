"""Free capacity of a node by GPU, and the demand of a pod: the inputs of every packing policy."""

from functools import cached_property

from msgspec import Struct

MILLI = 1000
"""Milli of a whole GPU."""
NO_GPU = "no-gpu"
SHARED_GPU = "share-gpu"


class PodDemand(Struct, frozen=True, kw_only=True):
    """Requests of a pod: cpu in milli, memory in the unit of the capacity, and `milli` of each of its GPUs.

    Only a pod with a single GPU may ask for part of it.
    """

    cpu: int
    memory: int = 0
    gpus: int = 0
    milli: int = 0
    models: tuple[str, ...] = ()
    """Accepted GPU models, compared as written; empty accepts any."""

    @property
    def shared(self) -> bool:
        """True if the pod requests part of one GPU."""
        return self.gpus == 1 and self.milli < MILLI

    @property
    def total(self) -> int:
        """Milli of all its GPUs together."""
        return self.gpus * self.milli

    @property
    def kind(self) -> str:
        """The class that GPU clustering distinguishes: by the number of GPUs, and shared GPUs separately."""
        if not self.gpus:
            return NO_GPU
        return SHARED_GPU if self.shared else f"{self.gpus}-gpu"


class FreeCapacity(Struct, frozen=True, dict=True):
    """Free cpu, memory and GPU capacity of a node."""

    cpu: int
    memory: int
    gpus: tuple[int, ...] = ()
    """Milli left of each GPU, by index."""
    model: str = ""
    """The model of its GPUs; empty without any."""
    kinds: frozenset[str] = frozenset()
    """Kinds of the pods with GPUs on the node (`PodDemand.kind`)."""

    @cached_property
    def idle(self) -> int:
        """Milli left of all GPUs together."""
        return sum(self.gpus)

    @cached_property
    def ordered(self) -> tuple[int, ...]:
        """Milli left of each GPU, the least first."""
        return tuple(sorted(self.gpus))

    @property
    def free(self) -> int:
        """How many GPUs are wholly free."""
        return self.gpus.count(MILLI)


def suits(model: str, models: tuple[str, ...]) -> bool:
    """True if the pod accepts GPUs of this model."""
    return not models or model in models


def fits(room: FreeCapacity, demand: PodDemand) -> bool:
    """True if the pod fits the node: model, cpu, memory, and enough GPUs with enough left of each."""
    if room.cpu < demand.cpu or room.memory < demand.memory:
        return False
    count = demand.gpus
    if not count:
        return True
    # If the GPU with the `count`-th most left has enough, those with more have, too.
    return len(room.gpus) >= count and room.ordered[-count] >= demand.milli and suits(room.model, demand.models)


def whole(room: FreeCapacity, count: int) -> tuple[int, ...]:
    """Indices of the first `count` wholly free GPUs; fewer if there are not enough."""
    return tuple(index for index, left in enumerate(room.gpus) if left == MILLI)[:count]


def tightest(room: FreeCapacity, demand: PodDemand) -> tuple[int, ...]:
    """GPUs by best fit: for a shared GPU the one with the least sufficient rest, the first on ties; else whole ones."""
    if not demand.shared:
        return whole(room, demand.gpus)
    return (room.gpus.index(min(left for left in room.gpus if left >= demand.milli)),)
