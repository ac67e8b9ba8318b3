"""Requeue timers of Kueue's workload controller: one per workload, at its next relevant moment."""

from gpuconsole.model.clock import Span
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.workload_controller import ReconcileResult, deactivation_left, reconcile
from gpuconsole.sim.kernel import ReconcileWorkload
from gpuconsole.sim.world import World


def watch_requeue(world: World, workload: Workload, looked: ReconcileResult | None = None) -> None:
    """Set the timer of a workload's next change by time alone, unless an earlier timer is set.

    `looked` is the result of a reconcile just now, if any.
    """
    left = time_until_requeue(world, workload, looked)
    if left is None:
        return
    due = world.now + left
    set_already = world.reconcile_timers.get(workload.key)
    if set_already is None or not world.now < set_already <= due:
        world.reconcile_timers[workload.key] = due
        world.kernel.at(due, ReconcileWorkload(workload.key))


def time_until_requeue(world: World, workload: Workload, looked: ReconcileResult | None = None) -> Span | None:
    """The time until its next change by time alone: 0 = now; None = never. `looked` as for `watch`."""
    session = world.session
    if session is None:
        return None
    retention = session.config.object_retention
    if retention.after_deactivated_by_kueue is not None and not workload.reserved:
        left = deactivation_left(workload, retention.after_deactivated_by_kueue, world.now)
        if left is not None:
            return left
    if not (workload.reserved or workload.finished):
        return None
    outcome = looked or reconcile(workload, session.look_up_queues(workload), session.config, world.now)
    if outcome.workload is not workload:
        return 0
    return outcome.again or None
