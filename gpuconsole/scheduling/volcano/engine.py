"""Volcano's placement engine: each pass opens one session, runs its actions and closes it. Mutates.

`close_session` sets the phase and the conditions of each PodGroup at the end of a session. `score_table` shows the
decision for one pod, as predicates and plugin scores by node; it ignores queues and gangs, because whether the job may
start does not depend on nodes.

Where Volcano breaks ties at random, the first by name wins here. A pod gets the lowest free GPUs of its node, as with
kube-scheduler's rules here; Volcano leaves that to the device plugin.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.events import Bind, EvictPod, Nominate, PlacementDecision, SetPhase, Unschedulable
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, PodClasses
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.placement import FilterColumn, NodeRow, NodeScore, ScoreColumn, ScoreTable, SessionPlacement
from gpuconsole.scheduling.volcano.actions import ACTIONS
from gpuconsole.scheduling.volcano.api.job import FitErrors, JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus, group_of
from gpuconsole.scheduling.volcano.config import EnabledFlag, VolcanoPolicy
from gpuconsole.scheduling.volcano.node_search import ROOM_NOW, NodeFinder, choose_node, resource_fit, room_for
from gpuconsole.scheduling.volcano.plugins.deviceshare import parse_mig_config
from gpuconsole.scheduling.volcano.plugins.nodeorder import NodeorderPlugin
from gpuconsole.scheduling.volcano.plugins.predicates import PredicatesPlugin
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS, read_configuration
from gpuconsole.scheduling.volcano.session import VolcanoSession
from gpuconsole.scheduling.volcano.store import VolcanoStore, with_pod_group, without_pod_group

RESOURCES = "NodeResources"
SCORE_FACTOR = 100
"""Hundredths: factor of the weighted scores in a score table, because some scores are fractions."""
ScoreColumns = Mapping[tuple[str, int], Mapping[str, float]]
"""(plugin, weight) → raw score by node name."""


def score_table(session: VolcanoSession, task: TaskInfo) -> ScoreTable:
    """Show how the task's node would be chosen now: predicates and scores of every node; the task must have no node."""
    names = (RESOURCES, *_filter_names(session))
    pre_predicate_reasons = _pre_predicate_reasons(session, task)
    nodes = _nodes_in_search_order(session)
    verdicts = {node.name: {**_filter_results(session, task, node), **pre_predicate_reasons} for node in nodes}
    found, errors, looked = _find_feasible_nodes(session, task, pre_predicate_reasons)
    fitting = {node.name for node in found}
    columns = _raw_scores(session, task, found)
    chosen = choose_node(session, task, found)
    rows = []
    for number, node in enumerate(nodes):
        scores = _node_scores(columns, node.name) if node.name in fitting else ()
        rows.append(
            NodeRow(
                node=node.name,
                verdicts=tuple(verdicts[node.name].get(name, "") for name in names),
                scores=scores,
                total=sum(score.weighted for score in scores),
                sampled=number < looked,
                chosen=chosen is node,
            )
        )
    return ScoreTable(
        pod=task.key,
        scheduler="volcano",
        filters=tuple(FilterColumn(name) for name in names),
        plugins=tuple(ScoreColumn(name, weight) for name, weight in columns),
        rows=tuple(rows),
        ties=() if chosen is None else _tied_nodes(task, rows, chosen, found),
        message="" if chosen is not None else str(errors),
    )


def _filter_names(session: VolcanoSession) -> list[str]:
    """Names of all filters: plugins with predicates, and kube-scheduler's filters each by its own name."""
    inner = [one.name for plugin in session.plugins if isinstance(plugin, PredicatesPlugin) for one in plugin.filters]
    asked = {name for name in session.functions.predicates if name != PredicatesPlugin.name}
    listed = [plugin.name for plugin in session.plugins if plugin.name in asked]
    pods = [PredicatesPlugin.name] if inner else []
    return [*pods, *inner, *listed]


def _pre_predicate_reasons(session: VolcanoSession, task: TaskInfo) -> dict[str, str]:
    """Why the pre-predicates reject all nodes, by filter."""
    error = session.pre_predicate(task)
    return {status.plugin: status.reason for status in error.statuses} if error is not None else {}


def _filter_results(session: VolcanoSession, task: TaskInfo, node: NodeInfo) -> dict[str, str]:
    """Why the node is rejected, by filter: all are evaluated, although Volcano stops at the first rejection."""
    decisions: dict[str, str] = {}
    short = resource_fit(task, node)
    if short is not None:
        decisions[RESOURCES] = ", ".join(short.reasons)
    for name, ask in session.functions.predicates.items():
        error = ask(task, node)
        for status in error.statuses if error is not None else ():
            decisions.setdefault(status.plugin or name, status.reason)
    return decisions


