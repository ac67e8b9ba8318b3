"""kube-scheduler's placement engine: applies nodes, pods and priority classes, and decides about pods. Mutates.

Decisions are assumed at once; applying the changed objects afterwards changes nothing more.
"""

from collections import Counter
from collections.abc import Mapping

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import CompositePodGroup, Namespace, Node, Pod, PodDisruptionBudget, PriorityClass
from gpuconsole.model.decisions import PlacementDecision
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.kube.backoff_queue import MARK
from gpuconsole.scheduling.kube.deadlock import find_deadlock
from gpuconsole.scheduling.kube.placement_state import PlacementState
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.policy import PlacementPolicy
from gpuconsole.scheduling.kube.scheduling_cycle import SchedulingPass
from gpuconsole.scheduling.kube.scoring_table import score_table
from gpuconsole.scheduling.placement import PlacementDeadlock
from gpuconsole.scheduling.score_table import ScoreTable

DEFAULT = PlacementPolicy()
START = "start="
_PREPARED = 32
"""Largest number of pod classes for which `prepare` fills the caches."""


class KubePlacement:
    """Placement by kube-scheduler's rules: holds nodes with their pods and GPU owners, and the pending pods."""

    def __init__(self, policy: PlacementPolicy = DEFAULT) -> None:
        self.policy = policy
        self._ledger = PlacementState(policy)
        self._board, self._queue = self._ledger.board, self._ledger.queue
        self._now: Time = 0
        """The time of the last pass."""
        self._rung: Time = 0
        """The time that `alarm` returned last."""

    @property
    def has_pending(self) -> bool:
        """True if `schedule` would try a pending pod: it is new, or capacity was freed since it was refused."""
        return self._ledger.stirred and self._queue.any_untried(self._ledger.freed)

    def alarm(self) -> Time | None:
        """When the next back-off ends; None if there is none or if that time has been returned already."""
        ledger = self._ledger
        if ledger.delays.idle:
            return None
        waiting = (ledger.delays.due(unit) for unit in self._queue.untried(ledger.freed))
        alarm = min((until for until in waiting if until > self._now), default=0)
        if alarm in (0, self._rung):
            return None
        self._rung = alarm
        return alarm

    def stir(self) -> None:
        """Let the next pass check pods whose back-off is over."""
        self._ledger.stirred = True

    def deadlock(self) -> PlacementDeadlock | None:
        """Partially scheduled gangs that hold GPUs while their other pods do not fit; None if there are none."""
        torn = [self._queue.gangs[name] for name in sorted(self._queue.torn)]
        return find_deadlock(torn, self.fitting, sum(map(len, self.free_gpus().values()))) if torn else None

    def fork(self) -> "KubePlacement":
        """An independent copy of the session."""
        twin = KubePlacement(self.policy)
        twin._ledger = self._ledger.fork(self.policy)
        twin._board, twin._queue = twin._ledger.board, twin._ledger.queue
        twin._now, twin._rung = self._now, self._rung
        return twin

    def memory(self) -> tuple[str, ...]:
        """State that cannot be rebuilt by applying all objects: keys of refused pods that need not be tried again.

        With a profile also the start of the next search, and back-off times.
        """
        refused = self._queue.refused(self._ledger.freed)
        if self.policy.profile is None:
            return refused
        return (
            *refused,
            f"{START}{self._board.start}@{self._now}@{self._rung}@{self._ledger.stirred:d}",
            *self._ledger.delays.memory(),
        )

    def recall(self, memory: tuple[str, ...]) -> None:
        """Restore the state that `memory` returned, after all objects were applied."""
        self._queue.recall(frozenset(memory), self._ledger.freed)
        self._ledger.stirred = self._queue.any_untried(self._ledger.freed)
        for line in memory:
            if line.startswith(START):
                start, now, rung, stirred = map(int, line.removeprefix(START).split("@"))
                self._board.start, self._now, self._rung, self._ledger.stirred = start, now, rung, bool(stirred)
            elif line.startswith(MARK):
                self._ledger.delays.recall(line)

    def apply(self, obj: Object, now: Time) -> None:
        """Apply an object that appeared or changed. Kinds that do not matter for placement are ignored."""
        match obj:
            case Node():
                self._ledger.describe(obj.name, obj)
            case Pod():
                self._ledger.take_in(obj)
            case PriorityClass():
                self._ledger.classes[obj.name] = obj
            case PodGroup():
                self._ledger.regroup(obj.key, obj)
            case CompositePodGroup():
                self._ledger.compose(obj.key, obj)
            case Namespace():
                self._ledger.name_space(obj.name, obj.labels)
            case PodDisruptionBudget():
                self._ledger.budgets[obj.key] = obj
            case _:
                self._ledger.provide(obj)

    def delete(self, table: str, key: str, now: Time) -> None:
        """Apply the deletion of an object; `table` as in `objects.TABLES`."""
        match table:
            case "nodes":
                self._ledger.describe(key, None)
            case "pods":
                self._ledger.forget(key)
            case "priority_classes":
                self._ledger.classes.pop(key, None)
            case "pod_groups":
                self._ledger.regroup(key, None)
            case "composite_pod_groups":
                self._ledger.compose(key, None)
            case "namespaces":
                self._ledger.name_space(key, None)
            case "pod_disruption_budgets":
                self._ledger.budgets.pop(key, None)
            case _:
                self._ledger.withhold(table, key)

    def schedule(self, now: Time) -> list[PlacementDecision]:
        """Try every pod that could be tried, in queue order; binds, evictions and nominations are assumed.

        Pods refused in this pass are not retried in it, even if it frees reservations; the next pass tries them.
        """
        self._now = now
        return SchedulingPass(self._ledger, now).run()

    def prepare(self) -> None:
        """Fill the caches for the existing classes of pods, the most common first."""
        kinds = Counter((seat.shape, seat.priority) for state in self._board.nodes for seat in state.seats.values())
        kinds.update((waiter.shape, waiter.priority) for waiter in self._queue.waiters.values())
        for (shape, priority), _ in kinds.most_common(_PREPARED):
            evicting = self._board.outlook(shape, priority).evicting
            evicting.cheapest()
            evicting.reachable()

    def free_gpus(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the unassigned GPUs, by node."""
        return {state.name: state.free_gpus for state in self._board.nodes if state.node is not None}

    def gpus_of(self, pod: str) -> tuple[int, ...]:
        """Indices of the GPUs assigned to a pod; none if it is not on a node."""
        seat = self._ledger.seat_of(pod)
        return () if seat is None else seat.gpus

    def slices_of(self, pod: str) -> tuple[MigInstance, ...]:
        """The MIG instances assigned to a pod; none if it is not on a node."""
        seat = self._ledger.seat_of(pod)
        return () if seat is None else seat.slices

    def largest_gang(self, template: PodTemplate) -> int:
        """How many pods of this template would fit now, all at once."""
        return self.fitting(self._ledger.shapes.of(template), self._ledger.priority(template))

    def fitting(self, shape: PodClass, priority: int) -> int:
        """How many pods of this class and priority would fit now."""
        return self._board.outlook(shape, priority).slots

    def scores(self, pod: Pod) -> ScoreTable:
        """Filter results and scores of every node for a pod, as if it were scheduled now.

        The pod may be pending, running or hypothetical.
        """
        waiter = self._ledger.waiter(pod)
        with self._board.trial():
            seat = self._ledger.seat_of(pod.key)
            if seat is not None:
                self._board.unseat(self._ledger.number_of(pod.key), pod.key)
            if waiter.nominated:
                self._board.unreserve(self._board.number(waiter.nominated), waiter.pod)
            return score_table(self._board, waiter)
