"""stalegangeviction action: evicts gangs that run below their minimum for too long (KAI 0.13
actions/stalegangeviction).
"""

from gpuconsole.scheduling.kai import messages
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.statuses import ACTIVE_ALLOCATED
from gpuconsole.scheduling.kai.api.tasks import DEFAULT_POD_SET, PodInfo
from gpuconsole.scheduling.kai.session import EvictedTask, KaiSession


def evict_stale_gangs(session: KaiSession) -> None:
    """Record when gangs became stale, and evict those whose grace period is over."""
    for job in session.jobs.values():
        if job.stale:
            _expire(session, job)
        else:
            job.stale_since = None


def _expire(session: KaiSession, job: PodGroupInfo) -> None:
    if job.stale_since is None:
        job.stale_since = session.now
    grace = session.parameters.staleness_grace
    if grace < 0 or session.now - job.stale_since < grace:
        return
    going = [task for task in job.tasks() if task.status in ACTIVE_ALLOCATED]
    for task in going:
        session.evict(EvictedTask(task=task, message=_reason(job, task), action="stalegangeviction", gang=len(going)))


def _reason(job: PodGroupInfo, task: PodInfo) -> str:
    pod = f"{task.namespace}/{task.name}"
    if list(job.pod_sets) == [DEFAULT_POD_SET]:
        return messages.gang_evicted(pod, job.pod_sets[DEFAULT_POD_SET].minimum)
    return messages.gang_evicted(pod, job.pod_sets[task.set_name].minimum, task.set_name)
