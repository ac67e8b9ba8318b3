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

QueueOrder = tuple[int, Time, str]
"""Position in the queue: (−priority, creation time, pod key)."""

ConstraintsKey = tuple[object, ...]


class PendingPod(Struct, frozen=True, kw_only=True):
    """A pod in the queue, with what its placement depends on."""

    pod: str
    created: Time
    pod_class: PodClass
    priority: int
    preempts_never: bool
    """True if the pod preempts no others (preemptionPolicy Never)."""
    gang: str = ""
    """`namespace/gang`, even if gangs are not scheduled all or nothing; empty without a gang."""
    gang_minimum: int = 0
    """The gang's minimum as far as the pod or its PodGroup names it; 0 if neither does."""
    job: str = ""
    nominated: str = ""
    """The nominated node; empty if none."""
    message: str = ""
    """The message of its last refusal."""
    obj: Pod | None = None
    constraints: ConstraintsKey | None = None
    """Key by its labels, affinity terms, host ports and claims; None where these make no difference."""

    @property
    def order(self) -> QueueOrder:
        return (-self.priority, self.created, self.pod)


class PodBatch:
    """Equal pods that are placed one by one. Mutates."""

    def __init__(self) -> None:
        self.orders: list[QueueOrder] = []
        self.refused_at = -1
        """`PlacementState.freed` at its last refusal; -1 if it has to be tried."""
        self.last_message = ""
        """The message of its last refusal; empty if it got a pod since."""

    @property
    def order(self) -> QueueOrder:
        return self.orders[0]

    @property
    def has_pending(self) -> bool:
        return bool(self.orders)

    def add(self, pending_pod: PendingPod) -> None:
        """Add a pod; the batch has to be tried again."""
        insort(self.orders, pending_pod.order)
        self.refused_at, self.last_message = -1, ""

    def drop(self, pending_pod: PendingPod) -> None:
        """Remove a pod of the batch."""
        del self.orders[bisect_left(self.orders, pending_pod.order)]

    @property
    def pods(self) -> list[str]:
        return [order[2] for order in self.orders]

    def fork(self) -> "PodBatch":
        """An independent copy."""
        copied = PodBatch()
        copied.orders = self.orders.copy()
        copied.refused_at, copied.last_message = self.refused_at, self.last_message
        return copied


class PodGang:
    """A gang: pods that start together or not at all. Mutates."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.minimum = 0
        self.job = ""
        self.pending_pods: dict[str, PendingPod] = {}
        self.assigned_gpus: dict[str, int] = {}
        """Its pods that have a node and are not terminating, and how many GPUs each holds."""
        self.refused_at = -1
        self.last_message = ""
        self._pending_by_size: tuple[PendingPod, ...] | None = None
        self._pending_by_class: tuple[tuple[PendingPod, int], ...] = ()
        self._order: QueueOrder = (0, 0, "")

    @property
    def order(self) -> QueueOrder:
        """Queue position of its first pending pod."""
        self._sorted_pods()
        return self._order

    @property
    def pending_by_size(self) -> tuple[PendingPod, ...]:
        """Its pending pods, those with the most GPUs first, as they are the hardest to place."""
        return self._sorted_pods()

    @property
    def pending_by_class(self) -> tuple[tuple[PendingPod, int], ...]:
        """Its pending pods by class: one of each, and their number."""
        self._sorted_pods()
        return self._pending_by_class

    @property
    def has_pending(self) -> bool:
        return bool(self.pending_pods)

    @property
    def needed(self) -> int:
        """How many of its pending pods have to be placed at once to reach its minimum; all if it has none."""
        return max(0, (self.minimum or len(self.pending_pods) + len(self.assigned_gpus)) - len(self.assigned_gpus))

    def add(self, pending_pod: PendingPod) -> None:
        """Add a pending pod; the gang has to be tried again."""
        self.pending_pods[pending_pod.pod] = pending_pod
        self.refused_at, self.last_message = -1, ""
        self._pending_by_size = None

    def replace(self, pending_pod: PendingPod) -> None:
        """Update a pending pod; a refusal of the gang still holds."""
        self.pending_pods[pending_pod.pod] = pending_pod
        self._pending_by_size = None

    def drop(self, pending_pod: PendingPod) -> None:
        """Remove a pending pod."""
        del self.pending_pods[pending_pod.pod]
        self._pending_by_size = None

    def _sorted_pods(self) -> tuple[PendingPod, ...]:
        if self._pending_by_size is None:
            members = sorted(
                self.pending_pods.values(), key=lambda pending_pod: (-pending_pod.pod_class.gpus, pending_pod.order)
            )
            runs: dict[tuple[PodClass, int, bool], tuple[PendingPod, int]] = {}
            for pending_pod in members:
                kind = (pending_pod.pod_class, pending_pod.priority, pending_pod.preempts_never)
                first, count = runs.get(kind, (pending_pod, 0))
                runs[kind] = (first, count + 1)
            self._pending_by_class = tuple(runs.values())
            self._order = min((pending_pod.order for pending_pod in members), default=self._order)
            self._pending_by_size = tuple(members)
        return self._pending_by_size

    @property
    def pods(self) -> list[str]:
        return sorted(self.pending_pods)

    def fork(self) -> "PodGang":
        """An independent copy."""
        copied = PodGang(self.name)
        copied.minimum, copied.job, copied.refused_at, copied.last_message = (
            self.minimum,
            self.job,
            self.refused_at,
            self.last_message,
        )
        copied.pending_pods, copied.assigned_gpus = self.pending_pods.copy(), self.assigned_gpus.copy()
        copied._pending_by_size, copied._pending_by_class, copied._order = (
            self._pending_by_size,
            self._pending_by_class,
            self._order,
        )
        return copied


SchedulingUnit = Union[PodBatch, PodGang]


BatchKey = tuple[PodClass, int, bool, str, ConstraintsKey | None]
"""(class, priority, preempts never, the pod itself if it is nominated, other constraints) that a batch's pods share."""


