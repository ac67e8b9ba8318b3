"""Manifests of Kubernetes' core kinds: Node, Namespace, Pod, LimitRange, ResourceQuota, RuntimeClass, PriorityClass."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuconsole.model.apiserver.kai.pods import check_gpu_request
from gpuconsole.model.apiserver.volcano.groups import check_pod
from gpuconsole.model.apiserver.volcano.objections import report
from gpuconsole.model.apiserver.volcano.shapes import POD, fits
from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.cluster import (
    SYSTEM_PRIORITIES,
    LimitRange,
    LimitRangeItem,
    Namespace,
    Node,
    Pod,
    PodPhase,
    PriorityClass,
    QuotaScope,
    ResourceQuota,
    RuntimeClass,
)
from gpuconsole.model.documents.amounts import resources
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.pods import pod_template
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.documents.selectors import taints
from gpuconsole.model.jobs.common import check_spans
from gpuconsole.model.jobs.labels import POD_SET, WORKLOAD
from gpuconsole.model.jobs.naming import OWNER_KINDS
from gpuconsole.model.labels import NAMESPACE_NAME
from gpuconsole.model.manifests.resizing import resized
from gpuconsole.model.quantity import MAX
from gpuconsole.model.resources import Resources
from gpuconsole.model.sanity_limits import MOST_DEVICES, too_many_devices

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
