"""Work of running groups: when it begins, what an interruption loses, when it ends.

A group works while the pods that it needs run (`RunningGroup.need`). A checkpoint limits lost work: what was done since
the last one is repeated later. Work done and work lost add up to the time that the group ran. Where pods work
independently, each has its own work, end and failures (`begin_pod`, `end_pod`, `count_failure`).
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time, parse_span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.device_requests import amount_of_gpus, pod_hourly
from gpuconsole.model.job import BatchRules, Job
from gpuconsole.model.jobs.workloads import CHECKPOINT, DURATION, ON_NOTICE
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.podset import reclaim
from gpuconsole.sim.controllers import batch_job, pods
from gpuconsole.sim.controllers.batch_job import pod_duration
from gpuconsole.sim.controllers.pods import pods_of
from gpuconsole.sim.kernel import PodEnds, PodsStart, WorkEnds
from gpuconsole.sim.run_times import RunTimes, WorkKind, draw, number_of, run_time
from gpuconsole.sim.world import RunningGroup, World, running_group_key


class WorkLoss(Struct, frozen=True):
    """Lost work, which has to be repeated."""

    span: Span = 0
    gpu_seconds: float = 0.0
    cost: float = 0.0
    """USD at the prices of the nodes that it ran on."""


NOTHING = WorkLoss()


class WorkTask(Struct, frozen=True):
    """What a running group has to do: how long it works, and when it writes checkpoints."""

    duration: Span | None = None
    """None: the work continues until it is deleted."""
    checkpoint: Span | None = None
    done: Span = 0
    on_notice: Span | None = None
    """Time to write a checkpoint on termination; None if none is written then."""
    drawn: bool = False
    """True if the duration is drawn at random."""


def pod_task(world: World, group: RunningGroup, pod: Pod) -> WorkTask:
    """The work of one pod of a job whose pods work independently."""
    job = world.job(group.job)
    if job is None or not isinstance(job.rules, BatchRules):
        return WorkTask()
    done = job.batch.saved.get(str(pod.index), 0)
    said = job.duration if job.rules.pod_duration is None else job.rules.pod_duration
    todo = _task(world, group, said, job.checkpoint_interval, done, job.annotations)
    whole = todo.duration or 0
    if world.policy.run_times is not None and world.policy.run_times.draws(job.created):
        whole = _drawn(world, world.policy.run_times, pod.key, job)
    return replace(todo, duration=pod_duration(job.rules, whole, job.pod_sets[0].count))


def task(world: World, group: RunningGroup) -> WorkTask:
    """Determine the work of a running group by its object; the duration is drawn if unknown or by the policy."""
    doer = owner(world, group)
    todo = _stated(world, group, doer)
    if world.policy.run_times is None or todo.duration is None or doer is None:
        return todo
    if isinstance(doer, Job) and not world.policy.run_times.draws(doer.created):
        return todo
    return replace(todo, duration=_drawn(world, world.policy.run_times, group.key, doer), drawn=True)


def _drawn(world: World, run_times: RunTimes, key: str, doer: Job | Workload | Pod) -> Span:
    """The drawn duration of this work: from its arrival stream, else from similar past work.

    The independent pods of one job of a stream take equally long.
    """
    kind = _kind(world, doer)
    for stream in world.policy.arrivals if isinstance(doer, Job) else ():
        number = number_of(stream, doer.key)
        if number is not None:
            chance = draw(world.seed, "run time", doer.key)
            return run_time(stream, number, kind.gpus, run_times.known.get(key, 0), chance)
    return run_times.draw(world.seed, key, kind)


def _kind(world: World, doer: Job | Workload | Pod) -> WorkKind:
    """The kind of this work, by which similar work is found."""
    match doer:
        case Pod():
            return WorkKind(doer.namespace, "", world.devices.requested([doer])["gpus"])
        case _:
            local_queue = world.local_queue(f"{doer.namespace}/{doer.queue}")
            asked = world.devices.of_pod_sets(doer.namespace, doer.pod_sets)["gpus"]
            return WorkKind(doer.namespace, local_queue.cluster_queue if local_queue is not None else "", asked)


def _stated(world: World, group: RunningGroup, doer: Job | Workload | Pod | None) -> WorkTask:
    match doer:
        case Job() as job:
            if job.endless:
                return WorkTask()
            return _task(world, group, job.duration, job.checkpoint_interval, job.done, job.annotations)
        case Workload(annotations=notes, done=done):
            return _task(world, group, _span(notes.get(DURATION)), _span(notes.get(CHECKPOINT)), done, notes)
        case Pod() as pod:
            notes = {**pod.template.annotations, **pod.annotations}
            duration = _span(notes.get(DURATION))
            if duration is None and pod.template.restart_policy in ("", "Always"):
                return WorkTask()
            return _task(world, group, duration, _span(notes.get(CHECKPOINT)), 0, notes)
        case None:
            return WorkTask()


def _task(
    world: World, group: RunningGroup, said: Span | None, checkpoint: Span | None, done: Span, notes: Mapping[str, str]
) -> WorkTask:
    on_notice = _span(notes.get(ON_NOTICE))
    if said is not None:
        return WorkTask(said, checkpoint, done, on_notice)
    drawn = world.policy.durations.sample(draw(world.seed, "duration", group.key))
    return WorkTask(drawn, checkpoint, done, on_notice, drawn=True)


def owner(world: World, group: RunningGroup) -> Job | Workload | Pod | None:
    """The object that defines the group's work: its job, else its Workload, else its pod."""
    if group.job:
        return world.job(group.job)
    if group.workload:
        return world.workload(group.workload)
    return world.pod(group.pods[0])


