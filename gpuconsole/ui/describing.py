"""Any object in words: what `d` shows. Sections of facts from the Snapshot, the newest events last."""

from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from gpuconsole.model.autoscaling import NodeGroup, NodePool
from gpuconsole.model.clock import Time, format_span, format_time
from gpuconsole.model.cluster import (
    LimitRange,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    Toleration,
)
from gpuconsole.model.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from gpuconsole.model.events import Happened
from gpuconsole.model.kai import KaiPodGroup, KaiQueue
from gpuconsole.model.multikueue import MultiKueueCluster, MultiKueueConfig
from gpuconsole.model.objects import Object
from gpuconsole.model.provisioning import ProvisioningRequest, ProvisioningRequestConfig, StoredTemplate
from gpuconsole.model.quantity import BILLIONTH, format_quantity, is_binary
from gpuconsole.model.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    Quota,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)
from gpuconsole.model.resources import Resources, short
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.model.training import TrainingRuntime
from gpuconsole.model.volcano import HyperNode, Numatopology, PodGroup, VolcanoQueue
from gpuconsole.model.workloads import Job, PodSet, Workload, phase
from gpuconsole.scheduling.kueue.readiness import readiness, using_check, using_flavor, using_topology
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import BLANK, field, heading, line

EVENTS = 30
MOST_DOMAINS = 20
"""So many of the newest events are listed."""


def describe(snapshot: Snapshot, table: str, key: str) -> list[Painted] | None:
    """The description of an object, or None where the Snapshot does not (or no longer) hold it."""
    thing: Object | None = getattr(snapshot, table).get(key)
    if thing is None:
        return None
    lines = [heading(f"{_kind(thing)} {key.removeprefix(_kind(thing) + '/')}"), *_metadata(thing)]
    match thing:
        case Workload():
            lines += _workload(snapshot, thing)
        case Job():
            lines += _job(snapshot, thing)
        case Pod():
            lines += _pod(thing)
        case Node():
            lines += _node(snapshot, thing)
        case ClusterQueue():
            lines += [*_active(snapshot, thing), *_quota_owner(thing)]
        case Cohort():
            lines += _quota_owner(thing)
        case LocalQueue():
            lines += [*_plain(thing), *_used_lately(thing)]
        case ResourceFlavor():
            lines += [*_map("Node labels", thing.node_labels), *_taints(thing.node_taints), *_users(snapshot, thing)]
        case (
            WorkloadPriorityClass() | PriorityClass() | Topology() | AdmissionCheck() | Namespace()
            | LimitRange() | RuntimeClass() | VolcanoQueue() | PodGroup() | NodePool() | HyperNode() | DeviceClass()
            | Numatopology() | ResourceQuota()
            | NodeGroup() | PodDisruptionBudget() | KaiQueue() | KaiPodGroup()
            | StorageClass() | CSINode() | PersistentVolume() | PersistentVolumeClaim() | TrainingRuntime()
            | ResourceSlice() | ResourceClaimTemplate() | ResourceClaim() | ProvisioningRequestConfig()
            | ProvisioningRequest() | StoredTemplate() | MultiKueueCluster() | MultiKueueConfig()
            | NodeTelemetry()
        ):  # fmt: skip
            lines += [*_plain(thing), *_users(snapshot, thing)]
        case _:
            assert_never(thing)
    return [*lines, *events(_about(snapshot.recent, table, key), snapshot.time)]


def events(rows: Iterable[Happened], now: Time) -> list[Painted]:
    """The newest lines of history, oldest first, as kubectl describe lists them."""
    newest = list(rows)[-EVENTS:]
    lines = [BLANK, heading("Events")]
    if not newest:
        return [*lines, line(("  none that the console remembers", "dim"))]
    return [*lines, *(painted for row in newest for painted in (_event(row, now), *_told(row)))]


def _told(row: Happened) -> list[Painted]:
    """What Kueue's recorder writes of it; a text that the line itself has is not repeated."""
    return [
        line(
            " " * 16,
            (f"{announcement.reason:<16} ", "fault" if announcement.warning else "dim"),
            announcement.message if announcement.message != row.message else "",
        )
        for announcement in row.told
    ]


def _event(row: Happened, now: Time) -> Painted:
    facts = [row.reason, f"by {row.by}" if row.by else "", f"on {row.node}" if row.node else "", row.message]
    age = format_span(max(0, now - row.time))
    return line((f"  {age + ' ago':>12}  ", "dim"), f"{row.what:<16} ", " · ".join(fact for fact in facts if fact))


