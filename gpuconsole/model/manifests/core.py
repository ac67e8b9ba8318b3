"""Manifests of Kubernetes' core kinds, of storage, and of PodDisruptionBudget.

Core: Node, Namespace, Pod, LimitRange, ResourceQuota, RuntimeClass, PriorityClass. Storage: PersistentVolume,
PersistentVolumeClaim, StorageClass, CSINode. While a pod is resized in place, other requests than those of its spec
count (`resized`).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.apiserver.kai_webhooks import check_gpu_request
from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import POD, check_pod, fits, report
from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.cluster import (
    AVAILABLE,
    BOUND,
    DEFAULT_CLASS,
    FILESYSTEM,
    LOST,
    RELEASED,
    SYSTEM_PRIORITIES,
    CSINode,
    LimitRange,
    LimitRangeItem,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodPhase,
    PriorityClass,
    QuotaScope,
    ResourceQuota,
    RuntimeClass,
    StorageClass,
)
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.pods_and_selectors import node_term, pod_template, selector, taints
from gpuconsole.model.documents.reader import INT32, Reader, resources, shown
from gpuconsole.model.jobs.common import check_spans
from gpuconsole.model.jobs.workloads import OWNER_KINDS, POD_SET, WORKLOAD
from gpuconsole.model.labels import NAMESPACE_NAME, NodeTerm, Requirement
from gpuconsole.model.objects import MOST_DEVICES, too_many_devices
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import MAX, Resources, largest


def resized(template: PodTemplate, status: Reader) -> PodTemplate:
    """Return the template with the requests that count for each container during an in-place resize.

    They are the maximum of desired, actual and allocated requests; if the resize is infeasible, of the latter two
    (k8s.io/component-helpers/resource PodRequests with UseStatusResources).
    """
    held = {**_held(status, "containerStatuses"), **_held(status, "initContainerStatuses")}
    if not held:
        return template
    infeasible = any(
        condition.text("type") == "PodResizePending" and condition.text("reason") == "Infeasible"
        for condition in status.items("conditions")
    )
    return replace(
        template,
        containers=tuple(_counted(container, held, infeasible) for container in template.containers),
        init_containers=tuple(_counted(container, held, infeasible) for container in template.init_containers),
    )


def _held(status: Reader, key: str) -> dict[str, Resources]:
    """Return the maximum of actual and allocated requests, by container name."""
    return {
        place.text("name"): largest(
            resources(place.mapping("resources"), "requests"), resources(place, "allocatedResources")
        )
        for place in status.items(key)
        if "resources" in place
    }


def _counted(container: Container, held: dict[str, Resources], infeasible: bool) -> Container:
    given = held.get(container.name)
    if given is None:
        return container
    return replace(container, requests=given if infeasible else largest(container.requests, given))


HIGHEST_USER_PRIORITY = 1_000_000_000
_SYSTEM = "system-"
# Kueue's own pod groups are admitted together, but no scheduler places them together.
_GANG_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
_GANG_ANNOTATION = "scheduling.k8s.io/group-name"


def namespace(reader: Reader, now: Time) -> Namespace:
    """Read a Namespace; it gets the label with its name that the API server sets."""
    meta = metadata(reader, now, namespaced=False)
    return Namespace(name=meta.name, labels={**meta.labels, NAMESPACE_NAME: meta.name})


def node(reader: Reader, now: Time) -> Node:
    """Read a Node; without conditions it counts as ready, and capacity and allocatable default to each other."""
    meta = metadata(reader, now, namespaced=False)
    spec, status = reader.mapping("spec"), reader.mapping("status")
    capacity, allocatable = _offer(status, "capacity"), _offer(status, "allocatable")
    if not capacity and not allocatable:
        reader.report.warning(
            reader.at("status", "allocatable"),
            "the node offers nothing",
            "give status.allocatable with cpu, memory, pods and nvidia.com/gpu",
            "empty-node",
        )
    return Node(
        name=meta.name,
        uid=meta.uid,
        created=meta.created,
        labels=meta.labels,
        annotations=meta.annotations,
        taints=taints(spec, "taints"),
        capacity=capacity or allocatable,
        allocatable=allocatable or capacity,
        unschedulable=spec.flag("unschedulable"),
        **_ready(status, now),
        images=_images(status),
        conditions={type: on for type, on in _conditions(status) if type != "Ready"},
    )


def _images(status: Reader) -> dict[str, int]:
    return {
        name: place.number("sizeBytes", 0, low=0, high=MAX)
        for place in status.items("images")
        for name in place.texts("names")
    }


def _offer(status: Reader, key: str) -> Resources:
    """Read a node's resources. Limits the number of GPUs, because each is stored by its index."""
    offered = dict(resources(status, key))
    for name, amount in offered.items():
        if too_many_devices(name, amount):
            problem = f"{amount} of {name} are more than a machine has; it is taken as {MOST_DEVICES}"
            remedy = f"write {MOST_DEVICES} or less"
            status.report.error(status.at(key, name), problem, remedy, "too-many-devices")
            offered[name] = MOST_DEVICES
    return offered


