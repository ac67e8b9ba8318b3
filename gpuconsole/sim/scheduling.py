"""Scheduling at one moment: admission cycles until they change nothing, then pod placement, with their consequences.

`run_schedulers` runs one of the two. Between them are the timers of admission: batched requeues, requeue backoffs, and
samples of LocalQueue usage for admission fair sharing (Kueue: localqueue_controller).
"""

from typing import assert_never

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.cooperative import Steps
from gpuconsole.model.events import (
    Admit,
    Applied,
    Bind,
    Evict,
    EvictPod,
    HistoryEventKind,
    KeepWaiting,
    MarkGroup,
    Nominate,
    Preempt,
    Refuse,
    SetPhase,
    Unschedulable,
)
from gpuconsole.model.kai import UNSCHEDULABLE_ON_NODE_POOL, KaiCondition, KaiPodGroup
from gpuconsole.model.volcano import GroupCondition, PodGroup
from gpuconsole.scheduling.kueue import apply_decisions
from gpuconsole.scheduling.kueue.conditions import EVICTED
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.controllers import (
    elastic_jobs,
    eviction,
    nodes,
    pods,
    reconcile,
    volcano_jobs,
    volumes_and_claims,
    work,
    workloads,
)
from gpuconsole.sim.kernel import RequeueBackoffEnds, RequeueInadmissible, RunPlacement, SampleUsage
from gpuconsole.sim.world import World, running_group_key


def sample_usage(world: World) -> None:
    """Take the samples of LocalQueue usage that are due.

    Inadmissible workloads are not requeued; only the order of the others changes.
    """
    world.sample_at = None
    if world.session is not None:
        world.session.take_due_samples(world.now)
        world.cycles_due = True


def publish_usage(world: World) -> None:
    """Update the status of LocalQueues whose sampled usage changed."""
    for lately in world.session.afs_usage_changes() if world.session is not None else ():
        queue = world.local_queue(lately.local_queue)
        if queue is not None:
            # The session has it already, and no other decision depends on the status.
            sampled = replace(queue, consumed=lately.consumed, sampled=lately.sampled, usage=lately.usage)
            event = Applied(world.now, sampled)
            world.state.apply(event)
            world.events.append(event)


UNSCHEDULABLE = "Unschedulable"


def is_idle(world: World) -> bool:
    """True if the schedulers have nothing to do at this moment."""
    _requeue_or_batch(world)
    return not (world.cycles_due or world.placement_due)


def run_schedulers(world: World) -> Steps[None]:
    """Run admission cycles until they change nothing; if none is due, place pods."""
    if world.cycles_due:
        yield from run_cycles(world)
    else:
        place_pods(world)


def _requeue_or_batch(world: World) -> None:
    """Requeue inadmissible workloads, now or when the batch is due (Kueue 0.19 inadmissible_workloads: 1 s)."""
    session = world.session
    if session is None:
        return
    if session.has_requeue_due and not world.policy.requeue_batch_interval:
        requeue_inadmissible(world)
    elif session.has_requeue_due and world.wake_at is None:
        world.wake_at = (
            world.now
            + world.policy.requeue_batch_interval
            + world.draw_latency("scheduling_cycle", of=("wake", world.now))
        )
        world.kernel.set_timer(world.wake_at, RequeueInadmissible())
    requeue = session.next_requeue
    if requeue is not None and requeue > world.now and requeue != world.backoff_at:
        world.backoff_at = requeue
        world.kernel.set_timer(requeue, RequeueBackoffEnds())
    publish_usage(world)
    sample = session.next_sample
    if sample is not None and (world.sample_at is None or sample < world.sample_at):
        world.sample_at = max(sample, world.now)
        world.kernel.set_timer(world.sample_at, SampleUsage())


def requeue_inadmissible(world: World) -> None:
    """Requeue the inadmissible workloads whose requeues were batched, and let a cycle try them."""
    world.wake_at = None
    if world.session is not None:
        world.session.requeue_inadmissible(world.now)
        world.cycles_due = True