def _about(rows: Iterable[Happened], table: str, key: str) -> list[Happened]:
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


def _kind(thing: Object) -> str:
    return thing.kind if isinstance(thing, Job) else type(thing).__name__


def _metadata(thing: Any) -> list[Painted]:
    lines = []
    if getattr(thing, "created", 0):
        lines.append(field("Created", format_time(thing.created)))
    for title, name in (("Labels", "labels"), ("Annotations", "annotations")):
        lines += _map(title, getattr(thing, name, {}))
    return lines


def _map(title: str, values: Mapping[str, object]) -> list[Painted]:
    titles = [title, *[""] * len(values)]
    return [field(name, f"{key}={value}") for name, (key, value) in zip(titles, values.items(), strict=False)]


def _amounts(resources: Resources) -> str:
    return ", ".join(f"{name} {format_quantity(name, resources[name])}" for name in short(resources)) or "nothing"


def _workload(snapshot: Snapshot, workload: Workload) -> list[Painted]:
    offered = () if workload.cluster else workload.nominated_clusters
    lines = [
        field("Phase", phase(workload)),
        field("Owner", workload.owner or "none"),
        field("Queue", workload.local_queue),
        field("ClusterQueue", workload.cluster_queue or "not admitted"),
        *([field("Cluster", workload.cluster)] if workload.cluster else []),
        *([field("Offered to", ", ".join(offered))] if offered else []),
        field("Priority", f"{workload.priority} {workload.priority_class}".strip()),
        field("Evictions", workload.evictions),
        *_pod_sets(workload.pod_sets),
    ]
    if workload.admission is not None:
        lines += [BLANK, heading("Admission")]
        for assignment in workload.admission.pod_sets:
            flavors = ", ".join(f"{resource} from {flavor}" for resource, flavor in assignment.flavors.items())
            lines.append(line(f"  {assignment.name} ×{assignment.count}: {_amounts(assignment.usage)}; {flavors}"))
            lines += [
                line(f"    {domain.count} in {' / '.join(domain.values)}")
                for domain in assignment.topology[:MOST_DOMAINS]
            ]
            if len(assignment.topology) > MOST_DOMAINS:
                lines.append(line(f"    and {len(assignment.topology) - MOST_DOMAINS} domains more"))
    if workload.checks:
        lines += [BLANK, heading("Admission checks")]
        for check in workload.checks:
            since = "" if check.since is None else format_span(max(0, snapshot.time - check.since))
            lines.append(line(f"  {check.name:<16} {check.state:<8} ", (f"{since:>8}", "dim")))
            if check.message:
                lines.append(line(f"    {check.message}"))
    lines += [BLANK, heading("Conditions")]
    for condition in workload.conditions:
        since = format_span(max(0, snapshot.time - condition.since))
        status = "True " if condition.status else "False"
        lines.append(line(f"  {condition.type:<16} {status} ", (f"{since:>8}  ", "dim"), condition.reason))
        if condition.message:
            lines.append(line(f"    {condition.message}"))
    return lines


def _pod_sets(pod_sets: Iterable[PodSet]) -> list[Painted]:
    lines = [BLANK, heading("Pod sets")]
    for pod_set in pod_sets:
        least = f" (at least {pod_set.min_count})" if pod_set.min_count is not None else ""
        lines.append(line(f"  {pod_set.name} ×{pod_set.count}{least}: each {_amounts(pod_set.template.requests)}"))
        lines += [line(f"    tolerates {_toleration(toleration)}") for toleration in pod_set.template.tolerations]
        lines += [line(f"    needs {key}={value}") for key, value in pod_set.template.node_selector.items()]
    return lines


def _toleration(toleration: Toleration) -> str:
    key = toleration.key or "every taint"
    value = f"={toleration.value}" if toleration.operator == "Equal" and toleration.value else ""
    return f"{key}{value}:{toleration.effect or 'any effect'}"


def _job(snapshot: Snapshot, job: Job) -> list[Painted]:
    spans = (("Duration", job.duration), ("Checkpoint every", job.checkpoint_interval), ("Safe work", job.done))
    pods = [pod for pod in snapshot.pods.all() if pod.job == job.key]
    return [
        field("Phase", job.phase),
        field("Suspended", "yes" if job.suspended else "no"),
        field("Queue", job.queue or "none: Kueue does not manage it"),
        *(field(name, format_span(span)) for name, span in spans if span),
        field("Failures", f"{job.failures} of {job.backoff_limit}"),
        *_pod_sets(job.pod_sets),
        *_pods(pods),
    ]


