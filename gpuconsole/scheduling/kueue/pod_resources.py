"""Requests and held quota of a workload, computed once and shared by all forks (Kueue 0.19 pkg/workload Info).

A `WorkloadRequest` belongs to a pending workload, a `Holding` to one that holds quota. Both are frozen: a change of the
workload makes a new one. Requests include what Kubernetes adds to pods: the overhead of their RuntimeClass, and the
defaults of the namespace's LimitRanges, whose bounds `limits_violation` checks (Kueue 0.19 pkg/workload/resources.go,
pkg/util/limitrange).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import MILLISECOND, Time
from gpuconsole.model.cluster import LimitRange, LimitRangeItem
from gpuconsole.model.pod_template import Container, PodResources, PodSet, PodTemplate
from gpuconsole.model.resources import Resources, add, divide, exceeding, not_negative, scale
from gpuconsole.model.workloads import PodSetAssignment, PodSetNeeds, Workload
from gpuconsole.scheduling.kueue.conditions import (
    ADMISSION_CHECK,
    PODS_READY_TIMEOUT,
    PREEMPTED,
    QUOTA_RESERVED,
    eviction_condition,
    is_owned_by_single_pod,
)
from gpuconsole.scheduling.kueue.config import KueueConfig, apply_transformations, without_excluded
from gpuconsole.scheduling.kueue.dra.charges import NO_CHARGES, Charge, Charges
from gpuconsole.scheduling.kueue.podset import capped_reclaimable_pods

Limits = Mapping[str, LimitRangeItem]
"""Type (Container, Pod) → the combined LimitRanges of a namespace."""

NO_LIMITS: Limits = {}
Overheads = Mapping[str, Resources]
"""RuntimeClass → overhead per pod."""
NO_OVERHEADS: Overheads = {}

_ABOVE_LIMITS = "requests must not exceed its limits"
_ABOVE_MAX = "requests must not be above the limitRange max"
_BELOW_MIN = "requests must not be below the limitRange min"


def combine_limit_ranges(ranges: Iterable[LimitRange]) -> dict[str, Limits]:
    """Combine LimitRanges by namespace: lowest max and ratio, highest min, first default by the objects' names."""
    summary: dict[str, dict[str, LimitRangeItem]] = {}
    for limit_range in sorted(ranges, key=lambda limit_range: limit_range.key):
        items = summary.setdefault(limit_range.namespace, {})
        for item in limit_range.items:
            known = items.get(item.type)
            items[item.type] = item if known is None else _merge(known, item)
    return dict(summary)


def _merge(known: LimitRangeItem, item: LimitRangeItem) -> LimitRangeItem:
    return replace(
        known,
        max=_join_limits(known.max, item.max, min),
        min=_join_limits(known.min, item.min, max),
        default={**item.default, **known.default},
        default_request={**item.default_request, **known.default_request},
        max_ratio=_tightest(known.max_ratio, item.max_ratio),
    )


