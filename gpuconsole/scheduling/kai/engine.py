"""KAI's placement engine: each pass opens a session for every shard and runs its actions. Mutates.

`status_updates` gives the messages for unschedulable pods and pod groups (KAI 0.13 cache/status_updater),
`next_time_dependent_change` the next time at which decisions change without an event, and `score_table` the decision
for one pod, as predicates and score bands by node.

Where KAI depends on the order of a Go map, the first by name wins. KAI leaves the choice of whole GPUs to the device
plugin: here a pod gets GPUs close to each other (`choose_gpus`). A pod that shares gets its group's GPU.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import Bind, EvictPod, MarkGroup, PlacementDecision, Unschedulable
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.kai import NODE_POOL_LABEL, UNSCHEDULABLE_ON_NODE_POOL, KaiPodGroup, SchedulingShard
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.scheduling.devices.gpu_allocation import choose_gpus
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo, is_node_ready, node_matches_selector, untolerated_taint
from gpuconsole.scheduling.kai.api.tasks import (
    ALLOCATED,
    DEFAULT_POD_SET,
    KaiPodStatus,
    PodInfo,
    fits_whole_devices,
    fits_without_gpus,
)
from gpuconsole.scheduling.kai.cluster_info import allocated_claims, group_of, template_task
from gpuconsole.scheduling.kai.config import KaiConfiguration, KaiPolicy, UsagePolicy, parse_configuration
from gpuconsole.scheduling.kai.fair_share.division import (
    Quantities,
    UsageHistory,
    UsageInterval,
    add,
    quantities,
    requested_quantities,
    total_resources,
)
from gpuconsole.scheduling.kai.functions import NodeSet, NoSuitableNodes
from gpuconsole.scheduling.kai.messages import (
    UNABLE_TO_SCHEDULE,
    UNABLE_TO_SCHEDULE_POD,
    NodeError,
    node_misfit,
    summarise_errors,
)
from gpuconsole.scheduling.kai.plugins.ordering import queue_path
from gpuconsole.scheduling.kai.plugins.predicates import PREDICATES
from gpuconsole.scheduling.kai.session import BoundTask, EvictedTask, KaiSession, value_range
from gpuconsole.scheduling.kai.store import KaiStore, configuration_of, flags_of, handles, run_actions
from gpuconsole.scheduling.placement import FilterColumn, NodeRow, NodeScore, ScoreColumn, ScoreTable, SessionPlacement

RESOURCES, TOPOLOGY = "NodeResources", "Topology"
COLUMNS = (RESOURCES, *PREDICATES, TOPOLOGY)
NO_GPU_TO_SHARE = "node(s) didn't have enough resources: GPUs"
NO_DOMAIN = "no domain of the topology that takes the group has the node"
SCORE_FACTOR = 100
"""Hundredths: factor of the scores in a score table, because the density score is a fraction."""


def score_table(session: KaiSession, task: PodInfo) -> ScoreTable:
    """Show the decision for a task as if it were pending: predicates and score bands by node; takes it off its node."""
    job = session.jobs[task.job]
    if task.node:
        session.nodes[task.node].remove_task(task.uid)
        job.update_status(task, KaiPodStatus.PENDING)
        task.node, task.groups = "", ()
    refusal = session.prefilter_refusal(task, job)
    nodes = _nodes_for(session, job, task)
    bands = _bands(session)
    spans = _measure_ranges(session, task, nodes)
    inside = {node.name for node in nodes}
    rows = {
        node.name: _node_row(session, task, job, node, (bands, spans), node.name in inside)
        for node in session.all_nodes
    }
    ranked = [] if refusal else [node.name for node in session.ranking(task, nodes).nodes_in_order()]
    fitting = [name for name in ranked if rows[name].fits]
    if fitting:
        rows[fitting[0]] = replace(rows[fitting[0]], chosen=True)
    return ScoreTable(
        pod=task.uid,
        scheduler=session.parameters.scheduler_name,
        filters=tuple(FilterColumn(name) for name in COLUMNS),
        plugins=tuple(ScoreColumn(name, band) for name, band in bands.items()),
        rows=tuple(rows[name] for name in dict.fromkeys([*fitting, *rows])),
        ties=tuple(name for name in fitting[1:] if rows[name].total == rows[fitting[0]].total),
        message="" if fitting else refusal or _message(session, task, job, nodes),
    )


def _bands(session: KaiSession) -> dict[str, int]:
    """Plugins and their score bands, the highest first."""
    bands = {scorer.plugin: scorer.band for scorer in session.functions.node_order}
    bands.update((measure.plugin, measure.band) for measure in session.functions.relative_scores)
    return dict(sorted(bands.items(), key=lambda item: -item[1]))


def _measure_ranges(session: KaiSession, task: PodInfo, nodes: NodeSet) -> list[tuple[float, float]]:
    measured = ([m.measure(task, node) for node in nodes] for m in session.functions.relative_scores)
    return [value_range([value for value in values if value is not None]) for values in measured]


def _nodes_for(session: KaiSession, job: PodGroupInfo, task: PodInfo) -> NodeSet:
    """Nodes of the first domain that fits the task's group; all nodes without a topology constraint."""
    for prepare in session.functions.on_job_placement_start:
        prepare(job)
    groups: list[SubGroup | PodSetInfo] = [job.pod_sets[task.set_name]]
    while (above := groups[-1].parent) is not None:
        groups.append(above)
    nodes = session.all_nodes
    for group in reversed(groups):
        try:
            found = session.subset_nodes(job, group, job.pod_sets, [task], nodes)
        except NoSuitableNodes:
            return []
        nodes = found[0] if found else []
    return nodes