def _pods(pods: Iterable[Pod]) -> list[Painted]:
    lines = [BLANK, heading("Pods")]
    for pod in pods:
        indices = " GPU " + ",".join(map(str, pod.gpus)) if pod.gpus else ""
        lines.append(line(f"  {pod.name}  {pod.phase}  {pod.node or '–'}{indices}"))
    return lines if len(lines) > 2 else []


def _pod(pod: Pod) -> list[Painted]:
    moments = (("Bound", pod.bound), ("Started", pod.started), ("Finished", pod.finished), ("Deleted", pod.deleted))
    return [
        field("Phase", pod.phase),
        field("Reason", f"{pod.reason} {pod.message}".strip() or "–"),
        field("Node", pod.node or "none yet"),
        field("GPUs", ", ".join(map(str, pod.gpus)) or "none"),
        field("Priority", pod.priority),
        field("Workload", pod.workload or "none"),
        field("Job", pod.job or "none"),
        *(field(name, format_time(moment)) for name, moment in moments if moment),
        field("Requests", _amounts(pod.template.requests)),
    ]


def _node(snapshot: Snapshot, node: Node) -> list[Painted]:
    pods = [pod for pod in snapshot.pods.all() if pod.node == node.name and not pod.done]
    return [
        field("Ready", "yes" if node.ready else "no"),
        field("Cordoned", "yes" if node.unschedulable else "no"),
        *([field("Note", "synthesised: the input named no node")] if node.synthesised else []),
        *_taints(node.taints),
        field("Capacity", _amounts(node.capacity)),
        field("Allocatable", _amounts(node.allocatable)),
        *_pods(pods),
    ]


def _taints(taints: Iterable[Any]) -> list[Painted]:
    return [field("Taint", f"{taint.key}={taint.value}:{taint.effect}") for taint in taints]


def _active(snapshot: Snapshot, queue: ClusterQueue) -> list[Painted]:
    ready = readiness(queue, snapshot)
    return [field("Active", f"{ready.active} · {ready.reason} · {ready.message}")]


def _users(snapshot: Snapshot, thing: object) -> list[Painted]:
    """The ClusterQueues that stop admitting if this goes."""
    queues = list(snapshot.cluster_queues.all())
    match thing:
        case ResourceFlavor():
            names = using_flavor(queues, thing.name)
        case AdmissionCheck():
            names = using_check(queues, thing.name)
        case Topology():
            names = using_topology(queues, snapshot.flavors.all(), thing.name)
        case _:
            return []
    return [field("Used by", ", ".join(sorted(names)) or "no ClusterQueue")]


def _quota_owner(owner: ClusterQueue | Cohort) -> list[Painted]:
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
            lines.append(field("Namespaces", "none: it has no namespaceSelector, so it admits nobody"))
    else:
        lines.append(field("Parent", owner.parent or "none"))
    lines += [BLANK, heading("Quotas")]
    return [*lines, *(_quota(flavor, resource, quota) for (flavor, resource), quota in owner.quotas().items())]


def _quota(flavor: str, resource: str, quota: Quota) -> Painted:
    limits = (("borrows up to", quota.borrowing_limit), ("lends up to", quota.lending_limit))
    extra = "".join(f", {name} {format_quantity(resource, limit)}" for name, limit in limits if limit is not None)
    return line(f"  {flavor:<18} {resource:<16} {format_quantity(resource, quota.nominal)}{extra}")


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
    (KaiQueue, ("parent", "priority", "gpu", "cpu", "memory")),
    (KaiPodGroup, ("queue", "min_member", "priority_class", "preemptibility")),
    (PodGroup, ("min_member", "queue")),
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


def _used_lately(queue: LocalQueue) -> list[Painted]:
    """What a LocalQueue used lately, where it takes turns with others by it."""
    if queue.usage is None:
        return []
    amounts = (_lately(name, queue.consumed[name] / BILLIONTH) for name in short(queue.consumed))
    return [
        field("Usage", f"{queue.usage:.3g}: that of least usage comes first"),
        field("Used lately", ", ".join(amounts) or "nothing"),
    ]


def _lately(resource: str, amount: float) -> str:
    return f"{resource} {amount / 2**30:.2f}Gi" if is_binary(resource) else f"{resource} {amount:.2f}"


def _plain(thing: object) -> list[Painted]:
    names = next(names for kind, names in _SHOWN if isinstance(thing, kind))
    return [field(name.replace("_", " ").capitalize(), getattr(thing, name)) for name in names]
