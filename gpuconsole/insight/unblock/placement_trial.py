"""Trial of whether a change gets pending pods scheduled, in a fork of the simulation that runs for one minute.

A minute is enough for evicted pods to terminate and for another scheduling attempt. If the pods start within it without
a change, no change is suggested. The number of trials is limited, not their time, so that results are the same on every
machine.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.insight.unblock.change_commands import change_commands
from gpuconsole.insight.unblock.minimal_change import TriedEnough, minimal_changes
from gpuconsole.insight.unblock.steps import Step, Steps
from gpuconsole.model.clock import MINUTE, Span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import JobPhase
from gpuconsole.model.kai import KaiPodGroup
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.queue_names import group_key

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

HORIZON: Span = MINUTE
MOST_TRIES = 150


class PlacementProgress(Struct, frozen=True):
    """Number of scheduled pods of a job, a gang or a lone pod."""

    placed: int
    needed: int
    """Number of pods that have to start together; 0 if each starts independently."""
    total: int

    @property
    def started(self) -> bool:
        """True if as many are scheduled as have to start together; without a gang all of them."""
        return self.total > 0 and self.placed >= (self.needed or self.total)


class PlacementTrial:
    """Tries changes for a job, gang or pod that waits for nodes, in forks, and counts the trials. Mutable."""

    def __init__(self, simulation: "Simulation", key: str, most_tries: int = MOST_TRIES) -> None:
        self.key = key
        self.tries = 0
        self._base = simulation.ahead((key,))
        self._base.drain()
        self._most_tries = most_tries
        self.snapshot = self._base.snapshot()
        self.pods = pods_of(self.snapshot, key)
        self.job = self.snapshot.jobs.get(key)
        self.stand = _stand(self.snapshot, key)

    def works(self, steps: Sequence[Step]) -> bool:
        """True if the work has started a minute after all these changes. Raises TriedEnough."""
        if self.tries >= self._most_tries:
            raise TriedEnough
        self.tries += 1
        fork = self._base.fork()
        for command in change_commands(self.snapshot, self.key, steps):
            fork.submit(command)
        fork.advance(fork.now + HORIZON)
        return self._has_started(fork.snapshot())

    def fails(self, steps: Sequence[Step]) -> bool:
        """True if the work has not started a minute after all these changes. Raises TriedEnough."""
        return not self.works(steps)

    def least(self, steps: Sequence[Step]) -> Steps:
        """Return the changes, each as small as is still enough; see `minimal_changes`."""
        return minimal_changes(self, steps)

    def _has_started(self, later: Snapshot) -> bool:
        """True if the gang, or without a gang all pods, started since; ended pods count as started."""
        job = later.jobs.get(self.key)
        if job is None and self.job is not None:
            return False
        if job is not None and job.ended:
            return job.phase is JobPhase.SUCCEEDED
        stand = _stand(later, self.key)
        return stand.started and (not self.stand.started or stand.placed == stand.total)


def pods_of(snapshot: Snapshot, key: str) -> list[Pod]:
    """Return the pods of a workload, a job or a lone pod, and the rest of their gang."""
    own = [pod for pod in snapshot.pods.all() if key in (pod.workload, pod.job, pod.key) and not pod.deleted]
    groups = {group_key(pod) for pod in own} - {""}
    if not groups:
        return own
    keys = {pod.key for pod in own}
    return [pod for pod in snapshot.pods.all() if not pod.deleted and (pod.key in keys or group_key(pod) in groups)]


def gang_of(snapshot: Snapshot, pods: Sequence[Pod]) -> PodGroup | KaiPodGroup | None:
    """Return the PodGroup that the pods name; None without one."""
    keys = dict.fromkeys(group_key(pod) for pod in pods)
    found = (snapshot.pod_groups.get(key) or snapshot.kai_pod_groups.get(key) for key in keys if key)
    return next((group for group in found if group is not None), None)


def _stand(snapshot: Snapshot, key: str) -> PlacementProgress:
    pods, job = pods_of(snapshot, key), snapshot.jobs.get(key)
    group = gang_of(snapshot, pods)
    if job is not None and job.volcano is not None:
        needed = job.volcano.min_available
    elif group is not None:
        needed = group.min_member
    else:
        needed = max((pod.gang_size or len(pods) for pod in pods if pod.gang), default=0)
    return PlacementProgress(sum(bool(pod.node) for pod in pods), needed, len(pods))