BandsAndRanges = tuple[Mapping[str, int], Sequence[tuple[float, float]]]
"""(score band by plugin, (lowest, highest) value of each measure)."""


def _node_row(
    session: KaiSession, task: PodInfo, job: PodGroupInfo, node: KaiNodeInfo, ranges: BandsAndRanges, inside: bool
) -> NodeRow:
    errors: dict[str, NodeError] = {}
    if not node.is_allocatable_or_pipelinable(task):
        lack = node_misfit(task, node, False)
        errors[RESOURCES] = lack if lack is not None else NodeError((NO_GPU_TO_SHARE,))
    for ask in session.functions.all_predicate_errors:
        for name, error in ask(task, job, node):
            errors.setdefault(name, error)
    if not inside:
        errors[TOPOLOGY] = NodeError((NO_DOMAIN,))
    verdicts = tuple(", ".join(errors[name].reasons) if name in errors else "" for name in COLUMNS)
    scores = () if errors else _scores(session, task, node, ranges)
    return NodeRow(node=node.name, verdicts=verdicts, scores=scores, total=sum(score.weighted for score in scores))


def _scores(session: KaiSession, task: PodInfo, node: KaiNodeInfo, ranges: BandsAndRanges) -> tuple[NodeScore, ...]:
    bands, spans = ranges
    given = dict.fromkeys(bands, 0.0)
    for scorer in session.functions.node_order:
        given[scorer.plugin] += scorer.score(task, node)
    for measure, reach in zip(session.functions.relative_scores, spans, strict=True):
        given[measure.plugin] += measure.score(measure.measure(task, node), *reach)
    return tuple(
        NodeScore(round(score), round(score * 100 / bands[name]), round(score * SCORE_FACTOR))
        for name, score in given.items()
    )


def _message(session: KaiSession, task: PodInfo, job: PodGroupInfo, nodes: NodeSet) -> str:
    """The message that KAI would write to the pod if no node fits it."""
    job.task_errors.pop(task.uid, None)
    for node in nodes:
        session.fits_node(task, node, True)
    errors = job.task_errors.get(task.uid)
    if errors is not None:
        return errors.message
    return summarise_errors(job.errors) if job.errors else UNABLE_TO_SCHEDULE_POD


DEFAULT_NODE_POOL = "default"


