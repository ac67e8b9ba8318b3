"""Concurrent-admission variants of Workloads: created, activated, stopped, and followed by their parent's job.

A variant has no pods: those are created when its parent is admitted, and an evicted variant keeps its quota until the
parent's pods are gone (Kueue 0.19 pkg/controller/concurrentadmission).
"""

from msgspec.structs import replace

from gpuconsole.model.events import HistoryEventKind, KueueEvent
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.concurrent_admission import VARIANT_WAIT, reconcile_variants
from gpuconsole.scheduling.kueue.variants import PARENT, is_parent
from gpuconsole.sim.controllers import eviction, workloads
from gpuconsole.sim.kernel import ReconcileVariants
from gpuconsole.sim.world import World


def reconcile_family(world: World, key: str) -> None:
    """Reconcile a parent and its variants."""
    parent = world.workload(key)
    if parent is None:
        _orphan(world, key)
        return
    queue = _queue_of(world, parent)
    if queue is None or queue.concurrent_admission is None or world.session is None:
        return
    if not is_parent(parent):
        world.put(replace(parent, labels={**parent.labels, PARENT: "true"}))
        return
    names = world.children_workloads.get(key, {})
    variants = [variant for name in names if (variant := world.workload(name)) is not None]
    outcome = reconcile_variants(parent, variants, queue, world.now, granular=world.granular)
    before = {workload.key: workload for workload in (parent, *variants)}
    for variant in outcome.created:
        workloads.submit(world, replace(variant, uid=world.next_uid(variant.key), created=world.now))
    for name in outcome.deleted:
        world.drop(Workload, name)
    for changed in outcome.changed:
        _change(world, before[changed.key], changed)
    for event in outcome.events:
        _tell(world, event)
    if outcome.again == VARIANT_WAIT:
        world.kernel.at(world.now + VARIANT_WAIT, ReconcileVariants(key))


def _queue_of(world: World, workload: Workload) -> ClusterQueue | None:
    local_queue = world.local_queue(workload.local_queue)
    return world.cluster_queue(local_queue.cluster_queue) if local_queue is not None else None


def _orphan(world: World, key: str) -> None:
    """Delete variants with their parent (the garbage collector)."""
    for name in tuple(world.children_workloads.get(key, ())):
        world.drop(Workload, name)


def _change(world: World, before: Workload, after: Workload) -> None:
    """Apply a change of a parent or a variant."""
    evicted = after.condition(conditions.EVICTED)
    if evicted is not None and evicted.status and not before.is_true(conditions.EVICTED):
        eviction.evict(world, before, evicted.reason, evicted.message)
    elif after.admitted and not before.admitted:
        workloads.start(world, after)
    elif before.admitted and before.active and not after.active:
        eviction.evict(world, after, conditions.DEACTIVATED, "The workload is deactivated")
    else:
        world.put(after)


def _tell(world: World, event: KueueEvent) -> None:
    workload = world.workload(event.workload)
    if workload is not None:
        workloads.tell(world, HistoryEventKind.PENDING, workload, reason=event.reason, message=event.message)
