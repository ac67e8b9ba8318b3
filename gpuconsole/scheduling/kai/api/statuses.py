"""Task statuses in a session, and which of them hold resources (KAI 0.13 api/pod_status)."""

from enum import IntEnum


class KaiPodStatus(IntEnum):
    """Status of a task; KAI derives it from the pod and from the session's decisions."""

    PENDING = 1
    GATED = 2
    ALLOCATED = 3
    """Placed by a statement that is not committed yet."""
    PIPELINED = 4
    """Placed on resources that are still being released."""
    BINDING = 5
    BOUND = 6
    RUNNING = 7
    RELEASING = 8
    SUCCEEDED = 9
    FAILED = 10
    UNKNOWN = 11
    DELETED = 12


ALLOCATED = frozenset({KaiPodStatus.ALLOCATED, KaiPodStatus.BOUND, KaiPodStatus.BINDING, KaiPodStatus.RUNNING})
"""Counted as the queue's allocation."""
ACTIVE_ALLOCATED = ALLOCATED | {KaiPodStatus.PIPELINED}
"""Counted towards the gang's minimum."""
ACTIVE_USED = ACTIVE_ALLOCATED | {KaiPodStatus.RELEASING}
"""Holding resources of a node."""
ALIVE = ACTIVE_ALLOCATED | {KaiPodStatus.PENDING, KaiPodStatus.GATED}
"""Neither finished nor terminating."""
