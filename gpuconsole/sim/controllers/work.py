"""Work of running groups: when it begins, what an interruption loses, when it ends.

A group works while the pods that it needs run (`RunningGroup.pods_needed`). A checkpoint limits lost work: what was
done since the last one is repeated later. Work done and work lost add up to the time that the group ran. Where pods
work independently, each has its own work, end and failures (`begin_pod_work`, `end_pod_work`, `count_failure`).

The first functions are the progress of batch/v1 Jobs (Kubernetes' Job controller). A piece of work is the work of one
pod; pieces are numbered like the indexes of an Indexed Job, also for non-indexed jobs. `with_failure` and
`job_ending` are pure; which pieces are next is in `model.jobs.batch`.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time, parse_span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.device_requests import amount_of_gpus, pod_hourly
from gpuconsole.model.job import BatchRules, FailureRule, Job, SuccessRule
from gpuconsole.model.jobs.batch import added, count_finished, count_numbers, count_pieces, shared
from gpuconsole.model.jobs.workloads import CHECKPOINT, DURATION, ON_NOTICE
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.podset import with_reclaimable_pods
from gpuconsole.sim.controllers import pods
from gpuconsole.sim.controllers.pods import pods_of
from gpuconsole.sim.kernel import PodEnds, PodsStart, WorkEnds
from gpuconsole.sim.run_times import RunTimes, WorkKind, draw_run_time, number_of, random_for
from gpuconsole.sim.world import RunningGroup, World, running_group_key

BACKOFF_EXCEEDED = "Job has reached the specified backoff limit"
DISRUPTION = "DisruptionTarget"


class JobEnding(Struct, frozen=True):
    """How a job ended: whether it succeeded, and the reason and message of its Complete or Failed condition."""

    succeeded: bool
    reason: str
    message: str


SUCCEEDED_ENDING = JobEnding(True, "CompletionsReached", "Reached expected number of succeeded pods")


def pod_run_time(rules: BatchRules, whole: Span, at_once: int) -> Span:
    """The run time of a pod: that of its template, else the job's (`whole`) divided by its waves of `at_once` pods.

    It is a second at least: no pod starts and ends faster, and shorter waves would never finish.
    """
    if rules.pod_duration is not None:
        return rules.pod_duration
    waves = -(-count_pieces(rules, at_once) // max(1, at_once))
    return max(min(whole, SECOND), whole // max(1, waves))


def job_ending(job: Job, rules: BatchRules, limit: int, active: int) -> JobEnding | None:
    """How the job ends, if it is finished; `active` is the number of its pods that have not ended."""
    total, status = count_pieces(rules, limit), job.batch
    met = next(
        (n for n, rule in enumerate(rules.success_rules) if _is_success_rule_met(rule, status.completed, total)), None
    )
    if met is not None:
        return JobEnding(True, "SuccessPolicy", f"Matched rules at index {met}")
    if job.failures > job.backoff_limit:
        return JobEnding(False, "BackoffLimitExceeded", BACKOFF_EXCEEDED)
    failed = count_numbers((status.failed,), total)
    if rules.most_failed is not None and failed > rules.most_failed:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return JobEnding(False, "MaxFailedIndexesExceeded", message)
    if rules.completions is None:
        return SUCCEEDED_ENDING if status.completed and not active else None
    if count_finished(job, total) < total:
        return None
    return JobEnding(False, "FailedIndexes", "Job has failed indexes") if failed else SUCCEEDED_ENDING


def _is_success_rule_met(rule: SuccessRule, completed: str, total: int) -> bool:
    if not rule.indexes:
        return rule.count is not None and count_numbers((completed,), total) >= rule.count
    wanted = count_numbers((rule.indexes,), total) if rule.count is None else rule.count
    return 0 < wanted <= shared(rule.indexes, completed, total)


def with_completed_piece(job: Job, piece: int) -> Job:
    """The job with one more completed piece."""
    saved = {key: span for key, span in job.batch.saved.items() if key != str(piece)}
    return replace(job, batch=replace(job.batch, completed=added(job.batch.completed, piece), saved=saved))


class Failure(Struct, frozen=True, kw_only=True):
    """The cause of a pod's failure."""

    pod: str
    piece: int
    exit_code: int | None = None
    """None if its container did not exit by itself."""
    disrupted: bool = False
    """It was evicted, preempted, or its node was lost."""