def _nodes_in_search_order(session: VolcanoSession) -> list[NodeInfo]:
    """The nodes in the order of the next search."""
    nodes = session.node_list
    start = session.search_start % max(1, len(nodes)) if len(nodes) > session.sampling.minimum_nodes else 0
    return [*nodes[start:], *nodes[:start]]


def _find_feasible_nodes(
    session: VolcanoSession, task: TaskInfo, pre_predicate_reasons: Mapping[str, str]
) -> tuple[list[NodeInfo], FitErrors, int]:
    """Feasible nodes, the fit errors of the others, and how many nodes were evaluated."""
    before, total = session.search_start, len(session.node_list)
    if pre_predicate_reasons:
        return [], FitErrors(next(iter(pre_predicate_reasons.values()))), 0
    finder = NodeFinder(session, remembers=False)
    found, errors = finder.find_feasible(
        task, session.node_list, lambda one, node: resource_fit(one, node) or session.predicate_for_allocate(one, node)
    )
    looked = (session.search_start - before) % total if total > session.sampling.minimum_nodes else total
    return found, errors, looked or total


def _raw_scores(session: VolcanoSession, task: TaskInfo, nodes: Sequence[NodeInfo]) -> ScoreColumns:
    """Raw scores by plugin; nodeorder has one column for each of kube-scheduler's scores."""
    columns: dict[tuple[str, int], Mapping[str, float]] = {}
    asking = session.functions
    for option in (option for tier in session.tiers for option in tier if EnabledFlag.NODE_ORDER in option.enabled):
        plugin = next((one for one in session.plugins if one.name == option.name), None)
        if isinstance(plugin, NodeorderPlugin):
            for score, weight in plugin.weights.items():
                columns[score, weight] = plugin.score(score, task, nodes)
            continue
        alone, batch = asking.node_order.get(option.name), asking.batch_node_order.get(option.name)
        if alone is not None:
            columns[option.name, 1] = {node.name: alone(task, node) for node in nodes}
        elif batch is not None and option.name != PredicatesPlugin.name:
            columns[option.name, 1] = batch(task, list(nodes))
    return columns


def _node_scores(columns: ScoreColumns, node: str) -> tuple[NodeScore, ...]:
    return tuple(
        NodeScore(
            round(given.get(node, 0.0)),
            round(given.get(node, 0.0)),
            round(given.get(node, 0.0) * weight * SCORE_FACTOR),
        )
        for (_, weight), given in columns.items()
    )


def _tied_nodes(
    task: TaskInfo, rows: Sequence[NodeRow], chosen: NodeInfo, found: Sequence[NodeInfo]
) -> tuple[str, ...]:
    """Other nodes with the same total and the same room (now or soon) as the chosen one."""
    rooms = {node.name: room_for(task, node) for node in found}
    best = next(row.total for row in rows if row.node == chosen.name)
    wanted = rooms.get(chosen.name, ROOM_NOW)
    return tuple(
        row.node
        for row in rows
        if row.node != chosen.name and row.total == best and row.scores and rooms.get(row.node) == wanted
    )


SCHEDULED_STATUSES = (TaskStatus.RUNNING, TaskStatus.BOUND, TaskStatus.FAILED, TaskStatus.SUCCEEDED)
COMPLETED = (TaskStatus.FAILED, TaskStatus.SUCCEEDED)


def close_session(session: VolcanoSession) -> None:
    """End a session: call the plugins' close functions, then set the phase of each job."""
    for plugin in session.plugins:
        plugin.on_session_close(session)
    for job in session.jobs.values():
        job.phase = phase_of(session, job)


def phase_of(session: VolcanoSession, job: JobInfo) -> str:
    """The phase that the PodGroup has after the session (getPodGroupPhase)."""
    condition = session.conditions.get(job.uid)
    if job.tasks_with_status(TaskStatus.RUNNING) and condition is not None and condition.type == "Unschedulable":
        return "Unknown"
    scheduled = job.count_with_status(SCHEDULED_STATUSES)
    if job.pod_group is not None and scheduled >= job.pod_group.min_member:
        return "Completed" if scheduled == job.count_with_status(COMPLETED) else "Running"
    return job.phase if job.phase == "Inqueue" else "Pending"


GPU_POLICY = PlacementPolicy()


