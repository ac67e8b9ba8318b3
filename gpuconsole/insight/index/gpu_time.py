"""GPU time: work that an eviction would lose, GPU-hours, and the GPUs that each pod holds.

Lost work is the GPU time of running pods since their start or their last checkpoint, by the simulator's rule
(`sim.controllers.work`): independent pods work from their own start, others from the time when enough of them run.
GPU-hours (`GpuTime`) are accumulated from events. In all of these, MIG instances and replicas of shared GPUs count as
fractions of a GPU, and DRA devices as one GPU each. Allocations by node are kept from Snapshot to Snapshot, and updated
only for nodes whose pods changed.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from gpuconsole.insight.derived import incremental, memoized
from gpuconsole.insight.index.demand import (
    CLAIMED,
    annotated,
    counted_as,
    device_counter,
    pod_accelerators,
    pod_gpus,
    pod_units,
)
from gpuconsole.insight.index.pods import Pods, pods_by_node
from gpuconsole.model.clock import HOUR, Span, Time
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.device_requests import NO_DEVICES, DeviceCounter, amount_of_gpus, gpus_claimable, gpus_of_node
from gpuconsole.model.devices import DRA_DEVICE, ResourceClaimTemplate, ResourceSlice, Units
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.gpus.mig_reconfiguration import Division, division_of
from gpuconsole.model.job import Job
from gpuconsole.model.kai import KaiPodGroup
from gpuconsole.model.prices import part_offered
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.queue_names import group_key, own_queue, queue_by


class UncheckpointedWork(Struct, frozen=True):
    """Lost work of one pod, or of all pods of a workload if none of them is visible."""

    pod: Pod | None
    gpus: float
    """GPUs; a MIG instance or a replica is a fraction of one, a DRA device is one."""
    span: Span


def uncheckpointed(
    workload: Workload,
    job: Job | None,
    pods: Collection[Pod],
    now: Time,
    devices: DeviceCounter,
    *,
    all_seen: bool = True,
    again: Time = 0,
) -> Sequence[UncheckpointedWork] | None:
    """Return the lost work of an eviction at a given time, for each pod that ran then; None if unknown.

    `pods` are those that existed then; `all_seen` if there are no others. `again` is the time at which the work
    restarted after it had lost pods, if known.
    """
    if job is not None and job.endless:
        return ()
    if not pods:
        return _without_pods(workload, job, now, devices, all_seen)
    at_work = {pod.key: (pod, _began(pod, job)) for pod in pods if _ran(pod, now)}
    starts = sorted(start for _, start in at_work.values())
    if 0 in starts:
        return None
    since = again
    together = job is None or not job.solo
    if together:
        least = _least(workload, job, sum(not pod.done for pod in pods))
        ready = workload.condition("PodsReady")
        if len(starts) < least or (ready is not None and not ready.status):
            return ()
        since = max(again, starts[least - 1])
    interval = _interval(workload, job)
    return tuple(
        UncheckpointedWork(
            pod,
            devices.gpus(pod),
            # A pod that joined late has no work from before its start, whatever the last common checkpoint.
            min(now - start, _since_checkpoint(now - (since if together else max(since, start)), interval)),
        )
        for pod, start in at_work.values()
    )


def uncheckpointed_now(snapshot: Snapshot, workload: Workload) -> Sequence[UncheckpointedWork] | None:
    """Return the lost work if a workload of a Snapshot is evicted now; None if unknown."""
    pods = pods_by_node(snapshot).of(workload.key).values()
    all_seen = snapshot.seen.all_of(Pod, within=workload.namespace)
    job = snapshot.jobs.get(workload.owner)
    return uncheckpointed(workload, job, pods, snapshot.time, device_counter(snapshot), all_seen=all_seen)


def uncheckpointed_gpu_time(snapshot: Snapshot, workload: Workload) -> Span | None:
    """Return `uncheckpointed_now` as one number, GPUs × time; None if unknown."""
    lost = uncheckpointed_now(snapshot, workload)
    return gpu_time(lost) if lost is not None else None


def gpu_time(lost: Sequence[UncheckpointedWork]) -> Span:
    """Return the total lost work, GPUs × time."""
    return round(sum(one.gpus * one.span for one in lost))


def _ran(pod: Pod, now: Time) -> bool:
    """True if the pod ran then: started, and not terminating."""
    begun = pod.started <= now if pod.started else pod.phase is PodPhase.RUNNING
    return bool(pod.node) and begun and not pod.done and not 0 < pod.deleted < now


def _began(pod: Pod, job: Job | None) -> Time:
    """Return the start time of a running pod; 0 if unknown."""
    return pod.started or pod.bound or (job.started if job is not None and job.started else 0)


def _least(workload: Workload, job: Job | None, there: int) -> int:
    """Return the number of existing pods that have to run for work to progress; all if Kueue admitted the workload."""
    least = job.min_available if job is not None and workload.admission is None else None
    return max(1, min(there, least or there))


def _without_pods(
    workload: Workload, job: Job | None, now: Time, devices: DeviceCounter, all_seen: bool
) -> Sequence[UncheckpointedWork] | None:
    """Return the lost work without visible pods, which run if PodsReady is true; None if that is unknown."""
    ready = workload.condition("PodsReady")
    if not workload.admitted or (ready is not None and not ready.status):
        return ()
    if ready is not None:
        gpus = devices.gpus_of_workload(workload)
        return (UncheckpointedWork(None, gpus, _since_checkpoint(max(0, now - ready.since), _interval(workload, job))),)
    of_another_kind = bool(workload.owner) and job is None
    return () if all_seen and not of_another_kind and not workload.cluster else None


def _interval(workload: Workload, job: Job | None) -> Span | None:
    """Return the checkpoint interval; None without checkpoints."""
    return job.checkpoint_interval if job is not None else annotated(workload, "gpuconsole.io/checkpoint-interval")


def _since_checkpoint(worked: Span, interval: Span | None) -> Span:
    return worked % interval if interval else worked


SHARES = 5040
"""Shares of one GPU, so that its fractions are integers."""
NO_NODE = Node(name="")


class Held(Struct, frozen=True):
    """Devices that one pod holds, in shares of a GPU (see `SHARES`)."""

    node: str = ""
    gpus: tuple[int, ...] = ()
    """Indices of GPUs (or replicas) on the node: several pods may share one."""
    each: int = SHARES
    """Shares of each of these GPUs."""
    own: int = 0
    """Shares of MIG instances and DRA devices, which are exclusive."""


NOTHING = Held()


class Holdings(Struct, frozen=True):
    """Allocated GPUs by pod. A GPU that several pods share counts once."""

    by_pod: Mapping[str, Held]
    by_gpu: Mapping[tuple[str, int], int]
    """(node, index) → number of its pods."""
    shares: int
    """Total allocated shares."""


@memoized("pods", "nodes", "resource_claim_templates", "resource_claims")
def holdings_of(snapshot: Snapshot) -> Holdings:
    """Return the devices of each pod."""
    counter = DeviceCounter.of_snapshot(snapshot)
    by_pod = {
        pod.key: held
        for pod in snapshot.pods.all()
        if (held := _held(pod, snapshot.nodes.get(pod.node), counter)) is not NOTHING
    }
    by_gpu = Counter((held.node, index) for held in by_pod.values() for index in held.gpus)
    each = {(held.node, index): held.each for held in by_pod.values() for index in held.gpus}
    return Holdings(by_pod, by_gpu, sum(each.values()) + sum(held.own for held in by_pod.values()))


def _held(pod: Pod, node: Node | None, counter: DeviceCounter) -> Held:
    if not pod.node or pod.done:
        return NOTHING
    each = SHARES * part_offered(node.labels) if node is not None else SHARES
    own = 0.0
    if pod.slices or pod.template.resource_claims:
        own = SHARES * (amount_of_gpus(pod, node, counter.claimed_gpus(pod)) - len(pod.gpus) * each / SHARES)
    return Held(pod.node, pod.gpus, round(each), round(own)) if pod.gpus or own else NOTHING


@memoized("nodes", "resource_slices")
def ready_gpus(snapshot: Snapshot) -> Mapping[str, int]:
    """Return the GPU shares of each ready node."""
    devices = dra_devices_of(snapshot)
    return {node.name: _provided(node, devices.get(node.name, 0)) for node in snapshot.nodes.all() if node.ready}


def _provided(node: Node, devices: int) -> int:
    return round(SHARES * (gpus_of_node(node) or devices))


@memoized("resource_slices")
def dra_devices_of(snapshot: Snapshot) -> Mapping[str, int]:
    """Return the number of GPUs that each node offers by DRA; all partitions of one GPU count once."""
    return gpus_claimable(snapshot.resource_slices.all())


def _devices_in(offered: ResourceSlice) -> int:
    """Return the number of offered accelerators; partitions of one share a counter set."""
    return 0 if offered.driver in NO_DEVICES else len(offered.counter_sets) or len(offered.devices)


class GpuTime:
    """Counts the GPU-hours that are allocated and available, from events since a given time. Mutates by `note`.

    Sums are integers, so that two equal simulations have equal sums, however often each is read.
    """

    def __init__(self, snapshot: Snapshot, now: Time) -> None:
        held = holdings_of(snapshot)
        self._begun = snapshot
        self._held = dict(held.by_pod)
        self._sharers = dict(held.by_gpu)
        self._nodes = dict(ready_gpus(snapshot))
        self._changed: dict[str, Node] = {}
        """Added or changed nodes."""
        self._templates: dict[str, ResourceClaimTemplate] = {}
        """Added or changed objects."""
        self._devices = dict(dra_devices_of(snapshot))
        self._slices: dict[str, tuple[str, int]] = {}
        """Added or changed ResourceSlice → its node, and the number of its devices."""
        self._counter = DeviceCounter(
            lambda: snapshot.nodes,
            self._node,
            lambda key: self._templates.get(key) or snapshot.resource_claim_templates.get(key),
            snapshot.resource_claims.get,
        )
        self._used = held.shares
        self._total = sum(self._nodes.values())
        self._counted = now
        self._used_time = 0
        self._total_time = 0

    @classmethod
    def of_nothing(cls, now: Time) -> "GpuTime":
        """Return an empty sum for a cluster whose objects will all come as events."""
        return cls(EMPTY, now)

    @property
    def used_hours(self) -> float:
        """GPU-hours allocated so far."""
        return self._used_time / SHARES / HOUR

    @property
    def total_hours(self) -> float:
        """GPU-hours of ready nodes so far."""
        return self._total_time / SHARES / HOUR

    def gpus(self, pod: Pod) -> float:
        """Return the number of GPUs of a pod; a GPU that it shares with other pods counts as if it had it alone."""
        held = _held(pod, self._node(pod.node), self._counter)
        return (len(held.gpus) * held.each + held.own) / SHARES

    def requested(self, job: Job) -> int:
        """Return the number of GPUs, MIG instances, replicas and DRA devices that a job requests."""
        found: int = self._counter.of_pod_sets(job.namespace, job.pod_sets)["gpus"]
        return found

    def note(self, event: Event) -> None:
        """Update the allocated or available devices by one event."""
        match event:
            case Applied(time, Pod() as pod):
                self._hold(time, pod.key, _held(pod, self._node(pod.node), self._counter))
            case Deleted(time, "pods", key):
                self._hold(time, key, NOTHING)
            case Applied(time, Node() as node):
                self._changed[node.name] = node
                self._provide(time, node.name)
            case Deleted(time, "nodes", key):
                self._changed[key] = NO_NODE
                self._provide(time, key)
            case Applied(time, ResourceSlice() as offered):
                self._offer(time, offered.key, offered.node, _devices_in(offered))
            case Deleted(time, "resource_slices", key):
                self._offer(time, key, "", 0)
            case Applied(_, ResourceClaimTemplate() as template):
                self._templates[template.key] = template
            case _:
                pass

    def count(self, until: Time) -> None:
        """Add the GPU-hours up to a given time, as devices are allocated and available now."""
        self._used_time += self._used * (until - self._counted)
        self._total_time += self._total * (until - self._counted)
        self._counted = until

    def _node(self, name: str) -> Node | None:
        return self._changed.get(name) or self._begun.nodes.get(name)

    def _hold(self, time: Time, pod: str, held: Held) -> None:
        before = self._held.get(pod, NOTHING)
        if before == held:
            return
        self.count(time)
        for one, sign in ((before, -1), (held, 1)):
            self._used += sign * one.own
            for index in one.gpus:
                sharers = self._sharers.get((one.node, index), 0) + sign
                self._sharers[one.node, index] = sharers
                if not sharers:
                    del self._sharers[one.node, index]
                if sharers == max(sign, 0):
                    self._used += sign * one.each
        self._held[pod] = held

    def _provide(self, time: Time, name: str) -> None:
        node = self._node(name)
        there = node is not None and node.name == name and node.ready
        shares = _provided(node, self._devices.get(name, 0)) if node is not None and there else 0
        self.count(time)
        self._total += shares - self._nodes.get(name, 0)
        self._nodes[name] = shares

    def _offer(self, time: Time, key: str, node: str, devices: int) -> None:
        """Record the number of devices that a ResourceSlice offers on a node."""
        known = self._begun.resource_slices.get(key)
        before = self._slices.get(key, (known.node, _devices_in(known)) if known is not None else ("", 0))
        if before == (node, devices):
            return
        self._slices[key] = node, devices
        for name, change in ((before[0], -before[1]), (node, devices)):
            if name:
                self._devices[name] = self._devices.get(name, 0) + change
                self._provide(time, name)


class GpuAllocation(Struct, frozen=True):
    """GPU allocation of one scheduled pod, or request of one unscheduled pod."""

    pod: str
    owner: str
    """Key of its Workload, of its job, of its gang, or of the pod itself."""
    namespace: str
    workload: str
    group: str
    """Key of the PodGroup that it names, if any."""
    queue: str
    """The queue that the pod itself names."""
    gpus: float
    """GPUs allocated, or requested while pending. A GPU that several pods share is split equally among them."""
    devices: int
    """Units that it requests: whole GPUs, replicas of shared ones, MIG instances, DRA devices."""
    parts: Mapping[str, int]
    """MIG instances by resource, and DRA devices as CLAIMED: requests other than GPUs."""
    part: float
    """Fraction of its node's GPUs that the pod holds; 0 for a pod without GPUs."""


