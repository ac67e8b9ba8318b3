"""Device quotas: how many devices of each class a queue may claim, and its current claims."""

from gpuconsole.model.resources import Resources
from gpuconsole.scheduling.volcano.api.dra import Devices, DraResource
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo

COUNT = "deviceclass/"
"""`deviceclass/CLASS` counts devices of a class."""
CAPACITY = ".deviceclass/"
"""`DIMENSION.deviceclass/CLASS` sums up a capacity dimension of the devices of a class."""


class DeviceQuota:
    """The device quota of one queue, and its claims. Mutates as tasks come and go."""

    __slots__ = ("allocated", "by_amount", "capability", "inqueue", "references")

    def __init__(self, capability: Resources, *, by_amount: bool) -> None:
        self.capability = read(capability)
        self.by_amount = by_amount
        """True if capacity dimensions count besides the number of devices (DRAConsumableCapacity)."""
        self.allocated: dict[str, DraResource] = {}
        self.inqueue: dict[str, DraResource] = {}
        """Devices that enqueued jobs will claim."""
        self.references: dict[str, int] = {}
        """How many tasks use each claim, which counts only once."""

    def clone(self) -> "DeviceQuota":
        """An independent copy; `inqueue` is shared."""
        twin = DeviceQuota({}, by_amount=self.by_amount)
        twin.capability = self.capability
        twin.allocated = {name: request.clone() for name, request in self.allocated.items()}
        twin.inqueue, twin.references = self.inqueue, dict(self.references)
        return twin

    def add(self, task: TaskInfo) -> None:
        """Count the claims of a task that got a node."""
        if not task.claim_dra:
            merge(self.allocated, task.dra)
            return
        for key in task.claim_keys:
            claimed = task.claim_dra.get(key)
            if claimed:
                if not self.references.get(key):
                    merge(self.allocated, claimed)
                self.references[key] = self.references.get(key, 0) + 1

    def sub(self, task: TaskInfo) -> None:
        """Stop counting the claims of a task that lost its node."""
        if not task.claim_dra:
            self._give_back(task.dra)
            return
        for key in task.claim_keys:
            claimed = task.claim_dra.get(key)
            if not claimed:
                continue
            left = self.references.get(key, 0) - 1
            if left > 0:
                self.references[key] = left
            else:
                self.references.pop(key, None)
                self._give_back(claimed)

    def _give_back(self, claimed: Devices) -> None:
        for name, request in claimed.items():
            if name in self.allocated:
                self.allocated[name].sub(request)

    def takes(self, task: TaskInfo) -> bool:
        """True if the quota allows the claims of the task that no counted task uses already."""
        if not task.claim_dra:
            return self.has_room(task.dra, promised=False)
        new: dict[str, DraResource] = {}
        for key in task.claim_keys:
            if not self.references.get(key):
                merge(new, task.claim_dra.get(key, {}))
        return self.has_room(new, promised=False)

    def has_room(self, claimed: Devices, *, promised: bool) -> bool:
        """True if no quota is exceeded; with `promised`, devices of enqueued jobs count as used."""
        return all(self._fits(name, request, promised) for name, request in claimed.items() if name in self.capability)

    def _fits(self, name: str, request: DraResource, promised: bool) -> bool:
        limit, used = self.capability[name], self.allocated.get(name, DraResource()).clone()
        if promised:
            used.add(self.inqueue.get(name, DraResource()))
        used.add(request)
        if 0 < limit.count < used.count:
            return False
        return not self.by_amount or all(
            dimension in limit.capacity and used.capacity[dimension] <= limit.capacity[dimension]
            for dimension in request.capacity
        )


def read(amounts: Resources) -> dict[str, DraResource]:
    """Parse the device quotas in a list of resources, by device class."""
    found: dict[str, DraResource] = {}
    for name, amount in amounts.items():
        dimension, separator, device_class = name.partition(CAPACITY)
        if separator and dimension:
            if device_class:
                found.setdefault(device_class, DraResource()).capacity[dimension] = amount
        elif name.startswith(COUNT) and name != COUNT:
            found.setdefault(name.removeprefix(COUNT), DraResource()).count = amount
    return found


def merge(into: dict[str, DraResource], claimed: Devices, times: int = 1) -> None:
    """Add claims, multiplied by `times`."""
    for name, request in claimed.items():
        into.setdefault(name, DraResource()).add(request, times)


def least_devices(job: JobInfo) -> Devices:
    """The devices that a job's gang needs: for each role its first task's claims times its minimum.

    Without minimums by role, those of the job's first minAvailable tasks by name (GetMinDRAResources).
    """
    found: dict[str, DraResource] = {}
    tasks = sorted(
        (task for task in job.tasks.values() if task.dra), key=lambda task: (task.namespace, task.name, task.uid)
    )
    if not job.task_min_available:
        for task in tasks[: max(job.min_available, 0)]:
            merge(found, task.dra)
        return found
    first_of = {task.role: task for task in reversed(tasks)}
    for role, task in sorted(first_of.items()):
        merge(found, task.dra, max(job.task_min_available.get(role, 0), 0))
    return {name: request for name, request in found.items() if request.count or request.capacity}
