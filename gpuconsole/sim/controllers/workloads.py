"""The life of Workloads: queued, admitted, evicted, released, finished (Kueue: workload controller, job reconciler).

An evicted Workload holds its quota until its last pod is gone; only then is it released and goes back to its queue.
"""

from msgspec.structs import replace

from gpuconsole.model.choices import Choice
from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.decisions import Admit, Preempt, Refuse, Rule
from gpuconsole.model.events import Announcement, What
from gpuconsole.model.job import JobPhase
from gpuconsole.model.resources import is_gpu
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import announcements, conditions, effects
from gpuconsole.scheduling.kueue.checks import all_ready
from gpuconsole.scheduling.kueue.config import DEFAULT
from gpuconsole.scheduling.kueue.podset import Conflict
from gpuconsole.scheduling.kueue.requests import reserved_at
from gpuconsole.sim.controllers import deadlines, jobphases, pods, standing, watching, work
from gpuconsole.sim.controllers.specs import started_pods
from gpuconsole.sim.crews import Crew
from gpuconsole.sim.kernel import BackoffEnds, Release
from gpuconsole.sim.world import World

DEACTIVATED = "Deactivated"
FAILED_TO_START = "FailedToStart"
_BACKS_OFF = (conditions.ADMISSION_CHECK, conditions.PODS_READY_TIMEOUT)
"""Evictions after which a workload waits for its back-off."""
REACTION = SECOND
"""How long controllers take to suspend a job none of whose pods has a node.

Some time has to pass: two workloads that evict each other in turn would stop the clock.
"""
SUCCEEDED = "Job finished successfully"


def submit(world: World, workload: Workload) -> None:
    """A new Workload joins its queue."""
    world.put(workload)
    world.tell(
        What.SUBMITTED,
        workload=workload.key,
        queue=standing.cluster_queue(world, workload),
        gpus=workload.gpus,
        priority=workload.priority,
    )
    standing.check(world, workload)


def admit(world: World, decision: Admit, at: Time) -> None:
    """Quota is reserved; without open admission checks the workload is admitted and its pods are made."""
    waiting = world.workload(decision.workload)
    if waiting is None or waiting.reserved:
        return
    told = announcements.reserved(decision, waiting, at)
    queue = world.cluster_queue(decision.admission.cluster_queue)
    workload = replace(effects.reserved(waiting, decision, queue, at), parked=False)
    if all_ready(workload):
        start(world, workload, told)
    else:
        world.put(workload)
        tell(world, What.RESERVED, workload, told=(told,))
        world.unchecked[workload.key] = None


def start(world: World, workload: Workload, *told: Announcement) -> None:
    """A workload with quota and without open checks is admitted, and its pods are made.

    `told` is what Kueue's recorder writes of its reservation, where that is of this moment.
    """
    workload = conditions.admit(workload, world.now, granular=world.granular)
    workload = standing.not_ready(workload, world.now) if workload.admitted else workload
    world.put(workload)
    if not workload.admitted:
        return  # It still needs places: the second pass finds them.
    if workload.parent:
        return  # The job is its parent's, which is admitted with it.
    tell(
        world,
        What.ADMITTED,
        workload,
        borrowed=_borrowed(world, workload),
        waited=world.now - announcements.queued_since(workload),
        told=(*told, announcements.admitted(workload, max(0, world.now - reserved_at(workload, world.now)))),
    )
    make_pods(world, workload)
    watching.watch(world, workload)


def make_pods(world: World, workload: Workload) -> None:
    """An admitted workload's job is unsuspended: its pods are made. One that can never start is finished.

    Where a worker cluster runs it, the pods are there.
    """
    if workload.cluster:
        jobphases.mark(world, workload.owner, JobPhase.PENDING, suspended=False)
        return
    try:
        made = started_pods(world, workload)
    except Conflict as problem:
        finish(world, workload, FAILED_TO_START, str(problem))
        return
    taken_over = world.crews.get(workload.key)
    if taken_over is not None and taken_over.solo:
        world.dirty[taken_over.key] = None
        return
    if taken_over is not None:
        pods.reinforce(world, taken_over, made)
        return
    jobphases.mark(world, workload.owner, JobPhase.PENDING, suspended=False)
    deadlines.begin(world, workload.owner)
    job = world.job(workload.owner) if workload.owner else None
    crew = Crew(key=workload.key, workload=workload.key, job=workload.owner, need=len(made))
    if job is not None and job.solo:
        pods.form(world, replace(crew, solo=True), ())
    else:
        pods.form(world, crew, made)


