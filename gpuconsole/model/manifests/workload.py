"""Manifests of Kueue's Workload, of ProvisioningRequests, and of pod groups of scheduling.k8s.io.

A Workload (v1beta1 and v1beta2) has a status in a live cluster or a recording. A ProvisioningRequest is read with its
configuration and the PodTemplates that it names. The pod groups are validated as by the API server of Kubernetes 1.35
to 1.37.
"""

from collections.abc import Iterator, Mapping

from gpuconsole.model.autoscaling import (
    ProvisioningRequest,
    ProvisioningRequestConfig,
    RequestedPods,
    RetryStrategy,
    StoredTemplate,
)
from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.cluster import CompositePodGroup, SchedulingWorkload
from gpuconsole.model.documents.metadata import PATH, is_label_key, metadata, name, spec_of, unique
from gpuconsole.model.documents.pods_and_selectors import pod_template, tolerations
from gpuconsole.model.documents.reader import INT32, Reader, resources, shown
from gpuconsole.model.jobs.common import check_spans
from gpuconsole.model.manifests.core import owner
from gpuconsole.model.pod_template import PodSet, TopologyRequest
from gpuconsole.model.volcano import PodGroup
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
"""States of an admission check."""
DELAYED = ("Pending", "Ready")
"""Values of delayedTopologyRequest."""


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


MERGE_POLICIES = ("IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements")
_MOST_PARAMETERS = 100
_MOST_REQUESTED_POD_SETS = 32


def config(reader: Reader, now: Time) -> ProvisioningRequestConfig:
    """Read a ProvisioningRequestConfig, with Kueue's defaults for retries."""
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(
        reader,
        *("provisioningClassName", "parameters", "managedResources", "retryStrategy"),
        *("podSetUpdates", "podSetMergePolicy"),
    )
    managed = spec.texts("managedResources", _MOST_PARAMETERS)
    unique(spec, "managedResources", managed)
    return ProvisioningRequestConfig(
        name=meta.name,
        provisioning_class=name(spec, "provisioningClassName", PATH, required=True),
        parameters=spec.labels("parameters", limit=255),
        managed_resources=managed,
        retry=_retry(spec.mapping("retryStrategy")),
        node_selectors=_node_selectors(spec),
        merge_policy=spec.one_of("podSetMergePolicy", "", MERGE_POLICIES),
    )


