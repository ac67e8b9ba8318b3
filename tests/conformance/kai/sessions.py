"""The cluster that KAI's test helpers build from a case, as a session of ours."""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import LabelSelector, NodeTerm, Requirement
from gpuconsole.model.pod_template import PodAffinity, PodTemplate, PodTerm
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup, TopologyConstraint, TopologyInfo
from gpuconsole.scheduling.kai.api.nodes import GPU_COUNT_LABEL, GPU_MEMORY_LABEL, MIG_ENABLED_LABEL, KaiNodeInfo
from gpuconsole.scheduling.kai.api.nodes import MIG_STRATEGY_LABEL as MIG_STRATEGY
from gpuconsole.scheduling.kai.api.tasks import (
    ACTIVE_USED,
    ALLOCATED,
    PODS,
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
)
from gpuconsole.scheduling.kai.config import KaiConfiguration, KaiPluginOption, SchedulerFlags, Tier, configuration
from gpuconsole.scheduling.kai.fair_share.division import KaiQueueQuota, QueueState
from gpuconsole.scheduling.kai.session import KaiSession
from gpuconsole.scheduling.kai.store import open_plugins

Document = Mapping[str, Any]
SECOND = 1_000_000
MINUTE = 60 * SECOND
NOW = 1_000_000 * MINUTE
NODE_TYPE = "kai.scheduler/type"
STATUSES = {status.name.capitalize(): status for status in KaiPodStatus}


def build(case: Document, effective: Document, grace: int = 0) -> KaiSession:
    """A session on the case's objects with its plugins opened."""
    claims = claim_book(case.get("TestDRAObjects") or {})
    described = sorted(case.get("Jobs") or (), key=lambda job: -job.get("Priority", 0))
    jobs = [_job(document, len(described) - index, claims) for index, document in enumerate(described)]
    nodes = [_node(name, document, jobs, claims) for name, document in (case.get("Nodes") or {}).items()]
    session = KaiSession(
        jobs=jobs,
        nodes=nodes,
        queues=queues(effective["queues"]),
        topologies=[topology(document) for document in case.get("Topologies") or ()],
        claims=claims,
        now=NOW,
        configuration=_configuration((case.get("Mocks") or {}).get("SchedulerConf")),
        parameters=SchedulerFlags(max_consolidation_victims=-1, use_scheduling_signatures=False, staleness_grace=grace),
    )
    open_plugins(session, () if effective["predicatesPluginLoaded"] else ("predicates",))
    return session


def _configuration(document: Document | None) -> KaiConfiguration:
    if document is None:
        return KaiConfiguration()
    tiers = [
        Tier(
            tuple(
                KaiPluginOption(name=plugin["Name"], arguments=plugin.get("Arguments") or {})
                for plugin in tier.get("Plugins") or ()
            )
        )
        for tier in document.get("Tiers") or ()
    ]
    return configuration("", tiers, {})


def topology(document: Document) -> TopologyInfo:
    levels = (document.get("spec") or {}).get("levels") or ()
    return TopologyInfo(document["metadata"]["name"], tuple(level["nodeLabel"] for level in levels))


def queues(documents: list[Document]) -> list[QueueState]:
    """Queues as `effective` tells them, with the children that their parents have."""
    return [
        QueueState(
            uid=document["name"],
            name=document["name"],
            parent=document["parent"],
            children=tuple(other["name"] for other in documents if other["parent"] == document["name"]),
            priority=document["priority"],
            created=document["creationMinutes"] * MINUTE,
            gpu=_quota(document["gpu"]),
            cpu=_quota(document["cpu"]),
            memory=_quota(document["memory"]),
        )
        for document in documents
    ]


def _quota(document: Document) -> KaiQueueQuota:
    return KaiQueueQuota(
        quota=document["quota"], limit=document["limit"], over_quota_weight=document["overQuotaWeight"]
    )


def claim_book(document: Document) -> ClaimIndex:
    slices = document.get("ResourceSlices") or ()
    devices = [
        DraDevice(found.get("NodeName", ""), "nvidia.com/gpu", found.get("NodeName", ""), f"{found['Name']}/{index}")
        for found in slices
        for index in range(found.get("Count", 0))
    ]
    claims = [_claim(found) for found in document.get("ResourceClaims") or ()]
    return ClaimIndex(claims, devices, document.get("DeviceClasses") or ())


