"""Adds topology assignments to a flavor assignment, and again once its preemption victims are known.

`place` and `place_after_preemption` do that (Kueue 0.19 flavorassigner.assignFlavors,
scheduler.updateAssignmentForTAS). `find_places` searches for all pod sets of a workload, flavor by flavor and group by
group (FindTopologyAssignmentsForWorkload). `resize` keeps the running pods of an elastic job and places only new ones
(tas_elastic_workloads.go, gate ElasticJobsViaWorkloadSlicesWithTAS). `replace_node` replaces a failed node and keeps
the pods on other nodes, the required domain, and whole slices (findReplacementAssignment).
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.resources import Resources
from gpuconsole.model.workloads import TopologyDomain
from gpuconsole.scheduling.kueue.assignment import Assignment, FlavorAssignmentMode
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.conditions import on_failed_node
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.topology.demand import (
    Replacing,
    TasPodSetRequest,
    demands_of,
    requested_level,
    slices_of,
)
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree, Values
from gpuconsole.scheduling.kueue.topology.group import Places, TopologySearchInput, Unplaced, place_group
from gpuconsole.scheduling.kueue.topology.layout import TasGates, TasUsage

Assigned = tuple[TopologyDomain, ...]
"""The assignment of one pod set: domains of the lowest level, each with its number of pods."""


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


Resized = dict[str, Assigned]
"""Pod set → its assignment."""


def resize(ground: TopologySearchInput, workers: TasPodSetRequest, leader: TasPodSetRequest | None) -> Resized | None:
    """Return assignments that keep those of the replaced slice; None if a domain of theirs is gone. Raises Unplaced."""
    before = workers.previous
    assert before is not None
    kept = leader.previous if leader is not None else None
    if stale_domain(ground.domains, (*before, *(kept or ()))):
        return None
    if workers.count > pods_in(before):
        return _grow(ground, workers, leader, before)
    result = {workers.pod_set.name: truncate(before, workers.count)}
    if leader is not None:
        result[leader.pod_set.name] = kept or ()
    for demand in (workers, leader):
        if demand is not None:
            ground.take(demand, result[demand.pod_set.name])
    return result


def pods_in(assigned: Sequence[TopologyDomain]) -> int:
    """Return the number of pods in an assignment."""
    return sum(domain.count for domain in assigned)


def truncate(assigned: Sequence[TopologyDomain], count: int) -> Assigned:
    """Return the assignment of the first `count` pods."""
    kept: list[TopologyDomain] = []
    for domain in assigned:
        if count <= 0:
            break
        kept.append(replace(domain, count=min(domain.count, count)))
        count -= domain.count
    return tuple(kept)


def _grow(
    ground: TopologySearchInput,
    workers: TasPodSetRequest,
    leader: TasPodSetRequest | None,
    before: Assigned,
) -> Resized:
    """Place the new pods beside the running ones; a running leader stays."""
    result: Resized = {}
    ground.take(workers, before)
    placed = leader
    if leader is not None and leader.previous is not None:
        result[leader.pod_set.name] = leader.previous
        ground.take(leader, leader.previous)
        placed = None
    name = workers.pod_set.name
    found = place_group(ground, replace(workers, count=workers.count - pods_in(before), previous=None), placed)
    if placed is not None:
        result[placed.pod_set.name] = found[placed.pod_set.name]
        ground.take(placed, found[placed.pod_set.name])
    ground.take(workers, found[name])
    result[name] = merge(ground.domains, found[name], before)
    return result


class TopologyPlacements(Struct, frozen=True):
    """The topology assignments found so far, or the first failure."""

    places: Places
    failed: str = ""
    """The pod set that does not fit."""
    reason: str = ""
    failed_together: tuple[str, ...] = ()
    """Pod sets of the same group, which fail with it."""


def find_places(
    demands: Mapping[str, Sequence[TasPodSetRequest]], sites: TasUsage, *, gates: TasGates, empty: bool
) -> TopologyPlacements:
    """Find topology assignments for all requests, or the first failure.

    `empty` ignores the usage of pods with topology assignments.
    """
    places: dict[str, Assigned] = {}
    by_host: dict[Values, Resources] = {}
    for flavor in sorted(demands):
        domains = sites.topologies[flavor]
        ground = TopologySearchInput(
            domains, sites, by_host if gates.overlapping and domains.hostnames else {}, gates, empty
        )
        for group in _groups(demands[flavor]):
            leader, workers = _leader_and_workers(group)
            try:
                if workers.replacing is not None:
                    for workers in group:
                        leader, places[workers.pod_set.name] = None, replace_node(ground, workers)
                else:
                    places.update(_find(ground, workers, leader))
            except Unplaced as failure:
                failed_together = (leader.pod_set.name,) if leader is not None else ()
                return TopologyPlacements(places, workers.pod_set.name, str(failure), failed_together)
    return TopologyPlacements(places)


def _find(ground: TopologySearchInput, workers: TasPodSetRequest, leader: TasPodSetRequest | None) -> Places:
    """Find the assignment of a group; an elastic workload keeps its pods where they are."""
    resized = resize(ground, workers, leader) if ground.gates.elastic and workers.previous is not None else None
    if resized is not None:
        return resized
    found = place_group(ground, workers, leader)
    for demand in (workers, leader):
        if demand is not None:
            ground.take(demand, found.get(demand.pod_set.name, ()))
    return found


def _groups(demands: Sequence[TasPodSetRequest]) -> list[list[TasPodSetRequest]]:
    groups: dict[str | int, list[TasPodSetRequest]] = {}
    for index, demand in enumerate(demands):
        groups.setdefault(demand.request.group or index, []).append(demand)
    return list(groups.values())


def _leader_and_workers(group: Sequence[TasPodSetRequest]) -> tuple[TasPodSetRequest | None, TasPodSetRequest]:
    """Return the smaller of two pod sets as the leader, and the other one."""
    if len(group) == 1:
        return None, group[0]
    first, second = group[0], group[1]
    return (first, second) if second.count > first.count else (second, first)


Demands = dict[str, list[TasPodSetRequest]]
"""Flavor → its topology requests."""


def demands(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, assignment: Assignment) -> Demands:
    """Return the topology requests of an assignment by flavor; empty if TAS is disabled or not requested."""
    if not context.gates.topology or not (rules.tas_only or request.asks_for_topology):
        return {}
    elastic = context.gates.layouts.elastic
    return demands_of(assignment, rules, request, context.setup.topologies, elastic=elastic)


def find(context: Context, wanted: Demands, *, empty: bool = False) -> TopologyPlacements:
    """Find topology assignments for the current usage, or with `empty` on topologies without pods."""
    return find_places(wanted, context.snapshot.sites, gates=context.gates.layouts, empty=empty)


def place(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, assignment: Assignment) -> None:
    """Add topology assignments to an assignment that fits; without them it needs preemption.

    An assignment that needs preemption must fit on topologies without TAS pods, or its mode becomes NO_FIT; then all
    its pod sets with a topology request need preemption. A workload with a failed node skips this check.
    """
    wanted = demands(context, rules, request, assignment) if assignment.mode != FlavorAssignmentMode.NO_FIT else {}
    if not wanted:
        return
    if assignment.mode == FlavorAssignmentMode.FIT:
        placed = find(context, wanted)
        if not placed.failed:
            assignment.settle(placed.places)
            return
        failed = assignment.result(placed.failed)
        failed.reasons.append(placed.reason)
        assignment.downgrade(failed, FlavorAssignmentMode.PREEMPT)
    if assignment.mode == FlavorAssignmentMode.PREEMPT and not request.workload.unhealthy_nodes:
        placed = find(context, wanted, empty=True)
        if placed.failed:
            named = ((flavor, demand.pod_set.name) for flavor, group in wanted.items() for demand in group)
            flavor = next(flavor for flavor, name in named if name == placed.failed)
            assignment.unplace(assignment.result(placed.failed), flavor)
            return
        for demand in (demand for group in wanted.values() for demand in group):
            assignment.downgrade(assignment.result(demand.pod_set.name), FlavorAssignmentMode.PREEMPT)


def place_after_preemption(
    context: Context,
    rules: ClusterQueueConfig,
    request: WorkloadRequest,
    assignment: Assignment,
    victims: Sequence[Holding],
) -> None:
    """Record the topology assignment once the victims are removed; without victims, the one on empty topologies.

    That one reserves its capacity, so that later entries of the cycle do not take it.
    """
    if assignment.mode != FlavorAssignmentMode.PREEMPT or on_failed_node(request.workload):
        return
    wanted = demands(context, rules, request, assignment)
    if wanted:
        with context.snapshot.revertible():
            context.snapshot.remove_all(victims)
            placed = find(context, wanted, empty=not victims)
        assignment.settle(placed.places)
