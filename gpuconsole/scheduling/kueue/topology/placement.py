"""Finds topology assignments for all pod sets of a workload, flavor by flavor and group by group.

Kueue 0.19 FindTopologyAssignmentsForWorkload and FindTopologyAssignmentsForFlavor.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.resources import Resources
from gpuconsole.model.workloads import TopologyDomain
from gpuconsole.scheduling.kueue.topology.demand import TasPodSetRequest
from gpuconsole.scheduling.kueue.topology.domains import Values
from gpuconsole.scheduling.kueue.topology.elastic import resize
from gpuconsole.scheduling.kueue.topology.group import Places, TopologySearchInput, Unplaced, place_group
from gpuconsole.scheduling.kueue.topology.layout import TasGates
from gpuconsole.scheduling.kueue.topology.replacement import replace_node
from gpuconsole.scheduling.kueue.topology.tas_usage import TasUsage


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
    places: dict[str, tuple[TopologyDomain, ...]] = {}
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
