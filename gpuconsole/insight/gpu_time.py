"""How many GPUs are held, and how many there are, added up over time while pods and nodes come and go."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.insight.once import once
from gpuconsole.model.clock import HOUR, Time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.snapshot import EMPTY, Snapshot

Seats = tuple[str, tuple[int, ...]]
"""A node, and GPUs of it by their indices."""
NO_SEATS: Seats = ("", ())


class Holdings(Struct, frozen=True):
    """Who holds which GPUs. A GPU that several pods share is one GPU."""

    by_pod: Mapping[str, Seats]
    by_gpu: Mapping[tuple[str, int], int]
    """(node, index) → how many pods are on it."""


@once("pods")
def holdings_of(snapshot: Snapshot) -> Holdings:
    """Which GPUs each pod holds."""
    by_pod = {pod.key: seats for pod in snapshot.pods.all() if (seats := _seats(pod)) is not NO_SEATS}
    return Holdings(by_pod, Counter((node, index) for node, gpus in by_pod.values() for index in gpus))


def _seats(pod: Pod) -> Seats:
    return (pod.node, pod.gpus) if pod.gpus and pod.node and not pod.done else NO_SEATS


@once("nodes")
def ready_gpus(snapshot: Snapshot) -> Mapping[str, int]:
    """How many GPUs each node has that is ready."""
    return {node.name: node.gpus for node in snapshot.nodes.all() if node.ready}


class GpuTime:
    """GPU-hours since a moment. Mutates by the events that `note` is told.

    In whole numbers: two futures that are alike have the same, whenever each of them was looked at.
    """

    def __init__(self, snapshot: Snapshot, now: Time) -> None:
        held = holdings_of(snapshot)
        self._held = dict(held.by_pod)
        self._sharers = dict(held.by_gpu)
        self._nodes = dict(ready_gpus(snapshot))
        self._total = sum(self._nodes.values())
        self._counted = now
        self._used_time = 0
        self._total_time = 0

    @classmethod
    def of_nothing(cls, now: Time) -> "GpuTime":
        """Of a cluster of which every object is still to be told."""
        return cls(EMPTY, now)

    @property
    def used_hours(self) -> float:
        """That pods held so far."""
        return self._used_time / HOUR

    @property
    def total_hours(self) -> float:
        """That ready nodes had so far."""
        return self._total_time / HOUR

    def note(self, event: Event) -> None:
        match event:
            case Applied(time, Pod() as pod):
                self._hold(time, pod.key, _seats(pod))
            case Deleted(time, "pods", key):
                self._hold(time, key, NO_SEATS)
            case Applied(time, Node() as node):
                self._provide(time, node.name, node.gpus if node.ready else 0)
            case Deleted(time, "nodes", key):
                self._provide(time, key, 0)
            case _:
                pass

    def count(self, until: Time) -> None:
        """Add up to a moment."""
        self._used_time += len(self._sharers) * (until - self._counted)
        self._total_time += self._total * (until - self._counted)
        self._counted = until

    def _hold(self, time: Time, pod: str, seats: Seats) -> None:
        before = self._held.get(pod, NO_SEATS)
        if before == seats:
            return
        self.count(time)
        for (node, gpus), sign in ((before, -1), (seats, 1)):
            for index in gpus:
                sharers = self._sharers.get((node, index), 0) + sign
                self._sharers[node, index] = sharers
                if not sharers:
                    del self._sharers[node, index]
        self._held[pod] = seats

    def _provide(self, time: Time, node: str, gpus: int) -> None:
        self.count(time)
        self._total += gpus - self._nodes.get(node, 0)
        self._nodes[node] = gpus
