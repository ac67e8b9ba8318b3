"""The books: who holds quota in each ClusterQueue and who waits for it, kept from Snapshot to Snapshot.

Most workloads do not change between two Snapshots. What changed is found by an identity scan, and only the pages
concerned are written anew, so that an answer over ten thousand workloads costs what changed, not what is there.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from gpuconsole.insight.demand import FlavorResource
from gpuconsole.insight.pages import Count, Page
from gpuconsole.insight.reasons import Code
from gpuconsole.model.queues import LocalQueue
from gpuconsole.model.scan import changes
from gpuconsole.model.snapshot import Snapshot, View
from gpuconsole.model.workloads import Workload

Rows = Sequence[Workload | None]
Pages = Mapping[str, Page]
"""LocalQueue → its page."""
NO_PAGES: Pages = {}
EMPTY_PAGE = Page()


class Book:
    """One ClusterQueue's workloads. Never changed after it was made; sums are added up when they are asked for."""

    def __init__(self, pages: Pages = NO_PAGES) -> None:
        self.pages = pages

    def page(self, local_queue: str) -> Page:
        return self.pages.get(local_queue, EMPTY_PAGE)

    @property
    def holding(self) -> list[Workload]:
        """Those that hold quota, in no order that means anything."""
        return [workload for page in self.pages.values() for workload in page.holding.values()]

    @cached_property
    def queue(self) -> list[Workload]:
        """Those that wait, in queue order."""
        return [place[4] for place in sorted(place for page in self.pages.values() for place in page.waiting.values())]

    @property
    def waiting(self) -> Iterator[Workload]:
        """Those that wait, in no order that means anything."""
        return (place[4] for page in self.pages.values() for place in page.waiting.values())

    @cached_property
    def usage(self) -> Mapping[FlavorResource, int]:
        """Quota held by (flavor, resource)."""
        total: dict[FlavorResource, int] = {}
        for page in self.pages.values():
            for pair, amount in page.usage.items():
                total[pair] = total.get(pair, 0) + amount
        return total

    @cached_property
    def unadmitted(self) -> Mapping[FlavorResource, int]:
        """What of `usage` is only reserved."""
        total: dict[FlavorResource, int] = {}
        for page in self.pages.values():
            for pair, amount in page.unadmitted.items():
                total[pair] = total.get(pair, 0) + amount
        return total

    @cached_property
    def wanted(self) -> Counter[str]:
        """Resource of accelerators → how much of it the pending ones ask for."""
        total: Counter[str] = Counter()
        for page in self.pages.values():
            total.update(page.wanted)
        return total

    @cached_property
    def longest(self) -> str:
        """Key of the workload that waits longest; empty if none waits."""
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
        """Why those wait that wait."""
        total: Counter[Code] = Counter()
        for page in self.pages.values():
            total.update(page.codes)
        return total


EMPTY_BOOK = Book()


class Books:
    """All books of one Snapshot, by ClusterQueue; what waits at a LocalQueue that does not exist is under ``""``."""

    def __init__(self, rows: Rows, doors: Mapping[str, str], by_queue: dict[str, Book]) -> None:
        self.rows = rows
        self.doors = doors
        """LocalQueue → the ClusterQueue that it names."""
        self.by_queue = by_queue

    def book(self, cluster_queue: str) -> Book:
        return self.by_queue.get(cluster_queue, EMPTY_BOOK)


_kept: list[tuple[View[Workload], View[LocalQueue], Books]] = []


def books(snapshot: Snapshot) -> Books:
    """The books of a Snapshot; those of queues where nothing changed since the last call are the same objects.

    A workload that holds quota is in the book of the ClusterQueue of its admission, a waiting one in that of its
    LocalQueue's ClusterQueue; finished and stopped ones are in none.
    """
    # Replaced as one tuple: threads may at worst do the same work twice.
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
    """The books after the rows changed; what did not change is shared with the old ones."""
    gone, come = changes(old.rows, rows)
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
        # Thousands are parked at once when a tree has been woken.
        if known is not None and replace(known, parked=workload.parked) == workload:
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
    """The ClusterQueue whose book a workload is in, and whether it holds quota there; None for one that is in none.

    Kueue counts nothing of what was stopped, though its pods may still be on their way out.
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
    """The books with these pages in the place of the old ones."""
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
