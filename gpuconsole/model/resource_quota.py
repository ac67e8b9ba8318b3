"""ResourceQuotas as the API server enforces them: usage of objects, scopes, and refusals.

Kubernetes: pkg/quota/v1/evaluator/core (pods.go, persistent_volume_claims.go, resource_claims.go), generic object
counts, apiserver/pkg/admission/plugin/resourcequota/controller.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import assert_never

from msgspec import Struct

from gpuconsole.model.cluster import PersistentVolumeClaim, Pod, QuotaScope, ResourceQuota
from gpuconsole.model.devices import EXACT_COUNT, DeviceRequest, ResourceClaim
from gpuconsole.model.documents.reader import is_extended
from gpuconsole.model.job import Job
from gpuconsole.model.jobs.workloads import API_GROUPS
from gpuconsole.model.labels import Requirement
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import (
    CPU,
    EMPTY,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    Resources,
    add,
    exceeding,
    format_quantity,
    largest,
)
from gpuconsole.model.workloads import Workload

Counted = Pod | Job | Workload | PersistentVolumeClaim | ResourceClaim
"""Objects of a namespace that quotas count."""
COUNTED = (Pod, Job, Workload, PersistentVolumeClaim, ResourceClaim)

COUNT_PODS = "count/pods"
_REQUESTS, _LIMITS, _HUGE = "requests.", "limits.", "hugepages-"
_PRIORITY_CLASS = "PriorityClass"
_COMPUTE = (CPU, MEMORY, EPHEMERAL_STORAGE)
_NAMED = frozenset(
    (COUNT_PODS, PODS, *_COMPUTE, *(f"{part}{name}" for part in (_REQUESTS, _LIMITS) for name in _COMPUTE))
)
_REQUIRED = frozenset((CPU, MEMORY, *(f"{part}{name}" for part in (_REQUESTS, _LIMITS) for name in (CPU, MEMORY))))
"""Resources that each container must specify if a quota tracks them."""
_CLAIMS, _STORAGE = "persistentvolumeclaims", "requests.storage"
_OF_STORAGE_CLASS = ".storageclass.storage.k8s.io/"
_OF_DEVICE_CLASS = ".deviceclass.resource.k8s.io/devices"
_COUNT_RESOURCE_CLAIMS = "count/resourceclaims.resource.k8s.io"
COUNT_WORKLOADS = "count/workloads.kueue.x-k8s.io"
_MOST_DEVICES = 32
"""Number of devices as which a request for all of them counts (resource.k8s.io AllocationResultsMaxSize)."""


def pod_usage(template: PodTemplate, *, done: bool = False) -> dict[str, int]:
    """Quota usage of a pod, by quota resource; one that is `done` (Succeeded, Failed) counts as an object only."""
    if done:
        return {COUNT_PODS: 1}
    return {COUNT_PODS: 1, PODS: 1, **_compute(template.requests, template.limits)}


def _compute(requests: Resources, limits: Resources) -> dict[str, int]:
    used: dict[str, int] = {}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith(_HUGE):
            used[name] = used[_REQUESTS + name] = amount
        elif is_extended(name):
            # Devices cannot be overcommitted, so quotas have no limits for them.
            used[_REQUESTS + name] = amount
    used.update({_LIMITS + name: amount for name, amount in limits.items() if name in _COMPUTE})
    return used


def counts(quota: ResourceQuota, template: PodTemplate, priority_class: str) -> bool:
    """True if a quota tracks pods, and such a pod is in all its scopes.

    `priority_class` is the pod's own, else the global default's.
    """
    return any(map(_is_of_pods, quota.hard)) and all(
        _in_scope(scope, template, priority_class) for scope in quota.scopes
    )


def _is_of_pods(name: str) -> bool:
    asked = name.removeprefix(_REQUESTS)
    return name in _NAMED or asked.startswith(_HUGE) or (asked != name and is_extended(asked))


def _in_scope(scope: QuotaScope, template: PodTemplate, priority_class: str) -> bool:
    match scope.scope:
        case "Terminating":
            return template.active_deadline is not None
        case "NotTerminating":
            return template.active_deadline is None
        case "BestEffort":
            return _is_best_effort(template)
        case "NotBestEffort":
            return not _is_best_effort(template)
        case "PriorityClass":
            asked = Requirement(_PRIORITY_CLASS, scope.operator, scope.values)
            return asked.matches({_PRIORITY_CLASS: priority_class} if priority_class else {})
        case "CrossNamespacePodAffinity":
            return _looks_elsewhere(template)
    return False


def _is_best_effort(template: PodTemplate) -> bool:
    """True for the QoS class BestEffort: no CPU or memory requests or limits."""
    parts: list[Resources] = [template.resources.requests, template.resources.limits] if template.resources else []
    for container in (*template.containers, *template.init_containers):
        parts += [container.requests, container.limits]
    return not any(part.get(name) for part in parts for name in (CPU, MEMORY))


def _looks_elsewhere(template: PodTemplate) -> bool:
    """True if the pod's affinity names other namespaces."""
    sides = [side for side in (template.pod_affinity, template.pod_anti_affinity) if side is not None]
    terms = [term for side in sides for term in (*side.required, *(term for _, term in side.preferred))]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


