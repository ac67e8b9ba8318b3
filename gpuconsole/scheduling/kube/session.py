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
from gpuconsole.scheduling.kube.framework_runtime import NodeLocalPlugins, PodContextPlugins, run_filter
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.placement_plans import (
    Binding,
    NodeNomination,
    PlanStep,
    failure_message,
    gang_failure_message,
    is_preemption_pending,
    plan_binding,
    plan_gang,
    plan_gang_preemption,
    plan_preemption,
)
from gpuconsole.scheduling.kube.placement_state import PlacementState
from gpuconsole.scheduling.kube.plugins import NODE_FILTERS, NODE_USAGE_FILTERS, POD_FILTERS
from gpuconsole.scheduling.kube.plugins.framework import NodeRejection
from gpuconsole.scheduling.kube.pod_classes import NodeState, PodClass
from gpuconsole.scheduling.kube.pod_groups import GroupTree, find_deadlock, placement_refusal, plan_group_tree
from gpuconsole.scheduling.kube.profile import NODE_AFFINITY, TAINT_TOLERATION, PlacementPolicy
from gpuconsole.scheduling.kube.scheduling_queue import BACKOFF_PREFIX, PendingPod, PodBatch, PodGang, gang_backoff_key
from gpuconsole.scheduling.kube.scores import highest_raw_scores, normalised_scores, random_choice
from gpuconsole.scheduling.placement import FilterColumn, NodeRow, NodeScore, PlacementDeadlock, ScoreColumn, ScoreTable

FilterFunction = Callable[[NodeState], str]
NodeScores = Sequence[tuple[int, int]]
"""(raw, normalised) score by one plugin, for each node."""


class TableFilter(Struct, frozen=True):
    """One filter of the score table; `evaluate` is None if the filter does not apply to the pod."""

    plugin: str
    evaluate: FilterFunction | None


def score_table(node_cache: NodeCache, pending_pod: PendingPod) -> ScoreTable:
    """Filter results and scores of every node for this pod, and the node that would be chosen now.

    The caller has removed the pod's own assignment and reservation from the node cache.
    """
    node_plugins, pod_plugins = node_cache.node_plugins(pending_pod.pod_class), node_cache.pod_plugins(pending_pod)
    judges = _table_filters(node_cache, node_plugins, pod_plugins, pending_pod)
    states = _nodes_in_search_order(node_cache)
    rows = [NodeRow(node=state.name, verdicts=_filter_results(judges, state), sampled=False) for state in states]
    sample, seen = _sample(rows, node_cache.profile.nodes_to_find(len(rows)))
    rows = [replace(row, sampled=number < seen) for number, row in enumerate(rows)]
    columns = _scores(node_cache, node_plugins, pod_plugins, [states[number] for number in sample])
    for position, number in enumerate(sample):
        line = tuple(
            NodeScore(*pairs[position], pairs[position][1] * column.weight) if pairs else NodeScore(0, 0, 0)
            for column, pairs in columns
        )
        rows[number] = replace(rows[number], scores=line, total=sum(score.weighted for score in line))
    tops = _highest_nodes(node_cache, pending_pod, rows, sample)
    if tops:
        rows[tops[0]] = replace(rows[tops[0]], chosen=True)
    return ScoreTable(
        pod=pending_pod.pod,
        scheduler="kube-scheduler",
        filters=tuple(FilterColumn(one.plugin, one.evaluate is None) for one in judges),
        plugins=tuple(column for column, _ in columns),
        rows=tuple(rows),
        ties=tuple(rows[number].node for number in tops[1:]),
        message="" if tops else failure_message(node_cache, pending_pod),
    )


def _nodes_in_search_order(node_cache: NodeCache) -> list[NodeState]:
    """The nodes in search order, starting where the next search begins."""
    order = node_cache.order
    start = node_cache.next_start_index % max(1, len(order))
    return [node_cache.nodes[number] for number in (*order[start:], *order[:start])]


def _table_filters(
    node_cache: NodeCache, node_plugins: NodeLocalPlugins, pod_plugins: PodContextPlugins, pending_pod: PendingPod
) -> tuple[TableFilter, ...]:
    return tuple(
        TableFilter(name, _filter_function(name, node_cache, node_plugins, pod_plugins, pending_pod.priority))
        for name in node_cache.profile.filters
        if name in NODE_FILTERS or name in NODE_USAGE_FILTERS or name in POD_FILTERS
    )


