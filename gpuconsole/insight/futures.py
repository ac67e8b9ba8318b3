"""The two futures of a what-if: forks on their way to the horizon, and the history that each of them makes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.insight.once import once
from gpuconsole.insight.preemptions import rule_in_words, subject
from gpuconsole.model.clock import HOUR, Span, Time
from gpuconsole.model.cluster import Node, Pod
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
from gpuconsole.model.events import Applied, Deleted, Event, Happened, What
from gpuconsole.model.job import Job
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

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


@once("pods")
def holdings_of(snapshot: Snapshot) -> Mapping[str, int]:
    """How many GPUs each pod holds."""
    return {pod.key: len(pod.gpus) for pod in snapshot.pods.all() if pod.gpus and pod.node and not pod.done}


@once("nodes")
def ready_gpus(snapshot: Snapshot) -> Mapping[str, int]:
    """How many GPUs each node has that is ready."""
    return {node.name: node.gpus for node in snapshot.nodes.all() if node.ready}


class Future:
    """One fork on its way to the horizon, with the history that it makes."""

    def __init__(self, base: "Simulation", commands: Iterable[Command] = (), places: Iterable[str] = ()) -> None:
        """The commands are carried out at once; `places` say where each is written, for those that are refused."""
        self.simulation = base.fork()
        self.simulation.drain()
        now = self.simulation.snapshot()
        self._held = dict(holdings_of(now))
        self._gpus = sum(self._held.values())
        self._nodes = dict(ready_gpus(now))
        self._total = sum(self._nodes.values())
        self._counted = base.now
        self.gpu_hours = 0.0
        """That pods held so far."""
        self.capacity_hours = 0.0
        """That ready nodes had so far."""
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
            self._note(event)
        self._count(until)

    def _note(self, event: Event) -> None:
        match event:
            case Applied(time, Pod() as pod):
                self._hold(time, pod.key, len(pod.gpus) if pod.node and not pod.done else 0)
            case Deleted(time, "pods", key):
                self._hold(time, key, 0)
            case Applied(time, Node() as node):
                self._provide(time, node.name, node.gpus if node.ready else 0)
            case Deleted(time, "nodes", key):
                self._provide(time, key, 0)
            case Happened(what=What.ADMITTED):
                self.lines.append(event)
                self.admitted.setdefault(event.workload, []).append(event)
            case Happened(what=What.STARTED):
                self.lines.append(event)
                self.started.setdefault(event.workload, event.time)
            case Happened():
                self.lines.append(event)
            case _:
                pass

    def _hold(self, time: Time, pod: str, gpus: int) -> None:
        self._count(time)
        self._gpus += gpus - self._held.get(pod, 0)
        self._held[pod] = gpus

    def _provide(self, time: Time, node: str, gpus: int) -> None:
        self._count(time)
        self._total += gpus - self._nodes.get(node, 0)
        self._nodes[node] = gpus

    def _count(self, until: Time) -> None:
        self.gpu_hours += self._gpus * (until - self._counted) / HOUR
        self.capacity_hours += self._total * (until - self._counted) / HOUR
        self._counted = until

    def first_admission(self, key: str) -> Time | None:
        lines = self.admitted.get(key)
        return lines[0].time if lines else None

    def let_in(self, key: str) -> Time | None:
        """When it is first admitted; without an admission (work that nothing queues, pods made anew) when it starts."""
        admitted = self.first_admission(key)
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
                missing[key] = None if line.what is What.EVICTED or lost is None else lost + 1
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


def subjects_of(commands: Iterable[Command], snapshot: Snapshot) -> set[str]:
    """Keys of the workloads (of jobs or pods, where no Workload stands for them) that the commands are about.

    Only what exists in the Snapshot counts: a refused submission has no subject.
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
    known = (snapshot.workloads, snapshot.jobs, snapshot.pods)
    return {owned.get(key, key) for key in named if key in owned or any(key in table for table in known)}


def _named(command: Command, snapshot: Snapshot) -> Iterator[str]:
    match command:
        case Submit(objects):
            for thing in objects:
                match thing:
                    case Workload() | Job():
                        yield thing.key
                    case Pod():
                        yield thing.workload or thing.job or thing.key
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
    """The key of a copy: of a job, where there is one of this name, else of a workload or a pod."""
    *_, namespace, _ = of.split("/")
    key = f"{namespace}/{name}"
    return next((job.key for job in snapshot.jobs.all() if job.key.partition("/")[2] == key), key)
