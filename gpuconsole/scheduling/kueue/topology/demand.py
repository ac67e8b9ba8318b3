"""A pod set's topology request, and the test whether a flavor can satisfy it (Kueue 0.19 tas_flavorassigner.go)."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.pod_sets import PodSet, TopologyRequest
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.resources import Resources
from gpuconsole.model.workloads import TopologyDomain, Workload
from gpuconsole.scheduling.kueue.assignment import Assignment, PodSetResult
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig, CompiledResourceGroup
from gpuconsole.scheduling.kueue.pod_counts import ELASTIC, ELASTIC_VALUE
from gpuconsole.scheduling.kueue.podset import Conflict, from_update, merge
from gpuconsole.scheduling.kueue.requests import WorkloadRequest, ordered
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree

Slices = tuple[tuple[str, int], ...]
"""(level, size) of the slices that must not straddle domains of that level, outermost first."""


class Replacing(Struct, frozen=True):
    """A topology assignment with a failed node to replace."""

    node: str
    existing: tuple[TopologyDomain, ...]
    pinned: bool = False
    """Its pods cannot move: the assignment stays as it is (SkipReassignmentForPodOwnedWorkloads)."""


class TasPodSetRequest(Struct, frozen=True):
    """Pods of one pod set that are to be placed in a flavor's topology."""

    pod_set: PodSet
    count: int
    per_pod: Resources
    implied: bool
    """Not requested, but the queue has only flavors with a topology."""
    replacing: Replacing | None = None
    """Only the pods of a failed node need places."""
    previous: tuple[TopologyDomain, ...] | None = None
    """Where the pods of the workload slice run that this one takes over from."""
    problem: str = ""
    """Why nothing can be placed for it anywhere."""

    @property
    def request(self) -> TopologyRequest:
        return self.pod_set.topology if self.pod_set.topology is not None else NO_REQUEST


NO_REQUEST = TopologyRequest()


def slices_of(request: TopologyRequest) -> Slices:
    """Return the slice constraints of a request, from either of its two forms."""
    if request.slice_constraints:
        return request.slice_constraints
    return ((request.slice_required, request.slice_size or 0),) if request.slice_required else ()


def is_explicit(pod_set: PodSet) -> bool:
    """True if the pod set itself requests a topology."""
    return pod_set.topology is not None and pod_set.topology.explicit


def is_requested(pod_set: PodSet, rules: ClusterQueueConfig) -> bool:
    return rules.tas_only or is_explicit(pod_set)


def requested_level(demand: TasPodSetRequest, domains: TopologyDomainTree) -> str:
    """Return the level whose domains must hold the pods together; empty if none."""
    # A Topology may have no levels: its manifest is warned of, and a watched one may come before its spec.
    return level_of(demand.request, domains) or ("".join(domains.levels[-1:]) if demand.implied else "")


def level_of(request: TopologyRequest, domains: TopologyDomainTree) -> str:
    if request.required or request.preferred:
        return request.required or request.preferred
    if slices_of(request):
        return "".join(domains.levels[:1])
    return "".join(domains.levels[-1:]) if request.unconstrained else ""


def has_levels(request: TopologyRequest, domains: TopologyDomainTree) -> bool:
    """True if the request names a level and slices, as far as it does, that the topology has."""
    wanted = [level_of(request, domains), *(level for level, _ in slices_of(request))]
    return all(level in domains.levels for level in wanted)


def mismatch(
    pod_set: PodSet,
    flavor: ResourceFlavor,
    group: CompiledResourceGroup,
    rules: ClusterQueueConfig,
    topologies: Mapping[str, TopologyDomainTree],
) -> str:
    """Return why the flavor does not suit the pod set's topology request; empty if it does."""
    if not is_requested(pod_set, rules):
        return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling' if flavor.topology else ""
    if not is_explicit(pod_set):
        return ""
    if not flavor.topology:
        overlap = group.resources & pod_set.template.requests.keys()
        return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling' if overlap else ""
    domains = topologies.get(flavor.name)
    if domains is None:
        return f'Flavor "{flavor.name}" information missing in TAS cache'
    if has_levels(pod_set.topology or NO_REQUEST, domains):
        return ""
    return f'Flavor "{flavor.name}" does not contain the requested level'


