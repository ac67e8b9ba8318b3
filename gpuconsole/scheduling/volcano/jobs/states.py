"""State machines of Volcano's controllers: Jobs and queues (Volcano 1.15 pkg/controllers).

State machine of a Volcano Job: the effect of each action in each phase (Volcano 1.15 pkg/controllers/job/state).

An action plan says which pods are deleted and how the status changes once they are counted.

Opening and closing of Volcano's queues, and the effect on child queues (Volcano 1.15 controllers/queue).
"""

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import PodPhase
from gpuconsole.model.job import Job
from gpuconsole.model.volcano import JobAction, VolcanoPhase, VolcanoQueue, VolcanoStatus
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of, tasks_of, total_least, total_replicas


class ControllerCall(StrEnum):
    """Operation of the job controller."""

    SYNC = "syncJob"
    """Create missing pods, and delete surplus ones."""
    KILL = "killJob"
    """Delete the job's pods, except those in retained phases."""
    KILL_TARGET = "killTarget"
    """Delete a task's pods, a partition's, or one pod."""


class TargetType(StrEnum):
    """What part of a job an action targets."""

    TASK = "task"
    POD = "pod"
    PARTITION = "partition"


class PodTarget(Struct, frozen=True, omit_defaults=True):
    """The pods that an action targets."""

    type: TargetType
    task: str = ""
    pod: str = ""
    partition: str = ""


Update = Callable[[Job, VolcanoStatus], VolcanoStatus]
"""Computes the new status once pods are counted; the same object if the phase does not change."""
ENDED = frozenset((PodPhase.SUCCEEDED, PodPhase.FAILED))
NONE: frozenset[PodPhase] = frozenset()


def unchanged(job: Job, status: VolcanoStatus) -> VolcanoStatus:
    """Keep the status as it is."""
    return status


class ActionPlan(Struct, frozen=True):
    """The operation, the pods that it targets, and the change of the status."""

    call: ControllerCall
    retain: frozenset[PodPhase] = NONE
    """Pods in these phases are not deleted when the job is killed."""
    target: PodTarget | None = None
    update: Update = unchanged


def course(job: Job, action: JobAction, target: PodTarget | None = None) -> ActionPlan:
    """The plan of an action in the job's current phase."""
    match job.volcano_status.phase:
        case VolcanoPhase.PENDING | VolcanoPhase.NEW:
            return _active(action, target, _from_pending)
        case VolcanoPhase.RUNNING:
            return _active(action, target, _from_running)
        case VolcanoPhase.RESTARTING:
            return _restarting(action, target)
        case VolcanoPhase.ABORTING:
            return _RESUME if action is JobAction.RESUME_JOB else _kill(_once_gone(VolcanoPhase.ABORTED))
        case VolcanoPhase.ABORTED:
            return _RESUME if action is JobAction.RESUME_JOB else _kill(unchanged)
        case VolcanoPhase.TERMINATING:
            return _kill(_once_gone(VolcanoPhase.TERMINATED))
        case VolcanoPhase.COMPLETING:
            return _kill(_once_gone(VolcanoPhase.COMPLETED))
        case _:
            return _kill(unchanged)


_RESTARTS = (JobAction.RESTART_TASK, JobAction.RESTART_POD, JobAction.RESTART_PARTITION)
_STOPS = {
    JobAction.ABORT_JOB: VolcanoPhase.ABORTING,
    JobAction.COMPLETE_JOB: VolcanoPhase.COMPLETING,
    JobAction.TERMINATE_JOB: VolcanoPhase.TERMINATING,
}


def _active(action: JobAction, target: PodTarget | None, look: Update) -> ActionPlan:
    if action is JobAction.RESTART_JOB:
        return ActionPlan(ControllerCall.KILL, NONE, None, _restart)
    if action in _RESTARTS:
        return ActionPlan(ControllerCall.KILL_TARGET, NONE, target, _restart)
    if action in _STOPS:
        return _kill(_to(_STOPS[action]))
    return ActionPlan(ControllerCall.SYNC, NONE, None, look)


def _restarting(action: JobAction, target: PodTarget | None) -> ActionPlan:
    if action is JobAction.SYNC_JOB:
        return ActionPlan(ControllerCall.SYNC, NONE, None, _from_restarting)
    if action in _RESTARTS:
        return ActionPlan(ControllerCall.KILL_TARGET, NONE, target, _from_restarting)
    return ActionPlan(ControllerCall.KILL, NONE, None, _from_restarting)


def _kill(update: Update) -> ActionPlan:
    return ActionPlan(ControllerCall.KILL, ENDED, None, update)


def _to(phase: VolcanoPhase) -> Update:
    return lambda job, status: replace(status, phase=phase)


def _once_gone(phase: VolcanoPhase) -> Update:
    """Change to the next phase as soon as no pod is pending, running or terminating."""
    return lambda job, status: status if status.alive else replace(status, phase=phase)