def _conditions(status: Reader) -> Iterator[tuple[str, bool]]:
    for condition in status.items("conditions"):
        yield condition.text("type"), condition.text("status") == "True"


def _ready(status: Reader, now: Time) -> dict[str, Any]:
    for condition in status.items("conditions"):
        if condition.text("type") == "Ready" and condition.text("status") != "True":
            since = condition.moment("lastTransitionTime")
            return {"ready": False, "not_ready_since": now if since is None else since}
    return {}


def pod(reader: Reader, now: Time) -> Pod:
    """Read a Pod: its job is its controlling owner, its Workload is in Kueue's annotation."""
    meta = metadata(reader, now)
    spec, status = reader.mapping("spec"), reader.mapping("status")
    template = resized(pod_template(reader), status)
    check_spans(reader)
    if reader.report.is_recorded and fits(reader.value, POD):
        report(reader.report, reader.path, check_pod(reader.value))
        report(reader.report, reader.path, check_gpu_request(reader.value))
    workload = meta.annotations.get(WORKLOAD)
    return Pod(
        **meta.facts,
        template=template,
        priority=template.priority or 0,
        job=owner(reader, meta.namespace),
        workload=f"{meta.namespace}/{workload}" if workload else "",
        pod_set=meta.labels.get(POD_SET, ""),
        gang=_gang(meta.labels, meta.annotations) or template.scheduling_group,
        gates=template.scheduling_gates,
        phase=status.choice("phase", PodPhase.PENDING, also={"Unknown": PodPhase.FAILED}),
        node=spec.text("nodeName"),
        started=status.moment("startTime") or 0,
        deleted=_deleted(reader.mapping("metadata")),
        nominated_node=status.text("nominatedNodeName"),
        **_why(status),
        unready=any(not place.flag("ready") for place in status.items("containerStatuses")) and _runs(status),
        restarts=sum(
            place.optional("restartCount", low=0) or 0
            for field in ("initContainerStatuses", "containerStatuses")
            for place in status.items(field)
        ),
    )


def _deleted(meta: Reader) -> Time:
    """Return the time at which a pod's deletion was requested; 0 if it was not.

    The API server sets `deletionTimestamp` to the end of the grace period (apiserver registry/rest/delete.go,
    BeforeDelete).
    """
    end = meta.moment("deletionTimestamp") or 0
    return end - (meta.optional("deletionGracePeriodSeconds", low=0) or 0) * SECOND if end else 0


def _why(status: Reader) -> dict[str, Any]:
    """Return reason and message, and the bind time of a scheduled pod.

    They are the status's own, else those of a container that does not start, or of the failed scheduling.
    """
    said = {"reason": status.text("reason"), "message": status.text("message", limit=4096)}
    for condition in status.items("conditions"):
        if condition.raw("type") != "PodScheduled":
            continue
        if condition.raw("status") == "True":
            held_up = {} if any(said.values()) else _held_up(status)
            return {**said, **held_up, "bound": condition.moment("lastTransitionTime") or 0}
        if not any(said.values()):
            return {"reason": condition.text("reason"), "message": condition.text("message", limit=4096)}
    return said


def _held_up(status: Reader) -> dict[str, Any]:
    """Return why a container does not start: image pull error, crash loop, missing secret."""
    for place in (*status.items("initContainerStatuses"), *status.items("containerStatuses")):
        waiting = place.mapping("state").mapping("waiting")
        if waiting.text("reason") not in ("", "ContainerCreating", "PodInitializing"):
            return {"reason": waiting.text("reason"), "message": waiting.text("message", limit=4096)}
    return {}


def _runs(status: Reader) -> bool:
    return bool(status.raw("phase") == PodPhase.RUNNING)


