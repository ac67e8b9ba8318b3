"""The books: who holds quota in each ClusterQueue and who waits for it, kept from Snapshot to Snapshot.

Most workloads do not change between two Snapshots. What changed is found by an identity scan, and only the books of the
queues concerned are made anew, so that an answer over ten thousand workloads costs what changed, not what is there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from gpuconsole.insight.demand import CONFIG, FlavorResource, held, waiting_since, wanted_gpus
from gpuconsole.insight.reasons import Code, code_of
from gpuconsole.model.clock import Time
from gpuconsole.model.queues import LocalQueue
from gpuconsole.model.snapshot import Snapshot, View
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.requests import effective_priority, queue_timestamp

Members = Mapping[str, Workload]
"""Key → workload."""
NOBODY: Members = {}


class Count(Struct):
    """What one queue has. Filled while it is counted, read-only after it."""

    pending: int = 0
    """Wait for quota, parked ones included; stopped ones are not counted."""
    parked: int = 0
    reserved: int = 0
    """Hold quota, running ones included."""
    running: int = 0
    """Admitted: their pods may run."""
    pending_gpus: int = 0
    oldest: Time | None = None
    """When the one that waits longest began to wait."""

    def wait(self, workload: Workload, since: Time, gpus: int) -> None:
        self.pending += 1
        self.parked += workload.parked
        self.pending_gpus += gpus
        if self.oldest is None or since < self.oldest:
            self.oldest = since

    def hold(self, running: bool) -> None:
        self.reserved += 1
        self.running += running

    def add(self, other: "Count") -> None:
        """Roll another queue's counts up into this one."""
        self.pending += other.pending
        self.parked += other.parked
        self.reserved += other.reserved
        self.running += other.running
        self.pending_gpus += other.pending_gpus
        if other.oldest is not None and (self.oldest is None or other.oldest < self.oldest):
            self.oldest = other.oldest


class Sums:
    """What a book adds up to, for its queue and for each LocalQueue."""

    def __init__(self) -> None:
        self.count = Count()
        self.usage: dict[FlavorResource, int] = {}
        self.local_counts: dict[str, Count] = defaultdict(Count)
        self.local_usage: dict[str, dict[FlavorResource, int]] = defaultdict(dict)
        self.codes: Counter[Code] = Counter()
        """Why those wait that wait."""
        self.longest = ""
        """Key of the workload that waits longest."""


class Book:
    """One queue's workloads. Never changed after it was made; the sums are computed when they are first asked for."""

    def __init__(self, holding: Members = NOBODY, waiting: Members = NOBODY) -> None:
        self.holding = holding
        self.waiting = waiting

    @cached_property
    def sums(self) -> Sums:
        """Kueue's `flavorsReservation` and the counts, from the workloads themselves: no status is trusted."""
        sums = Sums()
        for workload in self.holding.values():
            running = workload.admitted
            key = workload.local_queue
            sums.count.hold(running)
            sums.local_counts[key].hold(running)
            for pair, amount in held(workload):
                sums.usage[pair] = sums.usage.get(pair, 0) + amount
                local = sums.local_usage[key]
                local[pair] = local.get(pair, 0) + amount
        for workload in self.waiting.values():
            _add_waiting(sums, workload)
        return sums

    @cached_property
    def queue(self) -> Sequence[Workload]:
        """Those that wait, in queue order."""
        return sorted(self.waiting.values(), key=queue_order)


def _add_waiting(sums: Sums, workload: Workload) -> None:
    since, gpus = waiting_since(workload), wanted_gpus(workload)
    oldest = sums.count.oldest
    if oldest is None or (since, workload.key) < (oldest, sums.longest):
        sums.longest = workload.key
    sums.count.wait(workload, since, gpus)
    sums.local_counts[workload.local_queue].wait(workload, since, gpus)
    refused = workload.condition("QuotaReserved")
    if refused is not None and refused.message:
        sums.codes[code_of(refused.message)] += 1
    else:
        sums.codes[Code.PARKED if workload.parked else Code.QUEUED] += 1


