"""Available quota of a ClusterQueue per flavor, and how much of it its pending workloads could use.

Amounts of different flavors are never added up: a workload gets one flavor for each resource.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.capacity import capacity
from gpuconsole.insight.demand import FlavorResource
from gpuconsole.insight.device_demand import CLAIMED, counted_as, quota_accelerators, wanted_units
from gpuconsole.insight.positions import pending
from gpuconsole.model.device_units import DRA_DEVICE
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import ClusterQueue, QueueingStrategy
from gpuconsole.model.resources import PODS, scale
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.flavor_assigner import mismatch
from gpuconsole.scheduling.kueue.quota_tree import UsageTree

MOST_PENDING = 500
"""Limit on the pending workloads that are tried, from the head of the queue on."""


class UsableQuota(Struct, frozen=True):
    """Available and usable quota of one resource in one flavor."""

    flavor: str
    resource: str
    available: int
    """Amount that could be admitted now without preemption."""
    usable: int
    """Part of it that the pending workloads that fit would use, in queue order."""
    potential: int
    """Maximum capacity of the queue."""


def usable_quota(snapshot: Snapshot, queue: str) -> tuple[UsableQuota, ...]:
    """Return the available accelerators of a ClusterQueue, flavor by flavor in the order of the manifest.

    A pending workload uses quota if each of its pod sets fits into one flavor that its node selector, affinity and
    tolerations allow (Kueue: flavorassigner); under StrictFIFO none uses any behind one that does not fit.
    """
    found = capacity(snapshot)
    own, node = snapshot.cluster_queues.get(queue), found.tree.queues.get(queue)
    if own is None or node is None:
        return ()
    usage, used = found.usage.copy(), dict[FlavorResource, int]()
    for place in pending(snapshot, queue, limit=MOST_PENDING):
        taken = _fit(snapshot, own, usage, node, place.workload)
        if taken is None and own.queueing_strategy is QueueingStrategy.STRICT_FIFO:
            break
        for pair, amount in (taken or {}).items():
            used[pair] = used.get(pair, 0) + amount
        if taken:
            usage.add(node, [(found.tree.numbers[pair], amount) for pair, amount in taken.items()])
    counted = quota_accelerators(snapshot)
    return tuple(
        UsableQuota(*pair, reach.available, min(used.get(pair, 0), reach.available), reach.potential)
        for pair in own.quotas()
        if pair[1] in counted and (reach := found.reach(node, pair)) is not None
    )


def _fit(
    snapshot: Snapshot, queue: ClusterQueue, usage: UsageTree, node: int, workload: Workload
) -> Mapping[FlavorResource, int] | None:
    """Return the quota that the workload would get; None if it does not fit as a whole."""
    taken: dict[FlavorResource, int] = {}
    for pod_set in workload.pod_sets:
        requests = scale(pod_set.template.requests, pod_set.count) | {PODS: pod_set.count}
        requests |= _claimed(snapshot, queue, workload, pod_set)
        covered = {name for group in queue.resource_groups for name in group.covered_resources}
        if any(amount and name not in covered for name, amount in requests.items() if name != PODS):
            return None
        for group in queue.resource_groups:
            asked = {name: requests[name] for name in group.covered_resources if requests.get(name)}
            if not asked:
                continue
            flavors = (snapshot.flavors.get(one.name) for one in group.flavors)
            for flavor in flavors:
                if flavor is None or mismatch(pod_set.template, flavor):
                    continue
                pairs = {(flavor.name, name): taken.get((flavor.name, name), 0) + n for name, n in asked.items()}
                columns = {pair: usage.tree.numbers.get(pair) for pair in pairs}
                if all(
                    column is not None and usage.available(node, column) >= pairs[pair]
                    for pair, column in columns.items()
                ):
                    taken |= pairs
                    break
            else:
                return None
    return taken


def _claimed(snapshot: Snapshot, queue: ClusterQueue, workload: Workload, pod_set: PodSet) -> Mapping[str, int]:
    """Return the devices that a pod set claims (DRA), if the queue has one resource for them."""
    if not pod_set.template.resource_claims:
        return {}
    names = {name for _, name in queue.quotas() if name in quota_accelerators(snapshot)}
    names = {name for name in names if counted_as(name) == CLAIMED}
    devices = wanted_units(snapshot, replace(workload, pod_sets=(pod_set,))).get(DRA_DEVICE, 0)
    return dict.fromkeys(names, devices) if len(names) == 1 else {}
