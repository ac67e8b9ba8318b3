"""Objects relevant to KAI, and GPU owners, from which every session is built.

`KaiStore.new_session` converts the objects and opens a session: plugins of the configured tiers register their
functions. `run_actions` runs it (KAI 0.13 framework).

SchedulingShards are separate KAI schedulers for the nodes, queues and pod groups with a shard's label value.
KAI-Scheduler 0.14: pkg/apis/kai/v1 (SetDefaultsWhereNeeded), pkg/operator/operands/scheduler (the configuration that
the operator writes), pkg/scheduler/conf SchedulingNodePoolParams (which objects a scheduler sees).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod, PriorityClass
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.kai import NODE_POOL_LABEL, SPREAD, KaiPodGroup, KaiQueue, SchedulingShard, ShardSetting
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import Topology
from gpuconsole.scheduling.devices.gpu_allocation import assign_mig_instances, choose_gpus
from gpuconsole.scheduling.kai import cluster_info
from gpuconsole.scheduling.kai.actions import ACTIONS
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, TopologyInfo
from gpuconsole.scheduling.kai.api.nodes import DEFAULT_GPU_MEMORY, KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import ACTIVE_USED, DEFAULT_POD_SET, KaiPodStatus, PodInfo, ResourceAmounts
from gpuconsole.scheduling.kai.cluster_info import InventoryClaimIndex, published_gpus, queues_of
from gpuconsole.scheduling.kai.config import (
    DEFAULT_ACTIONS,
    InvalidArgument,
    KaiConfiguration,
    KaiPluginArguments,
    KaiPluginOption,
    KaiPolicy,
    SchedulerFlags,
    Tier,
)
from gpuconsole.scheduling.kai.config import parse_duration as span_of
from gpuconsole.scheduling.kai.messages import NO_QUEUE, JobError
from gpuconsole.scheduling.kai.plugins import PLUGINS
from gpuconsole.scheduling.kai.session import Decision, KaiSession
from gpuconsole.scheduling.kube.volumes import ClaimsAndVolumes

PLUGIN_PRIORITIES = {
    name: 100 * rank
    for rank, name in enumerate(
        (
            *("gpusharingorder", "nodeplacement", "gpupack", "snapshot", "topology", "minruntime", "dynamicresources"),
            *("nominatednode", "taskorder", "subgrouporder", "ray", "kubeflow", "elastic", "podaffinity"),
            *("resourcetype", "nodeavailability", "priority", "proportion", "predicates"),
        ),
        start=1,
    )
}
"""Plugin → priority; those of higher priority come first. gpuspread has that of gpupack."""
ACTION_PRIORITIES = {name: 100 * (len(DEFAULT_ACTIONS) - place) for place, name in enumerate(DEFAULT_ACTIONS)}


def handles(partition: str, labels: Mapping[str, str]) -> bool:
    """True if a shard's scheduler handles the object: by label value, or without the label if the shard has none."""
    return labels.get(NODE_POOL_LABEL) == partition if partition else NODE_POOL_LABEL not in labels


def configuration_of(shard: SchedulingShard) -> KaiConfiguration:
    """The scheduler configuration that KAI's operator writes for a shard."""
    packs = shard.gpu_strategy != SPREAD
    plugins = {name: _Choice(priority=priority) for name, priority in PLUGIN_PRIORITIES.items()}
    plugins["gpuspread"] = _Choice(priority=PLUGIN_PRIORITIES["gpupack"], enabled=not packs)
    plugins["gpupack"].enabled = plugins["gpusharingorder"].enabled = packs
    if shard.k_value is not None:
        plugins["proportion"].arguments = {"kValue": repr(shard.k_value)}
    least = {
        "defaultPreemptMinRuntime": shard.preempt_min_runtime,
        "defaultReclaimMinRuntime": shard.reclaim_min_runtime,
    }
    plugins["minruntime"].arguments = {name: text for name, text in least.items() if text}
    plugins["nodeplacement"].arguments = {"gpu": shard.gpu_strategy, "cpu": shard.cpu_strategy}
    actions = {name: _Choice(priority=priority) for name, priority in ACTION_PRIORITIES.items()}
    actions["consolidation"].enabled = SPREAD not in (shard.gpu_strategy, shard.cpu_strategy)
    chosen = [name for name in _enabled_names(actions, shard.action_settings) if name in DEFAULT_ACTIONS]
    options = [_option(name, plugins) for name in _enabled_names(plugins, shard.plugin_settings)]
    return KaiConfiguration(actions=tuple(chosen), tiers=(Tier(tuple(options)),), queue_depth=shard.queue_depth)


