"""A job in a session: the tasks of one PodGroup, their sub-jobs, the gang's state, and why its tasks fit no node.

Sub-jobs are tasks of a job that form a gang of their own (a subGroupPolicy), or those that match no policy. `Gang` is
the common part of jobs and sub-jobs: tasks by status, and the gang's conditions. `RoleMinimums` checks the minimum
members of a job's roles: minTaskMember applies besides minMember, unless minMember is smaller than its sum. Fit errors
have a code and reasons per node, and a histogram over all nodes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.volcano import NetworkTopology, PodGroup, SubGroupPolicy
from gpuconsole.scheduling.volcano.api.resource import Resource, excess
from gpuconsole.scheduling.volcano.api.task import (
    ALLOCATED_STATUSES,
    JDB_MAX_UNAVAILABLE,
    JDB_MIN_AVAILABLE,
    QUEUE_GATE,
    READY_STATUSES,
    SLA_WAITING_TIMES,
    VALID_STATUSES,
    TaskInfo,
    TaskStatus,
    Transaction,
    is_preemptable,
    revocable_zone,
)
from gpuconsole.scheduling.volcano.config import parse_duration

POD_NUMBER_EXCEEDED = "node(s) pod number exceeded"

UNSCHEDULABLE_REASON = "Unschedulable"
"""Reason of the pod's condition while it cannot be placed."""
SCHEDULABLE_REASON = "Schedulable"
"""Reason of the pod's condition when it is pending only because of its gang."""


class PredicateCode(IntEnum):
    """Result code of a predicate that rejected a task: whether evictions may help."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    """Evicting others may help."""
    UNRESOLVABLE = 3
    """Evicting others changes nothing (UnschedulableAndUnresolvable)."""
    WAIT = 4
    SKIP = 5


class PredicateStatus(Struct, frozen=True):
    """One plugin's rejection of a task on a node."""

    code: PredicateCode
    reason: str = ""
    plugin: str = ""


class FitError(Struct, frozen=True):
    """Why a task does not fit on one node."""

    statuses: tuple[PredicateStatus, ...]
    task: str = ""
    """`namespace/name`."""
    node: str = ""

    @classmethod
    def from_reasons(cls, code: PredicateCode, *reasons: str, plugin: str = "") -> "FitError":
        """An error with a status of this code for each of the given reasons."""
        return cls(tuple(PredicateStatus(code, reason, plugin) for reason in reasons))

    @property
    def reasons(self) -> list[str]:
        return [status.reason for status in self.statuses if status.reason]

    @property
    def text(self) -> str:
        """The error in one line, as Volcano writes it."""
        return f"task {self.task} on node {self.node} fit failed: {', '.join(self.reasons)}"

    def has_code(self, *codes: PredicateCode) -> bool:
        """True if a plugin rejected the task with one of the codes."""
        return any(status.code in codes for status in self.statuses)

    @property
    def is_unresolvable(self) -> bool:
        """True if no eviction can resolve the error."""
        return self.has_code(PredicateCode.UNRESOLVABLE)


class FitErrors:
    """Why a task fits on no node, by node. Mutates by `set_error`."""

    __slots__ = ("hyper_node", "nodes", "text")

    def __init__(self, text: str = "", hyper_node: str = "") -> None:
        self.nodes: dict[str, FitError] = {}
        self.text = text
        """Replaces `0/N nodes are unavailable`."""
        self.hyper_node = hyper_node
        """The domain that was searched."""

    def set_error(self, node: str, error: FitError) -> None:
        """Set the error of a node."""
        self.nodes[node] = error

    def unresolvable_nodes(self) -> set[str]:
        """Nodes on which preemption cannot help."""
        return {name for name, error in self.nodes.items() if error.is_unresolvable}

    def __str__(self) -> str:
        """`0/4 nodes are unavailable: 1 reason a, 3 reason b.`"""
        text = self.text or f"0/{len(self.nodes)} nodes are unavailable"
        if not self.nodes:
            return text
        reasons = Counter(reason for error in self.nodes.values() for reason in error.reasons)
        message = f"{text}: {count_reasons(reasons)}."
        return f"In hyperNode {self.hyper_node}: {message}" if self.hyper_node else message


def count_reasons(reasons: Mapping[str, int]) -> str:
    """Reasons with the number of nodes, as one text: `1 reason a, 3 reason b`, sorted as texts."""
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))