def _claim(document: Document) -> ClaimInfo:
    status = document.get("ClaimStatus") or {}
    allocation = status.get("allocation")
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    return ClaimInfo(
        namespace=document.get("Namespace", ""),
        name=document["Name"],
        labels=document.get("Labels") or {},
        requests=(ClaimDeviceRequest(document.get("DeviceClassName", ""), document.get("Count") or 1),),
        reserved=tuple(found["name"] for found in status.get("reservedFor") or ()),
        devices=None
        if allocation is None
        else tuple(
            DraDevice(found.get("pool", ""), found.get("driver", ""), found.get("pool", ""), found.get("device", ""))
            for found in results
        ),
    )


def _job(document: Document, age: int, claims: ClaimIndex) -> PodGroupInfo:
    tasks = [_task(document, index, task, claims) for index, task in enumerate(document["Tasks"])]
    preemptibility = document.get("Preemptibility") or (
        "preemptible" if document.get("Priority", 0) < 100 else "non-preemptible"
    )
    stale = document.get("StaleDuration")
    minutes = document.get("JobAgeInMinutes") or age
    return PodGroupInfo(
        document["Name"],
        namespace=document.get("Namespace", ""),
        queue=document.get("QueueName", ""),
        priority=document.get("Priority", 0),
        preemptible=preemptibility == "preemptible",
        created=NOW - minutes * MINUTE,
        started=NOW - MINUTE if any(task.status in ALLOCATED for task in tasks) else None,
        stale_since=None if stale is None else NOW - round(stale["$seconds"] * SECOND),
        root=root_of(document.get("RootSubGroupSet"), tasks),
        tasks=tasks,
    )


def root_of(document: Document | None, tasks: list[PodInfo]) -> SubGroup:
    """The case's tree; tasks without a sub-group get the pod set `default`, all of them being needed."""
    root = sub_group(document or {})
    if any(not task.pod_set for task in tasks) and "default" not in root.all_pod_sets():
        root.add(PodSetInfo("default", len(tasks)))
    return root


def sub_group(document: Document) -> SubGroup:
    group = SubGroup(document.get("name", ""), _constraint(document))
    for child in document.get("groups") or ():
        group.add(sub_group(child))
    for child in document.get("podSets") or ():
        group.add(PodSetInfo(child["name"], child.get("minAvailable", 0), _constraint(child)))
    return group


def _constraint(document: Document) -> TopologyConstraint | None:
    found = document.get("topologyConstraint")
    if found is None:
        return None
    return TopologyConstraint(
        topology=found.get("Topology", ""),
        required=found.get("RequiredLevel", ""),
        preferred=found.get("PreferredLevel", ""),
    )


def _task(job: Document, index: int, document: Document, claims: ClaimIndex) -> PodInfo:
    uid = f"{job['Name']}-{index}"
    status = STATUSES[document["State"]]
    node = document.get("NodeName", "")
    request, sort = _request(job, document, claims)
    groups = tuple(document.get("GPUGroups") or ())
    if node and sort is GpuRequestType.FRACTION and not groups:
        groups = (f"group-of-{uid}",)
    return PodInfo(
        uid,
        job=job["Name"],
        namespace=job.get("Namespace", ""),
        pod_set=document.get("SubGroupName", ""),
        request=request,
        sort=sort,
        status=status,
        node=node,
        groups=groups,
        legacy_mig=document.get("IsLegacyMigTask", False),
        spec=_spec(uid, document),
    )