def _gang(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    named = (labels[label] for label in _GANG_LABELS if labels.get(label))
    return next(named, "") or annotations.get(_GANG_ANNOTATION, "")


def owner(reader: Reader, namespace: str) -> str:
    """Return `Kind/namespace/name` of the controlling owner, or of the first owner; empty if none."""
    first = ""
    for reference in reader.mapping("metadata").items("ownerReferences"):
        group, kind = reference.text("apiVersion").rpartition("/")[0], reference.text("kind")
        key = f"{OWNER_KINDS.get((group, kind), kind)}/{namespace}/{reference.text('name')}"
        if reference.flag("controller"):
            return key
        first = first or key
    return first


def limit_range(reader: Reader, now: Time) -> LimitRange:
    """Read a LimitRange."""
    meta = metadata(reader, now)
    items = tuple(
        LimitRangeItem(
            type=item.one_of("type", "Container", ("Container", "Pod", "PersistentVolumeClaim")),
            max=resources(item, "max"),
            min=resources(item, "min"),
            default=resources(item, "default"),
            default_request=resources(item, "defaultRequest"),
            max_ratio={name: str(value) for name, value in resources(item, "maxLimitRequestRatio").items()},
        )
        for item in reader.mapping("spec").items("limits")
    )
    return LimitRange(namespace=meta.namespace, name=meta.name, items=items)


def resource_quota(reader: Reader, now: Time) -> ResourceQuota:
    """Read a ResourceQuota; usage that the API server has not computed yet is 0."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    hard = resources(spec, "hard")
    status = reader.mapping("status")
    return ResourceQuota(
        namespace=meta.namespace,
        name=meta.name,
        hard=resources(status, "hard") or hard,
        used=resources(status, "used"),
        scopes=(*map(QuotaScope, spec.texts("scopes")), *_quota_scopes(spec)),
    )


def _quota_scopes(spec: Reader) -> Iterator[QuotaScope]:
    """Yield the scopes of `spec.scopeSelector`."""
    for place in spec.mapping("scopeSelector").items("matchExpressions"):
        operator = place.one_of("operator", "Exists", ("In", "NotIn", "Exists", "DoesNotExist"))
        yield QuotaScope(place.required("scopeName"), operator, place.texts("values"))


def runtime_class(reader: Reader, now: Time) -> RuntimeClass:
    """Read a RuntimeClass."""
    meta = metadata(reader, now, namespaced=False)
    overhead = resources(reader.mapping("overhead"), "podFixed")
    return RuntimeClass(name=meta.name, handler=reader.text("handler"), overhead=overhead)


def _check_system_class(reader: Reader, name: str, value: int) -> None:
    """Report a class with the system's prefix that is not exactly one of Kubernetes' own.

    pkg/apis/scheduling/validation ValidatePriorityClass, scheduling/v1 IsKnownSystemPriorityClass.
    """
    if name not in SYSTEM_PRIORITIES:
        error = f"{name} is not a known system priority class"
    elif value != SYSTEM_PRIORITIES[name]:
        error = f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
    elif reader.flag("globalDefault"):
        error = f"globalDefault of {name} PriorityClass must be false"
    else:
        return
    problem = (
        f"Forbidden: priority class names with '{_SYSTEM}' prefix are reserved for system use only. error: {error}"
    )
    remedy = "choose another name" if name not in SYSTEM_PRIORITIES else "leave the class as Kubernetes made it"
    reader.report.refused(reader.at("metadata", "name"), problem, remedy, "system-priority-class")


def priority_class(reader: Reader, now: Time) -> PriorityClass:
    """Read a PriorityClass; a name or value that is reserved for the system is reported."""
    meta = metadata(reader, now, namespaced=False)
    reader.only("apiVersion", "kind", "metadata", "value", "globalDefault", "description", "preemptionPolicy")
    value = reader.number("value", 0)
    if "value" not in reader:
        reader.report.refused(reader.at("value"), "value is missing; it is 0", "give it a value", "required")
    if meta.name.startswith(_SYSTEM):
        _check_system_class(reader, meta.name, value)
    elif value > HIGHEST_USER_PRIORITY:
        problem = f"Forbidden: maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        reader.report.refused(reader.at("value"), problem, "write a lower value", "out-of-range")
    return PriorityClass(
        name=meta.name,
        value=value,
        global_default=reader.flag("globalDefault"),
        preemption_policy=reader.one_of("preemptionPolicy", "PreemptLowerPriority", ("Never", "PreemptLowerPriority")),
        description=reader.text("description", limit=4096),
    )


_AMOUNT = re.compile(r"[0-9]{1,9}|[0-9]{1,3}%")


def pod_disruption_budget(reader: Reader, now: Time) -> PodDisruptionBudget:
    """Read a PodDisruptionBudget: its pod selector, and minAvailable or maxUnavailable."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    spec.only("selector", "minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy")
    least, most = _amount(spec, "minAvailable"), _amount(spec, "maxUnavailable")
    if least and most:
        problem = "minAvailable and maxUnavailable cannot be both set"
        spec.report.refused(spec.at("maxUnavailable"), problem, "leave one of them out", "both-set")
    return PodDisruptionBudget(
        namespace=meta.namespace,
        name=meta.name,
        selector=selector(spec, "selector"),
        min_available=least,
        max_unavailable=most,
    )


def _amount(spec: Reader, key: str) -> str:
    """Read a number of pods or a percentage, as text; empty if it is missing or invalid."""
    raw = spec.raw(key)
    if raw is None:
        return ""
    text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) < 10**9 else spec.text(key)
    if _AMOUNT.fullmatch(text):
        return text
    problem = f"{shown(text)} is neither a number of pods nor a part of them"
    spec.report.error(spec.at(key), problem, 'write it as 1 or "50%"', "bad-value")
    return ""


