"""A pod set's topology request, and the test whether a flavor can satisfy it (Kueue 0.19 tas_flavorassigner.go)."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.pod_template import PodSet, TopologyRequest
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.resources import Resources
from gpuconsole.model.workloads import TopologyDomain, Workload
from gpuconsole.scheduling.kueue.assignment import Assignment, PodSetResult
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig, CompiledResourceGroup
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest, in_kueue_order
from gpuconsole.scheduling.kueue.podset import ELASTIC, ELASTIC_VALUE, Conflict, apply_additions, from_update
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree

Slices = tuple[tuple[str, int], ...]
"""(level, size) of the slices that must not straddle domains of that level, outermost first."""


class NodeReplacement(Struct, frozen=True):
    """A topology assignment with a failed node to replace."""

    node: str
    assignment: tuple[TopologyDomain, ...]
    is_pinned: bool = False
    """True if its pods cannot move: the assignment stays as it is (SkipReassignmentForPodOwnedWorkloads)."""


class TasPodSetRequest(Struct, frozen=True):
    """Pods of one pod set that are to be placed in a flavor's topology."""

    pod_set: PodSet
    count: int
    per_pod: Resources
    is_implied: bool
    """True if the pod set requests no topology, but its ClusterQueue has only flavors with one."""
    replacement: NodeReplacement | None = None
    """Set if only the pods of a failed node are to be placed."""
    previous_assignment: tuple[TopologyDomain, ...] | None = None
    """The assignment of this pod set in the workload slice that is replaced; None if there is none."""
    problem: str = ""
    """An error that prevents every placement; empty if there is none."""

    @property
    def request(self) -> TopologyRequest:
        """The pod set's topology request; `NO_REQUEST` if it has none."""
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
    """True if the pod set uses TAS, because it requests it or because its ClusterQueue has only TAS flavors."""
    return rules.tas_only or is_explicit(pod_set)


def requested_level(tas_request: TasPodSetRequest, domains: TopologyDomainTree) -> str:
    """Return the topology level of a request; for an implied one the lowest; empty if there is none."""
    # A Topology may have no levels: in a manifest that is only a warning, and a watched object may lack its spec.
    return level_of(tas_request.request, domains) or ("".join(domains.levels[-1:]) if tas_request.is_implied else "")


def level_of(request: TopologyRequest, domains: TopologyDomainTree) -> str:
    """Return the level that a request names; with only slices the highest, if unconstrained the lowest, else empty."""
    if request.required or request.preferred:
        return request.required or request.preferred
    if slices_of(request):
        return "".join(domains.levels[:1])
    return "".join(domains.levels[-1:]) if request.unconstrained else ""


def has_levels(request: TopologyRequest, domains: TopologyDomainTree) -> bool:
    """True if the topology has the level and the slice levels of the request."""
    wanted = [level_of(request, domains), *(level for level, _ in slices_of(request))]
    return all(level in domains.levels for level in wanted)


def topology_mismatch(
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


def node_replacement(request: WorkloadRequest, existing: tuple[TopologyDomain, ...]) -> NodeReplacement | None:
    """Return the replacement of a workload's first failed node; None if no node failed."""
    lost = request.workload.unhealthy_nodes
    return NodeReplacement(lost[0], existing, request.keeps_flavors) if lost else None


def demands_of(
    assignment: Assignment,
    rules: ClusterQueueConfig,
    request: WorkloadRequest,
    topologies: Mapping[str, TopologyDomainTree],
    *,
    elastic: bool = False,
) -> dict[str, list[TasPodSetRequest]]:
    """Return the topology requests by flavor. A pod set without exactly one TAS flavor fails the assignment.

    Skips pod sets that have a topology assignment without a failed node. Delays pod sets that a MultiKueue worker
    places, and those that the second pass places once their nodes are provisioned. With `elastic`, pods of an elastic
    workload keep the domains of the replaced slice, and a required or preferred topology fails the assignment.
    """
    elastic = elastic and request.workload.annotations.get(ELASTIC) == ELASTIC_VALUE
    lost = request.workload.unhealthy_nodes
    demands: dict[str, list[TasPodSetRequest]] = {}
    for result in assignment.pod_sets:
        if not is_requested(result.pod_set, rules) or not result.count or result.failure:
            continue
        if (result.topology or lost) and not any(domain.values[-1] in lost for domain in result.topology):
            continue
        if elastic and _is_delayed_to_worker(assignment, result):
            continue
        flavor = _only_flavor(assignment, result, rules, topologies)
        if flavor and (rules.multikueue or (flavor in rules.provisioned and not request.workload.reserved)):
            result.is_delayed = "Pending"
        elif flavor:
            per_pod = in_kueue_order(result.pod_set.template.requests)
            pod_set, problem = _current_pod_set(result.pod_set, request.workload)
            tas_request = TasPodSetRequest(
                pod_set,
                result.count,
                per_pod,
                not is_explicit(result.pod_set),
                node_replacement(request, result.topology),
                _kept_assignment(assignment, result) if elastic else None,
                problem,
            )
            demands.setdefault(flavor, []).append(tas_request)
    return demands


def _current_pod_set(pod_set: PodSet, workload: Workload) -> tuple[PodSet, str]:
    """Return the pod set with the podSetUpdates of its ready admission checks; the error text if they conflict."""
    template = pod_set.template
    for update in (u for check in workload.checks if check.state == "Ready" for u in check.updates):
        if update.name == pod_set.name:
            try:
                template = apply_additions(template, from_update(update))
            except Conflict as problem:
                return pod_set, f"invalid podSetUpdate for PodSet {pod_set.name}, error: {problem}"
    return (pod_set if template is pod_set.template else replace(pod_set, template=template)), ""


def _is_delayed_to_worker(assignment: Assignment, result: PodSetResult) -> bool:
    """Fail the assignment of an elastic workload's pod set with a required or preferred topology; True if it did."""
    topology = result.pod_set.topology
    word = "required" if topology is not None and topology.required else ""
    word = word or ("preferred" if topology is not None and topology.preferred else "")
    if word:
        assignment.record_error(result, f"{word} topology is not supported with ElasticJobsViaWorkloadSlices")
    return bool(word)


def _kept_assignment(assignment: Assignment, result: PodSetResult) -> tuple[TopologyDomain, ...] | None:
    """Return the topology assignment of this pod set in the replaced slice; None if there is none."""
    given = assignment.replaced_pod_set(result)
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
        assignment.record_error(result, f"more than one TAS flavor assigned: {', '.join(flavors)}")
    elif not any(flavor in topologies for group in rules.groups for flavor in group.flavors):
        assignment.record_error(result, "workload requires Topology, but there is no TAS cache information")
    else:
        assignment.record_error(result, "no TAS flavor assigned")
    return ""
