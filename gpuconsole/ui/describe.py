"""Descriptions of objects, shown by `d`: sections of fields from the Snapshot, with the newest events last."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from gpuconsole.insight.index.object_lists import workloads_by_owner
from gpuconsole.insight.index.pods import phase_of
from gpuconsole.insight.timeline import Repeated, folded
from gpuconsole.model.autoscaling import (
    NodeGroup,
    NodePool,
    ProvisioningRequest,
    ProvisioningRequestConfig,
    StoredTemplate,
)
from gpuconsole.model.clock import Time, format_span, format_time
from gpuconsole.model.cluster import (
    CompositePodGroup,
    CSINode,
    LimitRange,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    SchedulingWorkload,
    StorageClass,
)
from gpuconsole.model.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.job import Job, TrainingRuntime
from gpuconsole.model.jobs.workloads import GROUPS
from gpuconsole.model.kai import KaiPodGroup, KaiQueue, SchedulingShard
from gpuconsole.model.labels import Toleration
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    MultiKueueCluster,
    MultiKueueConfig,
    Quota,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)
from gpuconsole.model.resources import BILLIONTH, Resources, format_quantity, is_binary, short
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.model.volcano import HyperNode, Numatopology, PodGroup, VolcanoQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.cluster_queue_status import (
    active_condition,
    queues_using_check,
    queues_using_flavor,
    queues_using_topology,
)
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import Painted, Piece
from gpuconsole.ui.widgets.textpane import BLANK, Link, Pick, Target, field, heading, text_line

EVENTS = 30
"""Number of events listed, the newest ones."""


def events(rows: Iterable[HistoryEvent], now: Time, key: str = "") -> list[Painted]:
    """Return the section of the newest events, oldest first, with repeated ones folded.

    `key` is the described object's key: a line about another workload or pod names it.
    """
    newest = folded(rows)[-EVENTS:]
    lines = [BLANK, heading("Events")]
    if not newest:
        return [*lines, text_line(("  none recorded", "dim"))]
    return [*lines, *(painted for row in newest for painted in (_event(row, now, key), *_kueue_events(row.line)))]


def _kueue_events(row: HistoryEvent) -> list[Painted]:
    """The Kubernetes Events of the line; a message equal to the line's own is not repeated."""
    return [
        text_line(
            " " * 16,
            (f"{announcement.reason:<16} ", "fault" if announcement.warning else "dim"),
            announcement.message if announcement.message != row.message else "",
        )
        for announcement in row.told
    ]


def _event(repeated: Repeated, now: Time, key: str) -> Painted:
    row = repeated.line
    whose = called(row.workload or row.pod) if key and key not in (row.workload, row.pod) else ""
    times = fmt.repeats(repeated.count, repeated.span)
    by = f"by {called(row.by)}" if row.by else ""
    facts = [whose, times, row.reason, by, f"on {row.node}" if row.node else "", row.message]
    age = format_span(max(0, now - row.time))
    return text_line((f"  {age + ' ago':>12}  ", "dim"), f"{row.what:<16} ", " · ".join(fact for fact in facts if fact))


def about(rows: Iterable[HistoryEvent], table: str, key: str) -> list[HistoryEvent]:
    """Return the events that concern the object with this `key` in `table`, a name in `objects.TABLES`."""
    match table:
        case "pods":
            return [row for row in rows if row.pod == key]
        case "nodes":
            return [row for row in rows if row.node == key]
        case "cluster_queues":
            return [row for row in rows if row.queue == key or row.by_queue == key]
        case "local_queues":
            return [row for row in rows if row.queue == key]
        case _:
            return [row for row in rows if key in (row.workload, row.by)]


