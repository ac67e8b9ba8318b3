"""Descriptions of workloads, jobs and pods."""

from collections.abc import Iterable

from gpuconsole.insight.index.pods import phase_of
from gpuconsole.model.clock import format_span, format_time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.model.labels import Toleration
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.ui.describing.parts import amounts, pod_list
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import BLANK, field, heading, text_line

MOST_DOMAINS = 20
"""Number of topology domains listed of an assignment."""


def workload_lines(snapshot: Snapshot, workload: Workload) -> list[Painted]:
    """Requests, admission, admission checks and conditions of a Workload."""
    offered = () if workload.cluster else workload.nominated_clusters
    lines = [
        field("Phase", phase_of(snapshot, workload)),
        field("Owner", workload.owner or "none"),
        field("Queue", workload.local_queue),
        field("ClusterQueue", workload.cluster_queue or "not admitted"),
        *([field("Cluster", workload.cluster)] if workload.cluster else []),
        *([field("Nominated", ", ".join(offered))] if offered else []),
        field("Priority", f"{workload.priority} {workload.priority_class}".strip()),
        field("Evictions", workload.evictions),
        *pod_set_list(workload.pod_sets),
    ]
    if workload.admission is not None:
        lines += [BLANK, heading("Admission")]
        for assignment in workload.admission.pod_sets:
            flavors = ", ".join(f"{resource} from {flavor}" for resource, flavor in assignment.flavors.items())
            lines.append(text_line(f"  {assignment.name} ×{assignment.count}: {amounts(assignment.usage)}; {flavors}"))
            lines += [
                text_line(f"    {domain.count} in {' / '.join(domain.values)}")
                for domain in assignment.topology[:MOST_DOMAINS]
            ]
            if len(assignment.topology) > MOST_DOMAINS:
                lines.append(text_line(f"    and {len(assignment.topology) - MOST_DOMAINS} more domains"))
    if workload.checks:
        lines += [BLANK, heading("Admission checks")]
        for check in workload.checks:
            since = "" if check.since is None else format_span(max(0, snapshot.time - check.since))
            lines.append(text_line(f"  {check.name:<16} {check.state:<8} ", (f"{since:>8}", "dim")))
            if check.message:
                lines.append(text_line(f"    {check.message}"))
    lines += [BLANK, heading("Conditions")]
    for condition in workload.conditions:
        since = format_span(max(0, snapshot.time - condition.since))
        status = "True " if condition.status else "False"
        lines.append(text_line(f"  {condition.type:<16} {status} ", (f"{since:>8}  ", "dim"), condition.reason))
        if condition.message:
            lines.append(text_line(f"    {condition.message}"))
    return lines


def pod_set_list(pod_sets: Iterable[PodSet]) -> list[Painted]:
    """Requests of each pod set, with tolerations and node selectors."""
    lines = [BLANK, heading("Pod sets")]
    for pod_set in pod_sets:
        least = f" (minCount {pod_set.min_count})" if pod_set.min_count is not None else ""
        lines.append(text_line(f"  {pod_set.name} ×{pod_set.count}{least}: each {amounts(pod_set.template.requests)}"))
        lines += [text_line(f"    tolerates {_toleration(toleration)}") for toleration in pod_set.template.tolerations]
        lines += [
            text_line(f"    node selector {key}={value}") for key, value in pod_set.template.node_selector.items()
        ]
    return lines


def _toleration(toleration: Toleration) -> str:
    key = toleration.key or "every taint"
    value = f"={toleration.value}" if toleration.operator == "Equal" and toleration.value else ""
    return f"{key}{value}:{toleration.effect or 'any effect'}"


def job_lines(snapshot: Snapshot, job: Job) -> list[Painted]:
    """Phase, progress and pods of a job."""
    spans = (("Duration", job.duration), ("Checkpoint every", job.checkpoint_interval), ("Checkpointed", job.done))
    pods = [pod for pod in snapshot.pods.all() if pod.job == job.key]
    return [
        field("Phase", job.phase),
        field("Suspended", "yes" if job.suspended else "no"),
        field("Queue", job.queue or "none: not managed by Kueue"),
        *(field(name, format_span(span)) for name, span in spans if span),
        field("Failures", f"{job.failures} of {job.backoff_limit}"),
        *pod_set_list(job.pod_sets),
        *pod_list(pods),
    ]


def pod_facts(pod: Pod) -> list[Painted]:
    """Phase, node, requests and timestamps of a pod."""
    moments = (("Bound", pod.bound), ("Started", pod.started), ("Finished", pod.finished), ("Deleted", pod.deleted))
    return [
        field("Phase", pod.phase),
        field("Reason", f"{pod.reason} {pod.message}".strip() or "–"),
        field("Node", pod.node or "not scheduled"),
        field("GPUs", ", ".join(map(str, pod.gpus)) or "none"),
        field("Priority", pod.priority),
        field("Workload", pod.workload or "none"),
        field("Job", pod.job or "none"),
        *(field(name, format_time(moment)) for name, moment in moments if moment),
        field("Requests", amounts(pod.template.requests)),
    ]
