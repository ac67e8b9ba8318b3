"""Names of the engines of a cluster: admission, scheduling, node autoscaling and GPU sharing."""

from typing import assert_never

from msgspec import Struct

from gpuconsole.insight.derived import memoized
from gpuconsole.model.gpus.mig_resources import MigStrategy
from gpuconsole.model.gpus.sharing import STRATEGY
from gpuconsole.model.resources import is_mig
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.autoscaling.policy import AutoscalerPolicy, Capacity, FixedCapacity, KarpenterPolicy
from gpuconsole.sim.policy import SimPolicy

KUEUE = "Kueue 0.19"


class Engine(Struct, frozen=True):
    """The name of an engine, in full and abbreviated; both empty where there is none."""

    name: str = ""
    short: str = ""


NONE = Engine()


class EnginesInForce(Struct, frozen=True, kw_only=True):
    """The engines of a cluster: admission, placement, capacity (autoscaling) and GPU sharing."""

    admission: Engine = NONE
    placement: Engine = NONE
    capacity: Engine = NONE
    sharing: Engine = NONE

    @property
    def parts(self) -> tuple[Engine, ...]:
        """The engines that exist, in the order in which they handle a job."""
        return tuple(part for part in (self.admission, self.placement, self.capacity, self.sharing) if part.name)


def engines(policy: SimPolicy) -> EnginesInForce:
    """Return the engines of a simulation's policy; GPU sharing is read from the nodes, see `sharing`."""
    return EnginesInForce(
        admission=NONE if policy.kueue is None else Engine(KUEUE, "Kueue"),
        placement=_with_second_scheduler(_placement(policy.placement), policy.second_scheduler),
        capacity=_capacity(policy.capacity),
    )


def _placement(placement: PlacementPolicy | VolcanoPolicy | KaiPolicy) -> Engine:
    match placement:
        case PlacementPolicy():
            return Engine("kube-scheduler", "kube")
        case VolcanoPolicy():
            return Engine("Volcano", "Volcano")
        case KaiPolicy():
            return Engine("KAI", "KAI")
        case _:
            assert_never(placement)


def _with_second_scheduler(engine: Engine, other: VolcanoPolicy | None) -> Engine:
    """Return the name of the scheduler, with the second one if there are two."""
    if other is None:
        return engine
    second = _placement(other)
    return Engine(f"{engine.name} + {second.name}", f"{engine.short}+{second.short}")


def _capacity(capacity: Capacity) -> Engine:
    match capacity:
        case FixedCapacity():
            return NONE
        case KarpenterPolicy():
            return Engine("Karpenter", "Karp")
        case AutoscalerPolicy():
            return Engine("Cluster Autoscaler", "CA")
        case _:
            assert_never(capacity)


@memoized("nodes", "resource_slices")
def sharing(snapshot: Snapshot) -> Engine:
    """Return how the nodes' GPUs are shared; none where the device plugin only allocates whole GPUs."""
    found: dict[Engine, None] = {}
    for node in snapshot.nodes.all():
        kind = node.labels.get(STRATEGY, "")
        if kind not in ("", "none"):
            found[Engine("MPS", "MPS") if kind == "mps" else Engine("time-slicing", "TS")] = None
        if node.labels.get("nvidia.com/mig.strategy") == MigStrategy.SINGLE:
            found[Engine("MIG single", "MIG")] = None
        elif any(map(is_mig, node.allocatable)):
            found[Engine("MIG mixed", "MIG")] = None
    if len(snapshot.resource_slices):
        found[Engine("DRA", "DRA")] = None
    ways = sorted(found, key=lambda way: way.name)
    return Engine(" + ".join(way.name for way in ways), "+".join(dict.fromkeys(way.short for way in ways)))
