"""Any object of the model as YAML for reading, in the form of its manifest, with amounts and times as in Kubernetes.

Fields that the console does not read from the API server are missing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from gpuconsole.model.autoscaling import DEFAULT_BUDGETS, EXPIRE_AFTER, NodePool, NodePoolBudget
from gpuconsole.model.clock import SECOND, format_exactly, format_time
from gpuconsole.model.cluster import CompositePodGroup, Node, Pod, ResourceQuota, SchedulingWorkload
from gpuconsole.model.job import Job
from gpuconsole.model.kai import KaiPodGroup, KaiQueue, KaiTopology, QueueResource, SchedulingShard, ShardSetting
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    LocalQueue,
    MultiKueueCluster,
    MultiKueueConfig,
    Quota,
    ResourceFlavor,
    Topology,
)
from gpuconsole.model.resource_quota import written
from gpuconsole.model.resources import canonical, format_quantity
from gpuconsole.model.volcano import GroupAffinity, PodGroup, SubGroupPolicy, VolcanoQueue
from gpuconsole.model.workloads import (
    Admission,
    CheckState,
    Condition,
    PodSetAssignment,
    PreemptionGate,
    RequeueState,
    Workload,
    encode,
)
from gpuconsole.ui.job_yaml import (
    job_metadata,
    job_spec,
    job_status,
    network_topology_fields,
    owner_references,
    volcano_manifest,
)
from gpuconsole.ui.pod_yaml import (
    PREFERRED,
    REQUIRED,
    Fields,
    amounts,
    pod_set_fields,
    present,
    selector_fields,
    spec_fields,
    taint_fields,
)


@dataclass(frozen=True)
class Parts:
    """Parts of a manifest besides its metadata."""

    spec: Fields
    status: Fields = field(default_factory=dict)


def parts_of(obj: Object) -> Parts | None:
    """Return spec and status of an object; None for kinds that are written field by field, as in our model."""
    match obj:
        case Node():
            return _node(obj)
        case Pod():
            return _pod(obj)
        case ResourceQuota():
            return _quota(obj)
        case SchedulingWorkload(groups=groups):
            policies = {name: {"gang": {"minCount": least}} for name, least in groups.items()}
            return Parts({"podGroups": [{"name": name, "policy": policy} for name, policy in policies.items()]})
        case Topology(levels=levels):
            return Parts({"levels": [{"nodeLabel": level} for level in levels]})
        case AdmissionCheck():
            return _check(obj)
        case MultiKueueConfig(clusters=clusters):
            return Parts({"clusters": list(clusters)})
        case MultiKueueCluster(location=location, active=active):
            source = {"clusterSource": {"kubeConfig": {"location": location, "locationType": "Secret"}}}
            return Parts(source, _active(active))
        case NodePool():
            return _node_pool(obj)
        case VolcanoQueue():
            return _volcano_queue(obj)
        case PodGroup(policy=policy) if policy:
            return Parts(_kubernetes_group(obj, {"minCount": obj.min_member}))
        case CompositePodGroup():
            return Parts(_kubernetes_group(obj, {"minGroupCount": obj.min_groups}))
        case PodGroup():
            return _pod_group(obj)
        case SchedulingShard():
            return _shard(obj)
        case KaiQueue():
            return _kai_queue(obj)
        case KaiPodGroup():
            return _kai_group(obj)
        case _:
            return None


def _quota(quota: ResourceQuota) -> Parts:
    """A quota; scopes are written as selectors, which can express every scope."""
    scopes = [present(scopeName=one.scope, operator=one.operator, values=list(one.values)) for one in quota.scopes]
    hard = {name: written(name, amount) for name, amount in quota.hard.items()}
    used = {name: written(name, amount) for name, amount in quota.used.items()}
    status = {"hard": hard, "used": used} if used else {}
    return Parts(present(hard=hard, scopeSelector=present(matchExpressions=scopes)), status)


def owner_reference(owner: str, versions: Mapping[str, str]) -> list[Fields]:
    """The controlling owner of an object, by the key of a job (`Kind/namespace/name`)."""
    kind, _, rest = owner.partition("/")
    version = versions.get(kind)
    if version is None:
        return []
    name = rest.rpartition("/")[2]
    shown = {"VolcanoJob": "Job"}.get(kind, kind)
    return [{"apiVersion": version, "kind": shown, "name": name, "controller": True, "blockOwnerDeletion": True}]


def _active(active: bool) -> Fields:
    return {} if active else {"conditions": [{"type": "Active", "status": "False"}]}


def _node(node: Node) -> Parts:
    conditions = [{"type": type, "status": str(on)} for type, on in node.conditions.items()]
    if not node.ready:
        since = {} if node.not_ready_since is None else {"lastTransitionTime": format_time(node.not_ready_since)}
        conditions.append({"type": "Ready", "status": "False", **since})
    return Parts(
        present(taints=[taint_fields(taint) for taint in node.taints], unschedulable=node.unschedulable or None),
        present(
            capacity=amounts(node.capacity),
            allocatable=amounts(node.allocatable),
            conditions=conditions,
            images=[{"names": [name], "sizeBytes": size} for name, size in node.images.items()],
        ),
    )


def _pod(pod: Pod) -> Parts:
    spec = spec_fields(pod.template, node=pod.node)
    spec |= present(
        priority=pod.priority or None,
        hostname=pod.hostname or pod.template.hostname,
        subdomain=pod.subdomain or pod.template.subdomain,
        schedulingGates=[{"name": name} for name in pod.gates],
    )
    scheduled = {"type": "PodScheduled", "status": str(bool(pod.node))}
    scheduled |= present(lastTransitionTime=format_time(pod.bound) if pod.bound else None)
    why = present(reason=pod.reason, message=pod.message)
    return Parts(
        spec,
        {
            "phase": pod.phase.value,
            **present(
                startTime=format_time(pod.started) if pod.started else None, nominatedNodeName=pod.nominated_node
            ),
            **(why if pod.node else {}),
            "conditions": [scheduled if pod.node else {**scheduled, **why}],
        },
    )


def _check(check: AdmissionCheck) -> Parts:
    group, _, rest = check.parameters.partition("/")
    kind, _, name = rest.partition("/")
    reference = present(apiGroup=group, kind=kind, name=name)
    return Parts(present(controllerName=check.controller, parameters=reference), _active(check.active))


def _node_pool(pool: NodePool) -> Parts:
    # A manifest without a nodeClassRef launches nothing, and our model keeps none: its name is the usual one.
    inner: Fields = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}
    inner |= present(
        requirements=[
            {
                "key": key,
                "operator": operator,
                **present(values=list(values), minValues=pool.min_values.get(key)),
            }
            for key, operator, values in pool.requirements
        ],
        taints=[taint_fields(taint) for taint in pool.taints],
        expireAfter=_expiry(pool),
        terminationGracePeriod=None if pool.termination_grace is None else format_exactly(pool.termination_grace),
    )
    disruption = present(
        consolidationPolicy=pool.consolidation_policy,
        consolidateAfter=pool.consolidate_after,
        budgets=None if pool.budgets == DEFAULT_BUDGETS else [_budget(budget) for budget in pool.budgets],
    )
    template = {**present(metadata=present(labels=dict(pool.labels))), "spec": inner}
    return Parts(
        {
            "template": template,
            **present(
                disruption=disruption, limits=amounts(pool.limits), weight=pool.weight or None, replicas=pool.replicas
            ),
        }
    )


def _expiry(pool: NodePool) -> str:
    if pool.expire_after is None:
        return "Never"
    return "" if pool.expire_after == EXPIRE_AFTER else format_exactly(pool.expire_after)


def _budget(budget: NodePoolBudget) -> Fields:
    duration = format_exactly(budget.duration) if budget.schedule else ""
    return {"nodes": budget.nodes, **present(reasons=list(budget.reasons), schedule=budget.schedule, duration=duration)}


def _volcano_queue(queue: VolcanoQueue) -> Parts:
    return Parts(
        {
            "weight": queue.weight,
            **present(
                parent=queue.parent,
                capability=amounts(queue.capability),
                deserved=amounts(queue.deserved),
                guarantee=present(resource=amounts(queue.guarantee)),
                priority=queue.priority or None,
                dequeueStrategy=queue.dequeue_strategy,
                affinity=None if queue.affinity is None else _group_affinity(queue.affinity),
            ),
            **({} if queue.reclaimable else {"reclaimable": False}),
        },
        {"state": queue.state},
    )


def _group_affinity(asked: GroupAffinity) -> Fields:
    near = present(**{REQUIRED: list(asked.required), PREFERRED: list(asked.preferred)})
    far = present(**{REQUIRED: list(asked.anti_required), PREFERRED: list(asked.anti_preferred)})
    return present(nodeGroupAffinity=near, nodeGroupAntiAffinity=far)


def _pod_group(group: PodGroup) -> Parts:
    conditions = [
        present(
            type=one.type,
            status=str(one.status),
            reason=one.reason,
            message=one.message,
            lastTransitionTime=format_time(one.since) if one.since else None,
        )
        for one in group.conditions
    ]
    return Parts(
        {
            "minMember": group.min_member,
            **present(
                minTaskMember=dict(group.min_task_member),
                queue=group.queue,
                priorityClassName=group.priority_class,
                minResources=None if group.min_resources is None else amounts(group.min_resources),
                networkTopology=network_topology_fields(group.network_topology),
                subGroupPolicy=[_sub_group(one) for one in group.sub_groups],
            ),
        },
        present(phase=group.phase, conditions=conditions),
    )


def is_of_kubernetes(obj: Object) -> bool:
    """Return whether an object is a PodGroup of Kubernetes (scheduling.k8s.io), not of another scheduler."""
    return isinstance(obj, PodGroup) and bool(obj.policy)


def _kubernetes_group(group: PodGroup | CompositePodGroup, gang: Fields) -> Fields:
    constraints = {"topology": [{"key": group.topology_key}]} if group.topology_key else {}
    return {
        "schedulingPolicy": {group.policy: gang if group.policy == "gang" else {}},
        **present(schedulingConstraints=constraints, parentCompositePodGroupName=group.parent_group),
    }


def _sub_group(one: SubGroupPolicy) -> Fields:
    return {
        "name": one.name,
        **present(
            subGroupSize=one.size,
            minSubGroups=one.least,
            networkTopology=network_topology_fields(one.network_topology),
            matchLabelKeys=list(one.match_label_keys),
        ),
        **({} if one.selector is None else {"labelSelector": selector_fields(one.selector)}),
    }


def _shard(shard: SchedulingShard) -> Parts:
    least = present(preemptMinRuntime=shard.preempt_min_runtime, reclaimMinRuntime=shard.reclaim_min_runtime)
    k_value = {} if shard.k_value is None else {"kValue": shard.k_value}
    return Parts(
        {
            "placementStrategy": {"gpu": shard.gpu_strategy, "cpu": shard.cpu_strategy},
            **k_value,
            **present(
                partitionLabelValue=shard.partition,
                queueDepthPerAction=dict(shard.queue_depth),
                minRuntime=least,
                plugins={name: _setting(one) for name, one in shard.plugin_settings.items()},
                actions={name: _setting(one) for name, one in shard.action_settings.items()},
                args=dict(shard.args),
            ),
        }
    )


def _setting(one: ShardSetting) -> Fields:
    """A setting of a plugin or an action; False and 0 are settings, too."""
    fields = {"enabled": one.enabled, "priority": one.priority, "arguments": one.arguments}
    return {name: value for name, value in fields.items() if value is not None}


def _kai_queue(queue: KaiQueue) -> Parts:
    resources = {"gpu": queue.gpu, "cpu": queue.cpu, "memory": queue.memory}
    least = {"preemptMinRuntime": queue.preempt_min_runtime, "reclaimMinRuntime": queue.reclaim_min_runtime}
    return Parts(
        {
            **present(displayName=queue.display_name, parentQueue=queue.parent),
            "priority": queue.priority,
            "resources": {name: _kai_resource(one) for name, one in resources.items()},
            **{name: format_exactly(span) for name, span in least.items() if span is not None},
        }
    )


def _kai_resource(one: QueueResource) -> Fields:
    return {"quota": one.quota, "overQuotaWeight": one.over_quota_weight, "limit": one.limit}


def _kai_group(group: KaiPodGroup) -> Parts:
    conditions = [
        present(
            type=one.type,
            reason=one.reason,
            message=one.message,
            lastTransitionTime=format_time(one.since) if one.since else None,
        )
        for one in group.conditions
    ]
    parts = [
        {
            "name": one.name,
            **present(parent=one.parent, minMember=one.min_member, topologyConstraint=_kai_topology(one.constraint)),
        }
        for one in group.sub_groups
    ]
    return Parts(
        {
            "minMember": group.min_member,
            **present(
                queue=group.queue,
                priorityClassName=group.priority_class,
                preemptibility=group.preemptibility,
                topologyConstraint=_kai_topology(group.constraint),
                subGroups=parts,
                markUnschedulable=group.mark_unschedulable,
                schedulingBackoff=group.backoff,
            ),
        },
        present(schedulingConditions=conditions),
    )


def _kai_topology(asked: KaiTopology | None) -> Fields:
    if asked is None:
        return {}
    return present(
        topology=asked.topology, requiredTopologyLevel=asked.required, preferredTopologyLevel=asked.preferred
    )


API_VERSIONS: Mapping[str, str] = {
    "Namespace": "v1",
    "LimitRange": "v1",
    "RuntimeClass": "node.k8s.io/v1",
    "Node": "v1",
    "Pod": "v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "WorkloadPriorityClass": "kueue.x-k8s.io/v1beta2",
    "Topology": "kueue.x-k8s.io/v1beta2",
    "StorageClass": "storage.k8s.io/v1",
    "CSINode": "storage.k8s.io/v1",
    "DeviceClass": "resource.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1",
    "ResourceClaimTemplate": "resource.k8s.io/v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceFlavor": "kueue.x-k8s.io/v1beta2",
    "AdmissionCheck": "kueue.x-k8s.io/v1beta2",
    **dict.fromkeys(("MultiKueueConfig", "MultiKueueCluster", "ProvisioningRequestConfig"), "kueue.x-k8s.io/v1beta2"),
    "ProvisioningRequest": "autoscaling.x-k8s.io/v1",
    "Cohort": "kueue.x-k8s.io/v1beta2",
    "ClusterQueue": "kueue.x-k8s.io/v1beta2",
    "LocalQueue": "kueue.x-k8s.io/v1beta2",
    "Workload": "kueue.x-k8s.io/v1beta2",
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "RayJob": "ray.io/v1",
    "RayCluster": "ray.io/v1",
    "PyTorchJob": "kubeflow.org/v1",
    **dict.fromkeys(("TFJob", "XGBoostJob", "PaddleJob", "JAXJob"), "kubeflow.org/v1"),
    "MPIJob": "kubeflow.org/v2beta1",
    **dict.fromkeys(("TrainJob", "TrainingRuntime"), "trainer.kubeflow.org/v1alpha1"),
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet"), "apps/v1"),
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "CronJob": "batch/v1",
    "RayCronJob": "ray.io/v1",
    "VolcanoCronJob": "batch.volcano.sh/v1alpha1",
    **dict.fromkeys(("JobTemplate", "JobFlow"), "flow.volcano.sh/v1alpha1"),
    "VolcanoJob": "batch.volcano.sh/v1alpha1",
    **dict.fromkeys(("SparkApplication", "ScheduledSparkApplication"), "sparkoperator.k8s.io/v1beta2"),
    "AppWrapper": "workload.codeflare.dev/v1beta2",
    "RayService": "ray.io/v1",
    "VolcanoQueue": "scheduling.volcano.sh/v1beta1",
    "SchedulingShard": "kai.scheduler/v1",
    "KaiQueue": "scheduling.run.ai/v2",
    "KaiPodGroup": "scheduling.run.ai/v2alpha2",
    "Numatopology": "nodeinfo.volcano.sh/v1alpha1",
    "HyperNode": "topology.volcano.sh/v1alpha1",
    "PodGroup": "scheduling.volcano.sh/v1beta1",
    "SchedulingWorkload": "scheduling.k8s.io/v1alpha1",
    "CompositePodGroup": "scheduling.k8s.io/v1alpha3",
    "NodePool": "karpenter.sh/v1",
    "PodDisruptionBudget": "policy/v1",
}
GROUPS_OF_KUBERNETES = "scheduling.k8s.io/v1alpha3"
"""API version of Kubernetes' PodGroups; Volcano and the Coscheduling plugin have PodGroups of their own."""

