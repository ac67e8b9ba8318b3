"""Topology assignments of a workload's pods, found group by group.

`place_pods` and `place_pods_after_preemption` add them to a flavor assignment, before and after its preemption victims
are known (Kueue 0.19 flavorassigner.assignFlavors, scheduler.updateAssignmentForTAS).
`find_topology_placements` searches for all pod sets of a workload, flavor by flavor
and group by group (FindTopologyAssignmentsForWorkload). `resize_assignment` keeps the running pods of an elastic job
and places only new ones (tas_elastic_workloads.go, gate ElasticJobsViaWorkloadSlicesWithTAS). `replace_node` replaces a
failed node and keeps the pods on other nodes, the required domain, and whole slices (findReplacementAssignment).

`place_group` finds the assignment of one group of pods: workers, with or without a leader. Kueue 0.19
TASFlavorSnapshot.findTopologyAssignment; the messages for pods that cannot be placed are those of notFitMessage and
multiLayerNotFitMessage.
"""

import itertools
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.resources import PODS, Resources, add, scale
from gpuconsole.model.workloads import TopologyDomain
from gpuconsole.scheduling.kueue.assignment import Assignment, FlavorAssignmentMode
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.conditions import is_on_failed_node
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.topology.demand import (
    NodeReplacement,
    Slices,
    TasPodSetRequest,
    demands_of,
    requested_level,
    slices_of,
)
from gpuconsole.scheduling.kueue.topology.domains import Counts, PlacementShape, TopologyDomainTree, Values
from gpuconsole.scheduling.kueue.topology.layout import DoesNotFit, PodLayout, TasGates, TasUsage
from gpuconsole.scheduling.kueue.topology.tas_domain_counts import domain_counts


def not_fit_message(
    domains: TopologyDomainTree, counts: Counts, shape: PlacementShape, refusal: DoesNotFit, slices: Slices
) -> str:
    """Return the message of a failed placement, with the number of nodes excluded for each reason."""
    if refusal.fitting is None:
        return f"no topology domains at level: {domains.levels[refusal.level]}"
    if shape.inner_sizes:
        return _layers_text(domains, counts, shape, refusal.level, slices) + _exclusion_text(counts)
    unit = "pod(s)" if shape.slice_size == 1 else "slice(s)"
    wanted = shape.count // shape.slice_size
    if refusal.fitting:
        text = f'topology "{domains.name}" allows to fit only {refusal.fitting} out of {wanted} {unit}'
    else:
        text = f'topology "{domains.name}" doesn\'t allow to fit any of {wanted} {unit}'
    return text + _exclusion_text(counts)


def _exclusion_text(counts: Counts) -> str:
    parts = sorted(f"{why}: {number}" for why, number in counts.excluded.items())
    return f". Total nodes: {counts.total_nodes}; excluded: {', '.join(parts)}" if parts else ""


def _layers_text(domains: TopologyDomainTree, counts: Counts, shape: PlacementShape, level: int, slices: Slices) -> str:
    """How many slices of each layer the best domain could take."""
    best = min(domains.by_level[level], key=lambda number: (-counts.slices[number], number))
    text = f'topology "{domains.name}" doesn\'t allow to fit'
    for key, size in slices:
        fitting = sum(
            counts.pods[number] // size for number in _domains_below(domains, best, domains.levels.index(key))
        )
        text += f"; {fitting}/{shape.count // size} slice(s) fit on level {key}"
    return text


def _domains_below(domains: TopologyDomainTree, number: int, level: int) -> list[int]:
    """The domains of a lower level in the subtree of a domain."""
    current = [number]
    for _ in range(level - len(domains.values[number]) + 1):
        current = [child for domain in current for child in domains.children[domain]]
    return current


Places = Mapping[str, tuple[TopologyDomain, ...]]
"""Pod set → domains of the lowest level."""


class NoTopologyAssignment(Exception):
    """Error: a group has no topology assignment; its message says why."""


class TopologySearchInput(Struct, frozen=True):
    """Input of a search: the topology of one flavor and its usage."""

    domains: TopologyDomainTree
    usage: TasUsage
    assumed: dict[Values, Resources]
    """A leaf's values → usage of the groups placed there before; `add_assignment` adds to it."""
    gates: TasGates
    empty: bool
    """True to ignore the usage of pods with topology assignments."""

    def add_assignment(self, tas_request: TasPodSetRequest, places: Sequence[TopologyDomain]) -> None:
        """Add an assignment to the usage that the following groups see."""
        for place in places:
            usage = scale(add(tas_request.per_pod, {PODS: 1}), place.count)
            self.assumed[place.values] = add(self.assumed.get(place.values, {}), usage)