def begin(world: World, group: RunningGroup) -> None:
    """Start the work, or continue it from its last checkpoint."""
    todo = task(world, group)
    world.groups[group.key] = replace(group, start=world.now, is_reported=False)
    if todo.duration is not None:
        world.kernel.at(world.now + max(0, todo.duration - todo.done), WorkEnds(group.key, world.now))


def resume(world: World, group: RunningGroup, start: Time) -> None:
    """Continue work that has run since `start`, and set the timer of its end."""
    todo = task(world, group)
    world.groups[group.key] = replace(group, start=start)
    if todo.duration is not None:
        world.kernel.at(end_of(todo, start, world.now), WorkEnds(group.key, start))


def end_of(todo: WorkTask, start: Time, now: Time) -> Time:
    """When work ends that runs since `start`; never before `now`.

    Work that should have ended ends now if its duration is stated. A drawn duration that is too short is doubled until
    it is long enough.
    """
    length = max(0, (todo.duration or 0) - todo.done)
    if todo.drawn:
        length = max(SECOND, length)
        while start + length < now:
            length *= 2
    return max(now, start + length)


def ended(world: World, group: RunningGroup) -> bool:
    """True if no work is left for these pods: their owner has finished, or the pod itself has."""
    match owner(world, group):
        case Job() as job:
            return job.ended
        case Workload() as workload:
            return workload.finished
        case Pod() as pod:
            return pod.done
        case None:
            return False


def interrupt(world: World, key: str, notice: Span = 0, *, pod: Pod | None = None) -> WorkLoss:
    """Stop the work of a running group: what its checkpoints do not cover is lost.

    Work that was not running loses nothing, nor does work that writes a checkpoint on termination, if `notice` is long
    enough. If only `pod` stops, the other pods continue if they work independently.
    """
    group = world.groups.get(key)
    if group is None or group.start is None:
        return NOTHING
    if group.solo:
        return _interrupt_each(world, group, notice, pods_of(world, group) if pod is None else [pod], pod is None)
    job = world.job(group.job) if group.job else None
    if job is not None and job.endless:
        world.groups[key] = replace(group, start=None)
        return NOTHING
    todo = task(world, group)
    ran = world.now - group.start
    safe = _safe(todo, ran, notice)
    world.groups[key] = replace(group, start=None)
    if safe:
        _remember(world, group, todo.done + safe)
    return _price(world, group, ran - safe)


def _safe(todo: WorkTask, ran: Span, notice: Span) -> Span:
    """The part of the work done that checkpoints cover."""
    if todo.on_notice is not None and todo.on_notice <= notice:
        return ran
    return ran - ran % todo.checkpoint if todo.checkpoint else 0


def _interrupt_each(
    world: World, group: RunningGroup, notice: Span, stopped: Sequence[Pod], all_stop: bool
) -> WorkLoss:
    """Interrupt each of these pods; services lose nothing, as they have no work to finish."""
    if all_stop:
        world.groups[group.key] = replace(group, start=None)
    job = world.job(group.job)
    if job is None or not isinstance(job.rules, BatchRules):
        return NOTHING
    losses, saved = [], dict(job.batch.saved)
    for pod in stopped:
        if not pod.started or pod.done or pod.deleted:
            continue
        todo = pod_task(world, group, pod)
        ran = world.now - pod.started
        safe = _safe(todo, ran, notice)
        if safe:
            saved[str(pod.index)] = todo.done + safe
        losses.append(_price_of(world, [pod], ran - safe))
    if saved != job.batch.saved:
        world.put(replace(job, batch=replace(job.batch, saved=saved)))
    lost = max((loss.span for loss in losses), default=0)
    return WorkLoss(lost, sum(loss.gpu_seconds for loss in losses), sum(loss.cost for loss in losses))


