"""Conversion of the cluster's objects to KAI's: pods to tasks, gangs and owners to pod groups, and nodes.

KAI 0.13: api/pod_info (annotations gpu-fraction, gpu-memory, gpu-fraction-num-devices), podgrouper.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod, PodPhase, PriorityClass
from gpuconsole.model.devices import ResourceClaim
from gpuconsole.model.documents.reader import INT64
from gpuconsole.model.kai import KaiPodGroup
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import CPU, GPU_RESOURCES, MEMORY, PODS, Resources
from gpuconsole.scheduling.kai.api.amounts import MIG_PREFIX, ResourceAmounts
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.pod_sets import PodSetInfo, SubGroup, TopologyConstraint
from gpuconsole.scheduling.kai.api.requests import ResourceRequirements
from gpuconsole.scheduling.kai.api.statuses import ALLOCATED, KaiPodStatus
from gpuconsole.scheduling.kai.api.tasks import DEFAULT_POD_SET, PodInfo, Sort, Spec
from gpuconsole.scheduling.kai.conf import POD_GROUP, QUEUE_LABEL
from gpuconsole.scheduling.kai.dra import claimed_gpus, references
from gpuconsole.scheduling.kai.trees import root_of

SUB_GROUP_LABEL = "kai.scheduler/subgroup-name"
PREEMPTIBILITY_LABEL = "kai.scheduler/preemptibility"
FRACTION, GPU_MEMORY, DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED, PREFERRED = "kai.scheduler/topology-required-placement", "kai.scheduler/topology-preferred-placement"
DEFAULT_PRIORITY = 50
NON_PREEMPTIBLE = 100
"""Jobs of this priority and above are not preemptible, unless they say otherwise."""
NO_CLAIMS: Mapping[str, ResourceClaim] = {}
NO_LIMIT_OF_PODS = 1_000_000


def note(pod: Pod, name: str) -> str:
    """The value of an annotation or label of the pod, else of its template; empty if there is none."""
    template = pod.template
    for place in (pod.annotations, pod.labels, template.annotations, template.labels):
        if name in place:
            return place[name]
    return ""


def group_of(pod: Pod) -> str:
    """Key of the pod group that the pod names, else of the one that KAI's pod grouper creates for its gang, its owner
    or itself.
    """
    named = note(pod, POD_GROUP)
    if named:
        return f"{pod.namespace}/{named}"
    if pod.gang:
        return f"{pod.namespace}/{pod.gang}"
    return f"{pod.namespace}/{pod.job.rpartition('/')[2] or pod.name}"


def task_of(pod: Pod, scheduler: str, claims: Mapping[str, ResourceClaim] = NO_CLAIMS) -> PodInfo:
    """The pod as a task; if it shares GPUs, their indices name its sharing groups."""
    request, sort = request_of(pod)
    if pod.template.resource_claims:
        request = replace(request, claims=claimed_gpus(pod, claims))
    template = pod.template
    return PodInfo(
        pod.key,
        job=group_of(pod),
        name=pod.name,
        namespace=pod.namespace,
        pod_set=note(pod, SUB_GROUP_LABEL),
        request=request,
        sort=sort,
        status=status_of(pod),
        node=pod.node,
        groups=tuple(map(str, pod.gpus)) if sort in (Sort.FRACTION, Sort.MEMORY) else (),
        spec=Spec(
            pod=pod,
            labels={**template.labels, **pod.labels},
            node_selector=template.node_selector,
            affinity=template.affinity,
            tolerations=template.tolerations,
            claims=references(pod) if template.resource_claims else (),
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


def request_of(pod: Pod) -> tuple[ResourceRequirements, Sort]:
    """Resource requirements of the pod, and how it requests GPUs."""
    needs = pod.template.requests
    base = plain_of(needs)
    mig = {name: count for name, count in needs.items() if name.startswith(MIG_PREFIX)}
    whole = sum(needs.get(name, 0) for name in GPU_RESOURCES)
    count, portion, memory = whole, 1.0 if whole else 0.0, 0
    sort = Sort.REGULAR
    mebibytes = _whole(note(pod, GPU_MEMORY))
    if mebibytes:
        count, portion, memory, sort = 1, 0.0, mebibytes, Sort.MEMORY
    part = _part(note(pod, FRACTION))
    if part:
        count, portion, memory, sort = 1, part, 0, Sort.FRACTION
    if sort is not Sort.REGULAR:
        count = _whole(note(pod, DEVICES)) or 1
    if mig:
        count, portion, memory, sort = 0, 0.0, 0, Sort.MIG
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


def _whole(text: str) -> int:
    """A non-negative integer that fits 64 bits; 0 for anything else."""
    digits = text.removeprefix("+")
    plain = digits.isascii() and digits.isdecimal() and len(digits) < len(str(INT64))
    return int(digits) if plain else 0


def _part(text: str) -> float:
    """A part of a GPU, above 0 and up to 1; 0 for anything else."""
    try:
        part = float(text)
    except ValueError:
        return 0.0
    return part if 0 < part <= 1 else 0.0


def plain_of(needs: Resources) -> ResourceAmounts:
    """All amounts except GPUs and MIG instances."""
    scalars = {
        name: amount
        for name, amount in needs.items()
        if name not in (CPU, MEMORY, *GPU_RESOURCES) and not name.startswith(MIG_PREFIX)
    }
    return ResourceAmounts(needs.get(CPU, 0), needs.get(MEMORY, 0), 0, scalars)


def node_of(node: Node) -> KaiNodeInfo:
    """KAI's node for a Node object, without tasks."""
    return KaiNodeInfo(node, room_of(node))