def place_group(
    search_input: TopologySearchInput,
    workers: TasPodSetRequest,
    leader: TasPodSetRequest | None = None,
    inside: Values = (),
) -> dict[str, tuple[TopologyDomain, ...]]:
    """Return the assignment of one group, inside the domain `inside` if given. Raises Unplaced."""
    domains = search_input.domains
    if workers.problem:
        raise NoTopologyAssignment(workers.problem)
    shape = _shape(domains, workers, leader)
    known = domain_counts(
        domains,
        search_input.usage,
        workers,
        leader,
        shape,
        empty=search_input.empty,
        affinity=search_input.gates.affinity,
        within=inside,
    )
    if search_input.assumed:
        found = _place_by_layout(search_input, workers, shape, known.counts(search_input.usage, search_input.assumed))
    else:
        key = shape.count, shape.level, workers.request, workers.is_implied, search_input.gates
        if key not in known.found:
            known.found[key] = _place_by_layout(
                search_input, workers, shape, known.counts(search_input.usage, search_input.assumed)
            )
        found = known.found[key]
    if isinstance(found, str):
        raise NoTopologyAssignment(found)
    places = {workers.pod_set.name: found[0]}
    if leader is not None:
        places[leader.pod_set.name] = found[1]
    return places


def _place_by_layout(
    search_input: TopologySearchInput, workers: TasPodSetRequest, shape: PlacementShape, counts: Counts
) -> tuple[tuple[TopologyDomain, ...], tuple[TopologyDomain, ...]] | str:
    """Return the assignments of the workers and of the leader, or the reason there are none."""
    domains, request = search_input.domains, workers.request
    required, preferred = bool(request.required), bool(request.preferred)
    unconstrained = request.unconstrained or workers.is_implied or not (required or preferred)
    layout = PodLayout(
        domains,
        counts,
        shape,
        required=required,
        unconstrained=unconstrained,
        gates=search_input.gates,
    )
    try:
        chosen, counts = layout.place()
    except DoesNotFit as refusal:
        return not_fit_message(domains, counts, shape, refusal, slices_of(request))
    return _assignment(domains, counts.pods, chosen), _assignment(domains, counts.leaders, chosen)


def _assignment(
    domains: TopologyDomainTree, amounts: Sequence[int], chosen: Sequence[int]
) -> tuple[TopologyDomain, ...]:
    return tuple(
        TopologyDomain(domains.leaf_values(domains.values[number]), amounts[number])
        for number in sorted(chosen)
        if amounts[number]
    )


def _shape(domains: TopologyDomainTree, workers: TasPodSetRequest, leader: TasPodSetRequest | None) -> PlacementShape:
    slices = slices_of(workers.request)
    if slices and slices[0][1] <= 0:
        raise NoTopologyAssignment("slice topology requested, but slice size not provided")
    key = requested_level(workers, domains)
    if not key:
        raise NoTopologyAssignment("topology level not specified")
    level = _index(domains, key, "no requested topology level: ")
    slice_key, size = slices[0] if slices else (domains.levels[-1], 1)
    slice_level = _index(domains, slice_key, "no requested topology level for slices: ")
    if level > slice_level:
        raise NoTopologyAssignment(f"podset slice topology {slice_key} is above the podset topology {key}")
    inner = _inner_sizes(domains, slices, slice_level)
    return PlacementShape(workers.count, 1 if leader is not None else 0, level, slice_level, size, inner)


def _index(domains: TopologyDomainTree, key: str, problem: str) -> int:
    if key not in domains.levels:
        raise NoTopologyAssignment(f"{problem}{key}")
    return domains.levels.index(key)


def _inner_sizes(domains: TopologyDomainTree, slices: Sequence[tuple[str, int]], level: int) -> dict[int, int]:
    """Return level → size of the slices inside the outermost ones; a size holds for all levels down to its own."""
    sizes: dict[int, int] = {}
    for (_, outer), (key, size) in itertools.pairwise(slices):
        inner = _index(domains, key, "no requested topology level for additional slice layer: ")
        if inner <= level:
            above = domains.levels[level]
            raise NoTopologyAssignment(f"additional slice layer topology {key} must be at a lower level than {above}")
        if outer % size:
            raise NoTopologyAssignment(
                f"additional slice layer size {size} must evenly divide parent layer size {outer}"
            )
        sizes.update(dict.fromkeys(range(level + 1, inner + 1), size))
        level = inner
    return sizes


