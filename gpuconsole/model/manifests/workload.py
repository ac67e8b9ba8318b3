"""Kueue's Workload (v1beta1 and v1beta2): its spec, and its status in a live cluster or a recording."""

from collections.abc import Iterator, Mapping

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.documents.amounts import resources
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.names import unique
from gpuconsole.model.documents.pods import pod_template
from gpuconsole.model.documents.reader import INT32, Reader
from gpuconsole.model.documents.selectors import tolerations
from gpuconsole.model.jobs.common import check_spans
from gpuconsole.model.manifests.core import owner
from gpuconsole.model.pod_sets import PodSet, TopologyRequest
from gpuconsole.model.workloads import (
    Admission,
    CheckState,
    Condition,
    EvictionCount,
    PodSetAssignment,
    PodSetNeeds,
    PodSetUpdate,
    PreemptionGate,
    RequeueState,
    SchedulingStats,
    TopologyDomain,
    Workload,
)

MOST_POD_SETS = 18
MOST_CLUSTERS = 20
MOST_GATES = 8
_CLASSES = (("kueue.x-k8s.io", "WorkloadPriorityClass"), ("scheduling.k8s.io", "PriorityClass"))
_SOURCES = {f"{group}/{kind.lower()}": kind for group, kind in _CLASSES}
"""priorityClassSource of v1beta1 → kind of the class."""
STATES = ("Pending", "Ready", "Retry", "Rejected")
DELAYED = ("Pending", "Ready")


def workload(reader: Reader, now: Time) -> Workload:
    """Read a Workload."""
    meta = metadata(reader, now)
    spec, status = reader.mapping("spec"), reader.mapping("status")
    reference = spec.mapping("priorityClassRef")
    check_spans(reader)
    pod_sets = tuple(pod_set(place) for place in spec.items("podSets", MOST_POD_SETS))
    unique(spec, "podSets", [pods.name for pods in pod_sets], "name", fatal=True)
    if not pod_sets:
        spec.report.warning(spec.at("podSets"), "it has no pod sets", "it needs 1 to 18 of them", "no-pod-sets")
    seconds = spec.optional("maximumExecutionTimeSeconds", low=1)
    return Workload(
        **meta.facts,
        owner=owner(reader, meta.namespace),
        job_uid=meta.labels.get("kueue.x-k8s.io/job-uid", ""),
        queue=spec.text("queueName"),
        priority=spec.number("priority", 0),
        priority_class=reference.text("name") or spec.text("priorityClassName"),
        priority_kind=reference.text("kind") or _SOURCES.get(spec.text("priorityClassSource"), ""),
        active=spec.flag("active", True),
        pod_sets=pod_sets,
        max_execution_time=None if seconds is None else seconds * SECOND,
        conditions=tuple(condition(place, now) for place in status.items("conditions")),
        cluster=status.text("clusterName"),
        nominated_clusters=status.texts("nominatedClusterNames", MOST_CLUSTERS),
        admission=_admission(status, pod_sets),
        requeue=_requeue(status.mapping("requeueState")),
        resource_requests=tuple(
            PodSetNeeds(place.text("name"), resources(place, "resources"))
            for place in status.items("resourceRequests", MOST_POD_SETS)
        ),
        reclaimable={place.text("name"): place.number("count", 0, low=0) for place in status.items("reclaimablePods")},
        checks=tuple(_check(place) for place in status.items("admissionChecks")),
        past_execution=status.number("accumulatedPastExecutionTimeSeconds", 0, low=0) * SECOND,
        unhealthy_nodes=tuple(node.text("name") for node in status.items("unhealthyNodes")),
        scheduling_stats=SchedulingStats(
            tuple(_evictions(place) for place in status.mapping("schedulingStats").items("evictions"))
        ),
        preemption_gates=_preemption_gates(spec, status),
    )


def _evictions(place: Reader) -> EvictionCount:
    return EvictionCount(
        reason=place.text("reason", limit=316),
        underlying_cause=place.text("underlyingCause", limit=316),
        count=place.number("count", 0, low=0),
    )


def _preemption_gates(spec: Reader, status: Reader) -> tuple[PreemptionGate, ...]:
    """Return the gates of the spec with their positions in the status; a gate without one is closed."""
    listed = spec.items("preemptionGates", MOST_GATES)
    if not listed:
        return ()
    stated = {place.text("name"): place for place in status.items("preemptionGates")}
    return tuple(_preemption_gate(place.text("name"), stated.get(place.text("name"))) for place in listed)


def _preemption_gate(name: str, stated: Reader | None) -> PreemptionGate:
    if stated is None:
        return PreemptionGate(name=name)
    return PreemptionGate(name=name, open=stated.text("position") == "Open", since=stated.moment("lastTransitionTime"))