def status_updates(
    job: PodGroupInfo, pods: Mapping[str, Pod], group: KaiPodGroup | None, pool: str
) -> list[PlacementDecision]:
    """The decisions that set new messages on the job's pending pods and its PodGroup; unchanged ones are left out."""
    waiting = [task for task in job.tasks() if task.status in (KaiPodStatus.PENDING, KaiPodStatus.GATED)]
    if not waiting:
        return _pod_group_update(group, "", job) if group is not None and job.active_allocated_tasks else []
    prefix = f"Node-Pool '{pool or DEFAULT_NODE_POOL}': " if group is not None and group.backoff == 1 else ""
    story = prefix + (pod_group_message(job) if job.is_ready else not_ready_message(job))
    texts = group is None or group.mark_unschedulable is not False
    said: list[PlacementDecision] = []
    for task in waiting:
        pod = pods[task.uid]
        text = prefix + pod_message(job, task) if job.is_ready else story
        if texts and task.status is KaiPodStatus.PENDING and pod.message != text:
            said.append(Unschedulable(task.uid, text, pod.gang, story))
    if group is not None and job.is_ready and not job.active_allocated_tasks:
        said += _pod_group_update(group, story, job)
    return said


def pod_message(job: PodGroupInfo, task: PodInfo) -> str:
    """The message of a pending pod: why nodes do not fit it, else why its group was not placed."""
    errors = job.task_errors.get(task.uid)
    if errors is not None:
        return errors.message
    return summarise_errors(job.errors) if job.errors else UNABLE_TO_SCHEDULE_POD


def pod_group_message(job: PodGroupInfo) -> str:
    """The message of a pending pod group: why it was not placed."""
    return summarise_errors(job.errors) if job.errors else UNABLE_TO_SCHEDULE


def not_ready_message(job: PodGroupInfo) -> str:
    """The message of a pod group with too few pods: how many each pod set has and needs."""
    text = "Job is not ready for scheduling."
    for name, pod_set in sorted(job.pod_sets.items()):
        if pod_set.is_ready:
            continue
        counts = f"currently {pod_set.alive_tasks} exist, {pod_set.gated_tasks} are gated"
        if name == DEFAULT_POD_SET:
            text += f" Waiting for {pod_set.minimum} pods, {counts}"
        else:
            text += f" Waiting for {pod_set.minimum} pods for SubGroup {name}, {counts}."
    return text


def _pod_group_update(group: KaiPodGroup, text: str, job: PodGroupInfo) -> list[PlacementDecision]:
    known = next((c.message for c in group.conditions if c.type == UNSCHEDULABLE_ON_NODE_POOL), "")
    if known == text:
        return []
    return [MarkGroup(group.key, text, tuple((e.reason, ", ".join(e.messages)) for e in job.errors) if text else ())]


def next_time_dependent_change(session: KaiSession) -> Time | None:
    """When a stale gang's grace period or (with pending jobs) a queue's minimum runtime ends next; None if never."""
    waiting = any(job.pending_tasks for job in session.jobs.values())
    moments = (moment for job in session.jobs.values() for moment in _change_times(session, job, waiting))
    return min((moment for moment in moments if moment > session.now), default=None)


def _change_times(session: KaiSession, job: PodGroupInfo, waiting: bool) -> Iterator[Time]:
    grace = session.parameters.staleness_grace
    if job.stale_since is not None and grace >= 0:
        yield job.stale_since + grace
    if waiting and job.started is not None:
        for runtime in _minimum_runtimes(session, job):
            yield job.started + runtime


def _minimum_runtimes(session: KaiSession, job: PodGroupInfo) -> Iterator[Span]:
    """The minimum runtimes of the job's queue and of those above it."""
    queue = session.queues.get(job.queue)
    for above in queue_path(session.queues, queue) if queue is not None else ():
        for runtime in (above.preempt_min_runtime, above.reclaim_min_runtime):
            if runtime is not None:
                yield runtime


MAX_PODS = 1_000_000
"""The number of pods that stands for no limit."""


