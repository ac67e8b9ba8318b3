"""Variants of a workload: one for each flavor, tried at the same time (gate ConcurrentAdmission).

Kueue 0.19 pkg/workload/concurrentadmission and scheduler.findAdmittedSibling. The variants of a parent are siblings; a
flavor is the more favorable the earlier it stands in the ClusterQueue's only resource group.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.requests import ALLOWED_FLAVORS, Holding


def allowed_flavors(workload: Workload) -> tuple[str, ...]:
    """What the annotation lists; nothing without it."""
    listed = workload.annotations.get(ALLOWED_FLAVORS, "").split(",")
    return tuple(flavor.strip() for flavor in listed if flavor.strip())


def allows(workload: Workload, flavor: str) -> bool:
    """True unless the workload's annotation leaves the flavor out."""
    return ALLOWED_FLAVORS not in workload.annotations or flavor in allowed_flavors(workload)


def flavor_of(variant: Workload) -> str:
    """The flavor that a variant stands for, or nothing."""
    return next(iter(allowed_flavors(variant)), "")


def ranking(queue: ClusterQueue) -> Mapping[str, int]:
    """Flavor → its place in the queue's order of preference, 0 the best."""
    groups = queue.resource_groups[:1]
    return {flavor.name: place for group in groups for place, flavor in enumerate(group.flavors)}


class Siblings(NamedTuple):
    """Admitted variants of the same parent, where there are any."""

    better: Holding | None = None
    worse: Holding | None = None


NO_SIBLINGS = Siblings()


def admitted_siblings(variant: Workload, queue: ClusterQueue, held: Iterable[Holding]) -> Siblings:
    """The first admitted sibling on a more favorable flavor, and the first on a less favorable one."""
    ranks = ranking(queue)
    own = ranks.get(flavor_of(variant))
    if own is None:
        return NO_SIBLINGS
    ranked = [(rank, holding) for holding in held if (rank := _rank(variant, holding.workload, ranks)) is not None]
    better = next((holding for rank, holding in ranked if rank < own), None)
    return Siblings(better, next((holding for rank, holding in ranked if rank > own), None))


def _rank(variant: Workload, other: Workload, ranks: Mapping[str, int]) -> int | None:
    """The place of an admitted sibling's flavor; None for any other workload."""
    if other.parent != variant.parent or other.key == variant.key or not other.admitted:
        return None
    return ranks.get(flavor_of(other))


def may_migrate(variant: Workload, queue: ClusterQueue) -> bool:
    """True if the policy lets an admitted sibling make way for this variant's flavor."""
    policy = queue.concurrent_admission
    if policy is None or not policy.last_acceptable_flavor:
        return True
    ranks = ranking(queue)
    return ranks.get(flavor_of(variant), len(ranks)) <= ranks.get(policy.last_acceptable_flavor, -1)
