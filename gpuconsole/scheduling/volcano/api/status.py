"""Task statuses in a session."""

from enum import IntEnum

from gpuconsole.model.cluster import Pod, PodPhase


class TaskStatus(IntEnum):
    """Status of a task. Its name, capitalised as Volcano does, is `label`."""

    PENDING = 1
    """It waits for a node."""
    ALLOCATED = 2
    """The session gave it a node; its gang may not be ready yet."""
    PIPELINED = 4
    """The session gave it a node where it waits for resources that are being released."""
    BINDING = 8
    """Its bind was asked for."""
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
"""The task holds what it asked for (AllocatedStatus)."""
PREEMPTABLE_STATUS = frozenset((TaskStatus.BOUND, TaskStatus.RUNNING))
"""The task can be evicted."""
READY_STATUS = ALLOCATED_STATUS | {TaskStatus.SUCCEEDED}
"""The task counts for its gang."""
VALID_STATUS = READY_STATUS | {TaskStatus.PIPELINED, TaskStatus.PENDING}
"""The task counts, or may still count, for its gang."""


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