class GpuLayout(NamedTuple):
    """What a node's pods are divided by: its MIG instances, and the GPUs or replicas that it offers as `offered`."""

    division: Division | None
    offered: int


def gpu_layout(node: Node) -> GpuLayout:
    """Return the GPU layout of a node."""
    return GpuLayout(division_of(node.allocatable, node.labels, node.annotations), node.gpus)


NO_PARTS: Mapping[str, int] = {}
GpuAllocations = Mapping[str, tuple[GpuAllocation, ...]]
"""Node → its holdings; ``""`` → unscheduled pods."""
AllocationInputs = Mapping[str, tuple[Pods, Node | None, tuple[GpuAllocation, ...]]]
"""Node → its pods, itself, and its allocations."""
_NOT_ALLOCATED: AllocationInputs = {}


def gpu_allocations(snapshot: Snapshot) -> GpuAllocations:
    """Return the allocations of all unfinished pods; those of unchanged nodes are the same objects."""
    return {name: held for name, (_, _, held) in _allocations(snapshot).items()}


@incremental(_NOT_ALLOCATED)
def _allocations(snapshot: Snapshot, before: AllocationInputs) -> AllocationInputs:
    now = dict[str, tuple[Pods, Node | None, tuple[GpuAllocation, ...]]]()
    for name, pods in pods_by_node(snapshot).by_node.items():
        node = snapshot.nodes.get(name)
        known = before.get(name)
        if known is not None and known[0] is pods and known[1] is node:
            now[name] = known
        else:
            sharers = Counter(index for pod in pods.values() for index in pod.gpus)
            layout = gpu_layout(node) if node is not None else None
            devices = dra_devices_of(snapshot).get(name, 0)
            held = tuple(_holding(snapshot, pod, layout, devices, sharers) for pod in pods.values())
            now[name] = (pods, node, held)
    return now


