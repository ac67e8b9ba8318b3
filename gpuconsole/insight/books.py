"""Usage, pending workloads and counts of each ClusterQueue, updated incrementally from Snapshot to Snapshot.

Most workloads do not change between two Snapshots. An identity scan finds the changed ones, and only their pages are
rebuilt, so that the cost depends on the changes, not on the number of workloads.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from gpuconsole.insight.demand import FlavorResource
from gpuconsole.insight.pages import Count, Page
from gpuconsole.insight.reasons import Code
from gpuconsole.model.diff import row_changes
from gpuconsole.model.queues import LocalQueue
from gpuconsole.model.snapshot import Snapshot, TableView
from gpuconsole.model.workloads import Workload

Rows = Sequence[Workload | None]
Pages = Mapping[str, Page]
"""LocalQueue → its workloads and sums."""
NO_PAGES: Pages = {}
EMPTY_PAGE = Page()


class Book:
    """Workloads of one ClusterQueue. Immutable; sums are computed on demand."""

    def __init__(self, pages: Pages = NO_PAGES) -> None:
        self.pages = pages

    def page(self, local_queue: str) -> Page:
        return self.pages.get(local_queue, EMPTY_PAGE)

    @property
    def holding(self) -> list[Workload]:
        """Workloads with reserved quota, in no particular order."""
        return [workload for page in self.pages.values() for workload in page.holding.values()]

    @cached_property
    def queue(self) -> list[Workload]:
        """Pending workloads in queue order."""
        return [place[4] for place in sorted(place for page in self.pages.values() for place in page.waiting.values())]

    @property
    def waiting(self) -> Iterator[Workload]:
        """Pending workloads in no particular order."""
        return (place[4] for page in self.pages.values() for place in page.waiting.values())

    @cached_property
    def usage(self) -> Mapping[FlavorResource, int]:
        """Reserved quota by (flavor, resource)."""
        total: dict[FlavorResource, int] = {}
        for page in self.pages.values():
            for pair, amount in page.usage.items():
                total[pair] = total.get(pair, 0) + amount
        return total

    @cached_property
    def unadmitted(self) -> Mapping[FlavorResource, int]:
        """The part of `usage` that is reserved but not admitted."""
        total: dict[FlavorResource, int] = {}
        for page in self.pages.values():
            for pair, amount in page.unadmitted.items():
                total[pair] = total.get(pair, 0) + amount
        return total

    @cached_property
    def wanted(self) -> Counter[str]:
        """Accelerator resource → amount that pending workloads request."""
        total: Counter[str] = Counter()
        for page in self.pages.values():
            total.update(page.wanted)
        return total

    @cached_property
    def longest(self) -> str:
        """Key of the longest pending workload; empty if none is pending."""
        waits = [page.longest() for page in self.pages.values()]
        return min((wait for wait in waits if wait is not None), default=(0, ""))[1]

    @cached_property
    def count(self) -> Count:
        total = Count()
        for name in self.pages:
            total.add(self.local_count(name))
        return total

    def local_count(self, local_queue: str) -> Count:
        """The counts of one LocalQueue."""
        page, count = self.page(local_queue), Count()
        count.add(page.count)
        longest = page.longest()
        count.oldest = longest[0] if longest is not None else None
        return count

    @cached_property
    def codes(self) -> Counter[Code]:
        """Reason codes of the pending workloads."""
        total: Counter[Code] = Counter()
        for page in self.pages.values():
            total.update(page.codes)
        return total


EMPTY_BOOK = Book()


class Books:
    """The workloads of one Snapshot by ClusterQueue; those of missing LocalQueues are under ``""``."""

    def __init__(self, rows: Rows, doors: Mapping[str, str], by_queue: dict[str, Book]) -> None:
        self.rows = rows
        self.doors = doors
        """LocalQueue → its ClusterQueue."""
        self.by_queue = by_queue

    def book(self, cluster_queue: str) -> Book:
        return self.by_queue.get(cluster_queue, EMPTY_BOOK)


_kept: list[tuple[TableView[Workload], TableView[LocalQueue], Books]] = []


def books(snapshot: Snapshot) -> Books:
    """Group the workloads of a Snapshot by ClusterQueue; unchanged queues since the last call are the same objects.

    A workload with reserved quota belongs to the ClusterQueue of its admission, a pending one to that of its
    LocalQueue; finished and deactivated workloads belong to none.
    """
    # Replaced as one tuple: at worst, threads do the same work twice.
    known = _kept[0] if _kept else None
    rows = snapshot.workloads.rows
    if known is None or known[1] is not snapshot.local_queues:
        doors = {door.key: door.cluster_queue for door in snapshot.local_queues.all()}
        same = known is not None and known[2].doors == doors
        made = carried_on(known[2] if same and known is not None else Books((), doors, {}), rows)
    elif known[0] is snapshot.workloads:
        return known[2]
    else:
        made = carried_on(known[2], rows)
    _kept[:] = [(snapshot.workloads, snapshot.local_queues, made)]
    return made


def carried_on(old: Books, rows: Rows) -> Books:
    """Update the books after the rows changed; unchanged parts are shared with the old ones."""
    gone, come = row_changes(old.rows, rows)
    pages: dict[tuple[str, str], Page] = {}

    def write(workload: Workload, pen: Callable[[Page, Workload, bool], None]) -> None:
        place = _place(workload, old.doors)
        if place is not None:
            queue, holds = place
            where = queue, workload.local_queue
            if where not in pages:
                pages[where] = old.book(queue).page(where[1]).copy()
            pen(pages[where], workload, holds)

    before = {workload.key: workload for workload in gone}
    others = []
    for workload in come:
        known = before.get(workload.key)
        # Thousands of workloads become inadmissible at once after a cohort tree was requeued.
        if known is not None and replace(known, inadmissible=workload.inadmissible) == workload:
            del before[workload.key]
            write(workload, Page.park)
        else:
            others.append(workload)
    for workload in before.values():
        write(workload, Page.remove)
    for workload in others:
        write(workload, Page.add)
    return Books(rows, old.doors, _bound(old.by_queue, pages))


def _place(workload: Workload, doors: Mapping[str, str]) -> tuple[str, bool] | None:
    """The ClusterQueue of a workload, and whether it has quota reserved there; None if it belongs to none.

    Kueue does not count deactivated workloads, although their pods may still be terminating.
    """
    if not workload.active:
        return None
    reserved = False
    for condition in workload.conditions:
        if condition.status:
            if condition.type == "Finished":
                return None
            reserved = reserved or condition.type == "QuotaReserved"
    if reserved and workload.admission is not None:
        return workload.admission.cluster_queue, True
    return doors.get(workload.local_queue, ""), False


def _bound(old: Mapping[str, Book], pages: Mapping[tuple[str, str], Page]) -> dict[str, Book]:
    """The books with these pages replaced."""
    new = dict(old)
    changed: dict[str, dict[str, Page]] = {}
    for (queue, door), page in pages.items():
        if queue not in changed:
            changed[queue] = dict(old.get(queue, EMPTY_BOOK).pages)
        if page.empty:
            changed[queue].pop(door, None)
        else:
            changed[queue][door] = page
    new.update((queue, Book(bound)) for queue, bound in changed.items())
    return new
