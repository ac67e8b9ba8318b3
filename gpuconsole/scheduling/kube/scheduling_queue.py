"""kube-scheduler's scheduling queue: pending pods in batches and gangs, their order, and their back-off.

A `PodBatch` holds equal pods that are placed one by one: a refusal of the first holds for the others. A `PodGang` is
placed all or nothing. Both are ordered by priority, then creation, then key, and record whether they were refused since
capacity was last freed: a refused one is tried again only after capacity is freed or it gets a new pod. A profile also
delays the next try (`PodBackoff`).

Not simulated: kube-scheduler's flush, which retries every unschedulable pod after five minutes.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Union

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import BackoffSettings

Order = tuple[int, Time, str]
"""Position in the queue: (−priority, creation time, pod key)."""

Kind = tuple[object, ...]


class PendingPod(Struct, frozen=True, kw_only=True):
    """A pod in the queue, with what its placement depends on."""

    pod: str
    created: Time
    shape: PodClass
    priority: int
    never: bool
    """True if the pod preempts no others (preemptionPolicy Never)."""
    gang: str = ""
    """`namespace/gang`, even if gangs are not scheduled all or nothing; empty without a gang."""
    size: int = 0
    """The gang's minimum as far as the pod or its PodGroup names it; 0 if neither does."""
    job: str = ""
    nominated: str = ""
    """The nominated node; empty if none."""
    message: str = ""
    """The message of its last refusal."""
    who: Pod | None = None
    kind: Kind | None = None
    """Key by its labels, affinity terms, host ports and claims; None where these make no difference."""

    @property
    def order(self) -> Order:
        return (-self.priority, self.created, self.pod)


class PodBatch:
    """Equal pods that are placed one by one. Mutates."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.refused_at = -1
        """`PlacementState.freed` at its last refusal; -1 if it has to be tried."""
        self.said = ""
        """The message of its last refusal; empty if it got a pod since."""

    @property
    def order(self) -> Order:
        return self.orders[0]

    @property
    def waiting(self) -> bool:
        return bool(self.orders)

    def add(self, waiter: PendingPod) -> None:
        """Add a pod; the batch has to be tried again."""
        insort(self.orders, waiter.order)
        self.refused_at, self.said = -1, ""

    def drop(self, waiter: PendingPod) -> None:
        """Remove a pod of the batch."""
        del self.orders[bisect_left(self.orders, waiter.order)]

    @property
    def pods(self) -> list[str]:
        return [order[2] for order in self.orders]

    def fork(self) -> "PodBatch":
        """An independent copy."""
        twin = PodBatch()
        twin.orders = self.orders.copy()
        twin.refused_at, twin.said = self.refused_at, self.said
        return twin


class PodGang:
    """A gang: pods that start together or not at all. Mutates."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.job = ""
        self.waiters: dict[str, PendingPod] = {}
        self.seated: dict[str, int] = {}
        """Its pods that have a node and are not terminating, and how many GPUs each holds."""
        self.refused_at = -1
        self.said = ""
        self._members: tuple[PendingPod, ...] | None = None
        self._kinds: tuple[tuple[PendingPod, int], ...] = ()
        self._order: Order = (0, 0, "")

    @property
    def order(self) -> Order:
        """Queue position of its first pending pod."""
        self._sort()
        return self._order

    @property
    def members(self) -> tuple[PendingPod, ...]:
        """Its pending pods, those with the most GPUs first, as they are the hardest to place."""
        return self._sort()

    @property
    def kinds(self) -> tuple[tuple[PendingPod, int], ...]:
        """Its pending pods by class: one of each, and their number."""
        self._sort()
        return self._kinds

    @property
    def waiting(self) -> bool:
        return bool(self.waiters)

    @property
    def needed(self) -> int:
        """How many of its pending pods have to be placed at once to reach its minimum; all if it has none."""
        return max(0, (self.size or len(self.waiters) + len(self.seated)) - len(self.seated))

    def add(self, waiter: PendingPod) -> None:
        """Add a pending pod; the gang has to be tried again."""
        self.waiters[waiter.pod] = waiter
        self.refused_at, self.said = -1, ""
        self._members = None

    def replace(self, waiter: PendingPod) -> None:
        """Update a pending pod; a refusal of the gang still holds."""
        self.waiters[waiter.pod] = waiter
        self._members = None

    def drop(self, waiter: PendingPod) -> None:
        """Remove a pending pod."""
        del self.waiters[waiter.pod]
        self._members = None

    def _sort(self) -> tuple[PendingPod, ...]:
        if self._members is None:
            members = sorted(self.waiters.values(), key=lambda waiter: (-waiter.shape.gpus, waiter.order))
            runs: dict[tuple[PodClass, int, bool], tuple[PendingPod, int]] = {}
            for waiter in members:
                kind = (waiter.shape, waiter.priority, waiter.never)
                first, count = runs.get(kind, (waiter, 0))
                runs[kind] = (first, count + 1)
            self._kinds = tuple(runs.values())
            self._order = min((waiter.order for waiter in members), default=self._order)
            self._members = tuple(members)
        return self._members

    @property
    def pods(self) -> list[str]:
        return sorted(self.waiters)

    def fork(self) -> "PodGang":
        """An independent copy."""
        twin = PodGang(self.name)
        twin.size, twin.job, twin.refused_at, twin.said = self.size, self.job, self.refused_at, self.said
        twin.waiters, twin.seated = self.waiters.copy(), self.seated.copy()
        twin._members, twin._kinds, twin._order = self._members, self._kinds, self._order
        return twin


