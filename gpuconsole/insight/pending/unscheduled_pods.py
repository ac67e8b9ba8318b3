"""Explanation of why pods are not created or not scheduled.

Pods are not scheduled because of their gang, the nodes, or a queue of Volcano or KAI (`explain_pods`). They are not
created if Volcano refuses their job or does not enqueue its PodGroup (`explain_podless`), or if a ResourceQuota of
their namespace refuses them, their ResourceClaims or their Workload (`explain_refused…`).
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from gpuconsole.insight.index.demand import quota_unit
from gpuconsole.insight.index.engine_queues import let_in
from gpuconsole.insight.index.pods import PartiallyScheduledGang, gang_key, quotas_of, refused_pods, waiting_gangs
from gpuconsole.insight.pending.reasons import (
    ParsedReason,
    PendingReason,
    SchedulerText,
    dominant_text,
    read_nodes,
    skipped,
    writer,
)
from gpuconsole.insight.pending.shortage import (
    API_SERVER,
    KUBE_SCHEDULER,
    KUBELET,
    MOST_HOLDERS,
    PendingExplanation,
    Remedy,
    not_waiting,
    show,
)
from gpuconsole.insight.tables import counted
from gpuconsole.model.cluster import Pod, ResourceQuota, default_class
from gpuconsole.model.devices import DeviceUnit, ResourceClaim, added, described
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import CronRules, FlowRules, Job, JobPhase, TemplateRules
from gpuconsole.model.jobs import workload_of
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resource_quota import QuotaRefusal, counts, object_refusal, pod_usage, written
from gpuconsole.model.resources import EMPTY, GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.devices.allocator import claim_keys
from gpuconsole.scheduling.queue_names import VOLCANO_DEFAULT, group_key
from gpuconsole.scheduling.volcano.jobs.pod_group import group_name


def beyond(snapshot: Snapshot, group: PodGroup) -> str:
    """Describe that a gang exceeds the capability of its queue or of one above it; empty if it does not."""
    for queue in _way_up(snapshot, group.queue or VOLCANO_DEFAULT):
        for resource, asked in (group.min_resources or EMPTY).items():
            limit = queue.capability.get(resource)
            if limit is not None and asked > limit:
                asks = f"Its gang requests {show(resource, asked)}"
                return (
                    f"{asks}; the capability of queue {queue.name} is {show(resource, limit)}: waiting does not help."
                )
    return ""


def _way_up(snapshot: Snapshot, name: str) -> Iterator[VolcanoQueue]:
    seen: set[str] = set()
    while name not in seen and (queue := snapshot.volcano_queues.get(name)) is not None:
        seen.add(name)
        yield queue
        name = queue.parent


def takers(snapshot: Snapshot, queue: str) -> tuple[str, ...]:
    """Name the jobs that use a queue's accelerators, or have enqueued requests without nodes, most first."""
    jobs = {f"{job.namespace}/{group_name(job)}": job.key for job in snapshot.jobs.all() if job.volcano}
    found = []
    for group, held, promised in let_in(snapshot):
        taken = added(*({_unit(snapshot, name): n} for part in (held, promised) for name, n in part.items()))
        if (group.queue or VOLCANO_DEFAULT) == queue and taken:
            found.append((taken, jobs.get(group.key, group.key), sum(promised.values())))
    found.sort(key=lambda one: (-sum(one[0].values()), one[1]))
    return tuple(
        f"{name} uses {described(taken)} of queue {queue}"
        + (f", {promised} of them not scheduled yet" if promised else "")
        for taken, name, promised in found[:MOST_HOLDERS]
    )


def _unit(snapshot: Snapshot, counted: str) -> DeviceUnit:
    return quota_unit(snapshot, counted or GPU)


OPEN = "Open"


