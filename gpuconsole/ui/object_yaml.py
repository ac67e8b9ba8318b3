"""Manifests of kinds whose fields differ from those of our model: spec and status, as their API writes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuconsole.model.autoscaling import DEFAULT_BUDGETS, EXPIRE_AFTER, NodePool, NodePoolBudget
from gpuconsole.model.clock import format_exactly, format_time
from gpuconsole.model.cluster import CompositePodGroup, Node, Pod, ResourceQuota, SchedulingWorkload
from gpuconsole.model.kai import KaiPodGroup, KaiQueue, KaiTopology, QueueResource, SchedulingShard, ShardSetting
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import AdmissionCheck, MultiKueueCluster, MultiKueueConfig, Topology
from gpuconsole.model.resource_quota import written
from gpuconsole.model.volcano import GroupAffinity, PodGroup, SubGroupPolicy, VolcanoQueue
from gpuconsole.ui.job_yaml import network_topology_fields
from gpuconsole.ui.pod_yaml import (
    PREFERRED,
    REQUIRED,
    Fields,
    amounts,
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
