"""Queue of pending pods, ordered by priority, then creation, then key. Mutates.

A refused pod, batch or gang is tried again only after capacity is freed or it gets a new pod.
"""

from collections.abc import Iterator

from gpuconsole.scheduling.kube.pending import Kind, PendingPod, PodBatch, PodGang, Unit
from gpuconsole.scheduling.kube.pod_classes import PodClass

LineKey = tuple[PodClass, int, bool, str, Kind | None]


class Queue:
    """All pending pods, in batches of equal pods and in gangs. With `whole` False, pods of gangs are queued one by one.

    Forks share their gangs until one of them changes a gang.
    """

    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self.waiters: dict[str, PendingPod] = {}
        self.gangs: dict[str, PodGang] = {}
        self.torn: set[str] = set()
        """Partially scheduled gangs: some pods have a node, others are pending."""
        self._waiting: set[str] = set()
        """Gangs with pending pods."""
        self._lines: dict[LineKey, PodBatch] = {}
        self._own: set[str] = set()
        """Gangs that no fork shares."""

    def fork(self) -> "Queue":
        """An independent copy; gangs are copied only when one of the two changes them."""
        twin = Queue(self.whole)
        twin.waiters = self.waiters.copy()
        twin.gangs = self.gangs.copy()
        twin.torn, twin._waiting = self.torn.copy(), self._waiting.copy()
        self._own = set()
        twin._lines = {key: line.fork() for key, line in self._lines.items()}
        return twin

    def add(self, waiter: PendingPod) -> bool:
        """Queue a pod; False if it is queued already and nothing relevant changed, so that a refusal still holds."""
        old = self.waiters.get(waiter.pod)
        if old is not None:
            if _same(old, waiter):
                self.replace(waiter)
                return False
            self.drop(waiter.pod)
        self.waiters[waiter.pod] = waiter
        if waiter.gang:
            self._gang(waiter.gang, waiter.size, waiter.job).add(waiter)
            self._judge(waiter.gang)
        if not self.in_gang(waiter):
            self._lines.setdefault(_line(waiter), PodBatch()).add(waiter)
        return True

    def nominate(self, waiter: PendingPod, freed: int) -> None:
        """Update the pod's nomination. A nominated pod outside gangs is tried again only after capacity is freed."""
        if self.in_gang(waiter):
            self.replace(waiter)
            return
        self.drop(waiter.pod)
        self.add(waiter)
        if waiter.nominated:
            self._lines[_line(waiter)].refused_at = freed

    def drop(self, pod: str) -> PendingPod | None:
        """Remove a pod; None if it is not pending."""
        waiter = self.waiters.pop(pod, None)
        if waiter is None:
            return None
        if waiter.gang:
            self._owned(waiter.gang).drop(waiter)
            self._judge(waiter.gang)
        if not self.in_gang(waiter):
            line = self._lines[_line(waiter)]
            line.drop(waiter)
            if not line.waiting:
                del self._lines[_line(waiter)]
        return waiter

    def resize(self, gang: str, size: int) -> bool:
        """Change the gang's minimum; True if the gang is pending and should be tried again."""
        if gang not in self.gangs or self.gangs[gang].size == size:
            return False
        found = self._owned(gang)
        found.size, found.refused_at, found.said = size, -1, ""
        return found.waiting

    def seat(self, gang: str, pod: str, *, size: int, job: str, gpus: int) -> None:
        """Record that a pod of the gang is placed."""
        self._gang(gang, size, job).seated[pod] = gpus
        self._judge(gang)

    def unseat(self, gang: str, pod: str) -> None:
        """Record that a pod of the gang lost its node or is about to."""
        if gang in self.gangs:
            self._owned(gang).seated.pop(pod, None)
            self._judge(gang)

    def refused(self, freed: int) -> tuple[str, ...]:
        """Pods refused, or waiting for their victims to terminate, since capacity was last freed."""
        return tuple(pod for unit in self._units() if unit.refused_at == freed for pod in unit.pods)

    def recall(self, pods: frozenset[str], freed: int) -> None:
        """Mark these pods as refused until capacity is freed."""
        for unit in self._units():
            if pods.issuperset(unit.pods):
                unit.refused_at = freed

    def untried(self, freed: int) -> Iterator[Unit]:
        """Pending pods, batches and gangs that were not refused since capacity was last freed."""
        yield from (line for line in self._lines.values() if line.refused_at != freed)
        if self.whole and self._waiting:
            # The caller sorts the units by turns that are unique, so their order here decides nothing.
            names = [name for name in sorted(self._waiting) if self.gangs[name].refused_at != freed]
            yield from (self._owned(name) for name in names)

    def any_untried(self, freed: int) -> bool:
        """True if `untried` is not empty."""
        if any(line.refused_at != freed for line in self._lines.values()):
            return True
        return self.whole and any(self.gangs[name].refused_at != freed for name in self._waiting)

    def _units(self) -> list[Unit]:
        gangs = [self._owned(name) for name in sorted(self._waiting)] if self.whole else []
        return [*self._lines.values(), *gangs]

    def _gang(self, name: str, size: int, job: str) -> PodGang:
        if name not in self.gangs:
            self.gangs[name] = PodGang(name)
            self._own.add(name)
        gang = self._owned(name)
        gang.size, gang.job = max(gang.size, size), gang.job or job
        return gang

    def _owned(self, name: str) -> PodGang:
        if name not in self._own:
            self.gangs[name] = self.gangs[name].fork()
            self._own.add(name)
        return self.gangs[name]

    def _judge(self, name: str) -> None:
        """Update the state of a gang after a change: partially scheduled, or gone."""
        gang = self.gangs[name]
        (self._waiting.add if gang.waiters else self._waiting.discard)(name)
        (self.torn.add if gang.waiters and gang.seated else self.torn.discard)(name)
        if not gang.waiters and not gang.seated:
            del self.gangs[name]
            self._own.discard(name)

    def in_gang(self, waiter: PendingPod) -> bool:
        """True if the pod belongs to a gang that is scheduled all or nothing."""
        return self.whole and bool(waiter.gang)

    def replace(self, waiter: PendingPod) -> None:
        """Update a pod that keeps its position."""
        self.waiters[waiter.pod] = waiter
        if waiter.gang:
            self._owned(waiter.gang).replace(waiter)


def _line(waiter: PendingPod) -> LineKey:
    # A nominated pod has a reservation of its own, so it is no longer equal to the other pods.
    return (waiter.shape, waiter.priority, waiter.never, waiter.pod if waiter.nominated else "", waiter.kind)


def _same(old: PendingPod, new: PendingPod) -> bool:
    return (old.order, _line(old), old.gang, old.size, old.nominated) == (
        new.order,
        _line(new),
        new.gang,
        new.size,
        new.nominated,
    )