def run_first_cycle(world: World) -> None:
    """Run one admission cycle, if there are heads; others remain due."""
    if world.session is not None and world.session.has_heads:
        _run_cycle(world, world.session)
        world.cycles_due = True


def run_cycles(world: World) -> Steps[None]:
    """Run admission cycles until a further one would change nothing.

    Each cycle is a microsecond later than the previous one, so that preemption can tell which workload is the newest.
    """
    session = world.session
    for refusal in session.rejected_claims() if session is not None else ():
        workloads.record_refusal(world, refusal)
    world.cycles_due = False
    flavors, more = 0, -1
    while session is not None and session.has_heads:
        _run_cycle(world, session)
        yield
        flavors = max(flavors, session.max_flavors_left)
        if session.has_progressed or world.cycles_due:
            more = -1
        else:
            more = _cycles_until_change(world, flavors) if more < 0 else more - 1
            if more <= 0:
                break
        world.cycles_due = False
        world.cycle_at += session.skip_idle_cycles()
    world.mark_inadmissible()


def _cycles_until_change(world: World, flavors: int) -> int:
    """The number of further cycles before something changes, as far as it matters.

    They decide nothing, but advance the flavor search of a head that tries several `flavors` in turn. As changes are
    not synchronous to cycles, the position of the search at the change is random.
    """
    if not flavors or world.policy.latencies is None:
        return 0
    return world.latency_random("cycles", world.now).randrange(2 * flavors)


def _run_cycle(world: World, session: KueueSession) -> None:
    world.cycle_at = max(world.now, world.cycle_at + 1)
    decided = session.run_cycle(world.cycle_at, with_traces=world.policy.traces_preemptions, report=world.refusals)
    for decision in decided:
        match decision:
            case Admit():
                if not nodes.settle_second_pass(world, decision, world.cycle_at):
                    elastic_jobs.replace_slice(world, decision)
                    workloads.reserve_quota(world, decision, world.cycle_at)
            case Preempt() | Evict():
                pass
            case Refuse():
                workloads.record_refusal(world, decision)
            case KeepWaiting():
                nodes.record_failed_second_pass(world, world.workload(decision.workload), decision.message)
            case _:
                assert_never(decision)
    # Recording these decisions is no reason for another cycle; an eviction that frees quota is.
    world.cycles_due = False
    for victim in apply_decisions.victims_of(decided):
        _evict(world, victim)


def _evict(world: World, decision: Preempt | Evict) -> None:
    """Evict a victim, unless it is being evicted already."""
    workload = world.workload(decision.workload)
    if workload is not None and workload.reserved and not workload.is_true(EVICTED):
        if isinstance(decision, Evict) and decision.detail:
            nodes.record_failed_second_pass(world, workload, decision.detail)
        eviction.evict(world, workload, decision)
    if isinstance(decision, Preempt):
        elastic_jobs.reconcile_evicted_slices(world, decision.workload)


def place_pods(world: World) -> None:
    """Provide the claims of pods, and run one pass of the placement engine."""
    world.placement_due = False
    if world.volume_claims_due:
        volumes_and_claims.reconcile_volume_claims(world)
    if world.resource_claims_due:
        volumes_and_claims.reconcile_resource_claims(world)
    if not world.placement.has_pending:
        return
    decisions = world.placement.schedule(world.now)
    alarm = world.placement.next_timer()
    if alarm is not None:
        world.kernel.set_timer(max(alarm, world.now), RunPlacement())
    bound: dict[str, list[Pod]] = {}
    for decision in decisions:
        match decision:
            case Bind():
                volumes_and_claims.bind_volume_claims(world, decision)
                volumes_and_claims.bind_resource_claims(world, decision)
                pods.bind_pod(world, decision)
                reconcile.admit_pod(world, decision.pod)
                pod = world.pod(decision.pod)
                if pod is not None:
                    bound.setdefault(running_group_key(pod), []).append(pod)
            case EvictPod():
                _evict_pod(world, decision)
            case Nominate():
                _nominate_pod(world, decision)
            case Unschedulable():
                _record_pending_pod(world, decision)
            case SetPhase():
                _set_phase(world, decision)
            case MarkGroup():
                _mark_pod_group(world, decision)
            case _:
                assert_never(decision)
    work.start_pods_later(world, bound)
    if decisions:
        _record_deadlock(world)
    # A pass that cancelled a reservation may have freed capacity for pods that it had tried before.
    world.placement_due = world.placement_due or bool(decisions)


