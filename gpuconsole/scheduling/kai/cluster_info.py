"""Conversion of the cluster's objects to those of a session: tasks, jobs, nodes, queues and resource claims.

KAI 0.13: api/pod_info (annotations gpu-fraction, gpu-memory, gpu-fraction-num-devices), podgrouper (jobs of gangs and
owners), subgroup_info FromPodGroup (sub-groups), cache/cluster_info (queues).

DRA claims count as GPUs by the name of their device class. Their devices come from the allocator that all engines share
(`devices.allocator`), as KAI uses Kubernetes' DRA plugin.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod, PodPhase, PriorityClass
from gpuconsole.model.devices import AllocatedDevice, Allocation, ResourceClaim, ResourceSlice
from gpuconsole.model.documents.reader import INT64
from gpuconsole.model.kai import KaiPodGroup, KaiQueue, KaiSubGroup, KaiTopology, QueueResource
from gpuconsole.model.pod_template import PodClaim, PodTemplate
from gpuconsole.model.resources import CPU, GPU_RESOURCES, MEMORY, PODS, Resources
from gpuconsole.scheduling.devices.allocator import DraInventory, allocate_claims, claim_keys
from gpuconsole.scheduling.kai.api.jobs import (
    PodGroupInfo,
    PodSetInfo,
    SubGroup,
    TopologyConstraint,
    single_pod_set_tree,
)
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import (
    ALLOCATED,
    DEFAULT_POD_SET,
    MIG_PREFIX,
    ClaimDeviceRequest,
    ClaimIndex,
    ClaimInfo,
    ClaimRef,
    DraDevice,
    GpuRequestType,
    KaiPodStatus,
    PodInfo,
    ResourceAmounts,
    ResourceRequirements,
    TaskSpec,
    is_gpu_class,
)
from gpuconsole.scheduling.kai.config import POD_GROUP, QUEUE_LABEL
from gpuconsole.scheduling.kai.fair_share.division import KaiQueueQuota, QueueState


class InventoryClaimIndex(ClaimIndex):
    """Claim index whose devices Kubernetes' allocator picks from the ResourceSlices of the cluster. Mutates."""

    def __init__(self, inventory: DraInventory, nodes: Mapping[str, Node]) -> None:
        super().__init__(
            claims=[claim_of(claim) for claim in inventory.claims.values()], classes=list(inventory.classes)
        )
        unallocated = {key: replace(claim, allocation=None) for key, claim in inventory.claims.items()}
        self._inventory = DraInventory(classes=inventory.classes, slices=inventory.slices, claims=unallocated)
        """The inventory with all claims unallocated; `find` adds the allocations that claims hold now."""
        self._nodes = nodes
        self.allocations = {key: c.allocation for key, c in inventory.claims.items() if c.allocation is not None}
        """The latest allocation of each claim, in this session or before."""

    def find(self, claim: ClaimInfo, node: str) -> tuple[DraDevice, ...] | None:
        """Devices of the node that Kubernetes' allocator picks for the claim; None if it finds none."""
        if claim.key not in self._inventory.claims or node not in self._nodes:
            return None
        self._inventory.assumed = {
            key: self.allocations[key]
            for key, known in self.claims.items()
            if known.devices is not None and key in self.allocations
        }
        found = allocate_claims(_claiming_pod(claim), self._nodes[node], self._inventory)
        allocation = found.allocations.get(claim.key)
        if found.reason or allocation is None:
            return None
        self.allocations[claim.key] = allocation
        return devices_of(allocation, node)


def _claiming_pod(claim: ClaimInfo) -> Pod:
    """A pod that uses only this claim."""
    template = PodTemplate(resource_claims=(PodClaim(name="claim", claim=claim.name),))
    return Pod(namespace=claim.namespace, name="trial", template=template)


def claim_of(claim: ResourceClaim) -> ClaimInfo:
    """Convert a ResourceClaim object to the session's claim."""
    return ClaimInfo(
        namespace=claim.namespace,
        name=claim.name,
        labels=claim.labels,
        requests=tuple(ClaimDeviceRequest(request.device_class, request.count) for request in claim.requests),
        reserved=claim.reserved,
        devices=None if claim.allocation is None else devices_of(claim.allocation),
    )