class _Choice:
    """Settings of a plugin or an action: whether it is enabled, its priority and arguments. Mutates."""

    def __init__(self, *, priority: int, enabled: bool = True) -> None:
        self.priority = priority
        self.enabled = enabled
        self.arguments: Mapping[str, str] = {}


def _enabled_names(choices: dict[str, _Choice], settings: Mapping[str, ShardSetting]) -> Iterable[str]:
    """Apply a shard's own settings to the choices; returns the names of the enabled ones in order."""
    for name, setting in settings.items():
        choice = choices.setdefault(name, _Choice(priority=0))
        choice.enabled = choice.enabled if setting.enabled is None else setting.enabled
        choice.priority = choice.priority if setting.priority is None else setting.priority
        choice.arguments = choice.arguments if setting.arguments is None else setting.arguments
    running = [name for name, choice in choices.items() if choice.enabled]
    return sorted(running, key=lambda name: (-choices[name].priority, name))


def _option(name: str, choices: Mapping[str, _Choice]) -> KaiPluginOption:
    """A plugin with its arguments; without them if the plugin cannot read them."""
    arguments = choices[name].arguments
    try:
        if name in PLUGINS:
            PLUGINS[name](KaiPluginArguments(dict(arguments)))
    except InvalidArgument:
        arguments = {}
    return KaiPluginOption(name=name, arguments=arguments)


def flags_of(shard: SchedulingShard, base: SchedulerFlags) -> SchedulerFlags:
    """The flags of a shard's scheduler: `base`, its node pool, and those of its `args` that are known here.

    Values that cannot be read are ignored.
    """
    settings = KaiPluginArguments(dict(shard.args))
    parameters = replace(base, node_pool=shard.partition)
    for flag, change in _FLAGS.items():
        if flag in shard.args:
            try:
                parameters = replace(parameters, **change(settings, flag))
            except InvalidArgument:
                continue
    return parameters


def _staleness_grace(settings: KaiPluginArguments, flag: str) -> dict[str, int]:
    """The grace period for stale gangs; a negative one is unlimited."""
    text = settings.text(flag)
    found = span_of(text.removeprefix("-"))
    if found is None:
        raise InvalidArgument(f"{flag}: {text!r} is not a duration")
    return {"staleness_grace": -found if text.startswith("-") else found}


_FLAGS: Mapping[str, Callable[[KaiPluginArguments, str], dict[str, Any]]] = {
    "restrict-node-scheduling": lambda settings, flag: {"restrict_nodes": settings.flag(flag, default=False)},
    "max-consolidation-preemptees": lambda settings, flag: {"max_consolidation_victims": settings.integer(flag, 0)},
    "allow-consolidating-reclaim": lambda settings, flag: {"consolidating_reclaim": settings.flag(flag, default=True)},
    "use-scheduling-signatures": lambda settings, flag: {"signatures": settings.flag(flag, default=True)},
    "default-staleness-grace-period": _staleness_grace,
    "queue-label-key": lambda settings, flag: {"queue_label": settings.text(flag)},
}