def insufficient_reason(resources: Iterable[str]) -> str:
    """The reason for a node with too little of the first of these resources, `Insufficient cpu`; empty for none."""
    first = next(iter(resources), "")
    return f"Insufficient {first}" if first else ""


NO_TASKS: Mapping[str, TaskInfo] = {}


class Gang:
    """Tasks of which at least `min_available` have to run together. Mutates."""

    __slots__ = ("min_available", "network_topology", "task_status_index", "tasks")

    def __init__(self) -> None:
        self.min_available = 0
        self.network_topology: NetworkTopology | None = None
        self.tasks: dict[str, TaskInfo] = {}
        """Task by uid."""
        self.task_status_index: dict[TaskStatus, dict[str, TaskInfo]] = {}
        """Task by status and uid; only statuses that some task has."""

    @property
    def hard_tier(self) -> int | None:
        """Highest tier of a domain in which the tasks may run (IsHardTopologyMode); None without a hard topology."""
        topology = self.network_topology
        return topology.highest_tier if topology is not None and topology.mode == "hard" else None

    @property
    def is_soft(self) -> bool:
        """True if the tasks should, but need not, be within one hyper node."""
        return self.network_topology is not None and self.network_topology.mode == "soft"

    def tasks_with_status(self, status: TaskStatus) -> Mapping[str, TaskInfo]:
        """The tasks of one status."""
        return self.task_status_index.get(status, NO_TASKS)

    def add_to_index(self, task: TaskInfo) -> None:
        """Add a task under its current status."""
        self.tasks[task.uid] = task
        self.task_status_index.setdefault(task.status, {})[task.uid] = task

    def remove_from_index(self, task: TaskInfo) -> None:
        """Remove a task, which must still have the status that it was added with."""
        self.tasks.pop(task.uid, None)
        tasks = self.task_status_index.get(task.status)
        if tasks is not None:
            tasks.pop(task.uid, None)
            if not tasks:
                del self.task_status_index[task.status]

    def count_with_status(self, statuses: Iterable[TaskStatus]) -> int:
        """How many tasks have one of the statuses."""
        index = self.task_status_index
        return sum(len(index[status]) for status in statuses if status in index)

    @property
    def ready_task_num(self) -> int:
        """Number of tasks that are allocated, being bound, bound, running or succeeded."""
        return self.count_with_status(READY_STATUSES)

    @property
    def waiting_task_num(self) -> int:
        """Number of tasks that are pipelined to releasing resources."""
        return len(self.tasks_with_status(TaskStatus.PIPELINED))

    @property
    def pending_best_effort_num(self) -> int:
        """Number of pending best-effort tasks, which backfill places."""
        return sum(task.best_effort for task in self.tasks_with_status(TaskStatus.PENDING).values())

    @property
    def valid_task_num(self) -> int:
        """Number of tasks that count towards the minimum now or may later."""
        return self.count_with_status(VALID_STATUSES)

    def is_ready(self) -> bool:
        """True if ready tasks and pending best-effort ones reach the minimum (IsReady)."""
        return self.ready_task_num + self.pending_best_effort_num >= self.min_available

    def is_pipelined(self) -> bool:
        """True if ready, pipelined and pending best-effort tasks reach the minimum (IsPipelined)."""
        return self.waiting_task_num + self.ready_task_num + self.pending_best_effort_num >= self.min_available


