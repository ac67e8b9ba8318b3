"""Plugins that restrict nodes: predicates, nodegroup and tdm.

predicates runs kube-scheduler's filters, each of which an argument can disable. nodegroup restricts queues to the node
groups in their affinity. tdm restricts revocable nodes to certain hours and to tasks of revocable zones.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from gpuconsole.model.clock import MINUTE, Time
from gpuconsole.model.cluster import Node
from gpuconsole.model.volcano import GroupAffinity
from gpuconsole.scheduling.kube import inter_pod_affinity
from gpuconsole.scheduling.kube.inter_pod_affinity import affinity_counts, has_pod_affinity
from gpuconsole.scheduling.kube.pod_classes import PodClass, PodClasses
from gpuconsole.scheduling.volcano.api.job import POD_NUMBER_EXCEEDED, FitError, JobInfo, PredicateCode, PredicateStatus
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus
from gpuconsole.scheduling.volcano.config import VolcanoArguments, parse_duration
from gpuconsole.scheduling.volcano.plugins.node_filters import (
    DynamicResourcesFilter,
    InterPodAffinity,
    MigInstances,
    NodeAffinity,
    NodeFilter,
    NodePorts,
    NodeUnschedulable,
    NodeVolumeLimits,
    PodTopologySpread,
    PreFilterMixin,
    RemovedPods,
    ReserveMixin,
    ScoreMixin,
    TaintToleration,
    VolumeBinding,
    VolumeBindingArguments,
    VolumeZone,
)
from gpuconsole.scheduling.volcano.session import VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import (
    PERMIT,
    REJECT,
    EventHandler,
    VictimsVote,
    depends_on_node_and_class,
)

FILTER_SWITCHES: tuple[tuple[str, Callable[[VolcanoSession], NodeFilter]], ...] = (
    ("", NodeUnschedulable),
    ("predicate.NodeAffinityEnable", NodeAffinity),
    ("predicate.NodePortsEnable", NodePorts),
    ("predicate.TaintTolerationEnable", TaintToleration),
    ("predicate.PodAffinityEnable", InterPodAffinity),
    ("predicate.NodeVolumeLimitsEnable", NodeVolumeLimits),
    ("predicate.VolumeZoneEnable", VolumeZone),
    ("predicate.PodTopologySpreadEnable", PodTopologySpread),
)
"""The arguments that switch filters off, and the filters in order of evaluation."""
VOLUME_FILTERS = "predicate.VolumeBindingEnable"


class PredicatesPlugin(VolcanoPlugin):
    """predicates plugin: runs kube-scheduler's filters on each node (Volcano 1.15).

    An unresolvable rejection ends the evaluation of a node; after others, such as too many pods, the next filters are
    still evaluated.
    """

    name: ClassVar[str] = "predicates"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self._arguments = arguments
        self._pod_classes = PodClasses()
        self._applicable: tuple[str, int, list[NodeFilter]] | None = None
        self._stable_results: dict[PodClass, dict[str, PredicateStatus | None]] = {}
        self._results_by_constraints: dict[tuple[object, ...], dict[str, PredicateStatus | None]] = {}

    def on_session_open(self, session: VolcanoSession) -> None:
        self._node_pods = placed = session.node_pods
        self._stable_results, self._results_by_constraints = {}, {}
        self.filters = list(self._enabled_filters(session))
        self.stable_filters = [one for one in self.filters if one.depends_on_node_only]
        self.unstable_filters = [one for one in self.filters if not one.depends_on_node_only]
        self.prefilters = [one for one in self.filters if isinstance(one, PreFilterMixin)]
        self.reserve_filters = [one for one in self.filters if isinstance(one, ReserveMixin)]
        self.score_filters = [one for one in self.filters if isinstance(one, ScoreMixin)]
        session.functions.pre_predicates[self.name] = self._prefilter
        session.functions.predicates[self.name] = self._predicate
        session.functions.cacheable_tasks[self.name] = lambda task: (
            not any(one.depends_on_other_nodes for one in self._applicable_filters(task))
        )
        session.functions.batch_node_order[self.name] = self._scores
        session.functions.handlers.append(EventHandler(self._allocated, self._deallocated))
        session.functions.handlers.append(EventHandler(placed.add, placed.remove))
        self._register_simulation(session)

    def _enabled_filters(self, session: VolcanoSession) -> Iterator[NodeFilter]:
        for switch, make in FILTER_SWITCHES:
            if not switch or self._arguments.flag(switch, True):
                yield make(session)
        if self._arguments.flag(VOLUME_FILTERS, True):
            scores = session.feature_gates.get("StorageCapacityScoring", False)
            yield VolumeBinding(session, VolumeBindingArguments.from_arguments(self._arguments, scores=scores))
        if session.feature_gates.get("DynamicResourceAllocation", True):
            yield DynamicResourcesFilter(session)
        yield MigInstances(session)

    def _register_simulation(self, session: VolcanoSession) -> None:
        """Predicates in preemption trials: only filters that depend on other pods."""
        placed = self._node_pods
        near = next((one for one in self.filters if isinstance(one, InterPodAffinity)), None)

        def removed(preemptor: TaskInfo, task: TaskInfo, node: NodeInfo) -> None:
            _trial_pods(session, preemptor).removed.add(task.key)

        def added(preemptor: TaskInfo, task: TaskInfo, node: NodeInfo) -> None:
            _trial_pods(session, preemptor).removed.discard(task.key)

        def simulated(task: TaskInfo, node: NodeInfo) -> FitError | None:
            gone = _trial_pods(session, task).removed
            if near is None or node.node is None or not (placed.pods_with_anti_affinity or has_pod_affinity(task.pod)):
                return None
            found = near.status_of_reason(
                inter_pod_affinity.refusal(task.pod, node.node, affinity_counts(task.pod, placed.lister_without(gone)))
            )
            return FitError((found,), task.key, node.name) if found else None

        session.functions.simulate_remove[self.name] = removed
        session.functions.simulate_add[self.name] = added
        session.functions.simulate_predicate[self.name] = simulated

    def _prefilter(self, task: TaskInfo) -> FitError | None:
        """Why no node is feasible, by the first filter that rejects all nodes."""
        pod_class = self._pod_classes.of(task.pod.template)
        for one in self.prefilters:
            if isinstance(one, NodeFilter) and one.applies_to(task):
                reason = one.prefilter(task, pod_class)
                if reason:
                    text = f"plugin {one.name} pre-predicates failed {reason}"
                    return FitError.from_reasons(PredicateCode.UNRESOLVABLE, text, plugin=one.name)
        return None

    def _predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        if node.node is None:
            return FitError(
                (PredicateStatus(PredicateCode.ERROR, "node info not found", self.name),), task.key, node.name
            )
        statuses = []
        if node.allocatable.max_tasks <= len(self._node_pods.pods_on(node.name)):
            statuses.append(PredicateStatus(PredicateCode.UNSCHEDULABLE, POD_NUMBER_EXCEEDED, self.name))
        pod_class = self._pod_classes.of(task.pod.template)
        refused = self._stable_refusal(task, node.node, pod_class)
        if refused is not None:
            statuses.append(refused)
        else:
            statuses += self._unstable_refusals(task, pod_class, node.node)
        return FitError(tuple(statuses), task.key, node.name) if statuses else None

    def _unstable_refusals(self, task: TaskInfo, pod_class: PodClass, node: Node) -> Iterator[PredicateStatus]:
        """Rejections by filters that are not stable; the first unresolvable one ends the evaluation."""
        for one in self._applicable_filters(task):
            status = one.refusal(task, pod_class, node)
            if status is not None:
                yield status
                if status.code is PredicateCode.UNRESOLVABLE:
                    return

    def _applicable_filters(self, task: TaskInfo) -> list[NodeFilter]:
        """The filters that are not stable and apply to the task, cached until pods are added or removed."""
        known, now = self._applicable, self._node_pods.changes
        if known is None or known[:2] != (task.key, now):
            known = self._applicable = task.key, now, [one for one in self.unstable_filters if one.applies_to(task)]
        return known[2]

    def _stable_refusal(self, task: TaskInfo, node: Node, pod_class: PodClass) -> PredicateStatus | None:
        """A stable filter's rejection of a node, cached by class of pods: nodes do not change in a session.

        Classes with the same node selector, affinity and tolerations share the results.
        """
        known = self._stable_results.get(pod_class)
        if known is None:
            wish = tuple(sorted(pod_class.node_selector.items())), pod_class.affinity, pod_class.tolerations
            known = self._stable_results[pod_class] = self._results_by_constraints.setdefault(wish, {})
        if node.name not in known:
            found = (one.refusal(task, pod_class, node) for one in self.stable_filters)
            known[node.name] = next((status for status in found if status is not None), None)
        return known[node.name]

    def _scores(self, task: TaskInfo, nodes: list[NodeInfo]) -> dict[str, float]:
        totals: dict[str, float] = {}
        for one in self.score_filters:
            if isinstance(one, NodeFilter) and one.applies_to(task):
                for name, score in one.scores(task, [info.node for info in nodes if info.node is not None]).items():
                    totals[name] = totals.get(name, 0.0) + score
        return totals

    def _allocated(self, task: TaskInfo) -> None:
        for one in self.reserve_filters:
            one.reserve(task)

    def _deallocated(self, task: TaskInfo) -> None:
        for one in self.reserve_filters:
            one.release(task)


def _trial_pods(session: VolcanoSession, task: TaskInfo) -> RemovedPods:
    state = session.cycle_state(task).setdefault(PredicatesPlugin.name, RemovedPods())
    assert isinstance(state, RemovedPods)
    return state


GROUP_LABEL = "volcano.sh/nodegroup-name"
ROOT = "root"
BASE_SCORE = 100.0
NO_SCORES = GroupAffinity()


class NodegroupPlugin(VolcanoPlugin):
    """nodegroup plugin: restricts queues to the node groups in their affinity (Volcano 1.15).

    With hierarchy, a queue without affinity inherits that of its nearest ancestor.
    """

    name: ClassVar[str] = "nodegroup"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.is_strict = arguments.flag("strict", True)
        """True keeps tasks off nodes without a group even if their queue has no affinity."""
        self.is_ordered = arguments.flag("enablePreferredOrder", False)
        """True scores preferred groups by their order, the first highest."""

    def on_session_open(self, session: VolcanoSession) -> None:
        self._session = session
        self._inherits = session.hierarchy_enabled(self.name)
        session.functions.node_order[self.name] = self._score
        session.functions.predicates[self.name] = self._predicate
        session.functions.cacheable_tasks[self.name] = depends_on_node_and_class

    def _affinity(self, queue: str) -> GroupAffinity | None:
        seen: set[str] = set()
        while queue in self._session.queues and queue not in seen:
            seen.add(queue)
            described = self._session.queues[queue].queue
            if described.affinity is not None or not self._inherits or queue == ROOT:
                return described.affinity
            queue = described.parent or ROOT
        return None

    def _predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        job = self._session.jobs.get(task.job)
        if job is None:
            return FitError.from_reasons(PredicateCode.ERROR, f"job {task.job} not found in session")
        affinity = self._affinity(job.queue) or NO_SCORES
        group = _node_group(node)
        if group is None:
            if not self.is_strict and affinity == NO_SCORES:
                return None
            return FitError.from_reasons(PredicateCode.UNRESOLVABLE, "node group label not found")
        if affinity == NO_SCORES:
            return FitError.from_reasons(PredicateCode.UNRESOLVABLE, "node group affinity not specified")
        if not _is_allowed_group(affinity, group):
            return FitError.from_reasons(PredicateCode.UNRESOLVABLE, "node does not satisfy the node group affinity")
        return None

    def _score(self, task: TaskInfo, node: NodeInfo) -> float:
        job, group = self._session.jobs.get(task.job), _node_group(node)
        affinity = self._affinity(job.queue) if job is not None else None
        if group is None or affinity is None:
            return 0.0
        if group in affinity.anti_preferred:
            return -1.0
        score = BASE_SCORE if group in affinity.required else 0.0
        if group in affinity.preferred:
            count = len(affinity.preferred)
            share = (count - affinity.preferred.index(group)) / count if self.is_ordered else 1.0
            score += 0.5 * BASE_SCORE * share
        return score


def _node_group(node: NodeInfo) -> str | None:
    return node.node.labels.get(GROUP_LABEL) if node.node is not None else None


def _is_allowed_group(affinity: GroupAffinity, group: str) -> bool:
    """True if the group is allowed: required anti-affinity excludes it, preferred anti-affinity only lowers its
    score.
    """
    if group in affinity.anti_preferred:
        return True
    return group not in affinity.anti_required and (group in affinity.required or group in affinity.preferred)


ZONE_PREFIX = "tdm.revocable-zone."
EVICT_PERIOD = "tdm.evict.period"
DEFAULT_MAX_VICTIMS = 1
"""How many tasks of a job without a disruption budget are evicted at once."""
MAX_SCORE = 100.0
DAY = 24 * 60 * MINUTE
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def parse_zone_hours(text: str) -> tuple[int, int] | None:
    """A zone's hours as (start, end) in microseconds since midnight; None if they are invalid.

    `10:00-21:00`; an end that is not after the start is on the next day (parseRevocableZone).
    """
    parts = [_CLOCK.fullmatch(part) for part in text.strip().split("-")]
    if len(parts) != 2 or parts[0] is None or parts[1] is None:
        return None
    start, end = ((int(part[1]) * 60 + int(part[2])) * MINUTE for part in parts if part is not None)
    return start, end if end > start else end + DAY


class TdmPlugin(VolcanoPlugin):
    """tdm plugin: restricts revocable nodes to certain hours, in UTC, and tasks (Volcano 1.15).

    Only tasks with the revocable zone `*` run on nodes of a zone, and only within its hours; after them preemptable
    tasks are evicted, a few of each job at a time.
    """

    name: ClassVar[str] = "tdm"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.zones = {
            key.replace(ZONE_PREFIX, "", 1): value
            for key, value in sorted(arguments.items())
            if ZONE_PREFIX in key and isinstance(value, str)
        }
        period = parse_duration(arguments.text(EVICT_PERIOD, ""))
        self.evict_period = MINUTE if period is None else period

    def on_session_open(self, session: VolcanoSession) -> None:
        self._session = session
        functions = session.functions
        functions.predicates[self.name] = self._predicate
        functions.node_order[self.name] = self._score
        functions.cacheable_tasks[self.name] = depends_on_node_and_class
        functions.preemptable[self.name] = self._preemptable
        functions.victim_tasks[self.name] = [self._victims]
        functions.job_order[self.name] = lambda left, right: left.preemptable - right.preemptable
        functions.job_pipelined[self.name] = lambda job: PERMIT if job.is_pipelined() else REJECT
        functions.job_starving[self.name] = lambda job: (
            not job.preemptable and bool(job.tasks_with_status(TaskStatus.PENDING))
        )

    def zone_closed_reason(self, zone: str, now: Time) -> str:
        """Why tasks cannot use the nodes of a revocable zone now; empty if they can."""
        listed = self.zones.get(zone)
        if listed is None:
            return f"revocable zone {zone} not support"
        span = parse_zone_hours(listed)
        if span is None:
            return f"revocable zone {listed} format error"
        start, end = span
        # Times are compared in whole seconds, so that the second of the end still belongs to the zone's hours.
        since = now % DAY // 1_000_000 * 1_000_000
        return "" if start <= since <= end else f"current time beyond revocable zone {zone}:{listed}"

    def _predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        if not node.revocable_zone:
            return None
        reason = self.zone_closed_reason(node.revocable_zone, self._session.now)
        if not reason and not task.revocable_zone:
            reason = "not allow to dispatch to revocable node"
        return FitError.from_reasons(PredicateCode.UNRESOLVABLE, reason, plugin=self.name) if reason else None

    def _score(self, task: TaskInfo, node: NodeInfo) -> float:
        is_open = node.revocable_zone and not self.zone_closed_reason(node.revocable_zone, self._session.now)
        return MAX_SCORE if is_open and task.revocable_zone else 0.0

    def _preemptable(self, preemptor: TaskInfo, candidates: list[TaskInfo]) -> VictimsVote:
        """Preemptable tasks on nodes outside revocable zones, for a task that is not preemptable itself."""
        if preemptor.preemptable or preemptor.revocable_zone:
            return None, REJECT
        nodes = self._session.nodes
        return self._within_budgets(
            task for task in candidates if task.node_name in nodes and not nodes[task.node_name].revocable_zone
        ), PERMIT

    def _victims(self, candidates: list[TaskInfo]) -> list[TaskInfo]:
        """Preemptable tasks on nodes outside their zone's hours, once in each period."""
        session = self._session
        last = session.last_runs.get(self.name)
        if last is not None and last + self.evict_period > session.now:
            return []
        session.last_runs[self.name] = session.now
        victims = []
        for zone in self.zones:
            if self.zone_closed_reason(zone, session.now):
                nodes = [node for _, node in sorted(session.revocable_nodes.items()) if node.revocable_zone == zone]
                victims += self._within_budgets(task for node in nodes for task in node.tasks.values())
        return victims

    def _within_budgets(self, tasks: Iterable[TaskInfo]) -> list[TaskInfo]:
        """Running preemptable tasks, of each job as many as its budget allows."""
        by_job: dict[str, list[TaskInfo]] = {}
        for task in tasks:
            if task.preemptable and task.status is TaskStatus.RUNNING and task.job in self._session.jobs:
                by_job.setdefault(task.job, []).append(task)
        return [task for uid, listed in by_job.items() for task in listed[: max_victims(self._session.jobs[uid])]]


def max_victims(job: JobInfo) -> int:
    """How many of a job's tasks may be evicted now (getMaxPodEvictNum)."""
    running, total = len(job.tasks_with_status(TaskStatus.RUNNING)), len(job.tasks)
    if job.budget.max_unavailable:
        done = job.count_with_status((TaskStatus.SUCCEEDED, TaskStatus.FAILED))
        return max(0, _parse_count(job.budget.max_unavailable, total) - (total - done - running))
    if job.budget.min_available:
        least = _parse_count(job.budget.min_available, total)
        if running >= least:
            return running - least
    return DEFAULT_MAX_VICTIMS


def _parse_count(text: str, total: int) -> int:
    """A number, or a percentage of the total, rounded up; 0 for anything else."""
    number = text.removesuffix("%")
    if not number.removeprefix("-").isdecimal():
        return 0
    return -(-int(number) * total // 100) if text.endswith("%") else int(number)
