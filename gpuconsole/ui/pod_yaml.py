"""Pod templates in the form of their manifest: metadata and spec, as the API server takes them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuconsole.model.clock import SECOND
from gpuconsole.model.documents.reader import is_extended
from gpuconsole.model.jobs import common as names
from gpuconsole.model.labels import LabelSelector, NodeTerm, Requirement, Taint, Toleration
from gpuconsole.model.pod_template import (
    Container,
    HostPort,
    PodAffinity,
    PodSet,
    PodTemplate,
    PodTerm,
    PodVolume,
    SpreadConstraint,
    TopologyRequest,
)
from gpuconsole.model.resources import Resources, format_quantity

Fields = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_GRACE = 30 * SECOND
_SCHEDULER = "default-scheduler"


def present(**values: Any) -> Fields:
    """Return the given fields without those whose value is None or an empty string, list or mapping."""
    return {name: value for name, value in values.items() if value not in (None, "", {}, [], ())}


def amounts(resources: Resources) -> Fields:
    """Amounts by resource, as quantities."""
    return {name: format_quantity(name, amount) for name, amount in resources.items()}


def taint_fields(taint: Taint) -> Fields:
    return {"key": taint.key, **present(value=taint.value), "effect": taint.effect}


def selector_fields(selector: LabelSelector) -> Fields:
    """A label selector; an empty one is an empty mapping."""
    return present(matchLabels=dict(selector.match_labels), matchExpressions=_requirements(selector.match_expressions))


def toleration_fields(toleration: Toleration) -> Fields:
    return present(
        key=toleration.key,
        operator=toleration.operator,
        value=toleration.value,
        effect=toleration.effect,
        tolerationSeconds=toleration.seconds,
    )


def template_fields(template: PodTemplate, *, labels: Mapping[str, str] | None = None, restart: str = "") -> Fields:
    """A pod template in the form of a manifest.

    `labels` are added to its own; `restart` is the restartPolicy if it has none.
    """
    own = {**template.labels, **(labels or {})}
    meta = present(labels=own, annotations=dict(template.annotations))
    return {**present(metadata=meta), "spec": spec_fields(template, restart=restart)}


def _scheduling_group(template: PodTemplate) -> Fields:
    """The group of scheduling.k8s.io to which it belongs: by its PodGroup, or by the Workload (v1alpha1)."""
    name, (workload, _, group) = template.scheduling_group, template.scheduling_workload.partition("/")
    if not workload:
        return {"schedulingGroup": present(podGroupName=name)}
    replica = name.removeprefix(f"{workload}-{group}").removeprefix("-")
    return {"workloadRef": present(name=workload, podGroup=group, podGroupReplicaKey=replica)}


def spec_fields(template: PodTemplate, *, restart: str = "", node: str = "") -> Fields:
    """The spec of a pod; `node` is the one to which it is bound."""
    affinity = present(
        nodeAffinity=_node_affinity(template),
        podAffinity=_pod_affinity(template.pod_affinity),
        podAntiAffinity=_pod_affinity(template.pod_anti_affinity),
    )
    scheduler = template.scheduler_name if template.scheduler_name != _SCHEDULER else ""
    grace = None if template.grace_period == _GRACE else template.grace_period // SECOND
    deadline = None if template.active_deadline is None else template.active_deadline // SECOND
    whole = template.resources
    return present(
        restartPolicy=template.restart_policy or restart,
        schedulerName=scheduler,
        nodeName=node,
        priorityClassName=template.priority_class,
        priority=template.priority,
        preemptionPolicy=template.preemption_policy,
        activeDeadlineSeconds=deadline,
        terminationGracePeriodSeconds=grace,
        runtimeClassName=template.runtime_class,
        hostname=template.hostname,
        subdomain=template.subdomain,
        **_scheduling_group(template),
        schedulingGates=[{"name": name} for name in template.scheduling_gates],
        nodeSelector=dict(template.node_selector),
        affinity=affinity,
        tolerations=[toleration_fields(one) for one in template.tolerations],
        topologySpreadConstraints=[_spread(one) for one in template.spread],
        overhead=amounts(template.overhead),
        resources=present(requests=amounts(whole.requests), limits=amounts(whole.limits)) if whole else None,
        initContainers=[_container(one) for one in template.init_containers],
        containers=[_container(one) for one in template.containers],
        resourceClaims=[
            present(name=one.name, resourceClaimTemplateName=one.template, resourceClaimName=one.claim)
            for one in template.resource_claims
        ],
        volumes=[
            *map(_volume, template.volumes),
            *({"name": name, "emptyDir": {}} for name in template.local_volumes),
        ],
    )


def asked_topology(pods: PodSet) -> Mapping[str, str]:
    """Return the annotations of a pod set's topology request (podset-required-topology, …) that its template lacks."""
    asked = pods.topology
    if asked is None:
        return {}
    layers = [{"topology": level, "size": size} for level, size in asked.slice_constraints]
    found = {
        names.REQUIRED: asked.required,
        names.PREFERRED: asked.preferred,
        names.UNCONSTRAINED: "true" if asked.unconstrained else "",
        names.SLICE_REQUIRED: asked.slice_required,
        names.SLICE_SIZE: "" if asked.slice_size is None else str(asked.slice_size),
        names.SLICE_CONSTRAINTS: json.dumps(layers) if layers else "",
        names.GROUP: asked.group,
    }
    return {name: value for name, value in found.items() if value and name not in pods.template.annotations}


