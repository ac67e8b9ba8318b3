"""The GPUs and MIG instances that a pod gets on a node.

Whole GPUs: the pod's GPUs span as few NVLink domains as possible, then PCIe switches, then NUMA nodes; ties go to the
lowest indices. Topology Manager and the device plugin's preferred allocation aim at that too.

MIG instances: of existing instances the first free one is assigned. On a node that creates them on demand, a new one
goes where it rules out the fewest of its GPU's maximal profile mixes; on ties to the first GPU, then to the first
slice.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from itertools import combinations
from math import comb

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.gpus.mig import Layout, MigInstance, MigPlacement, ordered, reachable
from gpuconsole.model.gpus.mig_reconfiguration import Division, division_of
from gpuconsole.model.gpus.models import Groups, Wiring, wiring_of
from gpuconsole.model.gpus.sharing import replicas
from gpuconsole.model.resources import Resources, is_mig

_MAX_COMBINATIONS = 13_000
"""Limit of combinations, enough for 8 of 16 GPUs; with more, the first free GPUs are taken."""


def choose_gpus(node: Node | None, free: tuple[int, ...], wanted: int) -> tuple[int, ...]:
    """Return the GPUs that a pod gets out of the free ones; fewer than `wanted` if fewer are free.

    GPUs with time-slicing or MPS replicas are taken in the given order, regardless of topology.
    """
    if node is None or not 1 < wanted < len(free) or replicas(node.labels) > 1:
        return free[:wanted]
    wiring = wiring_of(node.gpus, node.labels, node.annotations)
    return free[:wanted] if wiring is None else closest_gpus(wiring, free, wanted)


@lru_cache(maxsize=65536)
def closest_gpus(wiring: Wiring, free: tuple[int, ...], wanted: int) -> tuple[int, ...]:
    """Return the `wanted` free GPUs that are closest to each other."""
    if comb(len(free), wanted) > _MAX_COMBINATIONS:
        return free[:wanted]
    return min(combinations(free, wanted), key=lambda some: (*topology_spread(wiring, some), some))


def topology_spread(wiring: Wiring, gpus: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the numbers of NVLink domains, PCIe switches and NUMA nodes over which the GPUs are spread."""
    return _count_groups(wiring.nvlink, gpus), _count_groups(wiring.switch, gpus), _count_groups(wiring.numa, gpus)


def _count_groups(groups: Groups, gpus: tuple[int, ...]) -> int:
    return len({groups[gpu] for gpu in gpus})


def assign_mig_instances(node: Node, requests: Resources, others: Iterable[Pod]) -> tuple[MigInstance, ...]:
    """Return the MIG instances that a pod gets on a node beside the pods `others`; none if it requests none or too few
    are available.
    """
    if not any(map(is_mig, requests)):
        return ()
    division = division_of(node.allocatable, node.labels, node.annotations)
    if division is None:
        return ()
    taken = {one for pod in others if pod.node == node.name and not pod.done for one in pod.slices}
    return choose_instances(division, taken, requested_profiles(division, requests)) or ()


def requested_profiles(division: Division, requests: Mapping[str, int]) -> tuple[str, ...]:
    """MIG profiles of the instances that a pod requests, one per instance, the largest first."""
    named = [(division.profile(name), amount) for name, amount in requests.items()]
    names = [name for name, amount in named if name for _ in range(amount)]
    profiles = division.geometry.by_name
    return tuple(sorted(names, key=lambda name: (-profiles[name].span, -profiles[name].compute, name)))


def choose_instances(
    division: Division, taken: Collection[MigInstance], names: Iterable[str]
) -> tuple[MigInstance, ...] | None:
    """Choose an instance, existing or to be created, for each profile in `names`; None if too few are not `taken`."""
    mine: list[MigInstance] = []
    for name in names:
        occupied = {*taken, *mine}
        found = (
            _new_instance(division, occupied, name)
            if division.dynamic
            else _existing_instance(division, occupied, name)
        )
        if found is None:
            return None
        mine.append(found)
    return tuple(sorted(mine))


def can_assign(
    division: Division, taken: Collection[MigInstance], named: tuple[MigInstance, ...], names: tuple[str, ...]
) -> bool:
    """True if a pod that requests the profiles `names` can get the instances `named`.

    They must have these profiles, exist or be possible to create, and not be taken.
    """
    if Counter(one.profile for one in named) != Counter(names) or any(one in taken for one in named):
        return False
    if not division.dynamic:
        return all(one in division.instances for one in named)
    together = (*taken, *named)
    return all(one.gpu < division.gpus for one in named) and not any(
        division.geometry.objection(MigPlacement(one.profile, one.start) for one in together if one.gpu == gpu)
        for gpu in {one.gpu for one in named}
    )


def count_fitting_pods(division: Division, taken: Collection[MigInstance], names: tuple[str, ...], limit: int) -> int:
    """Return how many pods that each request the profiles `names` fit, assigned one after the other, up to `limit`."""
    occupied = set(taken)
    for count in range(limit):
        found = choose_instances(division, occupied, names)
        if found is None:
            return count
        occupied.update(found)
    return limit


def _existing_instance(division: Division, occupied: Collection[MigInstance], name: str) -> MigInstance | None:
    return next((one for one in division.instances if one.profile == name and one not in occupied), None)


def _new_instance(division: Division, occupied: Iterable[MigInstance], name: str) -> MigInstance | None:
    geometry = division.geometry
    profile = geometry.by_name[name]
    layouts: dict[int, list[MigPlacement]] = {gpu: [] for gpu in range(division.gpus)}
    for one in occupied:
        layouts[one.gpu].append(MigPlacement(one.profile, one.start))
    best: tuple[int, int, int] | None = None
    for gpu, placements in layouts.items():
        layout: Layout = ordered(placements)
        for start in geometry.places(layout, profile):
            lost = reachable(geometry, layout) - geometry.open_to(layout, profile, start)
            best = min(best or (lost, gpu, start), (lost, gpu, start))
    return None if best is None else MigInstance(best[1], name, best[2])