def _request(job: Document, task: Document, claims: ClaimIndex) -> tuple[ResourceRequirements, GpuRequestType]:
    scalars = {PODS: 1}
    gpus, memory = job.get("RequiredGPUsPerTask", 0), job.get("RequiredGpuMemory", 0)
    base: dict[str, Any] = {"scalars": scalars, "claims": _claimed(job, task, claims)}
    if not job.get("IsBestEffortJob"):
        base["cpu"] = (job.get("RequiredCPUsPerTask") or 1) * 1000
        base["memory"] = job.get("RequiredMemoryPerTask") or 1e9
    mig = task.get("RequiredMigInstances") or {}
    if mig:
        return ResourceRequirements(**base, mig=mig), GpuRequestType.MIG
    if job.get("IsBestEffortJob"):
        gpus = 0
    if gpus != int(gpus):
        return ResourceRequirements(**base, count=1, portion=gpus), GpuRequestType.FRACTION
    if memory and not job.get("IsBestEffortJob"):
        return ResourceRequirements(**base, count=1, gpu_memory=memory), GpuRequestType.MEMORY
    if "RequiredGPUs" in task:
        gpus = task["RequiredGPUs"]
    # A request of zero GPUs is read as one device of which nothing is taken.
    count = int(gpus) or (0 if job.get("IsBestEffortJob") else 1)
    return ResourceRequirements(**base, count=count, portion=1 if gpus else 0), GpuRequestType.REGULAR


def _claimed(job: Document, task: Document, claims: ClaimIndex) -> dict[str, int]:
    counts: dict[str, int] = {}
    for reference in _references(task):
        claim = claims.claims.get(f"{job.get('Namespace', '')}/{reference.claim}")
        for request in claim.requests if claim is not None and claim.is_gpu_claim else ():
            counts[request.device_class] = counts.get(request.device_class, 0) + request.count
    return counts


def _references(task: Document) -> tuple[ClaimRef, ...]:
    named = (ClaimRef(name, name) for name in task.get("ResourceClaimNames") or ())
    templates = task.get("ResourceClaimTemplates") or {}
    return (*named, *(ClaimRef(name, claim, True) for name, claim in templates.items()))


def _spec(uid: str, document: Document) -> TaskSpec:
    labels = document.get("PodAffinityLabels") or {}
    selector = LabelSelector(match_labels=labels)
    near, apart = (
        PodAffinity((PodTerm(document[key], selector),)) if labels and document.get(key) else None
        for key in ("PodAffinityTopologyKey", "PodAntiAffinityTopologyKey")
    )
    names = document.get("NodeAffinityNames") or ()
    order = {} if document.get("Priority") is None else {"kai.scheduler/task-priority": str(document["Priority"])}
    return TaskSpec(
        pod=Pod(name=uid, labels=labels, template=PodTemplate(pod_affinity=near, pod_anti_affinity=apart)),
        labels={"job-name": uid, **labels, **order},
        affinity=(NodeTerm((Requirement(NODE_TYPE, "In", tuple(names)),)),) if names else None,
        claims=_references(document),
    )


def _node(name: str, document: Document, jobs: list[PodGroupInfo], claims: ClaimIndex) -> KaiNodeInfo:
    gpus, strategy = document.get("GPUs", 0), document.get("MigStrategy", "")
    labels = {
        GPU_COUNT_LABEL: str(gpus),
        GPU_MEMORY_LABEL: "100",
        MIG_ENABLED_LABEL: "true" if strategy else "false",
        MIG_STRATEGY: strategy,
        NODE_TYPE: name,
        **(document.get("Labels") or {}),
    }
    if document.get("GPUMemory"):
        labels[GPU_MEMORY_LABEL] = str(document["GPUMemory"])
    amounts = ResourceAmounts(
        cpu=(document.get("CPUMillis") or 20000) * 1000,
        memory=document.get("CPUMemory") or 20e9,
        gpus=0 if strategy == "mixed" else gpus,
        scalars={PODS: 110, **(document.get("MigInstances") or {})},
    )
    node = KaiNodeInfo(Node(name=name, labels=labels), amounts)
    node.add_dra_gpus(sum(device.node == name for device in claims.devices))
    for task in sorted((task for job in jobs for task in job.tasks()), key=lambda task: task.uid):
        if task.node == name and task.status in ACTIVE_USED:
            node.add_task(task)
    if "MaxTaskNum" in document:
        node.allocatable.scalars[PODS] = document["MaxTaskNum"]
        node.idle.scalars[PODS] = max(0, document["MaxTaskNum"] - int(node.used.get(PODS)))
    if "GpuMemorySynced" in document:
        node.has_gpu_memory_label = document["GpuMemorySynced"]
    return node