def starts(snapshot: Snapshot, held: GpuAllocation) -> bool:
    """True for a scheduled pod that is not running yet."""
    pod = snapshot.pods.get(held.pod)
    return pod is not None and pod.phase is not PodPhase.RUNNING


def _holding(
    snapshot: Snapshot, pod: Pod, layout: GpuLayout | None, devices: int, sharers: Mapping[int, int]
) -> GpuAllocation:
    gpus = allocated_gpus(pod, sharers)
    units = pod_units(snapshot, pod)
    return GpuAllocation(
        pod=pod.key,
        owner=owner_of(pod),
        namespace=pod.namespace,
        workload=pod.workload,
        group=group_key(pod),
        queue=own_queue(pod),
        gpus=gpus,
        devices=sum(units.values()),
        parts=_parts(pod, units),
        part=part_of_node(pod, layout, gpus, devices, device_counter(snapshot)) if layout is not None else 0.0,
    )


def owner_of(pod: Pod) -> str:
    """Return the key of a pod's Workload, of its job, of its gang, or of the pod itself."""
    return pod.workload or pod.job or group_key(pod) or pod.key


def allocated_gpus(pod: Pod, sharers: Mapping[int, int]) -> float:
    """Return the number of GPUs that a pod holds on its node, or requests; `sharers` has the pods of each GPU."""
    return sum(1 / sharers[index] for index in pod.gpus) or pod_gpus(pod.template)


