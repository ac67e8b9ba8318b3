"""nodegroup plugin: restricts queues to the node groups in their affinity."""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.volcano import GroupAffinity
from gpuconsole.scheduling.volcano.api.fit_errors import FitError, PredicateCode
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import always
from gpuconsole.scheduling.volcano.plugin import VolcanoPlugin

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

GROUP_LABEL = "volcano.sh/nodegroup-name"
ROOT = "root"
BASE_SCORE = 100.0
NOTHING = GroupAffinity()


class NodegroupPlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/nodegroup. With hierarchy, a queue without affinity inherits that of its nearest
    ancestor.
    """

    name: ClassVar[str] = "nodegroup"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.strict = arguments.flag("strict", True)
        """True keeps tasks off nodes without a group even if their queue has no affinity."""
        self.ordered = arguments.flag("enablePreferredOrder", False)
        """True scores preferred groups by their order, the first highest."""

    def on_session_open(self, session: "VolcanoSession") -> None:
        self._session = session
        self._inherits = session.hierarchy_enabled(self.name)
        session.functions.node_order[self.name] = self._score
        session.functions.predicates[self.name] = self._predicate
        session.functions.alone[self.name] = always

    def _affinity(self, queue: str) -> GroupAffinity | None:
        seen: set[str] = set()
        while queue in self._session.queues and queue not in seen:
            seen.add(queue)
            described = self._session.queues[queue].queue
            if described.affinity is not None or not self._inherits or queue == ROOT:
                return described.affinity
            queue = described.parent or ROOT
        return None

    def _predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        job = self._session.jobs.get(task.job)
        if job is None:
            return FitError.saying(PredicateCode.ERROR, f"job {task.job} not found in session")
        affinity = self._affinity(job.queue) or NOTHING
        group = _group(node)
        if group is None:
            if not self.strict and affinity == NOTHING:
                return None
            return FitError.saying(PredicateCode.UNRESOLVABLE, "node group label not found")
        if affinity == NOTHING:
            return FitError.saying(PredicateCode.UNRESOLVABLE, "node group affinity not specified")
        if not _suits(affinity, group):
            return FitError.saying(PredicateCode.UNRESOLVABLE, "node does not satisfy the node group affinity")
        return None

    def _score(self, task: TaskInfo, node: NodeInfo) -> float:
        job, group = self._session.jobs.get(task.job), _group(node)
        affinity = self._affinity(job.queue) if job is not None else None
        if group is None or affinity is None:
            return 0.0
        if group in affinity.anti_preferred:
            return -1.0
        score = BASE_SCORE if group in affinity.required else 0.0
        if group in affinity.preferred:
            count = len(affinity.preferred)
            share = (count - affinity.preferred.index(group)) / count if self.ordered else 1.0
            score += 0.5 * BASE_SCORE * share
        return score


def _group(node: NodeInfo) -> str | None:
    return node.node.labels.get(GROUP_LABEL) if node.node is not None else None


def _suits(affinity: GroupAffinity, group: str) -> bool:
    """True if the group is allowed: required anti-affinity excludes it, preferred anti-affinity only lowers its
    score.
    """
    if group in affinity.anti_preferred:
        return True
    return group not in affinity.anti_required and (group in affinity.required or group in affinity.preferred)