def pod_set(place: Reader) -> PodSet:
    """Read an entry of spec.podSets."""
    return PodSet(
        name=place.text("name") or "main",
        count=place.number("count", 1, low=0, high=INT32),
        min_count=place.optional("minCount", low=1),
        template=pod_template(place.mapping("template"), checked=False),
        topology=_topology_request(place.mapping("topologyRequest")) if "topologyRequest" in place else None,
    )


def _topology_request(place: Reader) -> TopologyRequest:
    constraints = place.items("podsetSliceRequiredTopologyConstraints", 3)
    return TopologyRequest(
        required=place.text("required"),
        preferred=place.text("preferred"),
        unconstrained=place.flag("unconstrained"),
        slice_required=place.text("podSetSliceRequiredTopology"),
        slice_size=place.optional("podSetSliceSize", low=1),
        slice_constraints=tuple((c.text("topology"), c.number("size", 1, low=1)) for c in constraints),
        group=place.text("podSetGroupName"),
        index_label=place.text("podIndexLabel", limit=316),
        subgroup_index_label=place.text("subGroupIndexLabel", limit=316),
        subgroup_count=place.optional("subGroupCount"),
    )


def condition(place: Reader, now: Time) -> Condition:
    """Read a condition; without a transition time it has the time `now`."""
    since = place.moment("lastTransitionTime")
    return Condition(
        place.text("type"),
        place.text("status") == "True",
        place.text("reason"),
        place.text("message", limit=4096),
        now if since is None else since,
    )


def _admission(status: Reader, pod_sets: tuple[PodSet, ...]) -> Admission | None:
    if "admission" not in status:
        return None
    place = status.mapping("admission")
    counts = {pod_set.name: pod_set.count for pod_set in pod_sets}
    given = (_assignment(part, counts) for part in place.items("podSetAssignments", MOST_POD_SETS))
    return Admission(cluster_queue=place.text("clusterQueue"), pod_sets=tuple(given))


def _assignment(place: Reader, counts: Mapping[str, int]) -> PodSetAssignment:
    """Read the assignment of a pod set; its count defaults to that of the pod set."""
    topology = place.mapping("topologyAssignment")
    pod_set = place.text("name") or "main"
    return PodSetAssignment(
        name=pod_set,
        flavors=place.labels("flavors"),
        usage=resources(place, "resourceUsage"),
        count=place.number("count", counts.get(pod_set, 1), low=0, high=INT32),
        levels=topology.texts("levels"),
        topology=tuple(_domains(topology)),
        delayed=place.one_of("delayedTopologyRequest", "", DELAYED),
    )


def _domains(topology: Reader) -> Iterator[TopologyDomain]:
    """Yield the domains that v1beta1 lists, or those in v1beta2's slices."""
    for domain in topology.items("domains"):
        yield TopologyDomain(domain.texts("values"), domain.number("count", 0, low=0))
    for piece in topology.items("slices"):
        size = piece.number("domainCount", 0, low=0, high=100_000)
        levels = [_values(level, size) for level in piece.items("valuesPerLevel")]
        counts = piece.mapping("podCounts")
        each = counts.raw("individual")
        for n in range(size):
            own = each[n] if isinstance(each, list) and n < len(each) else counts.raw("universal")
            count = own if isinstance(own, int) and not isinstance(own, bool) else 0
            yield TopologyDomain(tuple(level[n] for level in levels), max(0, min(INT32, count)))


def _values(level: Reader, size: int) -> list[str]:
    """Return a level's value in each of `size` domains: the same for all, or prefix + root + suffix."""
    if "universal" in level:
        return [level.text("universal")] * size
    individual = level.mapping("individual")
    prefix, suffix = individual.text("prefix"), individual.text("suffix")
    roots = individual.texts("roots")
    return [f"{prefix}{roots[n] if n < len(roots) else ''}{suffix}" for n in range(size)]


def _requeue(place: Reader) -> RequeueState:
    return RequeueState(place.number("count", 0, low=0), place.moment("requeueAt"))


def _check(place: Reader) -> CheckState:
    return CheckState(
        name=place.text("name", limit=316),
        state=place.one_of("state", "Pending", STATES),
        message=place.text("message", limit=4096),
        retry_count=place.number("retryCount", 0, low=0),
        requeue_after=place.optional("requeueAfterSeconds", low=0),
        since=place.moment("lastTransitionTime"),
        updates=tuple(_update(update) for update in place.items("podSetUpdates", MOST_POD_SETS)),
    )


def _update(place: Reader) -> PodSetUpdate:
    return PodSetUpdate(
        name=place.text("name") or "main",
        labels=place.labels("labels"),
        annotations=place.labels("annotations"),
        node_selector=place.labels("nodeSelector"),
        tolerations=tolerations(place, "tolerations", checked=False),
    )