def room_of(node: Node) -> ResourceAmounts:
    """Allocatable resources of the node; its number of pods is unlimited if it names none."""
    amounts = plain_of(node.allocatable)
    amounts.gpus = sum(node.allocatable.get(name, 0) for name in GPU_RESOURCES)
    amounts.scalars.setdefault(PODS, NO_LIMIT_OF_PODS)
    amounts.scalars.update((n, count) for n, count in node.allocatable.items() if n.startswith(MIG_PREFIX))
    return amounts


def job_of(
    key: str, pods: Mapping[str, Pod], tasks: Iterable[PodInfo], queue: str, stale: int | None, label: str = QUEUE_LABEL
) -> PodGroupInfo:
    """The pod group that KAI creates for these pods: a gang needs all its pods at once, others start pod by pod.

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
        queue=note(first, label) or queue,
        priority=priority,
        preemptible=preemptible(note(first, PREEMPTIBILITY_LABEL), priority),
        created=first.created,
        started=_started(pods, members),
        stale_since=stale,
        root=root,
        tasks=members,
    )


def group_job(
    group: KaiPodGroup, pods: Mapping[str, Pod], tasks: Iterable[PodInfo], priority: int, stale: int | None
) -> PodGroupInfo:
    """The job of a PodGroup object; pods of sub-groups that it does not have are left out."""
    members = list(tasks)
    return PodGroupInfo(
        group.key,
        name=group.name,
        namespace=group.namespace,
        queue=group.queue,
        priority=priority,
        preemptible=preemptible(group.preemptibility, priority),
        created=group.created,
        started=_started(pods, members),
        stale_since=stale,
        root=root_of(group),
        tasks=members,
    )


def _started(pods: Mapping[str, Pod], tasks: Iterable[PodInfo]) -> Time | None:
    return min((pods[task.uid].bound for task in tasks if task.status in ALLOCATED), default=None)


def preemptible(said: str, priority: int) -> bool:
    """True if a pod group can be preempted: by its own setting, else by its priority (common/podgroup)."""
    return said == "preemptible" if said in ("preemptible", "non-preemptible") else priority < NON_PREEMPTIBLE


def group_priority(group: KaiPodGroup, classes: Mapping[str, PriorityClass]) -> int:
    """The value of its priority class, else of the cluster's default class, else KAI's default."""
    known = classes.get(group.priority_class)
    if known is None:
        known = next((found for _, found in sorted(classes.items()) if found.global_default), None)
    return DEFAULT_PRIORITY if known is None else known.value


def _constraint(pod: Pod) -> TopologyConstraint | None:
    topology = note(pod, TOPOLOGY)
    if not topology:
        return None
    return TopologyConstraint(topology=topology, required=note(pod, REQUIRED), preferred=note(pod, PREFERRED))


def template_task(template: PodTemplate, number: int, scheduler: str) -> PodInfo:
    """Create the task of a hypothetical pod of this template, to check whether it would fit."""
    return task_of(Pod(name=f"trial-{number}", template=template, priority=template.priority or 0), scheduler)