def with_failure(job: Job, rules: BatchRules, failure: Failure) -> tuple[Job, JobEnding | None]:
    """The job with a pod's failure counted; and how the job ends, if its podFailurePolicy ends it, else None."""
    hit = next(((n, r) for n, r in enumerate(rules.failure_rules) if _matches_failure(r, failure)), None)
    action = hit[1].action if hit is not None else "Count"
    if hit is not None and action == "FailJob":
        return job, JobEnding(False, "PodFailurePolicy", _failure_text(hit[0], failure))
    if action == "Ignore":
        return job, None
    if rules.limit_per_index is None:
        return replace(job, failures=job.failures + 1), None
    key = str(failure.piece)
    times = job.batch.failures.get(key, 0) + 1
    status = replace(job.batch, failures={**job.batch.failures, key: times})
    if action == "FailIndex" or times > rules.limit_per_index:
        status = replace(status, failed=added(status.failed, failure.piece))
    return replace(job, failures=job.failures + 1, batch=status), None


def _matches_failure(rule: FailureRule, failure: Failure) -> bool:
    if rule.conditions:
        return failure.disrupted and DISRUPTION in rule.conditions
    if failure.exit_code is None or failure.exit_code == 0:
        return False
    return (failure.exit_code in rule.exit_codes) is not rule.excluded


def _failure_text(rule: int, failure: Failure) -> str:
    if failure.exit_code is None:
        return f"Pod {failure.pod} has condition {DISRUPTION} matching FailJob rule at index {rule}"
    value = f"Container main for pod {failure.pod} failed with exit code {failure.exit_code}"
    return f"{value} matching FailJob rule at index {rule}"


def reclaimable_pods(job: Job, rules: BatchRules) -> int:
    """Pods that a job no longer needs because few pieces are left (Kueue 0.19 job ReclaimablePods)."""
    parallelism = job.pod_sets[0].count
    total = parallelism if rules.completions is None else rules.completions
    over = count_finished(job, total)
    return max(0, parallelism - max(total - over, 0)) if parallelism > 1 and over else 0


class WorkLoss(Struct, frozen=True):
    """Lost work, which has to be repeated."""

    span: Span = 0
    gpu_seconds: float = 0.0
    cost: float = 0.0
    """USD at the prices of the nodes that it ran on."""


NO_LOSS = WorkLoss()


class WorkTask(Struct, frozen=True):
    """What a running group has to do: how long it works, and when it writes checkpoints."""

    duration: Span | None = None
    """None: the work continues until it is deleted."""
    checkpoint: Span | None = None
    done: Span = 0
    on_termination: Span | None = None
    """Time to write a checkpoint on termination; None if none is written then."""
    is_drawn: bool = False
    """True if the duration is drawn at random."""


def work_of_pod(world: World, group: RunningGroup, pod: Pod) -> WorkTask:
    """The work of one pod of a job whose pods work independently."""
    job = world.job(group.job)
    if job is None or not isinstance(job.rules, BatchRules):
        return WorkTask()
    done = job.batch.saved.get(str(pod.index), 0)
    duration = job.duration if job.rules.pod_duration is None else job.rules.pod_duration
    work_task = _new_task(world, group, duration, job.checkpoint_interval, done, job.annotations)
    whole = work_task.duration or 0
    if world.policy.run_times is not None and world.policy.run_times.is_drawn(job.created):
        whole = _drawn_duration(world, world.policy.run_times, pod.key, job)
    return replace(work_task, duration=pod_run_time(job.rules, whole, job.pod_sets[0].count))