def topology_fields(asked: TopologyRequest) -> Fields:
    """A topologyRequest of a Workload's pod set."""
    return present(
        required=asked.required,
        preferred=asked.preferred,
        unconstrained=asked.unconstrained or None,
        podSetSliceRequiredTopology=asked.slice_required,
        podSetSliceSize=asked.slice_size,
        podsetSliceRequiredTopologyConstraints=[
            {"topology": level, "size": size} for level, size in asked.slice_constraints
        ],
        podSetGroupName=asked.group,
        podIndexLabel=asked.index_label,
        subGroupIndexLabel=asked.subgroup_index_label,
        subGroupCount=asked.subgroup_count,
    )


def pod_set_fields(pods: PodSet) -> Fields:
    """An entry of a Workload's spec.podSets."""
    asked = None if pods.topology is None else topology_fields(pods.topology)
    return {
        "name": pods.name,
        "count": pods.count,
        **present(minCount=pods.min_count, topologyRequest=asked),
        "template": template_fields(pods.template),
    }


def _container(container: Container) -> Fields:
    requests = {**amounts(container.requests), **container.fractions}
    # A device that is asked for without a limit is one that the API server was told by its limit.
    devices = {name: value for name, value in requests.items() if is_extended(name) and name not in container.limits}
    return {
        "name": container.name,
        **present(
            image=container.image,
            restartPolicy="Always" if container.sidecar else "",
            ports=[_port(port) for port in container.ports],
            resources=present(requests=requests, limits={**amounts(container.limits), **devices}),
        ),
    }


def _port(port: HostPort) -> Fields:
    address = "" if port.ip == "0.0.0.0" else port.ip
    protocol = "" if port.protocol == "TCP" else port.protocol
    return present(containerPort=port.port, hostPort=port.port, protocol=protocol, hostIP=address)


def _requirements(requirements: Sequence[Requirement]) -> list[Fields]:
    return [{"key": one.key, "operator": one.operator, **present(values=list(one.values))} for one in requirements]


def _node_term(term: NodeTerm) -> Fields:
    return present(matchExpressions=_requirements(term.expressions), matchFields=_requirements(term.fields))


def _node_affinity(template: PodTemplate) -> Fields:
    required = template.affinity
    preferred = [{"weight": one.weight, "preference": _node_term(one.term)} for one in template.preferred]
    terms = None if required is None else {"nodeSelectorTerms": [_node_term(term) for term in required]}
    return present(**{REQUIRED: terms, PREFERRED: preferred})


def _pod_affinity(wanted: PodAffinity | None) -> Fields:
    if wanted is None:
        return {}
    preferred = [{"weight": weight, "podAffinityTerm": _pod_term(term)} for weight, term in wanted.preferred]
    return present(**{REQUIRED: [_pod_term(term) for term in wanted.required], PREFERRED: preferred})


def _pod_term(term: PodTerm) -> Fields:
    # An empty selector selects everything, none at all nothing: both are written as they are.
    selectors = {"labelSelector": term.selector, "namespaceSelector": term.namespace_selector}
    return {
        "topologyKey": term.topology_key,
        **{name: selector_fields(one) for name, one in selectors.items() if one is not None},
        **present(
            namespaces=list(term.namespaces),
            matchLabelKeys=list(term.match_label_keys),
            mismatchLabelKeys=list(term.mismatch_label_keys),
        ),
    }


def _spread(one: SpreadConstraint) -> Fields:
    return {
        "topologyKey": one.topology_key,
        "maxSkew": one.max_skew,
        "whenUnsatisfiable": one.when_unsatisfiable,
        **({"labelSelector": selector_fields(one.selector)} if one.selector is not None else {}),
        **present(
            minDomains=one.min_domains,
            nodeAffinityPolicy="" if one.honors_affinity else "Ignore",
            nodeTaintsPolicy="Honor" if one.honors_taints else "",
            matchLabelKeys=list(one.match_label_keys),
        ),
    }


def _volume(volume: PodVolume) -> Fields:
    if volume.claim:
        return {"name": volume.name, "persistentVolumeClaim": {"claimName": volume.claim}}
    storage = {"requests": {"storage": format_quantity("storage", volume.storage)}} if volume.storage else {}
    claim = present(accessModes=list(volume.access_modes), resources=storage)
    if volume.storage_class is not None:
        claim["storageClassName"] = volume.storage_class
    return {"name": volume.name, "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