_SHOWN: tuple[tuple[type, tuple[str, ...]], ...] = (
    (LocalQueue, ("cluster_queue", "stop_policy", "fair_weight")),
    (WorkloadPriorityClass, ("value", "description")),
    (PriorityClass, ("value", "preemption_policy", "global_default", "description")),
    (Topology, ("levels",)),
    (AdmissionCheck, ("controller", "active")),
    (Namespace, ("named_only",)),
    (LimitRange, ()),
    (RuntimeClass, ("handler",)),
    (VolcanoQueue, ("weight", "parent", "reclaimable")),
    (SchedulingShard, ("partition", "gpu_strategy", "cpu_strategy", "queue_depth", "args")),
    (KaiQueue, ("parent", "priority", "gpu", "cpu", "memory")),
    (KaiPodGroup, ("queue", "min_member", "priority_class", "preemptibility")),
    (PodGroup, ("min_member", "queue", "topology_key", "parent_group")),
    (SchedulingWorkload, ("groups",)),
    (CompositePodGroup, ("min_groups", "topology_key", "parent_group")),
    (HyperNode, ("tier", "tier_name")),
    (Numatopology, ("cpu_policy", "topology_policy")),
    (ResourceQuota, ("hard", "used")),
    (NodePool, ("consolidation_policy", "consolidate_after", "weight")),
    (NodeGroup, ("autoscaler", "launched", "gone", "interrupted")),
    (PodDisruptionBudget, ("min_available", "max_unavailable")),
    (StorageClass, ("provisioner", "waits", "default")),
    (CSINode, ("limits",)),
    (PersistentVolume, ("storage", "storage_class", "phase", "claim")),
    (PersistentVolumeClaim, ("storage", "storage_class", "phase", "volume", "selected_node")),
    (DeviceClass, ("extended_resource", "selectors")),
    (ResourceSlice, ("driver", "pool", "generation")),
    (ResourceClaimTemplate, ()),
    (ResourceClaim, ()),
)


def plain_facts(obj: object) -> list[Painted]:
    """Describe an object of a simple kind by a fixed choice of its fields, a line for each."""
    names = next(names for kind, names in _SHOWN if isinstance(obj, kind))
    return [field(name.replace("_", " ").capitalize(), getattr(obj, name)) for name in names]


def mapped(title: str, values: Mapping[str, object]) -> list[Painted]:
    """Labels, annotations or another mapping under one title."""
    titles = [title, *[""] * len(values)]
    return [field(name, f"{key}={value}") for name, (key, value) in zip(titles, values.items(), strict=False)]


def amounts(resources: Resources) -> str:
    """Resource amounts, separated by commas."""
    return ", ".join(f"{name} {format_quantity(name, resources[name])}" for name in short(resources)) or "none"


def pod_list(pods: Iterable[Pod]) -> list[Painted]:
    """A line for each pod, with its node and GPUs."""
    lines = [BLANK, heading("Pods")]
    for pod in pods:
        indices = " GPU " + ",".join(map(str, pod.gpus)) if pod.gpus else ""
        lines.append(text_line(f"  {pod.key}  {pod.phase}  {pod.node or '–'}{indices}"))
    return lines if len(lines) > 2 else []


def taint_list(taints: Iterable[Any]) -> list[Painted]:
    """A line for each taint."""
    return [field("Taint", f"{taint.key}={taint.value}:{taint.effect}") for taint in taints]


def node_facts(snapshot: Snapshot, node: Node) -> list[Painted]:
    """Conditions, capacity and pods of a node."""
    pods = [pod for pod in snapshot.pods.all() if pod.node == node.name and not pod.done]
    return [
        field("Ready", "yes" if node.ready else "no"),
        field("Cordoned", "yes" if node.unschedulable else "no"),
        *([field("Note", "synthesised: the input has no nodes")] if node.synthesised else []),
        *taint_list(node.taints),
        field("Capacity", amounts(node.capacity)),
        field("Allocatable", amounts(node.allocatable)),
        *pod_list(pods),
    ]


def active(snapshot: Snapshot, queue: ClusterQueue) -> list[Painted]:
    """Return the line with the Active condition of a ClusterQueue."""
    ready = active_condition(queue, snapshot, seen=snapshot.seen)
    return [field("Active", f"{ready.active} · {ready.reason} · {ready.message}")]


def users(snapshot: Snapshot, obj: object) -> list[Painted]:
    """Return lines with the ClusterQueues that reference this object; they stop admitting if it is deleted."""
    queues = list(snapshot.cluster_queues.all())
    match obj:
        case ResourceFlavor():
            names = queues_using_flavor(queues, obj.name)
        case AdmissionCheck():
            names = queues_using_check(queues, obj.name)
        case Topology():
            names = queues_using_topology(queues, snapshot.flavors.all(), obj.name)
        case _:
            return []
    return [field("Used by", ", ".join(sorted(names)) or "no ClusterQueue")]


