"""Delayed actions of lifecycle policies: they run after a timeout unless another event or action cancels them (Volcano
1.15).
"""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.volcano import JobAction, JobEvent
from gpuconsole.scheduling.volcano.jobs.requests import JobRequest
from gpuconsole.scheduling.volcano.jobs.states import PodTarget, TargetType

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


class Delayed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An action that runs at `due` unless it is cancelled."""

    request: JobRequest
    action: JobAction
    due: Time


Delays = Mapping[str, Delayed]
"""Delayed action by the name of the pod whose event caused it; the key is empty for an event of the whole job."""


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


def added(delays: Delays, delayed: Delayed) -> Delays:
    """Add a delayed action; if the pod already has the same action, that one keeps its due time."""
    known = delays.get(delayed.request.pod)
    if known is not None and known.action is delayed.action:
        return delays
    return {**delays, delayed.request.pod: delayed}


def outlived(delays: Delays, request: JobRequest) -> Delays:
    """Cancel a pod's delayed action that a new event of the pod makes obsolete.

    An action for PodPending is obsolete when that pod (by uid) runs, fails or is evicted; one for PodFailed or
    PodEvicted when a pod of this name runs.
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
    """Cancel the delayed actions that have the same kind of target, and the same target, as an action that was carried
    out.

    Internal actions such as SyncJob cancel nothing.
    """
    if action in _INTERNAL_ACTIONS:
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
