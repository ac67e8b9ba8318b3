"""Queues: changes of stop policy and quota, and their effect on workloads."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.queues import ClusterQueue, FlavorQuotas, LocalQueue, Quota, StopPolicy
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.controllers import lifecycle, queue_conditions
from gpuconsole.sim.world import World


def set_stop_policy(world: World, queue: ClusterQueue | LocalQueue, policy: StopPolicy) -> None:
    """Set the stop policy: Hold admits no new workload, HoldAndDrain also evicts admitted ones, None resumes."""
    world.put(replace(queue, stop_policy=policy))
    name = queue.name if isinstance(queue, ClusterQueue) else queue.cluster_queue
    world.tell(HistoryEventKind.QUEUE_CHANGED, queue=name, reason=f"StopPolicy{policy.value}", message=queue.key)
    for workload in waiting_in(world, queue):
        lifecycle.restart(world, workload)
    for workload in sorted(holders(world, queue), key=lambda held: held.key):
        lifecycle.look(world, workload.key)
    recheck(world, queue)


def resize_quota(world: World, queue: ClusterQueue, flavor: str, resource: str, quota: Quota) -> None:
    """Change one quota. Less quota evicts no workload."""
    groups = tuple(
        replace(group, flavors=tuple(_resized(f, resource, quota) if f.name == flavor else f for f in group.flavors))
        for group in queue.resource_groups
    )
    world.put(replace(queue, resource_groups=groups))
    world.tell(HistoryEventKind.QUEUE_CHANGED, queue=queue.name, reason="Quota", flavor=flavor, message=resource)


def recheck(world: World, queue: ClusterQueue | LocalQueue) -> None:
    """Recheck the pending workloads of a queue that was created, changed or deleted."""
    for workload in waiting_in(world, queue):
        queue_conditions.record_obstacle(world, workload)


def recheck_all(world: World) -> None:
    """Recheck all queues after a change of an object that ClusterQueues reference."""
    for queue in list(world.state.table("cluster_queues").all()):
        recheck(world, queue)


def waiting_in(world: World, queue: ClusterQueue | LocalQueue) -> list[Workload]:
    """Workloads without quota in this LocalQueue, or in the LocalQueues of this ClusterQueue."""
    belongs = _belongs(world, queue)
    return [w for w in _workloads(world) if not w.reserved and not w.finished and belongs(w)]


def holders(world: World, queue: ClusterQueue | LocalQueue) -> list[Workload]:
    """Workloads that hold quota in a ClusterQueue, or those of a LocalQueue that hold quota."""
    if isinstance(queue, ClusterQueue):
        return [w for w in _workloads(world) if w.cluster_queue == queue.name and w.reserved and not w.finished]
    return [w for w in _workloads(world) if w.local_queue == queue.key and w.reserved and not w.finished]


def _resized(flavor: FlavorQuotas, resource: str, quota: Quota) -> FlavorQuotas:
    return replace(flavor, resources={**flavor.resources, resource: quota})


def _belongs(world: World, queue: ClusterQueue | LocalQueue) -> Callable[[Workload], bool]:
    if isinstance(queue, LocalQueue):
        return lambda workload: workload.local_queue == queue.key
    local_queues = {lq.key for lq in world.state.table("local_queues").all() if lq.cluster_queue == queue.name}
    return lambda workload: workload.local_queue in local_queues


def _workloads(world: World) -> Iterable[Workload]:
    everything: Iterable[Workload] = world.state.table("workloads").all()
    return everything
