"""Finding places for all pod sets of a workload, flavor by flavor and group by group.

Kueue 0.19 FindTopologyAssignmentsForWorkload and TASFlavorSnapshot.findTopologyAssignment.
"""

import itertools
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.quantity import PODS
from gpuconsole.model.resources import Resources, add, scale
from gpuconsole.model.workloads import TopologyDomain
from gpuconsole.scheduling.kueue.topology.counts import Shape, count_domains
from gpuconsole.scheduling.kueue.topology.demand import Demand, requested_level, slices_of
from gpuconsole.scheduling.kueue.topology.domains import Domains, Values
from gpuconsole.scheduling.kueue.topology.layout import Layout, Layouts, NoRoom
from gpuconsole.scheduling.kueue.topology.reasons import not_fit
from gpuconsole.scheduling.kueue.topology.sites import Sites


class Placed(Struct, frozen=True):
    """The places of a workload's pod sets, as far as they were found, or the first failure."""

    places: Mapping[str, tuple[TopologyDomain, ...]]
    """Pod set → domains of the lowest level."""
    failed: str = ""
    """The pod set for which there is no room."""
    reason: str = ""
    beside: tuple[str, ...] = ()
    """Pod sets that were to be placed together with it, and fail with it."""


def find_places(demands: Mapping[str, Sequence[Demand]], sites: Sites, *, gates: Layouts, empty: bool) -> Placed:
    """Place all demands, or say why one of them cannot be; `empty` counts as if no pod had a place yet.

    `gates` chooses how pods are laid out.
    """
    places: dict[str, tuple[TopologyDomain, ...]] = {}
    by_host: dict[Values, Resources] = {}
    for flavor in sorted(demands):
        domains = sites.topologies[flavor]
        assumed = by_host if domains.hostnames else {}
        for group in _groups(demands[flavor]):
            leader, workers = _leader_and_workers(group)
            try:
                found = _place(domains, sites, workers, leader, assumed, gates, empty=empty)
            except _Failure as failure:
                beside = (leader.pod_set.name,) if leader is not None else ()
                return Placed(places, workers.pod_set.name, str(failure), beside)
            for demand in group:
                domain_list = found.get(demand.pod_set.name, ())
                places[demand.pod_set.name] = domain_list
                for domain in domain_list:
                    usage = scale(add(demand.per_pod, {PODS: 1}), domain.count)
                    assumed[domain.values] = add(assumed.get(domain.values, {}), usage)
    return Placed(places)


class _Failure(Exception):
    """Why a group cannot be placed."""


def _groups(demands: Sequence[Demand]) -> list[list[Demand]]:
    groups: dict[str | int, list[Demand]] = {}
    for index, demand in enumerate(demands):
        groups.setdefault(demand.request.group or index, []).append(demand)
    return list(groups.values())


def _leader_and_workers(group: Sequence[Demand]) -> tuple[Demand | None, Demand]:
    """The smaller of two pod sets is the leader."""
    if len(group) == 1:
        return None, group[0]
    first, second = group[0], group[1]
    return (first, second) if second.count > first.count else (second, first)


def _place(
    domains: Domains,
    sites: Sites,
    workers: Demand,
    leader: Demand | None,
    assumed: Mapping[Values, Resources],
    gates: Layouts,
    *,
    empty: bool,
) -> dict[str, tuple[TopologyDomain, ...]]:
    shape = _shape(domains, workers, leader)
    counts = count_domains(domains, sites, workers, leader, shape, assumed, empty=empty, affinity=gates.affinity)
    request = workers.request
    required, preferred = bool(request.required), bool(request.preferred)
    unconstrained = request.unconstrained or workers.implied or not (required or preferred)
    layout = Layout(
        domains,
        counts,
        shape,
        required=required,
        unconstrained=unconstrained,
        gates=gates,
    )
    try:
        chosen, counts = layout.run()
    except NoRoom as refusal:
        raise _Failure(not_fit(domains, counts, shape, refusal, slices_of(request))) from None
    found = {workers.pod_set.name: _assignment(domains, counts.pods, chosen)}
    if leader is not None:
        found[leader.pod_set.name] = _assignment(domains, counts.leaders, chosen)
    return found


def _assignment(domains: Domains, amounts: Sequence[int], chosen: Sequence[int]) -> tuple[TopologyDomain, ...]:
    return tuple(
        TopologyDomain(domains.leaf_values(domains.values[number]), amounts[number])
        for number in sorted(chosen)
        if amounts[number]
    )


def _shape(domains: Domains, workers: Demand, leader: Demand | None) -> Shape:
    slices = slices_of(workers.request)
    if slices and slices[0][1] <= 0:
        raise _Failure("slice topology requested, but slice size not provided")
    key = requested_level(workers, domains)
    if not key:
        raise _Failure("topology level not specified")
    level = _index(domains, key, "no requested topology level: ")
    slice_key, size = slices[0] if slices else (domains.levels[-1], 1)
    slice_level = _index(domains, slice_key, "no requested topology level for slices: ")
    if level > slice_level:
        raise _Failure(f"podset slice topology {slice_key} is above the podset topology {key}")
    inner = _inner_sizes(domains, slices, slice_level)
    return Shape(workers.count, 1 if leader is not None else 0, level, slice_level, size, inner)


def _index(domains: Domains, key: str, problem: str) -> int:
    if key not in domains.levels:
        raise _Failure(f"{problem}{key}")
    return domains.levels.index(key)


def _inner_sizes(domains: Domains, slices: Sequence[tuple[str, int]], level: int) -> dict[int, int]:
    """Sizes of the slices inside the outermost ones; a size holds for all levels down to its own."""
    sizes: dict[int, int] = {}
    for (_, outer), (key, size) in itertools.pairwise(slices):
        inner = _index(domains, key, "no requested topology level for additional slice layer: ")
        if inner <= level:
            above = domains.levels[level]
            raise _Failure(f"additional slice layer topology {key} must be at a lower level than {above}")
        if outer % size:
            raise _Failure(f"additional slice layer size {size} must evenly divide parent layer size {outer}")
        sizes.update(dict.fromkeys(range(level + 1, inner + 1), size))
        level = inner
    return sizes
