"""What would happen if: two futures of one simulation, one with the commands and one without, and how they differ."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from msgspec import Struct

from gpuconsole.insight.futures import Future, Victim, more_evictions, subjects_of
from gpuconsole.insight.overview import gpu_totals
from gpuconsole.insight.pending import explain
from gpuconsole.insight.quota import quota_tree
from gpuconsole.insight.quota_node import NodeKind, QuotaNode
from gpuconsole.insight.reasons import Code
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span, Time
from gpuconsole.model.commands import Command
from gpuconsole.model.events import What
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.engine import Simulation

__all__ = ["FEASIBLE", "Outcome", "QueueChange", "Shift", "Victim", "WhatIf", "what_if"]

FEASIBLE = "feasible, not a reservation"
"""What every promise of a what-if has to say: the real cluster may move on before the work is submitted."""
_LOOKS: tuple[Span, ...] = (SECOND, 5 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR)
"""After these spans the fork is looked at: the futures are compared as soon as everything asked for runs."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What becomes of one workload (or job, where no Workload stands for it) that the commands are about."""

    workload: str
    queue: str
    """ClusterQueue, if any."""
    gpus: int
    priority: int
    admitted: Time | None
    """None if it is not admitted (or, without queueing, does not start) before the horizon."""
    started: Time | None
    flavors: tuple[str, ...]
    nodes: tuple[str, ...]
    code: Code
    """Why it waits at the horizon; `not-waiting` if it was admitted."""
    why: str
    """The same as a plain sentence; `FEASIBLE` if it was admitted."""
    text: str
    """The scheduler's own words."""


class Shift(Struct, frozen=True, kw_only=True):
    """A waiting bystander that is admitted at another time, or in one future only (None = not before the horizon)."""

    workload: str
    queue: str
    gpus: int
    without: Time | None
    changed: Time | None


class QueueChange(Struct, frozen=True, kw_only=True):
    """A ClusterQueue that stands differently in the two futures; GPUs, and share of its potential capacity in %."""

    queue: str
    used_now: int
    used_without: int
    used: int
    nominal: int
    borrowed_now: int
    borrowed_without: int
    borrowed: int
    share_now: float
    share_without: float
    share: float


class WhatIf(Struct, frozen=True, kw_only=True):
    """The difference that the commands make. `…_now` is the fork's start, `…_without` the future without them."""

    time: Time
    """When the fork was taken."""
    compared: Time
    """When GPUs and shares are compared: as soon as everything asked for runs, else at the horizon."""
    horizon: Time
    refused: tuple[str, ...]
    """Why commands could not be carried out."""
    outcomes: tuple[Outcome, ...]
    victims: tuple[Victim, ...]
    """Evictions that the commands cause."""
    spared: tuple[Victim, ...]
    """Evictions that would happen without them only."""
    shifts: tuple[Shift, ...]
    queues: tuple[QueueChange, ...]
    gpus_total: int
    gpus_now: int
    gpus_without: int
    gpus: int
    """In use."""
    median_wait_without: Span | None
    """Of what is admitted before the horizon; None if nothing is."""
    median_wait: Span | None
    lost_gpu_hours_without: float
    lost_gpu_hours: float
    cost_without: float
    cost: float
    """USD of work lost to evictions before the horizon."""

    @property
    def empty(self) -> bool:
        """True if the commands make no difference."""
        return not (self.refused or self.outcomes or self.victims or self.spared or self.shifts or self.queues) and (
            self.gpus,
            self.median_wait,
            self.cost,
        ) == (
            self.gpus_without,
            self.median_wait_without,
            self.cost_without,
        )


def what_if(base: Simulation, commands: Sequence[Command], horizon: Span) -> WhatIf:
    """Fork `base` twice, give the commands to one fork, let both run for `horizon`, and compare.

    `base` is not touched. Both forks draw the same chances, so that every difference comes from the commands; commands
    that change nothing give a difference that is `empty`. Refused commands are named, the others are carried out.
    """
    start = base.now
    end = start + horizon
    without, tried = Future(base), Future(base)
    now = without.simulation.snapshot()
    for command in commands:
        tried.simulation.submit(command)
    tried.advance(start)
    compared = _run_until_placed(without, tried, commands, start, end)
    pair = without.simulation.snapshot(), tried.simulation.snapshot()
    subjects = subjects_of(commands, pair[1])
    without.advance(end)
    tried.advance(end)
    final = tried.simulation.snapshot()
    subjects |= subjects_of(commands, final)
    victims, spared = more_evictions(tried, without), more_evictions(without, tried)
    lost_without, cost_without = without.lost()
    lost, cost = tried.lost()
    return WhatIf(
        time=start,
        compared=compared,
        horizon=end,
        refused=tuple(line.message for line in tried.lines if line.what is What.COMMAND_REFUSED),
        outcomes=tuple(_outcome(key, tried, (pair[1], final)) for key in sorted(subjects)),
        victims=victims,
        spared=spared,
        shifts=_shifts(without, tried, subjects, now),
        queues=_queue_changes(now, *pair),
        gpus_total=gpu_totals(now).total,
        gpus_now=gpu_totals(now).in_use,
        gpus_without=gpu_totals(pair[0]).in_use,
        gpus=gpu_totals(pair[1]).in_use,
        median_wait_without=_median(without.waits()),
        median_wait=_median(tried.waits()),
        lost_gpu_hours_without=lost_without,
        lost_gpu_hours=lost,
        cost_without=cost_without,
        cost=cost,
    )