class VolcanoGpuOwners:
    """Assigns GPUs and MIG instances to placed pods, in the node cache of kube-scheduler's rules. Mutates."""

    def __init__(self) -> None:
        self._node_cache = NodeCache(GPU_POLICY)
        self._pod_classes = PodClasses()
        self._node_numbers: dict[str, int] = {}
        """Pod → number of its node."""

    def apply_node(self, name: str, node: Node | None) -> None:
        """Apply a node that appeared or changed; None if it was deleted."""
        self._node_cache.set_node(name, node)

    def apply_pod(self, pod: Pod) -> None:
        """Apply a changed pod: on a node it gets the GPUs and MIG instances that it names, else it releases its own."""
        if not pod.node or pod.done:
            self.release(pod.key)
        elif self.gpus_of(pod.key) != pod.gpus or self._node_numbers.get(pod.key) != self._node_cache.number(pod.node):
            self.release(pod.key)
            self.assign(pod, pod.bound or pod.created)

    def assign(self, pod: Pod, now: Time) -> AssignedPod:
        """Assign GPUs and MIG instances to a pod: those that it names if they are free, else others."""
        number = self._node_cache.number(pod.node)
        seat = AssignedPod(pod.key, self._pod_classes.of(pod.template), pod.priority, now, pod.gpus, slices=pod.slices)
        self._node_numbers[pod.key] = number
        return self._node_cache.assign(number, seat)

    def release(self, pod: str) -> None:
        """Release a pod's GPUs and MIG instances."""
        number = self._node_numbers.pop(pod, None)
        if number is not None:
            self._node_cache.unassign(number, pod)

    def gpus_of(self, pod: str) -> tuple[int, ...]:
        """Indices of the GPUs assigned to a pod."""
        number = self._node_numbers.get(pod)
        return () if number is None else self._node_cache.nodes[number].pods[pod].gpus

    def mig_instances_of(self, pod: str) -> tuple[MigInstance, ...]:
        """The MIG instances assigned to a pod."""
        number = self._node_numbers.get(pod)
        return () if number is None else self._node_cache.nodes[number].pods[pod].slices

    def free_gpus(self) -> dict[str, tuple[int, ...]]:
        """Indices of the unassigned GPUs, by node."""
        return self._node_cache.free_gpus()

    def count_fitting(self, template: PodTemplate) -> int:
        """How many pods of a template fit now."""
        return self._node_cache.feasibility(self._pod_classes.of(template), template.priority or 0).slots

    def fork(self) -> "VolcanoGpuOwners":
        """An independent copy."""
        copied = VolcanoGpuOwners()
        copied._node_cache, copied._pod_classes, copied._node_numbers = (
            self._node_cache.fork(),
            self._pod_classes,
            self._node_numbers.copy(),
        )
        return copied


EVICTED = "Pod is evicted, because of {}"
SCHEDULED = "Scheduled"
WAITING = (TaskStatus.PENDING, TaskStatus.PIPELINED, TaskStatus.ALLOCATED)


class VolcanoEngineState(Struct, frozen=True, kw_only=True):
    """What an engine keeps between sessions and cannot read from objects; stored in JSON."""

    phases: dict[str, str]
    """Phases of PodGroups without an object, by key."""
    nominations: dict[str, str]
    """Hyper node nominated for each sub-job, by uid."""
    last_runs: dict[str, Time] = field(name="kept")
    """When periodic plugins last ran, by plugin."""
    search_start: int
    """Where the next search for nodes begins."""
    has_changes: bool = field(name="stirred")
    """True if something happened since the last session that may change a decision."""
    phases_lag: bool = field(default=False, name="lagging")
    """True if the last session bound tasks: the next one sees that their PodGroups run."""
    messages: dict[str, str] = field(default_factory=dict, name="said")
    """Last reported message of PodGroups that do not run, by key."""
    last_timer: Time = field(default=0, name="rung")
    """The time of the alarm that was returned last."""


