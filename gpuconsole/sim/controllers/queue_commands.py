"""Queues: commands on weights, cohorts and preemption policies, and the effect of changes on workloads.

Each command returns why it was refused, or nothing. `set_stop_policy` and `resize_quota` change a queue without any
check: `commands` has the commands.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from gpuconsole.model.commands import SetCohort, SetPreemption, SetWeight
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    FlavorQuotas,
    LocalQueue,
    PreemptionPolicy,
    Quota,
    StopPolicy,
)
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.controllers import workload_controller, workloads
from gpuconsole.sim.controllers.admission_plugins import CARRIED_OUT, NoChange, Refusal
from gpuconsole.sim.world import World


def set_stop_policy(world: World, queue: ClusterQueue | LocalQueue, policy: StopPolicy) -> None:
    """Set the stop policy: Hold admits no new workload, HoldAndDrain also evicts admitted ones, None resumes."""
    world.put(replace(queue, stop_policy=policy))
    name = queue.name if isinstance(queue, ClusterQueue) else queue.cluster_queue
    world.record_event(
        HistoryEventKind.QUEUE_CHANGED, queue=name, reason=f"StopPolicy{policy.value}", message=queue.key
    )
    for workload in workloads_without_quota(world, queue):
        workload_controller.reactivate_workload(world, workload)
    for workload in sorted(workloads_with_quota(world, queue), key=lambda held: held.key):
        workload_controller.reconcile_workload(world, workload.key)
    record_obstacles(world, queue)


def resize_quota(world: World, queue: ClusterQueue, flavor: str, resource: str, quota: Quota) -> None:
    """Change one quota. Less quota evicts no workload."""
    groups = tuple(
        replace(group, flavors=tuple(_with_quota(f, resource, quota) if f.name == flavor else f for f in group.flavors))
        for group in queue.resource_groups
    )
    world.put(replace(queue, resource_groups=groups))
    world.record_event(
        HistoryEventKind.QUEUE_CHANGED, queue=queue.name, reason="Quota", flavor=flavor, message=resource
    )


def record_obstacles(world: World, queue: ClusterQueue | LocalQueue) -> None:
    """Record again what keeps the pending workloads of a created, changed or deleted queue from being tried."""
    for workload in workloads_without_quota(world, queue):
        workloads.record_obstacle(world, workload)


def record_all_obstacles(world: World) -> None:
    """Do the same as `record_obstacles` for all ClusterQueues, after a change of an object that these reference."""
    for queue in list(world.state.table("cluster_queues").all()):
        record_obstacles(world, queue)


def workloads_without_quota(world: World, queue: ClusterQueue | LocalQueue) -> list[Workload]:
    """Workloads without quota in this LocalQueue, or in the LocalQueues of this ClusterQueue."""
    belongs = _belongs_to(world, queue)
    return [w for w in _all_workloads(world) if not w.reserved and not w.finished and belongs(w)]


def workloads_with_quota(world: World, queue: ClusterQueue | LocalQueue) -> list[Workload]:
    """Workloads of a ClusterQueue or LocalQueue that hold quota."""
    if isinstance(queue, ClusterQueue):
        return [w for w in _all_workloads(world) if w.cluster_queue == queue.name and w.reserved and not w.finished]
    return [w for w in _all_workloads(world) if w.local_queue == queue.key and w.reserved and not w.finished]


def _with_quota(flavor: FlavorQuotas, resource: str, quota: Quota) -> FlavorQuotas:
    return replace(flavor, resources={**flavor.resources, resource: quota})


def _belongs_to(world: World, queue: ClusterQueue | LocalQueue) -> Callable[[Workload], bool]:
    if isinstance(queue, LocalQueue):
        return lambda workload: workload.local_queue == queue.key
    local_queues = {lq.key for lq in world.state.table("local_queues").all() if lq.cluster_queue == queue.name}
    return lambda workload: workload.local_queue in local_queues


def _all_workloads(world: World) -> Iterable[Workload]:
    everything: Iterable[Workload] = world.state.table("workloads").all()
    return everything


_WITHIN = (
    PreemptionPolicy.NEVER,
    PreemptionPolicy.LOWER_PRIORITY,
    PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
)
_RECLAIM = (PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY)
_BORROW = (PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY)


def set_weight(world: World, command: SetWeight) -> Refusal:
    """Change a fair-sharing weight."""
    if not 0 <= command.weight < 1e9:
        return f"weight {command.weight:g} is not 0 or more"
    found = _find_queue_or_cohort(world, command.kind, command.queue)
    if found is None:
        return f"there is no {command.kind} {command.queue}"
    if found.fair_weight == command.weight:
        return NoChange(f"{command.kind} {command.queue} has weight {command.weight:g} already")
    _apply_change(world, replace(found, fair_weight=command.weight), "Weight")
    return CARRIED_OUT


def set_cohort(world: World, command: SetCohort) -> Refusal:
    """Move a ClusterQueue or a cohort to another parent."""
    moved: ClusterQueue | Cohort
    match found := _find_queue_or_cohort(world, command.kind, command.queue):
        case ClusterQueue():
            limited = [
                q for q in found.quotas().values() if q.borrowing_limit is not None or q.lending_limit is not None
            ]
            if not command.cohort and limited:
                return f"ClusterQueue {found.name} has borrowing or lending limits, which it can have in a cohort only"
            before, moved = found.cohort, replace(found, cohort=command.cohort)
        case Cohort():
            if command.cohort == found.name:
                return f"Cohort {found.name} cannot be its own parent"
            before, moved = found.parent, replace(found, parent=command.cohort)
        case _:
            return f"there is no {command.kind} {command.queue}"
    if before == command.cohort:
        where = f"in cohort {before}" if before else "in no cohort"
        return NoChange(f"{command.kind} {command.queue} is {where} already")
    _apply_change(world, moved, "Cohort")
    return CARRIED_OUT


def set_preemption(world: World, command: SetPreemption) -> Refusal:
    """Change the preemption policy of a ClusterQueue, within what Kueue's webhook allows."""
    queue = world.cluster_queue(command.cluster_queue)
    if queue is None:
        return f"there is no ClusterQueue {command.cluster_queue}"
    policy = _new_preemption(queue.preemption, command)
    borrow = policy.borrow_within_cohort.policy
    for name, value, allowed in (
        ("withinClusterQueue", policy.within_cluster_queue, _WITHIN),
        ("reclaimWithinCohort", policy.reclaim_within_cohort, _RECLAIM),
        ("borrowWithinCohort", borrow, _BORROW),
    ):
        if value not in allowed:
            return f"{name} cannot be {value}; it is one of {', '.join(allowed)}"
    if policy.reclaim_within_cohort is PreemptionPolicy.NEVER and borrow is not PreemptionPolicy.NEVER:
        return "borrowWithinCohort needs a reclaimWithinCohort that is not Never"
    if policy == queue.preemption:
        return NoChange(f"ClusterQueue {queue.name} preempts in this way already")
    _apply_change(world, replace(queue, preemption=policy), "Preemption")
    return CARRIED_OUT