Unit = Union[PodBatch, PodGang]


LineKey = tuple[PodClass, int, bool, str, Kind | None]
"""(class, priority, preempts never, the pod itself if it is nominated, other constraints) that a batch's pods share."""


class Queue:
    """All pending pods, in batches of equal pods and in gangs. Mutates.

    `whole` says whether gangs are placed all or nothing; if not, their pods are queued like others.
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
        """Queue or update a pod; False if nothing relevant changed, so that an earlier refusal still holds."""
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
        """Keys of pods refused, or waiting for their victims to terminate, since capacity was last freed."""
        return tuple(pod for unit in self._units() if unit.refused_at == freed for pod in unit.pods)

    def recall(self, pods: frozenset[str], freed: int) -> None:
        """Mark these pods as refused until capacity is freed."""
        for unit in self._units():
            if pods.issuperset(unit.pods):
                unit.refused_at = freed

    def untried(self, freed: int) -> Iterator[Unit]:
        """Batches and gangs to try: those not refused since capacity was last freed (`PlacementState.freed`)."""
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
        """True if the pod belongs to a gang that is placed all or nothing."""
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


MARK = "delay="
"""Prefix of the lines that `PodBackoff.memory` returns."""
Turn = tuple[int, Time, Time, str]
"""Sort key in the queue: (−priority, time since which it is queued, creation time, pod key)."""


def gang_key(gang: str) -> str:
    """Key under which a gang's back-off is kept."""
    return f"gang {gang}"


class PodBackoff:
    """When refused pods, or gangs that are placed all or nothing, may be retried; at once without settings. Mutates."""

    def __init__(self, rule: BackoffSettings | None) -> None:
        self._rule = rule
        self._attempts: dict[str, int] = {}
        self._until: dict[str, Time] = {}
        self._since: dict[str, Time] = {}

    def fork(self) -> "PodBackoff":
        """An independent copy."""
        twin = PodBackoff(self._rule)
        twin._attempts, twin._until = self._attempts.copy(), self._until.copy()
        twin._since = self._since.copy()
        return twin

    @property
    def idle(self) -> bool:
        """True if no refusal of a pending pod or gang is recorded."""
        return not self._until

    def until(self, key: str) -> Time:
        """When the back-off of a pod or gang ends, perhaps in the past; 0 if it has none."""
        return self._until.get(key, 0)

    def turn(self, unit: Unit, now: Time) -> Turn | None:
        """Sort key of a pod or gang that can be tried; None during its back-off.

        A refusal moves it behind pending pods of its priority that were refused earlier (PrioritySort).
        """
        priority, created, pod = unit.order
        if self.idle:
            return priority, created, created, pod
        if self.due(unit) > now:
            return None
        if isinstance(unit, PodGang):
            return priority, self._queued(gang_key(unit.name), created), created, pod
        _, created, pod = self._next(unit, now)
        return priority, self._queued(pod, created), created, pod

    def due(self, unit: Unit) -> Time:
        """When the first pod of the unit may be tried, perhaps in the past; 0 if it has no back-off."""
        if isinstance(unit, PodGang):
            return self.until(gang_key(unit.name))
        return min(self.until(pod) for pod in unit.pods)

    def first(self, line: PodBatch, now: Time) -> str:
        """Key of the pod of the batch to try next: the one that has waited longest, of those whose back-off is over."""
        return line.order[2] if self.idle else self._next(line, now)[2]

    def _next(self, line: PodBatch, now: Time) -> Order:
        ready = (order for order in line.orders if self.until(order[2]) <= now)
        return min(ready, key=lambda order: (self._queued(order[2], order[1]), order))

    def _queued(self, key: str, created: Time) -> Time:
        return self._since.get(key, created)

    def refuse_line(self, line: PodBatch, now: Time) -> None:
        """Record a refusal for every pod of the batch that could be tried."""
        for pod in line.pods if self._rule is not None else ():
            if self.until(pod) <= now:
                self.refuse(pod, now)

    def refuse(self, key: str, now: Time) -> None:
        """Record a refusal: start or extend the back-off."""
        if self._rule is None:
            return
        attempts = self._attempts[key] = self._attempts.get(key, 0) + 1
        self._until[key] = now + self._rule.after(attempts)
        self._since[key] = now

    def forget(self, key: str) -> None:
        """Delete the back-off state of a pod or gang."""
        if self._attempts.pop(key, None) is not None:
            del self._until[key], self._since[key]

    def memory(self) -> tuple[str, ...]:
        """All back-off state as text, one line for each pod or gang."""
        return tuple(
            f"{MARK}{attempts}@{self._until[key]}@{self._since[key]}@{key}"
            for key, attempts in sorted(self._attempts.items())
        )

    def recall(self, line: str) -> None:
        """Restore one line of `memory`."""
        attempts, until, since, key = line.removeprefix(MARK).split("@", 3)
        self._attempts[key], self._until[key], self._since[key] = int(attempts), int(until), int(since)
