"""Topology-aware preemption: finds victims on copies of nodes and chooses the node with the least important ones.

Volcano 1.15 actions/preempt with enableTopologyAwarePreemption. Disruption budgets are ignored; on ties the first node
by name wins.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.search import victims_suffice
from gpuconsole.scheduling.volcano.session import VolcanoSession

LEAST_PRIORITY = 2**31
"""Added to each priority so that each further victim raises the sum, even with a negative priority."""


class CandidateLimits(Struct, frozen=True, kw_only=True):
    """How many candidate nodes are collected: a percentage of the nodes, between `least` and `most`."""

    percentage: int = 10
    least: int = 1
    most: int = 100

    def enough(self, nodes: int) -> int:
        """The number of candidates after which the search stops, out of this number of nodes."""
        return min(max(nodes * self.percentage // 100, self.least), self.most, nodes)


class NodeCandidate(Struct, frozen=True):
    """A node and its victims, the most important first."""

    node: str
    victims: tuple[TaskInfo, ...]


def best_candidate(
    session: VolcanoSession,
    task: TaskInfo,
    nodes: Sequence[NodeInfo],
    may_go: Callable[[TaskInfo], bool],
    among: CandidateLimits,
) -> NodeCandidate | None:
    """The node with the least important victims, among the first candidates; None if there is none.

    `may_go` says which tasks may be evicted.
    """
    found: list[NodeCandidate] = []
    enough = among.enough(len(nodes))
    for node in nodes:
        if len(found) >= enough:
            break
        victims = _victims(session, task, node.clone(), may_go)
        if victims:
            found.append(NodeCandidate(node.name, tuple(victims)))
    return min(found, key=lambda candidate: _loss(session, candidate), default=None)


def _loss(session: VolcanoSession, candidate: NodeCandidate) -> tuple[int, int, int, int, str]:
    """Sort key: priority of the first victim, sum of priorities, number of victims, start of the most important ones,
    name.
    """
    priorities = [victim.pod.priority for victim in candidate.victims]
    highest = max(priorities)
    started = min(victim.pod.started or session.now for victim in candidate.victims if victim.pod.priority == highest)
    total = sum(priority + LEAST_PRIORITY for priority in priorities)
    return priorities[0], total, len(priorities), -started, candidate.node


def _victims(
    session: VolcanoSession, task: TaskInfo, node: NodeInfo, may_go: Callable[[TaskInfo], bool]
) -> list[TaskInfo] | None:
    """The victims on the copy of a node, less those that can stay; None if the task does not fit even without
    them all.
    """
    candidates = [other.clone() for _, other in sorted(node.tasks.items()) if may_go(other)]
    allowed = session.preemptable(task, candidates) or []
    if not victims_suffice(task, node, allowed):
        return None
    with session.cycle_trial(task):
        gone = list(_removed(session, task, node, allowed))
        if not gone or session.simulate_predicate(task, node) is not None:
            return None
        return [victim for victim in reversed(gone) if not _put_back(session, task, node, victim)]


def _removed(session: VolcanoSession, task: TaskInfo, node: NodeInfo, allowed: list[TaskInfo]) -> Iterator[TaskInfo]:
    """Remove victims, the least important first, until the task fits."""
    order = session.victims_heap(allowed, task)
    while order:
        victim = order.pop()
        session.simulate_remove(task, victim, node)
        node.remove_task(victim)
        yield victim
        if _fits(session, task, node):
            return


def _put_back(session: VolcanoSession, task: TaskInfo, node: NodeInfo, victim: TaskInfo) -> bool:
    """Restore a victim; False, with the victim removed again, if the task does not fit beside it."""
    session.simulate_add(task, victim, node)
    node.add_task(victim)
    if _fits(session, task, node):
        return True
    session.simulate_remove(task, victim, node)
    node.remove_task(victim)
    return False


def _fits(session: VolcanoSession, task: TaskInfo, node: NodeInfo) -> bool:
    queue = session.queues[session.jobs[task.job].queue]
    if not session.simulate_allocatable(queue, task) or not task.init_request.less_equal(node.future_idle(), ZERO):
        return False
    return session.simulate_predicate(task, node) is None
