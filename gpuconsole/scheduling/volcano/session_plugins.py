"""Extension points of a session: the functions that plugins register, and how their results combine.

Volcano 1.15 framework/session_plugins.go. Functions are registered by plugin name and called tier by tier; each
extension point combines the results by its own rule. A plugin takes part at an extension point if its tier enables it
there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import TypeVar, cast

from msgspec import Struct, field

from gpuconsole.scheduling.volcano.api.hyper_nodes import HyperNodeInfo
from gpuconsole.scheduling.volcano.api.job import FitError, JobInfo, SubJobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import EnabledFlag, Tier

PERMIT = 1
ABSTAIN = 0
REJECT = -1
"""A plugin's votes, for example on enqueueing a job or on victims: against, no opinion, in favour."""


class InvalidJob(Struct, frozen=True):
    """Result of a job's validation: why it may not be scheduled in this session (api.ValidateResult)."""

    reason: str
    message: str


class VictimRequester(Enum):
    """Kind of eviction: for a gang or for one task, within a queue (preempt) or between queues (reclaim)."""

    GANG_PREEMPT = auto()
    GANG_RECLAIM = auto()
    TASK_PREEMPT = auto()
    TASK_RECLAIM = auto()


class EvictionContext(Struct, frozen=True):
    """Why victims are needed: the kind of eviction, the job and, if they are for one task, the task."""

    kind: VictimRequester
    job: JobInfo
    task: TaskInfo | None = None
    hyper_node: str = ""
    """The domain in which victims are searched."""


class Purpose(Enum):
    """Purpose of a search for hyper nodes: to place tasks in idle capacity, or to find victims."""

    ALLOCATE = auto()
    EVICT = auto()


class EventHandler(Struct, frozen=True):
    """A plugin's callbacks for a task that gets a node in this session, or loses it; None if it has none."""

    allocate: Callable[[TaskInfo], None] | None = None
    deallocate: Callable[[TaskInfo], None] | None = None


def depends_on_node_and_class(task: TaskInfo) -> bool:
    """`VolcanoFunctions.cacheable_tasks` of plugins whose results depend only on the node and the class of the task."""
    return True


VictimsVote = tuple[list[TaskInfo] | None, int]
"""The selected victims and the vote; with ABSTAIN the victims are ignored."""
HyperNodeGradients = list[list[HyperNodeInfo]]
"""Groups of hyper nodes, the preferred group first."""


