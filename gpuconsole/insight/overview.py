"""The numbers of the dashboard: GPUs, who waits, the last hour, and the tree of queues."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.attention import attention
from gpuconsole.insight.books import books
from gpuconsole.insight.checking import checking
from gpuconsole.insight.device_demand import claimed, in_units, pod_units, template_units
from gpuconsole.insight.engine_queues import queues
from gpuconsole.insight.gangs import gang_key, waiting_gangs
from gpuconsole.insight.gpu_totals import GpuTotals, gpu_totals
from gpuconsole.insight.gpumap import CLAIMS
from gpuconsole.insight.missing_pods import all_refused_pods
from gpuconsole.insight.once import once
from gpuconsole.insight.pages import Count
from gpuconsole.insight.quota_node import QuotaNode
from gpuconsole.insight.reasons import Code
from gpuconsole.insight.trouble import Attention
from gpuconsole.insight.whereabouts import whereabouts
from gpuconsole.model.clock import HOUR, Time
from gpuconsole.model.device_units import DRA_DEVICE, NO_UNITS, Units, added
from gpuconsole.model.events import Happened, What
from gpuconsole.model.seen import KEPT
from gpuconsole.model.snapshot import Snapshot

BINS = 12


class Waiting(Struct, frozen=True, kw_only=True):
    """Who waits, and for what."""

    workloads: int
    """In a queue, without quota."""
    oldest: str
    """Key of the workload that waits longest; empty if none waits."""
    oldest_since: Time
    codes: Mapping[Code, int]
    """Why they wait: code → workloads; `nodes` and `gang` are admitted (or not queued) and wait for nodes."""
    checking: int = 0
    """Hold quota and wait for admission checks, or for their place in a topology."""
    checking_units: Units = NO_UNITS
    """What their quota is of, in its units."""
    by_nodes: int = 0
    """Admitted, or not queued at all, some of whose pods wait for nodes."""
    by_resource_quota: int = 0
    """Likewise, but a ResourceQuota keeps some of their pods from being created, and none waits for a node."""
    units: Units = NO_UNITS
    """What everybody who waits asks for or holds, in its units."""

    @property
    def by_quota(self) -> int:
        return self.codes.get(Code.QUOTA, 0) + self.codes.get(Code.EXCEEDS_MAX, 0)

    @property
    def otherwise(self) -> int:
        """Wait in a queue for anything but quota: their turn, a queue that is stopped or missing, no flavor …"""
        return self.workloads - self.by_quota

    @property
    def in_all(self) -> int:
        """Everybody who waits: in a queue, for checks, for nodes, or for pods that are refused. Nobody counts twice."""
        return self.workloads + self.checking + self.by_nodes + self.by_resource_quota


class LastHour(Struct, frozen=True, kw_only=True):
    """What happened in the hour before a moment, in `BINS` equal parts, the newest last."""

    time: Time
    admitted: int
    admitted_bins: tuple[int, ...]
    preempted: int
    preempted_bins: tuple[int, ...]
    lost_gpu_hours: float
    cost: float
    """USD of the lost work."""
    losses: int = 0
    """Times that work was lost."""
    unknown: int = 0
    """Of these, those of which nobody knows how much, nor what it cost."""
    unpriced: int = 0
    """Those of which nobody knows what it cost."""
    since: Time
    """What is counted came after this: an hour ago, or later where older lines are not at hand."""

    @property
    def whole(self) -> bool:
        """True if the window is the hour that it should be."""
        return self.since <= self.time - HOUR

    def __add__(self, other: "LastHour") -> "LastHour":
        """Both together, of the same moment."""
        return LastHour(
            time=self.time,
            admitted=self.admitted + other.admitted,
            admitted_bins=tuple(map(sum, zip(self.admitted_bins, other.admitted_bins, strict=True))),
            preempted=self.preempted + other.preempted,
            preempted_bins=tuple(map(sum, zip(self.preempted_bins, other.preempted_bins, strict=True))),
            lost_gpu_hours=self.lost_gpu_hours + other.lost_gpu_hours,
            cost=self.cost + other.cost,
            losses=self.losses + other.losses,
            unknown=self.unknown + other.unknown,
            unpriced=self.unpriced + other.unpriced,
            since=max(self.since, other.since),
        )


class Dashboard(Struct, frozen=True, kw_only=True):
    time: Time
    gpus: GpuTotals
    waiting: Waiting
    queues: tuple[QuotaNode, ...]
    attention: tuple[Attention, ...]
    """The most pressing first."""


def dashboard(snapshot: Snapshot) -> Dashboard:
    """Sum a Snapshot up."""
    return Dashboard(
        time=snapshot.time,
        gpus=gpu_totals(snapshot),
        waiting=waiting(snapshot),
        queues=queues(snapshot),
        attention=attention(snapshot, snapshot.recent),
    )


@once(
    *("workloads", "local_queues", "pods", "cluster_queues", "cohorts", "nodes", "pod_groups", "kai_pod_groups"),
    *("jobs", "resource_quotas", "priority_classes", "seen"),
    *CLAIMS,
)
def waiting(snapshot: Snapshot) -> Waiting:
    """Count everything that waits: for quota by Kueue's text, for checks with quota in hand, for nodes by its pods."""
    codes: Counter[Code] = Counter()
    wanted: Counter[str] = Counter()
    total, oldest = Count(), ""
    for book in books(snapshot).by_queue.values():
        began = book.count.oldest
        if began is not None and (total.oldest is None or (began, book.longest) < (total.oldest, oldest)):
            oldest = book.longest
        total.add(book.count)
        codes.update(book.codes)
        wanted.update(book.wanted)
    gangs = {gang.key for gang in waiting_gangs(snapshot)}
    together: set[str] = set()
    alone: set[str] = set()
    unplaced: list[Units] = []
    for pod in whereabouts(snapshot).waiting.values():
        if not pod.gates and not pod.deleted and not _queued(snapshot, pod.workload):
            found = together if gang_key(pod) in gangs else alone
            found.add(pod.workload or pod.job or pod.key)
            unplaced.append(pod_units(snapshot, pod))
    refused = {owner: one for owner, one in all_refused_pods(snapshot).items() if owner not in together | alone}
    unplaced += [
        template_units(snapshot, one.refusal.quota.namespace, template)
        for one in refused.values()
        for template in one.templates
    ]
    codes[Code.GANG] += len(together)
    codes[Code.NODES] += len(alone - together)
    held = added(*(one.units for one in checking(snapshot)))
    return Waiting(
        workloads=total.pending,
        oldest=oldest,
        oldest_since=total.oldest or 0,
        codes=dict(+codes),
        checking=len(checking(snapshot)),
        checking_units=held,
        by_nodes=codes[Code.GANG] + codes[Code.NODES],
        by_resource_quota=len(refused),
        units=added(
            in_units(snapshot, wanted),
            *({DRA_DEVICE: claimed(snapshot, book.waiting)} for book in books(snapshot).by_queue.values()),
            held,
            *unplaced,
        ),
    )


