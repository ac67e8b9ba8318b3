"""The two futures of a what-if: forks on their way to the horizon, and the history that each of them makes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.insight.gpu_time import GpuTime
from gpuconsole.insight.preemptions import rule_in_words, subject
from gpuconsole.insight.stand_ins import outermost
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Applied, Event, Happened, What
from gpuconsole.model.job import Job

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


_LOSSES = (What.EVICTED, What.POD_EVICTED, What.POD_FAILED)


class Victim(Struct, frozen=True, kw_only=True):
    """An eviction, or pods lost with their node, in one future and not in the other."""

    time: Time
    workload: str
    queue: str
    gpus: int
    priority: int
    by: str
    by_priority: int
    rule: str
    """In words."""
    lost_gpu_hours: float
    cost: float
    returns: Time | None
    """When all its pods run again before the horizon, if they do."""


class Future:
    """One fork on its way to the horizon, with the history that it makes."""

    def __init__(self, base: "Simulation", commands: Iterable[Command] = (), places: Iterable[str] = ()) -> None:
        """The commands are carried out at once; `places` say where each is written, for those that are refused."""
        self.simulation = base.fork(ahead=True)
        self.simulation.drain()
        now = self.simulation.snapshot()
        self.begun = base.now
        self._known_jobs = now.jobs
        self.gpus = GpuTime(now, base.now)
        self._jobs: dict[str, Job] = {}
        """Those that came, or changed."""
        self._owners: dict[str, str] = {}
        """Pod that no Workload stands for → its job; of those that came, or changed."""
        self._losers: set[str] = set()
        """Pods that lost their place, or failed: when they are back is told of the victim."""
        self.placed: dict[str, list[Happened]] = {}
        """Job, or lone pod, that no Workload stands for → the lines of its pods that get nodes."""
        self.lines: list[Happened] = []
        self.admitted: dict[str, list[Happened]] = {}
        self.started: dict[str, Time] = {}
        for command, place in zip(commands, chain(places, repeat("")), strict=False):
            self.simulation.submit(command, place)
        self.advance(base.now)

    def advance(self, until: Time) -> None:
        """Go on to a moment, and take down what happens."""
        self.simulation.advance(until)
        for event in self.simulation.drain():
            self.gpus.note(event)
            self._note(event)
        self.gpus.count(until)

    def _note(self, event: Event) -> None:
        match event:
            case Applied(object=Pod() as pod) if not pod.workload:
                self._owners[pod.key] = pod.job
            case Applied(object=Job() as job):
                self._jobs[job.key] = job
            case Happened(what=What.ADMITTED):
                self.lines.append(event)
                self.admitted.setdefault(event.workload, []).append(event)
            case Happened(what=What.STARTED):
                self.lines.append(event)
                self.started.setdefault(event.workload, event.time)
            case Happened(what=What.POD_BOUND, pod=pod) if event.workload == pod and pod not in self._losers:
                self.lines.append(event)
                self.placed.setdefault(outermost(self._job, self._owners.get(pod, "")) or pod, []).append(event)
            case Happened(pod=pod) if pod and event.what in _LOSSES:
                self.lines.append(event)
                self._losers.add(pod)
            case Happened():
                self.lines.append(event)
            case _:
                pass

    def _job(self, key: str) -> Job | None:
        return self._jobs.get(key) or self._known_jobs.get(key)

    def first_admission(self, key: str) -> Time | None:
        lines = self.admitted.get(key)
        return lines[0].time if lines else None

    def let_in(self, key: str) -> Time | None:
        """When it is first admitted; work that nothing queues when its first pod gets a node; else when it starts."""
        admitted, placed = self.first_admission(key), self.placed.get(key)
        if admitted is None and placed:
            return placed[0].time
        return self.started.get(key) if admitted is None else admitted

    def waits(self) -> list[Span]:
        return [line.waited for lines in self.admitted.values() for line in lines]

    def lost(self) -> tuple[float, float]:
        """GPU-hours and USD. A PREEMPTED line repeats the loss of its eviction."""
        paid = [line for line in self.lines if line.what is not What.PREEMPTED]
        return sum(line.lost_gpu_seconds for line in paid) / 3600, sum(line.cost for line in paid)

    def evictions(self) -> list[Victim]:
        """One for each time that a workload (or a pod without one) lost its place, or pods of it."""
        rules = {(line.time, subject(line)): line.reason for line in self.lines if line.what is What.PREEMPTED}
        pods: dict[tuple[Time, str], list[Happened]] = {}
        back: dict[tuple[Time, str], Time] = {}
        gone: dict[str, list[tuple[Time, str]]] = {}
        missing: dict[str, int | None] = {}
        """How many pods each lost that still has its quota; None for one that has to start anew."""
        for line in self.lines:
            key = subject(line)
            if line.what in _LOSSES:
                pods.setdefault((line.time, key), []).append(line)
                gone.setdefault(key, []).append((line.time, key))
                lost = missing.get(key, 0)
                missing[key] = None if (line.what is What.EVICTED and not line.pod) or lost is None else lost + 1
            elif line.what is What.POD_BOUND and (lost := missing.get(key)):
                missing[key] = lost - 1
            if line.what is What.STARTED or missing.get(key) == 0:
                back.update(dict.fromkeys(gone.pop(key, ()), line.time))
                missing.pop(key, None)
        return [self._victim(rules.get(moment, ""), lines, back.get(moment)) for moment, lines in pods.items()]

    def _victim(self, rule: str, lines: Sequence[Happened], returns: Time | None) -> Victim:
        first = lines[0]
        return Victim(
            time=first.time,
            workload=subject(first),
            queue=first.queue,
            gpus=sum(line.gpus for line in lines),
            priority=first.priority,
            by=first.by,
            by_priority=first.by_priority,
            rule=rule_in_words(rule or first.reason),
            lost_gpu_hours=sum(line.lost_gpu_seconds for line in lines) / 3600,
            cost=sum(line.cost for line in lines),
            returns=returns,
        )


def more_evictions(future: Future, other: Future) -> tuple[Victim, ...]:
    """Evictions in `future` beyond as many of the same workload for the same preemptor as `other` has."""
    known = Counter((victim.workload, victim.by) for victim in other.evictions())
    more = []
    for victim in future.evictions():
        if known[victim.workload, victim.by]:
            known[victim.workload, victim.by] -= 1
        else:
            more.append(victim)
    return tuple(more)