_KINDS = {
    "VolcanoQueue": "Queue",
    "KaiQueue": "Queue",
    "SchedulingWorkload": "Workload",
    "KaiPodGroup": "PodGroup",
    "StoredTemplate": "PodTemplate",
    "VolcanoCronJob": "CronJob",
}
"""Kinds that our model names apart from others of the same name."""
_METADATA = {"name", "namespace", "uid", "created", "labels", "annotations"}
_TOP = {"value", "global_default", "preemption_policy", "description"}
_STATUS = {
    *("conditions", "admission", "requeue", "reclaimable_pods", "admission_checks", "unhealthy_nodes"),
    *("accumulated_past_execution_time_seconds", "resource_requests", "scheduling_stats", "cluster_name"),
    *("nominated_cluster_names", "phase"),
}
_LATELY = ("consumed", "sampled", "usage")
_TIMES = {"created", "since", "at"}
_AMOUNTS = {
    *("requests", "limits", "capacity", "usage", "overhead", "max", "min", "default"),
    *("default_request", "resources", "min_resources", "capability", "deserved", "guarantee"),
}
_NAMES = {
    "created": "creationTimestamp",
    "since": "lastTransitionTime",
    "queue": "queueName",
    "requeue": "requeueState",
}


_OTHER_NAMES: Mapping[type[Struct], Mapping[str, str]] = {
    ClusterQueue: {"cohort": "cohort_name", "fungibility": "flavor_fungibility"},
    Cohort: {"parent": "parent_name"},
    ResourceFlavor: {"topology": "topology_name"},
    Admission: {"pod_sets": "pod_set_assignments"},
    PodSetAssignment: {"usage": "resource_usage", "delayed": "delayed_topology_request"},
    CheckState: {"requeue_after": "requeue_after_seconds", "updates": "pod_set_updates"},
    RequeueState: {"at": "requeue_at"},
    Workload: {
        "checks": "admission_checks",
        "cluster": "cluster_name",
        "max_execution_time": "maximum_execution_time_seconds",
        "nominated_clusters": "nominated_cluster_names",
        "past_execution": "accumulated_past_execution_time_seconds",
        "priority_class": "priority_class_ref",
        "reclaimable": "reclaimable_pods",
    },
}
_GROUPS = {"WorkloadPriorityClass": "kueue.x-k8s.io", "PriorityClass": "scheduling.k8s.io"}


