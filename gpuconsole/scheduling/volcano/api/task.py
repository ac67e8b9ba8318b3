"""A pod in a session: its requests, its node, and what the session decided."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.model.cluster import Pod
from gpuconsole.model.resources import PODS
from gpuconsole.scheduling.volcano.api.labels import TASK_PRIORITY, group_of, preemptable, revocable_zone, role_of
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.status import TaskStatus, status_of

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.api.dra import DraResource

NO_DEVICES: "Mapping[str, DraResource]" = {}
NO_CLAIMS: "Mapping[str, Mapping[str, DraResource]]" = {}


class Transaction(Struct, frozen=True):
    """The last attempt to place a task, kept after it was undone."""

    status: TaskStatus
    node_name: str = ""
    eviction_occurred: bool = False
    """True if victims were evicted for it."""
    hyper_node: str = ""


class TaskInfo:
    """A task (api.TaskInfo). Mutates: its status and node follow the session's statements.

    `request` and `init_request` are shared by clones and are never edited.
    """

    __slots__ = (
        "best_effort",
        "claim_dra",
        "claim_keys",
        "dra",
        "eviction_occurred",
        "gated",
        "hyper_node",
        "init_request",
        "job",
        "key",
        "last_transaction",
        "name",
        "namespace",
        "node_name",
        "pod",
        "preemptable",
        "priority",
        "request",
        "restartable_init",
        "revocable_zone",
        "role",
        "status",
        "uid",
    )

    def __init__(self, pod: Pod, ignored: Iterable[str] = ()) -> None:
        """The task of a pod; `ignored` are resources that are not counted because a scheduler plugin allocates them."""
        self.pod = pod
        self.uid = pod.uid or pod.key
        self.key = pod.key
        """`namespace/name`, the key in `NodeInfo.tasks`."""
        self.namespace, self.name = pod.namespace, pod.name
        self.job = group_of(pod)
        """`namespace/name` of its PodGroup; empty without one."""
        self.role = role_of(pod)
        self.request = request_of(pod, ignored)
        self.init_request = self.request
        self.dra: Mapping[str, DraResource] = NO_DEVICES
        """Devices that it claims, by DeviceClass."""
        self.claim_keys: tuple[str, ...] = ()
        """`namespace/name` of its ResourceClaims."""
        self.claim_dra: Mapping[str, Mapping[str, DraResource]] = NO_CLAIMS
        """Devices of each of its claims: a claim that tasks share counts once."""
        self.best_effort = self.request.is_empty()
        self.preemptable = preemptable(pod.labels, pod.annotations, otherwise=True)
        self.revocable_zone = revocable_zone(pod.annotations)
        self.restartable_init = any(container.sidecar for container in pod.template.init_containers)
        self.gated = bool(pod.gates)
        self.priority = _priority(pod)
        self.status = status_of(pod)
        self.node_name = pod.node
        self.eviction_occurred = False
        self.hyper_node = ""
        """The domain of its sub-job when the task was placed in this session (JobAllocatedHyperNode)."""
        self.last_transaction: Transaction | None = None

    def __repr__(self) -> str:
        return f"TaskInfo({self.key} {self.status.label} {self.node_name})"

    def clone(self) -> "TaskInfo":
        """An independent copy without the session's eviction flag and domain."""
        twin = TaskInfo.__new__(TaskInfo)
        twin.pod, twin.uid, twin.key = self.pod, self.uid, self.key
        twin.namespace, twin.name = self.namespace, self.name
        twin.job, twin.role = self.job, self.role
        twin.request, twin.init_request, twin.best_effort = self.request, self.init_request, self.best_effort
        twin.dra, twin.claim_keys, twin.claim_dra = self.dra, self.claim_keys, self.claim_dra
        twin.preemptable, twin.revocable_zone = self.preemptable, self.revocable_zone
        twin.restartable_init, twin.gated, twin.priority = self.restartable_init, self.gated, self.priority
        twin.status, twin.node_name = self.status, self.node_name
        # These stay with the original: upstream's TaskInfo.Clone leaves them out.
        twin.eviction_occurred, twin.hyper_node = False, ""
        twin.last_transaction = self.last_transaction
        return twin

    def precedes(self, other: "TaskInfo") -> bool:
        """True if it comes before the other where no plugin decides (helpers.CompareTask).

        By the number at the end of their names, if both have one; else the older, then by uid.
        """
        mine, theirs = _number(self.name), _number(other.name)
        if mine is not None and theirs is not None and mine != theirs:
            return mine < theirs
        return (self.pod.created, self.uid) < (other.pod.created, other.uid)

    def remember(self) -> None:
        """Save the session's attempt before it is undone (GenerateLastTxContext)."""
        self.last_transaction = Transaction(self.status, self.node_name, self.eviction_occurred, self.hyper_node)


def request_of(pod: Pod, ignored: Iterable[str] = ()) -> Resource:
    """A pod's total request, and one of `pods` (GetPodResourceRequest)."""
    result = Resource.of(pod.template.requests, ignored)
    result.add_scalar(PODS, 1.0)
    return result


def _number(name: str) -> int | None:
    """The number of a pod of a Volcano job, `job-task-3`; None for any other name."""
    parts = name.split("-")
    return int(parts[-1]) if len(parts) >= 3 and parts[-1].isdecimal() else None


def _priority(pod: Pod) -> int:
    text = pod.annotations.get(TASK_PRIORITY, "")
    return int(text) if text.lstrip("+-").isdecimal() and len(text) < 12 else pod.priority
