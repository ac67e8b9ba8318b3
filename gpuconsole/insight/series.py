"""Time series of a cluster: quota, pending work, waits, evictions, GPUs and cost, sampled each minute.

Levels (quota, pending work, GPUs) are those of a Snapshot, by the same functions that the screens use. Counts are of
the history events since the previous sample, waits those of the workloads that Kueue admitted in the hour before the
sample. `hourly` reduces the samples of an hour to one.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import chain, groupby
from typing import Any

from msgspec import Struct

from gpuconsole.insight.cost.rates import nodes_hourly
from gpuconsole.insight.health.telemetry import utilization_by_gpu_type
from gpuconsole.insight.index.demand import quota_accelerators
from gpuconsole.insight.index.engine_queues import queues
from gpuconsole.insight.index.gpu_map import GpuState, gpu_rows, used_of
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, QuotaUse, every, sum_up
from gpuconsole.insight.overview import gpu_totals, waiting
from gpuconsole.model.clock import HOUR, MINUTE, Span, Time, in_seconds, quantile
from gpuconsole.model.events import Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean

WAITS_KEPT = 500
"""Maximum admissions per ClusterQueue whose waits are kept: the newest of the last hour."""
REASONS_KEPT = 50
OTHER = "other"
"""GPU type of nodes whose type is unknown, and reason of evictions beyond the first REASONS_KEPT reasons."""


class SeriesKind(StrEnum):
    """What a series of quota samples is about."""

    CLUSTER = "cluster"
    """All queues together; its name is empty."""
    QUEUE = "queue"
    """A ClusterQueue."""
    COHORT = "cohort"
    FLAVOR = "flavor"
    """A ResourceFlavor: all ClusterQueues and Cohorts with quota of it."""
    VOLCANO_QUEUE = "volcano-queue"
    KAI_QUEUE = "kai-queue"
    NAMESPACE = "namespace"
    """A namespace in place of a queue, in a cluster without queues."""


SERIES_OF = {
    NodeKind.COHORT: SeriesKind.COHORT,
    NodeKind.CLUSTER_QUEUE: SeriesKind.QUEUE,
    NodeKind.VOLCANO_QUEUE: SeriesKind.VOLCANO_QUEUE,
    NodeKind.KAI_QUEUE: SeriesKind.KAI_QUEUE,
    NodeKind.NAMESPACE: SeriesKind.NAMESPACE,
}
"""Kind of a node of the quota tree → kind of its series; a LocalQueue has no quota, and no series."""


class QueueSample(Struct, frozen=True, kw_only=True):
    """Quota, pending work and events of a queue, cohort, flavor, or the whole cluster, at one time.

    Amounts are GPUs, or accelerators in their unit in a cluster without GPUs.
    """

    kind: SeriesKind
    name: str
    flavor: str = ""
    """Of a queue or cohort: one of its flavors; empty for the sum, the only sample with pending work, waits, counts."""
    nominal: float = 0.0
    """Nominal quota; of a cluster without Kueue the number of its GPUs."""
    used: float = 0.0
    """Quota reserved by workloads, admitted or not; of a cluster without Kueue the GPUs in use."""
    borrowed: float = 0.0
    lent: float = 0.0
    pending: int = 0
    """Pending workloads; of the cluster also those that wait for admission checks or nodes."""
    pending_gpus: float = 0.0
    wait_p50: float | None = None
    """Median wait of workloads admitted in the last hour, in seconds; None if none was admitted."""
    wait_p95: float | None = None
    """95th percentile of the same waits."""
    admitted: int = 0
    """Workloads admitted by Kueue since the previous sample."""
    preempted: int = 0
    """Victims of preemptions since the previous sample."""
    evicted: int = 0
    """Evictions since the previous sample, preemptions included."""


class GpuSample(Struct, frozen=True, kw_only=True):
    """GPUs of one type at one time: whole GPUs, replicas, MIG instances and DRA devices, as the GPU map counts them."""

    gpu_type: str
    """As `model.prices.gpu_type` names it; `other` if unknown."""
    total: int
    allocated: float
    idle: float
    """Available to a new pod; the rest is unhealthy, or not available, such as GPUs of cordoned nodes."""
    unhealthy: float
    """GPUs of nodes that are not ready."""
    utilization: float | None = None
    """Mean utilization of GPUs that run pods, in percent; None if it is not measured."""


class Samples(Struct, frozen=True, kw_only=True):
    """All samples of a cluster at one time."""

    time: Time
    """Start of the minute at which the levels were taken, or of the hour that they are the means of."""
    span: Span
    """MINUTE or HOUR."""
    queues: tuple[QueueSample, ...] = ()
    gpus: tuple[GpuSample, ...] = ()
    """By GPU type."""
    evictions: Mapping[str, int] = {}
    """Evictions by reason since the previous sample."""
    cost_hourly: float = 0.0
    """USD per hour of all nodes."""


class _Counts(Struct):
    """Events of one queue since the last sample. Mutable."""

    admitted: int = 0
    preempted: int = 0
    evicted: int = 0

    def add(self, other: "_Counts") -> None:
        self.admitted += other.admitted
        self.preempted += other.preempted
        self.evicted += other.evicted


_QueueOfEvent = tuple[bool, str]
"""True for a pod without a Workload, and the queue of the event: queues of several schedulers may have equal names."""
_COUNTED = (HistoryEventKind.ADMITTED, HistoryEventKind.PREEMPTED, HistoryEventKind.EVICTED)


class SeriesSampler:
    """Counts events, and samples Snapshots together with these counts. Mutates.

    Memory is bounded by the number of queues: at most WAITS_KEPT waits of each are kept, for an hour.
    """

    def __init__(self) -> None:
        self._counts: dict[_QueueOfEvent, _Counts] = {}
        self._reasons: Counter[str] = Counter()
        self._waits: dict[str, deque[tuple[Time, Span]]] = {}
        """ClusterQueue → time of admission and wait, in the order of the events."""
        self._last: tuple[dict[_QueueOfEvent, _Counts], Counter[str]] = ({}, Counter())
        """Counts and reasons of the last sample."""

    def note(self, event: Event) -> None:
        """Count a history event; other events change nothing."""
        if not isinstance(event, HistoryEvent) or event.what not in _COUNTED:
            return
        counts = self._counts.setdefault((bool(event.pod), event.queue), _Counts())
        match event.what:
            case HistoryEventKind.ADMITTED:
                counts.admitted += 1
                waits = self._waits.setdefault(event.queue, deque(maxlen=WAITS_KEPT))
                waits.append((event.time, max(0, event.waited)))
            case HistoryEventKind.PREEMPTED:
                counts.preempted += 1
            case _:
                counts.evicted += 1
                reason = clean(event.reason)
                known = reason in self._reasons or len(self._reasons) < REASONS_KEPT
                self._reasons[reason if known else OTHER] += 1

    def sample(self, snapshot: Snapshot, prices: Prices, *, replaces: bool = False) -> Samples:
        """Sample a Snapshot, with the counts since the last call and the waits of the hour before its time.

        With `replaces`, the sample replaces the last one, which is of the same minute, and has its counts, too.
        """
        self._forget_waits(snapshot.time - HOUR)
        if replaces:
            counts, reasons = self._last
            for queue, earlier in counts.items():
                self._counts.setdefault(queue, _Counts()).add(earlier)
            self._reasons.update(reasons)
        evictions, self._reasons = self._reasons, Counter()
        found = _SampledTree(snapshot, self._counts, self._waits)
        self._last, self._counts = (self._counts, evictions), {}
        return Samples(
            time=snapshot.time // MINUTE * MINUTE,
            span=MINUTE,
            queues=found.samples(),
            gpus=gpu_samples(snapshot),
            evictions=dict(sorted(evictions.items())),
            cost_hourly=nodes_hourly(snapshot, prices),
        )

    def _forget_waits(self, until: Time) -> None:
        for queue in list(self._waits):
            waits = self._waits[queue]
            while waits and waits[0][0] <= until:
                waits.popleft()
            if not waits:
                del self._waits[queue]


class _SampledTree:
    """Makes the samples of all nodes of the quota tree, children first."""

    def __init__(
        self,
        snapshot: Snapshot,
        counts: Mapping[_QueueOfEvent, _Counts],
        waits: Mapping[str, Iterable[tuple[Time, Span]]],
    ) -> None:
        self._snapshot = snapshot
        self._counts = counts
        self._waits = {queue: sorted(wait for _, wait in found) for queue, found in waits.items()}
        self._accelerators = quota_accelerators(snapshot)
        self._below: dict[int, tuple[_Counts, Sequence[Span]]] = {}
        """Identity of a node → counts and sorted waits of all queues at and below it."""

    def samples(self) -> tuple[QueueSample, ...]:
        """Return the sample of the cluster, then those of cohorts and queues in the order of the tree, then flavors."""
        roots = queues(self._snapshot)
        nodes = [node for node, _ in every(roots) if node.kind in SERIES_OF]
        for node in reversed(nodes):
            self._below[id(node)] = self._events(node)
        found = [self._cluster(roots)]
        for node in nodes:
            found += self._of_node(node)
        return (*found, *self._flavors(roots))

    def _events(self, node: QuotaNode) -> tuple[_Counts, Sequence[Span]]:
        counts, waits = _Counts(), list[Sequence[Span]]()
        if node.kind in (NodeKind.CLUSTER_QUEUE, NodeKind.VOLCANO_QUEUE, NodeKind.KAI_QUEUE):
            counts.add(self._counts.get((node.kind is not NodeKind.CLUSTER_QUEUE, node.name), _Counts()))
        if node.kind is NodeKind.CLUSTER_QUEUE:
            waits.append(self._waits.get(node.name, ()))
        for child in node.children:
            if child.kind in SERIES_OF:
                below, child_waits = self._below[id(child)]
                counts.add(below)
                waits.append(child_waits)
        return counts, waits[0] if len(waits) == 1 else sorted(chain.from_iterable(waits))

    def _of_node(self, node: QuotaNode) -> list[QueueSample]:
        kind = SERIES_OF[node.kind]
        counts, waits = self._below[id(node)]
        total = _sample(
            kind, node.name, node.gpus, counts, waits, pending=node.pending, pending_gpus=float(node.pending_gpus)
        )
        flavors = self._by_flavor(node)
        return [total, *(_sample(kind, node.name, use, flavor=flavor) for flavor, use in flavors.items())]

    def _by_flavor(self, node: QuotaNode) -> dict[str, QuotaUse]:
        uses: dict[str, list[QuotaUse]] = {}
        for use in node.flavors:
            if use.flavor and use.resource in self._accelerators:
                uses.setdefault(use.flavor, []).append(use)
        return {flavor: found[0] if len(found) == 1 else sum_up(found) for flavor, found in uses.items()}

    def _flavors(self, roots: Sequence[QuotaNode]) -> list[QueueSample]:
        uses: dict[str, list[QuotaUse]] = {}
        for root in roots:
            if root.kind in SERIES_OF:
                for flavor, use in self._by_flavor(root).items():
                    uses.setdefault(flavor, []).append(use)
        return [_sample(SeriesKind.FLAVOR, name, sum_up(uses[name])) for name in sorted(uses)]

    def _cluster(self, roots: Sequence[QuotaNode]) -> QueueSample:
        counts = _Counts()
        for one in self._counts.values():
            counts.add(one)
        pending = waiting(self._snapshot)
        kueue = [root.gpus for root in roots if root.kind in (NodeKind.COHORT, NodeKind.CLUSTER_QUEUE)]
        gpus = gpu_totals(self._snapshot)
        use = sum_up(kueue) if kueue else QuotaUse(nominal=gpus.total, used=gpus.in_use, borrowed=gpus.borrowed)
        return _sample(
            SeriesKind.CLUSTER,
            "",
            use,
            counts,
            sorted(chain.from_iterable(self._waits.values())),
            pending=pending.in_all,
            pending_gpus=float(sum(pending.units.values())),
        )


def _sample(
    kind: SeriesKind,
    name: str,
    use: QuotaUse,
    counts: _Counts | None = None,
    waits: Sequence[Span] = (),
    **fields: Any,
) -> QueueSample:
    counts = counts if counts is not None else _Counts()
    return QueueSample(
        kind=kind,
        name=name,
        nominal=float(use.nominal),
        used=float(use.used),
        borrowed=float(use.borrowed),
        lent=float(use.lent),
        wait_p50=in_seconds(quantile(waits, 0.5)),
        wait_p95=in_seconds(quantile(waits, 0.95)),
        admitted=counts.admitted,
        preempted=counts.preempted,
        evicted=counts.evicted,
        **fields,
    )


def gpu_samples(snapshot: Snapshot) -> tuple[GpuSample, ...]:
    """Sample the GPUs of a Snapshot by type."""
    totals: dict[str, list[int]] = {}
    for row in gpu_rows(snapshot):
        if row.cells or row.devices:
            states, sums = row.states, totals.setdefault(row.gpu_type or OTHER, [0, 0, 0, 0])
            sums[0] += len(row.cells) + len(row.devices)
            sums[1] += used_of(states)
            sums[2] += states[GpuState.IDLE]
            sums[3] += states[GpuState.FAULT]
    measured = utilization_by_gpu_type(snapshot)
    return tuple(
        GpuSample(
            gpu_type=name,
            total=total,
            allocated=float(allocated),
            idle=float(idle),
            unhealthy=float(unhealthy),
            utilization=measured.get("" if name == OTHER else name),
        )
        for name, (total, allocated, idle, unhealthy) in sorted(totals.items())
    )


def by_hour(minutes: Iterable[Samples]) -> list[Samples]:
    """Reduce samples, oldest first, to one for each hour that has any."""
    return [hourly(list(hour)) for _, hour in groupby(minutes, lambda one: one.time // HOUR)]


def hourly(samples: Sequence[Samples]) -> Samples:
    """Reduce the samples of one hour, in order, to one: means of levels, sums of counts, maxima of waits.

    A queue or GPU type that is missing in some samples has the means of those that contain it. Raises ValueError
    without samples.
    """
    if not samples:
        raise ValueError("an hour without samples cannot be summarized")
    queues: dict[tuple[SeriesKind, str, str], list[QueueSample]] = {}
    gpus: dict[str, list[GpuSample]] = {}
    evictions: Counter[str] = Counter()
    for one in samples:
        for queue in one.queues:
            queues.setdefault((queue.kind, queue.name, queue.flavor), []).append(queue)
        for gpu in one.gpus:
            gpus.setdefault(gpu.gpu_type, []).append(gpu)
        evictions.update(one.evictions)
    return Samples(
        time=samples[0].time // HOUR * HOUR,
        span=HOUR,
        queues=tuple(map(_hour_of_queue, queues.values())),
        gpus=tuple(_hour_of_gpus(gpus[name]) for name in sorted(gpus)),
        evictions=dict(sorted(evictions.items())),
        cost_hourly=_mean(one.cost_hourly for one in samples),
    )


def _mean(values: Iterable[float]) -> float:
    found = tuple(values)
    return sum(found) / len(found)


def _maximum(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _hour_of_queue(found: Sequence[QueueSample]) -> QueueSample:
    first = found[0]
    return QueueSample(
        kind=first.kind,
        name=first.name,
        flavor=first.flavor,
        nominal=_mean(one.nominal for one in found),
        used=_mean(one.used for one in found),
        borrowed=_mean(one.borrowed for one in found),
        lent=_mean(one.lent for one in found),
        pending=round(_mean(one.pending for one in found)),
        pending_gpus=_mean(one.pending_gpus for one in found),
        wait_p50=_maximum(one.wait_p50 for one in found),
        wait_p95=_maximum(one.wait_p95 for one in found),
        admitted=sum(one.admitted for one in found),
        preempted=sum(one.preempted for one in found),
        evicted=sum(one.evicted for one in found),
    )


def _hour_of_gpus(found: Sequence[GpuSample]) -> GpuSample:
    return GpuSample(
        gpu_type=found[0].gpu_type,
        total=round(_mean(one.total for one in found)),
        allocated=_mean(one.allocated for one in found),
        idle=_mean(one.idle for one in found),
        unhealthy=_mean(one.unhealthy for one in found),
        utilization=mean_utilization(found),
    )


def mean_utilization(samples: Iterable[GpuSample]) -> float | None:
    """Return the mean utilization in percent, weighted by allocated GPUs; None if it was never measured."""
    measured = [(one.utilization, one.allocated) for one in samples if one.utilization is not None]
    weight = sum(allocated for _, allocated in measured)
    if not weight:
        return _mean(value for value, _ in measured) if measured else None
    return sum(value * allocated for value, allocated in measured) / weight
