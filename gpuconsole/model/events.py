"""Events: the one stream that updates the state, the history and the event log.

Three kinds of event. `Applied` and `Deleted` change objects, as a watch on an API server does. `HistoryEvent` tells
what a change meant (a workload was admitted, preempted by another, …); it changes no object, and is what history keeps
and `simulate -o jsonl` prints.
"""

from enum import StrEnum
from typing import Union

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.preemption_trace import PreemptionTrace


class HistoryEventKind(StrEnum):
    """Kind of a history event."""

    SUBMITTED = "submitted"
    PENDING = "pending"
    """The reason why a workload or a pod waits changed; `message` is the scheduler's own text."""
    RESERVED = "reserved"
    ADMITTED = "admitted"
    PREEMPTED = "preempted"
    """A victim was chosen: `workload` is the victim, `by` the preemptor, `reason` the rule."""
    RECONSTRUCTED = "reconstructed"
    """How a victim was chosen, by our engine in hindsight, where the one who decided did not tell it: in `choice`."""
    EVICTED = "evicted"
    """It lost its place; `reason` says why (Preempted, NodeFailures, Deactivated …)."""
    REQUEUED = "requeued"
    PLACES = "places"
    """A workload with quota gets places in the topology late or anew, or waits for them; `reason` says which
    (UnhealthyNode, NodeReplaced, SecondPassFailed)."""
    STARTED = "started"
    """All its pods run."""
    FINISHED = "finished"
    FAILED = "failed"
    DELETED = "deleted"
    POD_BOUND = "pod-bound"
    POD_EVICTED = "pod-evicted"
    POD_FAILED = "pod-failed"
    GANG_WAITING = "gang-waiting"
    """A gang could not be placed whole, so none of its pods was."""
    DEADLOCK = "deadlock"
    """Pods of several half-placed jobs hold GPUs and wait for each other."""
    NODE_DOWN = "node-down"
    NODE_UP = "node-up"
    NODE_CHANGED = "node-changed"
    CAPACITY = "capacity"
    """What an autoscaler or the cloud says; `reason` and `message` are its own words."""
    QUEUE_CHANGED = "queue-changed"
    COMMAND_REFUSED = "command-refused"
    COMMAND_NEEDLESS = "command-needless"
    """What was asked for is so already; `message` says what."""
    COMMAND_DONE = "command-done"
    """A real API server took a command; `message` says what it did."""


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
    """The subject: a workload (`ns/name`), or a job where no Workload stands for it."""
    pod: str = ""
    queue: str = ""
    """ClusterQueue; of pods that no Workload stands for, their queue of Volcano or KAI."""
    by: str = ""
    by_queue: str = ""
    reason: str = ""
    message: str = ""
    node: str = ""
    flavor: str = ""
    gpus: int = 0
    """GPUs, or what `unit` names."""
    borrowed: int = 0
    """Of these, those of this admission that its ClusterQueue borrows from the cohort."""
    priority: int = 0
    by_priority: int = 0
    lost_gpu_seconds: float = 0.0
    cost: float = 0.0
    """USD of the lost work."""
    lost_unknown: bool = False
    """It lost what it had done before anybody looked: nobody knows how much."""
    unit: str = WHOLE_GPU.noun
    """What `gpus` counts, in the singular, such as `MIG 1g.10gb instance`."""
    waited: int = 0
    """µs between submission (or the last eviction) and this; of a requeue, between its eviction and this."""
    told: tuple[KueueEvent, ...] = ()
    """The events that Kueue's recorder writes of it."""
    choice: PreemptionTrace | None = None
    """Of a preemption: how the victim was chosen, where the one who decided told it."""


Event = Union[Applied, Deleted, HistoryEvent]
