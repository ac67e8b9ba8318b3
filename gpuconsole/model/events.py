"""Events: the one stream that updates the state, the history and the event log.

There are three kinds of event. `Applied` and `Deleted` change objects, as a watch on an API server does. `HistoryEvent`
describes the meaning of a change (a workload was admitted, preempted by another, …); it changes no object. The history
keeps it, and `simulate -o jsonl` prints it.
"""

from enum import StrEnum
from typing import Union

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.decisions import PreemptionTrace
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.model.objects import TABLES, Object


class HistoryEventKind(StrEnum):
    """Kind of a history event."""

    SUBMITTED = "submitted"
    PENDING = "pending"
    """The reason why a workload or a pod is pending changed; `message` is the scheduler's own text."""
    RESERVED = "reserved"
    ADMITTED = "admitted"
    PREEMPTED = "preempted"
    """A victim was chosen: `workload` is the victim, `by` the preemptor, `reason` the rule."""
    RECONSTRUCTED = "reconstructed"
    """How a victim was chosen (`choice`), reconstructed by our engine because the scheduler did not report it."""
    EVICTED = "evicted"
    """It lost its quota; `reason` says why (Preempted, NodeFailures, Deactivated …)."""
    REQUEUED = "requeued"
    PLACES = "places"
    """A workload with quota gets a topology assignment late or again, or waits for one; `reason` says which
    (UnhealthyNode, NodeReplaced, SecondPassFailed).
    """
    STARTED = "started"
    """All its pods run."""
    FINISHED = "finished"
    FAILED = "failed"
    DELETED = "deleted"
    POD_BOUND = "pod-bound"
    POD_EVICTED = "pod-evicted"
    POD_FAILED = "pod-failed"
    GANG_WAITING = "gang-waiting"
    """A gang was not scheduled: not all of its pods fit, so none was placed."""
    DEADLOCK = "deadlock"
    """Partially scheduled gangs hold GPUs and wait for each other."""
    NODE_DOWN = "node-down"
    NODE_UP = "node-up"
    NODE_CHANGED = "node-changed"
    CAPACITY = "capacity"
    """Message of an autoscaler or the cloud, with its own `reason` and `message`."""
    QUEUE_CHANGED = "queue-changed"
    COMMAND_REFUSED = "command-refused"
    COMMAND_NEEDLESS = "command-needless"
    """The command changes nothing, because its effect exists already; `message` says which."""
    COMMAND_DONE = "command-done"
    """A live API server carried a command out; `message` says what it did."""


class Applied(Struct, frozen=True, tag="applied"):
    """An object was added or changed; holds the whole new object."""

    time: Time
    object: Object

    @property
    def table(self) -> str:
        """Name of the object's table."""
        return TABLES[type(self.object)]

    @property
    def key(self) -> str:
        return self.object.key


class Deleted(Struct, frozen=True, tag="deleted"):
    """An object was deleted. `table` is its table's name (see `objects.TABLES`)."""

    time: Time
    table: str
    key: str


class KueueEvent(Struct, frozen=True, omit_defaults=True):
    """A Kubernetes Event about a workload with Kueue's own reason and text; `warning` is its type."""

    workload: str
    reason: str
    message: str
    warning: bool = False


class HistoryEvent(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="happened"):
    """An entry of the history. Names are keys: `namespace/name` of workloads and pods."""

    time: Time
    what: HistoryEventKind
    workload: str = ""
    """Subject: a workload (`ns/name`), or a job without a Workload."""
    pod: str = ""
    queue: str = ""
    """ClusterQueue; for pods without a Workload, their queue of Volcano or KAI."""
    by: str = ""
    by_queue: str = ""
    reason: str = ""
    message: str = ""
    node: str = ""
    flavor: str = ""
    gpus: int = 0
    """GPUs, or accelerators in the unit of `unit`."""
    borrowed: int = 0
    """GPUs of this admission that its ClusterQueue borrows from the cohort."""
    priority: int = 0
    by_priority: int = 0
    lost_gpu_seconds: float = 0.0
    cost: float = 0.0
    """USD of the lost work."""
    lost_unknown: bool = False
    """The amount of lost work is unknown, because it was done before the observation began."""
    unit: str = WHOLE_GPU.noun
    """Unit of `gpus` in the singular, such as `MIG 1g.10gb instance`."""
    waited: int = 0
    """µs between submission (or the last eviction) and this; of a requeue, between its eviction and this."""
    told: tuple[KueueEvent, ...] = ()
    """Events that Kueue's recorder writes about it."""
    choice: PreemptionTrace | None = None
    """How the victim of a preemption was chosen, if the scheduler reported it."""


Event = Union[Applied, Deleted, HistoryEvent]