Assigned = tuple[TopologyDomain, ...]
"""The assignment of one pod set: domains of the lowest level, each with its number of pods."""


def replace_node(search_input: TopologySearchInput, tas_request: TasPodSetRequest) -> Assigned:
    """Return the assignment with a replacement for the failed node; unchanged if pinned. Raises Unplaced."""
    lost = tas_request.replacement
    assert lost is not None
    if lost.is_pinned:
        return lost.assignment
    missing, remaining = assignment_without_node(lost)
    stale = find_stale_domain(search_input.domains, remaining)
    if stale:
        raise NoTopologyAssignment(
            "Cannot replace the node, because the existing topologyAssignment is invalid,"
            f" as it contains the stale domain {stale}"
        )
    tas_request = replace(tas_request, count=missing, replacement=None)
    within = _domain_to_keep(search_input.domains, tas_request, remaining)
    if slices_of(tas_request.request) and within and missing % _slice_size(tas_request):
        tas_request = _in_whole_slices(tas_request)
    found = place_group(search_input, tas_request, inside=within)[tas_request.pod_set.name]
    if not found:
        raise NoTopologyAssignment(f"cannot find replacement assignment for unhealthy node: {lost.node}")
    search_input.add_assignment(tas_request, found)
    return merge_assignments(search_input.domains, found, remaining)


def assignment_without_node(lost: NodeReplacement) -> tuple[int, Assigned]:
    """Return the number of pods on the node, and the assignment without it (deleteDomain)."""
    remaining = tuple(domain for domain in lost.assignment if domain.values[-1] != lost.node)
    return sum(d.count for d in lost.assignment if d.values[-1] == lost.node), remaining


def find_stale_domain(domains: TopologyDomainTree, assigned: Sequence[TopologyDomain]) -> str:
    """Return the first domain that no longer exists; empty if all do (IsTopologyAssignmentStale)."""
    return next((domain.values[0] for domain in assigned if domain.values not in domains.leaves), "")


def merge_assignments(
    domains: TopologyDomainTree, one: Sequence[TopologyDomain], other: Sequence[TopologyDomain]
) -> Assigned:
    """Merge two assignments, in the order of the domains (mergeTopologyAssignments)."""
    counts: dict[Values, int] = {}
    for domain in sorted((*one, *other), key=lambda domain: domains.leaves[domain.values]):
        counts[domain.values] = counts.get(domain.values, 0) + domain.count
    return tuple(TopologyDomain(values, count) for values, count in counts.items())


def _slice_size(tas_request: TasPodSetRequest) -> int:
    slices = slices_of(tas_request.request)
    return slices[0][1] if slices and slices[0][1] > 0 else 1


def _domain_to_keep(
    domains: TopologyDomainTree, tas_request: TasPodSetRequest, remaining: Sequence[TopologyDomain]
) -> Values:
    """Return the domain that must contain the replacement; empty if any may (requiredReplacementDomain)."""
    key = requested_level(tas_request, domains)
    slices = slices_of(tas_request.request)
    if key not in domains.levels or not remaining or (slices and slices[0][1] <= 0):
        return ()
    if slices and tas_request.count % slices[0][1]:
        broken = next(((level, size) for level, size in reversed(slices) if tas_request.count % size), slices[0])
        return _broken_slice(domains, remaining, tas_request.count, *broken)
    if not tas_request.request.required:
        return ()
    return _domain_above(domains, remaining[0], domains.levels.index(key))


def _broken_slice(
    domains: TopologyDomainTree, remaining: Sequence[TopologyDomain], missing: int, level: str, size: int
) -> Values:
    """Return the domain whose slices the missing pods complete; empty if none (findIncompleteSliceDomain)."""
    if level not in domains.levels:
        return ()
    pods: dict[Values, int] = {}
    for domain in remaining:
        above = _domain_above(domains, domain, domains.levels.index(level))
        pods[above] = pods.get(above, 0) + domain.count
    return next((values for values, count in pods.items() if not (count + missing) % size), ())


