"""Eviction of Workloads: evicted, released when their job is no longer active, requeued after a backoff.

When a job is no longer active depends on its kind (Kueue: job reconciler and `IsActive` of each integration; see
`model.jobs.workloads`). Terminating pods still occupy their nodes then, as kube-scheduler counts them.
"""

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import Evict, HistoryEventKind, Preempt
from gpuconsole.model.job import BatchRules, JobPhase
from gpuconsole.model.jobs.workloads import CONTROLLER_DELAYS, FAST_RELEASE_GATE, NO_DELAY, QuotaRelease, quota_release
from gpuconsole.model.jobs.workloads import starts_before_old_pods_end as kind_starts_before_old_pods_end
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.config import DEFAULT
from gpuconsole.scheduling.kueue.workload_controller import PODS_READY
from gpuconsole.sim.controllers import job_lifecycle, pods, work, workloads
from gpuconsole.sim.controllers.workloads import record_event
from gpuconsole.sim.kernel import BackoffEnds, ReleaseQuota
from gpuconsole.sim.run_times import LatencyStep
from gpuconsole.sim.world import RunningGroup, World

LAUNCHER = "launcher"
"""The pod set of an MPIJob's launcher pod, which starts the workers' processes."""
RELEASE_DELAY = SECOND
"""Time from an eviction to the release of quota, if no pod is waited for and the policy has no latencies.

It is not 0, because two workloads that preempt each other in turn would then stop the clock.
"""


def evict_for(world: World, workload: Workload, reason: str, message: str) -> None:
    """Evict a workload for a reason other than preemption, as a controller or a command does."""
    evict(world, workload, Evict(workload.key, reason, message))


def evict(world: World, workload: Workload, decision: Preempt | Evict) -> None:
    """Evict a workload: its work stops now, its pods terminate within their grace period."""
    was_ready = workload.is_true(PODS_READY)
    loss = work.interrupt_work(world, workload.key)
    stored = world.workload(workload.key)
    if stored is not None:
        workload = replace(workload, done=stored.done)
    evicted = apply_decisions.with_eviction(workload, decision, world.now)
    world.put(workloads.with_pods_not_ready(evicted, world.now))
    by = world.workload(decision.by) if isinstance(decision, Preempt) else None
    names = {
        "by": by.key if by is not None else "",
        "by_queue": workloads.cluster_queue_of(world, by) if by is not None else "",
        "by_priority": by.priority if by is not None else 0,
        "message": decision.message,
        "lost_gpu_seconds": loss.gpu_seconds,
        "cost": loss.cost,
    }
    if isinstance(decision, Preempt):
        config = world.policy.kueue or DEFAULT
        made_room = apply_decisions.preempted_events(decision, workload, by, config) if by is not None else ()
        record_event(
            world,
            HistoryEventKind.PREEMPTED,
            workload,
            reason=decision.rule.value,
            told=tuple(made_room),
            choice=decision.choice,
            **names,
        )
    marked = evicted.condition(conditions.EVICTED)
    assert marked is not None
    kueue_event = apply_decisions.evicted_event(workload, decision)
    record_event(world, HistoryEventKind.EVICTED, workload, reason=marked.reason, told=(kueue_event,), **names)
    if workload.checks:
        world.workloads_with_checks_due[workload.key] = None
    job_lifecycle.set_phase(world, workload.owner, JobPhase.SUSPENDED, suspended=True)
    if not workload.cluster and not workload.parent:
        _suspend_job(world, workload, decision.message, was_ready=was_ready)


def _suspend_job(world: World, workload: Workload, message: str, *, was_ready: bool) -> None:
    """Suspend the job, which deletes its pods; its quota is released when its integration reports it inactive."""
    key, kind = workload.key, kind_of(workload)
    group = world.groups.get(key)
    had_pods = group is not None and bool(group.existing)
    on_nodes = group is not None and bool(group.running + group.terminating)
    if group is not None:
        after = _time_until_deletion(world, key, kind, world.now)
        pods.delete_pods(world, pods.pods_of(world, group), "Evicted", message, after=after)
        if not on_nodes:
            pods.delete_group(world, world.groups[key])
    if on_nodes and _quota_release(world, kind, was_ready=was_ready) is not QuotaRelease.WITHOUT_ACTIVE_PODS:
        world.groups_to_reconcile[key] = None
        return
    steps: tuple[LatencyStep, ...] = ("status_update",) if had_pods else ()
    latency = world.draw_latency("job_suspend", *steps, "workload_reconcile", of=(key, world.now))
    at = _next_poll(kind, world.now, world.now + (latency or RELEASE_DELAY))
    world.kernel.set_timer(at, ReleaseQuota(key, world.now))


def _time_until_deletion(world: World, key: str, kind: str, evicted: Time) -> Span:
    """The time from an eviction until the pods are deleted."""
    delay = CONTROLLER_DELAYS.get(kind, NO_DELAY)
    return delay.deletion + world.draw_latency("job_suspend", "pod_deletion", of=(key, evicted))


