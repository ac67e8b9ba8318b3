"""Engines of a cluster by name (admission, scheduling, node autoscaling, GPU sharing), and the liveness check of Kueue.

Kueue does not work if an admissible workload stays pending, or a job has no Workload, while no status changes.
"""

from collections import Counter
from collections.abc import Collection
from typing import assert_never

from msgspec import Struct

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import SECOND, format_span
from gpuconsole.model.gpus.mig_reconfiguration import MigStrategy
from gpuconsole.model.gpus.sharing import STRATEGY
from gpuconsole.model.job import Job
from gpuconsole.model.jobs.workloads import PREBUILT
from gpuconsole.model.resources import is_mig
from gpuconsole.model.snapshot import EMPTY, Snapshot, row_changes
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.policy import AutoscalerPolicy, Capacity, FixedCapacity, KarpenterPolicy, SimPolicy

KUEUE = "Kueue 0.19"


class Engine(Struct, frozen=True):
    """Display name of an engine, such as Kueue or Karpenter, in full and short; empty where there is none."""

    name: str = ""
    short: str = ""


NONE = Engine()


class EnginesInForce(Struct, frozen=True, kw_only=True):
    """The engines that handle a cluster's jobs: admission, placement, capacity (autoscaling) and GPU sharing."""

    admission: Engine = NONE
    placement: Engine = NONE
    capacity: Engine = NONE
    sharing: Engine = NONE

    @property
    def parts(self) -> tuple[Engine, ...]:
        """The engines that exist, in the order in which they handle a job."""
        return tuple(part for part in (self.admission, self.placement, self.capacity, self.sharing) if part.name)


def engines(policy: SimPolicy) -> EnginesInForce:
    """Return the engines of a simulation's policy; GPU sharing is read from the nodes, see `sharing`."""
    return EnginesInForce(
        admission=NONE if policy.kueue is None else Engine(KUEUE, "Kueue"),
        placement=_with_second_scheduler(_placement(policy.placement), policy.second_scheduler),
        capacity=_capacity(policy.capacity),
    )


def _placement(placement: PlacementPolicy | VolcanoPolicy | KaiPolicy) -> Engine:
    match placement:
        case PlacementPolicy():
            return Engine("kube-scheduler", "kube")
        case VolcanoPolicy():
            return Engine("Volcano", "Volcano")
        case KaiPolicy():
            return Engine("KAI", "KAI")
        case _:
            assert_never(placement)


def _with_second_scheduler(engine: Engine, other: VolcanoPolicy | None) -> Engine:
    """Return the name of the scheduler, with the second one if there are two."""
    if other is None:
        return engine
    second = _placement(other)
    return Engine(f"{engine.name} + {second.name}", f"{engine.short}+{second.short}")


def _capacity(capacity: Capacity) -> Engine:
    match capacity:
        case FixedCapacity():
            return NONE
        case KarpenterPolicy():
            return Engine("Karpenter", "Karp")
        case AutoscalerPolicy():
            return Engine("Cluster Autoscaler", "CA")
        case _:
            assert_never(capacity)


@memoized("nodes", "resource_slices")
def sharing(snapshot: Snapshot) -> Engine:
    """Return how the nodes' GPUs are shared; none where the device plugin only allocates whole GPUs."""
    found: dict[Engine, None] = {}
    for node in snapshot.nodes.all():
        kind = node.labels.get(STRATEGY, "")
        if kind not in ("", "none"):
            found[Engine("MPS", "MPS") if kind == "mps" else Engine("time-slicing", "TS")] = None
        if node.labels.get("nvidia.com/mig.strategy") == MigStrategy.SINGLE:
            found[Engine("MIG single", "MIG")] = None
        elif any(map(is_mig, node.allocatable)):
            found[Engine("MIG mixed", "MIG")] = None
    if len(snapshot.resource_slices):
        found[Engine("DRA", "DRA")] = None
    ways = sorted(found, key=lambda way: way.name)
    return Engine(" + ".join(way.name for way in ways), "+".join(dict.fromkeys(way.short for way in ways)))


PATIENCE = 30.0
"""Maximum seconds that an admissible workload stays pending, or a job without a Workload, while no status changes."""
UNWATCHED = 60.0
"""Seconds between two observations after which the state in between is unknown: the console was suspended."""


class KueueProblem(Struct, frozen=True):
    """A sign that Kueue does not work."""

    mark: str
    """Short text for the header."""
    text: str
    """The whole sentence."""