class VolcanoFunctions(Struct):
    """The functions that plugins registered: one mapping per extension point, plugin name → function. Mutates.

    An order is negative if the first argument comes first, positive if the second does, 0 if the plugin has no
    preference. A predicate returns None if the task fits.
    """

    job_order: dict[str, Callable[[JobInfo, JobInfo], int]] = field(default_factory=dict)
    sub_job_order: dict[str, Callable[[SubJobInfo, SubJobInfo], int]] = field(default_factory=dict)
    queue_order: dict[str, Callable[[QueueInfo, QueueInfo], int]] = field(default_factory=dict)
    victim_queue_order: dict[str, Callable[[QueueInfo, QueueInfo, QueueInfo], int]] = field(default_factory=dict)
    """(left, right, queue of the preemptor): negative if victims of the left queue are evicted first."""
    task_order: dict[str, Callable[[TaskInfo, TaskInfo], int]] = field(default_factory=dict)
    pre_predicates: dict[str, Callable[[TaskInfo], FitError | None]] = field(default_factory=dict)
    predicates: dict[str, Callable[[TaskInfo, NodeInfo], FitError | None]] = field(default_factory=dict)
    best_node: dict[str, Callable[[TaskInfo, dict[float, list[NodeInfo]]], NodeInfo | None]] = field(
        default_factory=dict
    )
    node_order: dict[str, Callable[[TaskInfo, NodeInfo], float]] = field(default_factory=dict)
    batch_node_order: dict[str, Callable[[TaskInfo, list[NodeInfo]], dict[str, float]]] = field(default_factory=dict)
    hyper_node_order: dict[str, Callable[[SubJobInfo, dict[str, list[NodeInfo]]], dict[str, float]]] = field(
        default_factory=dict
    )
    preemptable: dict[str, Callable[[TaskInfo, list[TaskInfo]], VictimsVote]] = field(default_factory=dict)
    reclaimable: dict[str, Callable[[TaskInfo, list[TaskInfo]], VictimsVote]] = field(default_factory=dict)
    unified_evictable: dict[str, Callable[[EvictionContext, list[TaskInfo]], VictimsVote]] = field(default_factory=dict)
    overused: dict[str, Callable[[QueueInfo], bool]] = field(default_factory=dict)
    preemptive: dict[str, Callable[[QueueInfo, list[TaskInfo]], bool]] = field(default_factory=dict)
    allocatable: dict[str, Callable[[QueueInfo, TaskInfo], bool]] = field(default_factory=dict)
    job_ready: dict[str, Callable[[JobInfo], bool]] = field(default_factory=dict)
    sub_job_ready: dict[str, Callable[[SubJobInfo], bool]] = field(default_factory=dict)
    job_pipelined: dict[str, Callable[[JobInfo], int]] = field(default_factory=dict)
    sub_job_pipelined: dict[str, Callable[[SubJobInfo], int]] = field(default_factory=dict)
    job_valid: dict[str, Callable[[JobInfo], InvalidJob | None]] = field(default_factory=dict)
    job_enqueueable: dict[str, Callable[[JobInfo], int]] = field(default_factory=dict)
    job_enqueued: dict[str, Callable[[JobInfo], None]] = field(default_factory=dict)
    job_starving: dict[str, Callable[[JobInfo], bool]] = field(default_factory=dict)
    victim_tasks: dict[str, list[Callable[[list[TaskInfo]], list[TaskInfo]]]] = field(default_factory=dict)
    simulate_add: dict[str, Callable[[TaskInfo, TaskInfo, NodeInfo], None]] = field(default_factory=dict)
    """(preemptor, task put back, copy of a node): updates the plugin's state in a topology-aware preemption trial."""
    simulate_remove: dict[str, Callable[[TaskInfo, TaskInfo, NodeInfo], None]] = field(default_factory=dict)
    simulate_predicate: dict[str, Callable[[TaskInfo, NodeInfo], FitError | None]] = field(default_factory=dict)
    simulate_allocatable: dict[str, Callable[[QueueInfo, TaskInfo], bool]] = field(default_factory=dict)
    job_gradients: dict[str, Callable[[JobInfo, HyperNodeInfo, Purpose], HyperNodeGradients]] = field(
        default_factory=dict
    )
    """Candidate hyper nodes for a job at or below a given one, in groups, the preferred group first."""
    sub_job_gradients: dict[str, Callable[[SubJobInfo, HyperNodeInfo, Purpose], HyperNodeGradients]] = field(
        default_factory=dict
    )
    cacheable_tasks: dict[str, Callable[[TaskInfo], bool]] = field(default_factory=dict)
    """True if the plugin's predicate and score depend only on the node and the class of the task (see
    `PredicateCache`).
    """
    handlers: list[EventHandler] = field(default_factory=list)


F = TypeVar("F")
Comparison = Callable[[F, F], int]


