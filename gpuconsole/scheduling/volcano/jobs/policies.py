"""Lifecycle policies: the action that follows an event, at once or after a timeout (Volcano 1.15 applyPolicies)."""

from collections.abc import Iterable

from msgspec import Struct

from gpuconsole.model.clock import Span
from gpuconsole.model.job import Job
from gpuconsole.model.volcano import JobAction, JobEvent, LifecyclePolicy
from gpuconsole.scheduling.volcano.jobs.requests import JobRequest
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of, tasks_of

_INTERNAL = (JobEvent.OUT_OF_SYNC, JobEvent.COMMAND_ISSUED, JobEvent.POD_RUNNING)


class Reaction(Struct, frozen=True):
    """The action to take, and its delay."""

    action: JobAction = JobAction.SYNC_JOB
    delay: Span = 0


SYNC = Reaction()


def react(job: Job, request: JobRequest) -> Reaction:
    """Choose the action for a request: a command's, else that of the task's first matching policy, else of the job's,
    else SyncJob.

    Internal events, requests for another job of the same name and pods of an older job version only cause SyncJob.
    """
    if request.action is not None:
        return Reaction(request.action)
    if request.event in _INTERNAL:
        return SYNC
    if (request.job_uid and request.job_uid != job.uid) or request.version < job.volcano_status.version:
        return SYNC
    task = next((task for task in tasks_of(job) if request.task and task.name == request.task), None)
    found = _first(task.policies, request) if task is not None else None
    return found or _first(spec_of(job).policies, request) or SYNC


def _first(policies: Iterable[LifecyclePolicy], request: JobRequest) -> Reaction | None:
    """The first policy that matches by exit code, whatever its events are, or by event."""
    for policy in policies:
        by_exit = policy.exit_code is not None and policy.exit_code == request.exit_code
        if by_exit or _fits(policy, request.event):
            return Reaction(policy.action, policy.timeout or 0)
    return None


def _fits(policy: LifecyclePolicy, event: JobEvent | None) -> bool:
    """True if the policy lists the event; PodPending matches only policies with a timeout."""
    if event is None or (event is JobEvent.POD_PENDING and policy.timeout is None):
        return False
    return event in policy.events or JobEvent.ANY in policy.events
