"""Outcome of a what-if as data: the differences between the changed fork and the baseline."""

from msgspec import Struct

from gpuconsole.insight.future_events import WhatIfEviction
from gpuconsole.insight.reasons import PendingReason
from gpuconsole.insight.whatif_evictions import EvictedWorkload, EvictionsByCause, costliest_first, evictions_by_cause
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.device_units import WHOLE_GPU

FEASIBLE = "feasible, nothing is reserved"
"""Qualification of every answer: the real cluster may change before the work is submitted."""


class TimeRange(Struct, frozen=True, kw_only=True):
    """Range of a time over runs that differ only in controller latencies."""

    earliest: Time
    latest: Time
    times: int
    """Number of runs in which it happens before the horizon."""
    runs: int
    """Number of compared runs, the first included."""


class WhatIfOutcome(Struct, frozen=True, kw_only=True):
    """Outcome of one requested workload, or of a job without a Workload."""

    workload: str
    queue: str
    """ClusterQueue, if any."""
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    priority: int
    admitted: Time | None
    """None if it is not admitted (or, without queueing, does not start) before the horizon.

    Before the fork's start for one that was admitted already and stays so.
    """
    started: Time | None
    """None while some of its pods have no node at the horizon."""
    flavors: tuple[str, ...]
    nodes: tuple[str, ...]
    """Nodes of its pods at its first start."""
    code: PendingReason
    """Why it, or some of its pods, are pending at the horizon; `not-waiting` if they are not."""
    why: str
    """The reason as a sentence; `FEASIBLE` if it was admitted and its pods have nodes."""
    text: str
    """The scheduler's own message."""
    new: bool = True
    """It does not exist in the baseline."""
    admitted_without: Time | None = None
    """Its admission in the baseline."""
    admitted_range: TimeRange | None = None
    """None if latencies are not drawn, if it was admitted before, or if no run admits it."""
    started_range: TimeRange | None = None
    """Like `admitted_range`, for `started`."""

    @property
    def lacking(self) -> str:
        """Why an admitted workload does not run completely at the horizon; empty if it does."""
        if self.code is not PendingReason.NOT_WAITING:
            return self.why.removesuffix(".")
        return "" if self.started is not None else "not all of its pods run before the horizon"

    @property
    def same(self) -> bool:
        """True if the commands do not change the outcome of this workload."""
        return not self.new and self.admitted == self.admitted_without


class StartShift(Struct, frozen=True, kw_only=True):
    """Another workload whose admission time differs between the forks (None = not before the horizon).

    For a job without a Workload it is the time of the binding of its pods.
    """

    workload: str
    queue: str
    gpus: int
    """GPUs, or what `unit` names; for a job without a Workload those of its pods that are bound at another time."""
    unit: str = WHOLE_GPU.noun
    without: Time | None
    changed: Time | None


class QueueChange(Struct, frozen=True, kw_only=True):
    """A ClusterQueue that differs between the forks: used GPUs (or what `unit` names), and % of its maximum quota.

    For a queue of Volcano or KAI, `nominal` is its deserved amount.
    """

    queue: str
    unit: str = WHOLE_GPU.noun
    used_now: int
    used_without: int
    used: int
    nominal_now: int
    nominal: int
    borrowed_now: int
    borrowed_without: int
    borrowed: int
    share_now: float
    share_without: float
    share: float


class ClosedQueue(Struct, frozen=True, kw_only=True):
    """A queue that admits no workloads at the horizon because of the commands."""

    queue: str
    why: str


class VaryingVictim(Struct, frozen=True, kw_only=True):
    """A workload that is a direct victim in some runs only, up to the start of the requested work."""

    workload: str
    queue: str
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    by: tuple[str, ...]
    """Its preemptors; empty where the change itself evicts it."""
    times: int
    """Number of runs in which it is evicted."""
    runs: int
    """Number of compared runs: the first, and those with other latencies that were complete."""


