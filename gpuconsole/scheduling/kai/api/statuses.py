"""The states of a task in a session, and which of them hold what (KAI 0.13 api/pod_status)."""

from enum import IntEnum


class Status(IntEnum):
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


ALLOCATED = frozenset({Status.ALLOCATED, Status.BOUND, Status.BINDING, Status.RUNNING})
"""Counted as the queue's allocation."""
ACTIVE_ALLOCATED = ALLOCATED | {Status.PIPELINED}
"""Counted towards the gang's minimum."""
ACTIVE_USED = ACTIVE_ALLOCATED | {Status.RELEASING}
"""Holding resources of a node."""
ALIVE = ACTIVE_ALLOCATED | {Status.PENDING, Status.GATED}
