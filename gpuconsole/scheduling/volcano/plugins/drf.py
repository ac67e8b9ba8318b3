"""drf plugin: jobs with the smaller dominant share of the cluster come first; with hierarchy, queues likewise.

`DrfTree` is the tree of hierarchical DRF: shares of queues by weight, level by level, with jobs as leaves.
"""

from typing import ClassVar

from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo, dominant_share
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.task import ALLOCATED_STATUSES, TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.session import VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import PERMIT, EventHandler, VictimsVote


class DrfNode:
    """A node of the `DrfTree`: a queue or, as a leaf, a job. Mutates as tasks come and go."""

    __slots__ = ("allocated", "children", "is_saturated", "request", "share", "weight")

    def __init__(self, weight: float = 1.0, job: JobInfo | None = None) -> None:
        self.weight = weight
        self.allocated = Resource()
        self.share = 0.0
        self.request = Resource() if job is None else job.total_request.copy()
        self.is_saturated = False
        """True if it cannot use more: a job has all that it requests of some resource, or that resource is used up."""
        self.children: dict[str, DrfNode] | None = {} if job is None else None

    def copy(self) -> "DrfNode":
        """An independent copy."""
        copied = DrfNode(self.weight)
        copied.allocated, copied.share, copied.request = self.allocated.copy(), self.share, self.request
        copied.is_saturated = self.is_saturated
        copied.children = None if self.children is None else {name: one.copy() for name, one in self.children.items()}
        return copied


class DrfTree:
    """Tree of queues and jobs by which hierarchical DRF compares queues. Mutates as tasks come and go."""

    def __init__(self, total: Resource) -> None:
        self._total = total
        self.root = DrfNode()
        self.allocated = Resource()

    def copy(self) -> "DrfTree":
        """An independent copy."""
        copied = DrfTree(self._total)
        copied.root, copied.allocated = self.root.copy(), self.allocated.copy()
        return copied

    def set_job(self, queue: QueueInfo, job: JobInfo, allocated: Resource) -> None:
        """Set what a job has allocated, and compute all shares again."""
        node = self.root
        weights = queue.weights.split("/")
        for level, name in enumerate(queue.hierarchy.split("/")[1:], start=1):
            children = node.children if node.children is not None else {}
            if name not in children:
                children[name] = DrfNode(_level_weight(weights, level))
            node = children[name]
        leaf = DrfNode(job=job)
        leaf.allocated, leaf.share = allocated, dominant_share(allocated, self._total)
        if node.children is not None:
            node.children[job.uid] = leaf
        demanded_names = {name for name in self._total.names() if self.allocated.get(name) < self._total.get(name)}
        self._update_share(self.root, demanded_names)

    def compare(self, left: QueueInfo, right: QueueInfo) -> float:
        """Negative if the left queue comes first: unsaturated ones first, then by share per weight, level by level."""
        ours = theirs = self.root
        pairs = list(zip(left.hierarchy.split("/"), right.hierarchy.split("/"), strict=False))
        for level in range(len(pairs)):
            if ours.is_saturated != theirs.is_saturated:
                return 1.0 if ours.is_saturated else -1.0
            difference = ours.share / ours.weight - theirs.share / theirs.weight
            if difference:
                return difference
            if level + 1 < len(pairs):
                names = pairs[level + 1]
                ours, theirs = (ours.children or {})[names[0]], (theirs.children or {})[names[1]]
        return 0.0

    def _update_share(self, node: DrfNode, demanded_names: set[str]) -> None:
        """Set a branch's share from its children, scaled to the smallest share of those that are not saturated."""
        if node.children is None:
            node.is_saturated = _is_saturated(node, demanded_names)
            return
        children = node.children.values()
        for child in children:
            self._update_share(child, demanded_names)
        open_ones = [child for child in children if child.share and not child.is_saturated]
        least = min([1.0, *(dominant_share(child.allocated, self._total) for child in open_ones)])
        node.allocated = Resource()
        for child in children:
            if child.share:
                part = child.allocated.copy()
                node.allocated.add(part if child.is_saturated else part.multiply(least / child.share))
        node.share = dominant_share(node.allocated, self._total)
        node.is_saturated = all(child.is_saturated for child in children)


def _is_saturated(node: DrfNode, demanded_names: set[str]) -> bool:
    for name in node.allocated.names():
        has, wants = node.allocated.get(name), node.request.get(name)
        if has and wants and has >= wants:
            return True
        if name not in demanded_names and wants:
            return True
    return False


