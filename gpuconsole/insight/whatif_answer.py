"""What a what-if finds: how two futures of one simulation differ, as data."""

from msgspec import Struct

from gpuconsole.insight.course import Victim
from gpuconsole.insight.reasons import Code
from gpuconsole.insight.whatif_evictions import EvictedWorkload, EvictionsByCause, costliest_first, evictions_by_cause
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.device_units import WHOLE_GPU

FEASIBLE = "feasible, not a reservation"
"""What every promise of a what-if has to say: the real cluster may move on before the work is submitted."""


class TimeRange(Struct, frozen=True, kw_only=True):
    """When something happens in runs of one future that differ only in the latencies of controllers."""

    earliest: Time
    latest: Time
    times: int
    """In how many of the runs it happens before the horizon."""
    runs: int
    """How many runs it is known of: this one, and those with other latencies."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What becomes of one workload (or job, where no Workload stands for it) that the commands are about."""

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
    """Where its pods ran first, until it lost one of them."""
    code: Code
    """Why it, or some of its pods, wait at the horizon; `not-waiting` if they do not."""
    why: str
    """The same as a plain sentence; `FEASIBLE` if it was admitted, and has places for its pods."""
    text: str
    """The scheduler's own words."""
    new: bool = True
    """It is not there in the other future."""
    admitted_without: Time | None = None
    """In the other future."""
    admitted_range: TimeRange | None = None
    """None where latencies are not drawn, where it was admitted before, or where no run admits it."""
    started_range: TimeRange | None = None
    """As `admitted_range`, of `started`."""

    @property
    def lacking(self) -> str:
        """Of one that is admitted, what does not run of it at the horizon; nothing where all does."""
        if self.code is not Code.NOT_WAITING:
            return self.why.removesuffix(".")
        return "" if self.started is not None else "not all of its pods run before the horizon"

    @property
    def same(self) -> bool:
        """True if the commands make no difference to it."""
        return not self.new and self.admitted == self.admitted_without


class Shift(Struct, frozen=True, kw_only=True):
    """A waiting bystander that is admitted at another time, or in one future only (None = not before the horizon).

    Work that no Workload stands for is not admitted: its pods get nodes.
    """

    workload: str
    queue: str
    gpus: int
    """GPUs, or what `unit` names; of work that no Workload stands for: those of its pods that get nodes at other
    times.
    """
    unit: str = WHOLE_GPU.noun
    without: Time | None
    changed: Time | None


