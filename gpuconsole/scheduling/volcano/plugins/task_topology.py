"""task-topology plugin: places tasks of roles with affinity on one node, and those with anti-affinity apart.

The role affinities are in a job's annotations; tasks that should share a node form a bucket.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar

from msgspec import Struct

from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO, Resource
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.session import VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import EventHandler

AFFINITY = "volcano.sh/task-topology-affinity"
ANTI_AFFINITY = "volcano.sh/task-topology-anti-affinity"
TASK_ORDER = "volcano.sh/task-topology-task-order"

RoleGroups = tuple[tuple[str, ...], ...]


class TaskTopology(Struct, frozen=True):
    """A job's topology: roles to place together, roles to keep apart, and the order in which roles are placed."""

    affinity: RoleGroups = ()
    """A group of a single role keeps the tasks of that role together."""
    anti_affinity: RoleGroups = ()
    order: tuple[str, ...] = ()


def topology_of(job: JobInfo) -> TaskTopology | str | None:
    """Parse the PodGroup's annotations; None without any, a text with the problem if they are invalid."""
    annotations = job.pod_group.annotations if job.pod_group is not None else {}
    if not any(key in annotations for key in (AFFINITY, ANTI_AFFINITY, TASK_ORDER)):
        return None
    read = [_parse_groups(annotations[key]) if key in annotations else () for key in (AFFINITY, ANTI_AFFINITY)]
    order = tuple(annotations[TASK_ORDER].split(",")) if TASK_ORDER in annotations else ()
    for groups in (*read, (order,)):
        problem = _find_problem(job, groups)
        if problem:
            return problem
    return TaskTopology(read[0], read[1], order)


def _parse_groups(text: str) -> RoleGroups:
    return tuple(tuple(group.split(",")) for group in text.split(";"))


def _find_problem(job: JobInfo, groups: RoleGroups) -> str:
    roles = {task.role for task in job.tasks.values()}
    where = f"job <{job.namespace}/{job.name}>"
    for group in groups:
        seen: set[str] = set()
        for role in filter(None, group):
            if role not in roles:
                return f"task {role} do not exist in {where}"
            if role in seen:
                return f"task {role} is duplicate in {where}"
            seen.add(role)
    return ""


class Bucket:
    """Tasks to place on one node. Mutates: a task that gets a node leaves `tasks` and is counted in `nodes`."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.tasks: dict[str, TaskInfo] = {}
        """Tasks without a node, by uid."""
        self.roles: Counter[str] = Counter()
        self.nodes: Counter[str] = Counter()
        """Number of its tasks on each node."""
        self.request = Resource()
        """Total request of the tasks without a node."""

    @property
    def task_count(self) -> int:
        return len(self.tasks) + self.nodes.total()

    @property
    def weight(self) -> float:
        """Total request of its tasks without a node, as a number: a core, a GPU or 1000 MiB of memory count as 1."""
        return self.request.cpu + self.request.memory / 1024 / 1024 + sum((self.request.scalars or {}).values())

    def add(self, role: str, task: TaskInfo) -> None:
        """Add a task, with or without a node."""
        self.roles[role] += 1
        if task.node_name:
            self.nodes[task.node_name] += 1
            return
        self.tasks[task.uid] = task
        self.request.add(task.request)

    def task_allocated(self, task: TaskInfo) -> None:
        """Count a task that got its node."""
        self.nodes[task.node_name] += 1
        if self.tasks.pop(task.uid, None) is not None:
            self.request.sub(task.request)


class Buckets:
    """Tasks of one job, divided into buckets by the affinity of their roles. Mutates as tasks get nodes."""

    def __init__(self, topology: TaskTopology, tasks: Iterable[TaskInfo]) -> None:
        self._affinity_pairs = _role_pairs(topology.affinity)
        self._anti_affinity_pairs = _role_pairs(topology.anti_affinity)
        self._strictness = _strictness_by_role(topology)
        length = len(topology.order)
        self._order = {role: length - index for index, role in enumerate(topology.order)}
        self.buckets: list[Bucket] = []
        self.largest = 0
        """The largest size of a bucket."""
        self.on_nodes: dict[str, Counter[str]] = {}
        """Number of tasks by role that this session put on each node."""
        self._bucket_of: dict[str, Bucket] = {}
        self._fill_buckets(task for task in tasks if annotated_role(task) in self._strictness)

    def bucket_of(self, task: TaskInfo) -> Bucket | None:
        """The bucket of a task; None if its role is in no affinity or anti-affinity."""
        return self._bucket_of.get(task.uid)

    def precedence(self, task: TaskInfo) -> tuple[int, int]:
        """Sort key of a task: the configured order of roles, then how strict the role's topology is."""
        role = annotated_role(task)
        return -self._order.get(role, 0), -self._strictness.get(role, 0)

    def affinity(self, role: str, roles: Mapping[str, int], *, only_anti_affinity: bool = False) -> int:
        """Affinity of a role to tasks (number by role): those it has affinity to, less those with anti-affinity.

        `only_anti_affinity` counts only the latter.
        """
        if not role:
            return 0
        total = 0
        for other, count in roles.items():
            total += count * ((role, other) in self._affinity_pairs and not only_anti_affinity)
            total -= count * ((role, other) in self._anti_affinity_pairs)
        return total

    def task_allocated(self, task: TaskInfo) -> None:
        """Count a task that got a node."""
        role = annotated_role(task)
        if role:
            self.on_nodes.setdefault(task.node_name, Counter())[role] += 1
        bucket = self.bucket_of(task)
        if bucket is not None:
            bucket.task_allocated(task)

    def _fill_buckets(self, tasks: Iterable[TaskInfo]) -> None:
        by_node: dict[str, Bucket] = {}
        for task in sorted(tasks, key=self._fill_order):
            role = annotated_role(task)
            bucket = by_node.get(task.node_name) if task.node_name else self._best_bucket(role)
            if bucket is None:
                bucket = Bucket(len(self.buckets))
                self.buckets.append(bucket)
                if task.node_name:
                    by_node[task.node_name] = bucket
            bucket.add(role, task)
            self._bucket_of[task.uid] = bucket
            self.largest = max(self.largest, bucket.task_count)

    def _fill_order(self, task: TaskInfo) -> tuple[bool, str, tuple[int, int], str]:
        """Sort key: tasks with a node first, by node; then by precedence and name."""
        return not task.node_name, task.node_name, self.precedence(task), task.name

    def _best_bucket(self, role: str) -> Bucket | None:
        """The bucket with the highest affinity to the role, of equals the lightest; None if all have a negative one."""
        best, most = None, 0
        for bucket in self.buckets:
            affinity = self.affinity(role, bucket.roles)
            lighter = best is None or bucket.weight < best.weight
            if affinity > most or (affinity == most and lighter):
                best, most = bucket, affinity
        return best


