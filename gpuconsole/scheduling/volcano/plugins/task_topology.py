"""task-topology plugin: places tasks of roles with affinity on one node, and those with anti-affinity apart."""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO
from gpuconsole.scheduling.volcano.api.status import TaskStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import EventHandler
from gpuconsole.scheduling.volcano.plugin import VolcanoPlugin
from gpuconsole.scheduling.volcano.plugins.buckets import Buckets, TaskTopology, role_of, topology_of

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

MAX_SCORE = 100


class TaskTopologyPlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/task-topology. A job with invalid annotations is placed as if it had none."""

    name: ClassVar[str] = "task-topology"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.weight = arguments.integer("task-topology.weight", 1)
        self._jobs: dict[str, Buckets] = {}

    def on_session_open(self, session: "VolcanoSession") -> None:
        for uid, job in session.jobs.items():
            topology = topology_of(job) if job.of_status(TaskStatus.PENDING) else None
            if isinstance(topology, TaskTopology):
                self._jobs[uid] = Buckets(topology, job.tasks.values())
        session.functions.task_order[self.name] = self._order
        session.functions.node_order[self.name] = self._score
        session.functions.handlers.append(EventHandler(allocate=self._bound))

    def _order(self, left: TaskInfo, right: TaskInfo) -> int:
        """Tasks in buckets first; within a job by the bucket with more tasks, then the older one, then by their
        roles.
        """
        mine, theirs = self._jobs.get(left.job), self._jobs.get(right.job)
        if mine is None or theirs is None:
            return 0
        first, second = mine.of(left), theirs.of(right)
        if first is None or second is None:
            return (first is None) - (second is None)
        if left.job != right.job:
            return 0
        if len(first.tasks) != len(second.tasks):
            return -1 if len(first.tasks) > len(second.tasks) else 1
        if first is not second:
            return -1 if first.index < second.index else 1
        if role_of(left) == role_of(right):
            return 0
        mine_first, theirs_first = mine.precedence(left), mine.precedence(right)
        return (mine_first > theirs_first) - (mine_first < theirs_first)

    def _score(self, task: TaskInfo, node: NodeInfo) -> float:
        """How many tasks of the bucket the node has or could take as well, less those with anti-affinity there."""
        job = self._jobs.get(task.job)
        room = node.idle.clone().add(node.releasing)
        bucket = job.of(task) if job is not None else None
        if job is None or bucket is None or room.less_partly(task.request, ZERO):
            return 0.0
        score = bucket.nodes[node.name] + len(bucket.tasks)
        score += min(0, job.affinity(role_of(task), job.on_nodes.get(node.name, {}), only_shuns=True))
        rest = bucket.request.clone()
        # Tasks are subtracted in the bucket's order until the rest fits.
        for other in bucket.tasks.values():
            if rest.less_equal(room, ZERO):
                break
            if other.uid != task.uid:
                rest.sub(other.request)
                score -= 1
        return score * self.weight * (MAX_SCORE / job.largest if job.largest else 1.0)

    def _bound(self, task: TaskInfo) -> None:
        job = self._jobs.get(task.job)
        if job is not None:
            job.bind(task)
