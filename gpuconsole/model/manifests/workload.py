"""Kueue's Workload (v1beta1 and v1beta2): its spec, and the status that a live cluster or a recording holds."""

from collections.abc import Iterator

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.documents.amounts import resources
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.pods import pod_template
from gpuconsole.model.documents.reader import INT32, Reader
from gpuconsole.model.jobs.common import check_names
from gpuconsole.model.manifests.core import owner
from gpuconsole.model.workloads import (
    Admission,
    CheckState,
    Condition,
    PodSet,
    PodSetAssignment,
    RequeueState,
    TopologyDomain,
    TopologyRequest,
    Workload,
)

MOST_POD_SETS = 18
MOST_PODS = 1_000_000
STATES = ("Pending", "Ready", "Retry", "Rejected")


def workload(reader: Reader, now: Time) -> Workload:
    """A Workload. Evictions are the sum of status.schedulingStats."""
    meta = metadata(reader, now)
    spec, status = reader.mapping("spec"), reader.mapping("status")
    reference = spec.mapping("priorityClassRef")
    pod_sets = tuple(pod_set(place) for place in spec.items("podSets", MOST_POD_SETS))
    check_names(spec, "podSets", "name", [pods.name for pods in pod_sets])
    if not pod_sets:
        spec.report.refused(spec.at("podSets"), "podSets is empty", "a Workload needs 1 to 18 pod sets", "required")
    seconds = spec.optional("maximumExecutionTimeSeconds", low=1)
    return Workload(
        **meta.facts,
        owner=owner(reader, meta.namespace),
        job_uid=meta.labels.get("kueue.x-k8s.io/job-uid", ""),
        queue=spec.text("queueName"),
        priority=spec.number("priority", 0),
        priority_class=reference.text("name") or spec.text("priorityClassName"),
        active=spec.flag("active", True),
        pod_sets=pod_sets,
        max_execution_time=None if seconds is None else seconds * SECOND,
        conditions=tuple(_condition(place, now) for place in status.items("conditions")),
        admission=_admission(status),
        requeue=_requeue(status.mapping("requeueState")),
        reclaimable={place.text("name"): place.number("count", 0, low=0) for place in status.items("reclaimablePods")},
        checks=tuple(_check(place) for place in status.items("admissionChecks")),
        past_execution=status.number("accumulatedPastExecutionTimeSeconds", 0, low=0) * SECOND,
        unhealthy_nodes=tuple(node.text("name") for node in status.items("unhealthyNodes")),
        evictions=sum(e.number("count", 0, low=0) for e in status.mapping("schedulingStats").items("evictions")),
    )


def pod_set(place: Reader) -> PodSet:
    """One entry of spec.podSets."""
    place.only("name", "template", "count", "minCount", "topologyRequest")
    count = place.number("count", 1, low=0, high=MOST_PODS)
    minimum = place.optional("minCount", low=1)
    if minimum is not None and minimum > count:
        problem = "minCount should be positive and less or equal to count"
        place.report.refused(place.at("minCount"), problem, f"write {count} or less", "bad-min-count")
    return PodSet(
        name=place.text("name") or "main",
        count=count,
        min_count=minimum,
        template=pod_template(place.mapping("template"), checked=False),
        topology=_topology_request(place.mapping("topologyRequest")) if "topologyRequest" in place else None,
    )


def _topology_request(place: Reader) -> TopologyRequest:
    constraints = place.items("podsetSliceRequiredTopologyConstraints", 3)
    return TopologyRequest(
        required=place.text("required", limit=316),
        preferred=place.text("preferred", limit=316),
        unconstrained=place.flag("unconstrained"),
        slice_required=place.text("podSetSliceRequiredTopology", limit=316),
        slice_size=place.optional("podSetSliceSize", low=1),
        slice_constraints=tuple((c.required("topology"), c.number("size", 1, low=1)) for c in constraints),
        group=place.text("podSetGroupName"),
        index_label=place.text("podIndexLabel", limit=316),
        subgroup_index_label=place.text("subGroupIndexLabel", limit=316),
        subgroup_count=place.optional("subGroupCount", low=0),
    )


def _condition(place: Reader, now: Time) -> Condition:
    since = place.moment("lastTransitionTime")
    return Condition(
        place.text("type"),
        place.text("status") == "True",
        place.text("reason"),
        place.text("message", limit=4096),
        now if since is None else since,
    )


def _admission(status: Reader) -> Admission | None:
    if "admission" not in status:
        return None
    place = status.mapping("admission")
    assignments = place.items("podSetAssignments", MOST_POD_SETS)
    return Admission(cluster_queue=place.text("clusterQueue"), pod_sets=tuple(_assignment(a) for a in assignments))


def _assignment(place: Reader) -> PodSetAssignment:
    topology = place.mapping("topologyAssignment")
    return PodSetAssignment(
        name=place.text("name") or "main",
        flavors=place.labels("flavors"),
        usage=resources(place, "resourceUsage"),
        count=place.number("count", 1, low=0, high=MOST_PODS),
        levels=topology.texts("levels"),
        topology=tuple(_domains(topology)),
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
    )
