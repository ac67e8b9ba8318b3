"""How Workloads lose their place: evicted, released when their last pod is gone, back in their queue after a back-off.

An evicted Workload holds its quota until its last pod is gone (Kueue: workload controller, job reconciler).
"""

from msgspec.structs import replace

from gpuconsole.model.choices import Choice
from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.decisions import Preempt, Rule
from gpuconsole.model.events import What
from gpuconsole.model.job import JobPhase
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import announcements, conditions
from gpuconsole.scheduling.kueue.config import DEFAULT
from gpuconsole.sim.controllers import jobphases, pods, standing, watching, work
from gpuconsole.sim.controllers.workloads import tell
from gpuconsole.sim.kernel import BackoffEnds, Release
from gpuconsole.sim.world import World

_BACKS_OFF = (conditions.ADMISSION_CHECK, conditions.PODS_READY_TIMEOUT)
"""Evictions after which a workload waits for its back-off."""
REACTION = SECOND
"""How long controllers take to suspend a job none of whose pods has a node.

Some time has to pass: two workloads that evict each other in turn would stop the clock.
"""


def preempt(world: World, decision: Preempt) -> None:
    """A victim makes room for another workload, unless it is on its way out already."""
    victim, by = world.workload(decision.workload), world.workload(decision.by)
    if victim is not None and victim.reserved and not victim.is_true(conditions.EVICTED):
        evict(world, victim, conditions.PREEMPTED, decision.message, by=by, rule=decision.rule, choice=decision.choice)


def evict(
    world: World,
    workload: Workload,
    reason: str,
    message: str,
    *,
    by: Workload | None = None,
    rule: Rule | None = None,
    choice: Choice | None = None,
    cause: str = "",
) -> None:
    """Take a workload's place away: its work stops now, its pods leave within their grace period.

    `by`, `rule` and `choice` name the preemptor, why it chose this one, and how; `cause` is what was behind the reason.
    """
    loss = work.interrupt(world, workload.key)
    stored = world.workload(workload.key)
    if stored is not None:
        workload = replace(workload, done=stored.done)
    evicted = conditions.evict(workload, reason, message, world.now, rule, cause=cause)
    world.put(standing.not_ready(evicted, world.now))
    names = {
        "by": by.key if by is not None else "",
        "by_queue": standing.cluster_queue(world, by) if by is not None else "",
        "by_priority": by.priority if by is not None else 0,
        "message": message,
        "lost_gpu_seconds": loss.gpu_seconds,
        "cost": loss.cost,
    }
    if rule is not None:
        config = world.policy.kueue or DEFAULT
        made_room = announcements.preempted(message, workload, by, config) if by is not None else ()
        tell(world, What.PREEMPTED, workload, reason=rule.value, told=tuple(made_room), choice=choice, **names)
    marked = evicted.condition(conditions.EVICTED)
    told = announcements.evicted(workload, reason, message, cause)
    shown = marked.reason if marked is not None else reason
    tell(world, What.EVICTED, workload, reason=shown, told=(told,), **names)
    if workload.checks:
        world.unchecked[workload.key] = None
    jobphases.mark(world, workload.owner, JobPhase.SUSPENDED, suspended=True)
    if not workload.cluster and not workload.parent:
        _withdraw(world, workload.key, message)


def _withdraw(world: World, key: str, message: str) -> None:
    """Delete the pods. Without any on a node the quota is free when the controllers have seen to it."""
    crew = world.crews.get(key)
    if crew is not None and crew.running + crew.leaving:
        world.dirty[key] = None
        pods.remove(world, pods.pods_of(world, crew), "Evicted", message)
        return
    if crew is not None:
        pods.remove(world, pods.pods_of(world, crew), "Evicted", message)
        pods.disband(world, crew)
    world.kernel.at(world.now + REACTION, Release(key, world.now))


def release_later(world: World, timer: Release) -> None:
    """The controllers have seen to an eviction that no pod delayed."""
    workload = world.workload(timer.workload)
    evicted = workload.condition(conditions.EVICTED) if workload is not None else None
    if evicted is not None and evicted.status and evicted.since == timer.evicted:
        release(world, timer.workload)


def release(world: World, key: str) -> None:
    """The last pod of an evicted workload is gone: its quota is free, and it goes back to its queue."""
    workload = world.workload(key)
    if workload is None or not workload.reserved:
        return
    released = standing.not_ready(conditions.release(workload, world.now, granular=world.granular), world.now)
    if conditions.is_deactivated(released) and released.active:
        released = conditions.requeue(released, "Reactivated", "The workload was reactivated", world.now)
    again = released.requeue.at
    if again is not None and again > world.now:
        world.kernel.at(again, BackoffEnds(key))
    else:
        released = _rested(world, released)
    world.put(released)
    watching.watch(world, released)
    if released.active and released.is_true(conditions.REQUEUED):
        latency = conditions.eviction_latency(workload, released, world.now)
        _tell_requeued(world, released, workload.cluster_queue, waited=latency[2] if latency is not None else 0)
    standing.check(world, released)


def _tell_requeued(world: World, workload: Workload, queue: str, *, waited: Span = 0) -> None:
    evicted = workload.condition(conditions.EVICTED)
    world.tell(
        What.REQUEUED,
        workload=workload.key,
        queue=queue,
        reason=evicted.reason if evicted is not None else "",
        waited=waited,
        priority=workload.priority,
        **world.devices.of_workload(workload),
    )


def _rested(world: World, workload: Workload) -> Workload:
    """A workload whose back-off is over, if it had one: it may be tried again."""
    rested = replace(workload, requeue=replace(workload.requeue, at=None))
    waits = rested.condition(conditions.REQUEUED)
    if waits is None or waits.status or waits.reason not in _BACKS_OFF:
        return rested
    return conditions.requeue(rested, "BackoffFinished", "The workload backoff was finished", world.now)


def backoff_ends(world: World, timer: BackoffEnds) -> None:
    """The back-off of a workload is over, unless that was another one: it is queued now."""
    workload = world.workload(timer.workload)
    if workload is None or workload.reserved or workload.requeue.at is None or workload.requeue.at > world.now:
        return
    rested = _rested(world, workload)
    world.put(rested)
    _tell_requeued(world, rested, standing.cluster_queue(world, rested))
    standing.check(world, rested)
