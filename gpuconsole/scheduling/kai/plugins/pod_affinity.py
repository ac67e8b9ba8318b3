"""Required pod affinity and anti-affinity: kube-scheduler's InterPodAffinity over the tasks of a session."""

from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.session import KaiSession
from gpuconsole.scheduling.kube import inter_pod_affinity
from gpuconsole.scheduling.kube.inter_pod_affinity import InterPodAffinityState, StaticPodLister, nearness


class Neighbours:
    """Affinity state of a task, recomputed after any node changes. Mutates."""

    def __init__(self, session: KaiSession) -> None:
        self._session = session
        self._found: tuple[str, int, InterPodAffinityState] | None = None

    def trouble(self, task: PodInfo, node: KaiNodeInfo) -> str:
        """Why other pods exclude the node for the task; empty if they do not."""
        if not self._session.affine:
            return ""
        return inter_pod_affinity.refusal(task.spec.pod, node.node, self._near(task))

    def _near(self, task: PodInfo) -> InterPodAffinityState:
        known, now = self._found, len(self._session.changes)
        if known is None or known[:2] != (task.uid, now):
            found = nearness(task.spec.pod, surroundings(self._session, task))
            known = self._found = task.uid, now, found
        return known[2]


def surroundings(session: KaiSession, task: PodInfo) -> StaticPodLister:
    """The session's nodes, and the pods on each except the task itself."""
    seats = session.nodes
    return StaticPodLister(
        {name: seat.node for name, seat in seats.items()},
        lambda name: [other.spec.pod for other in seats[name].tasks.values() if other.uid != task.uid],
    )