def _domain_above(domains: TopologyDomainTree, assigned: TopologyDomain, level: int) -> Values:
    """Return the values of the domain at a level that contains a leaf, from the highest level down."""
    number = domains.leaf_domains[domains.leaves[assigned.values]]
    return domains.values[number][: level + 1]


def _in_whole_slices(tas_request: TasPodSetRequest) -> TasPodSetRequest:
    """Request the innermost slices that divide the missing pods evenly; single pods if none do."""
    fitting = next(
        ((level, size) for level, size in reversed(slices_of(tas_request.request)) if not tas_request.count % size),
        None,
    )
    level, size = fitting or ("", 1)
    request = replace(tas_request.request, slice_constraints=(), slice_required=level, slice_size=size)
    return replace(tas_request, pod_set=replace(tas_request.pod_set, topology=request))


Resized = dict[str, Assigned]
"""Pod set → its assignment."""


def resize_assignment(
    search_input: TopologySearchInput, workers: TasPodSetRequest, leader: TasPodSetRequest | None
) -> Resized | None:
    """Return assignments that keep those of the replaced slice; None if a domain of theirs is gone. Raises Unplaced."""
    before = workers.previous_assignment
    assert before is not None
    kept = leader.previous_assignment if leader is not None else None
    if find_stale_domain(search_input.domains, (*before, *(kept or ()))):
        return None
    if workers.count > count_pods(before):
        return _grow_assignment(search_input, workers, leader, before)
    result = {workers.pod_set.name: truncate_assignment(before, workers.count)}
    if leader is not None:
        result[leader.pod_set.name] = kept or ()
    for tas_request in (workers, leader):
        if tas_request is not None:
            search_input.add_assignment(tas_request, result[tas_request.pod_set.name])
    return result


def count_pods(assigned: Sequence[TopologyDomain]) -> int:
    """Return the number of pods in an assignment."""
    return sum(domain.count for domain in assigned)


def truncate_assignment(assigned: Sequence[TopologyDomain], count: int) -> Assigned:
    """Return the assignment of the first `count` pods."""
    kept: list[TopologyDomain] = []
    for domain in assigned:
        if count <= 0:
            break
        kept.append(replace(domain, count=min(domain.count, count)))
        count -= domain.count
    return tuple(kept)


def _grow_assignment(
    search_input: TopologySearchInput,
    workers: TasPodSetRequest,
    leader: TasPodSetRequest | None,
    before: Assigned,
) -> Resized:
    """Place the new pods beside the running ones; a running leader stays."""
    result: Resized = {}
    search_input.add_assignment(workers, before)
    placed = leader
    if leader is not None and leader.previous_assignment is not None:
        result[leader.pod_set.name] = leader.previous_assignment
        search_input.add_assignment(leader, leader.previous_assignment)
        placed = None
    name = workers.pod_set.name
    found = place_group(
        search_input, replace(workers, count=workers.count - count_pods(before), previous_assignment=None), placed
    )
    if placed is not None:
        result[placed.pod_set.name] = found[placed.pod_set.name]
        search_input.add_assignment(placed, found[placed.pod_set.name])
    search_input.add_assignment(workers, found[name])
    result[name] = merge_assignments(search_input.domains, found[name], before)
    return result


class TopologyPlacements(Struct, frozen=True):
    """The topology assignments found so far, or the first failure."""

    places: Places
    failed: str = ""
    """The pod set that does not fit."""
    reason: str = ""
    failed_together: tuple[str, ...] = ()
    """Pod sets of the same group, which fail with it."""


def find_topology_placements(
    demands: Mapping[str, Sequence[TasPodSetRequest]], sites: TasUsage, *, gates: TasGates, empty: bool
) -> TopologyPlacements:
    """Find topology assignments for all requests, or the first failure.

    `empty` ignores the usage of pods with topology assignments.
    """
    places: dict[str, Assigned] = {}
    by_host: dict[Values, Resources] = {}
    for flavor in sorted(demands):
        domains = sites.topologies[flavor]
        search_input = TopologySearchInput(
            domains, sites, by_host if gates.overlapping and domains.hostnames else {}, gates, empty
        )
        for group in _groups(demands[flavor]):
            leader, workers = _leader_and_workers(group)
            try:
                if workers.replacement is not None:
                    for workers in group:
                        leader, places[workers.pod_set.name] = None, replace_node(search_input, workers)
                else:
                    places.update(_find_group(search_input, workers, leader))
            except NoTopologyAssignment as failure:
                failed_together = (leader.pod_set.name,) if leader is not None else ()
                return TopologyPlacements(places, workers.pod_set.name, str(failure), failed_together)
    return TopologyPlacements(places)


