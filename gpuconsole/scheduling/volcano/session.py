"""A Volcano session: a snapshot of the cluster, the plugins' functions, and the changes by actions. Mutates.

Volcano 1.15 framework/session.go and statement.go. The session owns its tasks, jobs and nodes, which are copies made
for it. Actions change it through statements, whose evictions, allocations and pipelined tasks are committed or
discarded together. Plugins read the session when it opens and register their functions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, StrEnum, auto
from typing import ClassVar, Protocol

from msgspec import Struct, field

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod, ResourceQuota
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.volcano import Numatopology
from gpuconsole.scheduling.devices.allocator import ClaimAllocations, DraInventory
from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.kube.volumes import Storage, VolumeBindingPlan
from gpuconsole.scheduling.volcano.api.hyper_nodes import HyperNodeDomains
from gpuconsole.scheduling.volcano.api.job import FitError, JobInfo, PredicateCode
from gpuconsole.scheduling.volcano.api.node import NodeInfo, NodePods
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus
from gpuconsole.scheduling.volcano.config import MigModel, Sampling, VolcanoArguments, VolcanoConfiguration
from gpuconsole.scheduling.volcano.session_plugins import PodGroupStatusCondition, SessionPlugins


class StatementOperation(Enum):
    """What a step of a statement does."""

    EVICT = auto()
    PIPELINE = auto()
    ALLOCATE = auto()


class StatementStep(Struct, frozen=True):
    """One step of a statement: a task is evicted, pipelined or allocated."""

    operation: StatementOperation
    task: TaskInfo
    reason: str = ""
    """The action that evicts the task."""
    by: str = ""
    """Key of the preempting task; empty if the eviction is for a gang."""


class CommittedEviction(Struct, frozen=True):
    """An eviction that was committed: the task, the action, and the preempting task (as in `StatementStep`)."""

    task: TaskInfo
    action: str
    by: str = ""


class PlacementRejected(Exception):
    """The node rejects the task; the statement has undone the placement."""


class VolcanoStatement:
    """Evictions and placements that are committed or undone together. Mutates the session at once.

    `commit` makes the steps final, `discard` undoes them (Volcano 1.15 framework/statement.go).
    """

    def __init__(self, session: "VolcanoSession") -> None:
        self._session = session
        self.operations: list[StatementStep] = []

    def evict(self, task: TaskInfo, reason: str, by: str = "") -> None:
        """Evict the task for the task `by`; its resources are releasing from now on."""
        self._session.update_status_everywhere(task, TaskStatus.RELEASING)
        self._session.notify_deallocated(task)
        self.operations.append(StatementStep(StatementOperation.EVICT, task, reason, by))

    def pipeline(self, task: TaskInfo, node: str, *, eviction_occurred: bool) -> None:
        """Reserve releasing resources of a node for the task.

        Raises:
            CannotPlace: the node rejects the task.
        """
        task.eviction_occurred = eviction_occurred
        self._place_task(task, node, TaskStatus.PIPELINED)
        self.operations.append(StatementStep(StatementOperation.PIPELINE, task))

    def allocate(self, task: TaskInfo, node: NodeInfo) -> None:
        """Allocate the task to a node.

        Raises:
            CannotPlace: the node rejects the task.
        """
        self._place_task(task, node.name, TaskStatus.ALLOCATED)
        self.operations.append(StatementStep(StatementOperation.ALLOCATE, task))

    def _place_task(self, task: TaskInfo, node: str, status: TaskStatus) -> None:
        problem = self._session.add_to_node(task, node, status)
        self._session.notify_allocated(task)
        if problem:
            self.undo_placement(task)
            raise PlacementRejected(problem)

    def undo_placement(self, task: TaskInfo) -> None:
        """Undo the placement of a task, which is pending again."""
        session = self._session
        session.update_status(task, TaskStatus.PENDING)
        node = session.nodes.get(task.node_name)
        if node is not None:
            node.remove_task(task)
        session.notify_deallocated(task)
        task.node_name = task.hyper_node = ""

    def discard(self) -> None:
        """Undo the steps, the last first; the tasks keep what was tried as their last transaction."""
        for operation in reversed(self.operations):
            operation.task.save_transaction()
            if operation.operation is StatementOperation.EVICT:
                self._session.update_status_everywhere(operation.task, TaskStatus.RUNNING)
                self._session.notify_allocated(operation.task)
            else:
                self.undo_placement(operation.task)
        self.operations = []

    def commit(self) -> None:
        """Make the steps final: evict victims and bind allocated tasks. Reservations last for this session only."""
        for operation in self.operations:
            operation.task.last_transaction = None
            if operation.operation is StatementOperation.EVICT:
                self._session.evictions.append(CommittedEviction(operation.task, operation.reason, operation.by))
            elif operation.operation is StatementOperation.ALLOCATE:
                self._session.bind(operation.task)
        self.operations = []

    def merge_from(self, other: "VolcanoStatement") -> None:
        """Move the steps of another statement to this one."""
        self.operations += other.operations
        other.operations = []

    def repeat(self, saved: Iterable[StatementStep]) -> None:
        """Repeat steps that were saved by `saved`, for example those of the best trial.

        Raises:
            CannotPlace: a node rejects its task now.
        """
        for operation in saved:
            task = operation.task
            match operation.operation:
                case StatementOperation.EVICT:
                    self.evict(task, operation.reason, operation.by)
                case StatementOperation.PIPELINE:
                    self.pipeline(task, task.node_name, eviction_occurred=task.eviction_occurred)
                case StatementOperation.ALLOCATE:
                    self.allocate(task, self._session.nodes[task.node_name])


def save_steps(statements: Iterable[VolcanoStatement]) -> list[StatementStep]:
    """Copy the steps of statements, with their tasks as they are now, to repeat them by `repeat`."""
    result = []
    for operation in (operation for statement in statements for operation in statement.operations):
        task = operation.task.copy()
        task.eviction_occurred = operation.task.eviction_occurred
        result.append(StatementStep(operation.operation, task, operation.reason, operation.by))
    return result


DEFAULT_SAMPLING = Sampling()


class Sharding(StrEnum):
    """How a scheduler treats nodes of other shards."""

    NONE = ""
    SOFT = "soft"
    """The scheduler uses them if no node of its own shard will do."""
    HARD = "hard"
    """The scheduler never uses them."""


class CycleData(Protocol):
    """State that a plugin keeps for one task while the task is scheduled (CycleState)."""

    def copy(self) -> "CycleData": ...


class BudgetAllowance(Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget, and how many more of its pods may be disrupted now."""

    namespace: str
    selector: LabelSelector | None = None
    allowed: int = 0
    """status.disruptionsAllowed."""
    disrupted: frozenset[str] = frozenset()
    """Names of pods whose disruption is under way (status.disruptedPods)."""

    def covers(self, pod: Pod) -> bool:
        """True if the budget selects this pod, whose disruption is not under way; an empty selector selects none."""
        if pod.namespace != self.namespace or self.selector is None or pod.name in self.disrupted:
            return False
        asks = self.selector.match_labels or self.selector.match_expressions
        return bool(asks) and self.selector.matches(pod.labels)