def _filter_function(
    name: str, node_cache: NodeCache, node_plugins: NodeLocalPlugins, pod_plugins: PodContextPlugins, priority: int
) -> FilterFunction | None:
    if name in NODE_FILTERS:
        refuse = dict(node_plugins.filters).get(name)
        return None if refuse is None else lambda state: refuse(_node(state))
    if name in NODE_USAGE_FILTERS:
        usage_filters = NODE_USAGE_FILTERS[name](node_cache.profile, node_plugins.shape)
        return None if usage_filters is None else lambda state: ", ".join(usage_filters(state, priority))
    concern = dict(pod_plugins.filters).get(name)
    return None if concern is None else lambda state: _rejection_text(run_filter(concern, state, priority))


def _rejection_text(found: NodeRejection | None) -> str:
    return "" if found is None else ", ".join(found.texts)


def _filter_results(judges: Sequence[TableFilter], state: NodeState) -> tuple[str, ...]:
    return tuple("" if one.evaluate is None else one.evaluate(state) for one in judges)


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
    node_cache: NodeCache, node_plugins: NodeLocalPlugins, pod_plugins: PodContextPlugins, states: Sequence[NodeState]
) -> list[tuple[ScoreColumn, NodeScores]]:
    """Each scoring plugin with its scores of these nodes; no scores if it does not apply to the pod."""
    found: list[tuple[ScoreColumn, NodeScores]] = []
    for name, weight in node_cache.profile.scores:
        pairs = _plugin_scores(name, node_plugins, pod_plugins, states)
        found.append((ScoreColumn(name, weight, skipped=pairs is None), pairs or ()))
    return found


def _plugin_scores(
    name: str, node_plugins: NodeLocalPlugins, pod_plugins: PodContextPlugins, states: Sequence[NodeState]
) -> NodeScores | None:
    nodes = [_node(state) for state in states]
    if name in (NODE_AFFINITY, TAINT_TOLERATION):
        which = name == TAINT_TOLERATION
        if not which and not (node_plugins.shape.preferred or node_plugins.rules.added_preferred):
            return None
        raw_scores = [node_plugins.raw_score(node) for node in nodes]
        most = highest_raw_scores(raw_scores) if raw_scores else (0, 0)
        return [(raw_score[which], normalised_scores(raw_score, most)[which]) for raw_score in raw_scores]
    for plugin, _, score in node_plugins.scores:
        if plugin == name:
            return [(value, value) for value in map(score, states)]
    for plugin, _, wish in pod_plugins.scores:
        if plugin == name:
            raw = wish.raw(nodes)
            scaled = wish.normalised(nodes, raw)
            return [(raw.get(node.name, 0), scaled[node.name]) for node in nodes]
    return None


def _highest_nodes(
    node_cache: NodeCache, pending_pod: PendingPod, rows: Sequence[NodeRow], sample: Sequence[int]
) -> list[int]:
    """The nodes with the highest total, the chosen one first."""
    if node_cache.policy.packing == "random" and sample:
        name = random_choice(pending_pod.pod, [rows[number].node for number in sample])
        return [number for number in sample if rows[number].node == name]
    most = max((rows[number].total for number in sample), default=0)
    return [number for number in sample if rows[number].total == most]


def _node(state: NodeState) -> Node:
    assert state.node is not None
    return state.node