def _parts(pod: Pod, units: Units) -> Mapping[str, int]:
    found = {name: n for name, n in pod_accelerators(pod.template).items() if counted_as(name)}
    return {**found, CLAIMED: units[DRA_DEVICE]} if units.get(DRA_DEVICE) else found or NO_PARTS


def part_of_node(pod: Pod, layout: GpuLayout, gpus: float, devices: int, counter: DeviceCounter) -> float:
    """Return the share of its node's GPUs that a pod uses, from 0 to 1.

    `gpus` is the result of `allocated_gpus`, `devices` the number of GPUs that the node offers by DRA. A MIG instance
    counts by its compute slices, as requested if the instances are unknown (a live cluster); a DRA device as one.
    """
    if layout.division is not None:
        geometry = layout.division.geometry
        if pod.slices:
            slices = sum(geometry.by_name[one.profile].compute for one in pod.slices)
        else:
            wanted = ((geometry.profile_of(name), count) for name, count in pod_accelerators(pod.template).items())
            slices = sum(profile.compute * count for profile, count in wanted if profile is not None)
        whole = gpus if layout.offered else 0.0
        return min(1.0, (slices / geometry.compute + whole) / max(1, layout.division.gpus))
    if layout.offered:
        return min(1.0, gpus / layout.offered)
    return min(1.0, counter.claimed_gpus(pod) / devices) if devices and pod.template.resource_claims else 0.0


def queue_of(snapshot: Snapshot, holding: GpuAllocation) -> str:
    """Return the queue of a pod: Kueue's ClusterQueue, else Volcano's or KAI's queue; may be empty."""
    workload = snapshot.workloads.get(holding.workload) if holding.workload else None
    groups = snapshot.kai_pod_groups.get, snapshot.pod_groups.get
    return queue_among(workload, holding.group, holding.queue, *groups, snapshot.volcano_queues.get)


def queue_among(
    workload: Workload | None,
    group: str,
    own: str,
    kai_group: Callable[[str], KaiPodGroup | None],
    volcano_group: Callable[[str], PodGroup | None],
    volcano_queue: Callable[[str], VolcanoQueue | None],
) -> str:
    """Return the queue of a pod as `queue_of`, from its Workload, the key of its group, and the queue that it names.

    The functions look objects up by key.
    """
    if workload is not None and workload.cluster_queue:
        return workload.cluster_queue
    return queue_by(group, own, kai_group, volcano_group, volcano_queue)
