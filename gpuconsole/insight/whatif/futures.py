"""The two forks of a what-if (baseline and changed) on their way to the horizon, with their events and totals.

A `Future` is one fork; `FutureEvents` are its history lines, evictions and lost work so far. `subjects_of` are the keys
of the work that commands name.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from gpuconsole.insight.cost.rates import nodes_hourly
from gpuconsole.insight.index.engine_queues import ENGINES, queues
from gpuconsole.insight.index.gpu_time import GpuTime
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, leaves, queues_below
from gpuconsole.insight.index.unqueued_work import outermost
from gpuconsole.insight.overview import GpuTotals, Waiting, gpu_totals, waiting
from gpuconsole.insight.preemption.history import rule_in_words, subject
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import (
    AnswerCheck,
    Command,
    Copy,
    Later,
    MoveToQueue,
    Requeue,
    Scale,
    SetActive,
    SetPriority,
    Submit,
)
from gpuconsole.model.cooperative import Steps, run_to_end
from gpuconsole.model.devices import ANY_DEVICE, WHOLE_GPU
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


LOSSES = (HistoryEventKind.EVICTED, HistoryEventKind.POD_EVICTED, HistoryEventKind.POD_FAILED)
"""Kinds of history lines about an eviction or a failed pod."""


class WhatIfEviction(Struct, frozen=True, kw_only=True):
    """An eviction, or the loss of pods with their node, in one fork."""

    time: Time
    workload: str
    queue: str
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    priority: int
    by: str
    by_priority: int
    rule: str
    """Rule of the preemption, in words."""
    lost_gpu_hours: float
    cost: float
    returns: Time | None
    """Time at which all its pods run again; None if not before the horizon."""
    released: Time | None = None
    """Time at which its quota is released; None if not before the horizon, or if only some of its pods are evicted."""
    pods_gone: Time | None = None
    """Time at which the last of its pods has terminated; None as for `released`."""


class EvictionTimes(Struct, kw_only=True):
    """When a workload was evicted, its quota was released, and its pods were gone. Mutated by `Future`."""

    workload: str
    evicted: Time
    released: Time | None = None
    pods_gone: Time | None = None


class FutureEvents(Struct, kw_only=True):
    """Events of a fork since its start. Mutated by `Future`."""

    begun: Time
    lines: list[HistoryEvent] = field(default_factory=list)
    """In order, without lines that only report a pending workload."""
    admitted: dict[str, list[HistoryEvent]] = field(default_factory=dict)
    """Workload → its admissions."""
    started: dict[str, Time] = field(default_factory=dict)
    """Workload → time at which all its pods ran for the first time."""
    placed: dict[str, list[HistoryEvent]] = field(default_factory=dict)
    """Job or lone pod without a Workload → POD_BOUND lines of its pods."""
    withdrawn: list[EvictionTimes] = field(default_factory=list)
    """Evictions of whole workloads, in order."""
    asked: set[str] = field(default_factory=set)
    """The requested work (`subjects_of`), deleted work included."""

    def first_admission(self, key: str) -> Time | None:
        """Return the time of the first admission of a workload; None if it was not admitted."""
        lines = self.admitted.get(key)
        return lines[0].time if lines else None

    def let_in(self, key: str) -> Time | None:
        """Return the first admission; of a job without a Workload the first binding of a pod, else its start."""
        admitted, placed = self.first_admission(key), self.placed.get(key)
        if admitted is None and placed:
            return placed[0].time
        return self.started.get(key) if admitted is None else admitted

    def waits(self) -> list[Span]:
        """Return the wait of each admission."""
        return [line.waited for lines in self.admitted.values() for line in lines]

    def lost(self) -> tuple[float, float]:
        """Return the lost work in GPU-hours and USD, without PREEMPTED lines, which repeat the loss of an eviction."""
        paid = [line for line in self.lines if line.what is not HistoryEventKind.PREEMPTED]
        return sum(line.lost_gpu_seconds for line in paid) / 3600, sum(line.cost for line in paid)

    def evictions(self) -> list[WhatIfEviction]:
        """Return the evictions, one per time, workload (or lone pod) and preemptor.

        A workload that loses its pods to a drain may be preempted at the same moment: that is a separate eviction.
        """
        preempted = (line for line in self.lines if line.what is HistoryEventKind.PREEMPTED)
        rules = {(line.time, subject(line), line.by): line.reason for line in preempted}
        losses: dict[tuple[Time, str, str], list[HistoryEvent]] = {}
        back: dict[tuple[Time, str, str], Time] = {}
        gone: dict[str, list[tuple[Time, str, str]]] = {}
        missing: dict[str, int | None] = {}
        """Workload with quota → number of lost pods; None for one that has to restart."""
        for line in self.lines:
            key = subject(line)
            if line.what in LOSSES:
                loss = (line.time, key, line.by)
                losses.setdefault(loss, []).append(line)
                gone.setdefault(key, []).append(loss)
                lost = missing.get(key, 0)
                missing[key] = (
                    None if (line.what is HistoryEventKind.EVICTED and not line.pod) or lost is None else lost + 1
                )
            elif line.what is HistoryEventKind.POD_BOUND and (lost := missing.get(key)):
                missing[key] = lost - 1
            if line.what is HistoryEventKind.STARTED or missing.get(key) == 0:
                back.update(dict.fromkeys(gone.pop(key, ()), line.time))
                missing.pop(key, None)
        withdrawn = {(one.evicted, one.workload): one for one in self.withdrawn}
        return [
            _victim(rules.get(loss, ""), lines, back.get(loss), withdrawn.get(loss[:2]))
            for loss, lines in losses.items()
        ]


def unit_of_lines(lines: Iterable[HistoryEvent]) -> str:
    """Return the common unit of the accelerators in these lines."""
    units = {line.unit for line in lines if line.gpus}
    return units.pop() if len(units) == 1 else ANY_DEVICE if units else WHOLE_GPU.noun


def more_evictions(
    course: Iterable[WhatIfEviction], other: Iterable[WhatIfEviction], *, by_anyone: bool = False
) -> tuple[WhatIfEviction, ...]:
    """Return the evictions of `course` that exceed those of `other`, counted per workload and preemptor.

    With `by_anyone` they are counted per workload, whatever the preemptor.
    """

    def counted(victim: WhatIfEviction) -> tuple[str, str]:
        return victim.workload, "" if by_anyone else victim.by

    known = Counter(map(counted, other))
    more = []
    for victim in course:
        if known[counted(victim)]:
            known[counted(victim)] -= 1
        else:
            more.append(victim)
    return tuple(more)


def _victim(
    rule: str, lines: Sequence[HistoryEvent], returns: Time | None, withdrawn: EvictionTimes | None
) -> WhatIfEviction:
    first = lines[0]
    # The eviction of a whole workload includes pods that were evicted before it at the same moment.
    of_all = max((line.gpus for line in lines if not line.pod), default=0)
    return WhatIfEviction(
        time=first.time,
        workload=subject(first),
        queue=first.queue,
        gpus=max(of_all, sum(line.gpus for line in lines if line.pod)),
        unit=unit_of_lines(lines),
        priority=first.priority,
        by=first.by,
        by_priority=first.by_priority,
        rule=rule_in_words(rule or first.reason),
        lost_gpu_hours=sum(line.lost_gpu_seconds for line in lines) / 3600,
        cost=sum(line.cost for line in lines),
        returns=returns,
        released=withdrawn.released if withdrawn is not None else None,
        pods_gone=withdrawn.pods_gone if withdrawn is not None else None,
    )


def subjects_of(commands: Iterable[Command], snapshot: Snapshot) -> set[str]:
    """Keys of the workloads (or of jobs and pods without one) that the commands name.

    Only objects of the Snapshot count: a rejected submission has no subject.
    """
    named = {key for command in commands for key in _named(command, snapshot)}
    owners = {key for key in named if key not in snapshot.workloads}
    everybody = snapshot.workloads.all() if owners else ()
    owned = {
        name: workload.key
        for workload in everybody
        for name in (workload.owner, workload.owner.partition("/")[2])
        if name in owners
    }
    return {owned.get(key, key) for key in named if key in owned or is_there(key, snapshot)}


def asks_only_for_work(commands: Iterable[Command]) -> bool:
    """True if the commands only submit, resume or requeue work or set its priority: they evict only by preemption."""
    return all(map(_asks_for_work, commands))


def _asks_for_work(command: Command) -> bool:
    match command:
        case Submit(objects):
            return all(isinstance(obj, Workload | Job | Pod) for obj in objects)
        case Copy() | SetActive(_, True) | Requeue() | SetPriority():
            return True
        case Later(_, later):
            return _asks_for_work(later)
        case _:
            return False


def is_there(key: str, snapshot: Snapshot) -> bool:
    """True for a workload, job or pod of the Snapshot."""
    return any(key in table for table in (snapshot.workloads, snapshot.jobs, snapshot.pods))


def _named(command: Command, snapshot: Snapshot) -> Iterator[str]:
    match command:
        case Submit(objects):
            for obj in objects:
                match obj:
                    case Workload() | Job():
                        yield obj.key
                    case Pod():
                        yield obj.workload or obj.job or obj.key
                    case _:
                        pass
        case Copy(of, name):
            yield _copied(of, name, snapshot)
        case SetActive(key, True) | Requeue(key) | SetPriority(key) | MoveToQueue(key) | Scale(key) | AnswerCheck(key):
            yield key
        case Later(_, later):
            yield from _named(later, snapshot)
        case _:
            pass


def _copied(of: str, name: str, snapshot: Snapshot) -> str:
    """Return the key of a copy: of the job of this name if there is one, else of a workload or a pod."""
    *_, namespace, _ = of.split("/")
    key = f"{namespace}/{name}"
    return next((job.key for job in snapshot.jobs.all() if job.key.partition("/")[2] == key), key)


_WAITING = (HistoryEventKind.PENDING, HistoryEventKind.GANG_WAITING)


class FutureTotals(Struct, frozen=True):
    """GPU totals, pending work and queues of a Snapshot, by which two forks are compared."""

    queues: Mapping[str, QuotaNode]
    """Queues that serve work, by name."""
    gpus: GpuTotals
    waiting: Waiting


def serving_queues(roots: Iterable[QuotaNode]) -> Mapping[str, QuotaNode]:
    """Map names to all ClusterQueues below these roots and all queues of Volcano or KAI that accept jobs."""
    found: dict[str, QuotaNode] = {}
    for queue in queues_below(roots):
        if queue.kind is NodeKind.CLUSTER_QUEUE:
            found[queue.name] = queue
        elif queue.kind in ENGINES:
            found |= {leaf.name: leaf for leaf in leaves(queue)}
    return found


def sums_of(snapshot: Snapshot) -> FutureTotals:
    """Compute the totals of a Snapshot by which two forks are compared."""
    return FutureTotals(serving_queues(queues(snapshot)), gpu_totals(snapshot), waiting(snapshot))


class FutureStatus(Struct, frozen=True, kw_only=True):
    """State of a fork at one moment, with the history since its start."""

    course: FutureEvents
    snapshot: Snapshot
    sums: FutureTotals
    gpu_hours: float
    """GPU-hours held by pods since the start."""
    capacity_hours: float
    """GPU-hours of ready nodes since the start."""
    hourly: float
    """USD an hour for the GPUs of all nodes."""


class FutureRunner(Protocol):
    """A fork that is advanced here or in another process."""

    def advancing(self, until: Time) -> Steps[None]:
        """Advance to a moment, in pieces; a fork in another process may not be there yet after the last one."""

    def look(self) -> FutureStatus:
        """Return the state at the moment to which the fork was advanced."""

    def close(self) -> None:
        """Release the resources of the fork."""


Elsewhere = Callable[["Future", Time], FutureRunner]
"""Function that moves a fork to another process, where it can advance up to the given time."""


class Future:
    """One fork of a what-if in this process, on its way to the horizon, with its history. Mutates by `advance`."""

    def __init__(self, base: "Simulation", commands: Sequence[Command] = (), places: Iterable[str] = ()) -> None:
        """Apply the commands; `places` are their positions in the file, for refusals."""
        self.simulation = base.forecast_fork(subjects_of(commands, base.snapshot()))
        self.simulation.drain()
        self.begun = self.simulation.snapshot()
        self.commands = commands
        afters = (command.after if isinstance(command, Later) else 0 for command in commands)
        self._moments = sorted({base.now + after for after in afters})
        """Times of commands that are still to come."""
        self.gpus = GpuTime(self.begun, base.now)
        self.course = FutureEvents(begun=base.now)
        self._jobs: dict[str, Job] = {}
        """Jobs that were created or changed."""
        self._owners: dict[str, str] = {}
        """Pod without a Workload → its job; of pods that were created or changed."""
        self._losers: set[str] = set()
        """Pods that lost their node or failed: the victim's entry has the time of their restart."""
        self._evicted: dict[str, EvictionTimes] = {}
        """Workload → its last eviction, until its quota is released."""
        self._terminating: dict[str, EvictionTimes] = {}
        """Pod → the eviction that deleted it."""
        self._terminating_pods: Counter[tuple[str, Time]] = Counter()
        """Number of terminating pods per eviction (workload, time)."""
        for command, place in zip(commands, chain(places, repeat("")), strict=False):
            self.simulation.submit(command, place)
        self.advance(base.now)

    def advance(self, until: Time) -> None:
        """Advance to a moment and record the events."""
        run_to_end(self.advancing(until))

    def advancing(self, until: Time) -> Steps[None]:
        """Do the same as `advance` in pieces, as an iterator."""
        while self._moments and self._moments[0] <= until:
            # Requested work may start and end between two checks.
            yield from self._going(self._moments.pop(0))
            self._meet()
        yield from self._going(until)

    def _going(self, until: Time) -> Steps[None]:
        yield from self.simulation.advance_in_steps(until)
        for event in self.simulation.drain():
            self.gpus.note(event)
            self._note(event)
        self.gpus.count(until)

    def _meet(self) -> None:
        """Record the work that the commands name; deleted work stays recorded."""
        snapshot = self.simulation.snapshot()
        gone = {key for key in self.course.asked if not is_there(key, snapshot)}
        self.course.asked = gone | subjects_of(self.commands, snapshot)

    def look(self) -> FutureStatus:
        """Return the state at the time to which the fork was advanced."""
        self._meet()
        # The state of inadmissible workloads is not needed here.
        self.simulation.show_inadmissible(self.course.asked)
        snapshot = self.simulation.snapshot()
        return FutureStatus(
            course=self.course,
            snapshot=snapshot,
            sums=sums_of(snapshot),
            gpu_hours=self.gpus.used_hours,
            capacity_hours=self.gpus.total_hours,
            hourly=nodes_hourly(snapshot, self.simulation.policy.prices),
        )

    def close(self) -> None:
        """Do nothing: a fork in this process has no resources to release."""

    def _note(self, event: Event) -> None:
        course = self.course
        match event:
            case Applied(object=Pod() as pod) if not pod.workload:
                self._owners[pod.key] = pod.job
            case Applied(object=Pod() as pod):
                self._note_termination(pod)
            case Deleted(time=time, table="pods", key=key) if key in self._terminating:
                self._pod_gone(self._terminating.pop(key), time)
            case Applied(time=time, object=Workload() as workload) if workload.key in self._evicted:
                if not workload.reserved:
                    self._released(self._evicted.pop(workload.key), time)
            case Applied(object=Job() as job):
                self._jobs[job.key] = job
            case HistoryEvent(what=what) if what not in _WAITING:
                course.lines.append(event)
                if what is HistoryEventKind.EVICTED and not event.pod:
                    times = EvictionTimes(workload=event.workload, evicted=event.time)
                    course.withdrawn.append(times)
                    self._evicted[event.workload] = times
                if what is HistoryEventKind.ADMITTED:
                    course.admitted.setdefault(event.workload, []).append(event)
                elif what is HistoryEventKind.STARTED:
                    course.started.setdefault(event.workload, event.time)
                elif (
                    what is HistoryEventKind.POD_BOUND and event.workload == event.pod and event.pod not in self._losers
                ):
                    owner = outermost(self._job, self._owners.get(event.pod, ""))
                    course.placed.setdefault(owner or event.pod, []).append(event)
                elif what in LOSSES and event.pod:
                    self._losers.add(event.pod)
            case _:
                pass

    def _note_termination(self, pod: Pod) -> None:
        times = self._evicted.get(pod.workload)
        if times is not None and pod.deleted and pod.key not in self._terminating:
            self._terminating[pod.key] = times
            self._terminating_pods[times.workload, times.evicted] += 1

    def _pod_gone(self, times: EvictionTimes, time: Time) -> None:
        eviction = times.workload, times.evicted
        self._terminating_pods[eviction] -= 1
        if not self._terminating_pods[eviction]:
            times.pods_gone = time

    def _released(self, times: EvictionTimes, time: Time) -> None:
        times.released = time
        if (times.workload, times.evicted) not in self._terminating_pods:
            # None of its pods had a node, or none had a grace period.
            times.pods_gone = times.evicted

    def _job(self, key: str) -> Job | None:
        return self._jobs.get(key) or self.begun.jobs.get(key)