def _level_weight(weights: list[str], level: int) -> float:
    """The weight of a level; 1 if it is missing, no number, or less than 1."""
    try:
        return max(float(weights[level]), 1.0)
    except (IndexError, ValueError):
        return 1.0


SHARE_TOLERANCE = 0.000001
"""Shares that differ by no more are equal."""


class DrfPlugin(VolcanoPlugin):
    """drf plugin: jobs, and with hierarchy queues, with the smaller dominant share come first (Volcano 1.15)."""

    name: ClassVar[str] = "drf"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.shares: dict[str, float] = {}
        """By job."""
        self._allocated: dict[str, Resource] = {}

    def on_session_open(self, session: VolcanoSession) -> None:
        self._session = session
        self.tree = DrfTree(session.total) if session.hierarchy_enabled(self.name) else None
        for job in session.jobs.values():
            tasks = (task for status in ALLOCATED_STATUSES for task in job.tasks_with_status(status).values())
            allocated = Resource.sum(task.request for task in tasks)
            self._allocated[job.uid] = allocated
            self._update_share(job)
            if self.tree is not None:
                self.tree.allocated.add(allocated)
                self.tree.set_job(session.queues[job.queue], job, allocated)
        functions, name = session.functions, self.name
        functions.preemptable[name] = self._preemptable
        functions.job_order[name] = self._compare_jobs
        if self.tree is not None:
            functions.queue_order[name] = self._compare_queues
            functions.reclaimable[name] = self._reclaimable
        functions.handlers.append(EventHandler(allocate=self._task_allocated, deallocate=self._task_deallocated))

    def _update_share(self, job: JobInfo) -> None:
        self.shares[job.uid] = dominant_share(self._allocated[job.uid], self._session.total)

    def _compare_jobs(self, left: JobInfo, right: JobInfo) -> int:
        ours, theirs = self.shares[left.uid], self.shares[right.uid]
        return (ours > theirs) - (ours < theirs)

    def _preemptable(self, preemptor: TaskInfo, candidates: list[TaskInfo]) -> VictimsVote:
        """Tasks whose job keeps at least the share that the preemptor's would have."""
        if preemptor.job not in self._allocated:
            return [], PERMIT
        total = self._session.total
        ours = dominant_share(self._allocated[preemptor.job].copy().add(preemptor.request), total)
        left: dict[str, Resource] = {}
        victims = []
        for task in candidates:
            if task.job not in self._allocated:
                continue
            rest = left.setdefault(task.job, self._allocated[task.job].copy()).sub(task.request)
            theirs = dominant_share(rest, total)
            if ours < theirs or abs(ours - theirs) <= SHARE_TOLERANCE:
                victims.append(task)
        return victims, PERMIT

    def _compare_queues(self, left: QueueInfo, right: QueueInfo) -> int:
        order = self.tree.compare(left, right) if self.tree is not None else 0.0
        return (order > 0) - (order < 0)

    def _reclaimable(self, reclaimer: TaskInfo, candidates: list[TaskInfo]) -> VictimsVote:
        """Tasks of queues that come after the reclaimer's even without them."""
        session, job = self._session, self._session.jobs.get(reclaimer.job)
        if self.tree is None or job is None or job.uid not in self._allocated:
            return [], PERMIT
        tree, mine = self.tree.copy(), session.queues[job.queue]
        tree.allocated.add(reclaimer.request)
        tree.set_job(mine, job, self._allocated[job.uid].copy().add(reclaimer.request))
        victims = []
        for task in candidates:
            other = session.jobs.get(task.job)
            if other is None or other.uid not in self._allocated:
                continue
            queue, rest = session.queues[other.queue], self._allocated[other.uid].copy()
            tree.allocated.sub(task.request)
            tree.set_job(queue, other, rest.sub(task.request))
            goes = tree.compare(mine, queue) < 0
            tree.allocated.add(task.request)
            tree.set_job(queue, other, rest.add(task.request))
            if goes:
                victims.append(task)
        return victims, PERMIT

    def _task_allocated(self, task: TaskInfo) -> None:
        self._update_allocation(task, allocates=True)

    def _task_deallocated(self, task: TaskInfo) -> None:
        self._update_allocation(task, allocates=False)

    def _update_allocation(self, task: TaskInfo, *, allocates: bool) -> None:
        job = self._session.jobs.get(task.job)
        allocated = self._allocated.get(task.job)
        if job is None or allocated is None:
            return
        for sums in (allocated,) if self.tree is None else (allocated, self.tree.allocated):
            if allocates:
                sums.add(task.request)
            else:
                sums.sub(task.request)
        self._update_share(job)
        if self.tree is not None:
            self.tree.set_job(self._session.queues[job.queue], job, allocated)