class VolcanoPlacement(SessionPlacement):
    """The Volcano engine: applies objects, and places pods in sessions. Mutates; keeps state between sessions."""

    def __init__(self, policy: VolcanoPolicy) -> None:
        super().__init__()
        self.policy = policy
        self._configuration = read_configuration(policy.conf).configuration
        self._models = parse_mig_config(policy.devices) if policy.devices else ()
        self._store = VolcanoStore(policy.default_queue)
        self._gpus = VolcanoGpuOwners()
        self._nominations: dict[str, str] = {}
        """Sub-job → hyper node where victims were evicted for it."""
        self._last_runs: dict[str, Time] = {}
        self._search_start = 0
        self._phases_lag = False
        """True if the last session bound tasks: the next one sees that their PodGroups run."""
        self._now: Time = 0
        """Time of the last session."""
        self._messages: dict[str, str] = {}
        """Last reported message of PodGroups that do not run."""

    @property
    def has_pending(self) -> bool:
        """True if anything changed since the last session, and pods are pending, phases lag, or shuffle runs."""
        shuffles = "shuffle" in self._configuration.actions
        return self._has_changes and (self._store.has_pending or self._phases_lag or shuffles)

    def apply(self, obj: Object, now: Time) -> None:
        """Apply an object that appeared or changed. Kinds that do not matter to Volcano are ignored."""
        if isinstance(obj, Pod):
            self._gpus.apply_pod(obj)
            mine = self.policy.scheduler in ("", obj.template.scheduler_name)
            obj = with_pod_group(obj) if mine else without_pod_group(obj)
        elif isinstance(obj, Node):
            self._gpus.apply_node(obj.name, obj)
        self._has_changes = self._store.apply(obj) or self._has_changes

    def delete(self, table: str, key: str, now: Time) -> None:
        """Apply the deletion of an object; `table` as in `objects.TABLES`."""
        if table == "pods":
            self._gpus.release(key)
        elif table == "nodes":
            self._gpus.apply_node(key, None)
        self._has_changes = self._store.delete(table, key) or self._has_changes

    def schedule(self, now: Time) -> list[PlacementDecision]:
        """Open a session, run the actions, close it; binds, evictions, nominations and phases are assumed."""
        self._has_changes, self._now = False, now
        cluster = self._store.cluster(now)
        cluster.last_runs, cluster.feature_gates = self._last_runs, self.policy.feature_gates
        cluster.mig_models = self._models
        session = VolcanoSession(self._configuration, cluster, plugins=PLUGINS, search_start=self._search_start)
        for job in session.jobs.values():
            for uid, sub_job in job.sub_jobs.items():
                sub_job.nominated_hyper_node = self._nominations.get(uid, "")
        for name in self._configuration.actions:
            ACTIONS[name](session)
        close_session(session)
        self._search_start, self._phases_lag = session.search_start, bool(session.binds)
        self._next_change = min((wake for wake in session.wake_ups if wake > now), default=None)
        self._nominations = {
            uid: sub_job.nominated_hyper_node
            for job in session.jobs.values()
            for uid, sub_job in job.sub_jobs.items()
            if sub_job.nominated_hyper_node
        }
        return [
            *self._phase_updates(session),
            *self._binds(session, now),
            *self._evictions(session, now),
            *self._message_updates(session),
        ]

    def free_gpus(self) -> dict[str, tuple[int, ...]]:
        """Indices of the unassigned GPUs, by node."""
        return self._gpus.free_gpus()

    def gpus_of(self, pod: str) -> tuple[int, ...]:
        """Indices of the GPUs assigned to a pod; none if it is not on a node."""
        return self._gpus.gpus_of(pod)

    def mig_instances_of(self, pod: str) -> tuple[MigInstance, ...]:
        """The MIG instances assigned to a pod; none if it is not on a node."""
        return self._gpus.mig_instances_of(pod)

    def scores(self, pod: Pod) -> ScoreTable | None:
        """Predicates and scores for a pod as if it were pending now; weighted scores are in hundredths.

        None if its queue does not exist.
        """
        asked = with_pod_group(replace(pod, node="", phase=PodPhase.PENDING, deleted=0, gates=(), nominated_node=""))
        store = self._store.fork()
        store.assume(asked)
        cluster = store.cluster(self._now)
        cluster.last_runs, cluster.feature_gates = dict(self._last_runs), self.policy.feature_gates
        cluster.mig_models = self._models
        session = VolcanoSession(self._configuration, cluster, plugins=PLUGINS, search_start=self._search_start)
        task = next((task for job in session.jobs.values() for task in job.tasks.values() if task.key == pod.key), None)
        return None if task is None else score_table(session, task)

    def largest_gang(self, template: PodTemplate) -> int:
        """How many pods of this template would fit now, all at once, ignoring queues."""
        return self._gpus.count_fitting(template)

    def fork(self) -> "VolcanoPlacement":
        """An independent copy of the engine."""
        copied = VolcanoPlacement.__new__(VolcanoPlacement)
        copied.policy, copied._configuration, copied._models = self.policy, self._configuration, self._models
        copied._store, copied._gpus = self._store.fork(), self._gpus.fork()
        copied._nominations, copied._last_runs = dict(self._nominations), dict(self._last_runs)
        copied._search_start, copied._has_changes = self._search_start, self._has_changes
        copied._messages, copied._next_change, copied._last_timer = (
            dict(self._messages),
            self._next_change,
            self._last_timer,
        )
        copied._phases_lag, copied._now = self._phases_lag, self._now
        return copied

    def dump(self) -> tuple[str, ...]:
        """State that cannot be rebuilt by applying all objects to a new engine."""
        memory = VolcanoEngineState(
            phases=self._store.phases,
            nominations=self._nominations,
            last_runs=self._last_runs,
            search_start=self._search_start,
            has_changes=self._has_changes,
            phases_lag=self._phases_lag,
            messages=self._messages,
            last_timer=self._last_timer,
        )
        return (msgspec.json.encode(memory).decode(),)

    def load(self, memory: tuple[str, ...]) -> None:
        """Restore the state that `dump` returned, after all objects were applied."""
        for text in memory:
            known = msgspec.json.decode(text, type=VolcanoEngineState)
            self._store.phases = dict(known.phases)
            self._nominations, self._last_runs = dict(known.nominations), dict(known.last_runs)
            self._search_start, self._has_changes = known.search_start, known.has_changes
            self._messages, self._last_timer, self._phases_lag = (
                dict(known.messages),
                known.last_timer,
                known.phases_lag,
            )

    def _phase_updates(self, session: VolcanoSession) -> list[PlacementDecision]:
        """Changed phases and conditions of PodGroups that have an object."""
        refused = {job.uid: message for job, message in session.events}
        decisions: list[PlacementDecision] = []
        for job in session.jobs.values():
            condition = session.conditions.get(job.uid)
            message = "" if condition is None or condition.type == SCHEDULED else condition.message
            message = refused.get(job.uid, message)
            changed = self._store.set_phase(job.uid, job.phase)
            if job.uid in self._store.groups and (changed or message != self._messages.get(job.uid, "")):
                decisions.append(SetPhase(job.uid, job.phase, message))
                self._messages[job.uid] = message
        self._messages = {uid: text for uid, text in self._messages.items() if text and uid in session.jobs}
        return decisions

    def _binds(self, session: VolcanoSession, now: Time) -> list[PlacementDecision]:
        decisions: list[PlacementDecision] = []
        for task in session.binds:
            pod = replace(self._store.pods[task.key], node=task.node_name, nominated_node="")
            pod = replace(pod, slices=session.assigned_instances.get(task.key, pod.slices))
            seat = self._gpus.assign(pod, now)
            self._store.assume(replace(pod, gpus=seat.gpus, slices=seat.slices))
            plan = session.assumed_volumes.get(task.key)
            volumes = plan.volumes if plan is not None else ()
            grant = session.claim_allocations.get(task.key)
            devices = tuple(sorted(grant.allocations.items())) if grant is not None else ()
            decisions.append(Bind(task.key, task.node_name, seat.gpus, seat.slices, volumes, devices))
        return decisions

    def _evictions(self, session: VolcanoSession, now: Time) -> list[PlacementDecision]:
        """Evictions; for victims of a gang the preemptor is the first task pipelined to their node."""
        waiting: dict[str, str] = {}
        for job in session.jobs.values():
            for task in sorted(job.tasks_with_status(TaskStatus.PIPELINED).values(), key=lambda task: task.key):
                waiting.setdefault(task.node_name, task.key)
        decisions: list[PlacementDecision] = []
        for evicted in session.evictions:
            task = evicted.task
            by = evicted.by or waiting.get(task.node_name, "")
            self._store.assume(replace(self._store.pods[task.key], deleted=now))
            decisions.append(EvictPod(task.key, by, task.node_name, EVICTED.format(evicted.action), evicted.action))
        return decisions

    def _message_updates(self, session: VolcanoSession) -> list[PlacementDecision]:
        """Changed messages and nominations of pending pods."""
        decisions: list[PlacementDecision] = []
        for job in session.jobs.values():
            waiting = [task for status in WAITING for _, task in sorted(job.tasks_with_status(status).items())]
            whole = job.fit_message if waiting else ""
            for task in waiting:
                pod = self._store.pods[task.key]
                if task.gated:
                    continue
                _, message, nominated = job.task_reason(task.uid)
                message = message or whole
                if nominated and nominated != pod.nominated_node:
                    decisions.append(Nominate(task.key, nominated))
                    pod = replace(pod, nominated_node=nominated)
                if message != pod.message:
                    decisions.append(Unschedulable(task.key, message, group_of(pod) if pod.gang else ""))
                    pod = replace(pod, message=message)
                self._store.assume(pod)
        return decisions