def _queued(snapshot: Snapshot, workload: str) -> bool:
    """True for one that waits for its quota, or for checks, and counts as that."""
    known = snapshot.workloads.get(workload) if workload else None
    return known is not None and not known.admitted and not known.finished


def last_hour(recent: Sequence[Happened], now: Time) -> LastHour:
    """Sum up the newest lines of history, oldest first, as far back as they reach: a Snapshot has `KEPT` of them."""
    found = hour_of(recent, now)
    return replace(found, since=max(found.since, recent[0].time)) if len(recent) >= KEPT else found


def hour_of(lines: Iterable[Happened], now: Time) -> LastHour:
    """Sum up those of all lines that tell of the hour before `now`."""
    start = now - HOUR
    admitted, preempted = [0] * BINS, [0] * BINS
    lost, cost = 0.0, 0.0
    losses = unknown = unpriced = 0
    for line in lines:
        if line.time <= start:
            continue
        place = min(BINS - 1, (line.time - start) * BINS // HOUR)
        match line.what:
            case What.ADMITTED:
                admitted[place] += 1
            case What.PREEMPTED:
                preempted[place] += 1
            case _:
                pass
        if line.what is not What.PREEMPTED:  # It repeats the loss of its eviction.
            lost += line.lost_gpu_seconds / 3600
            cost += line.cost
            losses += bool(line.lost_gpu_seconds or line.lost_unknown)
            unknown += line.lost_unknown
            unpriced += line.lost_unknown or bool(line.lost_gpu_seconds and not line.cost)
    return LastHour(
        time=now,
        admitted=sum(admitted),
        admitted_bins=tuple(admitted),
        preempted=sum(preempted),
        preempted_bins=tuple(preempted),
        lost_gpu_hours=lost,
        cost=cost,
        losses=losses,
        unknown=unknown,
        unpriced=unpriced,
        since=start,
    )