def count_fitting_pods(node: KaiNodeInfo, task: PodInfo) -> int:
    """How many such pods could start on the node now, all at once, ignoring queues."""
    if (
        not is_node_ready(node.node)
        or untolerated_taint(task.spec, node.node)
        or not node_matches_selector(task.spec, node.node)
    ):
        return 0
    if not node.is_valid_portion(task.request):
        return 0
    by_gpus = _count_by_gpu_portions(node, task) if task.is_fractional else MAX_PODS
    free, count = node.idle.copy(), 0
    while count < by_gpus and (fits_without_gpus if task.is_fractional else fits_whole_devices)(free, task.request):
        free.add_request(task.request, -1)
        count += 1
    return count


def _count_by_gpu_portions(node: KaiNodeInfo, task: PodInfo) -> int:
    """Pods that fit by GPU portions: on GPUs already shared, and on idle ones."""
    each = node.memory_of(task.request)
    rests = [node.gpu_memory - memory for memory in node.shared.allocated.values() if memory > 0]
    rests += [node.gpu_memory] * int(node.idle.gpus)
    return sum(rest // each for rest in rests) // max(1, task.request.count) if each else 0


class KaiEngineState(Struct, frozen=True):
    """What an engine keeps between sessions and cannot read from objects."""

    stale: dict[str, Time]
    """Since when a gang is stale, by uid of its job."""
    has_changes: bool = field(name="stirred")
    """True if something happened since the last session that may change a decision."""
    next_change: Time | None = field(name="alarm")
    """When time alone will change a decision, without an event; None if never."""
    last_timer: Time = field(name="rung")
    """The time of the alarm that was returned last."""
    usage: list[UsageInterval]
    """Allocations of the usage window, for fair shares by past usage."""


class KaiPlacement(SessionPlacement):
    """The KAI engine: applies objects, and places pods in sessions, one for each shard. Mutates; keeps state."""

    def __init__(self, policy: KaiPolicy) -> None:
        super().__init__()
        self.policy = policy
        self._configuration = parse_configuration(policy.conf) if policy.conf else KaiConfiguration()
        self._store = KaiStore()
        self._stale: dict[str, Time] = {}
        self._usage = _usage_history(policy.usage)
        self._eviction_counts: dict[str, int] = {}
        """Preemptor pod → number of its victims in this pass."""

    @property
    def has_pending(self) -> bool:
        """True if a pod is pending or a gang is stale, and anything changed since the last session."""
        return self._has_changes and (bool(self._stale) or self._store.has_pending)

    def apply(self, obj: Object, now: Time) -> None:
        """Apply an object that appeared or changed. Kinds that do not matter to KAI are ignored."""
        self._has_changes = self._store.apply(obj) or self._has_changes

    def delete(self, table: str, key: str, now: Time) -> None:
        """Apply the deletion of an object; `table` as in `objects.TABLES`."""
        self._has_changes = self._store.delete(table, key) or self._has_changes

    def schedule(self, now: Time) -> list[PlacementDecision]:
        """Open a session for each shard and run its actions; binds and evictions are assumed."""
        self._has_changes = False
        said: list[PlacementDecision] = []
        words: list[PlacementDecision] = []
        stale: dict[str, Time] = {}
        sessions: list[KaiSession] = []
        self._eviction_counts = {}
        for shard in self._shards():
            session = self._session(now, shard)
            groups: dict[tuple[str, str], int] = {}
            for decision in run_actions(session):
                match decision:
                    case BoundTask(task):
                        said.append(self._bind(task, now, groups, session))
                    case EvictedTask():
                        said.append(self._evict(decision, now, session))
                    case _:
                        pass
            stale |= {uid: job.stale_since for uid, job in session.jobs.items() if job.stale_since is not None}
            words += self._status_updates(session)
            sessions.append(session)
        self._stale = stale
        self._next_change = min(
            (at for session in sessions if (at := next_time_dependent_change(session)) is not None), default=None
        )
        self._record_usage(now, sessions)
        return [*said, *words, *self._report_unhandled_pods()]

    def _shards(self) -> Sequence[SchedulingShard | None]:
        """The shards in order, each a separate scheduler; without any, one scheduler sees everything."""
        return [shard for _, shard in sorted(self._store.shards.items())] or [None]

    def _session(self, now: Time, shard: SchedulingShard | None) -> KaiSession:
        usage = self._usage.usage(now) if self._usage else {}
        if shard is None:
            return self._store.new_session(now, self.policy, self._configuration, self._stale, usage)
        policy = replace(self.policy, parameters=flags_of(shard, self.policy.parameters))
        return self._store.new_session(now, policy, configuration_of(shard), self._stale, usage, shard.partition)

    def _report_unhandled_pods(self) -> list[PlacementDecision]:
        """Report, once, pods whose pod group belongs to no shard, so that no scheduler handles them."""
        store = self._store
        partitions = {shard.partition for shard in store.shards.values()}
        said: list[PlacementDecision] = []
        for pod in [pod for _, pod in sorted(store.pods.items())] if partitions else ():
            labels = store.pool_labels(pod, group_of(pod))
            if pod.node or pod.done or pod.deleted or any(handles(one, labels) for one in partitions):
                continue
            value = labels.get(NODE_POOL_LABEL, "")
            text = f"no SchedulingShard has the partitionLabelValue {value!r}: no scheduler looks at the pod group"
            if pod.message != text:
                store.pods[pod.key] = replace(pod, message=text)
                said.append(Unschedulable(pod.key, text, pod.gang, text))
        return said

    def _bind(self, task: PodInfo, now: Time, groups: dict[tuple[str, str], int], session: KaiSession) -> Bind:
        """Choose the task's GPUs: those of its sharing groups, else free ones close to each other."""
        free = self._store.gpu_owners.free_gpus_on(task.node)
        if task.groups:
            for group in task.groups:
                if (task.node, group) not in groups:
                    groups[(task.node, group)] = int(group) if group.isdigit() else free.pop(0)
            gpus = tuple(sorted(groups[(task.node, group)] for group in task.groups))
        else:
            gpus = choose_gpus(self._store.nodes.get(task.node), tuple(free), int(task.accepted_request.gpus))
        self._store.gpu_owners.assign(task.uid, task.node, gpus)
        pod = self._store.pods[task.uid]
        slices = self._store.mig_instances_for(pod, task.node)
        self._store.pods[task.uid] = replace(
            pod, node=task.node, gpus=gpus, slices=slices, bound=now, message="", nominated_node=""
        )
        plan = session.assumed_volumes.get(task.uid)
        volumes = plan.volumes if plan is not None else ()
        return Bind(task.uid, task.node, gpus, slices, volumes, allocated_claims(session.claims, task))

    def _evict(self, evicted: EvictedTask, now: Time, session: KaiSession) -> EvictPod:
        """Evict a victim; the preemptor is a pod of the preempting job, on the same node if possible."""
        uid = evicted.task.uid
        pod = self._store.pods[uid]
        self._store.pods[uid] = replace(pod, deleted=now)
        there = sorted(
            (task.node != pod.node, self._eviction_counts.get(task.uid, 0), task.uid)
            for job in session.jobs.values()
            if f"{job.namespace}/{job.name}" == evicted.by
            for task in job.tasks()
            if task.status is KaiPodStatus.PIPELINED
        )
        by = there[0][2] if there else ""
        self._eviction_counts[by] = self._eviction_counts.get(by, 0) + 1
        return EvictPod(uid, by, pod.node, evicted.message, evicted.action)

    def _status_updates(self, session: KaiSession) -> list[PlacementDecision]:
        """New messages about why pods and pod groups are pending."""
        store, pool = self._store, session.parameters.node_pool
        said = [
            word
            for job in session.jobs.values()
            for word in status_updates(job, store.pods, store.groups.get(job.uid), pool)
        ]
        for word in said:
            if isinstance(word, Unschedulable):
                store.pods[word.pod] = replace(store.pods[word.pod], message=word.message)
        return said

    def _record_usage(self, now: Time, sessions: Sequence[KaiSession]) -> None:
        if self._usage is not None:
            held, total = dict[str, Quantities](), quantities()
            for session in sessions:
                held |= {uid: quantities() for uid in session.queues}
                for job in session.jobs.values():
                    _add_allocation(held, job, session)
                total = add(total, total_resources(session.nodes.values(), session.parameters))
            self._usage.record(now, held, total)

    def free_gpus(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the unassigned GPUs, by node."""
        return self._store.gpu_owners.free_gpus()

    def gpus_of(self, pod: str) -> tuple[int, ...]:
        """Indices of the GPUs assigned to a pod; none if it is not on a node."""
        return self._store.gpu_owners.gpus_of(pod)

    def mig_instances_of(self, pod: str) -> tuple[MigInstance, ...]:
        """The MIG instances assigned to a pod; none if it is not on a node."""
        known = self._store.pods.get(pod)
        return known.slices if known is not None and known.node else ()

    def scores(self, pod: Pod) -> ScoreTable | None:
        """KAI's predicates and score bands for a pod as if it were pending; None if no shard handles it.

        Scores are in hundredths.
        """
        store = self._store if pod.key in self._store.pods else self._store.fork()
        if pod.key not in store.pods:
            store.apply(pod)
        for shard in self._shards():
            session = self._query_session(store, shard)
            task = next((task for job in session.jobs.values() for task in job.tasks() if task.uid == pod.key), None)
            if task is not None:
                return score_table(session, task)
        return None

    def _query_session(self, store: KaiStore, shard: SchedulingShard | None) -> KaiSession:
        """A session outside of simulated time, for queries."""
        if shard is None:
            return store.new_session(0, self.policy, self._configuration, {}, {})
        policy = replace(self.policy, parameters=flags_of(shard, self.policy.parameters))
        return store.new_session(0, policy, configuration_of(shard), {}, {}, shard.partition)

    def largest_gang(self, template: PodTemplate) -> int:
        """How many pods of this template would fit now, all at once, ignoring queues."""
        task = template_task(template, 0, self.policy.parameters.scheduler_name)
        seen = (shard for shard in self._shards() if shard is None or handles(shard.partition, template.labels))
        return sum(count_fitting_pods(node, task) for shard in seen for node in self._session(0, shard).nodes.values())

    def fork(self) -> "KaiPlacement":
        """An independent copy of the engine."""
        copied = KaiPlacement.__new__(KaiPlacement)
        copied.policy, copied._configuration = self.policy, self._configuration
        copied._store, copied._stale = self._store.fork(), dict(self._stale)
        copied._usage = self._usage.fork() if self._usage else None
        copied._has_changes, copied._eviction_counts = self._has_changes, {}
        copied._next_change, copied._last_timer = self._next_change, self._last_timer
        return copied

    def dump(self) -> tuple[str, ...]:
        """State that cannot be rebuilt by applying all objects to a new engine."""
        pages = self._usage.dump() if self._usage else []
        memory = KaiEngineState(self._stale, self._has_changes, self._next_change, self._last_timer, pages)
        return (msgspec.json.encode(memory).decode(),)

    def load(self, memory: tuple[str, ...]) -> None:
        """Restore the state that `dump` returned, after all objects were applied."""
        for text in memory:
            known = msgspec.json.decode(text, type=KaiEngineState)
            self._stale, self._has_changes = dict(known.stale), known.has_changes
            self._next_change, self._last_timer = known.next_change, known.last_timer
            if self._usage is not None:
                self._usage.load(known.usage)


def _usage_history(policy: UsagePolicy | None) -> UsageHistory | None:
    return None if policy is None else UsageHistory(policy.window, policy.half_life)


def _add_allocation(held: dict[str, Quantities], job: PodGroupInfo, session: KaiSession) -> None:
    """Add the job's allocation to its queue and the queues above."""
    for task in job.tasks():
        if task.status in ALLOCATED:
            queue = session.queues.get(job.queue)
            while queue is not None:
                held[queue.uid] = add(held[queue.uid], requested_quantities(task.accepted_request))
                queue = session.queues.get(queue.parent)
