"""Requests to the job controller, and the lifecycle policies that choose the action, at once or after a timeout.

Requests are events of jobs, pods and PodGroups, and commands (Volcano 1.15 applyPolicies). An action with a timeout
waits in `DelayedAction`, unless another event or action cancels it.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.job import Job
from gpuconsole.model.volcano import JobAction, JobEvent, LifecyclePolicy, PodGroup
from gpuconsole.scheduling.volcano.jobs.states import (
    JOB_NAME,
    JOB_VERSION,
    OUT_OF_SYNC,
    PARTITION,
    TASK_SPEC,
    PodTarget,
    TargetType,
    spec_of,
    task_replicas,
    tasks_of,
)


class JobRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event or a command for the job controller (Volcano 1.15 apis.Request)."""

    job: str = ""
    """`Kind/namespace/name`"""
    job_uid: str = ""
    task: str = ""
    pod: str = ""
    """The name of the pod with the event; empty for events of the job."""
    pod_uid: str = ""
    partition: str = ""
    event: JobEvent | None = None
    exit_code: int = 0
    action: JobAction | None = None
    """The action of a command, which overrides all policies."""
    version: int = 0
    """The job's version when the pod was created."""


def is_outdated(pod: Pod) -> bool:
    """True if the pod is to be recreated, so that its events are ignored."""
    return OUT_OF_SYNC in pod.annotations


def partition_of(pod: Pod) -> str:
    """The partition id of a pod; empty if it has none."""
    return pod.labels.get(PARTITION, "")


def request_of(pod: Pod, job: Job, event: JobEvent, exit_code: int = 0) -> JobRequest | None:
    """The controller's request for an event of a pod; None if its annotations name no Volcano Job.

    A pod marked as out of sync only causes the event OutOfSync.
    """
    version = pod.annotations.get(JOB_VERSION, "")
    if not version.isdecimal() or JOB_NAME not in pod.annotations or TASK_SPEC not in pod.annotations:
        return None
    return JobRequest(
        job=job.key,
        job_uid=job.uid,
        task=pod.annotations[TASK_SPEC],
        pod=pod.name,
        pod_uid=pod.uid,
        partition=partition_of(pod),
        event=JobEvent.OUT_OF_SYNC if is_outdated(pod) else event,
        exit_code=exit_code,
        version=int(version),
    )


def request_of_job(job: Job, old: Job | None = None) -> JobRequest | None:
    """The request for a new job, or one whose pods, spec or phase changed; None otherwise."""
    same = old is not None and (old.pod_sets, old.volcano, old.volcano_status.phase) == (
        job.pod_sets,
        job.volcano,
        job.volcano_status.phase,
    )
    return None if same else JobRequest(job=job.key, event=JobEvent.OUT_OF_SYNC)


def request_of_group(job: str, group: PodGroup, old: PodGroup) -> JobRequest | None:
    """The request for a PodGroup of a job (by key) whose phase changed; None otherwise.

    Phase Unknown is an event on which the job's policies can act.
    """
    if group.phase == old.phase:
        return None
    return JobRequest(job=job, event=JobEvent.UNKNOWN if group.phase == "Unknown" else None)


def request_of_command(job: str, action: JobAction) -> JobRequest:
    """The request for a command on a job (by key), such as abort or resume."""
    return JobRequest(job=job, event=JobEvent.COMMAND_ISSUED, action=action)


def event_of_change(old: Pod, new: Pod, job: Job, pods: Collection[Pod]) -> JobEvent:
    """The event for a changed pod, OutOfSync if no other applies; `pods` are all pods of the job, after the change."""
    changed = old.phase is not new.phase
    match new.phase:
        case PodPhase.FAILED if changed:
            return JobEvent.POD_FAILED
        case PodPhase.SUCCEEDED if changed and is_completed(job, new.annotations.get(TASK_SPEC, ""), pods):
            return JobEvent.TASK_COMPLETED
        case PodPhase.RUNNING if changed:
            return JobEvent.POD_RUNNING
        case PodPhase.PENDING if changed:
            return JobEvent.POD_PENDING
        case _:
            return JobEvent.OUT_OF_SYNC


def is_completed(job: Job, task: str, pods: Collection[Pod]) -> bool:
    """True if at least as many pods of a task have succeeded as it has replicas."""
    replicas = task_replicas(job, task)
    done = sum(pod.annotations.get(TASK_SPEC) == task and pod.phase is PodPhase.SUCCEEDED for pod in pods)
    return 0 < replicas <= done


_INTERNAL = (JobEvent.OUT_OF_SYNC, JobEvent.COMMAND_ISSUED, JobEvent.POD_RUNNING)


class PolicyAction(Struct, frozen=True):
    """What the controller does about a request: the action, and its delay."""

    action: JobAction = JobAction.SYNC_JOB
    delay: Span = 0


SYNC = PolicyAction()