def _tightest(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    both = {**first, **second}
    return {name: min(first.get(name, both[name]), second.get(name, both[name]), key=Fraction) for name in both}


def _join_limits(first: Resources, second: Resources, choose: Callable[[int, int], int]) -> dict[str, int]:
    both = {**first, **second}
    return {name: choose(first.get(name, both[name]), second.get(name, both[name])) for name in both}


def with_overhead_and_defaults(template: PodTemplate, limits: Limits, overheads: Overheads) -> PodTemplate:
    """Return the template with its RuntimeClass overhead and the namespace's LimitRange defaults (AdjustResources)."""
    if overheads and template.runtime_class in overheads and not template.overhead:
        template = replace(template, overhead=overheads[template.runtime_class])
    return with_defaults(template, limits) if limits else template


def with_defaults(template: PodTemplate, limits: Limits) -> PodTemplate:
    """Return the template with the LimitRange defaults for missing requests and limits of containers and of the whole
    pod.
    """
    item = limits.get("Pod")
    if item is not None and template.resources is not None:
        whole = template.resources
        asked = {**item.default_request, **whole.requests}
        template = replace(template, resources=PodResources(asked, {**item.default, **whole.limits}))
    item = limits.get("Container")
    if item is None or not (item.default or item.default_request):
        return template

    def fill(container: Container) -> Container:
        requests = {**item.default_request, **container.requests}
        return replace(container, requests=requests, limits={**item.default, **container.limits})

    return replace(
        template,
        containers=tuple(map(fill, template.containers)),
        init_containers=tuple(map(fill, template.init_containers)),
    )


def limits_violation(templates: Sequence[PodTemplate], limits: Limits) -> str:
    """Return why these templates, one per pod set, violate their own limits or the LimitRanges; empty if not."""
    own = [problem for path, template in _paths(templates) for problem in _above_own_limits(path, template)]
    if own:
        return f"resources validation failed: {_aggregate(own)}"
    ranged = [problem for path, template in _paths(templates) for problem in _out_of_range(path, template, limits)]
    return f"resources didn't satisfy LimitRange constraints: {_aggregate(ranged)}" if ranged else ""


def _paths(templates: Sequence[PodTemplate]) -> Iterator[tuple[str, PodTemplate]]:
    for index, template in enumerate(templates):
        yield f"spec.podSets[{index}].template.spec", template


def _containers(path: str, template: PodTemplate) -> Iterator[tuple[str, Container]]:
    for kind, containers in (("initContainers", template.init_containers), ("containers", template.containers)):
        for index, container in enumerate(containers):
            yield f"{path}.{kind}[{index}]", container


def _above_own_limits(path: str, template: PodTemplate) -> Iterator[str]:
    for place, container in _containers(path, template):
        yield from _exceeding(place, container.effective, container.limits, _ABOVE_LIMITS)
    if template.resources is not None:
        yield from _exceeding(
            f"{path}.resources", template.resources.requests, template.resources.limits, _ABOVE_LIMITS
        )


def _out_of_range(path: str, template: PodTemplate, limits: Limits) -> Iterator[str]:
    item = limits.get("Container")
    if item is not None:
        for place, container in _containers(path, template):
            yield from _exceeding(place, _join_limits(container.effective, container.limits, max), item.max, _ABOVE_MAX)
            yield from _exceeding(place, item.min, _join_limits(container.effective, container.limits, min), _BELOW_MIN)
    item = limits.get("Pod")
    if item is not None:
        yield from _exceeding(path, template.requests, item.max, _ABOVE_MAX)
        yield from _exceeding(path, item.min, template.requests, _BELOW_MIN)


def _exceeding(place: str, amounts: Resources, bounds: Resources, problem: str) -> Iterator[str]:
    """Yield one line that names the resources that exceed their bound; unbounded ones do not count."""
    names = exceeding(amounts, bounds)
    if names:
        yield f"{place}: Invalid value: {json.dumps(names, separators=(',', ':'))}: {problem}"


def _aggregate(problems: Sequence[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(dict.fromkeys(problems))}]"


PRIORITY_BOOST = "kueue.x-k8s.io/priority-boost"
ALLOWED_FLAVORS = "kueue.x-k8s.io/workload-allowed-resource-flavors"
"""Annotation: the flavors that a variant may be given, comma-separated."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
WORKLOAD_PRIORITY_CLASS = "WorkloadPriorityClass"

Order = tuple[int, Time, str]
"""Place in a queue: priority descending, then queue-order timestamp, then uid."""


@lru_cache(maxsize=4096)
def resource_rank(name: str) -> tuple[int, str]:
    """Sort key of resources in Kueue's order: the 64-bit FNV-1a hash of the name."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value, name


class PodSetRequest(Struct, frozen=True):
    """The requests of one pod set; `total` is `per_pod` times `count`, in the order in which resources are visited."""

    pod_set: PodSet
    count: int
    per_pod: Resources
    total: Resources

    def requests_for(self, count: int) -> Resources:
        """Return the requests of `count` pods of the pod set; its `total` if the pod set has 0 pods."""
        return self.total if count == self.count or not self.count else scale(self.per_pod, count)


class WorkloadRequest:
    """A pending workload as the scheduler sees it. Frozen by convention; the hash is computed on first use."""

    __slots__ = (
        "_cached_problem",
        "_needs",
        "_shape",
        "admitted_assignments",
        "allowed",
        "asks_for_topology",
        "cluster_queue",
        "current_message",
        "id",
        "keeps_flavors",
        "message_checked_for",
        "order",
        "pod_sets",
        "priority",
        "skip_checked_for",
        "timestamp",
        "workload",
    )

    def __init__(
        self,
        workload: Workload,
        id: int,
        cluster_queue: str,
        config: KueueConfig,
        limits: Limits = NO_LIMITS,
        devices: Charges = NO_CHARGES,
        overheads: Overheads = NO_OVERHEADS,
    ) -> None:
        self.workload = workload
        self.id = id
        self.cluster_queue = cluster_queue
        self.priority = effective_priority(workload, config)
        self.timestamp = queue_timestamp(workload, config)
        self.pod_sets = tuple(
            _pod_set_request(workload, pod_set, config, devices.get(pod_set.name))
            for pod_set in pod_sets_with_overhead_and_defaults(workload.pod_sets, limits, overheads)
        )
        self.allowed = workload.annotations.get(ALLOWED_FLAVORS) if config.enabled("ConcurrentAdmission") else None
        """The flavors to which a variant is restricted, as its annotation lists them."""
        asked = (pod_set.topology for pod_set in workload.pod_sets)
        self.asks_for_topology = any(request is not None and request.explicit for request in asked)
        self.admitted_assignments: tuple[PodSetAssignment, ...] = ()
        """In a second pass: the assignments of its pod sets, in their order."""
        self.keeps_flavors = False
        """In a second pass: its pods cannot move to other nodes."""
        self.order: Order = (-self.priority, self.timestamp, workload.uid)
        self._shape: bytes | None = None
        self._needs: tuple[PodSetNeeds, ...] | None = None
        self._cached_problem: tuple[Limits, str] | None = None
        self.skip_checked_for: object = None
        """The `CompiledConfig` with which only quota and its holders were found to decide about it."""
        self.message_checked_for: object = None
        """The `CachedNomination` that the workload's condition shows already."""
        self.current_message = ""
        """The message that its condition shows, without amounts."""

    def with_workload(self, workload: Workload) -> "WorkloadRequest":
        """Return the same request for a workload whose change does not matter to scheduling."""
        copied = WorkloadRequest.__new__(WorkloadRequest)
        copied.workload = workload
        copied.id, copied.cluster_queue = self.id, self.cluster_queue
        copied.priority, copied.timestamp, copied.order = self.priority, self.timestamp, self.order
        copied.pod_sets, copied._shape = self.pod_sets, self._shape
        copied.allowed, copied.asks_for_topology = self.allowed, self.asks_for_topology
        copied.admitted_assignments, copied.keeps_flavors, copied._needs = (
            self.admitted_assignments,
            self.keeps_flavors,
            self._needs,
        )
        copied._cached_problem = self._cached_problem
        copied.skip_checked_for, copied.message_checked_for, copied.current_message = None, None, ""
        return copied

    def as_admitted(self, config: KueueConfig) -> "WorkloadRequest":
        """Return the request of an admitted workload: it keeps its flavors and only needs a topology assignment."""
        pod_sets = {request.pod_set.name: request for request in self.pod_sets}
        copied = self.with_workload(self.workload)
        held = [(a, count, usage) for a, count, usage in admitted_requests(self.workload, config) if a.name in pod_sets]
        copied.admitted_assignments, copied._needs = tuple(assignment for assignment, _, _ in held), None
        copied._cached_problem = None
        copied.keeps_flavors = config.enabled("SkipReassignmentForPodOwnedWorkloads") and is_owned_by_single_pod(
            self.workload
        )
        copied.pod_sets = tuple(replace(pod_sets[a.name], count=count, total=usage) for a, count, usage in held)
        return copied

    @property
    def resource_requests(self) -> tuple[PodSetNeeds, ...]:
        """The requests by pod set, as the workload's status shows them."""
        if self._needs is None:
            self._needs = tuple(PodSetNeeds(request.pod_set.name, request.total) for request in self.pod_sets)
        return self._needs

    def limits_problem(self, limits: Limits) -> str:
        """Return why its pods violate the namespace's limits; empty if they do not."""
        if self._cached_problem is None or self._cached_problem[0] is not limits:
            self._cached_problem = (
                limits,
                limits_violation([request.pod_set.template for request in self.pod_sets], limits),
            )
        return self._cached_problem[1]

    @property
    def scheduling_hash(self) -> bytes:
        """Hash that workloads share if they are equivalent to the scheduler (SchedulingEquivalenceHashing)."""
        if self._shape is None:
            shapes = [_pod_set_hash_input(request) for request in self.pod_sets]
            text = msgspec.json.encode((self.priority, shapes, self.allowed), order="deterministic")
            # A hash, as in Kueue, since there may be 100,000 requests.
            self._shape = blake2b(text, digest_size=16).digest()
        return self._shape


class Holding(Struct, frozen=True, kw_only=True):
    """A workload that holds quota: `usage` are the (column, amount) pairs, `columns` the columns among them."""

    workload: Workload
    id: int
    cluster_queue: str
    priority: int
    timestamp: Time
    evicted: bool
    usage: tuple[tuple[int, int], ...]
    columns: frozenset[int]
    rank: tuple[bool, int, Time, str]
    """Preemption order in a queue: already evicted, lowest priority, newest reservation, uid."""
    topology_usage: "tuple[TopologyUsage, ...]" = ()

    @property
    def key(self) -> str:
        """Key of the workload."""
        return self.workload.key

    @property
    def decision_key(self) -> tuple[object, ...]:
        """The values that decisions depend on, except topology; cached decisions are valid while these are equal."""
        return self.id, self.key, self.cluster_queue, self.timestamp, self.rank, self.usage


class TopologyUsage(Struct, frozen=True):
    """Pods of one pod set in one topology domain, with the requests of each."""

    flavor: str
    values: tuple[str, ...]
    count: int
    per_pod: Resources


def effective_priority(workload: Workload, config: KueueConfig) -> int:
    """Return spec.priority plus the priority boost (gate PriorityBoost); an invalid boost counts as 0."""
    try:
        return workload.priority + priority_boost(workload, config)
    except ValueError:
        return workload.priority


def priority_boost(workload: Workload, config: KueueConfig) -> int:
    """Return the priority boost annotation's value. Raises ValueError if it is not a 32-bit number."""
    text = workload.annotations.get(PRIORITY_BOOST, "") if config.enabled("PriorityBoost") else ""
    if not text:
        return 0
    if not _INTEGER.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise ValueError(f"{text[:20]!r} is no number of 32 bits")
    return int(text)


def priority_changed(old: Workload, new: Workload, config: KueueConfig) -> bool:
    """True if a workload with a WorkloadPriorityClass got another class or effective priority (PriorityChanged).

    Priorities from a PriorityClass of pods do not count.
    """
    if old.priority_kind == "PriorityClass" or new.priority_kind != WORKLOAD_PRIORITY_CLASS:
        return False
    if new.priority_class and new.priority_class != old.priority_class:
        return True
    return effective_priority(old, config) != effective_priority(new, config)


def queue_timestamp(workload: Workload, config: KueueConfig) -> Time:
    """Return the time that orders the workload in its queue: its creation, or that of an eviction
    (GetQueueOrderTimestamp).

    Evictions by PodsReadyTimeout (unless configured otherwise) and by admission checks count; without
    PrioritySortingWithinCohort also preemptions by reclamation while borrowing.
    """
    timeout = eviction_condition(workload, PODS_READY_TIMEOUT) if config.requeuing_timestamp == "Eviction" else None
    evicted = timeout or eviction_condition(workload, ADMISSION_CHECK)
    if evicted is not None:
        return evicted.since
    if not config.enabled("PrioritySortingWithinCohort"):
        preempted = workload.condition(PREEMPTED)
        if preempted is not None and preempted.status and preempted.reason == "InCohortReclaimWhileBorrowing":
            return preempted.since + MILLISECOND
    return workload.created


def current_count(workload: Workload, pod_set: PodSet, config: KueueConfig) -> int:
    """Return how many pods need quota: reclaimable pods do not."""
    if not workload.reclaimable or not config.enabled("ReclaimablePods"):
        return pod_set.count
    return pod_set.count - capped_reclaimable_pods(workload, workload.reclaimable).get(pod_set.name, 0)


def reserved_at(workload: Workload, now: Time) -> Time:
    """Return the time of the quota reservation; `now` if the condition does not show it yet."""
    condition = workload.condition(QUOTA_RESERVED)
    return condition.since if condition is not None and condition.status else now


def in_kueue_order(resources: Mapping[str, int]) -> dict[str, int]:
    """Return the same amounts in the order in which Kueue visits resources."""
    return {name: resources[name] for name in sorted(resources, key=resource_rank)}


def admitted_requests(workload: Workload, config: KueueConfig) -> Iterable[tuple[PodSetAssignment, int, Resources]]:
    """Yield each assignment with the number and the usage of its pods, without reclaimable ones."""
    if workload.admission is None:
        return
    counts = {pod_set.name: current_count(workload, pod_set, config) for pod_set in workload.pod_sets}
    for assignment in workload.admission.pod_sets:
        count = counts.get(assignment.name, assignment.count)
        if count < assignment.count:
            yield assignment, count, scale(divide(assignment.usage, assignment.count), count)
        else:
            yield assignment, assignment.count, assignment.usage


def admitted_usage(workload: Workload, config: KueueConfig) -> Iterable[tuple[str, str, int]]:
    """Yield (flavor, resource, amount) of a workload with reserved quota.

    The flavor is empty for a resource to which no flavor is assigned: it uses no quota.
    """
    for assignment, _, usage in admitted_requests(workload, config):
        for resource in {**assignment.flavors, **usage}:
            yield assignment.flavors.get(resource, ""), resource, usage.get(resource, 0)


def _pod_set_request(workload: Workload, pod_set: PodSet, config: KueueConfig, devices: Charge | None) -> PodSetRequest:
    kept = without_excluded(pod_set.template.requests, config.exclude_resource_prefixes)
    counted = apply_transformations(kept, config.transformations)
    if devices is not None:
        others = {name: amount for name, amount in counted.items() if name not in devices.replaced_resources}
        counted = add(others, devices.amounts)
    per_pod = _needed(tuple(counted.items()))
    count = current_count(workload, pod_set, config)
    return PodSetRequest(pod_set, count, per_pod, per_pod if count == 1 else scale(per_pod, count))


@lru_cache(maxsize=4096)
def _needed(amounts: tuple[tuple[str, int], ...]) -> Resources:
    """Return one pod's requests in order; pods with equal requests share one mapping."""
    return in_kueue_order(not_negative(dict(amounts)))


def pod_sets_with_overhead_and_defaults(
    pod_sets: tuple[PodSet, ...], limits: Limits, overheads: Overheads
) -> tuple[PodSet, ...]:
    """Return the pod sets with RuntimeClass overhead and LimitRange defaults."""
    if not limits and not overheads:
        return pod_sets
    return tuple(
        replace(pods, template=with_overhead_and_defaults(pods.template, limits, overheads)) for pods in pod_sets
    )


def _pod_set_hash_input(request: PodSetRequest) -> tuple[Any, ...]:
    """Return the parts of a pod set that scheduling depends on; not labels, images or container names."""
    pod_set, template = request.pod_set, request.pod_set.template
    return (
        pod_set.name,
        request.count,
        pod_set.min_count,
        request.total,
        pod_set.topology,
        [container.requests for container in template.containers],
        [container.requests for container in template.init_containers],
        template.node_selector,
        template.affinity,
        template.preferred,
        template.tolerations,
        template.runtime_class,
        template.priority,
        template.spread,
        template.overhead,
        template.resources,
        template.resource_claims,
    )