class Queue:
    """All pending pods, in batches of equal pods and in gangs. Mutates.

    `schedules_gangs` says whether gangs are placed all or nothing; if not, their pods are queued like others.
    """

    def __init__(self, whole: bool) -> None:
        self.schedules_gangs = whole
        self.pending_pods: dict[str, PendingPod] = {}
        self.gangs: dict[str, PodGang] = {}
        self.partial_gangs: set[str] = set()
        """Partially scheduled gangs: some pods have a node, others are pending."""
        self._gangs_with_pending: set[str] = set()
        """Gangs with pending pods."""
        self._batches: dict[BatchKey, PodBatch] = {}
        self._unshared_gangs: set[str] = set()
        """Gangs that no fork shares."""

    def fork(self) -> "Queue":
        """An independent copy; gangs are copied only when one of the two changes them."""
        copied = Queue(self.schedules_gangs)
        copied.pending_pods = self.pending_pods.copy()
        copied.gangs = self.gangs.copy()
        copied.partial_gangs, copied._gangs_with_pending = self.partial_gangs.copy(), self._gangs_with_pending.copy()
        self._unshared_gangs = set()
        copied._batches = {key: batch.fork() for key, batch in self._batches.items()}
        return copied

    def add(self, pending_pod: PendingPod) -> bool:
        """Queue or update a pod; False if nothing relevant changed, so that an earlier refusal still holds."""
        old = self.pending_pods.get(pending_pod.pod)
        if old is not None:
            if _is_same_entry(old, pending_pod):
                self.replace(pending_pod)
                return False
            self.drop(pending_pod.pod)
        self.pending_pods[pending_pod.pod] = pending_pod
        if pending_pod.gang:
            self._ensure_gang(pending_pod.gang, pending_pod.gang_minimum, pending_pod.job).add(pending_pod)
            self._update_gang_state(pending_pod.gang)
        if not self.is_gang_scheduled(pending_pod):
            self._batches.setdefault(_batch_key(pending_pod), PodBatch()).add(pending_pod)
        return True

    def nominate(self, pending_pod: PendingPod, freed: int) -> None:
        """Update the pod's nomination. A nominated pod outside gangs is tried again only after capacity is freed."""
        if self.is_gang_scheduled(pending_pod):
            self.replace(pending_pod)
            return
        self.drop(pending_pod.pod)
        self.add(pending_pod)
        if pending_pod.nominated:
            self._batches[_batch_key(pending_pod)].refused_at = freed

    def drop(self, pod: str) -> PendingPod | None:
        """Remove a pod; None if it is not pending."""
        pending_pod = self.pending_pods.pop(pod, None)
        if pending_pod is None:
            return None
        if pending_pod.gang:
            self._unshared_gang(pending_pod.gang).drop(pending_pod)
            self._update_gang_state(pending_pod.gang)
        if not self.is_gang_scheduled(pending_pod):
            batch = self._batches[_batch_key(pending_pod)]
            batch.drop(pending_pod)
            if not batch.has_pending:
                del self._batches[_batch_key(pending_pod)]
        return pending_pod

    def set_gang_minimum(self, gang: str, minimum: int) -> bool:
        """Change the gang's minimum; True if the gang is pending and should be tried again."""
        if gang not in self.gangs or self.gangs[gang].minimum == minimum:
            return False
        found = self._unshared_gang(gang)
        found.minimum, found.refused_at, found.last_message = minimum, -1, ""
        return found.has_pending

    def note_assigned(self, gang: str, pod: str, *, minimum: int, job: str, gpus: int) -> None:
        """Record that a pod of the gang is placed."""
        self._ensure_gang(gang, minimum, job).assigned_gpus[pod] = gpus
        self._update_gang_state(gang)

    def note_unassigned(self, gang: str, pod: str) -> None:
        """Record that a pod of the gang lost its node or is about to."""
        if gang in self.gangs:
            self._unshared_gang(gang).assigned_gpus.pop(pod, None)
            self._update_gang_state(gang)

    def refused(self, freed: int) -> tuple[str, ...]:
        """Keys of pods refused, or waiting for their victims to terminate, since capacity was last freed."""
        return tuple(pod for unit in self._units() if unit.refused_at == freed for pod in unit.pods)

    def mark_refused(self, pods: frozenset[str], freed: int) -> None:
        """Mark these pods as refused until capacity is freed."""
        for unit in self._units():
            if pods.issuperset(unit.pods):
                unit.refused_at = freed

    def untried(self, freed: int) -> Iterator[SchedulingUnit]:
        """Batches and gangs to try: those not refused since capacity was last freed (`PlacementState.freed`)."""
        yield from (batch for batch in self._batches.values() if batch.refused_at != freed)
        if self.schedules_gangs and self._gangs_with_pending:
            # The caller sorts the units by turns that are unique, so their order here decides nothing.
            names = [name for name in sorted(self._gangs_with_pending) if self.gangs[name].refused_at != freed]
            yield from (self._unshared_gang(name) for name in names)

    def any_untried(self, freed: int) -> bool:
        """True if `untried` is not empty."""
        if any(batch.refused_at != freed for batch in self._batches.values()):
            return True
        return self.schedules_gangs and any(self.gangs[name].refused_at != freed for name in self._gangs_with_pending)

    def _units(self) -> list[SchedulingUnit]:
        gangs = [self._unshared_gang(name) for name in sorted(self._gangs_with_pending)] if self.schedules_gangs else []
        return [*self._batches.values(), *gangs]

    def _ensure_gang(self, name: str, minimum: int, job: str) -> PodGang:
        if name not in self.gangs:
            self.gangs[name] = PodGang(name)
            self._unshared_gangs.add(name)
        gang = self._unshared_gang(name)
        gang.minimum, gang.job = max(gang.minimum, minimum), gang.job or job
        return gang

    def _unshared_gang(self, name: str) -> PodGang:
        if name not in self._unshared_gangs:
            self.gangs[name] = self.gangs[name].fork()
            self._unshared_gangs.add(name)
        return self.gangs[name]

    def _update_gang_state(self, name: str) -> None:
        """Update the state of a gang after a change: partially scheduled, or gone."""
        gang = self.gangs[name]
        (self._gangs_with_pending.add if gang.pending_pods else self._gangs_with_pending.discard)(name)
        (self.partial_gangs.add if gang.pending_pods and gang.assigned_gpus else self.partial_gangs.discard)(name)
        if not gang.pending_pods and not gang.assigned_gpus:
            del self.gangs[name]
            self._unshared_gangs.discard(name)

    def is_gang_scheduled(self, pending_pod: PendingPod) -> bool:
        """True if the pod belongs to a gang that is placed all or nothing."""
        return self.schedules_gangs and bool(pending_pod.gang)

    def replace(self, pending_pod: PendingPod) -> None:
        """Update a pod that keeps its position."""
        self.pending_pods[pending_pod.pod] = pending_pod
        if pending_pod.gang:
            self._unshared_gang(pending_pod.gang).replace(pending_pod)