def devices_of(allocation: Allocation, node: str = "") -> tuple[DraDevice, ...]:
    """Devices of an allocation, on `node` or else on the only node that it permits."""
    return tuple(_device(given, node or _allocation_node(allocation)) for given in allocation.devices)


def _device(given: AllocatedDevice, node: str) -> DraDevice:
    return DraDevice(node, given.driver, given.pool, given.device)


def _allocation_node(allocation: Allocation) -> str:
    """The only node on which the devices can be used; empty if there are several."""
    fields = [field for term in allocation.nodes or () for field in term.fields]
    return fields[0].values[0] if len(fields) == 1 and len(fields[0].values) == 1 else ""


def claim_references(pod: Pod) -> tuple[ClaimRef, ...]:
    """The claims that the pod names, and those created for it from templates."""
    named = zip(pod.template.resource_claims, claim_keys(pod), strict=True)
    return tuple(ClaimRef(one.name, key.partition("/")[2], not one.claim) for one, key in named)


def claimed_gpus(pod: Pod, claims: Mapping[str, ResourceClaim]) -> dict[str, int]:
    """GPUs that the pod requests through its claims, by device class."""
    counts: dict[str, int] = {}
    for key in claim_keys(pod):
        for request in claims[key].requests if key in claims else ():
            if is_gpu_class(request.device_class):
                counts[request.device_class] = counts.get(request.device_class, 0) + request.count
    return counts


def published_gpus(slices: Iterable[ResourceSlice]) -> dict[str, int]:
    """GPUs that drivers offer, by node; KAI recognizes them by the driver's name."""
    counts: dict[str, int] = {}
    for part in slices:
        if part.node and is_gpu_class(part.driver):
            counts[part.node] = counts.get(part.node, 0) + len(part.devices)
    return counts


def allocated_claims(index: ClaimIndex, task: PodInfo) -> tuple[tuple[str, Allocation], ...]:
    """(claim key, allocation) of the task's claims that are allocated; empty without a device inventory."""
    if not isinstance(index, InventoryClaimIndex):
        return ()
    keys = {f"{task.namespace}/{reference.claim}" for reference in task.spec.claims}
    return tuple((key, index.allocations[key]) for key in sorted(keys) if key in index.allocations)


class InvalidSubGroups(ValueError):
    """The sub-groups do not form a tree."""


def sub_group_tree(group: KaiPodGroup) -> SubGroup:
    """The gang of a PodGroup as a tree of sub-groups; one pod set with the group's minimum if it has none.

    If the sub-groups do not form a tree, one pod set with a minimum of 1.
    """
    try:
        root = parse_sub_groups(group)
    except InvalidSubGroups:
        return single_pod_set_tree(1)
    if not root.all_pod_sets():
        root.add(PodSetInfo(DEFAULT_POD_SET, max(group.min_member, 1)))
    return root


def parse_sub_groups(group: KaiPodGroup) -> SubGroup:
    """The gang's tree of sub-groups: those that others name as parent hold groups, the others pods. Raises BadTree."""
    constraint = group.constraint if group.constraint is not None and group.constraint.topology else None
    root = SubGroup("", constraint_of(constraint))
    has_children = {found.parent.lower() for found in group.sub_groups if found.parent}
    made: dict[str, SubGroup | PodSetInfo] = {}
    for found in group.sub_groups:
        if found.name in made:
            raise InvalidSubGroups(f"subgroup <{found.name}> already exists")
        made[found.name] = _new_sub_group(found, found.name in has_children)
    for found in sorted(group.sub_groups, key=lambda found: found.name not in has_children):
        _find_parent(found, root, made).add(made[found.name])
    return root


def _new_sub_group(found: KaiSubGroup, has_children: bool) -> SubGroup | PodSetInfo:
    constraint = constraint_of(found.constraint)
    return (
        SubGroup(found.name, constraint)
        if has_children
        else PodSetInfo(found.name, max(found.min_member, 1), constraint)
    )


