"""Delayed actions: wait for their timeout, and are cancelled by later events (Volcano 1.15 delayed actions)."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.volcano_jobs import JobAction, JobEvent
from gpuconsole.scheduling.volcano.jobs.requests import JobRequest
from gpuconsole.scheduling.volcano.jobs.states import PodTarget, TargetType

_POD_EVENTS = (JobEvent.POD_PENDING, JobEvent.POD_RUNNING, JobEvent.POD_FAILED, JobEvent.POD_EVICTED)
_INTERNAL = (
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


class Delayed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An action that is due later."""

    request: JobRequest
    action: JobAction
    due: Time


Delays = Mapping[str, Delayed]
"""By the name of the pod that the event was about; one of the whole job has no name."""


def target_of(action: JobAction, request: JobRequest) -> PodTarget | None:
    """What an action is about: the whole job, or a part of it."""
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


def added(delays: Delays, delayed: Delayed) -> Delays:
    """The actions with one more; the same action for the same pod is not set anew."""
    known = delays.get(delayed.request.pod)
    if known is not None and known.action is delayed.action:
        return delays
    return {**delays, delayed.request.pod: delayed}


def outlived(delays: Delays, request: JobRequest) -> Delays:
    """The actions that still make sense after an event of a pod.

    A pod that is not pending any more need not be dealt with for it; one that runs has got over its failure.
    """
    known = delays.get(request.pod)
    if known is None or request.event not in _POD_EVENTS or request.event is JobEvent.POD_PENDING:
        return delays
    waited = known.request.event is JobEvent.POD_PENDING and known.request.pod_uid == request.pod_uid
    failed = known.request.event in (JobEvent.POD_FAILED, JobEvent.POD_EVICTED)
    if waited or (failed and request.event is JobEvent.POD_RUNNING):
        return {pod: delayed for pod, delayed in delays.items() if pod != request.pod}
    return delays


def settled(delays: Delays, action: JobAction, request: JobRequest) -> Delays:
    """The actions that are left when one was carried out: others of its kind, about the same part, are not needed."""
    if action in _INTERNAL:
        return delays
    return {pod: delayed for pod, delayed in delays.items() if not _same(delayed, action, request)}


def _same(delayed: Delayed, action: JobAction, request: JobRequest) -> bool:
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
