"""Kueue's Workload (v1beta1 and v1beta2): its spec, and the status that a live cluster or a recording holds."""

from collections.abc import Iterator, Mapping

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.documents.amounts import resources
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.names import KEY, LABEL, LONGEST_LABEL, PATH, name, unique
from gpuconsole.model.documents.pods import pod_template
from gpuconsole.model.documents.reader import INT32, Reader, shown
from gpuconsole.model.documents.selectors import tolerations
from gpuconsole.model.jobs.common import check_spans
from gpuconsole.model.manifests.core import owner
from gpuconsole.model.quantity import PODS
from gpuconsole.model.workloads import (
    Admission,
    CheckState,
    Condition,
    EvictionCount,
    PodSet,
    PodSetAssignment,
    PodSetNeeds,
    PodSetUpdate,
    PreemptionGate,
    RequeueState,
    SchedulingStats,
    TopologyDomain,
    TopologyRequest,
    Workload,
)

MOST_POD_SETS = 18
MOST_CLUSTERS = 20
MOST_PODS = 1_000_000
MOST_GATES = 8
_CLASSES = (("kueue.x-k8s.io", "WorkloadPriorityClass"), ("scheduling.k8s.io", "PriorityClass"))
_SOURCES = {f"{group}/{kind.lower()}": kind for group, kind in _CLASSES}
"""v1beta1 names the kind of class by one text."""
STATES = ("Pending", "Ready", "Retry", "Rejected")
DELAYED = ("Pending", "Ready")