def _find_parent(found: KaiSubGroup, root: SubGroup, made: dict[str, SubGroup | PodSetInfo]) -> SubGroup:
    """The parent of a sub-group, which KAI looks up in lower case. Raises BadTree."""
    name = found.parent.lower()
    parent = made.get(name) if name else root
    if not isinstance(parent, SubGroup):
        raise InvalidSubGroups(f"parent subgroup <{name}> of <{found.name}> not found")
    return parent


def constraint_of(written: KaiTopology | None) -> TopologyConstraint | None:
    """Convert the topology constraint of a PodGroup; None if it has none."""
    if written is None:
        return None
    return TopologyConstraint(topology=written.topology, required=written.required, preferred=written.preferred)


SUB_GROUP_LABEL = "kai.scheduler/subgroup-name"
PREEMPTIBILITY_LABEL = "kai.scheduler/preemptibility"
FRACTION, GPU_MEMORY, DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED, PREFERRED = "kai.scheduler/topology-required-placement", "kai.scheduler/topology-preferred-placement"
DEFAULT_PRIORITY = 50
"""Priority of jobs without a priority class, if the cluster has no default class."""
NON_PREEMPTIBLE = 100
"""Jobs of this priority and above are not preemptible, unless they say otherwise."""
NO_CLAIMS: Mapping[str, ResourceClaim] = {}
UNLIMITED_PODS = 1_000_000
"""Number of pods on a node that names no limit."""


def annotation_or_label(pod: Pod, name: str) -> str:
    """The value of an annotation or label (`name`) of the pod, else of its template; empty if there is none."""
    template = pod.template
    for place in (pod.annotations, pod.labels, template.annotations, template.labels):
        if name in place:
            return place[name]
    return ""


def group_of(pod: Pod) -> str:
    """Key of the pod group that the pod names, else of the one that KAI's pod grouper creates for its gang, its owner
    or itself.
    """
    named = annotation_or_label(pod, POD_GROUP)
    if named:
        return f"{pod.namespace}/{named}"
    if pod.gang:
        return f"{pod.namespace}/{pod.gang}"
    return f"{pod.namespace}/{pod.job.rpartition('/')[2] or pod.name}"


def task_of(pod: Pod, scheduler: str, claims: Mapping[str, ResourceClaim] = NO_CLAIMS) -> PodInfo:
    """Convert a pod to a task; if it shares GPUs, their indices name its sharing groups."""
    request, sort = request_of(pod)
    if pod.template.resource_claims:
        request = replace(request, claims=claimed_gpus(pod, claims))
    template = pod.template
    return PodInfo(
        pod.key,
        job=group_of(pod),
        name=pod.name,
        namespace=pod.namespace,
        pod_set=annotation_or_label(pod, SUB_GROUP_LABEL),
        request=request,
        sort=sort,
        status=status_of(pod),
        node=pod.node,
        groups=tuple(map(str, pod.gpus)) if sort in (GpuRequestType.FRACTION, GpuRequestType.MEMORY) else (),
        spec=TaskSpec(
            pod=pod,
            labels={**template.labels, **pod.labels},
            node_selector=template.node_selector,
            affinity=template.affinity,
            tolerations=template.tolerations,
            claims=claim_references(pod) if template.resource_claims else (),
            nominated=pod.nominated_node,
            scheduler=scheduler,
            priority_class=template.priority_class,
            priority=pod.priority,
            created=pod.created,
        ),
    )


def status_of(pod: Pod) -> KaiPodStatus:
    """KAI's status of a pod."""
    match pod.phase:
        case PodPhase.SUCCEEDED:
            return KaiPodStatus.SUCCEEDED
        case PodPhase.FAILED:
            return KaiPodStatus.FAILED
    if pod.deleted:
        return KaiPodStatus.RELEASING if pod.node else KaiPodStatus.DELETED
    if not pod.node:
        return KaiPodStatus.GATED if pod.gates else KaiPodStatus.PENDING
    return KaiPodStatus.RUNNING if pod.phase is PodPhase.RUNNING else KaiPodStatus.BOUND


