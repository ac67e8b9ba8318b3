"""Objects relevant to Volcano, as last observed or assumed, from which each session's snapshot is built. Mutates.

The snapshot has tasks, jobs, nodes, queues and hyper nodes, and for device quotas the DRA requests of tasks. A job is
made from a PodGroup: the one that its pods name, or one created for their gang or their owner (Volcano 1.15
controllers/podgroup: pods of one owner that name no PodGroup share one with minMember 1; a gang of the simulation
without a PodGroup gets one of its size).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import (
    CSINode,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    StorageClass,
)
from gpuconsole.model.devices import EXACT_COUNT, DeviceClass, ResourceClaim, ResourceSlice
from gpuconsole.model.jobs.ray import RAY_PRIORITY
from gpuconsole.model.jobs.ray import VOLCANO_QUEUE as RAY_QUEUE
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.pod_template import PodClaim
from gpuconsole.model.volcano import HyperNode, Numatopology, PodGroup, VolcanoQueue
from gpuconsole.scheduling.devices.allocator import DraInventory
from gpuconsole.scheduling.kube.volumes import Storage
from gpuconsole.scheduling.volcano.api.hyper_nodes import HyperNodeDomains, HyperNodes
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.task import GROUP_NAME, DraResource, TaskInfo, TaskStatus, group_of
from gpuconsole.scheduling.volcano.jobs.pod_group import PREFIX, QUEUE_NAME, group_of_pod
from gpuconsole.scheduling.volcano.session import BudgetAllowance, ClusterInfo


def with_pod_group(pod: Pod) -> Pod:
    """Prepare a pod of Volcano for a session: its PodGroup is in the annotations, and its uid is its key (for ties)."""
    if group_of(pod):
        return replace(pod, uid=pod.key)
    return replace(pod, uid=pod.key, annotations={**pod.annotations, GROUP_NAME: _group_name(pod)})


def without_pod_group(pod: Pod) -> Pod:
    """Prepare a pod of another scheduler for a session: without a PodGroup, it only uses resources of its node."""
    others = {key: value for key, value in pod.annotations.items() if key != GROUP_NAME}
    return replace(pod, uid=pod.key, annotations=others)


def _group_name(pod: Pod) -> str:
    """The name of the PodGroup: that of a gang with a PodGroup, else made from `Kind/name` of the gang or of
    the owner.
    """
    if pod.gang and "/" not in pod.gang:
        return pod.gang
    kind, _, rest = (pod.gang or pod.job).partition("/")
    return f"{PREFIX}{kind.lower()}-{rest.rpartition('/')[2]}" if kind else PREFIX + pod.name


def group_for(pod: Pod, phases: Mapping[str, str]) -> PodGroup:
    """The PodGroup of a grouped pod for which no object exists; `phases` are those set by earlier sessions."""
    key = group_of(pod)
    created = group_of_pod(pod, key.rpartition("/")[2], {}, pod.gang_size if pod.gang else 1)
    return replace(
        created,
        created=pod.created,
        queue=_queue_of(pod),
        priority_class=pod.labels.get(RAY_PRIORITY, created.priority_class),
        # minResources of the gang are unknown from one pod, so the enqueue action does not check them.
        min_resources=None,
        phase=phases.get(key, "Pending"),
    )


def _queue_of(pod: Pod) -> str:
    for place in (pod.annotations, pod.labels, pod.template.annotations, pod.template.labels):
        if QUEUE_NAME in place:
            return place[QUEUE_NAME]
    # KubeRay makes the PodGroup of its pods, with the queue that this label names; Volcano itself does not read it.
    return pod.labels.get(RAY_QUEUE, "") if pod.job.startswith("Ray") else ""


class ResourceClaimMissing(Exception):
    """A claim that a pod names does not exist (yet)."""


def set_claims(task: TaskInfo, claims: Mapping[str, ResourceClaim]) -> None:
    """Set a task's DRA requests (buildTaskDRAInfo); they stay empty while one of its claims is missing."""
    try:
        by_claim = claimed_devices(task.pod, claims)
    except ResourceClaimMissing:
        return
    task.dra, task.claim_dra, task.claim_keys = total_devices(by_claim), by_claim, tuple(sorted(by_claim))