def _retry(place: Reader) -> RetryStrategy:
    place.only("backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds")
    usual = RetryStrategy()
    return RetryStrategy(
        limit=place.number("backoffLimitCount", usual.limit, low=0, high=INT32),
        base=place.number("backoffBaseSeconds", usual.base // SECOND, low=0, high=INT32) * SECOND,
        most=place.number("backoffMaxSeconds", usual.most // SECOND, low=0, high=INT32) * SECOND,
    )


def _node_selectors(spec: Reader) -> tuple[tuple[str, str], ...] | None:
    if "podSetUpdates" not in spec:
        return None
    updates = spec.mapping("podSetUpdates")
    updates.only("nodeSelector")
    return tuple(
        (place.required("key"), place.required("valueFromProvisioningClassDetail"))
        for place in updates.items("nodeSelector", 8)
    )


def request(reader: Reader, now: Time) -> ProvisioningRequest:
    """Read a ProvisioningRequest."""
    meta = metadata(reader, now)
    spec, status = reader.mapping("spec"), reader.mapping("status")
    owners = reader.mapping("metadata").items("ownerReferences")
    return ProvisioningRequest(
        namespace=meta.namespace,
        name=meta.name,
        created=meta.created,
        labels=meta.labels,
        owners=tuple(place.text("name") for place in owners),
        provisioning_class=spec.text("provisioningClassName"),
        parameters=spec.labels("parameters", limit=255),
        pod_sets=tuple(_pods(place) for place in spec.items("podSets", _MOST_REQUESTED_POD_SETS)),
        conditions=tuple(condition(place, now) for place in status.items("conditions")),
        details=status.labels("provisioningClassDetails", limit=32768),
    )


def _pods(place: Reader) -> RequestedPods:
    return RequestedPods(place.mapping("podTemplateRef").text("name"), place.number("count", 1, low=1))


def stored_template(reader: Reader, now: Time) -> StoredTemplate:
    """Read a PodTemplate."""
    meta = metadata(reader, now)
    return StoredTemplate(
        namespace=meta.namespace,
        name=meta.name,
        labels=meta.labels,
        owner=owner(reader, meta.namespace),
        template=pod_template(reader.mapping("template"), checked=False),
    )


MOST_GROUPS = 8
"""Most entries in a list of pod groups or templates."""
_DEEPEST = 4
"""Most levels of templates (Kubernetes 1.37: a hierarchy is at most four deep)."""
_POLICIES = ("basic", "gang")
_COMPOSITES = "compositePodGroupTemplates"


def kubernetes_workload(reader: Reader, now: Time) -> SchedulingWorkload:
    """Read a Workload: v1alpha1 lists `podGroups` with a `policy`, later versions `podGroupTemplates`."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    key = "podGroupTemplates" if "podGroupTemplates" in spec else "podGroups"
    if not spec.raw(key) and _COMPOSITES not in spec:
        spec.report.refused(spec.at(key), f"{key} is empty", "name at least one group of pods", "required")
    groups = {}
    names = []
    for place in spec.items(key, MOST_GROUPS):
        name = place.required("name")
        names.append(name)
        groups[name] = _policy(place, "policy" if key == "podGroups" else "schedulingPolicy")[1]
        _topology_key(place)
    unique(spec, key, names, "name")
    return SchedulingWorkload(**meta.facts, groups=groups | dict(_templates(spec, 1)))


def _templates(place: Reader, level: int) -> Iterator[tuple[str, int]]:
    """Yield name and minCount of the PodGroup templates below composite ones."""
    for composite in place.items(_COMPOSITES, MOST_GROUPS) if level < _DEEPEST else ():
        name = composite.required("name")
        _policy(composite, "schedulingPolicy", "minGroupCount")
        _topology_key(composite)
        if not composite.raw("podGroupTemplates") and not composite.raw(_COMPOSITES):
            composite.report.refused(
                composite.at("name"),
                f"{name} must have at least one child PodGroupTemplate or CompositePodGroupTemplate",
                "add podGroupTemplates to it",
                "required",
            )
        for child in composite.items("podGroupTemplates", MOST_GROUPS):
            _topology_key(child)
            yield child.required("name"), _policy(child, "schedulingPolicy")[1]
        yield from _templates(composite, level + 1)


def pod_group(reader: Reader, now: Time) -> PodGroup:
    """Read a PodGroup, the runtime object of v1alpha2 and later."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    policy, least = _policy(spec, "schedulingPolicy")
    return PodGroup(
        **meta.facts,
        min_member=least,
        policy=policy,
        topology_key=_topology_key(spec),
        parent_group=spec.text("parentCompositePodGroupName"),
    )


def composite_pod_group(reader: Reader, now: Time) -> CompositePodGroup:
    """Read a CompositePodGroup (v1alpha3 and later)."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    policy, least = _policy(spec, "schedulingPolicy", "minGroupCount")
    return CompositePodGroup(
        **meta.facts,
        policy=policy,
        min_groups=least,
        topology_key=_topology_key(spec),
        parent_group=spec.text("parentCompositePodGroupName"),
    )


def _topology_key(place: Reader) -> str:
    """Return the node label whose value all pods of a group must share; empty if there is none."""
    keys = [one.required("key") for one in place.mapping("schedulingConstraints").items("topology", 1)]
    key = keys[0] if keys else ""
    if key and not is_label_key(key):
        place.report.refused(
            place.mapping("schedulingConstraints").at("topology"),
            f"{shown(key)} is not a label key",
            "use the key of a node label, such as topology.kubernetes.io/zone",
            "bad-name",
        )
    return key


def _policy(place: Reader, key: str, count: str = "minCount") -> tuple[str, int]:
    """Return a group's policy, and how many of its pods or child groups start together: 1 under `basic`."""
    policy = place.mapping(key)
    given = [name for name in _POLICIES if name in policy or isinstance(policy.raw(name), dict)]
    if len(given) != 1:
        wanted = "must specify one of" if not given else "must specify exactly one of"
        said = ", ".join(f"`{name}`" for name in _POLICIES)
        place.report.refused(
            place.at(key), f"{wanted}: {said}", f"write basic: {{}}, or gang: {{{count}: 4}}", "required"
        )
    if "gang" not in given:
        return "basic", 1
    gang = policy.mapping("gang")
    if gang.raw(count) is None:
        gang.report.refused(gang.at(count), f"{count} is missing", "say how many start together", "required")
        return "gang", 1
    return "gang", gang.number(count, 1, low=1, high=INT32)