class _Dumper(yaml.SafeDumper):
    """Quotes strings that Kubernetes reads as booleans and PyYAML does not, such as a node named `n`."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("[yYnN]$"), list("yYnN"))


def as_yaml(obj: Object) -> str:
    """Format an object as YAML. Control characters are kept; the pane that shows the text removes them."""
    return yaml.dump(as_manifest(obj), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def as_manifest(obj: Object) -> dict[str, Any]:
    """The object as a manifest that the API server accepts: metadata, spec, status."""
    if isinstance(obj, Job):
        return _job(obj)
    kind = type(obj).__name__
    found = parts_of(obj)
    parts: dict[str, dict[str, Any]] = {"metadata": {}, "": {}, "spec": {}, "status": {}}
    for name, value in _fields(obj).items():
        part = "metadata" if name in _METADATA else "status" if name in _STATUS else "" if name in _TOP else "spec"
        if name != "kind" and (found is None or part == "metadata"):
            parts[part][_key(name)] = value
    if found is not None:
        parts["spec"], parts["status"] = found.spec, found.status
    if isinstance(obj, LocalQueue):
        parts["status"] = _used_lately(obj)
        for name in _LATELY:
            parts["spec"].pop(name, None)
    if isinstance(obj, Workload):
        gates = [_gate(gate) for gate in obj.preemption_gates if gate.since is not None or gate.open]
        parts["status"] |= present(preemptionGates=gates)
        owners = owner_references(obj, API_VERSIONS)
        parts["metadata"] |= {"ownerReferences": owners} if owners else {}
    if isinstance(obj, Pod):
        grace = obj.template.grace_period
        end = {"deletionTimestamp": format_time(obj.deleted + grace), "deletionGracePeriodSeconds": grace // SECOND}
        deleted = end if obj.deleted else {}
        parts["metadata"] |= present(**deleted, ownerReferences=owner_reference(obj.job, API_VERSIONS))
    return {
        "apiVersion": GROUPS_OF_KUBERNETES if is_of_kubernetes(obj) else API_VERSIONS.get(kind, "v1"),
        "kind": _KINDS.get(kind, kind),
        "metadata": parts["metadata"],
        **parts[""],
        **present(spec=parts["spec"], status=parts["status"]),
    }


def _job(job: Job) -> dict[str, Any]:
    """A job in the form of its kind's manifest."""
    meta = {
        **present(namespace=job.namespace, name=job.name, uid=job.uid),
        **present(creationTimestamp=format_time(job.created) if job.created else None),
        **job_metadata(job),
        **present(ownerReferences=owner_reference(job.owner, API_VERSIONS)),
    }
    if job.volcano is not None:
        return volcano_manifest(job, meta)
    return {
        "apiVersion": API_VERSIONS.get(job.kind, "v1"),
        "kind": _KINDS.get(job.kind, job.kind),
        "metadata": meta,
        "spec": job_spec(job),
        **present(status=job_status(job)),
    }


