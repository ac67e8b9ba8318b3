"""Replaces a failed node in a topology assignment; pods on other nodes stay where they are.

Kueue 0.19 TASFlavorSnapshot.findReplacementAssignment. The replacement stays in the required domain and keeps slices
intact.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.workloads import TopologyDomain
from gpuconsole.scheduling.kueue.topology.demand import Replacing, TasPodSetRequest, requested_level, slices_of
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree, Values
from gpuconsole.scheduling.kueue.topology.group import TopologySearchInput, Unplaced, place_group

Assigned = tuple[TopologyDomain, ...]


def replace_node(ground: TopologySearchInput, demand: TasPodSetRequest) -> Assigned:
    """Return the assignment with a replacement for the failed node; unchanged if pinned. Raises Unplaced."""
    lost = demand.replacing
    assert lost is not None
    if lost.pinned:
        return lost.existing
    missing, staying = without_node(lost)
    stale = stale_domain(ground.domains, staying)
    if stale:
        raise Unplaced(
            "Cannot replace the node, because the existing topologyAssignment is invalid,"
            f" as it contains the stale domain {stale}"
        )
    demand = replace(demand, count=missing, replacing=None)
    within = _domain_to_keep(ground.domains, demand, staying)
    if slices_of(demand.request) and within and missing % _slice_size(demand):
        demand = _in_whole_slices(demand)
    found = place_group(ground, demand, within=within)[demand.pod_set.name]
    if not found:
        raise Unplaced(f"cannot find replacement assignment for unhealthy node: {lost.node}")
    ground.take(demand, found)
    return merge(ground.domains, found, staying)


def without_node(lost: Replacing) -> tuple[int, Assigned]:
    """Return the number of pods on the node, and the assignment without it (deleteDomain)."""
    staying = tuple(domain for domain in lost.existing if domain.values[-1] != lost.node)
    return sum(d.count for d in lost.existing if d.values[-1] == lost.node), staying


def stale_domain(domains: TopologyDomainTree, assigned: Sequence[TopologyDomain]) -> str:
    """Return the first domain that no longer exists; empty if all do (IsTopologyAssignmentStale)."""
    return next((domain.values[0] for domain in assigned if domain.values not in domains.leaves), "")


def merge(domains: TopologyDomainTree, one: Sequence[TopologyDomain], other: Sequence[TopologyDomain]) -> Assigned:
    """Merge two assignments, in the order of the domains (mergeTopologyAssignments)."""
    counts: dict[Values, int] = {}
    for domain in sorted((*one, *other), key=lambda domain: domains.leaves[domain.values]):
        counts[domain.values] = counts.get(domain.values, 0) + domain.count
    return tuple(TopologyDomain(values, count) for values, count in counts.items())


def _slice_size(demand: TasPodSetRequest) -> int:
    slices = slices_of(demand.request)
    return slices[0][1] if slices and slices[0][1] > 0 else 1


def _domain_to_keep(domains: TopologyDomainTree, demand: TasPodSetRequest, staying: Sequence[TopologyDomain]) -> Values:
    """Return the domain that must contain the replacement; empty if any may (requiredReplacementDomain)."""
    key = requested_level(demand, domains)
    slices = slices_of(demand.request)
    if key not in domains.levels or not staying or (slices and slices[0][1] <= 0):
        return ()
    if slices and demand.count % slices[0][1]:
        broken = next(((level, size) for level, size in reversed(slices) if demand.count % size), slices[0])
        return _broken_slice(domains, staying, demand.count, *broken)
    if not demand.request.required:
        return ()
    return _above(domains, staying[0], domains.levels.index(key))


def _broken_slice(
    domains: TopologyDomainTree, staying: Sequence[TopologyDomain], missing: int, level: str, size: int
) -> Values:
    """Return the domain whose slices the missing pods complete; empty if none (findIncompleteSliceDomain)."""
    if level not in domains.levels:
        return ()
    pods: dict[Values, int] = {}
    for domain in staying:
        above = _above(domains, domain, domains.levels.index(level))
        pods[above] = pods.get(above, 0) + domain.count
    return next((values for values, count in pods.items() if not (count + missing) % size), ())


def _above(domains: TopologyDomainTree, assigned: TopologyDomain, level: int) -> Values:
    """Return the values of the domain at a level that contains a leaf, from the highest level down."""
    number = domains.leaf_domains[domains.leaves[assigned.values]]
    return domains.values[number][: level + 1]


def _in_whole_slices(demand: TasPodSetRequest) -> TasPodSetRequest:
    """Request the innermost slices that divide the missing pods evenly; single pods if none do."""
    fitting = next(
        ((level, size) for level, size in reversed(slices_of(demand.request)) if not demand.count % size), None
    )
    level, size = fitting or ("", 1)
    request = replace(demand.request, slice_constraints=(), slice_required=level, slice_size=size)
    return replace(demand, pod_set=replace(demand.pod_set, topology=request))
