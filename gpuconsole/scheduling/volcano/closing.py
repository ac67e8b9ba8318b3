"""End of a session: sets the phase and conditions of each PodGroup."""

from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.status import TaskStatus
from gpuconsole.scheduling.volcano.session import VolcanoSession

SCHEDULED_STATUSES = (TaskStatus.RUNNING, TaskStatus.BOUND, TaskStatus.FAILED, TaskStatus.SUCCEEDED)
COMPLETED = (TaskStatus.FAILED, TaskStatus.SUCCEEDED)


def close(session: VolcanoSession) -> None:
    """Call the plugins' close functions, then set the phase of each job."""
    for plugin in session.plugins:
        plugin.on_session_close(session)
    for job in session.jobs.values():
        job.phase = phase_of(session, job)


def phase_of(session: VolcanoSession, job: JobInfo) -> str:
    """The phase that the PodGroup has after the session (getPodGroupPhase)."""
    condition = session.conditions.get(job.uid)
    if job.of_status(TaskStatus.RUNNING) and condition is not None and condition.type == "Unschedulable":
        return "Unknown"
    scheduled = job.count(SCHEDULED_STATUSES)
    if job.pod_group is not None and scheduled >= job.pod_group.min_member:
        return "Completed" if scheduled == job.count(COMPLETED) else "Running"
    return job.phase if job.phase == "Inqueue" else "Pending"