def quota_owner(owner: ClusterQueue | Cohort) -> list[Painted]:
    """Policies and quotas of a ClusterQueue or a cohort."""
    lines = [field("Fair weight", owner.fair_weight)]
    if isinstance(owner, ClusterQueue):
        lines += [
            field("Cohort", owner.cohort or "none"),
            field("Strategy", owner.queueing_strategy),
            field("Stop policy", owner.stop_policy),
            field("Within queue", owner.preemption.within_cluster_queue),
            field("Reclaim", owner.preemption.reclaim_within_cohort),
            field("While borrowing", owner.preemption.borrow_within_cohort.policy),
        ]
        if owner.namespace_selector is None:
            lines.append(field("Namespaces", "none: without a namespaceSelector it admits no workload"))
    else:
        lines.append(field("Parent", owner.parent or "none"))
    lines += [BLANK, heading("Quotas")]
    return [*lines, *(_quota(flavor, resource, quota) for (flavor, resource), quota in owner.quotas().items())]


def _quota(flavor: str, resource: str, quota: Quota) -> Painted:
    limits = (("borrows up to", quota.borrowing_limit), ("lends up to", quota.lending_limit))
    extra = "".join(f", {name} {format_quantity(resource, limit)}" for name, limit in limits if limit is not None)
    return text_line(f"  {flavor:<18} {resource:<16} {format_quantity(resource, quota.nominal)}{extra}")


def used_lately(queue: LocalQueue) -> list[Painted]:
    """Return lines with the recent usage of a LocalQueue; none where admission fair sharing does not use it."""
    if queue.usage is None:
        return []
    amounts = (_lately(name, queue.consumed[name] / BILLIONTH) for name in short(queue.consumed))
    return [
        field("Usage", f"{queue.usage:.3g} (the LocalQueue with the lowest usage is admitted first)"),
        field("Recent usage", ", ".join(amounts) or "none"),
    ]


def _lately(resource: str, amount: float) -> str:
    return f"{resource} {amount / 2**30:.2f}Gi" if is_binary(resource) else f"{resource} {amount:.2f}"


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


def mig_names(pod: Pod) -> list[str]:
    """The MIG instances that a pod has, such as `MIG 1g.10gb of GPU 0`."""
    return [f"MIG {one.profile} of GPU {one.gpu}" for one in pod.slices]


def pod_facts(pod: Pod) -> list[Painted]:
    """Phase, node, requests and timestamps of a pod."""
    moments = (("Bound", pod.bound), ("Started", pod.started), ("Finished", pod.finished), ("Deleted", pod.deleted))
    return [
        field("Phase", pod.phase),
        field("Reason", f"{pod.reason} {pod.message}".strip() or "–"),
        field("Node", pod.node or "not scheduled"),
        field("GPUs", ", ".join((*map(str, pod.gpus), *mig_names(pod))) or "none"),
        field("Priority", pod.priority),
        field("Workload", pod.workload or "none"),
        field("Job", pod.job or "none"),
        *(field(name, format_time(moment)) for name, moment in moments if moment),
        field("Requests", amounts(pod.template.requests)),
    ]


_NAME = re.compile(r"(?<![\w=./-])[A-Za-z0-9][\w./-]*+(?!=)")
"""What may be the name or the key of an object; not the value of a label."""
_NAMED_BY = {
    "Node": "nodes",
    "Cohort": "cohorts",
    "Parent": "cohorts",
    "Queue": "local_queues",
    "Workload": "workloads",
    "Job": "jobs",
    "Owner": "jobs",
}
"""Name of a field → the table of the object that it names."""
_GLOBAL = ("cluster_queues", "nodes", "flavors", "cohorts", "admission_checks", "volcano_queues", "kai_queues")
_NAMESPACED = ("workloads", "pods", "local_queues")
"""Tables in which a name is looked up, in this order."""


def find_named(snapshot: Snapshot, name: str, namespace: str = "", table: str = "") -> Target | None:
    """Return the object that a text calls by this name or key, in `table` if it has it; None if there is none.

    A name without a namespace may also be a pod in `namespace`. A workload may be called by the name of its job.
    """
    if table and name in getattr(snapshot, table):
        return Target(table, name)
    if "/" not in name:
        found = next((one for one in _GLOBAL if name in getattr(snapshot, one)), "")
        pod = f"{namespace}/{name}"
        return Target(found, name) if found else Target("pods", pod) if namespace and pod in snapshot.pods else None
    if name in snapshot.jobs:
        return Target("jobs", name)
    found = next((one for one in _NAMESPACED if name in getattr(snapshot, one)), "")
    if found:
        return Target(found, name)
    job = next((f"{kind}/{name}" for kind in GROUPS if f"{kind}/{name}" in snapshot.jobs), "")
    if not job:
        return None
    workload = workloads_by_owner(snapshot).get(job, "")
    return Target("workloads", workload) if workload else Target("jobs", job)


