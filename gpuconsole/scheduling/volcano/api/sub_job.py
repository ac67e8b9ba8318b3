"""Sub-jobs: tasks of a job that form a gang of their own (a subGroupPolicy), or those that match no policy."""

from collections.abc import Sequence

from gpuconsole.model.cluster import Pod
from gpuconsole.model.volcano import NetworkTopology, SubGroupPolicy
from gpuconsole.scheduling.volcano.api.gang import Gang
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.status import TaskStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo

NO_POLICY = SubGroupPolicy("")
LONGEST_ID = 128
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""Characters that form no words (Kubernetes' rand.SafeEncodeString)."""


class SubJobInfo(Gang):
    """A sub-job (api.SubJobInfo). Mutates as its job does."""

    __slots__ = (
        "allocated_hyper_node",
        "gid",
        "job",
        "match_index",
        "network_topology",
        "nominated_hyper_node",
        "priority",
        "uid",
    )

    def __init__(
        self, gid: str, uid: str, job: str, policy: SubGroupPolicy = NO_POLICY, values: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.gid = gid
        """`job/policy`, common to the sub-jobs of one policy; the job's uid without a policy."""
        self.uid = uid
        self.job = job
        self.min_available = 1 if policy.size is None else policy.size
        self.network_topology: NetworkTopology | None = policy.network_topology
        self.match_index = int(values[0]) if values and values[0].lstrip("+-").isdecimal() else 0
        """The first label value as a number, 0 if it is none: sorts sub-jobs."""
        self.priority = 0
        """The highest priority that one of its tasks has had."""
        self.allocated_hyper_node = ""
        self.nominated_hyper_node = ""
        """The hyper node where victims were evicted for it; `allocate` tries that first."""

    def add(self, task: TaskInfo) -> None:
        """Add a task."""
        self.index(task)
        self.priority = max(self.priority, task.priority)

    def delete(self, task: TaskInfo) -> None:
        """Remove a task."""
        self.unindex(task)

    @property
    def hard_tier(self) -> int | None:
        """The highest tier that a hard topology allows; None where there is none."""
        return hard_tier(self.network_topology)

    @property
    def is_soft(self) -> bool:
        return self.network_topology is not None and self.network_topology.mode == "soft"

    def convert_to_hard(self, tier: int) -> None:
        """Turn a soft topology into a hard one with this highest tier (ConvertToHardTopology)."""
        if self.is_soft:
            self.network_topology = NetworkTopology("hard", tier)

    def min_resources(self) -> Resource:
        """Total request of its pending tasks."""
        total = Resource()
        for task in self.of_status(TaskStatus.PENDING).values():
            total.add(task.init_request)
        return total

    def copy_status(self, source: "SubJobInfo") -> None:
        """Take over the allocated and nominated hyper nodes of another copy."""
        self.allocated_hyper_node = source.allocated_hyper_node
        self.nominated_hyper_node = source.nominated_hyper_node


def hard_tier(topology: NetworkTopology | None) -> int | None:
    """The highest tier that a topology in hard mode allows (IsHardTopologyMode)."""
    return topology.highest_tier if topology is not None and topology.mode == "hard" else None


def match_values(policy: SubGroupPolicy, pod: Pod) -> tuple[str, ...]:
    """A pod's values of the policy's matchLabelKeys; empty if the pod does not match the policy."""
    if policy.selector is not None and not policy.selector.matches(pod.labels):
        return ()
    values = tuple(pod.labels.get(key, "") for key in policy.match_label_keys)
    return values if all(values) else ()


def group_id(job: str, policy: str) -> str:
    """`job/policy`, the group id of a policy's sub-jobs."""
    return f"{job}/{policy}"


def sub_job_id(job: str, policy: str, values: Sequence[str]) -> str:
    """The id of a sub-job, `job/policy-value-value`; `values` are those of the policy's matchLabelKeys.

    Values of more than 128 bytes together are hashed (FNV-1a).
    """
    name = "-".join(values)
    if len(name.encode()) > LONGEST_ID:
        number = 2166136261
        for byte in name.encode():
            # FNV-1a, as Go's hash/fnv New32a computes it.
            number = (number ^ byte) * 16777619 & 0xFFFFFFFF
        name = "".join(_SAFE[ord(letter) % len(_SAFE)] for letter in str(number))
    return f"{job}/{policy}-{name}"