class QueueChange(Struct, frozen=True, kw_only=True):
    """A ClusterQueue that stands differently in the two futures: GPUs, or what `unit` names, and its share of its
    potential capacity in %.

    Of a queue of Volcano or KAI, `nominal` is what it deserves.
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


class Closed(Struct, frozen=True, kw_only=True):
    """A queue that admits nobody at the horizon, and would without the commands."""

    queue: str
    why: str


class VaryingVictim(Struct, frozen=True, kw_only=True):
    """A direct victim until the asked work runs, in some runs with other latencies and not in others."""

    workload: str
    queue: str
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    by: tuple[str, ...]
    """Its preemptors; empty where the change itself evicts it."""
    times: int
    """In how many runs it is evicted."""
    runs: int
    """How many were compared: this one, and those with other latencies that were not cut off."""


class WhatIf(Struct, frozen=True, kw_only=True):
    """The difference that the commands make. `…_now` is the fork's start, `…_without` the future without them."""

    time: Time
    """When the fork was taken."""
    compared: Time
    """When GPUs and shares are compared: as soon as everything asked for runs, else at the horizon."""
    horizon: Time
    refused: tuple[str, ...]
    """Why commands could not be carried out."""
    so_already: tuple[str, ...] = ()
    """What commands ask for and is so already."""
    closed: tuple[Closed, ...] = ()
    """Queues that the commands keep from admitting anybody."""
    outcomes: tuple[Outcome, ...]
    evictions: tuple[Victim, ...]
    """Evictions that happen with the commands only, in order of time."""
    evictions_without: tuple[Victim, ...]
    """Evictions that happen without the commands only, in order of time."""
    subjects: tuple[str, ...] = ()
    """Keys of the work that the commands are about, and of its pods where no Workload stands for it."""
    only_work: bool = False
    """The commands ask for work alone: they change no node, queue or setting, and stop nothing."""
    shifts: tuple[Shift, ...]
    queues: tuple[QueueChange, ...]
    gpus_total: int
    gpus_now: int
    gpus_without: int
    gpus: int
    """In use."""
    unit: str = WHOLE_GPU.noun
    """What the cluster's accelerators are counted in: `device` where it has several."""
    latency: str = ""
    """What is assumed of how long controllers take, in a sentence; empty where they take fixed times."""
    median_wait_without: Span | None
    """Of what is admitted before the horizon; None if nothing is."""
    median_wait: Span | None
    lost_gpu_hours_without: float
    lost_gpu_hours: float
    cost_without: float
    cost: float
    """USD of work lost to evictions before the horizon."""
    against: tuple[Outcome, ...] = ()
    """Of two lists of changes, what becomes of what the other one asks for: `…_without` is the future with that one."""
    p95_wait_without: Span | None = None
    p95_wait: Span | None = None
    waiting_without: int = 0
    waiting: int = 0
    """Workloads without quota at the horizon."""
    checking_without: int = 0
    checking: int = 0
    """Workloads that hold quota there and wait for checks."""
    placeless_without: int = 0
    placeless: int = 0
    """Workloads (jobs, pods) that are let in, some of whose pods have no node there."""
    gpu_hours_without: float = 0.0
    gpu_hours: float = 0.0
    """That pods hold GPUs before the horizon; a MIG instance or a replica is a part of a GPU."""
    capacity_hours_without: float = 0.0
    capacity_hours: float = 0.0
    """GPU-hours of the nodes that were ready before the horizon."""
    gpus_total_without: int = 0
    gpus_total_with: int = 0
    """GPUs (or what `unit` names) of the cluster at the horizon."""
    hourly_without: float = 0.0
    hourly: float = 0.0
    """USD an hour for the GPUs of all nodes, used or not, at the horizon."""
    fairness_without: float | None = None
    fairness: float | None = None
    """Jain's index over the shares of the ClusterQueues that use or want something, 1 = all alike; None = no such."""
    runs: int = 1
    """How many runs the ranges rest on: this one, and those with other latencies that came far enough."""
    varying_victims: tuple[VaryingVictim, ...] = ()
    """The most frequent first."""

    @property
    def victims(self) -> tuple[EvictedWorkload, ...]:
        """Workloads that the commands evict, or that the work asked for preempts; in order of time."""
        return self._by_cause().direct

    @property
    def knock_on(self) -> tuple[EvictedWorkload, ...]:
        """Workloads that others evict because the commands displace them; the most lost work first."""
        return self._by_cause().knock_on

    @property
    def own_evictions(self) -> tuple[EvictedWorkload, ...]:
        """Evictions of the work asked for."""
        return self._by_cause().own

    @property
    def spared(self) -> tuple[EvictedWorkload, ...]:
        """Workloads that are evicted without the commands only, the most lost work first."""
        return costliest_first(self.evictions_without)

    def _by_cause(self) -> EvictionsByCause:
        return evictions_by_cause(self.evictions, frozenset(self.subjects), only_work=self.only_work)

    @property
    def empty(self) -> bool:
        """True if the commands make no difference."""
        return not self.refused and self._alike

    @property
    def in_vain(self) -> bool:
        """True if commands were refused and nothing is different."""
        return bool(self.refused) and self._alike

    @property
    def _alike(self) -> bool:
        named = (self.evictions, self.evictions_without, self.shifts, self.queues, self.closed)
        alike = all(outcome.same for outcome in (*self.outcomes, *self.against))
        return alike and not any(named) and self._with() == self._without()

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