class ClusterInfo(Struct, kw_only=True):
    """The snapshot of the cluster on which a session is opened."""

    jobs: dict[str, JobInfo] = field(default_factory=dict)
    """Job by uid: `namespace/name` of its PodGroup."""
    nodes: dict[str, NodeInfo] = field(default_factory=dict)
    queues: dict[str, QueueInfo] = field(default_factory=dict)
    domains: HyperNodeDomains = field(default_factory=HyperNodeDomains)
    budgets: list[BudgetAllowance] = field(default_factory=list)
    """PodDisruptionBudgets with the disruptions that they allow."""
    quotas: dict[str, list[ResourceQuota]] = field(default_factory=dict)
    """ResourceQuotas by namespace."""
    numa: dict[str, Numatopology] = field(default_factory=dict)
    """Numatopology by node."""
    storage: Storage = field(default_factory=Storage)
    mig_models: tuple[MigModel, ...] = ()
    """MIG groups by GPU model, as Volcano's device plugin is configured."""
    inventory: DraInventory = field(default_factory=DraInventory)
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    """Feature gates of Kubernetes that differ from their defaults."""
    last_runs: dict[str, Time] = field(default_factory=dict)
    """When periodic plugins last ran, by plugin; handed from session to session."""
    now: Time = 0


class VolcanoPlugin(Protocol):
    """A scheduler plugin; one instance serves one session and keeps that session's state. Mutates."""

    name: ClassVar[str]
    """The plugin's name in volcano-scheduler.conf."""

    def __init__(self, arguments: VolcanoArguments) -> None:
        """Read the plugin's arguments; a missing or malformed one takes its default."""

    def on_session_open(self, session: "VolcanoSession") -> None:
        """Register functions in `session.functions` under the plugin's name."""

    def on_session_close(self, session: "VolcanoSession") -> None:
        """Store results, such as PodGroup conditions, in the session."""
        return