def refused(snapshot: Snapshot, job: Job, queue: str = "") -> PendingExplanation | None:
    """Explain why a job gets no pods whatever capacity is free; None if it only waits. `queue` is its PodGroup's."""
    if job.volcano is None:
        return None
    name = queue or job.volcano.queue or VOLCANO_DEFAULT
    found = snapshot.volcano_queues.get(name)
    if found is None and name != VOLCANO_DEFAULT and snapshot.seen.all_of(VolcanoQueue):
        remedy = Remedy(True, f"create queue {name}, or use another one")
        return _refusal(job, PendingReason.QUEUE_MISSING, f"Queue {name} does not exist.", remedy)
    if found is not None and found.state != OPEN:
        headline = f"Queue {name} is {found.state}: it accepts no new jobs."
        return _refusal(
            job, PendingReason.QUEUE_STOPPED, headline, Remedy(True, f"open queue {name}, or use another one")
        )
    said = next((line for line in reversed(snapshot.recent) if line.workload == job.key), None)
    if said is not None and said.what is HistoryEventKind.PENDING and said.message:
        # The controller reports this for a job, never for its pods: it could not create the pods.
        headline = f"Its pods cannot be created: {said.message}"
        return _refusal(job, PendingReason.INVALID, headline)
    return None


def _refusal(job: Job, code: PendingReason, headline: str, *remedies: Remedy) -> PendingExplanation:
    return PendingExplanation(subject=job.key, code=code, headline=headline, since=job.created, remedies=remedies)


MOST_TEXTS = 4
"""Number of further messages of pods that are shown beside the dominant one."""


def _code(parsed: SchedulerText, gang: PartiallyScheduledGang | None) -> PendingReason:
    """Return the reason code of a message; of an incomplete gang, victims on one node are not the only obstacle."""
    of_queue = parsed.code in (PendingReason.QUEUE_MISSING, PendingReason.QUOTA)
    return parsed.code if gang is None or of_queue else PendingReason.GANG


def explain_pods(snapshot: Snapshot, key: str, pods: Sequence[Pod], queue: str = "") -> PendingExplanation | None:
    """Explain why pods are not scheduled; None if all are."""
    waiting = [pod for pod in pods if not pod.node and not pod.done]
    if not waiting:
        return None
    first = next((pod for pod in waiting if pod.message and not skipped(pod.message)), waiting[0])
    gang = next((gang for gang in waiting_gangs(snapshot) if gang.key == gang_key(first)), None)
    reasons = _decisive_first(snapshot, read_nodes(first.message))
    parsed = dominant_text((*group_texts(snapshot, first), *dict.fromkeys(pod.message for pod in waiting)))
    if parsed is not None:
        return _explain_engine_text(key, parsed, gang, waiting, queue)
    if gang is not None:
        holds = f"; they hold {counted(gang.held_gpus, gang.unit)} without running" if gang.held_gpus else ""
        state = "Partially scheduled gang" if gang.placed else "Gang not scheduled"
        headline = f"{state}: {gang.placed} of {gang.needed} pods placed{holds}."
        remedy = Remedy(True, f"{counted(gang.missing_gpus, f'more {gang.unit}')} free at the same time")
    elif first.gates:
        headline, remedy = f"Its pods have scheduling gates: {', '.join(first.gates)}.", None
    else:
        worst = f": {reasons[0].text}" if reasons and reasons[0].count else ""
        headline = f"{len(waiting)} of {len(pods)} pods unschedulable{worst}."
        remedy = _node_remedy(reasons)
    return PendingExplanation(
        subject=key,
        code=PendingReason.GANG if gang is not None else PendingReason.GATED if first.gates else PendingReason.NODES,
        headline=headline,
        text=first.message,
        source=(writer(first.message) or KUBE_SCHEDULER) if first.message else "",
        queue=queue,
        since=min(pod.created for pod in waiting),
        lines=tuple(reason.text for reason in reasons),
        remedies=(remedy,) if remedy is not None else (),
    )