def workload(reader: Reader, now: Time) -> Workload:
    """A Workload."""
    meta = metadata(reader, now)
    spec, status = reader.mapping("spec"), reader.mapping("status")
    reference = spec.mapping("priorityClassRef")
    check_spans(reader)
    pod_sets = tuple(pod_set(place) for place in spec.items("podSets", MOST_POD_SETS))
    unique(spec, "podSets", [pods.name for pods in pod_sets], "name", fatal=True)
    _check_pod_sets(spec, pod_sets)
    _check_priority(spec, reference)
    seconds = spec.optional("maximumExecutionTimeSeconds", low=1)
    return Workload(
        **meta.facts,
        owner=owner(reader, meta.namespace),
        job_uid=meta.labels.get("kueue.x-k8s.io/job-uid", ""),
        queue=name(spec, "queueName"),
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
    """The gates of the spec in the position that the status states; one that it does not state is closed."""
    listed = spec.items("preemptionGates", MOST_GATES)
    if not listed:
        return ()
    stated = {place.text("name"): place for place in status.items("preemptionGates")}
    return tuple(_preemption_gate(place.text("name"), stated.get(place.text("name"))) for place in listed)


def _preemption_gate(name: str, stated: Reader | None) -> PreemptionGate:
    if stated is None:
        return PreemptionGate(name=name)
    return PreemptionGate(name=name, open=stated.text("position") == "Open", since=stated.moment("lastTransitionTime"))


def _check_pod_sets(spec: Reader, pod_sets: tuple[PodSet, ...]) -> None:
    if not pod_sets:
        complain = spec.report.refused if "podSets" in spec else spec.report.warning
        complain(spec.at("podSets"), "podSets is empty", "a Workload needs 1 to 18 pod sets", "no-pod-sets")
    if sum(pods.min_count is not None for pods in pod_sets) > 1:
        problem = "at most one podSet can use minCount"
        spec.report.refused(spec.at("podSets"), problem, "leave it in one of them", "bad-min-count")


def _check_priority(spec: Reader, reference: Reader) -> None:
    """A reference names one of two kinds of class, each of its own group, and the priority that it came to."""
    if "priorityClassRef" not in spec:
        return
    name(reference, "name", required=True)
    group, kind = reference.required("group"), reference.required("kind")
    if group and kind and (group, kind) not in _CLASSES:
        allowed = " or ".join(f"{kind} of {group}" for group, kind in _CLASSES)
        problem = f"{shown(kind)} of {shown(group)} is no priority class"
        spec.report.refused(reference.path, problem, f"name a {allowed}", "bad-value")
    if "priority" not in spec:
        problem = "priority should not be nil when priorityClassRef is set"
        spec.report.refused(spec.at("priority"), problem, "write the value of the class", "required")


def pod_set(place: Reader) -> PodSet:
    """One entry of spec.podSets."""
    place.only("name", "template", "count", "minCount", "topologyRequest")
    if "template" not in place:
        place.report.refused(place.at("template"), "template is missing", "describe the pods", "required")
    _check_requests(place.down("template", "spec"))
    count = place.number("count", 1, low=0, high=MOST_PODS)
    minimum = place.optional("minCount", low=1)
    if minimum is not None and minimum > count:
        problem = "minCount should be positive and less or equal to count"
        place.report.refused(place.at("minCount"), problem, f"write {count} or less", "bad-min-count")
    return PodSet(
        name=name(place, "name", LABEL, limit=LONGEST_LABEL) or "main",
        count=count,
        min_count=minimum,
        template=pod_template(place.mapping("template"), checked=False),
        topology=_topology_request(place.mapping("topologyRequest")) if "topologyRequest" in place else None,
    )


def _topology_request(place: Reader) -> TopologyRequest:
    constraints = place.items("podsetSliceRequiredTopologyConstraints", 3)
    if "podSetSliceSize" in place and "podSetSliceRequiredTopology" not in place:
        problem = "may not be set when podSetSliceRequiredTopology is not specified"
        place.report.refused(place.at("podSetSliceSize"), problem, "name the topology, or drop it", "bad-topology")
    return TopologyRequest(
        required=_level(place, "required"),
        preferred=_level(place, "preferred"),
        unconstrained=place.flag("unconstrained"),
        slice_required=name(place, "podSetSliceRequiredTopology", PATH, limit=LONGEST_LABEL, code="bad-topology"),
        slice_size=place.optional("podSetSliceSize", low=1),
        slice_constraints=tuple((c.required("topology"), c.number("size", 1, low=1)) for c in constraints),
        group=place.text("podSetGroupName"),
        index_label=place.text("podIndexLabel", limit=316),
        subgroup_index_label=place.text("subGroupIndexLabel", limit=316),
        subgroup_count=place.optional("subGroupCount"),
    )


def _check_requests(spec: Reader) -> None:
    for key in ("containers", "initContainers"):
        for container in spec.items(key):
            needs = container.mapping("resources")
            for part in ("requests", "limits"):
                if PODS in needs.mapping(part):
                    path, problem = needs.at(part, PODS), "the key is reserved for internal kueue use"
                    needs.report.refused(path, problem, "drop it: pods are counted by themselves", "reserved")


def _level(place: Reader, key: str) -> str:
    return name(place, key, KEY, limit=LONGEST_LABEL, code="bad-topology")


def condition(place: Reader, now: Time) -> Condition:
    """A condition; without a time it is taken as of now."""
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
    """What a pod set was given; a count that is not named is that of the pod set."""
    topology = place.mapping("topologyAssignment")
    pod_set = place.text("name") or "main"
    return PodSetAssignment(
        name=pod_set,
        flavors=place.labels("flavors"),
        usage=resources(place, "resourceUsage"),
        count=place.number("count", counts.get(pod_set, 1), low=0, high=MOST_PODS),
        levels=topology.texts("levels"),
        topology=tuple(_domains(topology)),
        delayed=place.one_of("delayedTopologyRequest", "", DELAYED),
    )


def _domains(topology: Reader) -> Iterator[TopologyDomain]:
    """Domains as v1beta1 lists them, or unfolded from v1beta2's slices."""
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
    """A level's value in each of `size` domains: one for all, or prefix + root + suffix each."""
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
