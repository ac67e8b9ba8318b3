"""Start of bound pods; end and failure of pods that work independently."""

from collections.abc import Iterable, Mapping, Sequence

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import BatchRules, Job
from gpuconsole.scheduling.kueue.podset import reclaim
from gpuconsole.sim.controllers import pods, work
from gpuconsole.sim.controllers.solo import progress
from gpuconsole.sim.kernel import PodEnds, PodsStart
from gpuconsole.sim.pod_group_state import RunningGroup, running_group_key
from gpuconsole.sim.world import World


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
    todo = None if group is None or not group.solo else work.pod_task(world, group, pod)
    if todo is not None and todo.duration is not None:
        world.kernel.at(work.end_of(todo, pod.started, world.now), PodEnds(pod.key, pod.uid))


def end_pod(world: World, timer: PodEnds) -> None:
    """Complete the work of a pod, unless it was lost meanwhile."""
    pod = world.pod(timer.pod)
    if pod is None or pod.uid != timer.uid or pod.done or pod.deleted or not pod.node:
        return
    group, job = world.groups.get(running_group_key(pod)), world.job(pod.job)
    if group is not None and group.solo and job is not None and isinstance(job.rules, BatchRules):
        pods.end(world, pod)
        _note(world, group, progress.succeeded(job, pod.index), job.rules)


def count_failure(
    world: World, pod: Pod, exit_code: int | None, *, disrupted: bool = False
) -> progress.JobEnding | None:
    """Count a pod's failure; returns the job's end if the failure ends it."""
    job = world.job(pod.job) if pod.job else None
    group = world.groups.get(running_group_key(pod))
    if job is None or group is None or not group.solo or not isinstance(job.rules, BatchRules):
        return None
    failure = progress.Failure(pod=pod.key, piece=pod.index, exit_code=exit_code, disrupted=disrupted)
    after, verdict = progress.failed(job, job.rules, failure)
    if after is not job:
        _note(world, group, after, job.rules)
    return verdict


def _note(world: World, group: RunningGroup, job: Job, rules: BatchRules) -> None:
    """Update a job's progress, and its Workload's reclaimable pods."""
    world.put(job)
    world.dirty[group.key] = None
    workload = world.workload(group.workload) if group.workload else None
    spare = progress.reclaimable(job, rules)
    if workload is not None and spare and not workload.finished:
        changed = reclaim(workload, {workload.pod_sets[0].name: spare})
        if changed is not workload:
            world.put(changed)