class KueueWatch:
    """Detects that Kueue admits no admissible workload, or creates no Workload. Stateful; times are in seconds."""

    def __init__(self) -> None:
        self._workloads = EMPTY.workloads
        self._changed = 0.0
        """Time of the last change of a Workload's status, or of the first observation."""
        self._since: dict[str, float] = {}
        """Admissible workload → since when it is pending."""
        self._jobs = UnqueuedJobs()
        self._observed: float | None = None
        """Time of the last observation; None while it is unknown which workloads are admissible."""

    def observe(self, snapshot: Snapshot, admissible: Collection[str] | None, now: float) -> None:
        """Record a Snapshot and the workloads that the engine would admit now (None = unknown), at time `now`."""
        if self._observed is not None and now - self._observed > UNWATCHED:
            self._forget()
        if admissible is None:
            self._forget()
            return
        self._jobs.observe(snapshot, now)
        if self._observed is None or self._status_changed(snapshot):
            self._changed = now
        self._observed, self._workloads = now, snapshot.workloads
        pending = {key for key in admissible if _is_pending(snapshot.workloads.get(key))}
        self._since = {key: self._since.get(key, now) for key in pending}

    def _forget(self) -> None:
        self._observed, self._since, self._workloads = None, {}, EMPTY.workloads
        self._jobs = UnqueuedJobs()

    @property
    def problem(self) -> KueueProblem | None:
        """The problem as of the last observation; None if there was none."""
        at = self._observed
        if at is None or at - self._changed < PATIENCE:
            return None
        stuck = [since for since in self._since.values() if at - since >= PATIENCE]
        if not stuck:
            return self._no_workloads(at)
        span = format_span(int(at - max(min(stuck), self._changed)) * SECOND)
        them = counted(len(stuck), "admissible workload")
        return KueueProblem(
            f"Kueue: no admissions for {span}",
            f"{them} pending for {span}, and no Workload status changed: check that Kueue's controller is running.",
        )

    def _no_workloads(self, at: float) -> KueueProblem | None:
        """Detect jobs without a Workload while no status changes: Kueue creates a Workload within a second."""
        waiting = [since for since in self._jobs.since.values() if at - since >= PATIENCE]
        unchanged_since = max(self._changed, self._jobs.created)
        if not waiting or at - unchanged_since < PATIENCE:
            return None
        span = format_span(int(at - max(min(waiting), unchanged_since)) * SECOND)
        return KueueProblem(
            f"Kueue: no Workloads created for {span}",
            f"{counted(len(waiting), 'job')} without a Workload for {span}: check that Kueue's controller is running.",
        )

    def _status_changed(self, snapshot: Snapshot) -> bool:
        if snapshot.workloads is self._workloads:
            return False
        gone, come = row_changes(self._workloads.rows, snapshot.workloads.rows)
        known = {one.key: one for one in gone}
        return any(_status(one) != _status(known.get(one.key)) for one in come)


class UnqueuedJobs:
    """Tracks jobs that should have a Workload and have none. Stateful; times are in seconds."""

    def __init__(self) -> None:
        self._seen = EMPTY
        self._suspended: dict[str, Job] = {}
        """Suspended jobs that name a queue, by key."""
        self._made: Counter[str] = Counter()
        """UIDs of jobs that have a Workload; keys, where a Workload names its job by that only."""
        self._kinds: Counter[str] = Counter({"Job": 1})
        """Kinds that Kueue is known to manage: those with Workloads, and Job, which it manages by default."""
        self.created = 0.0
        """Time at which a Workload of a job was last created, or of the first observation."""
        self.since: dict[str, float] = {}
        """Key of a job → since when it is known to have no Workload."""

    def observe(self, snapshot: Snapshot, now: float) -> None:
        """Record a Snapshot, at time `now`."""
        gone, come = row_changes(self._seen.workloads.rows, snapshot.workloads.rows)
        for workload in gone:
            _drop(self._made, _maker(workload))
            _drop(self._kinds, _kind(workload))
        for workload in come:
            if workload.owner and not self._made[_maker(workload)]:
                self.created = now
            self._made[_maker(workload)] += 1
            self._kinds[_kind(workload)] += 1
        left, begun = row_changes(self._seen.jobs.rows, snapshot.jobs.rows)
        for job in left:
            self._suspended.pop(job.key, None)
        self._suspended.update((job.key, job) for job in begun if _is_for_kueue(job))
        self._seen = snapshot
        waiting = [key for key, job in self._suspended.items() if self._lacks_workload(job, snapshot)]
        self.since = {key: self.since.get(key, now) for key in waiting}

    def _lacks_workload(self, job: Job, snapshot: Snapshot) -> bool:
        """True if only Kueue can be the reason that the job has no Workload."""
        return (
            not self._made[job.uid or job.key]
            and not self._made[job.key]
            and self._kinds[job.kind] > 0
            and snapshot.local_queues.get(f"{job.namespace}/{job.queue}") is not None
            and (not job.workload_priority_class or job.workload_priority_class in snapshot.workload_priority_classes)
        )


def _is_for_kueue(job: Job) -> bool:
    """True for a top-level job that Kueue manages; a job with a prebuilt Workload needs none."""
    brought = PREBUILT in job.labels or PREBUILT in job.annotations
    return bool(job.queue) and job.suspended and not job.ended and not job.owner and not brought


def _drop(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]


def _maker(workload: Workload) -> str:
    return workload.job_uid or workload.owner


def _kind(workload: Workload) -> str:
    return workload.owner.partition("/")[0]


def _is_pending(workload: Workload | None) -> bool:
    return workload is not None and workload.active and not workload.reserved and not workload.finished


def _status(workload: Workload | None) -> tuple[object, ...]:
    """Return the parts of a Workload's status that Kueue writes; for a missing Workload, those of a new one."""
    if workload is None:
        return _UNTOUCHED
    return (
        workload.conditions,
        workload.admission,
        workload.requeue,
        dict(workload.reclaimable),
        workload.checks,
        workload.past_execution,
        workload.unhealthy_nodes,
        workload.nominated_clusters,
        workload.cluster,
    )


_UNTOUCHED = _status(Workload(name=""))
