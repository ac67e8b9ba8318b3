"""Topology assignments of a workload slice that replaces another: running pods stay, only new ones are placed.

Kueue 0.19 cache/scheduler/tas_elastic_workloads.go, behind the gate ElasticJobsViaWorkloadSlicesWithTAS.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.workloads import TopologyDomain
from gpuconsole.scheduling.kueue.topology.demand import TasPodSetRequest
from gpuconsole.scheduling.kueue.topology.group import TopologySearchInput, place_group
from gpuconsole.scheduling.kueue.topology.replacement import merge, stale_domain

Resized = dict[str, tuple[TopologyDomain, ...]]


def resize(ground: TopologySearchInput, workers: TasPodSetRequest, leader: TasPodSetRequest | None) -> Resized | None:
    """Return an assignment that keeps the previous slice's; None if a domain of it is gone. Raises Unplaced."""
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


def truncate(assigned: Sequence[TopologyDomain], count: int) -> tuple[TopologyDomain, ...]:
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
    before: tuple[TopologyDomain, ...],
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
