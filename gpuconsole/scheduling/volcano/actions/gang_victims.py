"""Bundles of victims for a gang, by job: tasks above the minimum come before those that break the victim's gang.

Volcano 1.15 actions/utils/bundle.go.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.status import READY_STATUS, TaskStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo


class Bundle(Struct, frozen=True, kw_only=True):
    """Tasks of one job in one domain that are evicted together."""

    job: JobInfo
    tasks: tuple[TaskInfo, ...]
    whole: bool = False
    """True if evicting them breaks the job's gang, so that the whole job is lost."""

    @property
    def frees(self) -> Resource:
        """Resources of its tasks."""
        return requested(self.tasks)

    @property
    def costs(self) -> Resource:
        """The request of the whole job if its gang breaks; otherwise nothing."""
        return requested(self.job.tasks.values()) if self.whole else Resource()


def requested(tasks: Iterable[TaskInfo]) -> Resource:
    """Total request of the tasks."""
    total = Resource()
    for task in tasks:
        total.add(task.request)
    return total


def bundles_of(job: JobInfo, tasks: Iterable[TaskInfo]) -> list[Bundle]:
    """Split tasks of a job into those above its gang's minimum and the rest, each with the least important first.

    If the gang is below its minimum already, all are in one bundle that is not `whole`.
    """
    ordered = sorted(tasks, key=lambda task: (task.priority, task.uid))
    if not ordered:
        return []
    spare = _Spare(job)
    if spare.job < 0:
        # Its gang is broken already.
        return [Bundle(job=job, tasks=tuple(ordered))]
    safe: list[TaskInfo] = []
    rest: list[TaskInfo] = []
    for task in ordered:
        (safe if spare.take(task) else rest).append(task)
    found = [Bundle(job=job, tasks=tuple(safe))] if safe else []
    return [*found, Bundle(job=job, tasks=tuple(rest), whole=True)] if rest else found


class _Spare:
    """How many tasks a job, its roles and its groups of sub-jobs can lose. Mutates as they are taken."""

    def __init__(self, job: JobInfo) -> None:
        self._job = job
        self.job = job.ready_task_num - job.min_available
        self._roles: dict[str, int] = {}
        if job.min_available >= job.task_min_available_total:
            ready = Counter(task.role for status in READY_STATUS for task in job.of_status(status).values())
            pending = job.of_status(TaskStatus.PENDING).values()
            ready.update(task.role for task in pending if task.init_request.is_empty())
            self._roles = {role: ready[role] - least for role, least in job.task_min_available.items()}
        self._broken = {uid for uid, sub_job in job.sub_jobs.items() if not sub_job.is_ready()}
        self._groups = Counter(sub_job.gid for sub_job in job.sub_jobs.values() if sub_job.is_ready())
        self._groups.subtract(job.min_sub_jobs)

    def take(self, task: TaskInfo) -> bool:
        """True if the task is above the gang's minimum; it is then taken."""
        if self.job <= 0 or self._roles.get(task.role, 1) <= 0:
            return False
        if self._job.min_sub_jobs:
            sub_job = self._job.sub_jobs.get(self._job.task_to_sub_job.get(task.uid, ""))
            if sub_job is None or (sub_job.uid not in self._broken and self._groups[sub_job.gid] <= 0):
                return False
            if sub_job.uid not in self._broken:
                self._broken.add(sub_job.uid)
                self._groups[sub_job.gid] -= 1
        self.job -= 1
        if task.role in self._roles:
            self._roles[task.role] -= 1
        return True


def only_allowed(bundles: Iterable[Bundle], allowed: Iterable[TaskInfo]) -> list[Bundle]:
    """The bundles restricted to these tasks; a whole bundle is kept complete or dropped."""
    uids = {task.uid for task in allowed}
    left = []
    for bundle in bundles:
        tasks = tuple(task for task in bundle.tasks if task.uid in uids)
        if tasks and (not bundle.whole or len(tasks) == len(bundle.tasks)):
            left.append(replace(bundle, tasks=tasks))
    return left


def in_order(bundles: Sequence[Bundle], need: Resource, before: Callable[[Bundle, Bundle], int]) -> list[Bundle]:
    """Bundles above the minimum first, then in `before` order, then by resources freed per loss."""

    def compare(left: Bundle, right: Bundle) -> int:
        if left.whole != right.whole:
            return 1 if left.whole else -1
        if said := before(left, right):
            return said
        gains = _gain(left, need), _gain(right, need)
        if gains[0] != gains[1]:
            return -1 if gains[0] > gains[1] else 1
        keys = [(bundle.job.uid, bundle.tasks[0].uid, len(bundle.tasks)) for bundle in (left, right)]
        return -1 if keys[0] < keys[1] else 1

    return sorted(bundles, key=cmp_to_key(compare))


def _gain(bundle: Bundle, need: Resource) -> float:
    frees, costs = bundle.frees, bundle.costs
    names = [name for name in need.names() if need.get(name) > 0]
    lost = sum(costs.get(name) / need.get(name) for name in names)
    return sum(min(frees.get(name), need.get(name)) / need.get(name) for name in names) / lost if lost else inf
