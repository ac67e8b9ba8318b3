"""Task statuses in a session."""

from enum import IntEnum

from gpuconsole.model.cluster import Pod, PodPhase


class TaskStatus(IntEnum):
    """Status of a task. Its name, capitalised as Volcano does, is `label`."""

    PENDING = 1
    """It has no node."""
    ALLOCATED = 2
    """The session gave it a node; its gang may not be ready yet."""
    PIPELINED = 4
    """The session reserved resources for it that are being released."""
    BINDING = 8
    """Its binding was requested."""
    BOUND = 16
    RUNNING = 32
    RELEASING = 64
    """It is being deleted."""
    SUCCEEDED = 128
    FAILED = 256
    UNKNOWN = 512

    @property
    def label(self) -> str:
        return self.name.capitalize()


ALLOCATED_STATUS = frozenset((TaskStatus.BOUND, TaskStatus.BINDING, TaskStatus.RUNNING, TaskStatus.ALLOCATED))
"""Statuses of tasks that hold what they requested (AllocatedStatus)."""
PREEMPTABLE_STATUS = frozenset((TaskStatus.BOUND, TaskStatus.RUNNING))
"""Statuses of tasks that can be evicted."""
READY_STATUS = ALLOCATED_STATUS | {TaskStatus.SUCCEEDED}
"""Statuses of tasks that count for their gang."""
VALID_STATUS = READY_STATUS | {TaskStatus.PIPELINED, TaskStatus.PENDING}
"""Statuses of tasks that count, or may still count, for their gang."""


def status_of(pod: Pod) -> TaskStatus:
    """Task status by the pod's phase, node and deletion timestamp (getTaskStatus)."""
    match pod.phase:
        case PodPhase.SUCCEEDED:
            return TaskStatus.SUCCEEDED
        case PodPhase.FAILED:
            return TaskStatus.FAILED
        case PodPhase.RUNNING:
            return TaskStatus.RELEASING if pod.deleted else TaskStatus.RUNNING
        case PodPhase.PENDING:
            if pod.deleted:
                return TaskStatus.RELEASING
            return TaskStatus.BOUND if pod.node else TaskStatus.PENDING