def _find_group(
    search_input: TopologySearchInput, workers: TasPodSetRequest, leader: TasPodSetRequest | None
) -> Places:
    """Find the assignment of a group; an elastic workload keeps its pods where they are."""
    resized = (
        resize_assignment(search_input, workers, leader)
        if search_input.gates.elastic and workers.previous_assignment is not None
        else None
    )
    if resized is not None:
        return resized
    found = place_group(search_input, workers, leader)
    for tas_request in (workers, leader):
        if tas_request is not None:
            search_input.add_assignment(tas_request, found.get(tas_request.pod_set.name, ()))
    return found


def _groups(demands: Sequence[TasPodSetRequest]) -> list[list[TasPodSetRequest]]:
    groups: dict[str | int, list[TasPodSetRequest]] = {}
    for index, tas_request in enumerate(demands):
        groups.setdefault(tas_request.request.group or index, []).append(tas_request)
    return list(groups.values())


def _leader_and_workers(group: Sequence[TasPodSetRequest]) -> tuple[TasPodSetRequest | None, TasPodSetRequest]:
    """Return the smaller of two pod sets as the leader, and the other one."""
    if len(group) == 1:
        return None, group[0]
    first, second = group[0], group[1]
    return (first, second) if second.count > first.count else (second, first)


Demands = dict[str, list[TasPodSetRequest]]
"""Flavor → its topology requests."""


def topology_requests(
    context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, assignment: Assignment
) -> Demands:
    """Return the topology requests of an assignment by flavor; empty if TAS is disabled or not requested."""
    if not context.gates.topology or not (rules.tas_only or request.asks_for_topology):
        return {}
    elastic = context.gates.layouts.elastic
    return demands_of(assignment, rules, request, context.setup.topologies, elastic=elastic)


def find_assignments(context: Context, requests: Demands, *, empty: bool = False) -> TopologyPlacements:
    """Find topology assignments for the current usage, or with `empty` on topologies without pods."""
    return find_topology_placements(requests, context.snapshot.topology_usage, gates=context.gates.layouts, empty=empty)


def place_pods(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, assignment: Assignment) -> None:
    """Add topology assignments to an assignment that fits; without them it needs preemption.

    An assignment that needs preemption must fit on topologies without TAS pods, or its mode becomes NO_FIT; then all
    its pod sets with a topology request need preemption. A workload with a failed node skips this check.
    """
    requests = (
        topology_requests(context, rules, request, assignment) if assignment.mode != FlavorAssignmentMode.NO_FIT else {}
    )
    if not requests:
        return
    if assignment.mode == FlavorAssignmentMode.FIT:
        placed = find_assignments(context, requests)
        if not placed.failed:
            assignment.record_topology(placed.places)
            return
        failed = assignment.result(placed.failed)
        failed.reasons.append(placed.reason)
        assignment.downgrade(failed, FlavorAssignmentMode.PREEMPT)
    if assignment.mode == FlavorAssignmentMode.PREEMPT and not request.workload.unhealthy_nodes:
        placed = find_assignments(context, requests, empty=True)
        if placed.failed:
            named = ((flavor, tas_request.pod_set.name) for flavor, group in requests.items() for tas_request in group)
            flavor = next(flavor for flavor, name in named if name == placed.failed)
            assignment.mark_unplaceable(assignment.result(placed.failed), flavor)
            return
        for tas_request in (tas_request for group in requests.values() for tas_request in group):
            assignment.downgrade(assignment.result(tas_request.pod_set.name), FlavorAssignmentMode.PREEMPT)


def place_pods_after_preemption(
    context: Context,
    rules: ClusterQueueConfig,
    request: WorkloadRequest,
    assignment: Assignment,
    victims: Sequence[Holding],
) -> None:
    """Record the topology assignment once the victims are removed; without victims, the one on empty topologies.

    That one reserves its capacity, so that later entries of the cycle do not take it.
    """
    if assignment.mode != FlavorAssignmentMode.PREEMPT or is_on_failed_node(request.workload):
        return
    requests = topology_requests(context, rules, request, assignment)
    if requests:
        with context.snapshot.revertible():
            context.snapshot.remove_holdings(victims)
            placed = find_assignments(context, requests, empty=not victims)
        assignment.record_topology(placed.places)
