"""Variants of a workload: one for each flavor, tried at the same time (gate ConcurrentAdmission).

Kueue 0.19 pkg/workload/concurrentadmission and scheduler.findAdmittedSibling. The variants of a parent are siblings; a
flavor is the more favorable the earlier it stands in the ClusterQueue's only resource group.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha1
from typing import NamedTuple

from msgspec.structs import replace

from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.text import MAX_NAME
from gpuconsole.model.workloads import PreemptionGate, Workload
from gpuconsole.scheduling.kueue.requests import ALLOWED_FLAVORS, Holding

PARENT = "kueue.x-k8s.io/concurrent-admission-parent"
"""Label of a Workload that has variants."""
GATE = "kueue.x-k8s.io/concurrent-admission"
"""The preemption gate that every variant has."""


def is_parent(workload: Workload) -> bool:
    """True if the workload has variants."""
    return workload.labels.get(PARENT) == "true"


def same_flavors(old: ClusterQueue, new: ClusterQueue) -> bool:
    """True if a change of a ClusterQueue keeps the variants of its workloads."""
    before, after = ([[f.name for f in group.flavors] for group in queue.resource_groups] for queue in (old, new))
    return before == after


def parents_of(queue: str, local_queues: Iterable[tuple[str, str]], workloads: Iterable[Workload]) -> list[str]:
    """Return the keys of the parent workloads in a ClusterQueue, found by its LocalQueues."""
    keys = {key for key, leads_to in local_queues if leads_to == queue}
    return [workload.key for workload in workloads if is_parent(workload) and workload.local_queue in keys]


def variant_of(parent: Workload, flavor: str) -> Workload:
    """Return a new variant: the parent's spec, restricted to one flavor, with the gate closed. It has no uid yet."""
    gates = parent.preemption_gates
    if all(gate.name != GATE for gate in gates):
        gates = (*gates, PreemptionGate(name=GATE))
    return Workload(
        namespace=parent.namespace,
        name=_name(parent, flavor),
        labels={name: value for name, value in parent.labels.items() if name != PARENT},
        annotations={**parent.annotations, ALLOWED_FLAVORS: flavor},
        owner=f"Workload/{parent.key}",
        job_uid=parent.job_uid,
        queue=parent.queue,
        priority=parent.priority,
        priority_class=parent.priority_class,
        priority_kind=parent.priority_kind,
        active=parent.active,
        pod_sets=parent.pod_sets,
        max_execution_time=parent.max_execution_time,
        preemption_gates=tuple(replace(gate, open=False, since=None) for gate in gates),
    )


def _name(parent: Workload, flavor: str) -> str:
    """Return `NAME-variant-FLAVOR-HASH`; the hash replaces that of the parent's name (GetWorkloadNameForVariant)."""
    base = parent.name.rpartition("-")[0] or parent.name
    digest = sha1(f"\n\n{parent.name}\n{parent.uid}\n{flavor}".encode(), usedforsecurity=False).hexdigest()[:5]
    return f"{f'{base}-variant-{flavor}'[: MAX_NAME - 1 - len(digest)]}-{digest}"


def allowed_flavors(workload: Workload) -> tuple[str, ...]:
    """Return the flavors that the annotation ALLOWED_FLAVORS lists; empty without the annotation."""
    listed = workload.annotations.get(ALLOWED_FLAVORS, "").split(",")
    return tuple(flavor.strip() for flavor in listed if flavor.strip())


def allows(workload: Workload, flavor: str) -> bool:
    """True if the workload may use the flavor: it has no annotation ALLOWED_FLAVORS, or the annotation lists it."""
    return ALLOWED_FLAVORS not in workload.annotations or flavor in allowed_flavors(workload)


def flavor_of(variant: Workload) -> str:
    """Return the flavor of a variant; empty for other workloads."""
    return next(iter(allowed_flavors(variant)), "")


def ranking(queue: ClusterQueue) -> Mapping[str, int]:
    """Flavor → its position in the queue's order of preference, 0 the most preferred."""
    groups = queue.resource_groups[:1]
    return {flavor.name: place for group in groups for place, flavor in enumerate(group.flavors)}


class Siblings(NamedTuple):
    """Admitted variants of the same parent."""

    better: Holding | None = None
    worse: Holding | None = None


NO_SIBLINGS = Siblings()


def admitted_siblings(variant: Workload, queue: ClusterQueue, held: Iterable[Holding]) -> Siblings:
    """Return the first admitted sibling on a more favorable flavor, and the first on a less favorable one."""
    ranks = ranking(queue)
    own = ranks.get(flavor_of(variant))
    if own is None:
        return NO_SIBLINGS
    ranked = [(rank, holding) for holding in held if (rank := _rank(variant, holding.workload, ranks)) is not None]
    better = next((holding for rank, holding in ranked if rank < own), None)
    return Siblings(better, next((holding for rank, holding in ranked if rank > own), None))


def _rank(variant: Workload, other: Workload, ranks: Mapping[str, int]) -> int | None:
    """Return the rank of an admitted sibling's flavor; None for any other workload."""
    if other.parent != variant.parent or other.key == variant.key or not other.admitted:
        return None
    return ranks.get(flavor_of(other))


def may_migrate(variant: Workload, queue: ClusterQueue) -> bool:
    """True if the policy lets this variant replace an admitted sibling."""
    policy = queue.concurrent_admission
    if policy is None or not policy.last_acceptable_flavor:
        return True
    ranks = ranking(queue)
    return ranks.get(flavor_of(variant), len(ranks)) <= ranks.get(policy.last_acceptable_flavor, -1)
