"""elastic plugin: jobs below their minimum come first, then those at it, then those above (KAI 0.13)."""

from enum import IntEnum

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.session import KaiSession


class Size(IntEnum):
    """Number of a job's placed tasks compared with its minimum."""

    BELOW = 0
    EXACT = 1
    ABOVE = 2


class Elastic:
    """Registers the job order."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.job_order.append(compare_elasticity)


def compare_elasticity(one: PodGroupInfo, other: PodGroupInfo) -> int:
    """Negative if the first job comes first, 0 if both are of the same size."""
    return gang_size(one) - gang_size(other)


def gang_size(job: PodGroupInfo) -> Size:
    """Whether the job is below, at or above its minimum; below if one of its pod sets is."""
    placed = [(pod_set.active_allocated, pod_set.minimum) for pod_set in job.pod_sets.values()]
    if any(count < minimum for count, minimum in placed):
        return Size.BELOW
    return Size.ABOVE if any(count > minimum for count, minimum in placed) else Size.EXACT