def linked(snapshot: Snapshot, lines: Iterable[Painted], own: str = "") -> list[Painted]:
    """Return the lines, those that name objects of the Snapshot as `Link`s; `own` is the key of the page's object."""
    counts: Counter[Target] = Counter()
    namespace = own.rpartition("/")[0].rpartition("/")[2]
    known: dict[tuple[str, str], Target | None] = {}
    return [_linked(snapshot, line, own, namespace, counts, known) for line in lines]


def _linked(
    snapshot: Snapshot,
    line: Painted,
    own: str,
    namespace: str,
    counts: Counter[Target],
    known: dict[tuple[str, str], Target | None],
) -> Painted:
    if isinstance(line, Pick) or not line or (len(line) == 1 and line[0][1] == "title"):
        return line
    title = line[0][0].strip() if len(line) == 2 else ""
    table = _NAMED_BY.get(title, "")
    if title in ("Labels", "Annotations"):
        return line
    pieces: list[Piece] = []
    names: dict[str, tuple[int, Target]] = {}
    for text, role in line:
        done = 0
        for match in _NAME.finditer(text):
            name = match[0].rstrip("./-_")
            if (name, table) not in known:
                known[name, table] = find_named(snapshot, name, namespace, table)
            target = known[name, table]
            if target is None or target.key == own or any(target == other for _, other in names.values()):
                continue
            if match.start() > done:
                pieces.append((text[done : match.start()], role))
            counts[target] += 1
            names[f"{target.table} {target.key} {counts[target]}"] = len(pieces), target
            pieces.append((name, "marked" if role in ("", "strong") else role))
            done = match.start() + len(name)
        if done < len(text):
            pieces.append((text[done:], role))
    return Link(tuple(pieces), names) if names else line


def describe(snapshot: Snapshot, table: str, key: str) -> list[Painted] | None:
    """The description of an object; None if the Snapshot does not contain it."""
    obj: Object | None = getattr(snapshot, table).get(key)
    if obj is None:
        return None
    lines = [heading(f"{_kind(obj)} {key.removeprefix(_kind(obj) + '/')}"), *_metadata(obj)]
    match obj:
        case Workload():
            lines += workload_lines(snapshot, obj)
        case Job():
            lines += job_lines(snapshot, obj)
        case Pod():
            lines += pod_facts(obj)
        case Node():
            lines += node_facts(snapshot, obj)
        case ClusterQueue():
            lines += [*active(snapshot, obj), *quota_owner(obj)]
        case Cohort():
            lines += quota_owner(obj)
        case LocalQueue():
            lines += [*plain_facts(obj), *used_lately(obj)]
        case ResourceFlavor():
            lines += [
                *mapped("Node labels", obj.node_labels),
                *taint_list(obj.node_taints),
                *users(snapshot, obj),
            ]
        case (
            WorkloadPriorityClass() | PriorityClass() | Topology() | AdmissionCheck() | Namespace()
            | LimitRange() | RuntimeClass() | VolcanoQueue() | PodGroup() | NodePool() | HyperNode() | DeviceClass()
            | Numatopology() | ResourceQuota()
            | SchedulingWorkload() | CompositePodGroup() | NodeGroup() | PodDisruptionBudget() | KaiQueue()
            | KaiPodGroup() | SchedulingShard()
            | StorageClass() | CSINode() | PersistentVolume() | PersistentVolumeClaim() | TrainingRuntime()
            | ResourceSlice() | ResourceClaimTemplate() | ResourceClaim() | ProvisioningRequestConfig()
            | ProvisioningRequest() | StoredTemplate() | MultiKueueCluster() | MultiKueueConfig()
            | NodeTelemetry()
        ):  # fmt: skip
            lines += [*plain_facts(obj), *users(snapshot, obj)]
        case _:
            assert_never(obj)
    return [*lines, *events(about(snapshot.recent, table, key), snapshot.time, key)]


def _kind(obj: Object) -> str:
    return obj.kind if isinstance(obj, Job) else type(obj).__name__


def _metadata(obj: Any) -> list[Painted]:
    lines = []
    if getattr(obj, "created", 0):
        lines.append(field("Created", format_time(obj.created)))
    for title, name in (("Labels", "labels"), ("Annotations", "annotations")):
        lines += mapped(title, getattr(obj, name, {}))
    return lines
