"""Gangs that are not fully scheduled: GPUs that they hold and need, and deadlocks between them."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.index.demand import pod_units
from gpuconsole.insight.index.pods import pods_by_node
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.devices import ANY_DEVICE, WHOLE_GPU, added, in_one_unit
from gpuconsole.model.snapshot import Snapshot


class PartiallyScheduledGang(Struct, frozen=True, kw_only=True):
    """A gang of which too few pods are scheduled."""

    key: tuple[str, str]
    """As `gang_key` of its pods."""
    name: str
    """Key of its Workload, else of its job, else `namespace/gang`."""
    placed: int
    needed: int
    """Number of pods that have to run at once."""
    held_gpus: int
    """GPUs, or what `unit` names, of the scheduled pods: they do no work while the gang is not complete."""
    unit: str = WHOLE_GPU.noun
    missing_gpus: int
    """GPUs of as many pending pods as are still needed, the smallest first."""
    since: Time
    """Creation time of the oldest pending pod."""

    @property
    def held(self) -> str:
        """Devices of its scheduled pods, as text: `4 MIG 1g.10gb instances`."""
        return counted(self.held_gpus, self.unit)


class GangDeadlock(Struct, frozen=True):
    """Gangs that hold GPUs while each waits for GPUs of the others."""

    gangs: tuple[PartiallyScheduledGang, ...]

    @property
    def held_gpus(self) -> int:
        """Devices that the gangs hold together."""
        return sum(gang.held_gpus for gang in self.gangs)

    @property
    def unit(self) -> str:
        """The unit of the devices; generic if there are several units."""
        units = {gang.unit for gang in self.gangs}
        return units.pop() if len(units) == 1 else ANY_DEVICE

    @property
    def held(self) -> str:
        """The held devices as text: `8 GPUs`, `4 MIG 1g.10gb instances`."""
        return counted(self.held_gpus, self.unit)


def gang_key(pod: Pod) -> tuple[str, str]:
    """Return namespace and gang name of a pod, as a gang name is unique only within its namespace."""
    return pod.namespace, pod.gang


@memoized("pods", "pod_groups", "kai_pod_groups", "nodes", "resource_claim_templates", "resource_claims")
def waiting_gangs(snapshot: Snapshot) -> tuple[PartiallyScheduledGang, ...]:
    """List the gangs of which too few pods are scheduled, the longest pending first.

    Once enough pods are scheduled, the gang runs, and its other pods are pending like any pods.
    """
    where = pods_by_node(snapshot)
    members: dict[tuple[str, str], list[Pod]] = {
        gang_key(pod): [] for pod in where.waiting.values() if pod.gang and not pod.deleted
    }
    if not members:
        return ()
    for pods in where.by_node.values():
        for pod in pods.values():
            if pod.gang and not pod.deleted and gang_key(pod) in members:
                members[gang_key(pod)].append(pod)
    gangs = (_gang(snapshot, pods) for pods in members.values())
    return tuple(
        sorted((gang for gang in gangs if gang.placed < gang.needed), key=lambda gang: (gang.since, gang.name))
    )


def _gang(snapshot: Snapshot, pods: list[Pod]) -> PartiallyScheduledGang:
    first = pods[0]
    placed = [pod for pod in pods if pod.node]
    waiting = [pod for pod in pods if not pod.node]
    needed = max(pod.gang_size for pod in pods) or _least(snapshot, first) or len(pods)
    asked = sorted(sum(pod_units(snapshot, pod).values()) for pod in waiting)
    held = added(*(pod_units(snapshot, pod) for pod in placed))
    return PartiallyScheduledGang(
        key=gang_key(first),
        name=first.workload or first.job or f"{first.namespace}/{first.gang}",
        placed=len(placed),
        needed=needed,
        held_gpus=sum(held.values()),
        unit=in_one_unit(held or pod_units(snapshot, first))[1],
        missing_gpus=sum(asked[: max(0, needed - len(placed))]),
        since=min(pod.created for pod in waiting),
    )


def _least(snapshot: Snapshot, pod: Pod) -> int:
    """Return the number of pods that the gang's PodGroup requires to run at once; 0 without a PodGroup.

    Volcano's minTaskMember does not require more: it counts only if its sum is within minMember.
    """
    key = "/".join(gang_key(pod))
    group = snapshot.pod_groups.get(key) or snapshot.kai_pod_groups.get(key)
    return group.min_member if group is not None else 0


def deadlock(snapshot: Snapshot, free_gpus: Mapping[str, int]) -> GangDeadlock | None:
    """Return the gangs that block each other: at least two hold GPUs, and the free GPUs complete none.

    `free_gpus` is node → accelerators that a new pod could take; only these decide whether a gang can be completed.
    """
    holding = tuple(gang for gang in waiting_gangs(snapshot) if gang.held_gpus and gang.missing_gpus)
    free = sum(free_gpus.values())
    if len(holding) < 2 or any(gang.missing_gpus <= free for gang in holding):
        return None
    return GangDeadlock(holding)