def _evict_pod(world: World, decision: EvictPod) -> None:
    victim = world.pod(decision.pod)
    if victim is not None and not victim.deleted:
        by = world.pod(decision.by)
        nodes.evict_pod(world, victim, reason="Preempted", message=decision.message, by=by, rule=decision.action)


def _nominate_pod(world: World, decision: Nominate) -> None:
    pod = world.pod(decision.pod)
    if pod is not None and pod.nominated_node != decision.node:
        world.put(replace(pod, nominated_node=decision.node))


def _set_phase(world: World, decision: SetPhase) -> None:
    """Update the phase of a PodGroup; for one that is not enqueued and has no pods yet, record why."""
    group = world.state.get(PodGroup, decision.group)
    if group is None:
        return
    kept = tuple(one for one in group.conditions if one.type != UNSCHEDULABLE)
    if decision.message:
        kept += (GroupCondition(UNSCHEDULABLE, True, "NotEnoughResources", decision.message, world.now),)
    world.put(replace(group, phase=decision.phase, conditions=kept))
    if decision.message and decision.phase == "Pending":
        job = volcano_jobs.job_of_pod_group(world, decision.group)
        world.record_event(
            HistoryEventKind.PENDING, workload=job or decision.group, reason=UNSCHEDULABLE, message=decision.message
        )


def _mark_pod_group(world: World, decision: MarkGroup) -> None:
    """Update the condition of a KAI pod group."""
    group = world.state.get(KaiPodGroup, decision.group)
    if group is None:
        return
    kept = tuple(one for one in group.conditions if one.type != UNSCHEDULABLE_ON_NODE_POOL)
    if decision.message:
        made = KaiCondition(
            type=UNSCHEDULABLE_ON_NODE_POOL,
            reason=UNSCHEDULABLE,
            message=decision.message,
            since=world.now,
            reasons=decision.reasons,
        )
        kept += (made,)
    world.put(replace(group, conditions=kept))


def _record_pending_pod(world: World, decision: Unschedulable) -> None:
    """Record why a pod is pending, in the history once per gang."""
    pod = world.pod(decision.pod)
    if pod is None:
        return
    if pod.message != decision.message:
        world.put(replace(pod, reason=UNSCHEDULABLE, message=decision.message))
    group = world.groups[running_group_key(pod)]
    if not (decision.gang and group.is_reported):
        _record_pending_gang(world, pod, decision)
    if decision.gang:
        world.groups[group.key] = replace(group, is_reported=True)


def _record_pending_gang(world: World, pod: Pod, decision: Unschedulable) -> None:
    waiting = [pod]
    if decision.gang:
        waiting = [p for p in pods.pods_of(world, world.groups[running_group_key(pod)]) if not p.node and not p.done]
    world.record_event(
        HistoryEventKind.GANG_WAITING if decision.gang else HistoryEventKind.PENDING,
        workload=(pod.workload or pod.job or pod.key) if decision.gang else pods.history_subject(pod),
        pod="" if decision.gang else pod.key,
        queue=pods.queue_of(world, pod),
        reason=UNSCHEDULABLE,
        message=decision.story or decision.message,
        priority=pod.priority,
        **world.devices.requested(waiting),
    )


def _record_deadlock(world: World) -> None:
    """Record a deadlock of partially scheduled gangs that hold GPUs, once per set of jobs."""
    found = world.placement.deadlock()
    names = "" if found is None else " ".join(job.name for job in found.jobs)
    if found is not None and names != world.deadlock:
        first = found.jobs[0]
        world.record_event(
            HistoryEventKind.DEADLOCK,
            workload=first.gang if first.gang in world.groups else first.job,
            reason="HalfPlaced",
            message=found.message,
            gpus=found.gpus_held,
        )
    world.deadlock = names
