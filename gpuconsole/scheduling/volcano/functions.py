"""Extension points of a session: functions that plugins register by plugin name, called tier by tier."""

from collections.abc import Callable
from enum import Enum, auto

from msgspec import Struct, field

from gpuconsole.scheduling.volcano.api.fit_errors import FitError
from gpuconsole.scheduling.volcano.api.hyper_nodes import HyperNodeInfo
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.sub_job import SubJobInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo

PERMIT = 1
ABSTAIN = 0
REJECT = -1


class Invalid(Struct, frozen=True):
    """Why a job may not be scheduled in this session (api.ValidateResult)."""

    reason: str
    message: str


class VictimRequester(Enum):
    """Kind of eviction: for a gang or for one task, within a queue (preempt) or between queues (reclaim)."""

    GANG_PREEMPT = auto()
    GANG_RECLAIM = auto()
    TASK_PREEMPT = auto()
    TASK_RECLAIM = auto()


class EvictionContext(Struct, frozen=True):
    """The job that needs victims; `task` is set only if they are for one task."""

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
    """Callbacks when a task gets a node in this session (allocated or pipelined), and when it loses it (undone or
    evicted).
    """

    allocate: Callable[[TaskInfo], None] | None = None
    deallocate: Callable[[TaskInfo], None] | None = None


def always(task: TaskInfo) -> bool:
    """Value of `VolcanoFunctions.alone` for plugins whose results depend only on the node and the class of the task."""
    return True


Victims = tuple[list[TaskInfo] | None, int]
"""The selected victims and the vote; with ABSTAIN the victims are ignored."""
Gradients = list[list[HyperNodeInfo]]
"""Groups of hyper nodes, the preferred group first."""


class VolcanoFunctions(Struct):
    """One mapping per extension point: plugin name → function. Mutates while plugins register.

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
    preemptable: dict[str, Callable[[TaskInfo, list[TaskInfo]], Victims]] = field(default_factory=dict)
    reclaimable: dict[str, Callable[[TaskInfo, list[TaskInfo]], Victims]] = field(default_factory=dict)
    unified_evictable: dict[str, Callable[[EvictionContext, list[TaskInfo]], Victims]] = field(default_factory=dict)
    overused: dict[str, Callable[[QueueInfo], bool]] = field(default_factory=dict)
    preemptive: dict[str, Callable[[QueueInfo, list[TaskInfo]], bool]] = field(default_factory=dict)
    allocatable: dict[str, Callable[[QueueInfo, TaskInfo], bool]] = field(default_factory=dict)
    job_ready: dict[str, Callable[[JobInfo], bool]] = field(default_factory=dict)
    sub_job_ready: dict[str, Callable[[SubJobInfo], bool]] = field(default_factory=dict)
    job_pipelined: dict[str, Callable[[JobInfo], int]] = field(default_factory=dict)
    sub_job_pipelined: dict[str, Callable[[SubJobInfo], int]] = field(default_factory=dict)
    job_valid: dict[str, Callable[[JobInfo], Invalid | None]] = field(default_factory=dict)
    job_enqueueable: dict[str, Callable[[JobInfo], int]] = field(default_factory=dict)
    job_enqueued: dict[str, Callable[[JobInfo], None]] = field(default_factory=dict)
    job_starving: dict[str, Callable[[JobInfo], bool]] = field(default_factory=dict)
    target_job: dict[str, Callable[[list[JobInfo]], JobInfo | None]] = field(default_factory=dict)
    reserved_nodes: dict[str, Callable[[], None]] = field(default_factory=dict)
    victim_tasks: dict[str, list[Callable[[list[TaskInfo]], list[TaskInfo]]]] = field(default_factory=dict)
    simulate_add: dict[str, Callable[[TaskInfo, TaskInfo, NodeInfo], None]] = field(default_factory=dict)
    """(preemptor, task put back, copy of a node): updates the plugin's state in a topology-aware preemption trial."""
    simulate_remove: dict[str, Callable[[TaskInfo, TaskInfo, NodeInfo], None]] = field(default_factory=dict)
    simulate_predicate: dict[str, Callable[[TaskInfo, NodeInfo], FitError | None]] = field(default_factory=dict)
    simulate_allocatable: dict[str, Callable[[QueueInfo, TaskInfo], bool]] = field(default_factory=dict)
    job_gradients: dict[str, Callable[[JobInfo, HyperNodeInfo, Purpose], Gradients]] = field(default_factory=dict)
    """Candidate hyper nodes for a job at or below a given one, in groups, the preferred group first."""
    sub_job_gradients: dict[str, Callable[[SubJobInfo, HyperNodeInfo, Purpose], Gradients]] = field(
        default_factory=dict
    )
    alone: dict[str, Callable[[TaskInfo], bool]] = field(default_factory=dict)
    """True if the plugin's predicate and score depend only on the node and the class of the task (see
    `PredicateCache`).
    """
    handlers: list[EventHandler] = field(default_factory=list)
