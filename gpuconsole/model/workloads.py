"""Kueue Workloads: requests, admission, conditions and phase.

The API encodes topology assignments compactly: domains in slices, common values written once (Kueue 0.19
pkg/util/tas/tas_assignment.go). For each level, a slice has either one value for all its domains, or a
prefix, a suffix and the parts between them; the same for pod counts. With the feature gate
TASAssignmentsEncodingByHostnamePrefix hosts are first split into runs with a common prefix (`pool-a-node-`), if the
result is shorter.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.labels import HOSTNAME, NO_LABELS, NamespacedObject, Toleration
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.resources import EMPTY, Resources, gpus, is_gpu


class Condition(Struct, frozen=True, omit_defaults=True):
    """Condition in a Workload's status. `since` is its last transition time."""

    type: str
    status: bool
    reason: str = ""
    message: str = ""
    since: Time = 0


class TopologyDomain(Struct, frozen=True, omit_defaults=True):
    """Topology domain by its values for all levels, and the number of pods in it."""

    values: tuple[str, ...]
    count: int


class PodSetAssignment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Flavors, usage, pod count and topology domains that a pod set got at quota reservation."""

    name: str = "main"
    flavors: Mapping[str, str] = NO_LABELS
    usage: Resources = EMPTY
    count: int = 1
    levels: tuple[str, ...] = ()
    topology: tuple[TopologyDomain, ...] = ()
    delayed: str = ""
    """`Pending` while its topology assignment waits for admission checks, `Ready` afterwards; else empty."""


class Admission(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """ClusterQueue in which a workload holds quota, and the assignments of its pod sets."""

    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...] = ()


class PodSetNeeds(Struct, frozen=True, omit_defaults=True):
    """Quota that a pending pod set requested in its last attempt: all its pods, after Kueue's adjustments."""

    name: str
    resources: Resources = EMPTY


class RequeueState(Struct, frozen=True, omit_defaults=True):
    """How often a workload was requeued after evictions, and the time of the next requeue (status.requeueState)."""

    count: int = 0
    at: Time | None = None


class PodSetUpdate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Labels, node selectors and the like that a passed admission check adds to the pods of a pod set."""

    name: str
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    node_selector: Mapping[str, str] = NO_LABELS
    tolerations: tuple[Toleration, ...] = ()


class CheckState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of one admission check of a workload: Pending, Ready, Retry or Rejected, and its changes to pods."""

    name: str
    state: str = "Pending"
    message: str = ""
    retry_count: int = 0
    requeue_after: int | None = None
    """Seconds until a workload with the state Retry may be tried again; None if not stated."""
    since: Time | None = None
    """Last transition time; None if unknown."""
    updates: tuple[PodSetUpdate, ...] = ()