def work_of_group(world: World, group: RunningGroup) -> WorkTask:
    """Determine the work of a running group by its object; the duration is drawn if unknown or by the policy."""
    owner_object = work_owner(world, group)
    work_task = _stated_work(world, group, owner_object)
    if world.policy.run_times is None or work_task.duration is None or owner_object is None:
        return work_task
    if isinstance(owner_object, Job) and not world.policy.run_times.is_drawn(owner_object.created):
        return work_task
    return replace(
        work_task, duration=_drawn_duration(world, world.policy.run_times, group.key, owner_object), is_drawn=True
    )


def _drawn_duration(world: World, run_times: RunTimes, key: str, owner_object: Job | Workload | Pod) -> Span:
    """The drawn duration of this work: from its arrival stream, else from similar past work.

    The independent pods of one job of a stream take equally long.
    """
    kind = _work_kind(world, owner_object)
    for stream in world.policy.arrivals if isinstance(owner_object, Job) else ():
        number = number_of(stream, owner_object.key)
        if number is not None:
            chance = random_for(world.seed, "run time", owner_object.key)
            return draw_run_time(stream, number, kind.gpus, run_times.known.get(key, 0), chance)
    return run_times.draw(world.seed, key, kind)


def _work_kind(world: World, owner_object: Job | Workload | Pod) -> WorkKind:
    """The kind of this work, by which similar work is found."""
    match owner_object:
        case Pod():
            return WorkKind(owner_object.namespace, "", world.devices.requested([owner_object])["gpus"])
        case _:
            local_queue = world.local_queue(f"{owner_object.namespace}/{owner_object.queue}")
            asked = world.devices.of_pod_sets(owner_object.namespace, owner_object.pod_sets)["gpus"]
            return WorkKind(owner_object.namespace, local_queue.cluster_queue if local_queue is not None else "", asked)


def _stated_work(world: World, group: RunningGroup, owner_object: Job | Workload | Pod | None) -> WorkTask:
    match owner_object:
        case Job() as job:
            if job.endless:
                return WorkTask()
            return _new_task(world, group, job.duration, job.checkpoint_interval, job.done, job.annotations)
        case Workload(annotations=annotations, done=done):
            return _new_task(
                world,
                group,
                _parse_annotation(annotations.get(DURATION)),
                _parse_annotation(annotations.get(CHECKPOINT)),
                done,
                annotations,
            )
        case Pod() as pod:
            annotations = {**pod.template.annotations, **pod.annotations}
            duration = _parse_annotation(annotations.get(DURATION))
            if duration is None and pod.template.restart_policy in ("", "Always"):
                return WorkTask()
            return _new_task(world, group, duration, _parse_annotation(annotations.get(CHECKPOINT)), 0, annotations)
        case None:
            return WorkTask()


def _new_task(
    world: World,
    group: RunningGroup,
    duration: Span | None,
    checkpoint: Span | None,
    done: Span,
    annotations: Mapping[str, str],
) -> WorkTask:
    on_notice = _parse_annotation(annotations.get(ON_NOTICE))
    if duration is not None:
        return WorkTask(duration, checkpoint, done, on_notice)
    drawn = world.policy.durations.sample(random_for(world.seed, "duration", group.key))
    return WorkTask(drawn, checkpoint, done, on_notice, is_drawn=True)


def work_owner(world: World, group: RunningGroup) -> Job | Workload | Pod | None:
    """The object that defines the group's work: its job, else its Workload, else its pod."""
    if group.job:
        return world.job(group.job)
    if group.workload:
        return world.workload(group.workload)
    return world.pod(group.pods[0])