def queue_order(workload: Workload) -> tuple[int, Time, str]:
    """Sort key inside one ClusterQueue (Kueue §3.1): effective priority descending, queue-order timestamp, uid.

    What a Snapshot does not hold is left out: the preemptor that BestEffortFIFO keeps in front, and usage-based
    admission fair sharing.
    """
    return -effective_priority(workload, CONFIG), queue_timestamp(workload, CONFIG), workload.uid


class Books:
    """All books of one Snapshot."""

    def __init__(self, rows: Sequence[Workload | None], doors: Mapping[str, str]) -> None:
        self.rows = rows
        self.doors = doors
        """LocalQueue → its ClusterQueue."""
        self.cluster_queues: dict[str, Book] = {}
        self.homeless: dict[str, Book] = {}
        """By LocalQueue, for those whose LocalQueue (or its ClusterQueue's name) is not known."""

    def book(self, cluster_queue: str) -> Book:
        return self.cluster_queues.get(cluster_queue, EMPTY_BOOK)


EMPTY_BOOK = Book()
_kept: list[tuple[View[Workload], View[LocalQueue], Books]] = []


def books(snapshot: Snapshot) -> Books:
    """The books of a Snapshot; those of queues where nothing changed since the last call are the same objects.

    A workload that holds quota is in the book of the ClusterQueue of its admission, a waiting one in that of its
    LocalQueue's ClusterQueue; finished and stopped ones are in none.
    """
    # Replaced as one tuple: threads may at worst do the same work twice.
    known = _kept[0] if _kept else None
    if known is not None and known[0] is snapshot.workloads and known[1] is snapshot.local_queues:
        return known[2]
    rows = snapshot.workloads.rows
    if known is not None and known[1] is snapshot.local_queues:
        made = _carried_on(known[2], rows)
    else:
        doors = {door.key: door.cluster_queue for door in snapshot.local_queues.all()}
        made = _carried_on(Books((), doors), rows)
    _kept[:] = [(snapshot.workloads, snapshot.local_queues, made)]
    return made


def _carried_on(old: Books, rows: Sequence[Workload | None]) -> Books:
    """The books after the rows changed; what did not change is shared with the old ones."""
    new = Books(rows, old.doors)
    new.cluster_queues, new.homeless = old.cluster_queues.copy(), old.homeless.copy()
    shorter = min(len(old.rows), len(rows))
    differ = [at for at, (was, now) in enumerate(zip(old.rows, rows, strict=False)) if was is not now]
    gone = [*(old.rows[at] for at in differ), *old.rows[shorter:]]
    come = [*(rows[at] for at in differ), *rows[shorter:]]
    changes: dict[tuple[bool, str], tuple[dict[str, Workload], dict[str, Workload]]] = {}
    for workload in _present(gone):
        members = _open(new, changes, workload)
        if members is not None:
            members.pop(workload.key, None)
    for workload in _present(come):
        members = _open(new, changes, workload)
        if members is not None:
            members[workload.key] = workload
    for (homeless, name), (holding, waiting) in changes.items():
        (new.homeless if homeless else new.cluster_queues)[name] = Book(holding, waiting)
    return new


def _present(rows: Iterable[Workload | None]) -> Iterable[Workload]:
    return (row for row in rows if row is not None)


def _open(
    new: Books,
    changes: dict[tuple[bool, str], tuple[dict[str, Workload], dict[str, Workload]]],
    workload: Workload,
) -> dict[str, Workload] | None:
    """The page that a workload is on, as a copy that may be changed; None for one that is in no book."""
    true = [condition.type for condition in workload.conditions if condition.status]
    if "Finished" in true:
        return None
    holds = workload.admission is not None and "QuotaReserved" in true
    if holds:
        place = False, workload.cluster_queue
    elif not workload.active:
        return None
    else:
        target = new.doors.get(workload.local_queue)
        place = (False, target) if target is not None else (True, workload.local_queue)
    pages = changes.get(place)
    if pages is None:
        book = (new.homeless if place[0] else new.cluster_queues).get(place[1], EMPTY_BOOK)
        pages = changes[place] = (dict(book.holding), dict(book.waiting))
    return pages[0] if holds else pages[1]
