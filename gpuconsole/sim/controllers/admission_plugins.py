"""Admission plugins of the API server: LimitRanger, RuntimeClass, Priority and ResourceQuota.

They set defaults and priorities in pods and workloads, and refuse objects that exceed a ResourceQuota; the controllers
that were refused retry with backoff when usage decreases. `Refusal` is also the result of every command.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, SECOND, Span, Time
from gpuconsole.model.cluster import (
    SYSTEM_PRIORITIES,
    LimitRange,
    LimitRangeItem,
    PersistentVolumeClaim,
    Pod,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    default_class,
)
from gpuconsole.model.devices import ResourceClaim
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import WorkloadPriorityClass
from gpuconsole.model.resource_quota import COUNT_WORKLOADS, counts, object_refusal, pod_refusal, pod_usage
from gpuconsole.model.resources import Resources, add
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.kernel import RecreatePods, RetryWorkloadCreation
from gpuconsole.sim.world import NEVER, RunningGroup, World

_CONTAINER = "Container"


def with_defaults(world: World, namespace: str, template: PodTemplate) -> PodTemplate:
    """The template with its RuntimeClass's overhead and the namespace's default requests and limits."""
    template = _with_overhead(world, template)
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for item in _limit_range_items(world, namespace):
        # The first LimitRange that names a resource counts; a limit without a default request is the request too.
        requests = {**item.default, **item.default_request, **requests}
        limits = {**item.default, **limits}
    if not requests and not limits:
        return template
    return replace(
        template,
        containers=tuple(_with_requests_and_limits(container, requests, limits) for container in template.containers),
        init_containers=tuple(
            _with_requests_and_limits(container, requests, limits) for container in template.init_containers
        ),
    )


def pod_sets_with_defaults(world: World, namespace: str, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    """Pod sets with `with_defaults` templates (Kueue's AdjustResources does the same to a Workload)."""
    templates = [with_defaults(world, namespace, part.template) for part in pod_sets]
    if all(part.template is template for part, template in zip(pod_sets, templates, strict=True)):
        return pod_sets
    return tuple(replace(part, template=template) for part, template in zip(pod_sets, templates, strict=True))


def _with_overhead(world: World, template: PodTemplate) -> PodTemplate:
    """The template with its RuntimeClass's overhead (API server, plugin RuntimeClass)."""
    if not template.runtime_class or template.overhead:
        return template
    known: RuntimeClass | None = world.state.get(RuntimeClass, template.runtime_class)
    return template if known is None else replace(template, overhead=known.overhead)


def _limit_range_items(world: World, namespace: str) -> list[LimitRangeItem]:
    ranges: Iterable[LimitRange] = world.state.table("limit_ranges").all()
    return [item for found in ranges if found.namespace == namespace for item in found.items if item.type == _CONTAINER]


def _with_requests_and_limits(container: Container, requests: Resources, limits: Resources) -> Container:
    return replace(container, requests={**requests, **container.effective}, limits={**limits, **container.limits})


def pod_priority(world: World, template: PodTemplate) -> int:
    """The pod's priority, else its PriorityClass's, else the global default's, else 0 (admission plugin Priority)."""
    if template.priority is not None:
        return template.priority
    named: PriorityClass | None = world.state.get(PriorityClass, template.priority_class)
    if named is not None:
        return named.value
    if template.priority_class:
        return SYSTEM_PRIORITIES.get(template.priority_class, 0)
    return default_class(_priority_classes(world))[0]


def workload_priority(world: World, name: str, pod_sets: tuple[PodSet, ...]) -> tuple[int, str]:
    """Priority and class of a workload (Kueue pkg/util/priority).

    The WorkloadPriorityClass of the label comes first, then the PriorityClass of the first pod set that names one,
    then the global default.
    """
    if name:
        own: WorkloadPriorityClass | None = world.state.get(WorkloadPriorityClass, name)
        return (0 if own is None else own.value), name
    for pod_set in pod_sets:
        if pod_set.template.priority_class or pod_set.template.priority is not None:
            return pod_priority(world, pod_set.template), pod_set.template.priority_class
    return default_class(_priority_classes(world))


def default_class_name(world: World) -> str:
    """The class that the API server sets in pods without one; empty without a global default."""
    return default_class(_priority_classes(world))[1]


def _priority_classes(world: World) -> Iterable[PriorityClass]:
    classes: Iterable[PriorityClass] = world.state.table("priority_classes").all()
    return classes


Refusal = str
"""Why a command was refused, and what to do instead; empty if it was carried out."""

CARRIED_OUT: Refusal = ""


class NoChange(Refusal):
    """A command whose requested state is the current one; the text names that state."""


_JOB_RETRIES = (SECOND, MINUTE)
"""First and longest time between two attempts of the Job controller (DefaultJobApiBackOff, MaxJobApiBackOff)."""
_USUAL_RETRIES = (5 * SECOND // 1000, 1000 * SECOND)
"""The same for other controllers (client-go: DefaultTypedControllerRateLimiter)."""


def accept_pods(world: World, pods: Sequence[Pod]) -> tuple[Sequence[Pod], str]:
    """Return those of the new pods that the API server accepts, and why it refuses the first of the rest (else empty).

    Controllers stop creating pods after the first refusal.
    """
    quotas = world.quota_usage.quotas_of(world.state, pods[0].namespace) if pods and world.has_quotas else ()
    if not quotas:
        return pods, ""
    default = default_class_name(world)
    for number, pod in enumerate(pods):
        refusal = pod_refusal(quotas, pod.template, pod.name, default)
        if refusal is not None:
            return pods[:number], refusal.text
        usage = pod_usage(pod.template)
        quotas = tuple(
            replace(quota, used=add(quota.used, {name: usage[name] for name in usage if name in quota.hard}))
            if counts(quota, pod.template, pod.template.priority_class or default)
            else quota
            for quota in quotas
        )
    return pods, ""


def quota_refusal(world: World, obj: Job | Workload | Pod | PersistentVolumeClaim | ResourceClaim) -> Refusal:
    """Why a ResourceQuota refuses a new job, Workload, claim or lone pod; empty if none does."""
    if not world.has_quotas:
        return CARRIED_OUT
    quotas = world.quota_usage.quotas_of(world.state, obj.namespace)
    if isinstance(obj, Pod):
        template = with_defaults(world, obj.namespace, obj.template)
        refusal = pod_refusal(quotas, template, obj.name, default_class_name(world))
    else:
        refusal = object_refusal(quotas, obj)
    return CARRIED_OUT if refusal is None else refusal.text


def record_claim_refusal(world: World, pod: Pod, reason: str, text: str) -> None:
    """Add the refusal of a claim of a pod that was just created to the history; later retries are not recorded."""
    if pod.created == world.now:
        world.record_event(
            HistoryEventKind.PENDING,
            workload=pod.workload or pod.job or pod.key,
            pod=pod.key,
            reason=reason,
            message=text,
        )


def note_refusal(world: World, group: RunningGroup, refused: int, message: str) -> RunningGroup:
    """The running group, with the API server's refusal (`message`) of `refused` of its pods noted; 0 clears it.

    The group creates no pods until quota usage decreases (`recount_quotas`); of repeated refusals the first time is
    kept.
    """
    if not refused:
        return replace(group, refused_since=None, refusal="") if group.refused_since is not None else group
    since = world.now if group.refused_since is None else group.refused_since
    return replace(group, recreate_after=NEVER, refused_since=since, refusal=message)


def recount_quotas(world: World) -> None:
    """Write the current usage to the ResourceQuotas of one namespace whose usage may have changed."""
    namespace = next(iter(world.quotas_to_recount))
    changed = world.quotas_to_recount.pop(namespace)
    for quota in world.quota_usage.quotas_of(world.state, namespace):
        known = world.state.get(ResourceQuota, quota.key)
        if known is not None and known.used != quota.used:
            changed = changed or any(quota.used.get(name, 0) < amount for name, amount in known.used.items())
            world.put(quota)
    if changed:
        _schedule_retries(world, namespace)
        _schedule_workload_retries(world, namespace)


def _schedule_retries(world: World, namespace: str) -> None:
    """Schedule the next retry of each controller: earlier attempts would have found the quota unchanged."""
    for group in list(world.groups.values()):
        if group.refused_since is None or group.key.rsplit("/", 2)[-2] != namespace:
            continue
        job = world.job(group.job) if group.job else None
        first, longest = _JOB_RETRIES if job is not None and job.kind == "Job" else _USUAL_RETRIES
        due = next_retry(group.refused_since, world.now, first, longest)
        if group.recreate_after != due:
            world.groups[group.key] = replace(group, recreate_after=due)
            world.kernel.set_timer(due, RecreatePods(group.key))


def _schedule_workload_retries(world: World, namespace: str) -> None:
    """Schedule retries of Kueue's job reconcilers whose Workload a quota refused."""
    quotas = world.quota_usage.quotas_of(world.state, namespace)
    if world.session is None or not any(COUNT_WORKLOADS in quota.hard for quota in quotas):
        return
    owners = {workload.owner for workload in world.state.table("workloads").all()}
    for job in world.state.table("jobs").all():
        if job.namespace == namespace and job.queue and job.suspended and not job.ended and job.key not in owners:
            world.kernel.set_timer(
                next_retry(job.created, world.now, *_USUAL_RETRIES), RetryWorkloadCreation(job.key, job.uid)
            )


def next_retry(since: Time, now: Time, first: Span, longest: Span) -> Time:
    """The first retry after `now`, with backoff from `first`, doubled, to at most `longest`."""
    due, delay = since + first, first
    while due <= now and delay < longest:
        delay = min(longest, delay * 2)
        due += delay
    return due if due > now else due + ((now - due) // longest + 1) * longest