def begin_work(world: World, group: RunningGroup) -> None:
    """Start the work, or continue it from its last checkpoint."""
    work_task = work_of_group(world, group)
    world.groups[group.key] = replace(group, start=world.now, is_reported=False)
    if work_task.duration is not None:
        world.kernel.set_timer(world.now + max(0, work_task.duration - work_task.done), WorkEnds(group.key, world.now))


def resume_work(world: World, group: RunningGroup, start: Time) -> None:
    """Continue work that has run since `start`, and set the timer of its end."""
    work_task = work_of_group(world, group)
    world.groups[group.key] = replace(group, start=start)
    if work_task.duration is not None:
        world.kernel.set_timer(work_end(work_task, start, world.now), WorkEnds(group.key, start))


def work_end(work_task: WorkTask, start: Time, now: Time) -> Time:
    """When work ends that runs since `start`; never before `now`.

    Work that should have ended ends now if its duration is stated. A drawn duration that is too short is doubled until
    it is long enough.
    """
    length = max(0, (work_task.duration or 0) - work_task.done)
    if work_task.is_drawn:
        length = max(SECOND, length)
        while start + length < now:
            length *= 2
    return max(now, start + length)


def is_work_done(world: World, group: RunningGroup) -> bool:
    """True if no work is left for these pods: their owner has finished, or the pod itself has."""
    match work_owner(world, group):
        case Job() as job:
            return job.ended
        case Workload() as workload:
            return workload.finished
        case Pod() as pod:
            return pod.done
        case None:
            return False


def interrupt_work(world: World, key: str, notice: Span = 0, *, pod: Pod | None = None) -> WorkLoss:
    """Stop the work of a running group: what its checkpoints do not cover is lost.

    Work that was not running loses nothing, nor does work that writes a checkpoint on termination, if `notice` is long
    enough. If only `pod` stops, the other pods continue if they work independently.
    """
    group = world.groups.get(key)
    if group is None or group.start is None:
        return NO_LOSS
    if group.is_independent:
        return _interrupt_independent(
            world, group, notice, pods_of(world, group) if pod is None else [pod], pod is None
        )
    job = world.job(group.job) if group.job else None
    if job is not None and job.endless:
        world.groups[key] = replace(group, start=None)
        return NO_LOSS
    work_task = work_of_group(world, group)
    ran = world.now - group.start
    safe = _checkpointed(work_task, ran, notice)
    world.groups[key] = replace(group, start=None)
    if safe:
        _store_done(world, group, work_task.done + safe)
    return _loss_of_group(world, group, ran - safe)


def _checkpointed(work_task: WorkTask, ran: Span, notice: Span) -> Span:
    """The part of the work done that checkpoints cover."""
    if work_task.on_termination is not None and work_task.on_termination <= notice:
        return ran
    return ran - ran % work_task.checkpoint if work_task.checkpoint else 0


def _interrupt_independent(
    world: World, group: RunningGroup, notice: Span, stopped: Sequence[Pod], all_stop: bool
) -> WorkLoss:
    """Interrupt each of these pods; services lose nothing, as they have no work to finish."""
    if all_stop:
        world.groups[group.key] = replace(group, start=None)
    job = world.job(group.job)
    if job is None or not isinstance(job.rules, BatchRules):
        return NO_LOSS
    losses, saved = [], dict(job.batch.saved)
    for pod in stopped:
        if not pod.started or pod.done or pod.deleted:
            continue
        work_task = work_of_pod(world, group, pod)
        ran = world.now - pod.started
        safe = _checkpointed(work_task, ran, notice)
        if safe:
            saved[str(pod.index)] = work_task.done + safe
        losses.append(_loss_of_pods(world, [pod], ran - safe))
    if saved != job.batch.saved:
        world.put(replace(job, batch=replace(job.batch, saved=saved)))
    lost = max((loss.span for loss in losses), default=0)
    return WorkLoss(lost, sum(loss.gpu_seconds for loss in losses), sum(loss.cost for loss in losses))