class KaiGpuOwners:
    """Which GPUs of its node each placed pod has; a shared GPU has several owners. Mutates."""

    def __init__(self) -> None:
        self._gpu_counts: dict[str, int] = {}
        self._nodes: dict[str, str] = {}
        self._gpus: dict[str, tuple[int, ...]] = {}
        self._owners: dict[str, dict[int, int]] = {}
        """Node → index → how many pods own it."""

    def set_gpu_count(self, node: str, gpus: int | None) -> None:
        """Set a node's GPU count; None if the node was deleted."""
        if gpus is None:
            self._gpu_counts.pop(node, None)
        else:
            self._gpu_counts[node] = gpus

    def assign(self, pod: str, node: str, gpus: Iterable[int]) -> None:
        """Assign exactly these GPUs of the node to the pod."""
        self.release(pod)
        self._nodes[pod], self._gpus[pod] = node, tuple(gpus)
        owners = self._owners.setdefault(node, {})
        for gpu in self._gpus[pod]:
            owners[gpu] = owners.get(gpu, 0) + 1

    def release(self, pod: str) -> None:
        """Release all GPUs of the pod."""
        node = self._nodes.pop(pod, None)
        for gpu in self._gpus.pop(pod, ()):
            owners = self._owners[node or ""]
            owners[gpu] -= 1
            if not owners[gpu]:
                del owners[gpu]

    def gpus_of(self, pod: str) -> tuple[int, ...]:
        """Indices of the pod's GPUs; none if it is not placed."""
        return self._gpus.get(pod, ())

    def node_of(self, pod: str) -> str:
        """Name of the pod's node; empty if it has none."""
        return self._nodes.get(pod, "")

    def free_gpus_on(self, node: str) -> list[int]:
        """Indices of unassigned GPUs, in rising order."""
        owners = self._owners.get(node, {})
        return [gpu for gpu in range(self._gpu_counts.get(node, 0)) if gpu not in owners]

    def free_gpus(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of unassigned GPUs by node."""
        return {node: tuple(self.free_gpus_on(node)) for node in self._gpu_counts}

    def fork(self) -> "KaiGpuOwners":
        """An independent copy."""
        copied = KaiGpuOwners()
        copied._gpu_counts, copied._nodes, copied._gpus = dict(self._gpu_counts), dict(self._nodes), dict(self._gpus)
        copied._owners = {node: dict(owners) for node, owners in self._owners.items()}
        return copied


def open_plugins(session: KaiSession, skipped: Collection[str] = ()) -> None:
    """Let every configured plugin, except `skipped` ones, register its functions with the session."""
    for tier in session.configuration.tiers:
        for option in tier.plugins:
            make = PLUGINS.get(option.name)
            if make is not None and option.name not in skipped:
                make(option.as_strings).open(session)


def run_actions(session: KaiSession) -> list[Decision]:
    """Run the configured actions; returns their decisions in order."""
    for name in session.configuration.actions:
        ACTIONS[name](session)
    return session.decisions


class KaiStore:
    """The last known objects that sessions are built from, and the GPU owners. Mutates."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.gpu_owners = KaiGpuOwners()
        self.shards: dict[str, SchedulingShard] = {}
        self._queues: dict[str, KaiQueue] = {}
        self.groups: dict[str, KaiPodGroup] = {}
        self._classes: dict[str, PriorityClass] = {}
        self._topologies: dict[str, Topology] = {}
        self._claims = ClaimsAndVolumes()
        self._tasks: dict[str, tuple[Pod, PodInfo]] = {}
        """Pod → the task made from it, which sessions clone."""
        self._allocatables: dict[str, tuple[Node, ResourceAmounts]] = {}

    @property
    def has_pending(self) -> bool:
        """True if a pod is pending and not gated."""
        return any(not (pod.node or pod.done or pod.deleted or pod.gates) for pod in self.pods.values())

    def apply(self, obj: Object) -> bool:
        """Apply an object that appeared or changed; True if that may change decisions."""
        match obj:
            case Pod():
                return self._apply_pod(obj)
            case Node():
                news = self.nodes.get(obj.name) != obj
                self.nodes[obj.name] = obj
                self._allocatable(obj)
                self.gpu_owners.set_gpu_count(obj.name, obj.gpus)
                return news
            case KaiQueue():
                self._queues[obj.name] = obj
                return True
            case SchedulingShard():
                self.shards[obj.name] = obj
                return True
            case KaiPodGroup():
                return self._apply_pod_group(obj)
            case PriorityClass():
                self._classes[obj.name] = obj
                return True
            case Topology():
                self._topologies[obj.name] = obj
                return True
            case _:
                return self._claims.apply_object(obj)

    def _apply_pod(self, pod: Pod) -> bool:
        """Apply a pod; changes that the engine decided itself are not reported."""
        known = self.pods.get(pod.key)
        if pod.done or not pod.node:
            self.gpu_owners.release(pod.key)
        elif (self.gpu_owners.node_of(pod.key), self.gpu_owners.gpus_of(pod.key)) != (pod.node, pod.gpus):
            self.gpu_owners.release(pod.key)
            self.gpu_owners.assign(pod.key, pod.node, pod.gpus or self._closest_free_gpus(pod))
        if pod.node and not pod.done:
            pod = replace(
                pod, gpus=self.gpu_owners.gpus_of(pod.key), slices=pod.slices or self.mig_instances_for(pod, pod.node)
            )
        self.pods[pod.key] = pod
        return known is None or _pod_state(known) != _pod_state(pod)

    def _apply_pod_group(self, group: KaiPodGroup) -> bool:
        """Apply a pod group; conditions written by the engine itself are not reported."""
        known = self.groups.get(group.key)
        self.groups[group.key] = group
        return known is None or replace(known, conditions=()) != replace(group, conditions=())

    def mig_instances_for(self, pod: Pod, name: str) -> tuple[MigInstance, ...]:
        """The MIG instances that a pod gets on a node; none on an unknown node."""
        node = self.nodes.get(name)
        return () if node is None else assign_mig_instances(node, pod.template.requests, self.pods.values())

    def _closest_free_gpus(self, pod: Pod) -> tuple[int, ...]:
        request, _ = cluster_info.request_of(pod)
        return choose_gpus(self.nodes.get(pod.node), tuple(self.gpu_owners.free_gpus_on(pod.node)), request.count)

    def delete(self, table: str, key: str) -> bool:
        """Apply the deletion of an object; True if it was known."""
        known: Mapping[str, dict[str, Any]] = {
            "pods": self.pods,
            "nodes": self.nodes,
            "scheduling_shards": self.shards,
            "kai_queues": self._queues,
            "kai_pod_groups": self.groups,
            "priority_classes": self._classes,
            "topologies": self._topologies,
        }
        if table == "pods":
            self.gpu_owners.release(key)
            self._tasks.pop(key, None)
        elif table == "nodes":
            self.gpu_owners.set_gpu_count(key, None)
            self._allocatables.pop(key, None)
        if table not in known:
            return self._claims.delete_object(table, key)
        return known[table].pop(key, None) is not None

    def new_session(
        self,
        now: Time,
        policy: KaiPolicy,
        configuration: KaiConfiguration,
        stale: Mapping[str, Time],
        usage: Mapping[str, Mapping[str, float]],
        partition: str | None = None,
    ) -> KaiSession:
        """Open a session over all objects; with `partition`, over those that the scheduler of this shard handles."""
        self._claims.begin_pass()
        storage, inventory = self._claims.storage, self._claims.devices
        nodes = {
            name: KaiNodeInfo(node, self._allocatable(node))
            for name, node in self.nodes.items()
            if partition is None or handles(partition, node.labels)
        }
        self._add_dra_gpus(nodes)
        tasks: dict[str, list[PodInfo]] = {}
        for _, pod in sorted(self.pods.items()):
            task = self._task(pod, policy.parameters.scheduler_name)
            if task.status in (KaiPodStatus.DELETED, KaiPodStatus.FAILED) or (task.node and task.node not in nodes):
                continue
            if partition is None or handles(partition, self.pool_labels(pod, task.job)):
                tasks.setdefault(task.job, []).append(task)
            if task.status in ACTIVE_USED:
                nodes[task.node].add_task(task)
        default, label = policy.default_queue, policy.parameters.queue_label
        known = [node.gpu_memory for node in nodes.values() if node.has_gpu_memory_label]
        known_queues = {
            name: queue for name, queue in self._queues.items() if partition is None or handles(partition, queue.labels)
        }
        queues = queues_of(known_queues, default if not partition and default not in self._queues else "", usage)
        jobs = [self._job(key, of, default, stale.get(key), label) for key, of in tasks.items()]
        reachable = {queue.uid for queue in queues}
        for job in jobs:
            if job.queue not in reachable:
                text = f"Queue '{job.queue}' does not exist"
                job.errors.append(JobError(reason=NO_QUEUE, messages=(text,), sub_group=DEFAULT_POD_SET))
        session = KaiSession(
            jobs=jobs,
            nodes=nodes.values(),
            queues=queues,
            topologies=[TopologyInfo(topology.name, topology.levels) for topology in self._topologies.values()],
            claims=InventoryClaimIndex(inventory, self.nodes) if inventory.claims else None,
            storage=storage,
            now=now,
            configuration=configuration,
            parameters=policy.parameters,
            least_gpu_memory=min(known, default=DEFAULT_GPU_MEMORY),
        )
        open_plugins(session)
        return session

    def pool_labels(self, pod: Pod, group: str) -> Mapping[str, str]:
        """The labels that assign a pod to a shard: its pod group's, else the node pool label of the pod itself."""
        known = self.groups.get(group)
        if known is not None:
            return known.labels
        own = pod.labels.get(NODE_POOL_LABEL, pod.template.labels.get(NODE_POOL_LABEL))
        return NO_LABELS if own is None else {NODE_POOL_LABEL: own}

    def _add_dra_gpus(self, nodes: Mapping[str, KaiNodeInfo]) -> None:
        """Add GPUs published by DRA drivers to the nodes, whose GPUs then cannot be requested by number."""
        for name, gpus in published_gpus(self._claims.devices.slices.values()).items():
            if name in nodes:
                nodes[name].add_dra_gpus(gpus)
                nodes[name].dra_gpus = True

    def _job(self, key: str, tasks: list[PodInfo], queue: str, stale: Time | None, label: str) -> PodGroupInfo:
        group = self.groups.get(key)
        if group is None:
            return cluster_info.job_of(key, self.pods, tasks, queue, stale, label)
        return cluster_info.group_job(group, self.pods, tasks, cluster_info.group_priority(group, self._classes), stale)

    def _task(self, pod: Pod, scheduler: str) -> PodInfo:
        if pod.template.resource_claims:
            return cluster_info.task_of(pod, scheduler, self._claims.devices.claims)
        known = self._tasks.get(pod.key)
        if known is None or known[0] is not pod:
            known = self._tasks[pod.key] = (pod, cluster_info.task_of(pod, scheduler))
        return known[1].copy()

    def _allocatable(self, node: Node) -> ResourceAmounts:
        known = self._allocatables.get(node.name)
        if known is None or known[0] is not node:
            known = self._allocatables[node.name] = (node, cluster_info.allocatable_of(node))
        return known[1].copy()

    def fork(self) -> "KaiStore":
        """An independent copy."""
        copied = KaiStore()
        copied.pods, copied.gpu_owners = dict(self.pods), self.gpu_owners.fork()
        copied.shards = dict(self.shards)
        copied.nodes, copied._queues = dict(self.nodes), dict(self._queues)
        copied.groups, copied._classes = dict(self.groups), dict(self._classes)
        copied._topologies = dict(self._topologies)
        copied._claims = self._claims.fork()
        copied._tasks, copied._allocatables = dict(self._tasks), dict(self._allocatables)
        return copied


def _pod_state(pod: Pod) -> tuple[object, ...]:
    """The fields of a pod that matter to a session."""
    return (pod.node, pod.gpus, pod.phase, bool(pod.deleted), pod.gates, pod.priority, pod.gang, pod.gang_size)
