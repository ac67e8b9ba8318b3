"""The two forks of a what-if (baseline and changed) on their way to the horizon."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from gpuconsole.insight.cost import nodes_hourly
from gpuconsole.insight.engine_queues import queues
from gpuconsole.insight.engine_shares import ENGINES
from gpuconsole.insight.future_events import LOSSES, EvictionTimes, FutureEvents
from gpuconsole.insight.gpu_time import GpuTime
from gpuconsole.insight.gpu_totals import GpuTotals, gpu_totals
from gpuconsole.insight.overview import Waiting, waiting
from gpuconsole.insight.quota_node import NodeKind, QuotaNode, leaves, queues_below
from gpuconsole.insight.subjects import is_there, subjects_of
from gpuconsole.insight.unqueued_work import outermost
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command, Later
from gpuconsole.model.cooperative import Steps, run_to_end
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

_WAITING = (HistoryEventKind.PENDING, HistoryEventKind.GANG_WAITING)


class FutureTotals(Struct, frozen=True):
    """Totals of one Snapshot, by which two forks are compared."""

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
    """Compute the totals of a Snapshot."""
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
"""Moves a fork to another process, to advance to a moment at most."""


class Future:
    """A fork on its way to the horizon, with its history. Mutates by `advance`."""

    def __init__(self, base: "Simulation", commands: Sequence[Command] = (), places: Iterable[str] = ()) -> None:
        """Apply the commands; `places` are their positions in the file, for refusals."""
        self.simulation = base.ahead(subjects_of(commands, base.snapshot()))
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
        """`advance` piece by piece."""
        while self._moments and self._moments[0] <= until:
            # Requested work may start and end between two checks.
            yield from self._going(self._moments.pop(0))
            self._meet()
        yield from self._going(until)

    def _going(self, until: Time) -> Steps[None]:
        yield from self.simulation.advancing(until)
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
        """Return the present state."""
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
        """Nothing to release."""

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
