"""A queue in a session."""

from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.scheduling.volcano.api.labels import HIERARCHY, HIERARCHY_WEIGHTS


class QueueInfo:
    """A queue (api.QueueInfo). `hierarchy` and `weights` are slash-separated, from the root to the queue (hdrf)."""

    __slots__ = ("hierarchy", "name", "queue", "uid", "weight", "weights")

    def __init__(self, queue: VolcanoQueue) -> None:
        self.queue = queue
        self.uid = self.name = queue.name
        self.weight = queue.weight
        self.hierarchy = queue.annotations.get(HIERARCHY, "")
        self.weights = queue.annotations.get(HIERARCHY_WEIGHTS, "")

    def __repr__(self) -> str:
        return f"QueueInfo({self.name})"

    @property
    def reclaimable(self) -> bool:
        """True if other queues may reclaim from it."""
        return self.queue.reclaimable
