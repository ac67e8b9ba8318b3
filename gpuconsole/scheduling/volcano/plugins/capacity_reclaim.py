"""Victims of the capacity plugin: tasks of other queues that a queue below its deserved resources reclaims."""

from typing import TYPE_CHECKING

from gpuconsole.scheduling.volcano.api.resource import ZERO, Resource, counted, shared_names
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.functions import PERMIT, REJECT, EvictionContext, VictimRequester, Victims
from gpuconsole.scheduling.volcano.plugins.capacity_tree import ROOT, CapacityQueueAttributes, CapacityQueues

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession


class Reclaiming:
    """Selects victims in other queues."""

    def __init__(self, session: "VolcanoSession", attrs: CapacityQueues, level: int, *, ready: bool) -> None:
        self._session = session
        self._queues = attrs
        self._level = level if attrs.tree else 0
        """How many ancestors of a victim's queue must exceed their deserved resources, too."""
        self._ready = ready

    def reclaimable(self, reclaimer: TaskInfo, candidates: list[TaskInfo]) -> Victims:
        """Victims for one task, in order of eviction; each reduces what its queue has left."""
        mine = self._attributes_of(reclaimer)
        if not self._ready or mine is None:
            return [], REJECT
        left: dict[str, Resource] = {}
        victims = []
        order = self._session.victims_heap(candidates, reclaimer)
        while order:
            task = order.pop()
            attr = self._attributes_of(task)
            if attr is None or not counted(shared_names(task.request, reclaimer.init_request)):
                continue
            chain = self._chain(reclaimer, mine, task, attr)
            if chain is None or not _keeps_guarantee(_left(left, attr), task, attr):
                continue
            if all(_has_too_much(_left(left, one), task, one) for one in chain):
                for one in chain:
                    _left(left, one).sub(task.request)
                victims.append(task)
        return victims, PERMIT

    def evictable(self, context: EvictionContext, candidates: list[TaskInfo]) -> Victims:
        """Victims for a gang that reclaims from other queues; if it preempts in its own queue, all candidates."""
        if context.kind is VictimRequester.GANG_PREEMPT:
            return candidates, PERMIT
        if not self._ready:
            return [], REJECT
        left: dict[str, Resource] = {}
        victims = []
        for task in candidates:
            attr = self._queues.attributes[self._session.jobs[task.job].queue]
            allocated = _left(left, attr)
            if _keeps_guarantee(allocated, task, attr) and _has_too_much(allocated, task, attr):
                allocated.sub(task.request)
                victims.append(task)
        return victims, PERMIT

    def _chain(
        self, reclaimer: TaskInfo, mine: CapacityQueueAttributes, task: TaskInfo, attr: CapacityQueueAttributes
    ) -> list[CapacityQueueAttributes] | None:
        """The queues that must exceed what they deserve before the task can be a victim.

        None if it is no victim: the queues are related, and neither deserves any of the resources in question.
        """
        if self._level and not _relevant(task, attr) and not _relevant(reclaimer, mine) and self._kin(mine, attr):
            return None
        names = [above(attr, level) for level in range(1, self._level + 1)]
        others = [above(mine, level) for level in range(1, self._level + 1)]
        wanted = [name for name, other in zip(names, others, strict=True) if name not in ("", ROOT, other)]
        return [attr, *(self._queues.attributes[name] for name in wanted)]

    def _kin(self, left: CapacityQueueAttributes, right: CapacityQueueAttributes) -> bool:
        """True if they share an ancestor other than the root within the level."""
        ours, theirs = ({above(attr, level) for level in range(1, self._level + 1)} for attr in (left, right))
        return bool(ours & theirs - {"", ROOT})

    def _attributes_of(self, task: TaskInfo) -> CapacityQueueAttributes | None:
        job = self._session.jobs.get(task.job)
        return None if job is None else self._queues.attributes.get(job.queue)


def above(attr: CapacityQueueAttributes, level: int) -> str:
    """The ancestor `level` steps above a queue; empty if there is none."""
    return attr.ancestors[-level] if level <= len(attr.ancestors) else ""


def _left(left: dict[str, Resource], attr: CapacityQueueAttributes) -> Resource:
    """What a queue has after the victims so far."""
    if attr.name not in left:
        left[attr.name] = attr.allocated.clone()
    return left[attr.name]


def _keeps_guarantee(allocated: Resource, task: TaskInfo, attr: CapacityQueueAttributes) -> bool:
    return attr.guarantee.less_equal(allocated.clone().sub(task.request), ZERO)


def _relevant(task: TaskInfo, attr: CapacityQueueAttributes) -> bool:
    """True if the queue deserves anything of what the task requests."""
    return bool(shared_names(task.request, attr.deserved))


def _has_too_much(allocated: Resource, task: TaskInfo, attr: CapacityQueueAttributes) -> bool:
    """True if the queue deserves nothing of what the task requests, or exceeds what it deserves of some of it."""
    return not _relevant(task, attr) or bool(allocated.greater_where_relevant(attr.deserved, task.request))