def as_documents(text: str) -> tuple[str, ...]:
    """Split a YAML text that this program wrote into its manifests, each as JSON."""
    return tuple(msgspec.json.encode(document).decode() for document in yaml.safe_load_all(text) if document)


def _used_lately(queue: LocalQueue) -> dict[str, Any]:
    """The status of a LocalQueue under admission fair sharing, if it was sampled."""
    if not queue.sampled:
        return {}
    consumed = {name: canonical(f"{amount}n") for name, amount in queue.consumed.items()}
    status = {"consumedResources": consumed, "lastUpdate": format_time(queue.sampled)}
    return {"fairSharing": {"admissionFairSharingStatus": status}}


def _fields(obj: Struct) -> dict[str, Any]:
    """Fields that differ from their defaults, as plain values, by the model's own names."""
    out: dict[str, Any] = {}
    for entry in msgspec.structs.fields(obj):
        value = getattr(obj, entry.name)
        if entry.name != "name" and (value is None or value == entry.default or value in ("", (), {})):
            continue
        out[entry.name] = _value(entry.name, value)
    if isinstance(obj, PodSetAssignment) and obj.levels:
        out = {key: value for key, value in out.items() if key not in ("levels", "topology")}
        out["topology_assignment"] = encode(obj.levels, obj.topology)
    if isinstance(obj, FlavorQuotas):
        out["resources"] = [{"name": name, **amounts} for name, amounts in out["resources"].items()]
    if "fair_weight" in out:
        out["fair_sharing"] = {"weight": f"{out.pop('fair_weight'):g}"}
    if isinstance(obj, ClusterQueue):
        out.update(_cluster_queue(obj))
        for name in ("admission_mode", "checks", "concurrent_admission", "terminating"):
            out.pop(name, None)
    if isinstance(obj, Workload):
        out.update(_workload(obj))
        for name in ("priority_kind", "owner", "job_uid", "done", "inadmissible"):
            out.pop(name, None)
    if isinstance(obj, Condition):
        out["status"] = str(obj.status)
    names = _OTHER_NAMES.get(type(obj), {})
    return {names.get(key, key): value for key, value in out.items()}