class SessionPlugins:
    """Calls the functions of a session's plugins at each extension point, and combines their results."""

    def __init__(self, tiers: Sequence[Tier]) -> None:
        self.tiers = tuple(tiers)
        self.functions = VolcanoFunctions()
        self._enabled_cache: dict[tuple[int, EnabledFlag | None], tuple[int, Sequence[Sequence[object]]]] = {}

    def hierarchy_enabled(self, plugin: str) -> bool:
        """True if enableHierarchy is set for the plugin in the first tier that names it."""
        options = (option for tier in self.tiers for option in tier if option.name == plugin)
        return any(EnabledFlag.HIERARCHY in option.enabled for option in [next(options, None)] if option is not None)

    def _tiers(self, registered: Mapping[str, F], flag: EnabledFlag | None) -> Sequence[Sequence[F]]:
        """The enabled functions, tier by tier; tiers without any are left out."""
        key = id(registered), flag
        known = self._enabled_cache.get(key)
        if known is None or known[0] != len(registered):
            found = [
                [
                    registered[option.name]
                    for option in tier
                    if option.name in registered and (flag is None or flag in option.enabled)
                ]
                for tier in self.tiers
            ]
            known = self._enabled_cache[key] = len(registered), [functions for functions in found if functions]
        return cast(Sequence[Sequence[F]], known[1])

    def _enabled_functions(self, registered: Mapping[str, F], flag: EnabledFlag | None) -> Iterable[F]:
        return (function for functions in self._tiers(registered, flag) for function in functions)

    # Orders: the first plugin with a preference decides.

    def _compare(self, registered: Mapping[str, Comparison[F]], flag: EnabledFlag, left: F, right: F) -> int:
        for order in self._enabled_functions(registered, flag):
            if result := order(left, right):
                return result
        return 0

    def job_compare(self, left: JobInfo, right: JobInfo) -> int:
        """Negative if the left job comes first, positive if the right one does, 0 if no plugin has a preference."""
        return self._compare(self.functions.job_order, EnabledFlag.JOB_ORDER, left, right)

    def job_precedes(self, left: JobInfo, right: JobInfo) -> bool:
        """True if the left job comes first; among equals the older, then by uid."""
        result = self.job_compare(left, right)
        return result < 0 if result else (left.created, left.uid) < (right.created, right.uid)

    def queue_precedes(self, left: QueueInfo, right: QueueInfo) -> bool:
        """True if the left queue comes first; among equals the older, then by uid."""
        result = self._compare(self.functions.queue_order, EnabledFlag.QUEUE_ORDER, left, right)
        return result < 0 if result else (left.queue.created, left.uid) < (right.queue.created, right.uid)

    def victim_queue_precedes(self, left: QueueInfo, right: QueueInfo, preemptor: QueueInfo) -> bool:
        """True if victims of the left queue are evicted first for `preemptor`; by default in reverse queue order."""
        for order in self._enabled_functions(self.functions.victim_queue_order, None):
            if result := order(left, right, preemptor):
                return result < 0
        return not self.queue_precedes(left, right)

    def task_precedes(self, left: TaskInfo, right: TaskInfo) -> bool:
        """True if the left task comes first; among equals by the number in its name, then the older, then by uid."""
        result = self._compare(self.functions.task_order, EnabledFlag.TASK_ORDER, left, right)
        return result < 0 if result else left.precedes(right)

    def sub_job_precedes(self, left: SubJobInfo, right: SubJobInfo) -> bool:
        """True if the left sub-job comes first; among equals by number, then by uid."""
        result = self._compare(self.functions.sub_job_order, EnabledFlag.SUB_JOB_ORDER, left, right)
        return result < 0 if result else (left.match_index, left.uid) < (right.match_index, right.uid)

    # Victims: the voting plugins of a tier must agree; the first tier with victims decides.

    def preemptable(self, preemptor: TaskInfo, candidates: list[TaskInfo]) -> list[TaskInfo] | None:
        """The candidates that a task may preempt; None if no tier decided."""
        tiers = self._tiers(self.functions.preemptable, EnabledFlag.PREEMPTABLE)
        return _first_tier_victims((result(preemptor, candidates) for result in tier) for tier in tiers)

    def reclaimable(self, reclaimer: TaskInfo, candidates: list[TaskInfo]) -> list[TaskInfo] | None:
        """The candidates that a task may reclaim from; None if no tier decided."""
        tiers = self._tiers(self.functions.reclaimable, EnabledFlag.RECLAIMABLE)
        return _first_tier_victims((result(reclaimer, candidates) for result in tier) for tier in tiers)

    def unified_evictable(self, context: EvictionContext, candidates: list[TaskInfo]) -> list[TaskInfo] | None:
        """The candidates that a gang may evict; None if no tier decided."""
        tiers = self._tiers(self.functions.unified_evictable, None)
        return _first_tier_victims((result(context, candidates) for result in tier) for tier in tiers)

    def victim_tasks(self, tasks: list[TaskInfo]) -> list[TaskInfo]:
        """Running tasks to evict regardless of pending jobs, by uid: all of the first tier whose plugins name any."""
        for functions in self._tiers(self.functions.victim_tasks, EnabledFlag.VICTIM):
            found = {task.uid: task for several in functions for function in several for task in function(tasks)}
            if found:
                return [found[uid] for uid in sorted(found)]
        return []

    # Queues.

    def overused(self, queue: QueueInfo) -> bool:
        """True if any plugin says that the queue uses more than it may, so that it gets nothing more."""
        return any(result(queue) for result in self._enabled_functions(self.functions.overused, EnabledFlag.OVERUSED))

    def preemptive(self, queue: QueueInfo, tasks: list[TaskInfo]) -> bool:
        """True unless a plugin forbids the queue to reclaim resources for these tasks."""
        return all(
            result(queue, tasks)
            for result in self._enabled_functions(self.functions.preemptive, EnabledFlag.PREEMPTIVE)
        )

    def allocatable(self, queue: QueueInfo, task: TaskInfo) -> bool:
        """True unless a plugin forbids the queue to take this task."""
        return all(
            result(queue, task)
            for result in self._enabled_functions(self.functions.allocatable, EnabledFlag.ALLOCATABLE)
        )

    # Jobs.

    def job_ready(self, job: JobInfo) -> bool:
        """True if all plugins let the job start."""
        return all(result(job) for result in self._enabled_functions(self.functions.job_ready, EnabledFlag.JOB_READY))

    def sub_job_ready(self, job: JobInfo, sub_job: SubJobInfo) -> bool:
        """As `job_ready`, for a sub-job; without subGroupPolicies its job decides."""
        if not job.contains_sub_job_policy:
            return self.job_ready(job)
        return all(
            result(sub_job)
            for result in self._enabled_functions(self.functions.sub_job_ready, EnabledFlag.SUB_JOB_READY)
        )

    def job_pipelined(self, job: JobInfo) -> bool:
        """True if the job's allocated and pipelined tasks suffice to keep their reservations."""
        return self._is_permitted(self.functions.job_pipelined, EnabledFlag.JOB_PIPELINED, job)

    def sub_job_pipelined(self, job: JobInfo, sub_job: SubJobInfo) -> bool:
        """As `job_pipelined`, for a sub-job; without subGroupPolicies its job decides."""
        if not job.contains_sub_job_policy:
            return self.job_pipelined(job)
        return self._is_permitted(self.functions.sub_job_pipelined, EnabledFlag.SUB_JOB_PIPELINED, sub_job)

    def job_enqueueable(self, job: JobInfo) -> bool:
        """True if the job may be enqueued."""
        return self._is_permitted(self.functions.job_enqueueable, EnabledFlag.JOB_ENQUEUED, job)

    def _is_permitted(self, registered: Mapping[str, Callable[[F], int]], flag: EnabledFlag, obj: F) -> bool:
        """A rejection decides at once; the first tier with a permit decides; without votes it is permitted."""
        for functions in self._tiers(registered, flag):
            permitted = False
            for result in functions:
                vote = result(obj)
                if vote < ABSTAIN:
                    return False
                permitted = permitted or vote > ABSTAIN
            if permitted:
                return True
        return True

    def job_enqueued(self, job: JobInfo) -> None:
        """Notify the plugins that the job was enqueued."""
        for tell in self._enabled_functions(self.functions.job_enqueued, EnabledFlag.JOB_ENQUEUED):
            tell(job)

    def job_starving(self, job: JobInfo) -> bool:
        """True if all plugins of the first tier with such a function call the job starving, so that it may preempt."""
        tiers = self._tiers(self.functions.job_starving, EnabledFlag.JOB_STARVING)
        return bool(tiers) and all(result(job) for result in tiers[0])

    def job_valid(self, job: JobInfo) -> InvalidJob | None:
        """Why the job may not be scheduled; None if it may."""
        return next(
            filter(None, (result(job) for result in self._enabled_functions(self.functions.job_valid, None))), None
        )

    # Nodes.

    def pre_predicate(self, task: TaskInfo) -> FitError | None:
        """Why the task fits on no node at all; None if some may do."""
        asked = self._enabled_functions(self.functions.pre_predicates, EnabledFlag.PREDICATE)
        return next(filter(None, (result(task) for result in asked)), None)

    def predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        """Why the task does not fit on the node, by the first plugin that rejects it; None if it fits."""
        for result in self._enabled_functions(self.functions.predicates, EnabledFlag.PREDICATE):
            if (error := result(task, node)) is not None:
                return error
        return None

    def best_node(self, task: TaskInfo, scores: dict[float, list[NodeInfo]]) -> NodeInfo | None:
        """The node that a plugin picks; None if none does. `scores` has the nodes by score."""
        asked = self._enabled_functions(self.functions.best_node, EnabledFlag.BEST_NODE)
        return next(filter(None, (result(task, scores) for result in asked)), None)

    def node_scores(
        self, task: TaskInfo, nodes: Sequence[NodeInfo], known: dict[str, tuple[int, float]] | None = None
    ) -> dict[str, float]:
        """The sum of the plugins' scores, by node; `known` caches per-node scores with the node's `change_count`."""
        one_by_one = list(self._enabled_functions(self.functions.node_order, EnabledFlag.NODE_ORDER))
        batch: dict[str, float] = {}
        for result in self._enabled_functions(self.functions.batch_node_order, EnabledFlag.NODE_ORDER):
            scores = result(task, list(nodes))
            added = {name: batch.get(name, 0.0) + score for name, score in scores.items()} if batch else scores
            batch = {**batch, **added}
        found = {} if known is None else known
        for node in nodes:
            entry = found.get(node.name)
            if entry is None or entry[0] != node.change_count:
                found[node.name] = node.change_count, float(sum(ask(task, node) for ask in one_by_one))
        return {node.name: found[node.name][1] + batch.get(node.name, 0.0) for node in nodes}

    def hyper_node_scores(self, sub_job: SubJobInfo, hyper_nodes: dict[str, list[NodeInfo]]) -> dict[str, float]:
        """The sum of the plugins' scores, by hyper node."""
        scores = dict.fromkeys(hyper_nodes, 0.0)
        for result in self._enabled_functions(self.functions.hyper_node_order, EnabledFlag.HYPER_NODE_ORDER):
            for name, score in result(sub_job, hyper_nodes).items():
                if name in scores:
                    scores[name] += score
        return scores

    def job_gradients(self, job: JobInfo, below: HyperNodeInfo, purpose: Purpose) -> HyperNodeGradients:
        """Candidate hyper nodes for a job at or below `below`, preferred group first; without a plugin only `below`."""
        for result in self._enabled_functions(self.functions.job_gradients, EnabledFlag.HYPER_NODE_GRADIENT):
            return result(job, below, purpose)
        return [[below]]

    def sub_job_gradients(self, sub_job: SubJobInfo, below: HyperNodeInfo, purpose: Purpose) -> HyperNodeGradients:
        """As `job_gradients`, for a sub-job."""
        for result in self._enabled_functions(self.functions.sub_job_gradients, EnabledFlag.HYPER_NODE_GRADIENT):
            return result(sub_job, below, purpose)
        return [[below]]

    # Topology-aware preemption, which tries evictions on copies of nodes.

    def simulate_allocatable(self, queue: QueueInfo, task: TaskInfo) -> bool:
        """True unless a plugin forbids the queue to take this task in a trial."""
        return all(
            result(queue, task)
            for result in self._enabled_functions(self.functions.simulate_allocatable, EnabledFlag.ALLOCATABLE)
        )

    def simulate_predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        """Why the task does not fit on the copy of a node; None if it does."""
        asked = self._enabled_functions(self.functions.simulate_predicate, EnabledFlag.PREDICATE)
        return next(filter(None, (result(task, node) for result in asked)), None)

    def simulate_remove(self, preemptor: TaskInfo, task: TaskInfo, node: NodeInfo) -> None:
        """Notify the plugins that a task is removed from the copy of a node."""
        for tell in self._simulation_functions(self.functions.simulate_remove):
            tell(preemptor, task, node)

    def simulate_add(self, preemptor: TaskInfo, task: TaskInfo, node: NodeInfo) -> None:
        """Notify the plugins that a task is put back on the copy of a node."""
        for tell in self._simulation_functions(self.functions.simulate_add):
            tell(preemptor, task, node)

    def _simulation_functions(self, registered: Mapping[str, F]) -> Iterable[F]:
        for option in (option for tier in self.tiers for option in tier if option.name in registered):
            if option.enabled & {EnabledFlag.PREEMPTABLE, EnabledFlag.ALLOCATABLE}:
                yield registered[option.name]


def _first_tier_victims(tiers: Iterable[Iterable[VictimsVote]]) -> list[TaskInfo] | None:
    """The victims of the first tier that names any.

    An empty vote ends its tier without a decision. Where two lists have nothing in common, the next plugin of the tier
    starts with its own.
    """
    for tier in tiers:
        victims: list[TaskInfo] | None = None
        for candidates, vote in tier:
            if vote == ABSTAIN:
                continue
            if not candidates:
                victims = None
                break
            if victims is None:
                victims = candidates
            else:
                uids = {task.uid for task in candidates}
                victims = [task for task in victims if task.uid in uids] or None
        if victims is not None:
            return victims
    return None


class PodGroupStatusCondition(Struct, frozen=True):
    """A condition that a session writes to the status of a PodGroup."""

    type: str
    """`Unschedulable` or `Scheduled`."""
    reason: str
    message: str