def _batch_key(pending_pod: PendingPod) -> BatchKey:
    # A nominated pod has a reservation of its own, so it is no longer equal to the other pods.
    return (
        pending_pod.pod_class,
        pending_pod.priority,
        pending_pod.preempts_never,
        pending_pod.pod if pending_pod.nominated else "",
        pending_pod.constraints,
    )


def _is_same_entry(old: PendingPod, new: PendingPod) -> bool:
    return (old.order, _batch_key(old), old.gang, old.gang_minimum, old.nominated) == (
        new.order,
        _batch_key(new),
        new.gang,
        new.gang_minimum,
        new.nominated,
    )


BACKOFF_PREFIX = "delay="
"""Prefix of the lines that `PodBackoff.dump` returns."""
QueueSortKey = tuple[int, Time, Time, str]
"""Sort key in the queue: (−priority, time since which it is queued, creation time, pod key)."""


def gang_backoff_key(gang: str) -> str:
    """Key under which a gang's back-off is kept."""
    return f"gang {gang}"


class PodBackoff:
    """When refused pods, or gangs that are placed all or nothing, may be retried; at once without settings. Mutates."""

    def __init__(self, settings: BackoffSettings | None) -> None:
        self._settings = settings
        self._attempts: dict[str, int] = {}
        self._until: dict[str, Time] = {}
        self._since: dict[str, Time] = {}

    def fork(self) -> "PodBackoff":
        """An independent copy."""
        copied = PodBackoff(self._settings)
        copied._attempts, copied._until = self._attempts.copy(), self._until.copy()
        copied._since = self._since.copy()
        return copied

    @property
    def is_empty(self) -> bool:
        """True if no refusal of a pending pod or gang is recorded."""
        return not self._until

    def ends_at(self, key: str) -> Time:
        """When the back-off of a pod or gang ends, perhaps in the past; 0 if it has none."""
        return self._until.get(key, 0)

    def sort_key(self, unit: SchedulingUnit, now: Time) -> QueueSortKey | None:
        """Sort key of a pod or gang that can be tried; None during its back-off.

        A refusal moves it behind pending pods of its priority that were refused earlier (PrioritySort).
        """
        priority, created, pod = unit.order
        if self.is_empty:
            return priority, created, created, pod
        if self.ready_at(unit) > now:
            return None
        if isinstance(unit, PodGang):
            return priority, self._queued_since(gang_backoff_key(unit.name), created), created, pod
        _, created, pod = self._first_ready(unit, now)
        return priority, self._queued_since(pod, created), created, pod

    def ready_at(self, unit: SchedulingUnit) -> Time:
        """When the first pod of the unit may be tried, perhaps in the past; 0 if it has no back-off."""
        if isinstance(unit, PodGang):
            return self.ends_at(gang_backoff_key(unit.name))
        return min(self.ends_at(pod) for pod in unit.pods)

    def next_pod(self, batch: PodBatch, now: Time) -> str:
        """Key of the pod of the batch to try next: the one that has waited longest, of those whose back-off is over."""
        return batch.order[2] if self.is_empty else self._first_ready(batch, now)[2]

    def _first_ready(self, batch: PodBatch, now: Time) -> QueueOrder:
        ready = (order for order in batch.orders if self.ends_at(order[2]) <= now)
        return min(ready, key=lambda order: (self._queued_since(order[2], order[1]), order))

    def _queued_since(self, key: str, created: Time) -> Time:
        return self._since.get(key, created)

    def note_batch_refused(self, batch: PodBatch, now: Time) -> None:
        """Record a refusal for every pod of the batch that could be tried."""
        for pod in batch.pods if self._settings is not None else ():
            if self.ends_at(pod) <= now:
                self.note_refused(pod, now)

    def note_refused(self, key: str, now: Time) -> None:
        """Record a refusal: start or extend the back-off."""
        if self._settings is None:
            return
        attempts = self._attempts[key] = self._attempts.get(key, 0) + 1
        self._until[key] = now + self._settings.delay_after(attempts)
        self._since[key] = now

    def forget(self, key: str) -> None:
        """Delete the back-off state of a pod or gang."""
        if self._attempts.pop(key, None) is not None:
            del self._until[key], self._since[key]

    def dump(self) -> tuple[str, ...]:
        """All back-off state as text, one line for each pod or gang."""
        return tuple(
            f"{BACKOFF_PREFIX}{attempts}@{self._until[key]}@{self._since[key]}@{key}"
            for key, attempts in sorted(self._attempts.items())
        )

    def load_line(self, batch: str) -> None:
        """Restore one line of `dump`."""
        attempts, until, since, key = batch.removeprefix(BACKOFF_PREFIX).split("@", 3)
        self._attempts[key], self._until[key], self._since[key] = int(attempts), int(until), int(since)