def _cluster_queue(queue: ClusterQueue) -> dict[str, Any]:
    """Fields of a ClusterQueue that its API writes in another form than the model."""
    rules = [{"name": rule.name, **present(onFlavors=list(rule.on_flavors))} for rule in queue.checks]
    tried = queue.concurrent_admission
    limits = present(lastAcceptableFlavorName=tried.last_acceptable_flavor) if tried is not None else {}
    migration = {"mode": tried.mode.value, **present(constraints=limits)} if tried is not None else None
    return present(
        admission_scope=present(admissionMode=queue.admission_mode),
        admission_checks_strategy=present(admissionChecks=rules),
        concurrent_admission_policy=present(migration=migration),
    )


def _workload(workload: Workload) -> dict[str, Any]:
    """Fields of a Workload that its API writes in another form than the model."""
    out: dict[str, Any] = {"pod_sets": [pod_set_fields(pods) for pods in workload.pod_sets]}
    if workload.preemption_gates:
        out["preemption_gates"] = [{"name": gate.name} for gate in workload.preemption_gates]
    if workload.priority_kind:
        reference = {"group": _GROUPS.get(workload.priority_kind, ""), "kind": workload.priority_kind}
        out["priority_class"] = {**reference, "name": workload.priority_class}
    if workload.reclaimable:
        out["reclaimable"] = [{"name": name, "count": count} for name, count in workload.reclaimable.items()]
    if workload.past_execution:
        out["past_execution"] = workload.past_execution // SECOND
    if workload.max_execution_time is not None:
        out["max_execution_time"] = workload.max_execution_time // SECOND
    return out


