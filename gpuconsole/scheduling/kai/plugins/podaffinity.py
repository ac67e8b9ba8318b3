"""podaffinity: nodes near to pods that the task would like to be with, or that would like it there (KAI 0.13).

It is none of KAI's default plugins. Its score is kube-scheduler's before it is normalised, in the band of Kubernetes'
plugins; a required affinity of a pod that is there counts as one that is liked.
"""

from collections.abc import Hashable, Iterator

from gpuconsole.scheduling.kai.api.nodes import NodeState
from gpuconsole.scheduling.kai.api.tasks import Neighbourhood, Task
from gpuconsole.scheduling.kai.conf import Arguments
from gpuconsole.scheduling.kai.functions import Scorer
from gpuconsole.scheduling.kai.plugins.pod_affinity import seated, selects
from gpuconsole.scheduling.kai.plugins.scores import POD_AFFINITY
from gpuconsole.scheduling.kai.session import Session

HARD_WEIGHT = 1


class PodAffinity:
    """Counts per domain are kept until a node's books change. Mutates."""

    def __init__(self, arguments: Arguments) -> None:
        self._counted: tuple[str, int] = ("", -1)
        self._counts: dict[tuple[str, str], int] = {}

    def open(self, session: Session) -> None:
        self._session = session
        tasks = [task for job in session.jobs.values() for task in job.tasks()]
        tasks += [task for node in session.nodes.values() for task in node.tasks.values()]
        if any(task.spec.liked or task.spec.near for task in tasks):
            session.functions.node_order.append(Scorer("podaffinity", POD_AFFINITY, self._score))
            session.functions.standing.append(self._standing)

    def _standing(self, task: Task) -> Hashable:
        return task.uid, len(self._session.changes)

    def _score(self, task: Task, node: NodeState) -> float:
        now = task.uid, len(self._session.changes)
        if self._counted != now:
            self._counted, self._counts = now, count(self._session, task)
        labels = node.node.labels
        return POD_AFFINITY * sum(w for (key, value), w in self._counts.items() if labels.get(key) == value)


def count(session: Session, task: Task) -> dict[tuple[str, str], int]:
    """How much the task and those that are there like each other, by domain: (topology key, value)."""
    counts: dict[tuple[str, str], int] = {}
    for other, seat in seated(session, task):
        for weight, term in _likings(task, other):
            value = seat.node.labels.get(term.topology_key)
            if value is not None:
                counts[(term.topology_key, value)] = counts.get((term.topology_key, value), 0) + weight
    return counts


def _likings(task: Task, other: Task) -> Iterator[tuple[int, Neighbourhood]]:
    yield from ((weight, term) for weight, term in task.spec.liked if selects(term, task, other))
    yield from ((weight, term) for weight, term in other.spec.liked if selects(term, other, task))
    yield from ((HARD_WEIGHT, term) for term in other.spec.near if selects(term, other, task))