class VolcanoSession(SessionPlugins):
    """One scheduling session; it is open once constructed.

    `plugins` are the known plugin classes by name; a plugin that a tier names and that is not among them is left out.
    """

    def __init__(
        self,
        configuration: VolcanoConfiguration,
        cluster: ClusterInfo,
        *,
        plugins: Mapping[str, type[VolcanoPlugin]],
        sampling: Sampling = DEFAULT_SAMPLING,
        search_start: int = 0,
    ) -> None:
        super().__init__(configuration.tiers)
        self.configuration = configuration
        self.now = cluster.now
        self.jobs = {uid: cluster.jobs[uid] for uid in sorted(cluster.jobs)}
        self.nodes = {name: cluster.nodes[name] for name in sorted(cluster.nodes)}
        self.node_list = list(self.nodes.values())
        self.revocable_nodes = {name: node for name, node in self.nodes.items() if node.revocable_zone}
        self.queues = {uid: cluster.queues[uid] for uid in sorted(cluster.queues)}
        self.node_pods = NodePods(self.node_list)
        self.budgets, self.quotas, self.numa = cluster.budgets, cluster.quotas, cluster.numa
        self.last_runs, self.feature_gates = cluster.last_runs, cluster.feature_gates
        self.storage, self.inventory = cluster.storage, cluster.inventory
        self.mig_models = cluster.mig_models
        self.assumed_volumes: dict[str, VolumeBindingPlan] = {}
        """Volume bindings reserved for a pod with its node, by the pod's key."""
        self.assigned_instances: dict[str, tuple[MigInstance, ...]] = {}
        """MIG instances to create for a pod on its node, by the pod's key."""
        self.claim_allocations: dict[str, ClaimAllocations] = {}
        """DRA devices reserved for a pod with its node, by the pod's key."""
        self.total = Resource.sum(node.allocatable for node in self.node_list)
        domains = cluster.domains
        domains.open(self.jobs.values(), self.nodes)
        self.domains = domains
        self.hyper_nodes = domains.hyper_nodes
        self.hyper_nodes_by_tier = domains.by_tier
        self.hyper_node_tiers = domains.tiers
        self.real_nodes = domains.real_nodes
        self.real_node_list = {
            name: [self.nodes[node] for node in sorted(nodes)] for name, nodes in domains.real_nodes.items()
        }
        self.sampling = sampling
        self.search_start = search_start
        """Where the next search for nodes begins."""
        self.sharding = Sharding.NONE
        self.nodes_in_shard: frozenset[str] = frozenset()
        self.cycle_states: dict[str, dict[str, CycleData]] = {}
        self.evictions: list[CommittedEviction] = []
        """Committed evictions, in order."""
        self.binds: list[TaskInfo] = []
        """Tasks that were bound, in order."""
        self.wake_ups: list[Time] = []
        """Times at which plugins' results change although no object does."""
        self.events: list[tuple[JobInfo, str]] = []
        """Jobs that a plugin refused to enqueue, with the message."""
        self.conditions: dict[str, PodGroupStatusCondition] = {}
        """Condition of each job's PodGroup by the job's uid, set when the session closes."""
        self.plugins: list[VolcanoPlugin] = []
        for option in (option for tier in self.tiers for option in tier if option.name in plugins):
            plugin = plugins[option.name](option.arguments)
            self.plugins.append(plugin)
            plugin.on_session_open(self)

    def is_configured(self, action: str) -> bool:
        """True if the scheduler's configuration names the action."""
        return action in self.configuration.actions

    # Changes of tasks.

    def update_status(self, task: TaskInfo, status: TaskStatus) -> None:
        """Set a task's status in its job."""
        self.jobs[task.job].update_status(task, status)

    def update_status_everywhere(self, task: TaskInfo, status: TaskStatus) -> None:
        """Set the status of a task in its job and on its node."""
        self.update_status(task, status)
        node = self.nodes.get(task.node_name)
        if node is not None:
            node.update_task(task)

    def add_to_node(self, task: TaskInfo, node: str, status: TaskStatus) -> str:
        """Put a task on a node with this status; returns why the node rejects it, empty if it does not."""
        self.update_status(task, status)
        task.node_name = node
        return self.nodes[node].add_task(task)

    def notify_allocated(self, task: TaskInfo) -> None:
        """Notify the plugins that a task has a node."""
        for handler in self.functions.handlers:
            if handler.allocate is not None:
                handler.allocate(task)

    def notify_deallocated(self, task: TaskInfo) -> None:
        """Notify the plugins that a task has lost its node."""
        for handler in self.functions.handlers:
            if handler.deallocate is not None:
                handler.deallocate(task)

    def bind(self, task: TaskInfo) -> None:
        """Bind a task to its node; this cannot be undone."""
        self.binds.append(task)
        self.update_status(task, TaskStatus.BINDING)

    def allocate(self, task: TaskInfo, node: NodeInfo) -> None:
        """Allocate a task outside of any statement; if its job is then ready, all its allocated tasks are bound."""
        if self.add_to_node(task, node.name, TaskStatus.ALLOCATED):
            return
        self.notify_allocated(task)
        job = self.jobs[task.job]
        if self.job_ready(job):
            for ready in list(job.tasks_with_status(TaskStatus.ALLOCATED).values()):
                self.bind(ready)

    def evict(self, task: TaskInfo, reason: str) -> None:
        """Evict a task outside of any statement; this cannot be undone."""
        self.evictions.append(CommittedEviction(task, reason))
        self.update_status_everywhere(task, TaskStatus.RELEASING)
        self.notify_deallocated(task)

    # Selection of nodes and victims.

    def predicate_for_allocate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        """Why the task cannot be put on the node now; None if it can."""
        return self.predicate(task, node)

    def predicate_for_preempt(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        """Why no eviction would make the task fit on the node; None if one may."""
        error = self.predicate(task, node)
        if error is not None and error.has_code(
            PredicateCode.UNRESOLVABLE, PredicateCode.ERROR, PredicateCode.WAIT, PredicateCode.SKIP
        ):
            return error
        return None

    def nodes_where_preemption_may_help(self, task: TaskInfo) -> list[NodeInfo]:
        """All nodes except those where `allocate` found that no eviction would make the task fit."""
        job = self.jobs.get(task.job)
        errors = None if job is None else job.node_fit_errors.get(task.uid)
        unresolvable = set() if errors is None else errors.unresolvable_nodes()
        return [node for node in self.node_list if node.name not in unresolvable]

    def out_of_shard_error(self, node: NodeInfo) -> FitError | None:
        """The error of a node of another scheduler's shard that may not be used; None if the node may be used."""
        if self.sharding is Sharding.HARD and node.name not in self.nodes_in_shard:
            return FitError.from_reasons(PredicateCode.ERROR, "node isn't in scheduler node shard")
        return None

    def split_by_shard(self, nodes: Sequence[NodeInfo]) -> tuple[list[NodeInfo], list[NodeInfo]]:
        """(nodes to try first, nodes of other shards to try then); the second list is empty unless sharding is soft."""
        if self.sharding is not Sharding.SOFT:
            return list(nodes), []
        own = [node for node in nodes if node.name in self.nodes_in_shard]
        return own, [node for node in nodes if node.name not in self.nodes_in_shard]

    def victims_heap(self, victims: Iterable[TaskInfo], preemptor: TaskInfo) -> Heap[TaskInfo]:
        """Victims in order of eviction (BuildVictimsPriorityQueue)."""
        mine = self.jobs.get(preemptor.job)

        def goes_first(left: TaskInfo, right: TaskInfo) -> bool:
            ours, theirs = self.jobs.get(left.job), self.jobs.get(right.job)
            if left.job == right.job or (ours is None and theirs is None):
                return not self.task_precedes(left, right)
            if ours is None or theirs is None:
                return ours is None
            if mine is not None and ours.queue != theirs.queue:
                queues = self.queues
                return self.victim_queue_precedes(queues[ours.queue], queues[theirs.queue], queues[mine.queue])
            said = self.job_compare(ours, theirs)
            return said > 0 if said else not self.task_precedes(left, right)

        return Heap(goes_first, victims)

    # State of plugins while a task is scheduled.

    def cycle_state(self, task: TaskInfo) -> dict[str, CycleData]:
        """The plugins' state for a task, by plugin."""
        return self.cycle_states.setdefault(task.uid, {})

    @contextmanager
    def cycle_trial(self, task: TaskInfo) -> Iterator[None]:
        """Context manager in which the task's cycle state is a copy; afterwards the original is restored."""
        last_runs = self.cycle_state(task)
        self.cycle_states[task.uid] = {name: data.copy() for name, data in last_runs.items()}
        try:
            yield
        finally:
            self.cycle_states[task.uid] = last_runs