class EvictionCount(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Number of evictions of a workload for one reason."""

    reason: str
    underlying_cause: str = ""
    """Cause of a deactivation or a timeout."""
    count: int = 0


class SchedulingStats(Struct, frozen=True, omit_defaults=True):
    """How often a workload was evicted, by reason (status.schedulingStats)."""

    evictions: tuple[EvictionCount, ...] = ()
    """Evictions by reason and cause, in the order of their first occurrence."""


class PreemptionGate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Gate that keeps a workload from preempting others until it is opened; all gates must be open."""

    name: str
    open: bool = False
    since: Time | None = None
    """Last transition time; None if the status never stated it: closed since the workload was created."""


class Workload(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Request for quota: Kueue's unit of admission, all or nothing."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    owner: str = ""
    """`Kind/namespace/name` of its job; empty for a bare Workload."""
    job_uid: str = ""
    queue: str = ""
    """Name of its LocalQueue, in its namespace."""
    priority: int = 0
    priority_class: str = ""
    priority_kind: str = ""
    """Kind of the class: `WorkloadPriorityClass` or `PriorityClass`; empty if there is none."""
    active: bool = True
    pod_sets: tuple[PodSet, ...] = ()
    max_execution_time: Span | None = None
    conditions: tuple[Condition, ...] = ()
    admission: Admission | None = None
    requeue: RequeueState = RequeueState()
    resource_requests: tuple[PodSetNeeds, ...] = ()
    """While it is pending; afterwards the admission has its usage."""
    reclaimable: Mapping[str, int] = EMPTY
    checks: tuple[CheckState, ...] = ()
    past_execution: Span = 0
    unhealthy_nodes: tuple[str, ...] = ()
    """Nodes of its topology assignment that failed; their pods must be moved."""
    scheduling_stats: SchedulingStats = SchedulingStats()
    preemption_gates: tuple[PreemptionGate, ...] = ()
    done: Span = 0
    """Checkpointed work of a bare Workload, as `Job.done` (known in the simulator only)."""
    cluster: str = ""
    """Worker cluster that runs it (MultiKueue)."""
    nominated_clusters: tuple[str, ...] = ()
    """Worker clusters that may run it."""
    inadmissible: bool = field(default=False, name="parked")
    """Inadmissible until something changes in its cohort tree (known in the simulator only)."""

    @property
    def local_queue(self) -> str:
        """Key of its LocalQueue."""
        return f"{self.namespace}/{self.queue}"

    @property
    def parent(self) -> str:
        """Key of the Workload that this is a variant of (concurrent admission); empty otherwise."""
        kind, _, key = self.owner.partition("/")
        return key if kind == "Workload" else ""

    @property
    def gated(self) -> bool:
        """True while one of its preemption gates is closed."""
        return bool(self.preemption_gates) and any(not gate.open for gate in self.preemption_gates)

    def condition(self, type: str) -> Condition | None:
        """Return the condition of a type, or None."""
        for condition in self.conditions:
            if condition.type == type:
                return condition
        return None

    def is_true(self, type: str) -> bool:
        """True if the condition of a type is true."""
        for condition in self.conditions:
            if condition.type == type:
                return condition.status
        return False

    def with_condition(self, condition: Condition) -> "Workload":
        """Return it with this condition; its transition time changes only with the status (meta.SetStatusCondition)."""
        old = self.condition(condition.type)
        if old is None:
            return replace(self, conditions=(*self.conditions, condition))
        if old.status == condition.status:
            condition = replace(condition, since=old.since)
        if old == condition:
            return self
        return replace(self, conditions=tuple(condition if c.type == condition.type else c for c in self.conditions))

    @property
    def reserved(self) -> bool:
        """True while it holds quota."""
        return self.is_true("QuotaReserved")

    @property
    def admitted(self) -> bool:
        return self.is_true("Admitted")

    @property
    def finished(self) -> bool:
        return self.is_true("Finished")

    @property
    def flavor(self) -> str:
        """Assigned flavor, that of its GPUs first; empty if none is assigned."""
        if self.admission is None:
            return ""
        pairs = (pair for assignment in self.admission.pod_sets for pair in assignment.flavors.items())
        return min(((not is_gpu(resource), flavor) for resource, flavor in pairs), default=(False, ""))[1]

    @property
    def gpus(self) -> int:
        """Whole GPUs that it requests, or holds once it has an admission."""
        if self.admission is not None:
            return sum(gpus(assignment.usage) for assignment in self.admission.pod_sets)
        return sum(gpus(pod_set.requests) for pod_set in self.pod_sets)

    @property
    def evictions(self) -> int:
        """Total number of evictions."""
        return sum(one.count for one in self.scheduling_stats.evictions)

    @property
    def cluster_queue(self) -> str:
        """ClusterQueue in which it holds quota; empty if none."""
        return self.admission.cluster_queue if self.admission is not None else ""


def anew(workload: Workload) -> Workload:
    """Return a copy of a Workload as it was before Kueue handled it: the same requests, without status and owner."""
    return replace(
        workload,
        uid="",
        owner="",
        job_uid="",
        active=True,
        conditions=(),
        admission=None,
        requeue=RequeueState(),
        resource_requests=(),
        reclaimable={},
        checks=(),
        past_execution=0,
        unhealthy_nodes=(),
        scheduling_stats=SchedulingStats(),
        preemption_gates=(),
        done=0,
        cluster="",
        nominated_clusters=(),
        inadmissible=False,
    )


class WorkloadPhase(StrEnum):
    """State of a workload in one word, from Kueue's status (workload.Status) and whether its pods run."""

    PENDING = "pending"
    QUOTA_RESERVED = "quotaReserved"
    """Waits for admission checks, or for its topology assignment."""
    ADMITTED = "admitted"
    """The workload is admitted, but not all its pods run."""
    RUNNING = "running"
    """All pods of the gang run."""
    EVICTED = "evicted"
    """The workload holds its quota until its last pod is gone; then it is pending again."""
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


PLACED = (WorkloadPhase.ADMITTED, WorkloadPhase.RUNNING)
"""Phases of a workload that is admitted and not evicted, so that its pods run or may run."""


def phase(workload: Workload, pods_run: bool | None = None) -> WorkloadPhase:
    """Return the phase of a workload.

    `pods_run` tells if all pods of its gang run; None if its pods are not loaded, so that Kueue's PodsReady decides.
    """
    finished = workload.condition("Finished")
    if finished is not None and finished.status:
        return WorkloadPhase.FAILED if finished.reason == "Failed" else WorkloadPhase.FINISHED
    if workload.is_true("Evicted") and workload.reserved:
        return WorkloadPhase.EVICTED
    if not workload.active:
        return WorkloadPhase.STOPPED
    if workload.admitted:
        runs = workload.is_true("PodsReady") if pods_run is None else pods_run
        return WorkloadPhase.RUNNING if runs else WorkloadPhase.ADMITTED
    return WorkloadPhase.QUOTA_RESERVED if workload.reserved else WorkloadPhase.PENDING


MOST_DOMAINS = 100_000
"""Most domains of one slice."""
MOST_SLICES = 1_000
Slice = dict[str, Any]


def encode(levels: Sequence[str], domains: Sequence[TopologyDomain], *, by_prefix: bool = True) -> dict[str, Any]:
    """Encode an assignment as `status.admission.podSetAssignments[].topologyAssignment`.

    `by_prefix` is Kueue's feature gate TASAssignmentsEncodingByHostnamePrefix: if False, one slice has all domains.
    """
    single = [_slice(levels, domains)] if domains else []
    if not by_prefix:
        return _document(levels, single)
    split = list(by_prefix_runs(levels, domains))
    if len(split) <= 1:
        return _document(levels, split)
    in_one = len(domains) <= MOST_DOMAINS and _size(_document(levels, single)) < _size(_document(levels, split))
    return _document(levels, single if in_one else split)


def by_prefix_runs(levels: Sequence[str], domains: Sequence[TopologyDomain]) -> Iterator[Slice]:
    """Yield a slice of the assignment for each run of hosts with a common prefix, with at most `MOST_DOMAINS` hosts."""
    keys: Sequence[str] = ()
    if len(domains) > 1 and levels and levels[-1] == HOSTNAME:
        keys = prefix_keys([domain.values[-1] for domain in domains])
    for run in runs(domains, keys):
        for start in range(0, len(run), MOST_DOMAINS):
            yield _slice(levels, run[start : start + MOST_DOMAINS])


def runs(domains: Sequence[TopologyDomain], keys: Sequence[str]) -> list[Sequence[TopologyDomain]]:
    """Split the domains into runs of adjacent ones with the same key; into one run if there are no keys."""
    if not keys:
        return [domains] if domains else []
    bounds = [0, *(at for at in range(1, len(domains)) if keys[at] != keys[at - 1]), len(domains)]
    return [domains[start:end] for start, end in itertools.pairwise(bounds)] if domains else []


def prefix_keys(hosts: Sequence[str]) -> list[str]:
    """Return for each host its longest prefix up to a `-` that another host shares.

    If that gives too many slices, prefixes of fewer parts are used; empty if those give too many, too.
    """
    ends = [[at + 1 for at, character in enumerate(host[:-1]) if character == "-"] for host in hosts]
    counts = Counter(host[:end] for host, cuts in zip(hosts, ends, strict=True) for end in cuts)
    for depth in range(max(map(len, ends), default=0), 0, -1):
        keys = [
            next((host[:end] for end in reversed(cuts[:depth]) if counts[host[:end]] > 1), "")
            for host, cuts in zip(hosts, ends, strict=True)
        ]
        if _slices_for(keys) <= MOST_SLICES:
            return keys
    return []


def _slices_for(keys: Sequence[str]) -> int:
    total = length = 0
    for at, key in enumerate(keys):
        if at and key != keys[at - 1]:
            total, length = total + chunks(length), 0
        length += 1
    return total + chunks(length)


def chunks(length: int, size: int = MOST_DOMAINS) -> int:
    """Number of slices that so many domains need, with at most `size` in each."""
    return -(-length // size)


def _document(levels: Sequence[str], slices: list[Slice]) -> dict[str, Any]:
    return {"levels": list(levels), "slices": slices}


def _size(document: dict[str, Any]) -> int:
    return len(json.dumps(document, separators=(",", ":")))


def _slice(levels: Sequence[str], domains: Sequence[TopologyDomain]) -> Slice:
    counts = [domain.count for domain in domains]
    same = len(set(counts)) == 1
    return {
        "domainCount": len(domains),
        "valuesPerLevel": [_values([domain.values[level] for domain in domains]) for level in range(len(levels))],
        "podCounts": {"universal": counts[0]} if same else {"individual": counts},
    }


def _values(values: Sequence[str]) -> dict[str, Any]:
    """Encode one value for all, or the parts between a common prefix and suffix."""
    first, last = min(values), max(values)
    if first == last:
        return {"universal": first}
    shortest = min(map(len, values))
    prefix = _common(first, last)
    suffix = values[0]
    for value in values:
        while suffix and not value.endswith(suffix):
            suffix = suffix[1:]
    prefix = prefix[: shortest - len(suffix)] if len(prefix) + len(suffix) > shortest else prefix
    roots = [value[len(prefix) : len(value) - len(suffix)] for value in values]
    individual: dict[str, Any] = {"roots": roots}
    if suffix:
        individual = {"suffix": suffix, **individual}
    if prefix:
        individual = {"prefix": prefix, **individual}
    return {"individual": individual}


def _common(one: str, other: str) -> str:
    """Common prefix of two texts; for the least and greatest of a set, that of all."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return one[:at]
    return min(one, other, key=len)
