"""ResourceQuotas: objects that the API server refuses, usage, and retries of controllers."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, SECOND, Span, Time
from gpuconsole.model.cluster import Pod, ResourceQuota
from gpuconsole.model.devices import ResourceClaim
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.resource_quota import COUNT_WORKLOADS, counts, object_refusal, pod_refusal, pod_usage
from gpuconsole.model.resources import add
from gpuconsole.model.storage import PersistentVolumeClaim
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.controllers.limits import defaulted
from gpuconsole.sim.controllers.priorities import default_class_name
from gpuconsole.sim.controllers.refusals import DONE, Refusal
from gpuconsole.sim.kernel import Restart, StandFor
from gpuconsole.sim.pod_group_state import NEVER, RunningGroup
from gpuconsole.sim.world import World

_JOB_RETRIES = (SECOND, MINUTE)
"""First and longest time between two attempts of the Job controller (DefaultJobApiBackOff, MaxJobApiBackOff)."""
_USUAL_RETRIES = (5 * SECOND // 1000, 1000 * SECOND)
"""The same for other controllers (client-go: DefaultTypedControllerRateLimiter)."""


def admitted_pods(world: World, pods: Sequence[Pod]) -> tuple[Sequence[Pod], str]:
    """The new pods that the API server accepts in a namespace, and why it refuses the first of the others.

    Controllers stop creating pods after the first refusal.
    """
    quotas = world.quota_usage.of(world.state, pods[0].namespace) if pods and world.has_quotas else ()
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
        return DONE
    quotas = world.quota_usage.of(world.state, obj.namespace)
    if isinstance(obj, Pod):
        template = defaulted(world, obj.namespace, obj.template)
        refusal = pod_refusal(quotas, template, obj.name, default_class_name(world))
    else:
        refusal = object_refusal(quotas, obj)
    return DONE if refusal is None else refusal.text


def tell_refused_claim(world: World, pod: Pod, reason: str, text: str) -> None:
    """Record that the claim of a pod just created was refused; later retries are not recorded."""
    if pod.created == world.now:
        world.tell(
            HistoryEventKind.PENDING,
            workload=pod.workload or pod.job or pod.key,
            pod=pod.key,
            reason=reason,
            message=text,
        )


def note_refusal(world: World, group: RunningGroup, refused: int, message: str) -> RunningGroup:
    """The running group, with the refusal of some pods noted, or cleared if none was `refused`.

    It holds until usage decreases (`recount`); of repeated refusals the first time is kept.
    """
    if not refused:
        return replace(group, refused_since=None, refusal="") if group.refused_since is not None else group
    since = world.now if group.refused_since is None else group.refused_since
    return replace(group, hold=NEVER, refused_since=since, refusal=message)


def recount_quotas(world: World) -> None:
    """Update the usage of the next uncounted namespace's quotas.

    When usage decreases or a quota changes, controllers that were refused retry.
    """
    namespace = next(iter(world.uncounted))
    changed = world.uncounted.pop(namespace)
    for quota in world.quota_usage.of(world.state, namespace):
        known = world.state.get(ResourceQuota, quota.key)
        if known is not None and known.used != quota.used:
            changed = changed or any(quota.used.get(name, 0) < amount for name, amount in known.used.items())
            world.put(quota)
    if changed:
        _let_try_again(world, namespace)
        _let_stand_for(world, namespace)


def _let_try_again(world: World, namespace: str) -> None:
    """Schedule the next retry of each controller: earlier attempts would have found the quota unchanged."""
    for group in list(world.groups.values()):
        if group.refused_since is None or group.key.rsplit("/", 2)[-2] != namespace:
            continue
        job = world.job(group.job) if group.job else None
        first, longest = _JOB_RETRIES if job is not None and job.kind == "Job" else _USUAL_RETRIES
        due = next_retry(group.refused_since, world.now, first, longest)
        if group.hold != due:
            world.groups[group.key] = replace(group, hold=due)
            world.kernel.at(due, Restart(group.key))


def _let_stand_for(world: World, namespace: str) -> None:
    """Schedule retries of Kueue's job reconcilers whose Workload a quota refused."""
    quotas = world.quota_usage.of(world.state, namespace)
    if world.session is None or not any(COUNT_WORKLOADS in quota.hard for quota in quotas):
        return
    owners = {workload.owner for workload in world.state.table("workloads").all()}
    for job in world.state.table("jobs").all():
        if job.namespace == namespace and job.queue and job.suspended and not job.ended and job.key not in owners:
            world.kernel.at(next_retry(job.created, world.now, *_USUAL_RETRIES), StandFor(job.key, job.uid))


def next_retry(since: Time, now: Time, first: Span, longest: Span) -> Time:
    """The first retry after `now`, with backoff from `first`, doubled, to at most `longest`."""
    due, delay = since + first, first
    while due <= now and delay < longest:
        delay = min(longest, delay * 2)
        due += delay
    return due if due > now else due + ((now - due) // longest + 1) * longest