def _remember(world: World, group: RunningGroup, done: Span) -> None:
    match owner(world, group):
        case Job() as job:
            world.put(replace(job, done=done))
        case Workload() as workload:
            world.put(replace(workload, done=done))


def _price(world: World, group: RunningGroup, lost: Span) -> WorkLoss:
    return _price_of(world, pods_of(world, group), lost)


def _price_of(world: World, pods: Sequence[Pod], lost: Span) -> WorkLoss:
    seconds, cost, prices = 0.0, 0.0, world.policy.prices
    for pod in pods:
        if lost and pod.node:
            node, devices = world.node(pod.node), world.devices.claimed_gpus(pod)
            # A pod that started after the others has lost no more than its own time.
            span = min(lost, world.now - pod.started) / SECOND
            seconds += amount_of_gpus(pod, node, devices) * span
            cost += pod_hourly(pod, node, prices, devices) * span / 3600
    return WorkLoss(lost, seconds, cost)


def _span(text: str | None) -> Span | None:
    """Read an annotation; an invalid one counts as absent (manifest validation reports it)."""
    if text is None:
        return None
    try:
        return parse_span(text) or None
    except ValueError:
        return None


def start_pods_later(world: World, bound: Mapping[str, Sequence[Pod]]) -> None:
    """Set the timers that start newly bound pods, together for each running group.

    Without latencies they have started, so that their work begins now.
    """
    for key, pods_of_group in bound.items():
        if world.policy.latencies is None:
            for pod in pods_of_group:
                begin_pod(world, pod)
        else:
            at = world.now + world.latency("bind", "start", of=(key, pods_of_group[0].uid))
            world.kernel.at(at, PodsStart(tuple((pod.key, pod.uid) for pod in pods_of_group)))


def start_pods(world: World, started: Iterable[tuple[str, str]]) -> None:
    """Start the containers of these pods (key and uid), unless they were deleted or lost meanwhile."""
    for key, uid in started:
        pod = world.pod(key)
        if pod is not None and pod.uid == uid and not (pod.done or pod.deleted or pod.started):
            begin_pod(world, pods.start(world, pod))


def begin_pod(world: World, pod: Pod) -> None:
    """Set the timer that ends the work of a started pod, if it works independently."""
    group = world.groups.get(running_group_key(pod))
    todo = None if group is None or not group.solo else pod_task(world, group, pod)
    if todo is not None and todo.duration is not None:
        world.kernel.at(end_of(todo, pod.started, world.now), PodEnds(pod.key, pod.uid))


def end_pod(world: World, timer: PodEnds) -> None:
    """Complete the work of a pod, unless it was lost meanwhile."""
    pod = world.pod(timer.pod)
    if pod is None or pod.uid != timer.uid or pod.done or pod.deleted or not pod.node:
        return
    group, job = world.groups.get(running_group_key(pod)), world.job(pod.job)
    if group is not None and group.solo and job is not None and isinstance(job.rules, BatchRules):
        pods.end(world, pod)
        _note(world, group, batch_job.succeeded(job, pod.index), job.rules)


def count_failure(
    world: World, pod: Pod, exit_code: int | None, *, disrupted: bool = False
) -> batch_job.JobEnding | None:
    """Count a failed pod for its job's backoffLimit and podFailurePolicy; returns the job's end if it ends the job."""
    job = world.job(pod.job) if pod.job else None
    group = world.groups.get(running_group_key(pod))
    if job is None or group is None or not group.solo or not isinstance(job.rules, BatchRules):
        return None
    failure = batch_job.Failure(pod=pod.key, piece=pod.index, exit_code=exit_code, disrupted=disrupted)
    after, verdict = batch_job.failed(job, job.rules, failure)
    if after is not job:
        _note(world, group, after, job.rules)
    return verdict


def _note(world: World, group: RunningGroup, job: Job, rules: BatchRules) -> None:
    """Update a job's progress, and its Workload's reclaimable pods."""
    world.put(job)
    world.dirty[group.key] = None
    workload = world.workload(group.workload) if group.workload else None
    spare = batch_job.reclaimable(job, rules)
    if workload is not None and spare and not workload.finished:
        changed = reclaim(workload, {workload.pod_sets[0].name: spare})
        if changed is not workload:
            world.put(changed)
