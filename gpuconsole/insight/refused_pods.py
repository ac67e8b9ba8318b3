"""Missing pods and Workloads that the API server refuses to create because of a ResourceQuota of their namespace."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.insight.explanation import API_SERVER, PendingExplanation
from gpuconsole.insight.missing_pods import quotas_of, refused_pods
from gpuconsole.insight.reasons import PendingReason
from gpuconsole.insight.shortage import Remedy
from gpuconsole.model.cluster import Pod, ResourceQuota, default_class
from gpuconsole.model.devices import ResourceClaim
from gpuconsole.model.job import Job
from gpuconsole.model.jobs import workload_of
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resource_quota import QuotaRefusal, counts, object_refusal, pod_usage, written
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.devices.dra_inventory import claim_keys


def explain_refused(
    snapshot: Snapshot, key: str, owner: Workload | Job, pods: Sequence[Pod], queue: str = ""
) -> PendingExplanation | None:
    """Explain why pods of an admitted workload or an unqueued job are missing; None if ResourceQuotas allow them.

    `pods` are its existing pods.
    """
    refused = refused_pods(snapshot, owner, pods)
    if refused is None:
        return None
    default = default_class(snapshot.priority_classes.all())[1]
    return PendingExplanation(
        subject=key,
        code=PendingReason.RESOURCE_QUOTA,
        headline=f"{refused.text}.",
        text=refused.refusal.text,
        source=API_SERVER,
        queue=queue,
        remedies=(Remedy(True, _remedy(refused.refusal, refused.templates, default)),),
    )


def explain_refused_group(snapshot: Snapshot, job: Job) -> PendingExplanation | None:
    """Explain why pods of a job's groups or replicas are missing, by the first of these with missing pods."""
    if not job.makes_jobs or not quotas_of(snapshot, job.namespace):
        return None
    for child in sorted((one for one in snapshot.jobs.all() if one.owner == job.key), key=lambda one: one.key):
        found = explain_refused(snapshot, job.key, child, [pod for pod in snapshot.pods.all() if pod.job == child.key])
        if found is not None:
            return replace(found, headline=f"{child.name}: {found.headline}")
    return None


def explain_refused_claims(
    snapshot: Snapshot, key: str, pods: Sequence[Pod], queue: str = ""
) -> PendingExplanation | None:
    """Explain why ResourceClaims of some of these pods are missing; None if no ResourceQuota refuses them."""
    quotas = quotas_of(snapshot, pods[0].namespace) if pods else []
    refused = [found for pod in pods if (found := _refused_claim(snapshot, quotas, pod)) is not None] if quotas else []
    if not refused:
        return None
    quota, resource = refused[0].quota, refused[0].resource
    enough = written(resource, quota.used.get(resource, 0) + len(refused))
    wait = f"wait for pods of {quota.namespace} to end"
    more = f"raise {resource} of ResourceQuota {quota.key} to {enough} or more, or {wait}"
    return PendingExplanation(
        subject=key,
        code=PendingReason.RESOURCE_QUOTA,
        headline=f"{len(refused)} of {len(pods)} pods have no ResourceClaim: ResourceQuota {quota.name} of namespace"
        f" {quota.namespace} would be exceeded.",
        text=refused[0].text,
        source=API_SERVER,
        queue=queue,
        remedies=(Remedy(True, more),),
    )


def explain_refused_workload(snapshot: Snapshot, job: Job) -> PendingExplanation | None:
    """Explain why a queued job has no Workload; None if no ResourceQuota refuses it."""
    if not job.queue or not job.suspended or job.ended or job.makes_jobs or not snapshot.seen.all_of(Workload):
        return None
    refusal = object_refusal(quotas_of(snapshot, job.namespace), workload_of(job, now=snapshot.time))
    if refusal is None:
        return None
    quota, resource = refusal.quota, refusal.resource
    enough = written(resource, quota.used.get(resource, 0) + 1)
    more = (
        f"raise {resource} of ResourceQuota {quota.key} to {enough} or more, or delete ended jobs of {quota.namespace}"
    )
    return PendingExplanation(
        subject=job.key,
        code=PendingReason.RESOURCE_QUOTA,
        headline=f"Kueue cannot create its Workload: ResourceQuota {quota.name} of namespace {quota.namespace}"
        " would be exceeded.",
        text=refusal.text,
        source=API_SERVER,
        remedies=(Remedy(True, more),),
    )


def _refused_claim(snapshot: Snapshot, quotas: Sequence[ResourceQuota], pod: Pod) -> QuotaRefusal | None:
    if pod.node or pod.done:
        return None
    for named, key in zip(pod.template.resource_claims, claim_keys(pod), strict=True):
        template = snapshot.resource_claim_templates.get(f"{pod.namespace}/{named.template}")
        if template is None or key in snapshot.resource_claims:
            continue
        name = key.partition("/")[2]
        claim = ResourceClaim(namespace=pod.namespace, name=name, requests=template.requests)
        if (refusal := object_refusal(quotas, claim)) is not None:
            return refusal
    return None


def _remedy(refusal: QuotaRefusal, missing: Sequence[PodTemplate], default_class: str) -> str:
    quota, resource = refusal.quota, refusal.resource
    if not resource:
        return "set requests and limits in every container, or add a LimitRange with defaults"
    more = sum(
        pod_usage(template).get(resource, 0)
        for template in missing
        if counts(quota, template, template.priority_class or default_class)
    )
    enough = written(resource, quota.used.get(resource, 0) + more)
    wait = f"wait for pods of {quota.namespace} to end"
    return f"raise {resource} of ResourceQuota {quota.key} to {enough} or more, or {wait}"