def resume_eviction(world: World, workload: Workload) -> None:
    """Resume an eviction that was under way when the simulation began: remove the pods, then release the quota."""
    evicted, group = workload.condition(conditions.EVICTED), world.groups.get(workload.key)
    since, kind = evicted.since if evicted is not None else world.now, kind_of(workload)
    if group is not None:
        after = max(0, since + _time_until_deletion(world, workload.key, kind, since) - world.now)
        message = evicted.message if evicted is not None else ""
        pods.delete_pods(world, pods.pods_of(world, group), "Evicted", message, after=after)
        if _quota_release(world, kind) is not QuotaRelease.WITHOUT_ACTIVE_PODS:
            return  # The release waits for its pods.
    if world.policy.latencies is None:
        at = max(world.now, since + RELEASE_DELAY)
    else:
        names = (workload.key, since)
        at = world.draw_due_time(since, "job_suspend", "status_update", "workload_reconcile", of=names)
    world.kernel.set_timer(at, ReleaseQuota(workload.key, since))


def kind_of(workload: Workload) -> str:
    """The kind of a Workload's job; empty without a job."""
    return workload.owner.partition("/")[0]


def _quota_release(world: World, kind: str, *, was_ready: bool = True) -> QuotaRelease:
    config = world.policy.kueue or DEFAULT
    return quota_release(kind, fast_release=config.enabled(FAST_RELEASE_GATE), was_ready=was_ready)


def _next_poll(kind: str, evicted: Time, stopped: Time) -> Time:
    """The time at which the job's controller notices a change, if it polls."""
    interval = CONTROLLER_DELAYS.get(kind, NO_DELAY).polling
    return evicted - (evicted - stopped) // interval * interval if interval else stopped


def release_when_stopped(world: World, group: RunningGroup, workload: Workload) -> None:
    """Release the quota of an evicted workload once no pod that its integration waits for is left."""
    kind = kind_of(workload)
    rule = _quota_release(world, kind)
    if rule is QuotaRelease.WITHOUT_ACTIVE_PODS:
        return  # It is released by its timer.
    counted = pods.pods_of(world, group)
    if rule is QuotaRelease.LAUNCHER_STOPPED:
        counted = [pod for pod in counted if pod.pod_set == LAUNCHER]
    if any(not pod.done for pod in counted):
        return
    evicted = workload.condition(conditions.EVICTED)
    since = evicted.since if evicted is not None else world.now
    stopped = world.now + world.draw_latency("workload_reconcile", of=(workload.key, since))
    least = since + RELEASE_DELAY if world.policy.latencies is None else since
    at = _next_poll(kind, since, max(stopped, least))
    if at > world.now:
        world.kernel.set_timer(at, ReleaseQuota(workload.key, since))
    else:
        release_quota(world, workload.key)


def is_released_by(workload: Workload, timer: ReleaseQuota) -> bool:
    """True if the timer belongs to the workload's latest eviction, which is not complete yet."""
    evicted = workload.condition(conditions.EVICTED)
    return evicted is not None and evicted.status and evicted.since == timer.evicted


def release_quota(world: World, key: str) -> None:
    """Release the quota of an evicted workload whose job is inactive, and requeue the workload.

    If a job of its kind may restart while its old pods still terminate, the old pods no longer belong to the workload's
    running group.
    """
    workload = world.workload(key)
    if workload is None or not workload.reserved:
        return
    group = world.groups.get(key)
    if group is not None and starts_before_old_pods_end(world, workload):
        pods.detach_terminating_group(world, group)
    released = workloads.with_pods_not_ready(
        conditions.release_quota(workload, world.now, granular=world.granular), world.now
    )
    if conditions.is_deactivated(released) and released.active:
        released = conditions.mark_reactivated(released, world.now)
    again = released.requeue.at
    if again is not None and again > world.now:
        world.kernel.set_timer(again, BackoffEnds(key))
    else:
        released = conditions.end_backoff(released, world.now)
    world.put(released)
    workloads.set_requeue_timer(world, released)
    if released.active and released.is_true(conditions.REQUEUED):
        latency = conditions.eviction_latency(workload, released, world.now)
        _record_requeue(world, released, workload.cluster_queue, waited=latency[2] if latency is not None else 0)
    workloads.record_obstacle(world, released)


def starts_before_old_pods_end(world: World, workload: Workload) -> bool:
    """True if the job would restart while its old pods still terminate."""
    job = world.job(workload.owner) if workload.owner else None
    failed_only = job is not None and isinstance(job.rules, BatchRules) and job.rules.replaces_failed
    return kind_starts_before_old_pods_end(kind_of(workload), replaces_failed_only=failed_only)


def _record_requeue(world: World, workload: Workload, queue: str, *, waited: Span = 0) -> None:
    evicted = workload.condition(conditions.EVICTED)
    world.record_event(
        HistoryEventKind.REQUEUED,
        workload=workload.key,
        queue=queue,
        reason=evicted.reason if evicted is not None else "",
        waited=waited,
        priority=workload.priority,
        **world.devices.of_workload(workload),
    )


def backoff_ends(world: World, timer: BackoffEnds) -> None:
    """Requeue a workload whose backoff is over, unless a newer backoff replaced it."""
    workload = world.workload(timer.workload)
    if workload is None or workload.reserved or workload.requeue.at is None or workload.requeue.at > world.now:
        return
    rested = conditions.end_backoff(workload, world.now)
    world.put(rested)
    _record_requeue(world, rested, workloads.cluster_queue_of(world, rested))
    workloads.record_obstacle(world, rested)