def claimed_devices(pod: Pod, claims: Mapping[str, ResourceClaim]) -> dict[str, dict[str, DraResource]]:
    """Claimed devices by claim (`namespace/name`) and device class.

    Requests with alternatives or for all devices do not count. The capacity that a request names is multiplied by its
    count.

    Raises:
        ResourceClaimMissing: a claim that the pod names does not exist.
    """
    found: dict[str, dict[str, DraResource]] = {}
    for reference in pod.template.resource_claims:
        key = f"{pod.namespace}/{_claim_name(pod, reference)}"
        claim = claims.get(key)
        if claim is None:
            raise ResourceClaimMissing(key)
        asked: dict[str, DraResource] = {}
        for request in claim.requests:
            if request.exactly and request.mode == EXACT_COUNT and request.device_class:
                count = request.count or 1
                amounts = {name: amount * count for name, amount in request.capacity.items()}
                asked.setdefault(request.device_class, DraResource()).add(DraResource(count, amounts))
        if asked:
            found[key] = asked
    return found


def total_devices(by_claim: Mapping[str, Mapping[str, DraResource]]) -> dict[str, DraResource]:
    """Sum the devices of all claims, by device class."""
    result: dict[str, DraResource] = {}
    for asked in by_claim.values():
        for device_class, devices in asked.items():
            result.setdefault(device_class, DraResource()).add(devices)
    return result


def _claim_name(pod: Pod, reference: PodClaim) -> str:
    """The name of the claim: as the pod says, or that of the claim created from a template."""
    return reference.claim or f"{pod.name}-{reference.name}"


DONE_PHASES = frozenset((TaskStatus.SUCCEEDED, TaskStatus.FAILED))
NO_CLAIMS: Mapping[str, ResourceClaim] = {}
NO_PRIORITIES: Mapping[str, int] = {}


def build_cluster_info(
    *,
    nodes: Iterable[NodeInfo],
    pods: Iterable[Pod],
    groups: Iterable[PodGroup],
    queues: Iterable[VolcanoQueue],
    priorities: Mapping[str, int] = NO_PRIORITIES,
    default_priority: int = 0,
    claims: Mapping[str, ResourceClaim] = NO_CLAIMS,
    task_of: Callable[[Pod], TaskInfo] = TaskInfo,
    now: Time = 0,
) -> ClusterInfo:
    """Build the snapshot for a session; `priorities` maps priority classes to their values.

    Nodes are copied without tasks and get those of `pods`. A pod belongs to the job of its PodGroup; without one it
    only uses resources of its node. Jobs whose queue does not exist are left out.
    """
    cluster = ClusterInfo(now=now)
    cluster.nodes = {node.name: node.without_tasks() for node in nodes}
    cluster.queues = {queue.name: QueueInfo(queue) for queue in queues}
    jobs: dict[str, JobInfo] = {}
    for group in groups:
        job = jobs[group.key] = JobInfo(group.key)
        job.set_pod_group(group)
        job.priority = priorities.get(group.priority_class, default_priority)
    cluster.jobs = jobs = {uid: job for uid, job in jobs.items() if job.queue in cluster.queues}
    for pod in sorted(pods, key=lambda pod: pod.key):
        task = task_of(pod)
        if pod.template.resource_claims and claims:
            set_claims(task, claims)
        node = cluster.nodes.get(task.node_name)
        if node is not None and task.status not in DONE_PHASES:
            node.add_task(task)
        if task.job in jobs:
            jobs[task.job].add_task(task)
    return cluster


ROOT = "root"
COMPLETED = "Completed"


