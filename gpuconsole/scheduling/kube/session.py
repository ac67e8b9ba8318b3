"""kube-scheduler's placement engine: applies objects, and decides about pods in passes.

A `SchedulingPass` tries every eligible pending pod in queue order. Decisions are assumed at once, so that later ones
take them into account; applying the changed objects afterwards changes nothing more. `score_table` shows the filters
and scores of one pod, computed without the caches that passes share.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from itertools import count
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import CompositePodGroup, Namespace, Node, Pod, PodDisruptionBudget, PriorityClass
from gpuconsole.model.events import Bind, EvictPod, Nominate, PlacementDecision, Unschedulable
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.kube import filters
from gpuconsole.scheduling.kube.framework_runtime import NodeLocalPlugins, PodContextPlugins, judge
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.placement_plans import (
    Binding,
    NodeNomination,
    Step,
    awaits,
    claim,
    claim_gang,
    gang_refusal,
    place,
    place_gang,
    refusal,
)
from gpuconsole.scheduling.kube.placement_state import PlacementState
from gpuconsole.scheduling.kube.plugins import MEETINGS, NODE_FILTERS, NODE_USAGE_FILTERS
from gpuconsole.scheduling.kube.plugins.framework import NodeRejection
from gpuconsole.scheduling.kube.pod_classes import NodeState, PodClass
from gpuconsole.scheduling.kube.pod_groups import GroupTree, find_deadlock, place_tree, placement_refusal
from gpuconsole.scheduling.kube.profile import NODE_AFFINITY, TAINT_TOLERATION, PlacementPolicy
from gpuconsole.scheduling.kube.scheduling_queue import MARK, PendingPod, PodBatch, PodGang, gang_key
from gpuconsole.scheduling.kube.scores import drawn, highest, normalised
from gpuconsole.scheduling.placement import FilterColumn, NodeRow, NodeScore, PlacementDeadlock, ScoreColumn, ScoreTable

Verdicts = Callable[[NodeState], str]
Pairs = Sequence[tuple[int, int]]
"""(raw, normalised) score by one plugin, for each node."""


class TableFilter(Struct, frozen=True):
    """One filter of the score table; `ask` evaluates it, None if it does not apply to the pod."""

    plugin: str
    ask: Verdicts | None


def score_table(board: NodeCache, waiter: PendingPod) -> ScoreTable:
    """Filter results and scores of every node for this pod, and the node that would be chosen now.

    The caller has removed the pod's own assignment and reservation from the node cache.
    """
    lens, asking = board.lens(waiter.shape), board.asking(waiter)
    judges = _judges(board, lens, asking, waiter)
    states = _in_turn(board)
    rows = [NodeRow(node=state.name, verdicts=_verdicts(judges, state), sampled=False) for state in states]
    sample, seen = _sample(rows, board.rules.wanted(len(rows)))
    rows = [replace(row, sampled=number < seen) for number, row in enumerate(rows)]
    columns = _scores(board, lens, asking, [states[number] for number in sample])
    for position, number in enumerate(sample):
        line = tuple(
            NodeScore(*pairs[position], pairs[position][1] * column.weight) if pairs else NodeScore(0, 0, 0)
            for column, pairs in columns
        )
        rows[number] = replace(rows[number], scores=line, total=sum(score.weighted for score in line))
    tops = _tops(board, waiter, rows, sample)
    if tops:
        rows[tops[0]] = replace(rows[tops[0]], chosen=True)
    return ScoreTable(
        pod=waiter.pod,
        scheduler="kube-scheduler",
        filters=tuple(FilterColumn(one.plugin, one.ask is None) for one in judges),
        plugins=tuple(column for column, _ in columns),
        rows=tuple(rows),
        tie=tuple(rows[number].node for number in tops[1:]),
        message="" if tops else refusal(board, waiter),
    )


def _in_turn(board: NodeCache) -> list[NodeState]:
    """The nodes in search order, starting where the next search begins."""
    order = board.order
    start = board.start % max(1, len(order))
    return [board.nodes[number] for number in (*order[start:], *order[:start])]


def _judges(
    board: NodeCache, lens: NodeLocalPlugins, asking: PodContextPlugins, waiter: PendingPod
) -> tuple[TableFilter, ...]:
    return tuple(
        TableFilter(name, _ask(name, board, lens, asking, waiter.priority))
        for name in board.rules.filters
        if name in NODE_FILTERS or name in NODE_USAGE_FILTERS or name in MEETINGS
    )


def _ask(
    name: str, board: NodeCache, lens: NodeLocalPlugins, asking: PodContextPlugins, priority: int
) -> Verdicts | None:
    if name in NODE_FILTERS:
        refuse = dict(lens.filters).get(name)
        return None if refuse is None else lambda state: refuse(_node(state))
    if name in NODE_USAGE_FILTERS:
        usage_filters = NODE_USAGE_FILTERS[name](board.rules, lens.shape)
        return None if usage_filters is None else lambda state: ", ".join(usage_filters(state, priority))
    concern = dict(asking.concerns).get(name)
    return None if concern is None else lambda state: _text(judge(concern, state, priority))


def _text(found: NodeRejection | None) -> str:
    return "" if found is None else ", ".join(found.texts)


def _verdicts(judges: Sequence[TableFilter], state: NodeState) -> tuple[str, ...]:
    return tuple("" if one.ask is None else one.ask(state) for one in judges)


def _sample(rows: Sequence[NodeRow], wanted: int) -> tuple[list[int], int]:
    """Feasible nodes up to the wanted number, and how many nodes were evaluated."""
    found: list[int] = []
    for number, row in enumerate(rows):
        if len(found) == wanted:
            return found, number
        if row.fits:
            found.append(number)
    return found, len(rows)


def _scores(
    board: NodeCache, lens: NodeLocalPlugins, asking: PodContextPlugins, states: Sequence[NodeState]
) -> list[tuple[ScoreColumn, Pairs]]:
    """Each scoring plugin with its scores of these nodes; no scores if it does not apply to the pod."""
    found: list[tuple[ScoreColumn, Pairs]] = []
    for name, weight in board.rules.scores:
        pairs = _pairs(name, lens, asking, states)
        found.append((ScoreColumn(name, weight, skipped=pairs is None), pairs or ()))
    return found


def _pairs(name: str, lens: NodeLocalPlugins, asking: PodContextPlugins, states: Sequence[NodeState]) -> Pairs | None:
    nodes = [_node(state) for state in states]
    if name in (NODE_AFFINITY, TAINT_TOLERATION):
        which = name == TAINT_TOLERATION
        if not which and not (lens.shape.preferred or lens.rules.added_preferred):
            return None
        raw_scores = [lens.raw_score(node) for node in nodes]
        most = highest(raw_scores) if raw_scores else (0, 0)
        return [(raw_score[which], normalised(raw_score, most)[which]) for raw_score in raw_scores]
    for plugin, _, score in lens.scores:
        if plugin == name:
            return [(value, value) for value in map(score, states)]
    for plugin, _, wish in asking.wishes:
        if plugin == name:
            raw = wish.raw(nodes)
            scaled = wish.normalised(nodes, raw)
            return [(raw.get(node.name, 0), scaled[node.name]) for node in nodes]
    return None


def _tops(board: NodeCache, waiter: PendingPod, rows: Sequence[NodeRow], sample: Sequence[int]) -> list[int]:
    """The nodes with the highest total, the chosen one first."""
    if board.policy.packing == "random" and sample:
        name = drawn(waiter.pod, [rows[number].node for number in sample])
        return [number for number in sample if rows[number].node == name]
    most = max((rows[number].total for number in sample), default=0)
    return [number for number in sample if rows[number].total == most]


def _node(state: NodeState) -> Node:
    assert state.node is not None
    return state.node


class SchedulingPass:
    """One attempt to place every eligible pending pod, in queue order. Mutates the placement state."""

    def __init__(self, ledger: PlacementState, now: Time) -> None:
        self._ledger, self._now = ledger, now
        self._board, self._queue = ledger.board, ledger.queue
        self._said: list[PlacementDecision] = []

    def run(self) -> list[PlacementDecision]:
        """Try every eligible pod; binds, evictions and nominations are assumed."""
        self._ledger.stirred = False
        self._board.means.open()
        self._board.measure(waiter.shape for waiter in self._queue.waiters.values())
        delays = self._ledger.delays
        turns = ((delays.turn(unit, self._now), unit) for unit in self._queue.untried(self._ledger.freed))
        numbers = count()
        heap = [(turn, next(numbers), unit) for turn, unit in turns if turn is not None]
        heapify(heap)
        while heap:
            _, _, unit = heappop(heap)
            if not unit.waiting:
                # A preemption removed the nomination of this batch's only pod, which is now in another batch, perhaps
                # with the same turn.
                continue
            match unit:
                case PodBatch():
                    again = self._try_line(unit)
                case PodGang():
                    again = self._try_gang(unit)
                case _:
                    assert_never(unit)
            turn = delays.turn(unit, self._now) if again and unit.waiting else None
            if turn is not None:
                heappush(heap, (turn, next(numbers), unit))
        return self._said

    def _try_line(self, line: PodBatch) -> bool:
        """Try the first pod of the batch; True if the next one should be tried."""
        waiter = self._queue.waiters[self._ledger.delays.first(line, self._now)]
        with self._without_reservations((waiter,)):
            step: Step | None = place(self._board, waiter)
            waits = step is None and awaits(self._board, waiter)
            if step is None and not waits:
                step = claim(self._board, waiter)
        if step is not None:
            self._carry_out(step)
            return True
        line.refused_at = self._ledger.freed
        self._ledger.delays.refuse_line(line, self._now)
        if not waits:
            self._nominate(waiter, "")
            self._refuse(line, refusal(self._board, waiter))
        return False

    def _try_gang(self, gang: PodGang) -> bool:
        """Try the gang; True if some of its pods were bound, so that the others may be tried."""
        gang.refused_at = self._ledger.freed
        if len(gang.waiters) < gang.needed:
            pods = len(gang.waiters) + len(gang.seated)
            self._refuse(gang, filters.gang_incomplete(gang.name, pods, gang.size), gang.name)
            return False
        obstacle = self._ledger.obstacle(gang)
        if obstacle:
            self._refuse(gang, obstacle, gang.name)
            return False
        tree = self._ledger.tree_of(gang)
        if tree.is_constrained:
            return self._try_placements(gang, tree)
        waiters = tuple(gang.waiters.values())
        with self._without_reservations(waiters):
            steps = place_gang(self._board, gang, self._now)
            waits = steps is None and any(awaits(self._board, waiter) for waiter in waiters)
            if steps is None and not waits:
                steps = claim_gang(self._board, gang)
        for step in steps or ():
            self._carry_out(step)
        if not any(isinstance(step, Binding) for step in steps or ()):
            self._ledger.delays.refuse(gang_key(gang.name), self._now)
        if steps is None and not waits:
            for waiter in waiters:
                self._nominate(waiter, "")
            self._refuse(gang, gang_refusal(self._board, gang), gang.name)
        return any(isinstance(step, Binding) for step in steps or ())

    def _try_placements(self, gang: PodGang, tree: GroupTree) -> bool:
        """Try the gang's group hierarchy in the domains of its topology keys, without preemption."""
        steps = place_tree(self._board, tree, self._now) or ()
        for step in steps:
            self._carry_out(step)
        if any(step.waiter.gang == gang.name for step in steps):
            return True
        self._ledger.delays.refuse(gang_key(gang.name), self._now)
        self._refuse(gang, placement_refusal(self._board, tree, gang, self._now), gang.name)
        return False

    @contextmanager
    def _without_reservations(self, waiters: Sequence[PendingPod]) -> Iterator[None]:
        """Run a trial in which these pods have no reservations."""
        with self._board.trial():
            for waiter in waiters:
                if waiter.nominated:
                    self._board.unreserve(self._board.number(waiter.nominated), waiter.pod)
            yield

    def _carry_out(self, step: Step) -> None:
        match step:
            case Binding(waiter, number):
                self._bind(waiter, number)
            case NodeNomination():
                self._evict(step)
            case _:
                assert_never(step)

    def _bind(self, waiter: PendingPod, number: int) -> None:
        given = self._board.promise(waiter.who, number)
        seat = self._ledger.seat(waiter, number, self._now)
        name = self._board.nodes[number].name
        self._said.append(Bind(waiter.pod, name, seat.gpus, seat.slices, given.volumes, given.devices))

    def _evict(self, claim: NodeNomination) -> None:
        node = self._board.nodes[claim.number].name
        for seat in claim.victims:
            self._ledger.leave(seat.pod)
            self._said.append(EvictPod(seat.pod, claim.waiter.pod, node, filters.PREEMPTED))
        for held in self._board.nodes[claim.number].reserved:
            # Pods of lower priority lose their nomination to this node (getLowerPriorityNominatedPods).
            other = self._queue.waiters.get(held.pod)
            if other is not None and held.priority < claim.waiter.priority and not self._queue.in_gang(other):
                self._nominate(other, "")
        self._nominate(claim.waiter, node)
        if not self._queue.in_gang(claim.waiter):
            self._ledger.delays.refuse(claim.waiter.pod, self._now)

    def _nominate(self, waiter: PendingPod, node: str) -> None:
        if waiter.nominated != node:
            self._ledger.nominate(waiter, node)
            self._said.append(Nominate(waiter.pod, node))

    def _refuse(self, unit: PodBatch | PodGang, message: str, gang: str = "") -> None:
        """Report why the pods are pending, unless the message is unchanged."""
        if unit.said == message:
            return
        unit.said = message
        for pod in unit.pods:
            waiter = self._queue.waiters[pod]
            if waiter.message != message:
                self._queue.replace(replace(waiter, message=message))
                self._said.append(Unschedulable(pod, message, gang))


DEFAULT = PlacementPolicy()
START = "start="
"""Prefix of the line of `KubePlacement.memory` that has the start of the next node search, and times."""
_PREPARED = 32
"""Largest number of pod classes for which `prepare` fills the caches."""


class KubePlacement:
    """The kube-scheduler engine: applies objects, and places pending pods on nodes and GPUs in passes. Mutates."""

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
        """The time at which the next back-off ends; None if there is none or if that time was returned before."""
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
        """Let the next pass try pods whose back-off is over."""
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
        """Fill the caches before the first pass, for the existing classes of pods, the most common first."""
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
