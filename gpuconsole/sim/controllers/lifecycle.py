"""Kueue's workload controller: the effect of queues, time and pods on admitted and finished workloads.

The rules are in `scheduling.kueue.controller`; this module applies them until nothing is left to do.
"""

from msgspec.structs import replace

from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED
from gpuconsole.scheduling.kueue.workload_controller import ReconcileResult, deactivation_left, reconcile, restarted
from gpuconsole.sim.controllers import completion, eviction, queue_conditions, requeue_after, workloads
from gpuconsole.sim.kernel import ReconcileWorkload
from gpuconsole.sim.world import World

MOST_STEPS = 8
"""Maximum reconciles of a workload at one moment: it is marked for deactivation, deactivated, evicted …"""


def look_again(world: World, timer: ReconcileWorkload) -> None:
    """Handle a timer, unless it was replaced meanwhile."""
    if world.reconcile_timers.get(timer.workload) != world.now:
        return
    del world.reconcile_timers[timer.workload]
    if not _forget(world, timer.workload):
        look(world, timer.workload)


def look(world: World, key: str) -> None:
    """Reconcile a workload that holds quota or is finished, and set the next timer."""
    looked: ReconcileResult | None = None
    for _ in range(MOST_STEPS):
        workload, session = world.workload(key), world.session
        if workload is None or session is None or not (workload.reserved or workload.finished):
            return
        outcome = reconcile(workload, session.look_up_queues(workload), session.config, world.now)
        if outcome.workload is workload and outcome.eviction is None:
            looked = outcome
            break
        _carry_out(world, workload, outcome)
    workload = world.workload(key)
    if workload is not None:
        requeue_after.watch_requeue(world, workload, looked)


def restart(world: World, workload: Workload) -> None:
    """Reactivate a workload that was evicted when its queue stopped, if the queue runs again."""
    if world.session is None:
        return
    outcome = restarted(workload, world.session.look_up_queues(workload), world.now)
    if outcome is not None and outcome.workload is not None:
        world.put(outcome.workload)


def _carry_out(world: World, before: Workload, outcome: ReconcileResult) -> None:
    after, why = outcome.workload, outcome.eviction
    if after is None:
        world.drop(Workload, before.key)
        said = outcome.events[0].message
        workloads.tell(world, HistoryEventKind.DELETED, before, reason="Retention", message=said)
    elif why is not None:
        eviction.evict(world, after, why.reason, why.message, cause=why.cause)
    elif after.admitted and not before.admitted:
        workloads.start(world, before)
    elif before.reserved and not after.reserved:
        _take_back(world, before, after)
    else:
        world.put(after)


def _take_back(world: World, before: Workload, after: Workload) -> None:
    """Release the quota of a workload that was not admitted yet."""
    world.put(replace(after, inadmissible=False))
    said = after.condition(QUOTA_RESERVED)
    if said is not None:
        queue = queue_conditions.cluster_queue_of(world, before)
        world.tell(
            HistoryEventKind.PENDING,
            workload=after.key,
            queue=queue,
            reason=said.reason,
            message=said.message,
            priority=after.priority,
            **world.devices.of_workload(after),
        )
    if after.checks:
        world.unchecked[after.key] = None


def _forget(world: World, key: str) -> bool:
    """Delete a job that Kueue deactivated, with its workload, after its retention time."""
    workload, session = world.workload(key), world.session
    if workload is None or session is None:
        return True
    kept = session.config.object_retention.after_deactivated_by_kueue
    if kept is None or workload.reserved or deactivation_left(workload, kept, world.now) != 0:
        return False
    completion.delete_owner(world, Workload, key)
    return True
