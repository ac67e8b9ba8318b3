"""Settings of a simulation: admission, placement, run times, capacity and prices."""

from enum import StrEnum

from msgspec import Struct, field

from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.prices import Prices
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.arrivals import ArrivalStream
from gpuconsole.sim.autoscaling.policy import FIXED, Capacity, SpotPolicy
from gpuconsole.sim.gpu_setup import BARE, GpuSetup
from gpuconsole.sim.run_times import Latencies, LogNormal, RunTimes


class Checks(StrEnum):
    """The handling of admission checks whose controller is not simulated."""

    PASS = "pass"
    WAIT = "wait"
    """They stay pending until a command answers them."""


class Substitute(StrEnum):
    """The scheduler that gets the jobs of Kueue's queues where Kueue is absent."""

    KUBE = "kube-scheduler"
    VOLCANO = "volcano"
    KAI = "kai"


class Autoscaler(Struct, frozen=True, kw_only=True):
    """Answers to ProvisioningRequests with fixed capacity: delay, and failures of the first attempts."""

    delay: Span = 30 * SECOND
    failures: int = 0
    """Number of first attempts of a workload's check that fail whatever the free capacity."""


class SimPolicy(Struct, frozen=True, kw_only=True):
    """All settings of a simulation besides its objects and its seed."""

    kueue: KueueConfig | None = KueueConfig()
    """None = no queueing at all: every job's pods are created at once."""
    substitute: Substitute | None = None
    """Scheduler of jobs that name a LocalQueue, without Kueue; None leaves them as they are.

    They start at once, in the scheduler's queue of the ClusterQueue's name, and the value of their
    WorkloadPriorityClass becomes their pods' priority.
    """
    placement: PlacementPolicy | VolcanoPolicy | KaiPolicy = PlacementPolicy()
    second_scheduler: VolcanoPolicy | None = field(default=None, name="beside")
    """Volcano as a second scheduler, for the pods that name it."""
    wake_up_batch: Span | None = None
    """Interval in which requeues of inadmissible workloads are batched; 0 requeues at once, None is as in Kueue."""
    latencies: Latencies | None = None
    """None: controller steps take no time, except 1 s to release quota (`eviction.REACTION`)."""
    prices: Prices = field(default_factory=Prices)
    durations: LogNormal = LogNormal()
    """Durations of work that does not state its own."""
    run_times: RunTimes | None = None
    """Past run times from which durations are drawn, even stated ones; None: stated durations are used."""
    checks: Checks = Checks.PASS
    autoscaler: Autoscaler = Autoscaler()
    capacity: Capacity = FIXED
    spot: SpotPolicy = SpotPolicy()
    equipment: GpuSetup = BARE
    """GPU partitioning, sharing and interconnects of generated and provisioned nodes."""
    keep_finished: Span | None = None
    """Finished workloads, with their jobs and pods, are removed after this span; None keeps them."""
    arrivals: tuple[ArrivalStream, ...] = ()
    """Random arrivals of jobs."""
    traces_preemptions: bool = field(default=False, name="tells_choices")
    """Records for each of Kueue's preemptions the other candidates, and why they were skipped."""

    @property
    def gathering(self) -> Span:
        """The interval in which requeues are batched."""
        if self.wake_up_batch is not None:
            return self.wake_up_batch
        return 0 if self.kueue is None else self.kueue.requeue_interval