def request_of(pod: Pod) -> tuple[ResourceRequirements, GpuRequestType]:
    """Resource requirements of the pod, and how it requests GPUs."""
    needs = pod.template.requests
    base = amounts_without_gpus(needs)
    mig = {name: count for name, count in needs.items() if name.startswith(MIG_PREFIX)}
    whole = sum(needs.get(name, 0) for name in GPU_RESOURCES)
    count, portion, memory = whole, 1.0 if whole else 0.0, 0
    sort = GpuRequestType.REGULAR
    mebibytes = _parse_count(annotation_or_label(pod, GPU_MEMORY))
    if mebibytes:
        count, portion, memory, sort = 1, 0.0, mebibytes, GpuRequestType.MEMORY
    part = _parse_fraction(annotation_or_label(pod, FRACTION))
    if part:
        count, portion, memory, sort = 1, part, 0, GpuRequestType.FRACTION
    if sort is not GpuRequestType.REGULAR:
        count = _parse_count(annotation_or_label(pod, DEVICES)) or 1
    if mig:
        count, portion, memory, sort = 0, 0.0, 0, GpuRequestType.MIG
    request = ResourceRequirements(
        cpu=base.cpu,
        memory=base.memory,
        scalars={**base.scalars, PODS: 1},
        count=count,
        portion=portion,
        gpu_memory=memory,
        mig=mig,
    )
    return request, sort


def _parse_count(text: str) -> int:
    """A non-negative integer that fits 64 bits; 0 for anything else."""
    digits = text.removeprefix("+")
    plain = digits.isascii() and digits.isdecimal() and len(digits) < len(str(INT64))
    return int(digits) if plain else 0


def _parse_fraction(text: str) -> float:
    """A part of a GPU, above 0 and up to 1; 0 for anything else."""
    try:
        part = float(text)
    except ValueError:
        return 0.0
    return part if 0 < part <= 1 else 0.0


def amounts_without_gpus(needs: Resources) -> ResourceAmounts:
    """Convert amounts of resources, leaving out GPUs and MIG instances."""
    scalars = {
        name: amount
        for name, amount in needs.items()
        if name not in (CPU, MEMORY, *GPU_RESOURCES) and not name.startswith(MIG_PREFIX)
    }
    return ResourceAmounts(needs.get(CPU, 0), needs.get(MEMORY, 0), 0, scalars)


def node_of(node: Node) -> KaiNodeInfo:
    """Convert a Node object to a node of the session, without tasks."""
    return KaiNodeInfo(node, allocatable_of(node))


def allocatable_of(node: Node) -> ResourceAmounts:
    """Allocatable resources of a node; the number of pods is unlimited if the node does not limit it."""
    amounts = amounts_without_gpus(node.allocatable)
    amounts.gpus = sum(node.allocatable.get(name, 0) for name in GPU_RESOURCES)
    amounts.scalars.setdefault(PODS, UNLIMITED_PODS)
    amounts.scalars.update((n, count) for n, count in node.allocatable.items() if n.startswith(MIG_PREFIX))
    return amounts


def job_of(
    key: str, pods: Mapping[str, Pod], tasks: Iterable[PodInfo], queue: str, stale: int | None, label: str = QUEUE_LABEL
) -> PodGroupInfo:
    """The job for pods without a PodGroup object: a gang needs all its pods at once, others start pod by pod.

    Its queue is the one that its oldest pod names in the label, else `queue`.
    """
    members = list(tasks)
    first = min((pods[task.uid] for task in members), key=lambda pod: (pod.created, pod.key))
    priority = max(pods[task.uid].priority for task in members)
    root = SubGroup("", _constraint(first))
    root.add(PodSetInfo(DEFAULT_POD_SET, first.gang_size if first.gang else 1))
    for task in members:
        task.pod_set = ""
    return PodGroupInfo(
        key,
        name=key.rpartition("/")[2],
        namespace=first.namespace,
        queue=annotation_or_label(first, label) or queue,
        priority=priority,
        preemptible=is_preemptible(annotation_or_label(first, PREEMPTIBILITY_LABEL), priority),
        created=first.created,
        started=_start_time(pods, members),
        stale_since=stale,
        root=root,
        tasks=members,
    )


