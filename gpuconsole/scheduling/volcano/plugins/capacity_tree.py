"""The queues of the capacity plugin: side by side, or as a tree whose parents count what their children have."""

from collections.abc import Iterable, Mapping

from gpuconsole.model.quantity import MAX
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import INFINITY, Resource, exceeded_part
from gpuconsole.scheduling.volcano.api.status import ALLOCATED_STATUS
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.plugins.capacity_devices import DeviceQuota, merge
from gpuconsole.scheduling.volcano.plugins.queue_books import QueueBook, dominant_share, larger

ROOT = "root"


class CapacityBook(QueueBook):
    """A queue with its place in the tree. Mutates as tasks come and go."""

    __slots__ = ("ancestors", "children", "devices")

    def __init__(self, queue: QueueInfo, *, devices: bool, by_amount: bool) -> None:
        super().__init__(queue)
        self.deserved = Resource.of(queue.queue.deserved)
        self.ancestors: tuple[str, ...] = ()
        """From the root down to the parent."""
        self.children: list[str] = []
        self.devices = DeviceQuota(queue.queue.capability, by_amount=by_amount) if devices else None
        """None where claims are not counted, or nothing is said about any device class."""

    def clone(self) -> "CapacityBook":
        twin = CapacityBook.__new__(CapacityBook)
        self.copy_into(twin)
        twin.ancestors, twin.children = self.ancestors, self.children
        twin.devices = None if self.devices is None else self.devices.clone()
        return twin

    def weigh(self) -> None:
        """Set its share. A queue that deserves nothing has all of it: it comes after all that still have less."""
        self.share = 1.0 if self.deserved.is_empty() else dominant_share(self.allocated, self.deserved)

    def gain(self, task: TaskInfo) -> None:
        self.allocated.add(task.request)
        if self.devices is not None:
            self.devices.add(task)

    def lose(self, task: TaskInfo) -> None:
        self.allocated.sub(task.request)
        if self.devices is not None:
            self.devices.sub(task)


class CapacityBooks:
    """All queues by name. Mutates as tasks come and go."""

    def __init__(self, books: dict[str, CapacityBook], *, tree: bool) -> None:
        self.books = books
        self.tree = tree

    def clone(self) -> "CapacityBooks":
        return CapacityBooks({name: book.clone() for name, book in self.books.items()}, tree=self.tree)

    def line(self, queue: str) -> list[CapacityBook]:
        """The queue and what is above it, up to the root."""
        book = self.books[queue]
        return [book, *(self.books[name] for name in reversed(book.ancestors))]

    def gain(self, queue: str, task: TaskInfo) -> None:
        """A task of the queue got its place."""
        for book in self.line(queue):
            book.gain(task)
        self.books[queue].weigh()

    def lose(self, queue: str, task: TaskInfo) -> None:
        """A task of the queue lost its place."""
        for book in self.line(queue):
            book.lose(task)
        self.books[queue].weigh()


def side_by_side(
    books: dict[str, CapacityBook], queues: Mapping[str, QueueInfo], jobs: Iterable[JobInfo], total: Resource
) -> None:
    """Count queues that have no order among them; queues without jobs are left out."""
    guaranteed = Resource()
    for queue in queues.values():
        guaranteed.add(Resource.of(queue.queue.guarantee))
    used = set()
    for job in jobs:
        book = books[job.queue]
        if job.queue not in used:
            used.add(job.queue)
            book.limit(total, guaranteed, queues[job.queue].queue.capability)
        _count(book, job)
    for name in books.keys() - used:
        del books[name]
    for book in books.values():
        book.deserved = larger(book.deserved.set_min(book.real_capability, INFINITY), book.guarantee)
        book.weigh()


def grow(
    books: dict[str, CapacityBook], queues: Mapping[str, QueueInfo], jobs: Iterable[JobInfo], total: Resource
) -> bool:
    """Arrange the queues as a tree and count them; False if they are none: then nothing is scheduled."""
    placed: set[str] = set()
    if not all(_place(books, queues, name, placed, ()) for name in sorted(queues)):
        return False
    for job in jobs:
        book = books[job.queue]
        if book.children:
            return False
        _count_upwards(books, book, job)
    root = books.get(ROOT)
    if root is None:
        return False
    # Users do not know the root: it limits nothing unless someone says so.
    if root.capability.is_empty():
        root.capability = Resource.infinite()
        for name in total.scalars or ():
            root.capability.set_scalar(name, float(MAX))
    root.real_capability = root.capability
    _inherit(books, root)
    for book in books.values():
        book.weigh()
    return True


def _count(book: CapacityBook, job: JobInfo) -> None:
    book.count(job)
    if book.devices is not None:
        for task in job.tasks.values():
            if task.status in ALLOCATED_STATUS and task.dra:
                book.devices.add(task)


def _count_upwards(books: dict[str, CapacityBook], book: CapacityBook, job: JobInfo) -> None:
    """Count a job in its queue, and what that added in all queues above."""
    fields = ("allocated", "request", "inqueue", "elastic")
    before = {field: getattr(book, field).clone() for field in fields}
    had = {} if book.devices is None else book.devices.clone().allocated
    _count(book, job)
    for name in book.ancestors:
        for field in fields:
            getattr(books[name], field).add(getattr(book, field).clone().sub(before[field]))
        above = books[name].devices
        if above is None or book.devices is None:
            continue
        for device_class, now in book.devices.allocated.items():
            if device_class in above.capability:
                more = now.clone()
                if device_class in had:
                    more.sub(had[device_class])
                merge(above.allocated, {device_class: more})


def _place(
    books: dict[str, CapacityBook],
    queues: Mapping[str, QueueInfo],
    name: str,
    placed: set[str],
    chain: tuple[str, ...],
) -> bool:
    """Hang a queue below its parent; False if there is no such parent, or it would be its own ancestor."""
    if name in chain:
        return False
    if name in placed or name == ROOT:
        return True
    placed.add(name)
    parent = queues[name].queue.parent or ROOT
    if parent not in queues or parent in (*chain, name) or not _place(books, queues, parent, placed, (*chain, name)):
        return False
    books[parent].children.append(name)
    books[name].ancestors = (*books[parent].ancestors, parent)
    return True


def _inherit(books: dict[str, CapacityBook], book: CapacityBook) -> None:
    """Give the children of a queue what they do not say themselves, and their limits."""
    children = [books[name] for name in sorted(book.children)]
    guaranteed, deserved = Resource(), Resource()
    for child in children:
        child.deserved = larger(child.deserved, child.guarantee)
        deserved.add(child.deserved)
        guaranteed.add(child.guarantee)
        capability = child.capability
        capability.cpu = capability.cpu if capability.cpu > 0 else book.capability.cpu
        capability.memory = capability.memory if capability.memory > 0 else book.capability.memory
        for name, value in (book.capability.scalars or {}).items():
            if name not in (capability.scalars or {}):
                capability.set_scalar(name, value)
    if book.name == ROOT:
        book.guarantee, book.deserved = guaranteed, deserved
    for child in children:
        limit = exceeded_part(book.real_capability, guaranteed).add(child.guarantee)
        child.real_capability = limit.set_min(child.capability, INFINITY)
    for child in children:
        _inherit(books, child)
