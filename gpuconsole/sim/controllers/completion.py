"""The end of running groups: their work completes, they fail for good, or their owner is deleted."""

from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job, JobPhase, LaunchRules
from gpuconsole.model.volcano import JobAction
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.podset import ELASTIC
from gpuconsole.scheduling.kueue.slices import unfinished_slices
from gpuconsole.scheduling.volcano.jobs.requests import request_of_command
from gpuconsole.sim.controllers import job_lifecycle, pods, volcano_jobs, work, workloads
from gpuconsole.sim.controllers.batch_job import BACKOFF_EXCEEDED, JobEnding
from gpuconsole.sim.kernel import JobDeadline, WorkEnds
from gpuconsole.sim.world import RunningGroup, World


def complete_work(world: World, timer: WorkEnds) -> None:
    """Complete the work, unless it was interrupted since the timer was set."""
    group = world.groups.get(timer.group)
    if group is not None and group.start == timer.start:
        complete_group(world, group)


def complete_group(world: World, group: RunningGroup, *, by_command: bool = False) -> None:
    """All pods of a running group succeed, its job and its Workload finish, and its quota is released.

    Of a Volcano Job only running pods complete; pending ones run later, unless a command ended the job (`by_command`).
    """
    job = world.job(group.job) if group.job else None
    if job is not None and job.volcano is not None and not group.workload:
        ran = volcano_jobs.complete_work(world, job)
        if not ran or (by_command and not all(pod.done for pod in pods.pods_of(world, group))):
            volcano_jobs.queue_request(world, request_of_command(job.key, JobAction.COMPLETE_JOB))
        return
    members = pods.pods_of(world, group)
    _delete_non_deciding_pods(world, job, members)
    pods.complete_group(world, group)
    _finish_group(world, group, JobPhase.SUCCEEDED, "Succeeded", workloads.SUCCEEDED, members)


def _delete_non_deciding_pods(world: World, job: Job | None, members: list[Pod]) -> None:
    """Delete the pods that do not decide how a job ends (a launcher's workers, parameter servers)."""
    if job is not None and isinstance(job.rules, LaunchRules) and job.rules.deciders:
        pods.delete_pods(world, [pod for pod in members if pod.pod_set not in job.rules.deciders], "JobEnded")


def end_job(world: World, group: RunningGroup, ending: JobEnding) -> None:
    """End a running group's job as `ending` says, and delete its remaining pods."""
    members = pods.pods_of(world, group)
    loss = work.interrupt_work(world, group.key) if not ending.succeeded else work.NO_LOSS
    pods.delete_pods(world, [pod for pod in members if not pod.done], ending.reason)
    pods.delete_group(world, group)
    if ending.succeeded:
        _finish_group(world, group, JobPhase.SUCCEEDED, "Succeeded", workloads.SUCCEEDED, members)
    else:
        _finish_group(world, group, JobPhase.FAILED, "Failed", ending.message, members, loss)


def fail_over_deadline(world: World, timer: JobDeadline) -> None:
    """Fail a job that exceeded its activeDeadlineSeconds."""
    job = job_lifecycle.job_over_deadline(world, timer)
    group = None if job is None else next((c for c in world.groups.values() if c.job == job.key), None)
    if group is not None:
        end_job(world, group, JobEnding(False, "DeadlineExceeded", job_lifecycle.DEADLINE_EXCEEDED))


def fail_over_backoff_limit(world: World, group: RunningGroup) -> None:
    """Fail a job that exceeded its backoffLimit and has no pods left."""
    members = pods.pods_of(world, group)
    pods.delete_group(world, group)
    _finish_group(world, group, JobPhase.FAILED, "Failed", BACKOFF_EXCEEDED, members)


def finish_pending(world: World, workload: Workload) -> None:
    """Finish a pending workload and its job; it has no pods."""
    job_lifecycle.set_phase(world, workload.owner, JobPhase.SUCCEEDED)
    workloads.finish_workload(world, workload, "Succeeded", workloads.SUCCEEDED)
    job_lifecycle.schedule_removal(world, (world.workload(workload.key), world.job(workload.owner)))


def delete_owner(world: World, kind: type[Workload] | type[Job], key: str) -> None:
    """Delete a Workload with its job, or a job without a Workload; their pods terminate in their grace period."""
    workload = world.workload(key) if kind is Workload else None
    job = world.job(key) if kind is Job else world.job(workload.owner) if workload is not None else None
    group = world.groups.get(key)
    members = _pods_of_group(world, key, group)
    if group is not None:
        # Work under way must not complete while its pods terminate.
        work.interrupt_work(world, key)
        world.groups_to_reconcile[key] = None
    if job is not None:
        world.drop(Job, job.key)
        if job.volcano is not None:
            volcano_jobs.delete_group(world, job)
    if workload is not None:
        queue, priority, amount = workload.cluster_queue, workload.priority, world.devices.of_workload(workload)
        world.drop(Workload, key)
        if workload.checks:
            world.workloads_with_checks_due[key] = None
        world.record_event(HistoryEventKind.DELETED, workload=key, queue=queue, priority=priority, **amount)
    else:
        world.record_event(HistoryEventKind.DELETED, workload=key)
    pods.delete_pods(world, members, "Deleted")
    for other in _other_slices(world, workload) if workload is not None and job is not None else ():
        delete_owner(world, Workload, other.key)


def _other_slices(world: World, workload: Workload) -> list[Workload]:
    """Other unfinished slices of the same elastic job, such as one that waits to replace this one."""
    if ELASTIC not in workload.annotations:
        return []
    slices = unfinished_slices(world.state.table("workloads").all(), workload.owner)
    return [other for other in slices if other.key != workload.key]


def _pods_of_group(world: World, key: str, group: RunningGroup | None) -> list[Pod]:
    """The pods of a running group, including those left behind when it or a wave of its pods finished."""
    if group is not None and not group.is_independent:
        return pods.pods_of(world, group)
    return [pod for pod in world.state.table("pods").all() if key in (pod.workload, pod.job)]


def _finish_group(
    world: World,
    group: RunningGroup,
    phase: JobPhase,
    reason: str,
    message: str,
    members: list[Pod],
    loss: work.WorkLoss = work.NO_LOSS,
) -> None:
    job = group.job
    job_lifecycle.set_phase(world, job, phase)
    workload = world.workload(group.workload) if group.workload else None
    if workload is not None:
        workloads.finish_workload(world, workload, reason, message)
        for other in _other_slices(world, workload):
            workloads.finish_workload(world, other, reason, message)
    else:
        what = HistoryEventKind.FAILED if phase is JobPhase.FAILED else HistoryEventKind.FINISHED
        subject = job or members[0].key
        # The requested GPUs: on a live cluster the assigned ones are a guess, and may be fewer.
        world.record_event(
            what,
            workload=subject,
            reason=reason,
            message=message,
            lost_gpu_seconds=loss.gpu_seconds,
            cost=loss.cost,
            **world.devices.requested(members),
        )
    present = job_lifecycle.finished_pods_of(world, world.job(job), members)
    job_lifecycle.schedule_removal(world, (world.workload(group.workload), world.job(job), *present))
    job_lifecycle.schedule_ttl_removal(world, world.job(job), (world.workload(group.workload), *present))
