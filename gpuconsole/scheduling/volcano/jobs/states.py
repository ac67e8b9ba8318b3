"""State machines of Volcano's controllers for Jobs and queues (Volcano 1.15 controllers/job/state, controllers/queue).

`plan_action` gives the effect of an action in the job's phase as an `ActionPlan`: which pods are deleted, and how the
status changes once they are counted. `queue_command` opens or closes a queue, with the effect on child queues.

Also what these controllers share: the tasks of a Job, each a number of pods with one template; names and indices of
their pods; labels and annotations that the controllers set on pods.

`choose_action` applies a job's lifecycle policies to a request, at once or after a timeout. Requests are events of
jobs, pods and PodGroups, and commands (Volcano 1.15 applyPolicies). An action with a timeout waits in `DelayedAction`,
unless another event or action cancels it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.volcano import (
    DependsOn,
    JobAction,
    JobEvent,
    LifecyclePolicy,
    PartitionPolicy,
    PodGroup,
    TaskSpec,
    VolcanoPhase,
    VolcanoQueue,
    VolcanoSpec,
    VolcanoStatus,
)
from gpuconsole.scheduling.volcano.api.task import PREEMPTABLE, REVOCABLE_ZONE, TASK_SPEC

JOB_NAME = "volcano.sh/job-name"
JOB_NAMESPACE = "volcano.sh/job-namespace"
JOB_VERSION = "volcano.sh/job-version"
JOB_RETRY_COUNT = "volcano.sh/job-retry-count"
QUEUE_NAME = "volcano.sh/queue-name"
TASK_INDEX = "volcano.sh/task-index"
TEMPLATE = "volcano.sh/template-uid"
PARTITION = "volcano.sh/partition-id"
OUT_OF_SYNC = "volcano.sh/controller-out-of-sync"
"""Annotation of a pod that will be deleted or recreated; its events are ignored."""
COOLDOWN = "volcano.sh/cooldown-time"
COPIED_LABELS = (PREEMPTABLE, COOLDOWN)
"""Labels that pods take over from their Job, and PodGroups from a pod that belongs to no Job."""
COPIED_ANNOTATIONS = (*COPIED_LABELS, REVOCABLE_ZONE)
"""Annotations that pods and PodGroups take over likewise, besides one of the disruption budgets."""
DEFAULT_TASK = "default"


NO_SPEC = VolcanoSpec()


class JobTask(Struct, frozen=True):
    """A task of a Volcano Job: a number of pods with one template."""

    name: str
    replicas: int
    template: PodTemplate
    spec: TaskSpec

    @property
    def policies(self) -> tuple[LifecyclePolicy, ...]:
        return self.spec.policies

    @property
    def depends_on(self) -> DependsOn | None:
        return self.spec.depends_on

    @property
    def partition(self) -> PartitionPolicy | None:
        return self.spec.partition

    @property
    def min_available(self) -> int:
        """The task's minAvailable, or all replicas if that is not set."""
        return self.replicas if self.spec.min_available is None else self.spec.min_available


def spec_of(job: Job) -> VolcanoSpec:
    """The Volcano part of a job; an empty one for other kinds of jobs."""
    return job.volcano or NO_SPEC


def tasks_of(job: Job) -> tuple[JobTask, ...]:
    """The tasks of a job, in their order."""
    rules = spec_of(job).tasks
    known = (*rules, *(TaskSpec() for _ in job.pod_sets[len(rules) :]))
    return tuple(
        JobTask(pods.name, pods.count, pods.template, spec) for pods, spec in zip(job.pod_sets, known, strict=True)
    )


def task_index(job: Job, name: str) -> int:
    """The index of a task in its job; -1 if there is none of that name."""
    return next((n for n, pods in enumerate(job.pod_sets) if pods.name == name), -1)


def task_replicas(job: Job, name: str) -> int:
    """The replicas of a task; 0 if there is no such task."""
    at = task_index(job, name)
    return job.pod_sets[at].count if at >= 0 else 0


def pod_name(job: str, task: str, index: int) -> str:
    """The name of a task's pod."""
    return f"{job}-{task}-{index}"


def pod_names(job: Job, task: str) -> list[str]:
    """The names of a task's pods, one for each replica."""
    return [pod_name(job.name, task, index) for index in range(task_replicas(job, task))]


def total_replicas(job: Job) -> int:
    """The sum of the tasks' replicas."""
    return sum(pods.count for pods in job.pod_sets)


def total_min_available(job: Job) -> int:
    """The sum of the tasks' minAvailable; a task without one counts with all replicas."""
    return sum(task.min_available for task in tasks_of(job))


def task_of_pod(pod: Pod) -> str:
    """The task that a pod belongs to, by its annotation; `default` without one."""
    return pod.annotations.get(TASK_SPEC) or DEFAULT_TASK


def index_of_pod(pod: Pod) -> int:
    """A pod's index in its task, by its label.

    Raises:
        ValueError: the label is missing or no number.
    """
    text = pod.labels.get(TASK_INDEX)
    if text is None:
        raise ValueError(f"pod {pod.name} doesn't have {TASK_INDEX} label")
    return int(text)


def index_in_name(name: str) -> str:
    """The index at the end of a pod's name `JOB-TASK-INDEX`; empty if the name has fewer than three parts."""
    parts = name.split("-")
    return parts[-1] if len(parts) >= 3 else ""


class ControllerCall(StrEnum):
    """What the job controller does with a job's pods."""

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
    """The part of a job that an action targets: a task, a partition or one pod."""

    type: TargetType
    task: str = ""
    pod: str = ""
    partition: str = ""


