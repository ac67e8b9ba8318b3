"""KAI's structs as they were dumped, as objects of ours."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.manifests import decode_object
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup, TopologyConstraint
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import (
    NO_OWNER_REFERENCES,
    GpuRequestType,
    KaiPodStatus,
    PodInfo,
    ResourceAmounts,
    ResourceRequirements,
    TaskSpec,
)
from gpuconsole.scheduling.kai.fair_share.division import RESOURCES, Quantities, QueueShares, ResourceShares

Document = Mapping[str, Any]
STATUSES = {status.name.capitalize(): status for status in KaiPodStatus}
NEVER = "0001-01-01T00:00:00Z"


def nanoseconds(text: str | None) -> int:
    """A moment in RFC 3339, to the nanosecond; 0 if there is none."""
    if not text:
        return 0
    whole, _, rest = text.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return seconds * 1_000_000_000 + int(rest.ljust(9, "0") or 0)


def microseconds(text: str | None) -> int:
    return nanoseconds(text) // 1000


def number(value: Any) -> float:
    """A number; infinite ones are written as objects."""
    return float(value["$float"]) if isinstance(value, Mapping) else value


def share(document: Document) -> ResourceShares:
    return ResourceShares(
        deserved=document.get("Deserved", 0),
        fair=document.get("FairShare", 0),
        limit=document.get("MaxAllowed", 0),
        weight=document.get("OverQuotaWeight", 0),
        allocated=document.get("Allocated", 0),
        non_preemptible=document.get("AllocatedNotPreemptible", 0),
        requested=document.get("Request", 0),
        usage=document.get("Usage", 0),
    )


def queue_shares(document: Document, key: str = "") -> QueueShares:
    """A QueueAttributes; `key` is its place in a map, for those that have no uid."""
    of = document.get("QueueResourceShare") or {}
    return QueueShares(
        document.get("UID") or key,
        name=document.get("Name", ""),
        parent=document.get("ParentQueue", ""),
        children=tuple(document.get("ChildQueues") or ()),
        created=nanoseconds(document.get("CreationTimestamp")),
        priority=document.get("Priority", 0),
        cpu=share(of.get("CPU") or {}),
        memory=share(of.get("Memory") or {}),
        gpu=share(of.get("GPU") or {}),
    )


def queue_map(documents: Mapping[str, Document] | None) -> dict[str, QueueShares]:
    return {key: queue_shares(document, key) for key, document in (documents or {}).items()}


def three(document: Mapping[str, float] | None) -> Quantities:
    return {name: (document or {}).get(name, 0) for name in RESOURCES}


def amounts(document: Document | None) -> ResourceAmounts:
    """A Resource."""
    if document is None:
        return ResourceAmounts()
    base = document.get("BaseResource") or {}
    return ResourceAmounts(
        base.get("milliCpu", 0),
        base.get("memory", 0),
        document.get("gpus", 0),
        dict(base.get("scalarResources") or {}),
    )


def request(document: Document | None) -> ResourceRequirements:
    """A ResourceRequirements."""
    document = document or {}
    base, gpu = document.get("BaseResource") or {}, document.get("GpuResourceRequirement") or {}
    return ResourceRequirements(
        cpu=base.get("milliCpu", 0),
        memory=base.get("memory", 0),
        scalars=base.get("scalarResources") or {},
        **gpu_part(gpu),
    )


def gpu_part(gpu: Document) -> dict[str, Any]:
    return {
        "count": gpu.get("count", 0),
        "portion": gpu.get("portion", 0),
        "gpu_memory": gpu.get("gpuMemory", 0),
        "claims": gpu.get("draGpuCounts") or {},
        "mig": gpu.get("migResources") or {},
    }


def task(document: Document) -> PodInfo:
    """A PodInfo."""
    pod = document.get("Pod") or {}
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    template = _pod(pod).template
    found = PodInfo(
        document.get("UID") or metadata.get("uid") or document.get("Name", ""),
        job=document.get("Job", ""),
        name=document.get("Name", ""),
        namespace=document.get("Namespace", ""),
        pod_set=document.get("SubGroupName", ""),
        request=request(document.get("ResReq")),
        sort=GpuRequestType(document.get("ResourceRequestType") or "Regular"),
        status=STATUSES[document.get("Status") or "Pending"],
        node=document.get("NodeName", ""),
        groups=tuple(document.get("GPUGroups") or ()),
        legacy_mig=document.get("IsLegacyMIGtask", False),
        spec=TaskSpec(
            pod=_pod(pod),
            labels=metadata.get("labels") or {},
            node_selector=template.node_selector,
            affinity=template.affinity,
            tolerations=template.tolerations,
            scheduler=spec.get("schedulerName", ""),
            nominated=(pod.get("status") or {}).get("nominatedNodeName", ""),
            created=microseconds(metadata.get("creationTimestamp")),
        ),
    )
    found.is_virtual_status = document.get("IsVirtualStatus", False)
    if document.get("AcceptedResource"):
        found.accepted_request = request(document["AcceptedResource"])
    received = document.get("ResourceReceivedType")
    found.received_type = GpuRequestType(received) if received else None
    return found


def _pod(pod: Document) -> Pod:
    """The pod as the model has it; a table may leave out its name."""
    named = {"name": "unnamed", **(pod.get("metadata") or {})}
    thing = decode_object({**pod, "apiVersion": "v1", "kind": "Pod", "metadata": named})
    return thing if isinstance(thing, Pod) else NO_OWNER_REFERENCES


def sub_group(document: Document) -> SubGroup:
    group = SubGroup(document.get("name", ""), constraint(document.get("topologyConstraint")))
    for child in document.get("groups") or ():
        group.add(sub_group(child))
    for child in document.get("podSets") or ():
        group.add(pod_set(child))
    return group


def pod_set(document: Document) -> PodSetInfo:
    """A pod set without its pods: a job takes them in."""
    return PodSetInfo(
        document.get("name", ""), document.get("minAvailable", 0), constraint(document.get("topologyConstraint"))
    )


def constraint(document: Document | None) -> TopologyConstraint | None:
    if document is None:
        return None
    return TopologyConstraint(
        topology=document.get("Topology", ""),
        required=document.get("RequiredLevel", ""),
        preferred=document.get("PreferredLevel", ""),
    )


def tasks_of(document: Document) -> Sequence[Document]:
    """The pods of all pod sets of a dumped job, else those of its index by status."""
    found: list[Document] = [
        {**pod, "SubGroupName": name}
        for name, pods in (document.get("PodSets") or {}).items()
        for pod in (pods.get("podInfos") or {}).values()
    ]
    return found or [pod for pods in (document.get("PodStatusIndex") or {}).values() for pod in pods.values()]


def root_of(document: Document) -> SubGroup:
    """The tree of a dumped job; one that was made without is as flat as its pod sets."""
    described = document.get("RootSubGroupSet")
    root = sub_group(described or {})
    known = root.all_pod_sets()
    for name, found in (document.get("PodSets") or {}).items():
        if name not in known:
            root.add(pod_set({"name": name, **found}))
    return root


def job(document: Document | None, tasks: Sequence[PodInfo] | None = None) -> PodGroupInfo:
    """A PodGroupInfo."""
    document = document or {}
    root = root_of(document)
    found = PodGroupInfo(
        document.get("UID") or document.get("Name", ""),
        name=document.get("Name", ""),
        namespace=document.get("Namespace", ""),
        queue=document.get("Queue", ""),
        priority=document.get("Priority", 0),
        preemptible=document.get("Preemptibility") == "preemptible",
        created=microseconds(document.get("CreationTimestamp")),
        started=microseconds(document["LastStartTimestamp"]) if document.get("LastStartTimestamp") else None,
        root=root if root.all_pod_sets() else None,
        tasks=[task(pod) for pod in tasks_of(document)] if tasks is None else tasks,
    )
    if document.get("Allocated"):
        found.allocated = amounts(document["Allocated"])
    return found


def node(document: Document) -> KaiNodeInfo:
    """A NodeInfo with the books that it was dumped with."""
    described = document.get("Node") or {}
    metadata, spec = described.get("metadata") or {}, described.get("spec") or {}
    found = KaiNodeInfo(
        Node(
            name=document.get("Name") or metadata.get("name", ""),
            labels=metadata.get("labels") or {},
            unschedulable=spec.get("unschedulable", False),
        ),
        amounts(document.get("Allocatable")),
        gpu_memory=document.get("MemoryOfEveryGpuOnNode", 0),
    )
    found.has_gpu_memory_label = document.get("GpuMemorySynced", False)
    found.idle, found.releasing = amounts(document.get("Idle")), amounts(document.get("Releasing"))
    found.used = amounts(document.get("Used"))
    found.dra_gpus = document.get("HasDRAGPUs", False)
    found.legacy_mig = dict(document.get("LegacyMIGTasks") or {})
    found.tasks = {key: task(pod) for key, pod in (document.get("PodInfos") or {}).items()}
    sharing = document.get("GpuSharingNodeInfo") or {}
    found.shared.used = dict(sharing.get("UsedSharedGPUsMemory") or {})
    found.shared.releasing = dict(sharing.get("ReleasingSharedGPUsMemory") or {})
    found.shared.allocated = dict(sharing.get("AllocatedSharedGPUsMemory") or {})
    found.shared.counted_releasing = {
        gpu for gpu, marked in (sharing.get("ReleasingSharedGPUs") or {}).items() if marked
    }
    return found