def choose_action(job: Job, request: JobRequest) -> PolicyAction:
    """Choose the action for a request: a command's, else that of the task's first matching policy, else of the job's,
    else SyncJob.

    Internal events, requests for another job of the same name and pods of an older job version only cause SyncJob.
    """
    if request.action is not None:
        return PolicyAction(request.action)
    if request.event in _INTERNAL:
        return SYNC
    if (request.job_uid and request.job_uid != job.uid) or request.version < job.volcano_status.version:
        return SYNC
    task = next((task for task in tasks_of(job) if request.task and task.name == request.task), None)
    found = _first_matching_policy(task.policies, request) if task is not None else None
    return found or _first_matching_policy(spec_of(job).policies, request) or SYNC


def _first_matching_policy(policies: Iterable[LifecyclePolicy], request: JobRequest) -> PolicyAction | None:
    """The first policy that matches by exit code, whatever its events are, or by event."""
    for policy in policies:
        by_exit = policy.exit_code is not None and policy.exit_code == request.exit_code
        if by_exit or _lists_event(policy, request.event):
            return PolicyAction(policy.action, policy.timeout or 0)
    return None


def _lists_event(policy: LifecyclePolicy, event: JobEvent | None) -> bool:
    """True if the policy lists the event; PodPending matches only policies with a timeout."""
    if event is None or (event is JobEvent.POD_PENDING and policy.timeout is None):
        return False
    return event in policy.events or JobEvent.ANY in policy.events


_POD_EVENTS = (JobEvent.POD_PENDING, JobEvent.POD_RUNNING, JobEvent.POD_FAILED, JobEvent.POD_EVICTED)
_INTERNAL_ACTIONS = (
    JobAction.SYNC_JOB,
    JobAction.ENQUEUE_JOB,
    JobAction.SYNC_QUEUE,
    JobAction.OPEN_QUEUE,
    JobAction.CLOSE_QUEUE,
)
_TARGETS = {
    JobAction.RESTART_TASK: TargetType.TASK,
    JobAction.RESTART_POD: TargetType.POD,
    JobAction.RESTART_PARTITION: TargetType.PARTITION,
}


class DelayedAction(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An action that waits for its timeout: it runs at `due` unless it is cancelled."""

    request: JobRequest
    action: JobAction
    due: Time


DelayedActions = Mapping[str, DelayedAction]
"""Waiting action by the name of the pod whose event caused it; the key is empty for an event of the whole job."""


def target_of(action: JobAction, request: JobRequest) -> PodTarget | None:
    """The pods that an action targets; None for an action on the whole job."""
    kind = _TARGETS.get(action)
    match kind:
        case None:
            return None
        case TargetType.TASK:
            return PodTarget(kind, request.task)
        case TargetType.POD:
            return PodTarget(kind, request.task, request.pod)
        case TargetType.PARTITION:
            return PodTarget(kind, request.task, request.pod, request.partition)


def add_delayed(delayed_actions: DelayedActions, delayed: DelayedAction) -> DelayedActions:
    """Add a delayed action; if the pod already has the same action, that one keeps its due time."""
    known = delayed_actions.get(delayed.request.pod)
    if known is not None and known.action is delayed.action:
        return delayed_actions
    return {**delayed_actions, delayed.request.pod: delayed}


def cancel_obsolete(delayed_actions: DelayedActions, request: JobRequest) -> DelayedActions:
    """Cancel a pod's delayed action that a new event of the pod makes obsolete.

    An action for PodPending is obsolete when that pod (by uid) runs, fails or is evicted; one for PodFailed or
    PodEvicted when a pod of this name runs.
    """
    known = delayed_actions.get(request.pod)
    if known is None or request.event not in _POD_EVENTS or request.event is JobEvent.POD_PENDING:
        return delayed_actions
    waited = known.request.event is JobEvent.POD_PENDING and known.request.pod_uid == request.pod_uid
    failed = known.request.event in (JobEvent.POD_FAILED, JobEvent.POD_EVICTED)
    if waited or (failed and request.event is JobEvent.POD_RUNNING):
        return {pod: delayed for pod, delayed in delayed_actions.items() if pod != request.pod}
    return delayed_actions


def cancel_replaced(delayed_actions: DelayedActions, action: JobAction, request: JobRequest) -> DelayedActions:
    """Cancel the delayed actions that an executed action replaces: same kind of target, and the same target.

    Internal actions such as SyncJob cancel nothing.
    """
    if action in _INTERNAL_ACTIONS:
        return delayed_actions
    return {pod: delayed for pod, delayed in delayed_actions.items() if not _has_same_target(delayed, action, request)}


def _has_same_target(delayed: DelayedAction, action: JobAction, request: JobRequest) -> bool:
    kind = _TARGETS.get(action)
    if _TARGETS.get(delayed.action) is not kind:
        return False
    match kind:
        case None:
            return True
        case TargetType.TASK:
            return delayed.request.task == request.task
        case TargetType.POD:
            return delayed.request.pod == request.pod
        case TargetType.PARTITION:
            return delayed.request.partition == request.partition
