"""Requests and held quota of workloads as plain numbers, fast enough for 100,000 workloads."""

from collections.abc import Iterator

from gpuconsole.model.clock import Span, Time, parse_span
from gpuconsole.model.device_units import is_counted
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import GPU_RESOURCES, gpus
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.requests import admitted_usage

CONFIG = KueueConfig()
"""Kueue's defaults: a Snapshot does not contain Kueue's configuration."""
FlavorResource = tuple[str, str]
"""(flavor, resource)"""


def pod_gpus(template: PodTemplate) -> int:
    """Whole GPUs that one pod requests; the same as `gpus(template.requests)`, but faster."""
    if template.init_containers or template.overhead:
        return gpus(template.requests)
    total = 0
    for container in template.containers:
        requests, limits = container.requests, container.limits
        for name in GPU_RESOURCES:
            total += requests[name] if name in requests else limits.get(name, 0)
    return total


def pod_accelerators(template: PodTemplate) -> dict[str, int]:
    """Whole GPUs, time-slicing replicas and MIG instances that one pod requests, by resource."""
    if template.init_containers or template.overhead:
        return {name: amount for name, amount in template.requests.items() if amount and is_counted(name)}
    total: dict[str, int] = {}
    for container in template.containers:
        for name, amount in container.effective.items():
            if amount and is_counted(name):
                total[name] = total.get(name, 0) + amount
    return total


def wanted_accelerators(workload: Workload) -> dict[str, int]:
    """Return whole GPUs, time-slicing replicas and MIG instances that all pods of a workload request, by resource."""
    total: dict[str, int] = {}
    for pod_set in workload.pod_sets:
        for name, amount in pod_accelerators(pod_set.template).items():
            total[name] = total.get(name, 0) + amount * pod_set.count
    return total


def held(workload: Workload) -> Iterator[tuple[FlavorResource, int]]:
    """Yield the quota that a workload holds by (flavor, resource); a pair may come more than once. Empty without an
    admission.

    Reclaimable pods hold no quota; they are counted by Kueue's rule.
    """
    if workload.admission is None:
        return
    if workload.reclaimable:
        for flavor, resource, amount in admitted_usage(workload, CONFIG):
            if flavor:
                yield (flavor, resource), amount
        return
    for assignment in workload.admission.pod_sets:
        usage = assignment.usage
        for resource, flavor in assignment.flavors.items():
            yield (flavor, resource), usage.get(resource, 0)


def waiting_since(workload: Workload) -> Time:
    """Return the start of the current wait of a workload: its creation, or its last eviction."""
    for condition in workload.conditions:
        if condition.type == "Evicted":
            return max(workload.created, condition.since) if condition.status else workload.created
    return workload.created


def admitted_since(workload: Workload) -> Time | None:
    """Return the time of admission; None if the workload is not admitted."""
    admitted = workload.condition("Admitted")
    return admitted.since if admitted is not None and admitted.status else None


def work_since(workload: Workload, job: Job | None) -> Time | None:
    """Return the start of the current run of a workload, as far as known; None if it holds no quota."""
    since = admitted_since(workload)
    if since is None:
        return None
    ready = workload.condition("PodsReady")
    if ready is not None and ready.status:
        return max(since, ready.since)
    return max(since, job.started) if job is not None and job.started else since


def ends_at(workload: Workload, job: Job | None, now: Time) -> Time | None:
    """Return the estimated end of a workload by its declared duration; None without one, or if that time is past."""
    since = work_since(workload, job)
    duration = job.duration if job is not None else annotated(workload, "gpuconsole.io/duration")
    if since is None or duration is None:
        return None
    end = since + max(0, duration - (job.done if job is not None else workload.done))
    return end if end >= now else None


def annotated(workload: Workload, name: str) -> Span | None:
    """Parse a duration from an annotation of a Workload; None if there is none or it is invalid."""
    try:
        return parse_span(workload.annotations[name]) or None
    except (KeyError, ValueError):
        return None
