"""A live cluster without a network: tests say what its watches tell."""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.backends.base import ClusterHealth, Missing
from gpuconsole.insight.health.engines import EnginesInForce
from gpuconsole.insight.index.queues import QueueMetrics, VisibilityPositions
from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.snapshot import Snapshot, Visibility, VisibilityGap
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy

_TABLES = {
    "workloads.kueue.x-k8s.io": "workloads",
    "clusterqueues.kueue.x-k8s.io": "cluster_queues",
    "localqueues.kueue.x-k8s.io": "local_queues",
}


class Elsewhere:
    """Somebody else's cluster. Mutates by `put`, `drop` and `wait`."""

    def __init__(self, objects: Iterable[Object], start: Time, *, kueue: bool = True) -> None:
        self.now = start
        self.policy = SimPolicy() if kueue else SimPolicy(kueue=None)
        self.assumed: tuple[str, ...] = ()
        self.missing: tuple[Missing, ...] = ()
        self.lost = ""
        self.loading = False
        self.engines = EnginesInForce()
        self.told_standings = VisibilityPositions(queue="")
        self.told_metrics = QueueMetrics(queue="")
        self._told: list[Event] = []
        self._state = ClusterState(start)
        self.put(*objects)

    @property
    def health(self) -> ClusterHealth:
        return ClusterHealth(loading=self.loading, lost=self.lost, missing=self.missing, seen=self.seen)

    @property
    def seen(self) -> Visibility:
        gaps = (
            VisibilityGap(table=_TABLES.get(right.resource, right.resource), resource=right.resource, why=str(right))
            for right in self.missing
        )
        return Visibility(gaps=tuple(gaps), assumed=self.assumed)

    def put(self, *objects: Object) -> None:
        self._told += [Applied(self.now, thing) for thing in objects]

    def drop(self, *objects: Object) -> None:
        self._told += [Deleted(self.now, TABLES[type(thing)], thing.key) for thing in objects]

    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND

    def open(self) -> None:
        """Connected always."""

    def poll(self, elapsed: float) -> Iterable[Event]:
        told, self._told = self._told, []
        for event in told:
            self._state.apply(event)
        return told

    def standings(self, cluster_queue: str, local_queue: str) -> VisibilityPositions:
        return self.told_standings

    def queue_metrics(self, cluster_queue: str) -> QueueMetrics:
        return replace(self.told_metrics, queue=cluster_queue)

    def snapshot(self) -> Snapshot:
        self._state.time, self._state.seen = self.now, self.seen
        return self._state.freeze()

    def fork(self) -> Simulation:
        return Simulation.from_snapshot(self.snapshot(), policy=self.policy, seed=0)

    def submit(self, command: Command) -> None:
        raise AssertionError("nothing is asked of it here")

    def close(self) -> None:
        """Nothing to let go."""
