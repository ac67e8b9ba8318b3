"""Pods that are missing because a ResourceQuota of their namespace prevents them from being created."""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence

from msgspec import Struct

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.phases import pods_run
from gpuconsole.model.cluster import Pod, ResourceQuota, default_class
from gpuconsole.model.job import BatchRules, Job
from gpuconsole.model.jobs import pod_name
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.resource_quota import QuotaRefusal, pod_refusal
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.controllers.batch_job import next_pieces


class RefusedPods(Struct, frozen=True):
    """The missing pods of one owner, and why the API server refuses the first of them."""

    templates: tuple[PodTemplate, ...]
    there: int
    """Number of existing pods that have not ended."""
    refusal: QuotaRefusal

    @property
    def text(self) -> str:
        """One sentence, without a full stop."""
        count, quota = len(self.templates), self.refusal.quota
        what = f"ResourceQuota {quota.name} of namespace {quota.namespace}"
        why = (
            f"{what} would be exceeded"
            if self.refusal.resource
            else f"{what} requires requests or limits that their containers do not set"
        )
        return f"{count} of {self.there + count} pods cannot be created: {why}"


def refused_pods(snapshot: Snapshot, owner: Workload | Job, pods: Sequence[Pod]) -> RefusedPods | None:
    """Return the missing pods of an admitted workload or an unqueued job, if a ResourceQuota refuses them; else None.

    Only the first missing pod is checked. `pods` are its existing pods.
    """
    return _refused(snapshot, quotas_of(snapshot, owner.namespace), owner, pods)


def _refused(
    snapshot: Snapshot, quotas: Sequence[ResourceQuota], owner: Workload | Job, pods: Sequence[Pod]
) -> RefusedPods | None:
    missing = _missing(snapshot, owner, pods) if quotas else []
    if not missing:
        return None
    name, template = missing[0]
    refusal = pod_refusal(quotas, template, name, default_class(snapshot.priority_classes.all())[1])
    if refusal is None:
        return None
    templates = tuple(template for _, template in missing)
    return RefusedPods(templates, sum(not pod.done for pod in pods), refusal)


@memoized("resource_quotas", "jobs", "pods", "workloads", "priority_classes", "seen")
def all_refused_pods(snapshot: Snapshot) -> Mapping[str, RefusedPods]:
    """Return the refused pods of admitted workloads and of jobs without a Workload; empty without ResourceQuotas."""
    quotas = {name: quotas_of(snapshot, name) for name in {quota.namespace for quota in snapshot.resource_quotas.all()}}
    owners = {owner.key: owner for owner in _owners(snapshot, quotas.keys())} if quotas else {}
    if not owners:
        return {}
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods.all():
        if (owner := pod.workload or pod.job) in owners:
            pods.setdefault(owner, []).append(pod)
    found = {key: _refused(snapshot, quotas[one.namespace], one, pods.get(key, ())) for key, one in owners.items()}
    return {key: refused for key, refused in found.items() if refused is not None}


def _owners(snapshot: Snapshot, namespaces: Container[str]) -> Iterator[Workload | Job]:
    """Yield the workloads and jobs in these namespaces whose pods may be missing."""
    queued = set[str]()
    for workload in snapshot.workloads.all():
        queued.add(workload.owner)
        mine = workload.namespace in namespaces and workload.admitted and not workload.finished
        if mine and not workload.cluster and not pods_run(snapshot, workload):
            yield workload
    for job in snapshot.jobs.all():
        makes = job.namespace in namespaces and not job.ended and not job.suspended and not job.makes_jobs
        if makes and queued.isdisjoint(_line(snapshot, job)):
            yield job


def _line(snapshot: Snapshot, job: Job) -> Iterator[str]:
    """Yield the keys of a job and its owners."""
    known = set[str]()
    above: Job | None = job
    while above is not None and above.key not in known:
        known.add(above.key)
        yield above.key
        above = snapshot.jobs.get(above.owner)


def quotas_of(snapshot: Snapshot, namespace: str) -> list[ResourceQuota]:
    """Return the ResourceQuotas of a namespace, sorted by name."""
    quotas = [quota for quota in snapshot.resource_quotas.all() if quota.namespace == namespace]
    return sorted(quotas, key=lambda quota: quota.name)


def _missing(snapshot: Snapshot, owner: Workload | Job, pods: Sequence[Pod]) -> list[tuple[str, PodTemplate]]:
    """Return the names and templates of missing pods, in order of creation."""
    job = snapshot.jobs.get(owner.owner) if isinstance(owner, Workload) else owner
    parts = _parts(owner)
    if job is None:
        job = Job(namespace=owner.namespace, name=owner.name)
    if job.ended or (job.suspended and isinstance(owner, Job)) or job.makes_jobs or not parts:
        return []
    if job.solo and isinstance(job.rules, BatchRules):
        active = {pod.index for pod in pods if not pod.done}
        part, limit = parts[0], sum(part.count for part in parts)
        return [
            (pod_name(job, part.name, piece), part.template) for piece in next_pieces(job, job.rules, limit, active)
        ]
    there = Counter(pod.pod_set for pod in pods)
    return [
        (pod_name(job, part.name, index), part.template)
        for part in parts
        for index in range(there[part.name], part.count)
    ]


def _parts(owner: Workload | Job) -> list[PodSet]:
    """Return the pod sets with their admitted counts, or requested counts if not admitted."""
    if isinstance(owner, Job) or owner.admission is None:
        return list(owner.pod_sets)
    sizes = {assigned.name: assigned.count for assigned in owner.admission.pod_sets}
    return [PodSet(name=part.name, count=sizes.get(part.name, 0), template=part.template) for part in owner.pod_sets]