def _gate(gate: PreemptionGate) -> dict[str, Any]:
    """The position of a preemption gate; one that was never opened is not written."""
    since = {} if gate.since is None else {"lastTransitionTime": format_time(gate.since)}
    return {"name": gate.name, "position": "Open" if gate.open else "Closed", **since}


def _value(name: str, value: Any) -> Any:
    match value:
        case bool() | float():
            return value
        case int() if name in _TIMES:
            return format_time(value)
        case int():
            return int(value)
        case str():
            return str(value)
        case Struct():
            return {_key(key): inner for key, inner in _fields(value).items()}
        case Mapping():
            return {key: _entry(name, key, inner) for key, inner in value.items()}
        case tuple() if name == "unhealthy_nodes":
            return [{"name": str(node)} for node in value]
        case tuple() | frozenset():
            return [_value(name, inner) for inner in value]
    return str(value)


def _entry(name: str, key: str, value: Any) -> Any:
    if isinstance(value, Quota):
        limits = (("nominalQuota", value.nominal), ("borrowingLimit", value.borrowing_limit))
        amounts = (*limits, ("lendingLimit", value.lending_limit))
        return {title: format_quantity(key, amount) for title, amount in amounts if amount is not None}
    if name in _AMOUNTS and isinstance(value, int):
        return format_quantity(key, value)
    return _value(name, value)


def _key(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