def _store_done(world: World, group: RunningGroup, done: Span) -> None:
    match work_owner(world, group):
        case Job() as job:
            world.put(replace(job, done=done))
        case Workload() as workload:
            world.put(replace(workload, done=done))


def _loss_of_group(world: World, group: RunningGroup, lost: Span) -> WorkLoss:
    return _loss_of_pods(world, pods_of(world, group), lost)


def _loss_of_pods(world: World, pods: Sequence[Pod], lost: Span) -> WorkLoss:
    seconds, cost, prices = 0.0, 0.0, world.policy.prices
    for pod in pods:
        if lost and pod.node:
            node, devices = world.node(pod.node), world.devices.claimed_gpus(pod)
            # A pod that started after the others has lost no more than its own time.
            span = min(lost, world.now - pod.started) / SECOND
            seconds += amount_of_gpus(pod, node, devices) * span
            cost += pod_hourly(pod, node, prices, devices) * span / 3600
    return WorkLoss(lost, seconds, cost)


def _parse_annotation(text: str | None) -> Span | None:
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
                begin_pod_work(world, pod)
        else:
            at = world.now + world.draw_latency("bind", "start", of=(key, pods_of_group[0].uid))
            world.kernel.set_timer(at, PodsStart(tuple((pod.key, pod.uid) for pod in pods_of_group)))


def start_pods(world: World, started: Iterable[tuple[str, str]]) -> None:
    """Start the containers of these pods (key and uid), unless they were deleted or lost meanwhile."""
    for key, uid in started:
        pod = world.pod(key)
        if pod is not None and pod.uid == uid and not (pod.done or pod.deleted or pod.started):
            begin_pod_work(world, pods.start_containers(world, pod))


def begin_pod_work(world: World, pod: Pod) -> None:
    """Set the timer that ends the work of a started pod, if it works independently."""
    group = world.groups.get(running_group_key(pod))
    work_task = None if group is None or not group.is_independent else work_of_pod(world, group, pod)
    if work_task is not None and work_task.duration is not None:
        world.kernel.set_timer(work_end(work_task, pod.started, world.now), PodEnds(pod.key, pod.uid))


def end_pod_work(world: World, timer: PodEnds) -> None:
    """Complete the work of a pod, unless it was lost meanwhile."""
    pod = world.pod(timer.pod)
    if pod is None or pod.uid != timer.uid or pod.done or pod.deleted or not pod.node:
        return
    group, job = world.groups.get(running_group_key(pod)), world.job(pod.job)
    if group is not None and group.is_independent and job is not None and isinstance(job.rules, BatchRules):
        pods.complete_pod(world, pod)
        _update_job(world, group, with_completed_piece(job, pod.index), job.rules)


def count_failure(world: World, pod: Pod, exit_code: int | None, *, disrupted: bool = False) -> JobEnding | None:
    """Count a failed pod for its job's backoffLimit and podFailurePolicy; returns the job's end if it ends the job."""
    job = world.job(pod.job) if pod.job else None
    group = world.groups.get(running_group_key(pod))
    if job is None or group is None or not group.is_independent or not isinstance(job.rules, BatchRules):
        return None
    failure = Failure(pod=pod.key, piece=pod.index, exit_code=exit_code, disrupted=disrupted)
    after, verdict = with_failure(job, job.rules, failure)
    if after is not job:
        _update_job(world, group, after, job.rules)
    return verdict


def _update_job(world: World, group: RunningGroup, job: Job, rules: BatchRules) -> None:
    """Update a job's progress, and its Workload's reclaimable pods."""
    world.put(job)
    world.groups_to_reconcile[group.key] = None
    workload = world.workload(group.workload) if group.workload else None
    spare = reclaimable_pods(job, rules)
    if workload is not None and spare and not workload.finished:
        changed = with_reclaimable_pods(workload, {workload.pod_sets[0].name: spare})
        if changed is not workload:
            world.put(changed)