def _new_preemption(old: ClusterQueuePreemption, command: SetPreemption) -> ClusterQueuePreemption:
    borrow = old.borrow_within_cohort
    threshold = command.max_priority_threshold
    return ClusterQueuePreemption(
        within_cluster_queue=command.within_cluster_queue or old.within_cluster_queue,
        reclaim_within_cohort=command.reclaim_within_cohort or old.reclaim_within_cohort,
        borrow_within_cohort=replace(
            borrow,
            policy=command.borrow_within_cohort or borrow.policy,
            max_priority_threshold=borrow.max_priority_threshold if threshold is None else threshold,
        ),
    )


def _find_queue_or_cohort(world: World, kind: str, name: str) -> ClusterQueue | LocalQueue | Cohort | None:
    match kind:
        case "LocalQueue":
            return world.local_queue(name)
        case "ClusterQueue":
            return world.cluster_queue(name)
        case _:
            cohort: Cohort | None = world.state.get(Cohort, name)
            return cohort


def _apply_change(world: World, new: ClusterQueue | LocalQueue | Cohort, reason: str) -> None:
    """Apply the changed object, and recheck the affected queues."""
    world.put(new)
    match new:
        case ClusterQueue(name=name) | LocalQueue(cluster_queue=name):
            world.record_event(HistoryEventKind.QUEUE_CHANGED, queue=name, reason=reason, message=new.key)
            record_obstacles(world, new)
        case Cohort(name=name):
            world.record_event(HistoryEventKind.QUEUE_CHANGED, reason=reason, message=f"Cohort {name}")
            record_all_obstacles(world)