class WhatIf(Struct, frozen=True, kw_only=True):
    """Outcome of a what-if. `…_now` is the start of the forks, `…_without` the baseline."""

    time: Time
    """Time of the fork."""
    compared: Time
    """Time at which GPUs and shares are compared: when all requested work runs, otherwise the horizon."""
    horizon: Time
    refused: tuple[str, ...]
    """Reasons why commands could not be applied."""
    so_already: tuple[str, ...] = ()
    """Commands without effect, as the cluster already has that state."""
    closed: tuple[ClosedQueue, ...] = ()
    """Queues that can no longer admit workloads because of the commands."""
    outcomes: tuple[WhatIfOutcome, ...]
    evictions: tuple[WhatIfEviction, ...]
    """Evictions that happen with the commands only, in order of time."""
    evictions_without: tuple[WhatIfEviction, ...]
    """Evictions that happen without the commands only, in order of time."""
    subjects: tuple[str, ...] = ()
    """Keys of the requested work, and of the pods of jobs without a Workload."""
    only_work: bool = False
    """The commands only submit work: they change no node, queue or setting, and stop nothing."""
    shifts: tuple[StartShift, ...]
    queues: tuple[QueueChange, ...]
    gpus_total: int
    gpus_now: int
    gpus_without: int
    gpus: int
    """In use."""
    unit: str = WHOLE_GPU.noun
    """Unit of the cluster's accelerators; `device` if there are several units."""
    latency: str = ""
    """Assumed controller latencies, in a sentence; empty if they are not drawn."""
    median_wait_without: Span | None
    """Median wait of workloads that are admitted before the horizon; None if there are none."""
    median_wait: Span | None
    lost_gpu_hours_without: float
    lost_gpu_hours: float
    cost_without: float
    cost: float
    """USD of work lost to evictions before the horizon."""
    against: tuple[WhatIfOutcome, ...] = ()
    """Outcomes of the work that the baseline's own commands request."""
    p95_wait_without: Span | None = None
    p95_wait: Span | None = None
    waiting_without: int = 0
    waiting: int = 0
    """Workloads without quota at the horizon."""
    checking_without: int = 0
    checking: int = 0
    """Workloads that hold quota at the horizon and wait for admission checks."""
    placeless_without: int = 0
    placeless: int = 0
    """Admitted workloads (jobs, pods), some of whose pods have no node at the horizon."""
    gpu_hours_without: float = 0.0
    gpu_hours: float = 0.0
    """GPU-hours held by pods before the horizon; a MIG instance or a time-slicing replica is a part of a GPU."""
    capacity_hours_without: float = 0.0
    capacity_hours: float = 0.0
    """GPU-hours of the nodes that were ready before the horizon."""
    gpus_total_without: int = 0
    gpus_total_with: int = 0
    """GPUs (or what `unit` names) of the cluster at the horizon."""
    hourly_without: float = 0.0
    hourly: float = 0.0
    """USD per hour for the GPUs of all nodes, used or not, at the horizon."""
    fairness_without: float | None = None
    fairness: float | None = None
    """Jain's index over the shares of ClusterQueues with used or requested quota, 1 = equal; None if there are none."""
    runs: int = 1
    """Number of runs behind the ranges: the first, and those with other latencies that got far enough."""
    varying_victims: tuple[VaryingVictim, ...] = ()
    """The most frequent first."""

    @property
    def victims(self) -> tuple[EvictedWorkload, ...]:
        """Workloads that the commands evict, or that the requested work preempts; in order of time."""
        return self._by_cause().direct

    @property
    def knock_on(self) -> tuple[EvictedWorkload, ...]:
        """Workloads evicted by others that the commands displace; most lost work first."""
        return self._by_cause().knock_on

    @property
    def own_evictions(self) -> tuple[EvictedWorkload, ...]:
        """Evictions of the requested work itself."""
        return self._by_cause().own

    @property
    def spared(self) -> tuple[EvictedWorkload, ...]:
        """Workloads that are evicted in the baseline only; most lost work first."""
        return costliest_first(self.evictions_without)

    def _by_cause(self) -> EvictionsByCause:
        return evictions_by_cause(self.evictions, frozenset(self.subjects), only_work=self.only_work)

    @property
    def empty(self) -> bool:
        """True if the commands make no difference."""
        return not self.refused and self._has_equal_outcomes

    @property
    def in_vain(self) -> bool:
        """True if commands were refused and nothing is different."""
        return bool(self.refused) and self._has_equal_outcomes

    @property
    def _has_equal_outcomes(self) -> bool:
        named = (self.evictions, self.evictions_without, self.shifts, self.queues, self.closed)
        is_equal = all(outcome.same for outcome in (*self.outcomes, *self.against))
        return is_equal and not any(named) and self._with() == self._without()

    def _with(self) -> tuple[object, ...]:
        waits = (self.median_wait, self.p95_wait, self.waiting, self.checking, self.placeless)
        held = (self.gpus, self.gpu_hours, self.capacity_hours)
        return *held, *waits, self.lost_gpu_hours, self.cost, self.hourly, self.gpus_total_with

    def _without(self) -> tuple[object, ...]:
        still = (self.waiting_without, self.checking_without, self.placeless_without)
        waits = (self.median_wait_without, self.p95_wait_without, *still)
        held = (self.gpus_without, self.gpu_hours_without, self.capacity_hours_without)
        lost = (self.lost_gpu_hours_without, self.cost_without)
        return *held, *waits, *lost, self.hourly_without, self.gpus_total_without
