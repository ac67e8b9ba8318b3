"""Who gives back to a queue that deserves more: the victims of the capacity plugin."""

from typing import TYPE_CHECKING

from gpuconsole.scheduling.volcano.api.resource import ZERO, Resource, counted, shared_names
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.functions import PERMIT, REJECT, Eviction, EvictionContext, Victims
from gpuconsole.scheduling.volcano.plugins.capacity_tree import ROOT, CapacityBook, CapacityBooks

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import Session


class Reclaiming:
    """Which tasks of other queues may go."""

    def __init__(self, session: "Session", books: CapacityBooks, level: int, *, ready: bool) -> None:
        self._session = session
        self._books = books
        self._level = level if books.tree else 0
        """So many ancestors of a victim's queue have to have more than they deserve, too."""
        self._ready = ready

    def reclaimable(self, reclaimer: TaskInfo, candidates: list[TaskInfo]) -> Victims:
        """Victims for one task, in the order in which they go; each leaves its queue with less."""
        mine = self._book_of(reclaimer)
        if not self._ready or mine is None:
            return [], REJECT
        left: dict[str, Resource] = {}
        victims = []
        order = self._session.victims_heap(candidates, reclaimer)
        while order:
            task = order.pop()
            book = self._book_of(task)
            if book is None or not counted(shared_names(task.request, reclaimer.init_request)):
                continue
            chain = self._chain(reclaimer, mine, task, book)
            if chain is None or not _keeps_guarantee(_left(left, book), task, book):
                continue
            if all(_has_too_much(_left(left, one), task, one) for one in chain):
                for one in chain:
                    _left(left, one).sub(task.request)
                victims.append(task)
        return victims, PERMIT

    def evictable(self, context: EvictionContext, candidates: list[TaskInfo]) -> Victims:
        """Victims for a gang of another queue; inside a queue anyone may go."""
        if context.kind is Eviction.GANG_PREEMPT:
            return candidates, PERMIT
        if not self._ready:
            return [], REJECT
        left: dict[str, Resource] = {}
        victims = []
        for task in candidates:
            book = self._books.books[self._session.jobs[task.job].queue]
            allocated = _left(left, book)
            if _keeps_guarantee(allocated, task, book) and _has_too_much(allocated, task, book):
                allocated.sub(task.request)
                victims.append(task)
        return victims, PERMIT

    def _chain(
        self, reclaimer: TaskInfo, mine: CapacityBook, task: TaskInfo, book: CapacityBook
    ) -> list[CapacityBook] | None:
        """The queues that must have too much for a task to go; None if kin without demands leave it alone."""
        if self._level and not _relevant(task, book) and not _relevant(reclaimer, mine) and self._kin(mine, book):
            return None
        names = [above(book, level) for level in range(1, self._level + 1)]
        others = [above(mine, level) for level in range(1, self._level + 1)]
        wanted = [name for name, other in zip(names, others, strict=True) if name not in ("", ROOT, other)]
        return [book, *(self._books.books[name] for name in wanted)]

    def _kin(self, left: CapacityBook, right: CapacityBook) -> bool:
        """True if they share an ancestor, the root aside, within the level."""
        ours, theirs = ({above(book, level) for level in range(1, self._level + 1)} for book in (left, right))
        return bool(ours & theirs - {"", ROOT})

    def _book_of(self, task: TaskInfo) -> CapacityBook | None:
        job = self._session.jobs.get(task.job)
        return None if job is None else self._books.books.get(job.queue)


def above(book: CapacityBook, level: int) -> str:
    """The ancestor so many steps above a queue; empty if there is none."""
    return book.ancestors[-level] if level <= len(book.ancestors) else ""


def _left(left: dict[str, Resource], book: CapacityBook) -> Resource:
    """What a queue would have after the victims so far."""
    if book.name not in left:
        left[book.name] = book.allocated.clone()
    return left[book.name]


def _keeps_guarantee(allocated: Resource, task: TaskInfo, book: CapacityBook) -> bool:
    return book.guarantee.less_equal(allocated.clone().sub(task.request), ZERO)


def _relevant(task: TaskInfo, book: CapacityBook) -> bool:
    """True if the queue deserves anything of what the task asks for."""
    return bool(shared_names(task.request, book.deserved))


def _has_too_much(allocated: Resource, task: TaskInfo, book: CapacityBook) -> bool:
    """True if the queue deserves nothing that the task has, or has more than it deserves of some of it."""
    return not _relevant(task, book) or bool(allocated.greater_where_relevant(book.deserved, task.request))
