"""Used, pending and enqueued accelerators of the queues of Volcano and KAI, counted pod by pod.

Amounts are by counted resource: ``""`` for GPUs (and replicas of them), the resource of MIG instances, CLAIMED for DRA
devices.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import ceil

from msgspec import Struct, field

from gpuconsole.insight.device_demand import CLAIMED, counted_as, template_units
from gpuconsole.insight.gpu_allocations import GpuAllocation, gpu_allocations, queue_of, starts
from gpuconsole.insight.missing_pods import all_refused_pods
from gpuconsole.model.device_units import DRA_DEVICE, is_counted
from gpuconsole.model.resources import EMPTY, Resources
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.queue_names import VOLCANO_DEFAULT
from gpuconsole.scheduling.volcano.jobs.pod_group import group_name

Amounts = Mapping[str, float]
"""Counted resource → how much."""


class EngineQueueUse(Struct):
    """The accelerators of one queue. Mutable: filled while pods are counted."""

    held: Counter[str] = field(default_factory=Counter)
    """Accelerators of pods with a node; shared GPUs count as fractions."""
    wanted: Counter[str] = field(default_factory=Counter)
    """Requests of pods without a node."""
    held_back: Counter[str] = field(default_factory=Counter)
    """Requests of jobs without pods: Volcano has not enqueued their PodGroups, or a ResourceQuota refuses them."""
    promised: Counter[str] = field(default_factory=Counter)
    """Requests that Volcano has enqueued and that have no nodes yet: they count as used when it enqueues others."""
    placed: set[str] = field(default_factory=set)
    """Owners of scheduled pods."""
    starting: set[str] = field(default_factory=set)
    """Owners of scheduled pods that are not running yet."""
    waiting: set[str] = field(default_factory=set)
    """Owners of pods that have no node or do not exist yet."""

    def used(self, resource: str = "") -> int:
        """Used devices; fractions of shared GPUs are added up, then rounded up."""
        return _whole(self.held[resource])

    @property
    def pending(self) -> Amounts:
        """Requests that are not scheduled, including those of pods that do not exist yet."""
        found: Counter[str] = Counter()
        for amounts in (self.wanted, self.held_back):
            found.update(amounts)
        return found

    @property
    def resources(self) -> set[str]:
        """Resources that it uses or requests."""
        return {name for amounts in (self.held, self.pending) for name, amount in amounts.items() if amount}

    def add(self, other: "EngineQueueUse") -> None:
        """Add the use of another queue."""
        self.held.update(other.held)
        self.wanted.update(other.wanted)
        self.held_back.update(other.held_back)
        self.promised.update(other.promised)
        self.placed |= other.placed
        self.starting |= other.starting
        self.waiting |= other.waiting


def _whole(amount: float) -> int:
    return ceil(amount - 1e-9)


def counted_amounts(resources: Resources) -> dict[str, int]:
    """The accelerators among resources by counted resource: all kinds of GPUs together."""
    found: dict[str, int] = {}
    for name, amount in resources.items():
        if amount and is_counted(name):
            found[counted_as(name)] = found.get(counted_as(name), 0) + amount
    return found


def _amounts(one: GpuAllocation) -> Amounts:
    return {"": one.gpus, **one.parts} if one.parts else {"": one.gpus}


def uses(snapshot: Snapshot, by_namespace: bool = False) -> dict[str, EngineQueueUse]:
    """Used and pending amounts of each queue by counted resource, or of each namespace over all kinds of devices."""
    found: dict[str, EngineQueueUse] = {}
    for node, held in gpu_allocations(snapshot).items():
        for one in held:
            use = found.setdefault(_name(snapshot, one, by_namespace), EngineQueueUse())
            amounts = {"": one.devices} if by_namespace else _amounts(one)
            if node:
                use.held.update(amounts)
                use.placed.add(one.owner)
                if starts(snapshot, one):
                    use.starting.add(one.owner)
            else:
                use.wanted.update(amounts)
                use.waiting.add(one.owner)
    if by_namespace:
        for owner, refused in all_refused_pods(snapshot).items():
            namespace = refused.refusal.quota.namespace
            use = found.setdefault(namespace, EngineQueueUse())
            asked = (template_units(snapshot, namespace, template) for template in refused.templates)
            use.held_back[""] += sum(sum(units.values()) for units in asked)
            use.waiting.add(owner)
    return found


def _name(snapshot: Snapshot, one: GpuAllocation, by_namespace: bool) -> str:
    return one.namespace if by_namespace else queue_of(snapshot, one)


def volcano_uses(snapshot: Snapshot) -> dict[str, EngineQueueUse]:
    """Return `uses` of Volcano's queues, with requests that are not enqueued, and enqueued requests without nodes."""
    found = uses(snapshot)
    _hold_back(snapshot, found)
    _promise(snapshot, found)
    return found


def _hold_back(snapshot: Snapshot, own: dict[str, EngineQueueUse]) -> None:
    """Count requests that are not enqueued: they do not raise the deserved amount of a queue."""
    outside = {group.key: group for group in snapshot.pod_groups.all() if group.phase in ("", "Pending")}
    if outside:
        for held in gpu_allocations(snapshot).values():
            for one in held:
                outside.pop(one.group, None)
    jobs = {f"{job.namespace}/{group_name(job)}": job for job in snapshot.jobs.all() if job.volcano} if outside else {}
    for key, group in outside.items():
        job = jobs.get(key)
        use = own.setdefault(group.queue or VOLCANO_DEFAULT, EngineQueueUse())
        if job is not None:
            for part in job.pod_sets:
                asked = counted_amounts(part.template.requests)
                claims = template_units(snapshot, job.namespace, part.template).get(DRA_DEVICE, 0)
                asked |= {CLAIMED: claims} if claims else {}
                use.held_back.update({name: amount * part.count for name, amount in asked.items()})
        else:
            use.held_back.update(counted_amounts(group.min_resources or EMPTY))
        use.waiting.add(job.key if job is not None else key)


def _promise(snapshot: Snapshot, own: dict[str, EngineQueueUse]) -> None:
    for group, _, promised in let_in(snapshot):
        own.setdefault(group.queue or VOLCANO_DEFAULT, EngineQueueUse()).promised.update(promised)


def let_in(snapshot: Snapshot) -> Iterator[tuple[PodGroup, Mapping[str, int], Mapping[str, int]]]:
    """Yield enqueued PodGroups, what their pods use, and what their minResources reserve beyond that."""
    groups = {group.key: group for group in snapshot.pod_groups.all() if group.phase in ("Inqueue", "Running")}
    held: dict[str, Counter[str]] = {}
    for node, pods in gpu_allocations(snapshot).items() if groups else ():
        for one in pods:
            if node and one.group in groups:
                held.setdefault(one.group, Counter()).update(_amounts(one))
    for key, group in groups.items():
        holds = {name: _whole(amount) for name, amount in held.get(key, Counter[str]()).items() if amount}
        named = counted_amounts(group.min_resources or EMPTY)
        yield group, holds, {name: more for name, n in named.items() if (more := n - holds.get(name, 0)) > 0}