def _restart(job: Job, status: VolcanoStatus) -> VolcanoStatus:
    return replace(status, phase=VolcanoPhase.RESTARTING, retry_count=status.retry_count + 1)


_RESUME = _kill(_restart)


def _from_pending(job: Job, status: VolcanoStatus) -> VolcanoStatus:
    """A job is running when enough of its pods run or have ended."""
    enough = spec_of(job).min_available <= status.running + status.succeeded + status.failed
    return replace(status, phase=VolcanoPhase.RUNNING) if enough else status


def _from_restarting(job: Job, status: VolcanoStatus) -> VolcanoStatus:
    """A job fails after its last retry, and is pending again once enough of its pods are not terminating."""
    if status.retry_count >= spec_of(job).max_retry:
        return replace(status, phase=VolcanoPhase.FAILED)
    if total_replicas(job) - status.terminating >= status.min_available:
        return replace(status, phase=VolcanoPhase.PENDING)
    return status


def _from_running(job: Job, status: VolcanoStatus) -> VolcanoStatus:
    """A job ends when enough pods have succeeded or all have ended, and is pending again if too many pods are."""
    spec, total = spec_of(job), total_replicas(job)
    if total == 0:
        # Scaled down to zero replicas: the phase stays.
        return status
    if spec.min_success is not None and status.succeeded >= spec.min_success:
        return replace(status, phase=VolcanoPhase.COMPLETED)
    if status.succeeded + status.failed == total:
        return replace(status, phase=_outcome(job, status))
    if status.pending > total - spec.min_available:
        return replace(status, phase=VolcanoPhase.PENDING)
    return status


def _outcome(job: Job, status: VolcanoStatus) -> VolcanoPhase:
    spec = spec_of(job)
    if spec.min_available >= total_least(job):
        for task in tasks_of(job):
            counted = status.tasks.get(task.name)
            least = task.spec.min_available
            if least is not None and counted is not None and counted.get(PodPhase.SUCCEEDED, 0) < least:
                return VolcanoPhase.FAILED
    enough = spec.min_available if spec.min_success is None else spec.min_success
    return VolcanoPhase.COMPLETED if status.succeeded >= enough else VolcanoPhase.FAILED


OPEN, CLOSED, CLOSING, UNKNOWN = "Open", "Closed", "Closing", "Unknown"
ROOT = "root"
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"
"""Annotation of a queue that was closed with its parent, and opens with it."""
_SHUT = (CLOSED, CLOSING)
Queues = Mapping[str, VolcanoQueue]


def next_queue_state(state: str, action: JobAction, busy: bool) -> str:
    """The state after an action; a `busy` queue has PodGroups and stays Closing until they are gone."""
    shut = CLOSING if busy else CLOSED
    match state, action:
        case _, JobAction.OPEN_QUEUE:
            return OPEN
        case "Closed", _:
            return CLOSED
        case "Closing", _:
            return shut
        case _, JobAction.CLOSE_QUEUE:
            return shut
        case "Unknown", _:
            return UNKNOWN
        case _:
            return OPEN


def queue_refusal(queue: VolcanoQueue, action: JobAction, queues: Queues) -> str:
    """Why a queue cannot be opened or closed; empty if it can."""
    if action is JobAction.CLOSE_QUEUE and queue.name == ROOT and queue.state not in _SHUT:
        return "Root queue cannot be closed"
    parent = queues.get(queue.parent) if queue.parent not in ("", ROOT) else None
    if action is JobAction.OPEN_QUEUE and queue.state != OPEN and parent is not None and parent.state in _SHUT:
        return (
            f"Failed to open queue {queue.name} because its parent queue {parent.name} is closing or closed. "
            "Open the parent queue first."
        )
    return ""


def queue_command(name: str, action: JobAction, queues: Queues, busy: Collection[str]) -> list[VolcanoQueue]:
    """The changed queues when a queue is opened or closed, itself included; none if that is refused.

    Open descendants close with it, and those that closed with it open with it. `busy` are queues with PodGroups.
    """
    queue = queues[name]
    if queue_refusal(queue, action, queues):
        return []
    after = replace(queue, state=next_queue_state(queue.state, action, name in busy))
    if action is JobAction.OPEN_QUEUE and CLOSED_BY_PARENT in queue.annotations:
        after = replace(after, annotations={**queue.annotations, CLOSED_BY_PARENT: "false"})
    changed = [after] if after != queue else []
    known = {**queues, name: after}
    for child in sorted((child for child in queues.values() if child.parent == name), key=lambda child: child.name):
        if action is JobAction.CLOSE_QUEUE and child.state not in _SHUT:
            noted = replace(child, annotations={**child.annotations, CLOSED_BY_PARENT: "true"})
            changed += queue_command(child.name, action, {**known, child.name: noted}, busy)
        elif action is JobAction.OPEN_QUEUE and child.annotations.get(CLOSED_BY_PARENT) == "true":
            changed += queue_command(child.name, action, known, busy)
    return changed
