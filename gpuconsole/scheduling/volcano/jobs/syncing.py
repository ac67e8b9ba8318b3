"""Synchronization of a job's pods with its spec: pods to create and delete, and the resulting status (Volcano 1.15
syncJob).
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.model.volcano import VolcanoPhase, VolcanoStatus
from gpuconsole.scheduling.volcano.jobs.counts import counted, in_phase
from gpuconsole.scheduling.volcano.jobs.dependencies import may_start
from gpuconsole.scheduling.volcano.jobs.pods import pod_of
from gpuconsole.scheduling.volcano.jobs.requests import is_outdated
from gpuconsole.scheduling.volcano.jobs.states import Update, unchanged
from gpuconsole.scheduling.volcano.jobs.tasks import pod_name, spec_of, tasks_of

PENDING = "Pending"


class Syncing(Struct, frozen=True):
    """Pods to create and delete, and the job's status afterwards."""

    create: tuple[Pod, ...]
    delete: tuple[Pod, ...]
    status: VolcanoStatus


def sync(job: Job, pods: Sequence[Pod], group_phase: str, now: Time, update: Update = unchanged) -> Syncing:
    """Find pods to create and delete; `pods` are all pods of the job.

    No pods are created or deleted while the PodGroup waits to be enqueued (its phase is Pending, or empty).
    """
    job = replace(job, volcano_status=initial(job, now))
    if group_phase in ("", PENDING):
        after = update(job, job.volcano_status)
        return Syncing((), (), after if after == job.volcano_status else in_phase(after, now))
    return _with_pods(job, pods, now, update)


def initial(job: Job, now: Time) -> VolcanoStatus:
    """The job's status; that of a new job becomes Pending."""
    status = job.volcano_status
    if status.phase is not VolcanoPhase.NEW:
        return status
    begun = replace(status, phase=VolcanoPhase.PENDING, min_available=spec_of(job).min_available)
    return in_phase(begun, now)


def _with_pods(job: Job, pods: Sequence[Pod], now: Time, update: Update) -> Syncing:
    named = {pod.name: pod for pod in pods}
    create: list[Pod] = []
    delete: list[Pod] = []
    kept: list[Pod] = []
    leaving = 0
    wanted: set[str] = set()
    for task in tasks_of(job):
        missing = []
        for index in range(task.replicas):
            name = pod_name(job.name, task.name, index)
            wanted.add(name)
            old = named.get(name)
            if old is None:
                missing.append(index)
            elif old.deleted:
                leaving += 1
            else:
                kept.append(old)
                delete += [old] if is_outdated(old) else []
        if missing and may_start(job, task, named):
            create += [pod_of(job, task, index) for index in missing]
    surplus = [pod for pod in pods if pod.name not in wanted]
    delete += surplus
    least = replace(job.volcano_status, min_available=spec_of(job).min_available)
    status = counted(least, [*kept, *create], leaving + len(delete))
    after = update(job, status)
    return Syncing(tuple(create), tuple(delete), after if after == job.volcano_status else in_phase(after, now))