def used_by(quota: ResourceQuota, obj: Counted, default_class: str) -> Resources:
    """Return the usage of a quota by one object, by the quota's resources (the evaluators' Usage).

    `default_class` is the name of the global default priority class. Scopes only select pods, so a quota with scopes
    counts no other objects.
    """
    if isinstance(obj, Pod):
        template = obj.template
        inside = counts(quota, template, template.priority_class or default_class)
        usage = pod_usage(template, done=obj.done) if inside else EMPTY
    else:
        usage = EMPTY if quota.scopes else object_usage(obj)
    return {name: amount for name, amount in usage.items() if name in quota.hard}


def object_usage(obj: Job | Workload | PersistentVolumeClaim | ResourceClaim) -> dict[str, int]:
    """Quota usage of an object other than a pod, by quota resource."""
    match obj:
        case Job():
            return {f"count/{resource_of(obj)}": 1} if obj.kind in API_GROUPS else {}
        case Workload():
            return {COUNT_WORKLOADS: 1}
        case PersistentVolumeClaim():
            usage = {_CLAIMS: 1, f"count/{_CLAIMS}": 1, _STORAGE: obj.storage}
            if obj.storage_class:
                usage[f"{obj.storage_class}{_OF_STORAGE_CLASS}{_CLAIMS}"] = 1
                usage[f"{obj.storage_class}{_OF_STORAGE_CLASS}{_STORAGE}"] = obj.storage
            return usage
        case ResourceClaim():
            return add({_COUNT_RESOURCE_CLAIMS: 1}, *map(_devices, obj.requests))
        case _:
            assert_never(obj)


def _devices(request: DeviceRequest) -> Resources:
    """Devices that a request may get of each class; for alternatives, the largest number."""
    if request.alternatives:
        return largest(*map(_devices, request.options))
    if not request.device_class:
        return EMPTY
    count = request.count if request.mode == EXACT_COUNT else _MOST_DEVICES
    return {f"{request.device_class}{_OF_DEVICE_CLASS}": count}


def counted(
    quota: ResourceQuota, objs: Mapping[type[Counted], Iterable[Counted]], default_class: str
) -> dict[str, int]:
    """Usage of a quota by the objects of its namespace (quota controller: UsageStats).

    `objs` holds the kinds whose objects are all loaded; usage by other kinds is read from the quota's status.
    """
    total = {name: 0 for name in quota.hard if _counts_of(name) in objs}
    for obj in chain.from_iterable(objs.values()):
        for name, amount in used_by(quota, obj, default_class).items():
            total[name] = total.get(name, 0) + amount
    return total


def _counts_of(name: str) -> type[Counted] | None:
    """Return the kind that a quota resource counts; None for others (Services, ConfigMaps …)."""
    if _is_of_pods(name):
        return Pod
    if name in _JOBS:
        return Job
    if name in (_CLAIMS, f"count/{_CLAIMS}", _STORAGE) or _OF_STORAGE_CLASS in name:
        return PersistentVolumeClaim
    if name == _COUNT_RESOURCE_CLAIMS or name.endswith(_OF_DEVICE_CLASS):
        return ResourceClaim
    return Workload if name == COUNT_WORKLOADS else None