_BOUND = "pv.kubernetes.io/bind-completed"
_SELECTED = "volume.kubernetes.io/selected-node"
_CLASS = "volume.beta.kubernetes.io/storage-class"
_MODES = (FILESYSTEM, "Block")
_VOLUME_PHASES = ("", "Pending", AVAILABLE, BOUND, RELEASED, "Failed")
_WAITS = "WaitForFirstConsumer"


def volume(reader: Reader, now: Time) -> PersistentVolume:
    """Read a PersistentVolume; without a phase it is bound if it names a claim, otherwise available."""
    meta = metadata(reader, now, namespaced=False)
    spec = reader.mapping("spec")
    held, csi = spec.mapping("claimRef"), spec.mapping("csi")
    claim = f"{held.text('namespace') or 'default'}/{held.text('name')}" if held.text("name") else ""
    phase = reader.mapping("status").one_of("phase", "", _VOLUME_PHASES)
    return PersistentVolume(
        name=meta.name,
        created=meta.created,
        labels=meta.labels,
        storage=resources(spec, "capacity").get("storage", 0),
        storage_class=meta.annotations.get(_CLASS) or spec.text("storageClassName"),
        access_modes=spec.texts("accessModes"),
        mode=spec.one_of("volumeMode", FILESYSTEM, _MODES),
        node_affinity=_nodes(spec),
        claim=claim,
        phase=phase or (BOUND if claim else AVAILABLE),
        disposable=spec.text("persistentVolumeReclaimPolicy") == "Delete",
        driver=csi.text("driver"),
        handle=csi.text("volumeHandle"),
        deleted=reader.mapping("metadata").moment("deletionTimestamp") or 0,
    )


def _nodes(spec: Reader) -> tuple[NodeTerm, ...] | None:
    required = spec.down("nodeAffinity", "required")
    return tuple(node_term(term) for term in required.items("nodeSelectorTerms")) if required.value else None


def claim(reader: Reader, now: Time) -> PersistentVolumeClaim:
    """Read a PersistentVolumeClaim; it is bound if its annotation or its status says so."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    phase = reader.mapping("status").one_of("phase", "", ("", "Pending", BOUND, LOST))
    named = meta.annotations.get(_CLASS)
    return PersistentVolumeClaim(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        created=meta.created,
        storage_class=named or (spec.text("storageClassName") if "storageClassName" in spec else None),
        storage=resources(spec.mapping("resources"), "requests").get("storage", 0),
        access_modes=spec.texts("accessModes"),
        mode=spec.one_of("volumeMode", FILESYSTEM, _MODES),
        selector=selector(spec, "selector"),
        volume=spec.text("volumeName"),
        bound=_BOUND in meta.annotations or phase == BOUND,
        phase=phase,
        selected_node=meta.annotations.get(_SELECTED, ""),
        deleted=reader.mapping("metadata").moment("deletionTimestamp") or 0,
    )


def storage_class(reader: Reader, now: Time) -> StorageClass:
    """Read a StorageClass."""
    meta = metadata(reader, now, namespaced=False)
    if not reader.text("provisioner"):
        reader.report.refused(reader.at("provisioner"), "no provisioner is named", "name one", "required")
    return StorageClass(
        name=meta.name,
        created=meta.created,
        provisioner=reader.text("provisioner"),
        waits=reader.one_of("volumeBindingMode", "Immediate", ("Immediate", _WAITS)) == _WAITS,
        topologies=tuple(
            tuple(
                Requirement(one.text("key"), "In", one.texts("values")) for one in place.items("matchLabelExpressions")
            )
            for place in reader.items("allowedTopologies")
        ),
        keeps=reader.text("reclaimPolicy") == "Retain",
        default=meta.annotations.get(DEFAULT_CLASS) == "true",
    )


def csi_node(reader: Reader, now: Time) -> CSINode:
    """Read a CSINode: the volume limits of the drivers that state one."""
    meta = metadata(reader, now, namespaced=False)
    limits = {}
    for place in reader.mapping("spec").items("drivers"):
        count = place.mapping("allocatable").optional("count", high=INT32)
        if count is not None:
            limits[place.text("name")] = count
    return CSINode(name=meta.name, limits=limits)