class SchedulingPass:
    """One attempt to place every eligible pending pod, in queue order. Mutates the placement state."""

    def __init__(self, state: PlacementState, now: Time) -> None:
        self._state, self._now = state, now
        self._node_cache, self._queue = state.node_cache, state.queue
        self._decisions: list[PlacementDecision] = []

    def run(self) -> list[PlacementDecision]:
        """Try every eligible pod; binds, evictions and nominations are assumed."""
        self._state.has_untried = False
        self._node_cache.claims.begin_pass()
        self._node_cache.update_typical_pods(pending_pod.pod_class for pending_pod in self._queue.pending_pods.values())
        backoff = self._state.backoff
        turns = ((backoff.sort_key(unit, self._now), unit) for unit in self._queue.untried(self._state.freed))
        numbers = count()
        heap = [(turn, next(numbers), unit) for turn, unit in turns if turn is not None]
        heapify(heap)
        while heap:
            _, _, unit = heappop(heap)
            if not unit.has_pending:
                # A preemption removed the nomination of this batch's only pod, which is now in another batch, perhaps
                # with the same turn.
                continue
            match unit:
                case PodBatch():
                    again = self._try_batch(unit)
                case PodGang():
                    again = self._try_gang(unit)
                case _:
                    assert_never(unit)
            turn = backoff.sort_key(unit, self._now) if again and unit.has_pending else None
            if turn is not None:
                heappush(heap, (turn, next(numbers), unit))
        return self._decisions

    def _try_batch(self, line: PodBatch) -> bool:
        """Try the first pod of the batch; True if the next one should be tried."""
        pending_pod = self._queue.pending_pods[self._state.backoff.next_pod(line, self._now)]
        with self._without_reservations((pending_pod,)):
            step: PlanStep | None = plan_binding(self._node_cache, pending_pod)
            waits = step is None and is_preemption_pending(self._node_cache, pending_pod)
            if step is None and not waits:
                step = plan_preemption(self._node_cache, pending_pod)
        if step is not None:
            self._carry_out(step)
            return True
        line.refused_at = self._state.freed
        self._state.backoff.note_batch_refused(line, self._now)
        if not waits:
            self._nominate(pending_pod, "")
            self._refuse(line, failure_message(self._node_cache, pending_pod))
        return False

    def _try_gang(self, gang: PodGang) -> bool:
        """Try the gang; True if some of its pods were bound, so that the others may be tried."""
        gang.refused_at = self._state.freed
        if len(gang.pending_pods) < gang.needed:
            pods = len(gang.pending_pods) + len(gang.assigned_gpus)
            self._refuse(gang, filters.gang_incomplete_message(gang.name, pods, gang.minimum), gang.name)
            return False
        obstacle = self._state.obstacle(gang)
        if obstacle:
            self._refuse(gang, obstacle, gang.name)
            return False
        tree = self._state.tree_of(gang)
        if tree.is_constrained:
            return self._try_placements(gang, tree)
        pending_pods = tuple(gang.pending_pods.values())
        with self._without_reservations(pending_pods):
            steps = plan_gang(self._node_cache, gang, self._now)
            waits = steps is None and any(
                is_preemption_pending(self._node_cache, pending_pod) for pending_pod in pending_pods
            )
            if steps is None and not waits:
                steps = plan_gang_preemption(self._node_cache, gang)
        for step in steps or ():
            self._carry_out(step)
        if not any(isinstance(step, Binding) for step in steps or ()):
            self._state.backoff.note_refused(gang_backoff_key(gang.name), self._now)
        if steps is None and not waits:
            for pending_pod in pending_pods:
                self._nominate(pending_pod, "")
            self._refuse(gang, gang_failure_message(self._node_cache, gang), gang.name)
        return any(isinstance(step, Binding) for step in steps or ())

    def _try_placements(self, gang: PodGang, tree: GroupTree) -> bool:
        """Try the gang's group hierarchy in the domains of its topology keys, without preemption."""
        steps = plan_group_tree(self._node_cache, tree, self._now) or ()
        for step in steps:
            self._carry_out(step)
        if any(step.pod.gang == gang.name for step in steps):
            return True
        self._state.backoff.note_refused(gang_backoff_key(gang.name), self._now)
        self._refuse(gang, placement_refusal(self._node_cache, tree, gang, self._now), gang.name)
        return False

    @contextmanager
    def _without_reservations(self, pending_pods: Sequence[PendingPod]) -> Iterator[None]:
        """Run a trial in which these pods have no reservations."""
        with self._node_cache.trial():
            for pending_pod in pending_pods:
                if pending_pod.nominated:
                    self._node_cache.unreserve(self._node_cache.number(pending_pod.nominated), pending_pod.pod)
            yield

    def _carry_out(self, step: PlanStep) -> None:
        match step:
            case Binding(pending_pod, number):
                self._bind(pending_pod, number)
            case NodeNomination():
                self._evict(step)
            case _:
                assert_never(step)

    def _bind(self, pending_pod: PendingPod, number: int) -> None:
        given = self._node_cache.assume_claims(pending_pod.obj, number)
        assigned = self._state.assign(pending_pod, number, self._now)
        name = self._node_cache.nodes[number].name
        self._decisions.append(
            Bind(pending_pod.pod, name, assigned.gpus, assigned.slices, given.volumes, given.devices)
        )

    def _evict(self, claim: NodeNomination) -> None:
        node = self._node_cache.nodes[claim.number].name
        for assigned in claim.victims:
            self._state.mark_terminating(assigned.pod)
            self._decisions.append(EvictPod(assigned.pod, claim.pod.pod, node, filters.PREEMPTED))
        for held in self._node_cache.nodes[claim.number].reserved:
            # Pods of lower priority lose their nomination to this node (getLowerPriorityNominatedPods).
            other = self._queue.pending_pods.get(held.pod)
            if other is not None and held.priority < claim.pod.priority and not self._queue.is_gang_scheduled(other):
                self._nominate(other, "")
        self._nominate(claim.pod, node)
        if not self._queue.is_gang_scheduled(claim.pod):
            self._state.backoff.note_refused(claim.pod.pod, self._now)

    def _nominate(self, pending_pod: PendingPod, node: str) -> None:
        if pending_pod.nominated != node:
            self._state.nominate(pending_pod, node)
            self._decisions.append(Nominate(pending_pod.pod, node))

    def _refuse(self, unit: PodBatch | PodGang, message: str, gang: str = "") -> None:
        """Report why the pods are pending, unless the message is unchanged."""
        if unit.last_message == message:
            return
        unit.last_message = message
        for pod in unit.pods:
            pending_pod = self._queue.pending_pods[pod]
            if pending_pod.message != message:
                self._queue.replace(replace(pending_pod, message=message))
                self._decisions.append(Unschedulable(pod, message, gang))