def _decisive_first(snapshot: Snapshot, reasons: Sequence[ParsedReason]) -> tuple[ParsedReason, ...]:
    """Sort the reasons: first a resource that is insufficient on every node that has it, as other nodes cannot help."""

    def decides(reason: ParsedReason) -> bool:
        having = sum(1 for node in snapshot.nodes.all() if node.allocatable.get(reason.resource))
        return bool(reason.resource and snapshot.nodes.rows) and having <= reason.count

    return tuple(sorted(reasons, key=lambda reason: not decides(reason)))


_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_BROKEN = (
    *("CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    *("StartError", "UnexpectedAdmissionError", "OOMKilled"),
)


def explain_failing(key: str, pods: Sequence[Pod], queue: str = "") -> PendingExplanation | None:
    """Explain why scheduled pods do not run: an image or a container fails; None if none fails."""
    failing = [pod for pod in pods if pod.node and not pod.deleted and pod.reason in (*_IMAGE, *_BROKEN)]
    if not failing:
        return None
    first = failing[0]
    image = first.reason in _IMAGE
    what = "its image cannot be pulled" if image else "its container fails"
    headline = f"{len(failing)} of {len(pods)} pods do not start: {what} ({first.reason})."
    remedy = "check the image name, its tag and imagePullSecrets" if image else "see the container's logs"
    return PendingExplanation(
        subject=key,
        code=PendingReason.IMAGE if image else PendingReason.POD_FAILURE,
        headline=headline,
        text=first.message,
        source=KUBELET if first.message else "",
        queue=queue,
        since=min(pod.bound or pod.created for pod in failing),
        lines=tuple(dict.fromkeys(f"{pod.name} on {pod.node}: {pod.reason}" for pod in failing))[:MOST_TEXTS],
        remedies=(Remedy(True, remedy),),
    )


def _explain_engine_text(
    key: str, found: tuple[str, SchedulerText], gang: PartiallyScheduledGang | None, pods: Sequence[Pod], queue: str
) -> PendingExplanation:
    """Explain pending pods by the message of Volcano or KAI, with the messages about nodes."""
    text, parsed = found
    others = dict.fromkeys(pod.message for pod in pods if pod.message and pod.message != text)
    if gang is not None and gang.held_gpus:
        others[f"{gang.placed} of {gang.needed} pods placed; they hold {counted(gang.held_gpus, gang.unit)}"] = None
    nodes = next((reason for other in others for reason in read_nodes(other) if reason.count), None)
    remedies = [Remedy(True, parsed.remedy)] if parsed.remedy else []
    about_nodes = _node_remedy((nodes,)) if nodes is not None else None
    return PendingExplanation(
        subject=key,
        code=_code(parsed, gang),
        headline=parsed.headline,
        text=text,
        source=parsed.source,
        queue=queue,
        since=min((pod.created for pod in pods), default=None),
        lines=tuple(others)[:MOST_TEXTS],
        remedies=(*remedies, *([about_nodes] if about_nodes is not None else [])),
    )


def explain_podless(snapshot: Snapshot, job: Job) -> PendingExplanation:
    """Explain a job without pods: it has ended, creates other jobs, is suspended, or Volcano refuses it or has not
    enqueued its PodGroup."""
    if job.ended:
        return not_waiting(job.key, "Finished." if job.phase is JobPhase.SUCCEEDED else "Failed.")
    if isinstance(job.rules, CronRules):
        return not_waiting(job.key, f"Not pending: it creates a Job on the schedule {job.rules.schedule}.")
    if isinstance(job.rules, TemplateRules):
        return not_waiting(job.key, "Template: JobFlows create Jobs from it.")
    if isinstance(job.rules, FlowRules):
        return not_waiting(
            job.key, "No pods of its own: it creates each Job once the Jobs that it depends on are completed."
        )
    names = (f"{job.namespace}/{name}" for name in (f"{job.name}-{job.uid}", job.name))
    groups = [snapshot.pod_groups.get(name) for name in names]
    refusal = refused(snapshot, job, next((group.queue for group in groups if group is not None), ""))
    if refusal is not None:
        return refusal
    for group in groups:
        conditions = [one for one in group.conditions if one.status and one.message] if group is not None else []
        parsed = dominant_text(one.message for one in conditions)
        if parsed is not None:
            since = max(one.since for one in conditions)
            answer = _explain_engine_text(job.key, parsed, None, (), "")
            code = PendingReason.GANG if parsed[1].code is PendingReason.NODES else parsed[1].code
            answer = replace(answer, code=code, since=since)
            return _by_limits(snapshot, group, answer) if group is not None else answer
        if group is not None and group.phase in ("", "Pending"):
            never = beyond(snapshot, group)
            headline = never or "Volcano has not enqueued its PodGroup, so it has no pods yet."
            code = PendingReason.EXCEEDS_MAX if never else PendingReason.GANG
            return PendingExplanation(subject=job.key, code=code, headline=headline, since=group.created)
    headline = "Suspended." if job.suspended else "No pods exist yet."
    return PendingExplanation(subject=job.key, code=PendingReason.QUEUED, headline=headline, since=job.created)


def _by_limits(snapshot: Snapshot, group: PodGroup, answer: PendingExplanation) -> PendingExplanation:
    """Add to an answer about a Volcano queue that its limits never allow the gang, or the jobs that use them."""
    if answer.code is not PendingReason.QUOTA:
        return answer
    if never := beyond(snapshot, group):
        return replace(answer, code=PendingReason.EXCEEDS_MAX, headline=never)
    return replace(answer, lines=(*takers(snapshot, group.queue or VOLCANO_DEFAULT), *answer.lines))


def group_texts(snapshot: Snapshot, pod: Pod) -> tuple[str, ...]:
    """Return the scheduler's messages about the pod's group, if it has one."""
    group = group_key(pod)
    volcano, kai = snapshot.pod_groups.get(group), snapshot.kai_pod_groups.get(group)
    texts = [condition.message for condition in volcano.conditions if condition.status] if volcano is not None else []
    if kai is not None:
        for condition in kai.conditions:
            texts += [f"{reason}: {message}" for reason, message in condition.reasons] or [condition.message]
    return tuple(texts)


def _node_remedy(reasons: Sequence[ParsedReason]) -> Remedy | None:
    if not reasons:
        return None
    first = reasons[0]
    if first.resource:
        return Remedy(True, f"a node with enough free {first.resource} (the GPU map shows where it is used)")
    if first.name:
        return Remedy(True, f"add a toleration for the taint {{{first.name}}} to its pods")
    if "unschedulable" in first.text:
        return Remedy(True, "uncordon a node")
    if "affinity" in first.text:
        return Remedy(True, "add a node with the labels that its node selector or affinity requires, or change these")
    return None


def group_lines(snapshot: Snapshot, pod: Pod) -> tuple[str, ...]:
    """Return lines of text about a pod's group."""
    key = group_key(pod)
    volcano, kai = snapshot.pod_groups.get(key), snapshot.kai_pod_groups.get(key)
    lines: list[str] = []
    if volcano is not None:
        queue = f" · queue {volcano.queue}" if volcano.queue else ""
        lines.append(f"{volcano.key} · {volcano.phase or 'Pending'} · minMember {volcano.min_member}{queue}")
        lines += [f"{one.type} {one.reason}: {one.message}" for one in volcano.conditions if one.status]
    if kai is not None:
        queue = f" · queue {kai.queue}" if kai.queue else ""
        lines.append(f"{kai.key} · minMember {kai.min_member}{queue}")
        for condition in kai.conditions:
            lines += [f"{reason}: {message}" for reason, message in condition.reasons] or [condition.message]
    return tuple(lines)


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