StatusUpdate = Callable[[Job, VolcanoStatus], VolcanoStatus]
"""Computes the job's new status after pods were counted; returns the same object if the phase does not change."""
FINISHED_PHASES = frozenset((PodPhase.SUCCEEDED, PodPhase.FAILED))
NO_PHASES: frozenset[PodPhase] = frozenset()


def keep_status(job: Job, status: VolcanoStatus) -> VolcanoStatus:
    """The `StatusUpdate` that keeps the status as it is."""
    return status


class ActionPlan(Struct, frozen=True):
    """What an action does in the job's phase: the operation, the pods that it targets, and the change of status."""

    call: ControllerCall
    retain: frozenset[PodPhase] = NO_PHASES
    """Pods in these phases are not deleted when the job is killed."""
    target: PodTarget | None = None
    update: StatusUpdate = keep_status


def plan_action(job: Job, action: JobAction, target: PodTarget | None = None) -> ActionPlan:
    """Plan an action: what it does in the job's current phase."""
    match job.volcano_status.phase:
        case VolcanoPhase.PENDING | VolcanoPhase.NEW:
            return _plan_active(action, target, _from_pending)
        case VolcanoPhase.RUNNING:
            return _plan_active(action, target, _from_running)
        case VolcanoPhase.RESTARTING:
            return _plan_restarting(action, target)
        case VolcanoPhase.ABORTING:
            return (
                _RESUME
                if action is JobAction.RESUME_JOB
                else _kill_all(_change_phase_once_pods_gone(VolcanoPhase.ABORTED))
            )
        case VolcanoPhase.ABORTED:
            return _RESUME if action is JobAction.RESUME_JOB else _kill_all(keep_status)
        case VolcanoPhase.TERMINATING:
            return _kill_all(_change_phase_once_pods_gone(VolcanoPhase.TERMINATED))
        case VolcanoPhase.COMPLETING:
            return _kill_all(_change_phase_once_pods_gone(VolcanoPhase.COMPLETED))
        case _:
            return _kill_all(keep_status)


_RESTARTS = (JobAction.RESTART_TASK, JobAction.RESTART_POD, JobAction.RESTART_PARTITION)
_STOPS = {
    JobAction.ABORT_JOB: VolcanoPhase.ABORTING,
    JobAction.COMPLETE_JOB: VolcanoPhase.COMPLETING,
    JobAction.TERMINATE_JOB: VolcanoPhase.TERMINATING,
}


def _plan_active(action: JobAction, target: PodTarget | None, update: StatusUpdate) -> ActionPlan:
    if action is JobAction.RESTART_JOB:
        return ActionPlan(ControllerCall.KILL, NO_PHASES, None, _restart)
    if action in _RESTARTS:
        return ActionPlan(ControllerCall.KILL_TARGET, NO_PHASES, target, _restart)
    if action in _STOPS:
        return _kill_all(_change_phase_to(_STOPS[action]))
    return ActionPlan(ControllerCall.SYNC, NO_PHASES, None, update)


def _plan_restarting(action: JobAction, target: PodTarget | None) -> ActionPlan:
    if action is JobAction.SYNC_JOB:
        return ActionPlan(ControllerCall.SYNC, NO_PHASES, None, _from_restarting)
    if action in _RESTARTS:
        return ActionPlan(ControllerCall.KILL_TARGET, NO_PHASES, target, _from_restarting)
    return ActionPlan(ControllerCall.KILL, NO_PHASES, None, _from_restarting)


def _kill_all(update: StatusUpdate) -> ActionPlan:
    return ActionPlan(ControllerCall.KILL, FINISHED_PHASES, None, update)


def _change_phase_to(phase: VolcanoPhase) -> StatusUpdate:
    return lambda job, status: replace(status, phase=phase)


def _change_phase_once_pods_gone(phase: VolcanoPhase) -> StatusUpdate:
    """Change to the next phase as soon as no pod is pending, running or terminating."""
    return lambda job, status: status if status.alive else replace(status, phase=phase)


def _restart(job: Job, status: VolcanoStatus) -> VolcanoStatus:
    return replace(status, phase=VolcanoPhase.RESTARTING, retry_count=status.retry_count + 1)


_RESUME = _kill_all(_restart)


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
        return replace(status, phase=_final_phase(job, status))
    if status.pending > total - spec.min_available:
        return replace(status, phase=VolcanoPhase.PENDING)
    return status


def _final_phase(job: Job, status: VolcanoStatus) -> VolcanoPhase:
    spec = spec_of(job)
    if spec.min_available >= total_min_available(job):
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
_NOT_OPEN = (CLOSED, CLOSING)
Queues = Mapping[str, VolcanoQueue]


def next_queue_state(state: str, action: JobAction, busy: bool) -> str:
    """The queue's state after an action; a `busy` queue has PodGroups and stays Closing until they are gone."""
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
    if action is JobAction.CLOSE_QUEUE and queue.name == ROOT and queue.state not in _NOT_OPEN:
        return "Root queue cannot be closed"
    parent = queues.get(queue.parent) if queue.parent not in ("", ROOT) else None
    if action is JobAction.OPEN_QUEUE and queue.state != OPEN and parent is not None and parent.state in _NOT_OPEN:
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
        if action is JobAction.CLOSE_QUEUE and child.state not in _NOT_OPEN:
            noted = replace(child, annotations={**child.annotations, CLOSED_BY_PARENT: "true"})
            changed += queue_command(child.name, action, {**known, child.name: noted}, busy)
        elif action is JobAction.OPEN_QUEUE and child.annotations.get(CLOSED_BY_PARENT) == "true":
            changed += queue_command(child.name, action, known, busy)
    return changed


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