def annotated_role(task: TaskInfo) -> str:
    """The task's role as its annotation names it; a label does not count here."""
    return task.pod.annotations.get("volcano.sh/task-spec", "")


def _role_pairs(groups: RoleGroups) -> set[tuple[str, str]]:
    pairs = set()
    for group in groups:
        if len(group) == 1:
            pairs.add((group[0], group[0]))
        pairs |= {(one, other) for one in group for other in group if one != other}
    return pairs


def _strictness_by_role(topology: TaskTopology) -> dict[str, int]:
    """Strictness of each role's topology: apart from its own tasks 4, near other roles 3, near its own 2, apart from
    others 1.
    """
    ranks: dict[str, int] = {}
    for groups, alone, together in ((topology.affinity, 2, 3), (topology.anti_affinity, 4, 1)):
        for group in groups:
            for role in filter(None, group):
                ranks[role] = max(ranks.get(role, 0), alone if len(group) == 1 else together)
    return ranks


MAX_SCORE = 100


class TaskTopologyPlugin(VolcanoPlugin):
    """task-topology plugin: places tasks together or apart by the affinity of their roles (Volcano 1.15).

    A job with invalid annotations is placed as if it had none.
    """

    name: ClassVar[str] = "task-topology"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.weight = arguments.integer("task-topology.weight", 1)
        self._jobs: dict[str, Buckets] = {}

    def on_session_open(self, session: VolcanoSession) -> None:
        for uid, job in session.jobs.items():
            topology = topology_of(job) if job.tasks_with_status(TaskStatus.PENDING) else None
            if isinstance(topology, TaskTopology):
                self._jobs[uid] = Buckets(topology, job.tasks.values())
        session.functions.task_order[self.name] = self._compare_tasks
        session.functions.node_order[self.name] = self._score
        session.functions.handlers.append(EventHandler(allocate=self._task_allocated))

    def _compare_tasks(self, left: TaskInfo, right: TaskInfo) -> int:
        """Tasks in buckets first; within a job by the bucket with more tasks, then the older one, then by their
        roles.
        """
        mine, theirs = self._jobs.get(left.job), self._jobs.get(right.job)
        if mine is None or theirs is None:
            return 0
        first, second = mine.bucket_of(left), theirs.bucket_of(right)
        if first is None or second is None:
            return (first is None) - (second is None)
        if left.job != right.job:
            return 0
        if len(first.tasks) != len(second.tasks):
            return -1 if len(first.tasks) > len(second.tasks) else 1
        if first is not second:
            return -1 if first.index < second.index else 1
        if annotated_role(left) == annotated_role(right):
            return 0
        mine_first, theirs_first = mine.precedence(left), mine.precedence(right)
        return (mine_first > theirs_first) - (mine_first < theirs_first)

    def _score(self, task: TaskInfo, node: NodeInfo) -> float:
        """How many tasks of the bucket the node has or could take as well, less those with anti-affinity there."""
        job = self._jobs.get(task.job)
        room = node.idle.copy().add(node.releasing)
        bucket = job.bucket_of(task) if job is not None else None
        if job is None or bucket is None or room.is_less_in_any(task.request, ZERO):
            return 0.0
        score = bucket.nodes[node.name] + len(bucket.tasks)
        score += min(0, job.affinity(annotated_role(task), job.on_nodes.get(node.name, {}), only_anti_affinity=True))
        rest = bucket.request.copy()
        # Tasks are subtracted in the bucket's order until the rest fits.
        for other in bucket.tasks.values():
            if rest.less_equal(room, ZERO):
                break
            if other.uid != task.uid:
                rest.sub(other.request)
                score -= 1
        return score * self.weight * (MAX_SCORE / job.largest if job.largest else 1.0)

    def _task_allocated(self, task: TaskInfo) -> None:
        job = self._jobs.get(task.job)
        if job is not None:
            job.task_allocated(task)