class VolcanoStore:
    """The last known objects, by kind and key, from which each session's snapshot is built."""

    def __init__(self, default_queue: str) -> None:
        self._default_queue = default_queue
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, PodGroup] = {}
        self.queues: dict[str, VolcanoQueue] = {}
        self.classes: dict[str, PriorityClass] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.device_classes: dict[str, DeviceClass] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.budgets: dict[str, PodDisruptionBudget] = {}
        self.quotas: dict[str, ResourceQuota] = {}
        self.numa: dict[str, Numatopology] = {}
        self.storage_classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CSINode] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.volume_claims: dict[str, PersistentVolumeClaim] = {}
        self.hyper_nodes = HyperNodes()
        self._node_infos: dict[str, NodeInfo] = {}
        """Nodes without tasks, as sessions start with them: copying is faster than parsing their resources."""
        self.phases: dict[str, str] = {}
        """Phases of PodGroups that have no object, by key."""
        self._tasks: dict[str, TaskInfo] = {}
        """Tasks as sessions start with them, by pod, without DRA requests."""
        self._created_groups: dict[str, tuple[Pod, PodGroup]] = {}
        """The PodGroup created for a pod that has none, by pod."""
        self._pending: set[str] = set()
        """Keys of pods that can be scheduled and have no node."""

    @property
    def has_pending(self) -> bool:
        """True if a pod is pending or a PodGroup waits to be enqueued."""
        return bool(self._pending) or any(group.phase in ("", "Pending") for group in self.groups.values())

    def apply(self, obj: Object) -> bool:
        """Apply an object that appeared or changed; True if that may change what a session decides."""
        match obj:
            case Pod():
                old = self.pods.get(obj.key)
                self.assume(obj)
                return old is None or _relevant_fields(old) != _relevant_fields(obj)
            case Node():
                if self.nodes.get(obj.name) == obj:
                    return False
                self.nodes[obj.name] = obj
                self._node_infos[obj.name] = NodeInfo(obj)
                self.hyper_nodes.set_node(obj)
                return True
            case HyperNode():
                self.hyper_nodes.apply(obj)
                return True
            case _:
                table = self._tables().get(TABLES[type(obj)])
                if table is None or table.get(obj.key) == obj:
                    return False
                table[obj.key] = obj
                return True

    def delete(self, table: str, key: str) -> bool:
        """Apply the deletion of an object; True if that may change what a session decides."""
        match table:
            case "pods":
                self._pending.discard(key)
                self._tasks.pop(key, None)
                self._created_groups.pop(key, None)
                return self.pods.pop(key, None) is not None
            case "nodes":
                self.hyper_nodes.delete_node(key)
                self._node_infos.pop(key, None)
                return self.nodes.pop(key, None) is not None
            case "hyper_nodes":
                self.hyper_nodes.delete(key)
                return True
            case _:
                return self._tables().get(table, {}).pop(key, None) is not None

    def assume(self, pod: Pod) -> None:
        """Store a pod as observed or as decided."""
        self.pods[pod.key] = pod
        if pod.node or pod.done or pod.deleted or pod.gates:
            self._pending.discard(pod.key)
        else:
            self._pending.add(pod.key)

    def set_phase(self, key: str, phase: str) -> bool:
        """Store the phase of a PodGroup; True if it changed and the PodGroup has an object."""
        group = self.groups.get(key)
        if group is None:
            self.phases[key] = phase
            return False
        if (group.phase or "Pending") == phase:
            return False
        self.groups[key] = replace(group, phase=phase)
        return True

    def cluster(self, now: Time) -> ClusterInfo:
        """Build the snapshot for one session."""
        groups = {key: self._with_queue(group) for key, group in self.groups.items()}
        created: dict[str, Pod] = {}
        for _, pod in sorted(self.pods.items()):
            key = group_of(pod)
            if key and key not in groups:
                groups[key] = self._group_for(pod, key)
                created[key] = pod
        self.phases = {key: phase for key, phase in self.phases.items() if key in created}
        over = self._finished_groups(groups, created)
        cluster = build_cluster_info(
            nodes=self._node_infos.values(),
            pods=[pod for pod in self.pods.values() if group_of(pod) not in over] if over else self.pods.values(),
            groups=[group for key, group in groups.items() if key not in over],
            queues=self._queues_with_defaults(),
            priorities={name: known.value for name, known in self.classes.items()},
            default_priority=next((known.value for known in self.classes.values() if known.global_default), 0),
            claims=self.claims,
            task_of=self._task,
            now=now,
        )
        for key, pod in created.items():
            if key in cluster.jobs and not pod.template.priority_class:
                cluster.jobs[key].priority = pod.priority
        tree = self.hyper_nodes
        names = {info.tier_name: info.tier for info in tree.tree.values() if info.tier_name}
        cluster.domains = HyperNodeDomains(
            tree.tree, tree.real_nodes, names, by_tier=tree.by_tier, ready=not tree.problem
        )
        for _, quota in sorted(self.quotas.items()):
            cluster.quotas.setdefault(quota.namespace, []).append(quota)
        cluster.numa = dict(self.numa)
        cluster.inventory = DraInventory(classes=self.device_classes, slices=self.slices, claims=self.claims)
        cluster.storage = Storage(
            claims=self.volume_claims, volumes=self.volumes, classes=self.storage_classes, limits=self.csi_nodes
        )
        cluster.budgets = [self._budget_allowance(budget) for _, budget in sorted(self.budgets.items())]
        return cluster

    def fork(self) -> "VolcanoStore":
        """An independent copy."""
        copied = VolcanoStore(self._default_queue)
        copied.nodes, copied.pods, copied.groups = self.nodes.copy(), self.pods.copy(), self.groups.copy()
        copied.queues, copied.classes, copied.claims = self.queues.copy(), self.classes.copy(), self.claims.copy()
        copied.quotas, copied.numa = self.quotas.copy(), self.numa.copy()
        copied.storage_classes, copied.csi_nodes = self.storage_classes.copy(), self.csi_nodes.copy()
        copied.volumes, copied.volume_claims = self.volumes.copy(), self.volume_claims.copy()
        copied.device_classes, copied.slices = self.device_classes.copy(), self.slices.copy()
        copied._pending, copied._node_infos = self._pending.copy(), self._node_infos.copy()
        copied._tasks, copied._created_groups = self._tasks.copy(), self._created_groups.copy()
        copied.budgets, copied.hyper_nodes, copied.phases = (
            self.budgets.copy(),
            self.hyper_nodes.fork(),
            self.phases.copy(),
        )
        return copied

    def _tables(self) -> dict[str, dict[str, Any]]:
        return {
            "pod_groups": self.groups,
            "volcano_queues": self.queues,
            "priority_classes": self.classes,
            "resource_claims": self.claims,
            "device_classes": self.device_classes,
            "resource_slices": self.slices,
            "pod_disruption_budgets": self.budgets,
            "resource_quotas": self.quotas,
            "numatopologies": self.numa,
            "storage_classes": self.storage_classes,
            "csi_nodes": self.csi_nodes,
            "persistent_volumes": self.volumes,
            "persistent_volume_claims": self.volume_claims,
        }

    def _budget_allowance(self, budget: PodDisruptionBudget) -> BudgetAllowance:
        pods = self.pods.values()
        return budget_allowance(
            budget, pods, (pod.key for pod in pods if pod.node and not pod.done and not pod.deleted)
        )

    def _finished_groups(self, groups: Mapping[str, PodGroup], created: Iterable[str]) -> set[str]:
        """PodGroups without an object that are Completed and whose pods are all done: they no longer count.

        The first of each queue stays, because plugins divide the cluster among queues with jobs, in the jobs' order.
        """
        over = {key for key in created if self.phases.get(key) == COMPLETED}
        over.difference_update([group_of(pod) for pod in self.pods.values() if not pod.done])
        if over:
            first: dict[str, str] = {}
            for key in sorted(groups):
                first.setdefault(groups[key].queue, key)
            over.difference_update(first.values())
        return over

    def _task(self, pod: Pod) -> TaskInfo:
        known = self._tasks.get(pod.key)
        if known is None or known.pod is not pod:
            known = self._tasks[pod.key] = TaskInfo(pod)
        return known.copy()

    def _group_for(self, pod: Pod, key: str) -> PodGroup:
        known = self._created_groups.get(pod.key)
        if known is None or known[0] is not pod or known[1].phase != self.phases.get(key, "Pending"):
            known = self._created_groups[pod.key] = pod, self._with_queue(group_for(pod, self.phases))
        return known[1]

    def _with_queue(self, group: PodGroup) -> PodGroup:
        return group if group.queue else replace(group, queue=self._default_queue)

    def _queues_with_defaults(self) -> list[VolcanoQueue]:
        """The queues, including those that Volcano creates at start-up."""
        created = (VolcanoQueue(name=self._default_queue), VolcanoQueue(name=ROOT, reclaimable=False))
        missing = [queue for queue in created if queue.name not in self.queues]
        return [*self.queues.values(), *missing]


def _relevant_fields(pod: Pod) -> Pod:
    """The pod without the fields that Volcano itself sets."""
    return replace(pod, message="", reason="", nominated_node="")


def budget_allowance(budget: PodDisruptionBudget, pods: Iterable[Pod], healthy: Iterable[str]) -> BudgetAllowance:
    """A budget with its allowed disruptions: healthy pods above the required number, as in Kubernetes.

    `pods` are those of the cluster, `healthy` the keys of those that are ready.
    """
    covered = [
        pod
        for pod in pods
        if pod.namespace == budget.namespace and budget.selector is not None and budget.selector.matches(pod.labels)
    ]
    ready = set(healthy)
    allowed = budget.allowed(len(covered), sum(pod.key in ready for pod in covered))
    return BudgetAllowance(namespace=budget.namespace, selector=budget.selector, allowed=allowed)
