"""Two schedulers in one cluster: each places the pods that name it and accounts for pods placed by the other. Mutates.

Pods that do not name the second scheduler belong to the first one. Only one engine decides per pass; the other learns
its decisions once they are carried out.
"""

from collections.abc import Mapping

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.decisions import PlacementDecision
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.scheduling.placement import PlacementDeadlock, PlacementEngine, ScoreTable

MARK = "beside="


class MultiScheduler:
    """Combines the default engine with one for pods whose schedulerName is `name`."""

    def __init__(self, first: PlacementEngine, second: PlacementEngine, name: str) -> None:
        self._first, self._second, self._name = first, second, name
        self._alarms: set[Time] = set()
        """Alarms of the engines that `alarm` has not returned yet."""

    @property
    def has_pending(self) -> bool:
        """True if either engine has a pod to try."""
        return self._first.has_pending or self._second.has_pending

    def apply(self, obj: Object, now: Time) -> None:
        """Apply a new or changed object; the other scheduler sees a pod only while it is on a node and not done."""
        if not isinstance(obj, Pod):
            self._first.apply(obj, now)
            self._second.apply(obj, now)
            return
        own, other = self._engines(obj.template)
        own.apply(obj, now)
        if obj.node and not obj.done:
            other.apply(obj, now)
        else:
            other.delete("pods", obj.key, now)

    def delete(self, table: str, key: str, now: Time) -> None:
        """Remove a deleted object from both engines; `table` as in `objects.TABLES`."""
        self._first.delete(table, key, now)
        self._second.delete(table, key, now)

    def schedule(self, now: Time) -> list[PlacementDecision]:
        """Run the first engine; run the second only if the first decides nothing."""
        said = self._first.schedule(now) if self._first.has_pending else []
        if not said and self._second.has_pending:
            said = self._second.schedule(now)
        return said

    def alarm(self) -> Time | None:
        """The earliest time at which time alone changes a decision of either engine; each is returned once."""
        for engine in (self._first, self._second):
            moment = engine.alarm()
            if moment is not None:
                self._alarms.add(moment)
        soonest = min(self._alarms, default=None)
        self._alarms.discard(soonest or 0)
        return soonest

    def stir(self) -> None:
        """Let the next pass of both engines try again."""
        self._first.stir()
        self._second.stir()

    def deadlock(self) -> PlacementDeadlock | None:
        """Deadlock of the first engine; the second never starts a gang partially."""
        return self._first.deadlock()

    def free_gpus(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the unassigned GPUs, by node."""
        return self._first.free_gpus()

    def gpus_of(self, pod: str) -> tuple[int, ...]:
        """Indices of the GPUs assigned to a pod; empty if it is not on a node."""
        return self._first.gpus_of(pod)

    def slices_of(self, pod: str) -> tuple[MigInstance, ...]:
        """The MIG instances assigned to a pod; empty if it is not on a node."""
        return self._first.slices_of(pod)

    def largest_gang(self, template: PodTemplate) -> int:
        """How many pods of this template would fit now, together, by their own scheduler."""
        return self._engines(template)[0].largest_gang(template)

    def scores(self, pod: Pod) -> ScoreTable | None:
        """Filter results and scores of every node from the pod's own scheduler."""
        return self._engines(pod.template)[0].scores(pod)

    def prepare(self) -> None:
        """Warm the caches of both engines that forks share."""
        self._first.prepare()
        self._second.prepare()

    def fork(self) -> "MultiScheduler":
        """Independent copies of both engines."""
        twin = MultiScheduler(self._first.fork(), self._second.fork(), self._name)
        twin._alarms = self._alarms.copy()
        return twin

    def memory(self) -> tuple[str, ...]:
        """State that cannot be rebuilt from the objects: the first engine's lines, then, with the prefix `MARK`, the
        second's lines and the alarms.
        """
        marked = (MARK + line for line in self._second.memory())
        return (*self._first.memory(), *marked, *(f"{MARK}@{moment}" for moment in sorted(self._alarms)))

    def recall(self, memory: tuple[str, ...]) -> None:
        """Restore the state that `memory` returned, after all objects were applied."""
        own = [line.removeprefix(MARK) for line in memory if line.startswith(MARK)]
        self._alarms = {int(line[1:]) for line in own if line.startswith("@")}
        self._first.recall(tuple(line for line in memory if not line.startswith(MARK)))
        self._second.recall(tuple(line for line in own if not line.startswith("@")))

    def _engines(self, template: PodTemplate) -> tuple[PlacementEngine, PlacementEngine]:
        """A pod's own scheduler, and the other one."""
        if template.scheduler_name == self._name:
            return self._second, self._first
        return self._first, self._second
