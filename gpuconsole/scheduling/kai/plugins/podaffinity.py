"""podaffinity plugin: nodes near pods that the task prefers, or that prefer the task (KAI 0.13).

Not one of KAI's default plugins. Its score is kube-scheduler's before it is normalised, in the band of Kubernetes'
plugins; a required affinity of an existing pod counts as a preferred one.
"""

from collections.abc import Hashable, Mapping

from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.functions import Scorer
from gpuconsole.scheduling.kai.plugins.pod_affinity import surroundings
from gpuconsole.scheduling.kai.plugins.scores import POD_AFFINITY
from gpuconsole.scheduling.kai.session import KaiSession
from gpuconsole.scheduling.kube.inter_pod_affinity import Domain, has_pod_affinity, preferred_weights


class PodAffinityPlugin:
    """Registers the node score, and caches a task's weights by domain until a node changes. Mutates."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        self._counted: tuple[str, int] = ("", -1)
        self._counts: Mapping[Domain, int] = {}

    def open(self, session: KaiSession) -> None:
        self._session = session
        seated = (task for node in session.nodes.values() for task in node.tasks.values())
        if session.affine or any(has_pod_affinity(task.spec.pod) for task in seated):
            session.functions.node_order.append(Scorer("podaffinity", POD_AFFINITY, self._score))
            session.functions.standing.append(self._standing)

    def _standing(self, task: PodInfo) -> Hashable:
        return task.uid, len(self._session.changes)

    def _score(self, task: PodInfo, node: KaiNodeInfo) -> float:
        now = task.uid, len(self._session.changes)
        if self._counted != now:
            self._counted = now
            self._counts = preferred_weights(task.spec.pod, surroundings(self._session, task))
        labels = node.node.labels
        return POD_AFFINITY * sum(w for (key, value), w in self._counts.items() if labels.get(key) == value)