def _run_until_placed(without: Future, tried: Future, commands: Sequence[Command], start: Time, end: Time) -> Time:
    """Advance both until everything that the commands ask for runs, at most to `end`; return that moment."""
    for look in _LOOKS:
        if start + look >= end:
            break
        without.advance(start + look)
        tried.advance(start + look)
        subjects = subjects_of(commands, tried.simulation.snapshot())
        if subjects and all(key in tried.started for key in subjects):
            return start + look
    without.advance(end)
    tried.advance(end)
    return end


def _outcome(key: str, tried: Future, snapshots: Sequence[Snapshot]) -> Outcome:
    workload = next((s.workloads[key] for s in reversed(snapshots) if key in s.workloads), None)
    admitted = tried.first_admission(key)
    started = tried.started.get(key)
    if admitted is None:
        admitted = started
    bound = [line for line in tried.lines if line.what is What.POD_BOUND and key in (line.workload, line.pod)]
    first = tried.admitted.get(key, [None])[0]
    answer = explain(snapshots[-1], key) if admitted is None else None
    return Outcome(
        workload=key,
        queue=first.queue if first is not None else answer.queue if answer is not None else "",
        gpus=workload.gpus if workload is not None else sum(line.gpus for line in bound),
        priority=workload.priority if workload is not None else 0,
        admitted=admitted,
        started=started,
        flavors=tuple(part for part in first.flavor.split(",") if part) if first is not None else (),
        nodes=tuple(dict.fromkeys(line.node for line in bound)),
        code=answer.code if answer is not None else Code.NOT_WAITING,
        why=answer.headline if answer is not None else FEASIBLE,
        text=answer.text if answer is not None else "",
    )


def _shifts(without: Future, tried: Future, subjects: set[str], now: Snapshot) -> tuple[Shift, ...]:
    """Bystanders that held no quota when the fork was taken and whose first admission moved, the largest first."""
    shifts = []
    for key in sorted((without.admitted.keys() | tried.admitted.keys()) - subjects):
        known = now.workloads.get(key)
        if known is not None and known.reserved:
            continue
        before, after = without.first_admission(key), tried.first_admission(key)
        if before != after:
            line = (tried.admitted.get(key) or without.admitted[key])[0]
            shifts.append(Shift(workload=key, queue=line.queue, gpus=line.gpus, without=before, changed=after))
    return tuple(sorted(shifts, key=lambda shift: (-shift.gpus, shift.workload)))


def _queue_changes(now: Snapshot, without: Snapshot, tried: Snapshot) -> tuple[QueueChange, ...]:
    states = [_cluster_queues(quota_tree(snapshot)) for snapshot in (now, without, tried)]
    changes = []
    for name in sorted(states[1].keys() | states[2].keys()):
        start, before, after = (state.get(name, ABSENT) for state in states)
        if (before.gpus, before.share_percent) != (after.gpus, after.share_percent):
            changes.append(
                QueueChange(
                    queue=name,
                    used_now=start.gpus.used,
                    used_without=before.gpus.used,
                    used=after.gpus.used,
                    nominal=after.gpus.nominal,
                    borrowed_now=start.gpus.borrowed,
                    borrowed_without=before.gpus.borrowed,
                    borrowed=after.gpus.borrowed,
                    share_now=start.share_percent,
                    share_without=before.share_percent,
                    share=after.share_percent,
                )
            )
    return tuple(changes)


ABSENT = QuotaNode(kind=NodeKind.CLUSTER_QUEUE, name="")


def _cluster_queues(roots: Iterable[QuotaNode]) -> Mapping[str, QuotaNode]:
    found: dict[str, QuotaNode] = {}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node.kind is NodeKind.CLUSTER_QUEUE:
            found[node.name] = node
        else:
            waiting += node.children
    return found


def _median(spans: Sequence[Span]) -> Span | None:
    return round(median(spans)) if spans else None
