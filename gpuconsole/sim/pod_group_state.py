"""Running groups: pods that work together, and the simulation's counts of them."""

from msgspec import Struct, field

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod

NEVER: Time = 2**62
"""A moment that does not come."""


class RunningGroup(Struct, frozen=True, kw_only=True):
    """The pods of one Workload, of one job without a Workload, or one lone pod.

    Holds what would be expensive to recompute at each change; all else is in the objects. Every pod of the group is in
    one of five states: running, waiting for a node, leaving, missing, or ended.
    """

    key: str
    workload: str = ""
    job: str = ""
    pods: tuple[str, ...] = ()
    """Keys; a recreated pod keeps its name."""
    need: int = 1
    """Number of pods that must run before work can begin."""
    formed: Time = 0
    """When it was formed: older terminating pods belong to an earlier start of the same job."""
    running: int = 0
    """Pods with a node, not deleted: those that have started, and those that are starting."""
    starting: int = 0
    """Of them, those whose containers have not started yet."""
    leaving: int = 0
    """Deleted, within their grace period: they still hold their node."""
    missing: int = 0
    """Failed or deleted, to be recreated."""
    ended: int = 0
    """Succeeded while the others work: not recreated."""
    start: Time | None = None
    """Time since which the work runs; None while it is interrupted."""
    hold: Time = 0
    """Missing pods are not recreated before this time (backoff after a failure)."""
    refused_since: Time | None = None
    """Time since which the API server refuses its pods (ResourceQuota); refused pods count as missing."""
    refusal: str = ""
    """The API server's message."""
    solo: bool = False
    """Its pods work independently, each as soon as it has a node."""
    is_reported: bool = field(default=False, name="told")
    """True if the history already says that the gang is not scheduled."""

    @property
    def started(self) -> int:
        """Number of pods whose containers run."""
        return self.running - self.starting

    @property
    def waiting(self) -> int:
        """Number of pods that exist and have no node yet."""
        return len(self.pods) - self.running - self.leaving - self.missing - self.ended

    @property
    def present(self) -> int:
        """Number of pods that exist: running, waiting or terminating."""
        return len(self.pods) - self.missing - self.ended


def is_member(pod: Pod, group: RunningGroup) -> bool:
    """False for a terminating pod whose job has restarted already."""
    return not (pod.deleted and pod.created < group.formed)


def running_group_key(pod: Pod) -> str:
    """The running group of a pod: its Workload's key, else its job's, else its own."""
    return pod.workload or pod.job or f"Pod/{pod.key}"
