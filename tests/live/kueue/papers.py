"""What Kueue writes: statuses of Workloads and queues, events, and the Workload of a Job, as documents of v1beta2."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from gpuconsole.model.clock import SECOND, Time, format_time
from gpuconsole.model.events import KueueEvent
from gpuconsole.model.jobs import workload_name
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.resources import Resources, format_quantity
from gpuconsole.model.workloads import Condition, PodSetAssignment, Workload, encode
from gpuconsole.scheduling.kueue.cluster_queue_status import ActiveCondition
from tests.live.api import Manifest
from tests.live.stock import KUEUE

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"


def workload_of(job: Manifest, priority: int) -> Manifest:
    """The Workload that Kueue makes of a Job."""
    metadata, spec = job["metadata"], job["spec"]
    labels, uid = metadata.get("labels", {}), metadata["uid"]
    template = {"metadata": spec["template"].get("metadata", {}), "spec": spec["template"]["spec"]}
    pod_set = {"name": "main", "count": spec.get("parallelism", 1), "template": template}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": uid}
    given = {"priorityClassRef": workload_class(labels[PRIORITY])} if labels.get(PRIORITY) else {}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {
            "name": workload_name("Job", metadata["name"], uid),
            "namespace": metadata["namespace"],
            "labels": {"kueue.x-k8s.io/job-uid": uid},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {"active": True, "queueName": labels[QUEUE], "priority": priority, "podSets": [pod_set], **given},
    }


def workload_class(name: str) -> Manifest:
    """A reference to a WorkloadPriorityClass."""
    return {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}


def workload_status(workload: Workload) -> Manifest:
    """Its whole status as a merge patch: what it does not have is taken away."""
    admission = workload.admission
    return {
        "conditions": [_condition(one) for one in workload.conditions],
        "admission": None
        if admission is None
        else {
            "clusterQueue": admission.cluster_queue,
            "podSetAssignments": [_assignment(one) for one in admission.pod_sets],
        },
        "requeueState": _requeue_state(workload),
        "accumulatedPastExecutionTimeSeconds": workload.past_execution // SECOND or None,
        "resourceRequests": [
            {"name": one.name, "resources": _amounts(one.resources)} for one in workload.resource_requests
        ]
        or None,
        "schedulingStats": {
            "evictions": [
                {"reason": one.reason, "underlyingCause": one.underlying_cause, "count": one.count}
                for one in workload.scheduling_stats.evictions
            ]
        }
        if workload.scheduling_stats.evictions
        else None,
    }


def cluster_queue_status(
    queue: ClusterQueue, holding: Iterable[Workload], pending: int, readiness: ActiveCondition, since: Time
) -> Manifest:
    """What a ClusterQueue says of its workloads."""
    reserved = list(holding)
    admitted = [workload for workload in reserved if workload.admitted]
    return {
        "pendingWorkloads": pending,
        "reservingWorkloads": len(reserved),
        "admittedWorkloads": len(admitted),
        "flavorsReservation": _usage(queue, reserved),
        "flavorsUsage": _usage(queue, admitted),
        "conditions": [_condition(Condition("Active", readiness.active, readiness.reason, readiness.message, since))],
    }


def local_queue_status(
    queue: ClusterQueue | None, holding: Iterable[Workload], pending: int, readiness: ActiveCondition, since: Time
) -> Manifest:
    """What a LocalQueue says of its workloads."""
    reserved = list(holding)
    admitted = [workload for workload in reserved if workload.admitted]
    active = Condition("Active", True, "Ready", "Can submit new workloads to localQueue", since)
    if not readiness.active:
        told = "Can't submit new workloads to clusterQueue"
        active = Condition("Active", False, "ClusterQueueIsInactive", told, since)
    status: Manifest = {
        "pendingWorkloads": pending,
        "reservingWorkloads": len(reserved),
        "admittedWorkloads": len(admitted),
        "conditions": [_condition(active)],
    }
    if queue is not None:
        status["flavorsReservation"] = _usage(queue, reserved, borrowed=False)
        status["flavorsUsage"] = _usage(queue, admitted, borrowed=False)
    return status


def event(about: Manifest, said: KueueEvent, number: int, now: Time) -> Manifest:
    """An event as Kueue's recorder writes it."""
    metadata = about["metadata"]
    when = format_time(now // SECOND * SECOND)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name'][:200]}.{number:x}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "reason": said.reason,
        "message": said.message[:1024],
        "type": "Warning" if said.warning else "Normal",
        "source": {"component": "kueue-admission"},
        "reportingComponent": "kueue-admission",
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }


def _condition(condition: Condition) -> Manifest:
    return {
        "type": condition.type,
        "status": "True" if condition.status else "False",
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": format_time(condition.since // SECOND * SECOND),
        "observedGeneration": 1,
    }


def _assignment(assignment: PodSetAssignment) -> Manifest:
    paper: Manifest = {
        "name": assignment.name,
        "count": assignment.count,
        "flavors": dict(assignment.flavors),
        "resourceUsage": _amounts(assignment.usage),
    }
    if assignment.topology:
        paper["topologyAssignment"] = encode(assignment.levels, assignment.topology)
    return paper


def _requeue_state(workload: Workload) -> Manifest | None:
    state = workload.requeue
    if not state.count and state.at is None:
        return None
    return {"count": state.count, "requeueAt": None if state.at is None else format_time(state.at)}


def _amounts(resources: Resources) -> dict[str, str]:
    return {name: format_quantity(name, amount) for name, amount in resources.items()}


def _usage(queue: ClusterQueue, holding: list[Workload], *, borrowed: bool = True) -> list[dict[str, Any]]:
    used: Counter[tuple[str, str]] = Counter()
    for workload in holding:
        for part in workload.admission.pod_sets if workload.admission is not None else ():
            for resource, amount in part.usage.items():
                if resource in part.flavors:
                    used[part.flavors[resource], resource] += amount
    flavors: dict[str, list[Manifest]] = {}
    for (flavor, resource), quota in queue.quotas().items():
        amount = used[flavor, resource]
        line = {"name": resource, "total": format_quantity(resource, amount)}
        if borrowed:
            line["borrowed"] = format_quantity(resource, max(0, amount - quota.nominal))
        flavors.setdefault(flavor, []).append(line)
    return [{"name": flavor, "resources": lines} for flavor, lines in flavors.items()]