DEFAULT = PlacementPolicy()
START_PREFIX = "start="
"""Prefix of the line of `KubePlacement.memory` that has the start of the next node search, and times."""
_MAX_PREPARED = 32
"""Largest number of pod classes for which `prepare` fills the caches."""


class KubePlacement:
    """The kube-scheduler engine: applies objects, and places pending pods on nodes and GPUs in passes. Mutates."""

    def __init__(self, policy: PlacementPolicy = DEFAULT) -> None:
        self.policy = policy
        self._state = PlacementState(policy)
        self._node_cache, self._queue = self._state.node_cache, self._state.queue
        self._now: Time = 0
        """The time of the last pass."""
        self._last_timer: Time = 0
        """The time that `next_timer` returned last."""

    @property
    def has_pending(self) -> bool:
        """True if `schedule` would try a pending pod: it is new, or capacity was freed since it was refused."""
        return self._state.has_untried and self._queue.any_untried(self._state.freed)

    def next_timer(self) -> Time | None:
        """The time at which the next back-off ends; None if there is none or if that time was returned before."""
        state = self._state
        if state.backoff.is_empty:
            return None
        waiting = (state.backoff.ready_at(unit) for unit in self._queue.untried(state.freed))
        alarm = min((until for until in waiting if until > self._now), default=0)
        if alarm in (0, self._last_timer):
            return None
        self._last_timer = alarm
        return alarm

    def request_pass(self) -> None:
        """Let the next pass try pods whose back-off is over."""
        self._state.has_untried = True

    def deadlock(self) -> PlacementDeadlock | None:
        """Partially scheduled gangs that hold GPUs while their other pods do not fit; None if there are none."""
        torn = [self._queue.gangs[name] for name in sorted(self._queue.partial_gangs)]
        return find_deadlock(torn, self.fitting, sum(map(len, self.free_gpus().values()))) if torn else None

    def fork(self) -> "KubePlacement":
        """An independent copy of the session."""
        copied = KubePlacement(self.policy)
        copied._state = self._state.fork(self.policy)
        copied._node_cache, copied._queue = copied._state.node_cache, copied._state.queue
        copied._now, copied._last_timer = self._now, self._last_timer
        return copied

    def dump(self) -> tuple[str, ...]:
        """State that cannot be rebuilt by applying all objects: keys of refused pods that need not be tried again.

        With a profile also the start of the next search, and back-off times.
        """
        refused = self._queue.refused(self._state.freed)
        if self.policy.profile is None:
            return refused
        return (
            *refused,
            f"{START_PREFIX}{self._node_cache.next_start_index}@{self._now}@{self._last_timer}@{self._state.has_untried:d}",
            *self._state.backoff.dump(),
        )

    def load(self, memory: tuple[str, ...]) -> None:
        """Restore the state that `dump` returned, after all objects were applied."""
        self._queue.mark_refused(frozenset(memory), self._state.freed)
        self._state.has_untried = self._queue.any_untried(self._state.freed)
        for line in memory:
            if line.startswith(START_PREFIX):
                start, now, rung, stirred = map(int, line.removeprefix(START_PREFIX).split("@"))
                self._node_cache.next_start_index, self._now, self._last_timer, self._state.has_untried = (
                    start,
                    now,
                    rung,
                    bool(stirred),
                )
            elif line.startswith(BACKOFF_PREFIX):
                self._state.backoff.load_line(line)

    def apply(self, obj: Object, now: Time) -> None:
        """Apply an object that appeared or changed. Kinds that do not matter for placement are ignored."""
        match obj:
            case Node():
                self._state.apply_node(obj.name, obj)
            case Pod():
                self._state.apply_pod(obj)
            case PriorityClass():
                self._state.classes[obj.name] = obj
            case PodGroup():
                self._state.apply_pod_group(obj.key, obj)
            case CompositePodGroup():
                self._state.apply_composite_group(obj.key, obj)
            case Namespace():
                self._state.apply_namespace(obj.name, obj.labels)
            case PodDisruptionBudget():
                self._state.budgets[obj.key] = obj
            case _:
                self._state.apply_claim_object(obj)

    def delete(self, table: str, key: str, now: Time) -> None:
        """Apply the deletion of an object; `table` as in `objects.TABLES`."""
        match table:
            case "nodes":
                self._state.apply_node(key, None)
            case "pods":
                self._state.delete_pod(key)
            case "priority_classes":
                self._state.classes.pop(key, None)
            case "pod_groups":
                self._state.apply_pod_group(key, None)
            case "composite_pod_groups":
                self._state.apply_composite_group(key, None)
            case "namespaces":
                self._state.apply_namespace(key, None)
            case "pod_disruption_budgets":
                self._state.budgets.pop(key, None)
            case _:
                self._state.delete_claim_object(table, key)

    def schedule(self, now: Time) -> list[PlacementDecision]:
        """Try every pod that could be tried, in queue order; binds, evictions and nominations are assumed.

        Pods refused in this pass are not retried in it, even if it frees reservations; the next pass tries them.
        """
        self._now = now
        return SchedulingPass(self._state, now).run()

    def prepare(self) -> None:
        """Fill the caches before the first pass, for the existing classes of pods, the most common first."""
        kinds = Counter(
            (assigned.pod_class, assigned.priority)
            for state in self._node_cache.nodes
            for assigned in state.pods.values()
        )
        kinds.update((pending_pod.pod_class, pending_pod.priority) for pending_pod in self._queue.pending_pods.values())
        for (pod_class, priority), _ in kinds.most_common(_MAX_PREPARED):
            evicting = self._node_cache.feasibility(pod_class, priority).preemption
            evicting.cheapest()
            evicting.slots_after_preemption()

    def free_gpus(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the unassigned GPUs, by node."""
        return self._node_cache.free_gpus()

    def gpus_of(self, pod: str) -> tuple[int, ...]:
        """Indices of the GPUs assigned to a pod; none if it is not on a node."""
        assigned = self._state.assignment_of(pod)
        return () if assigned is None else assigned.gpus

    def mig_instances_of(self, pod: str) -> tuple[MigInstance, ...]:
        """The MIG instances assigned to a pod; none if it is not on a node."""
        assigned = self._state.assignment_of(pod)
        return () if assigned is None else assigned.slices

    def largest_gang(self, template: PodTemplate) -> int:
        """How many pods of this template would fit now, all at once."""
        return self.fitting(self._state.pod_classes.of(template), self._state.priority(template))

    def fitting(self, pod_class: PodClass, priority: int) -> int:
        """How many pods of this class and priority would fit now."""
        return self._node_cache.feasibility(pod_class, priority).slots

    def scores(self, pod: Pod) -> ScoreTable:
        """Filter results and scores of every node for a pod, as if it were scheduled now.

        The pod may be pending, running or hypothetical.
        """
        pending_pod = self._state.pending_pod(pod)
        with self._node_cache.trial():
            assigned = self._state.assignment_of(pod.key)
            if assigned is not None:
                self._node_cache.unassign(self._state.node_number_of(pod.key), pod.key)
            if pending_pod.nominated:
                self._node_cache.unreserve(self._node_cache.number(pending_pod.nominated), pending_pod.pod)
            return score_table(self._node_cache, pending_pod)
