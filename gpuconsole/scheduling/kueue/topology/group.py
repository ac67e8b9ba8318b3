"""Finds the topology assignment of one group of pods: workers, with or without a leader.

Kueue 0.19 TASFlavorSnapshot.findTopologyAssignment; the messages for pods that cannot be placed are those of
notFitMessage and multiLayerNotFitMessage.
"""

import itertools
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.resources import PODS, Resources, add, scale
from gpuconsole.model.workloads import TopologyDomain
from gpuconsole.scheduling.kueue.topology.demand import Slices, TasPodSetRequest, requested_level, slices_of
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