def replacing(request: WorkloadRequest, existing: tuple[TopologyDomain, ...]) -> Replacing | None:
    """Return the replacement of the first failed node of a workload; the others wait."""
    lost = request.workload.unhealthy_nodes
    return Replacing(lost[0], existing, request.pinned) if lost else None


def demands_of(
    assignment: Assignment,
    rules: ClusterQueueConfig,
    request: WorkloadRequest,
    topologies: Mapping[str, TopologyDomainTree],
    *,
    elastic: bool = False,
) -> dict[str, list[TasPodSetRequest]]:
    """Flavor → what its topology is asked for. A pod set without exactly one such flavor fails the assignment.

    Pod sets that have their places already are left out unless a node failed under them, and so are those whose places
    others choose, or a second pass when their nodes are there. With `elastic` pods of an elastic workload stay where
    the slice before it has them, so that they may not ask for a domain of their own.
    """
    elastic = elastic and request.workload.annotations.get(ELASTIC) == ELASTIC_VALUE
    lost = request.workload.unhealthy_nodes
    demands: dict[str, list[TasPodSetRequest]] = {}
    for result in assignment.pod_sets:
        if not is_requested(result.pod_set, rules) or not result.count or result.failure:
            continue
        if (result.topology or lost) and not any(domain.values[-1] in lost for domain in result.topology):
            continue
        if elastic and _bound(assignment, result):
            continue
        flavor = _only_flavor(assignment, result, rules, topologies)
        if flavor and (rules.multikueue or (flavor in rules.provisioned and not request.workload.reserved)):
            result.delayed = "Pending"
        elif flavor:
            per_pod = ordered(result.pod_set.template.requests)
            pod_set, problem = _updated(result.pod_set, request.workload)
            demand = TasPodSetRequest(
                pod_set,
                result.count,
                per_pod,
                not is_explicit(result.pod_set),
                replacing(request, result.topology),
                _kept(assignment, result) if elastic else None,
                problem,
            )
            demands.setdefault(flavor, []).append(demand)
    return demands


def _updated(pod_set: PodSet, workload: Workload) -> tuple[PodSet, str]:
    """The pod set with what its admission checks that are ready add to its pods; or why that contradicts it."""
    template = pod_set.template
    for update in (u for check in workload.checks if check.state == "Ready" for u in check.updates):
        if update.name == pod_set.name:
            try:
                template = merge(template, from_update(update))
            except Conflict as problem:
                return pod_set, f"invalid podSetUpdate for PodSet {pod_set.name}, error: {problem}"
    return (pod_set if template is pod_set.template else replace(pod_set, template=template)), ""


def _bound(assignment: Assignment, result: PodSetResult) -> bool:
    """True, and the assignment fails, if all pods of an elastic workload are to be in one domain."""
    topology = result.pod_set.topology
    word = "required" if topology is not None and topology.required else ""
    word = word or ("preferred" if topology is not None and topology.preferred else "")
    if word:
        assignment.fail(result, f"{word} topology is not supported with ElasticJobsViaWorkloadSlices")
    return bool(word)


def _kept(assignment: Assignment, result: PodSetResult) -> tuple[TopologyDomain, ...] | None:
    """Return the topology assignment of this pod set in the replaced slice."""
    given = assignment.given(result)
    return given.topology if given is not None and given.topology else None


def _only_flavor(
    assignment: Assignment,
    result: PodSetResult,
    rules: ClusterQueueConfig,
    topologies: Mapping[str, TopologyDomainTree],
) -> str:
    flavors = sorted({choice.flavor for choice in result.choices.values()} & topologies.keys())
    if len(flavors) == 1:
        return flavors[0]
    if flavors:
        assignment.fail(result, f"more than one TAS flavor assigned: {', '.join(flavors)}")
    elif not any(flavor in topologies for group in rules.groups for flavor in group.flavors):
        assignment.fail(result, "workload requires Topology, but there is no TAS cache information")
    else:
        assignment.fail(result, "no TAS flavor assigned")
    return ""