def resource_of(job: Job) -> str:
    """Return a job's API resource, such as `jobs.batch`.

    Raises KeyError for a kind without an API object of its own, such as one group of a LeaderWorkerSet.
    """
    return _resource(job.kind)


def _resource(kind: str) -> str:
    return f"{kind.removeprefix('Volcano').lower()}s.{API_GROUPS[kind]}".removesuffix(".")


_JOBS = frozenset(f"count/{_resource(kind)}" for kind in API_GROUPS if kind != "Pod")


class QuotaRefusal(Struct, frozen=True):
    """Reason why the API server refuses to create an object."""

    quota: ResourceQuota
    resource: str
    """The first exceeded resource by name; empty if containers do not specify one that the quota tracks."""
    text: str
    """The API server's message."""


def pod_refusal(
    quotas: Sequence[ResourceQuota], template: PodTemplate, name: str, default_class: str
) -> QuotaRefusal | None:
    """Return why the API server refuses a pod; None if every quota of its namespace allows it.

    The quotas' `used` must be up to date; `default_class` is the name of the global default priority class.
    """
    concerned = [q for q in quotas if counts(q, template, template.priority_class or default_class)]
    for quota in concerned:
        if missing := _unnamed(quota, template):
            text = f'pods "{name}" is forbidden: failed quota: {quota.name}: must specify {missing}'
            return QuotaRefusal(quota, "", text)
    usage = pod_usage(template) if concerned else {}
    for quota in concerned:
        if over := _over(quota, usage):
            return QuotaRefusal(quota, over[0], _exceeded(quota, usage, over, "pods", name))
    return None


def object_refusal(
    quotas: Iterable[ResourceQuota], obj: Job | Workload | PersistentVolumeClaim | ResourceClaim
) -> QuotaRefusal | None:
    """Return why the API server refuses an object that quotas count; None if all quotas allow it."""
    usage = object_usage(obj)
    for quota in quotas:
        if not quota.scopes and (over := _over(quota, usage)):
            return QuotaRefusal(quota, over[0], _exceeded(quota, usage, over, _resource_of(obj), obj.name))
    return None


def _resource_of(obj: Job | Workload | PersistentVolumeClaim | ResourceClaim) -> str:
    match obj:
        case Job():
            return resource_of(obj)
        case Workload():
            return COUNT_WORKLOADS.removeprefix("count/")
        case PersistentVolumeClaim():
            return _CLAIMS
        case ResourceClaim():
            return _COUNT_RESOURCE_CLAIMS.removeprefix("count/")
        case _:
            assert_never(obj)


def _unnamed(quota: ResourceQuota, template: PodTemplate) -> str:
    """List required requests or limits that containers lack: `cpu for: a,b; memory for: a`."""
    lacking: dict[str, set[str]] = {}
    for container in (*template.containers, *template.init_containers):
        for name in _REQUIRED & quota.hard.keys() - _compute(container.effective, container.limits).keys():
            lacking.setdefault(name, set()).add(container.name)
    return "; ".join(f"{name} for: {','.join(sorted(who))}" for name, who in sorted(lacking.items()))


def _exceeded(quota: ResourceQuota, usage: Mapping[str, int], over: Sequence[str], resource: str, name: str) -> str:
    requested, used, limited = (_written(part, over) for part in (usage, quota.used, quota.hard))
    text = f"exceeded quota: {quota.name}, requested: {requested}, used: {used}, limited: {limited}"
    return f'{resource} "{name}" is forbidden: {text}'


def _over(quota: ResourceQuota, usage: Mapping[str, int]) -> list[str]:
    """Return the resources of a quota that this additional usage would exceed."""
    return exceeding({name: quota.used.get(name, 0) + amount for name, amount in usage.items()}, quota.hard)


def _written(amounts: Resources, names: Sequence[str]) -> str:
    """Format amounts as `a=1,b=2` in the order of names (prettyPrint of the admission plugin)."""
    return ",".join(f"{name}={written(name, amounts.get(name, 0))}" for name in names)


def written(name: str, amount: int) -> str:
    """Format an amount of a quota resource as a quantity, in the unit of the resource."""
    if name.endswith(_STORAGE):
        return format_quantity(MEMORY, amount)
    return format_quantity(name.removeprefix(_REQUESTS).removeprefix(_LIMITS), amount)