def group_job(
    group: KaiPodGroup, pods: Mapping[str, Pod], tasks: Iterable[PodInfo], priority: int, stale: int | None
) -> PodGroupInfo:
    """The job of a PodGroup object; pods that name a sub-group that it does not have are left out."""
    members = list(tasks)
    return PodGroupInfo(
        group.key,
        name=group.name,
        namespace=group.namespace,
        queue=group.queue,
        priority=priority,
        preemptible=is_preemptible(group.preemptibility, priority),
        created=group.created,
        started=_start_time(pods, members),
        stale_since=stale,
        root=sub_group_tree(group),
        tasks=members,
    )


def _start_time(pods: Mapping[str, Pod], tasks: Iterable[PodInfo]) -> Time | None:
    return min((pods[task.uid].bound for task in tasks if task.status in ALLOCATED), default=None)


def is_preemptible(written: str, priority: int) -> bool:
    """True if a pod group can be preempted: by its own setting, else by its priority (common/podgroup)."""
    return written == "preemptible" if written in ("preemptible", "non-preemptible") else priority < NON_PREEMPTIBLE


def group_priority(group: KaiPodGroup, classes: Mapping[str, PriorityClass]) -> int:
    """The value of its priority class, else of the cluster's default class, else KAI's default."""
    known = classes.get(group.priority_class)
    if known is None:
        known = next((found for _, found in sorted(classes.items()) if found.global_default), None)
    return DEFAULT_PRIORITY if known is None else known.value


def _constraint(pod: Pod) -> TopologyConstraint | None:
    topology = annotation_or_label(pod, TOPOLOGY)
    if not topology:
        return None
    return TopologyConstraint(
        topology=topology, required=annotation_or_label(pod, REQUIRED), preferred=annotation_or_label(pod, PREFERRED)
    )


def template_task(template: PodTemplate, number: int, scheduler: str) -> PodInfo:
    """Create the task of a hypothetical pod of this template, to check whether it would fit."""
    return task_of(Pod(name=f"trial-{number}", template=template, priority=template.priority or 0), scheduler)


def queues_of(
    queues: Mapping[str, KaiQueue], default: str, usage: Mapping[str, Mapping[str, float]]
) -> list[QueueState]:
    """The queues with their children; those without a complete path to a top queue are left out.

    If `default` names a queue that does not exist, it is added without limits.
    """
    known = dict(queues)
    if default and default not in known:
        bound = QueueResource(quota=-1, over_quota_weight=1, limit=-1)
        known[default] = KaiQueue(name=default, gpu=bound, cpu=bound, memory=bound)
    reachable = {name: queue for name, queue in known.items() if _has_root(queue, known)}
    return [
        QueueState(
            uid=queue.name,
            name=queue.display_name or queue.name,
            parent=queue.parent,
            children=tuple(sorted(child.name for child in reachable.values() if child.parent == queue.name)),
            gpu=_quota(queue.gpu),
            cpu=_quota(queue.cpu),
            memory=_quota(queue.memory),
            usage=usage.get(queue.name, {}),
            priority=queue.priority,
            created=queue.created,
            preempt_min_runtime=queue.preempt_min_runtime,
            reclaim_min_runtime=queue.reclaim_min_runtime,
        )
        for queue in reachable.values()
    ]


def _has_root(queue: KaiQueue, queues: Mapping[str, KaiQueue]) -> bool:
    """True if the way up ends at a queue without a parent."""
    seen: set[str] = set()
    while queue.parent:
        if queue.name in seen or queue.parent not in queues:
            return False
        seen.add(queue.name)
        queue = queues[queue.parent]
    return True


def _quota(resource: QueueResource) -> KaiQueueQuota:
    return KaiQueueQuota(quota=resource.quota, over_quota_weight=resource.over_quota_weight, limit=resource.limit)