NO_SUB_GROUP_POLICY = SubGroupPolicy("")
MAX_ID_BYTES = 128
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""Characters that form no words (Kubernetes' rand.SafeEncodeString)."""


class SubJobInfo(Gang):
    """A sub-job: tasks of a job that form a gang of their own (api.SubJobInfo). Mutates as its job does."""

    __slots__ = (
        "allocated_hyper_node",
        "gid",
        "job",
        "match_index",
        "nominated_hyper_node",
        "priority",
        "uid",
    )

    def __init__(
        self, gid: str, uid: str, job: str, policy: SubGroupPolicy = NO_SUB_GROUP_POLICY, values: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.gid = gid
        """`job/policy`, common to the sub-jobs of one policy; the job's uid without a policy."""
        self.uid = uid
        self.job = job
        self.min_available = 1 if policy.size is None else policy.size
        self.network_topology = policy.network_topology
        self.match_index = int(values[0]) if values and values[0].lstrip("+-").isdecimal() else 0
        """The first label value as a number, 0 if it is none: sorts sub-jobs."""
        self.priority = 0
        """The highest priority that one of its tasks has had."""
        self.allocated_hyper_node = ""
        self.nominated_hyper_node = ""
        """The hyper node where victims were evicted for it; `allocate` tries that first."""

    def add(self, task: TaskInfo) -> None:
        """Add a task."""
        self.add_to_index(task)
        self.priority = max(self.priority, task.priority)

    def delete(self, task: TaskInfo) -> None:
        """Remove a task."""
        self.remove_from_index(task)

    def convert_to_hard(self, tier: int) -> None:
        """Turn a soft topology into a hard one with this highest tier (ConvertToHardTopology)."""
        if self.is_soft:
            self.network_topology = NetworkTopology("hard", tier)

    def min_resources(self) -> Resource:
        """Total request of its pending tasks."""
        return Resource.sum(task.init_request for task in self.tasks_with_status(TaskStatus.PENDING).values())

    def copy_status(self, source: "SubJobInfo") -> None:
        """Take over the allocated and nominated hyper nodes from another copy of the sub-job."""
        self.allocated_hyper_node = source.allocated_hyper_node
        self.nominated_hyper_node = source.nominated_hyper_node


def match_label_values(policy: SubGroupPolicy, pod: Pod) -> tuple[str, ...]:
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
    if len(name.encode()) > MAX_ID_BYTES:
        number = 2166136261
        for byte in name.encode():
            # FNV-1a, as Go's hash/fnv New32a computes it.
            number = (number ^ byte) * 16777619 & 0xFFFFFFFF
        name = "".join(_SAFE[ord(letter) % len(_SAFE)] for letter in str(number))
    return f"{job}/{policy}-{name}"


class RoleMinimums:
    """Checks whether each role of a job has its minimum of tasks."""

    __slots__ = ("job",)

    def __init__(self, job: "JobInfo") -> None:
        self.job = job

    @property
    def are_applied(self) -> bool:
        """True if the minimums of roles apply: not if their sum exceeds the job's minimum, which then counts alone."""
        return self.job.min_available >= self.job.task_min_available_total

    def are_valid(self) -> bool:
        """True if there are enough tasks of each role (CheckTaskValid)."""
        return not self.are_applied or self._reach_minimums(self._count_by_role(VALID_STATUSES))

    def are_ready(self) -> bool:
        """True if enough tasks of each role are ready or best effort (CheckTaskReady)."""
        return not self.are_applied or self._reach_minimums(
            self._count_by_role(READY_STATUSES) + self._best_effort_by_role()
        )

    def are_pipelined(self) -> bool:
        """True if enough tasks of each role are ready, pipelined or best effort (CheckTaskPipelined)."""
        statuses = READY_STATUSES | {TaskStatus.PIPELINED}
        return not self.are_applied or self._reach_minimums(self._count_by_role(statuses) + self._best_effort_by_role())

    def may_become_ready(self, sub_job: str) -> bool:
        """True if the job can still become ready after a task that fits no node (NeedContinueAllocating)."""
        job = self.job
        if job.min_available == len(job.tasks):
            return False
        part = job.sub_jobs.get(sub_job)
        if part is not None and part.min_available >= len(part.tasks):
            return False
        if job.contains_sub_job_policy:
            return True
        failed = job.failed_roles(sub_job)
        if not self.are_applied:
            left = sum(task.role not in failed for task in job.tasks_with_status(TaskStatus.PENDING).values())
            return job.ready_task_num + left >= job.min_available
        placed = self._count_by_role(READY_STATUSES) + self._best_effort_by_role()
        return all(placed[role] >= job.task_min_available.get(role, 0) for role in failed)

    def _count_by_role(self, statuses: Iterable[TaskStatus]) -> Counter[str]:
        return Counter(task.role for status in statuses for task in self.job.tasks_with_status(status).values())

    def _best_effort_by_role(self) -> Counter[str]:
        return Counter(
            task.role for task in self.job.tasks_with_status(TaskStatus.PENDING).values() if task.best_effort
        )

    def _reach_minimums(self, counts: Counter[str]) -> bool:
        return all(counts[role] >= least for role, least in self.job.task_min_available.items())


UNSCHEDULABLE = "pod group is not ready"
SCHEDULABLE = "pod group is ready"


class DisruptionBudget(Struct, frozen=True):
    """A job's limits on evictions from its annotations: pods that must stay, or may be disrupted; empty: no limit."""

    min_available: str = ""
    max_unavailable: str = ""


class JobInfo(Gang):
    """A job: the tasks of one PodGroup, and its gang's state (api.JobInfo). Mutates with its tasks."""

    __slots__ = (
        "allocated",
        "allocated_hyper_node",
        "budget",
        "created",
        "fit_error",
        "min_sub_jobs",
        "name",
        "namespace",
        "node_fit_errors",
        "phase",
        "pod_group",
        "preemptable",
        "priority",
        "queue",
        "revocable_zone",
        "sub_jobs",
        "task_min_available",
        "task_min_available_total",
        "task_to_sub_job",
        "total_request",
        "uid",
        "waiting_time",
    )

    def __init__(self, uid: str, tasks: Iterable[TaskInfo] = ()) -> None:
        super().__init__()
        self.uid = uid
        """`namespace/name` of its PodGroup."""
        self.namespace, _, self.name = uid.rpartition("/")
        self.queue = ""
        self.priority = 0
        self.created: Time = 0
        self.waiting_time: Span | None = None
        """How long it may wait (sla plugin); None without a limit."""
        self.fit_error = ""
        """Why the whole job cannot be scheduled."""
        self.node_fit_errors: dict[str, FitErrors] = {}
        """Why a task fits on no node, by the task's uid."""
        self.allocated_hyper_node = ""
        self.sub_jobs: dict[str, SubJobInfo] = {}
        self.task_to_sub_job: dict[str, str] = {}
        self.min_sub_jobs: dict[str, int] = {}
        """How many sub-jobs of each policy (by group id) the job needs."""
        self.task_min_available: dict[str, int] = {}
        """How many tasks of each role the job needs."""
        self.task_min_available_total = 0
        self.allocated, self.total_request = Resource(), Resource()
        self.pod_group: PodGroup | None = None
        self.phase = ""
        """Phase of the PodGroup, as the session changes it."""
        self.preemptable = False
        self.revocable_zone = ""
        self.budget = DisruptionBudget()
        for task in tasks:
            self.add_task(task)

    def __repr__(self) -> str:
        return f"JobInfo({self.uid})"

    def set_pod_group(self, group: PodGroup) -> None:
        """Apply the PodGroup's fields (SetPodGroup)."""
        before, self.pod_group = self.pod_group, group
        self.namespace, self.name = group.namespace, group.name
        self.min_available, self.queue, self.created = group.min_member, group.queue, group.created
        self.phase = group.phase
        self.waiting_time = next(
            (span for key in SLA_WAITING_TIMES if (span := parse_duration(group.annotations.get(key, "")) or 0) > 0),
            None,
        )
        self.preemptable = is_preemptable(group.labels, group.annotations, default=False)
        self.revocable_zone = revocable_zone(group.annotations)
        self.budget = _disruption_budget(group)
        self.set_min_members(group)
        self.network_topology = group.network_topology
        if before is None or before.sub_groups != group.sub_groups:
            self._rebuild_sub_jobs()
            self.min_sub_jobs = {group_id(self.uid, policy.name): policy.least or 0 for policy in group.sub_groups}

    def set_min_members(self, group: PodGroup) -> None:
        """Set the minimum of tasks of each role and their sum, from the PodGroup (ParseMinMemberInfo)."""
        self.task_min_available = dict(group.min_task_member)
        self.task_min_available_total = sum(group.min_task_member.values())

    def add_task(self, task: TaskInfo) -> None:
        """Add a task to the job, its sums and its sub-job."""
        self.add_to_index(task)
        self.total_request.add(task.request)
        if task.status in ALLOCATED_STATUSES:
            self.allocated.add(task.request)
        self._sub_job_of(task).add(task)

    def delete_task(self, task: TaskInfo) -> None:
        """Remove a task, if the job has it."""
        known = self.tasks.get(task.uid)
        if known is None:
            return
        self.total_request.sub(known.request)
        if known.status in ALLOCATED_STATUSES:
            self.allocated.sub(known.request)
        self.remove_from_index(known)
        sub_job = self.sub_jobs.get(self.task_to_sub_job.pop(task.uid, ""))
        if sub_job is not None:
            sub_job.delete(known)

    def update_status(self, task: TaskInfo, status: TaskStatus) -> None:
        """Move a task to another status."""
        self.delete_task(task)
        task.status = status
        self.add_task(task)

    def copy(self) -> "JobInfo":
        """An independent copy with its own tasks, without the fit errors of tasks."""
        copied = JobInfo(self.uid)
        copied.namespace, copied.name, copied.queue, copied.priority = (
            self.namespace,
            self.name,
            self.queue,
            self.priority,
        )
        copied.min_available, copied.created, copied.waiting_time = self.min_available, self.created, self.waiting_time
        copied.fit_error, copied.pod_group, copied.phase = self.fit_error, self.pod_group, self.phase
        copied.task_min_available = dict(self.task_min_available)
        copied.task_min_available_total = self.task_min_available_total
        copied.preemptable, copied.revocable_zone, copied.budget = self.preemptable, self.revocable_zone, self.budget
        copied.allocated_hyper_node, copied.network_topology = self.allocated_hyper_node, self.network_topology
        copied.min_sub_jobs = dict(self.min_sub_jobs)
        for task in self.tasks.values():
            copied.add_task(task.copy())
        for uid, sub_job in self.sub_jobs.items():
            if uid in copied.sub_jobs:
                copied.sub_jobs[uid].copy_status(sub_job)
        return copied

    def min_resources(self) -> Resource:
        """The PodGroup's minResources; empty where it has none."""
        if self.pod_group is None or self.pod_group.min_resources is None:
            return Resource()
        return Resource.from_amounts(self.pod_group.min_resources)

    def elastic_resources(self) -> Resource:
        """The part of its allocated resources above minResources."""
        return excess(self.allocated, self.min_resources())

    def gated_resources(self) -> Resource:
        """Requests of tasks held back by scheduling gates; Volcano's own gate alone does not count."""
        held = (task for task in self.tasks.values() if task.gated and task.pod.gates != (QUEUE_GATE,))
        return Resource.sum(task.request for task in held)

    def without_gated(self, amount: Resource) -> Resource:
        """An amount less the requests of gated tasks, not below zero (DeductSchGatedResources)."""
        gated = self.gated_resources()
        if gated.is_empty():
            return amount
        rest = amount.copy()
        rest.cpu, rest.memory = max(rest.cpu - gated.cpu, 0.0), max(rest.memory - gated.memory, 0.0)
        for name in set(amount.scalars or ()) & set(gated.scalars or ()):
            rest.set_scalar(name, max(amount.get(name) - gated.get(name), 0.0))
        return rest

    def is_starving(self) -> bool:
        """True if fewer tasks than minAvailable are ready or pipelined (IsStarving)."""
        return self.waiting_task_num + self.ready_task_num < self.min_available

    @property
    def is_not_enqueued(self) -> bool:
        """True if its tasks are not tried yet, because its PodGroup is missing or not enqueued."""
        return self.pod_group is None or self.phase in ("", "Pending")

    @property
    def allocated_task_num(self) -> int:
        """Number of tasks that hold what they requested."""
        return self.count_with_status(ALLOCATED_STATUSES)

    @property
    def role_minimums(self) -> RoleMinimums:
        """Minimum members of its roles, for gang checks."""
        return RoleMinimums(self)

    def has_enough_sub_jobs(self, holds: Callable[[SubJobInfo], bool]) -> bool:
        """True if enough sub-jobs of each policy satisfy a condition."""
        counts = Counter(sub_job.gid for sub_job in self.sub_jobs.values() if holds(sub_job))
        return all(counts[gid] >= least for gid, least in self.min_sub_jobs.items())

    def check_sub_job_valid(self) -> bool:
        """True if enough sub-jobs of each policy exist."""
        return self.has_enough_sub_jobs(lambda _: True)

    def check_sub_job_ready(self) -> bool:
        """True if enough sub-jobs of each policy are ready."""
        return self.has_enough_sub_jobs(SubJobInfo.is_ready)

    def check_sub_job_pipelined(self) -> bool:
        """True if enough sub-jobs of each policy are ready or pipelined."""
        return self.has_enough_sub_jobs(SubJobInfo.is_pipelined)

    @property
    def contains_sub_job_policy(self) -> bool:
        return self.pod_group is not None and bool(self.pod_group.sub_groups)

    @property
    def contains_hard_topology(self) -> bool:
        """True if the job or one of its sub-jobs has to be within one hyper node."""
        return self.hard_tier is not None or any(sub.hard_tier is not None for sub in self.sub_jobs.values())

    @property
    def contains_network_topology(self) -> bool:
        """True if the job or one of its sub-jobs has a network topology."""
        topologies = (self.network_topology, *(sub_job.network_topology for sub_job in self.sub_jobs.values()))
        return any(topology is not None for topology in topologies)

    def reset_fit_errors(self, sub_job: str | None = None) -> None:
        """Clear the fit errors of the job, or only those of one sub-job's tasks."""
        if sub_job is None:
            self.fit_error, self.node_fit_errors = "", {}
            return
        last_runs = {
            uid: errors for uid, errors in self.node_fit_errors.items() if self.task_to_sub_job.get(uid) != sub_job
        }
        self.node_fit_errors = last_runs

    def failed_roles(self, sub_job: str) -> set[str]:
        """Roles with a task of this sub-job that fits no node."""
        return {
            self.tasks[uid].role
            for uid in self.node_fit_errors
            if self.task_to_sub_job.get(uid) == sub_job and uid in self.tasks
        }

    def task_has_fit_errors(self, sub_job: str, task: TaskInfo) -> bool:
        """True if a task of the same role was rejected already, so that this one can be skipped."""
        return bool(task.role) and task.role in self.failed_roles(sub_job)

    def task_reason(self, uid: str) -> tuple[str, str, str]:
        """(reason, message, nominated node) of a task after its last transaction (TaskSchedulingReason)."""
        task = self.tasks.get(uid)
        if task is None:
            return "", "", ""
        last = task.last_transaction or Transaction(task.status, task.node_name, task.eviction_occurred)
        start = f"Pod {task.key} can possibly be assigned to {last.node_name}, once"
        match last.status:
            case TaskStatus.ALLOCATED:
                return SCHEDULABLE_REASON, f"{start} minAvailable is satisfied", ""
            case TaskStatus.PIPELINED:
                message = f"{start} resource is released and minAvailable is satisfied"
                return UNSCHEDULABLE_REASON, message, last.node_name if last.eviction_occurred else ""
            case TaskStatus.PENDING:
                errors = self.node_fit_errors.get(uid)
                return UNSCHEDULABLE_REASON, self.fit_error if errors is None else str(errors), ""
            case _:
                return last.status.label, self.fit_error, ""

    @property
    def fit_message(self) -> str:
        """The job's state and its reason in one line (FitError)."""
        counts = {status.label: len(tasks) for status, tasks in self.task_status_index.items()}
        counts["minAvailable"] = self.min_available
        message = f"{SCHEDULABLE if self.is_ready() else UNSCHEDULABLE}, {count_reasons(counts)}"
        reasons = Counter(self.task_reason(uid)[0] for uid in self.tasks_with_status(TaskStatus.PENDING))
        if reasons:
            message += f"; Pending: {count_reasons(reasons)}"
        if self.fit_error:
            return f"{message}. Origin reason is: {self.fit_error}"
        failed = sorted((self.tasks[uid].name, uid) for uid in self.node_fit_errors if uid in self.tasks)
        return (
            f"{message}. Origin reason is {failed[0][0]}: {self.node_fit_errors[failed[0][1]]}" if failed else message
        )

    def _rebuild_sub_jobs(self) -> None:
        self.sub_jobs.clear()
        self.task_to_sub_job.clear()
        for task in self.tasks.values():
            self._sub_job_of(task).add(task)

    def _sub_job_of(self, task: TaskInfo) -> SubJobInfo:
        """The sub-job that a task belongs to: of the first policy that its labels match, else the job's own."""
        gid, uid, policy = self.uid, self.uid, None
        values: tuple[str, ...] = ()
        for listed in self.pod_group.sub_groups if self.pod_group is not None else ():
            values = match_label_values(listed, task.pod)
            if values:
                policy, gid = listed, group_id(self.uid, listed.name)
                uid = sub_job_id(self.uid, listed.name, values)
                break
        self.task_to_sub_job[task.uid] = uid
        if uid not in self.sub_jobs:
            if policy is None:
                size = None if self.contains_sub_job_policy else self.min_available
                policy = SubGroupPolicy("", size=size, network_topology=self.network_topology)
            self.sub_jobs[uid] = SubJobInfo(gid, uid, self.uid, policy, values)
        return self.sub_jobs[uid]


def _disruption_budget(group: PodGroup) -> DisruptionBudget:
    if JDB_MIN_AVAILABLE in group.annotations:
        return DisruptionBudget(min_available=group.annotations[JDB_MIN_AVAILABLE])
    return DisruptionBudget(max_unavailable=group.annotations.get(JDB_MAX_UNAVAILABLE, ""))