def refuse(world: World, decision: Refuse) -> None:
    """The workload stays pending."""
    workload = world.workload(decision.workload)
    if workload is None or world.session is None:
        return
    changed = conditions.take_refusal(workload, decision, world.now, granular=world.granular)
    if changed is workload and workload.key in world.waiting:
        return  # Should it be parked by now, that is written down when the cycles are over.
    parked = world.session.parked(workload.key)
    if changed is not workload:
        world.tell(
            What.PENDING,
            workload=workload.key,
            queue=standing.cluster_queue(world, workload),
            reason=decision.requeue or decision.reason,
            message=decision.message,
            gpus=workload.gpus,
            priority=workload.priority,
            told=(announcements.refused(decision),),
        )
    if changed is not workload or workload.parked != parked:
        world.put(replace(changed, parked=parked))


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
    evicted = released.condition(conditions.EVICTED)
    if conditions.is_deactivated(released) and released.active:
        released = conditions.requeue(released, "Reactivated", "The workload was reactivated", world.now)
    if evicted is not None and evicted.reason in _BACKS_OFF:
        released = _after_backoff(world, released)
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
        gpus=workload.gpus,
        priority=workload.priority,
    )


def _after_backoff(world: World, workload: Workload) -> Workload:
    """A workload that was sent back may be tried again when its back-off is over: now, or at a later moment."""
    again = workload.requeue.at
    if again is not None and again > world.now:
        world.kernel.at(again, BackoffEnds(workload.key))
        return workload
    rested = replace(workload, requeue=replace(workload.requeue, at=None))
    return conditions.requeue(rested, "BackoffFinished", "The workload backoff was finished", world.now)


def backoff_ends(world: World, timer: BackoffEnds) -> None:
    """The back-off of a workload is over, unless that was another one."""
    workload = world.workload(timer.workload)
    waits = workload.condition(conditions.REQUEUED) if workload is not None and not workload.reserved else None
    if workload is None or waits is None or waits.status or waits.reason not in _BACKS_OFF:
        return
    rested = _after_backoff(world, workload)
    if rested is not workload:
        world.put(rested)
        _tell_requeued(world, rested, standing.cluster_queue(world, rested))
        standing.check(world, rested)


def finish(world: World, workload: Workload, reason: str, message: str) -> None:
    """A workload is done: its quota is free at once."""
    finished = conditions.finish(workload, reason, message, world.now)
    if finished is workload:
        return
    world.put(finished)
    watching.watch(world, finished)
    if workload.checks:
        world.unchecked[workload.key] = None
    what = What.FAILED if reason == "Failed" else What.FINISHED
    tell(world, what, workload, reason=reason, message=message)


def _borrowed(world: World, workload: Workload) -> int:
    """How many of the GPUs just admitted lie above the nominal quota of its ClusterQueue."""
    queue = world.cluster_queue(workload.cluster_queue)
    if queue is None or world.session is None or workload.admission is None:
        return 0
    asked: dict[tuple[str, str], int] = {}
    for assignment in workload.admission.pod_sets:
        for resource, flavor in assignment.flavors.items():
            if is_gpu(resource):
                key = (flavor, resource)
                asked[key] = asked.get(key, 0) + assignment.usage.get(resource, 0)
    quotas, usage = queue.quotas(), world.session.tree
    node, columns = usage.tree.queues[queue.name], usage.tree.numbers
    return sum(
        min(amount, max(0, usage.used(node, columns[key]) - quotas[key].nominal)) for key, amount in asked.items()
    )


def tell(world: World, what: What, workload: Workload, **more: object) -> None:
    """Add a line of history about a workload."""
    world.tell(
        what,
        workload=workload.key,
        queue=workload.cluster_queue or standing.cluster_queue(world, workload),
        flavor=workload.flavor,
        gpus=workload.gpus,
        priority=workload.priority,
        **more,
    )
