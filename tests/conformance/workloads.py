"""workload, util_priority, scheduler ordering: what is read from one workload, and what its conditions become."""

from collections.abc import Iterator
from typing import Any

from gpuconsole.model.clock import SECOND
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import ClusterQueue, LocalQueue, ResourceFlavor, Topology
from gpuconsole.model.workloads import Admission, PodSetAssignment, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.assignment import Assignment, FlavorAssignment, FlavorAssignmentMode, PodSetResult
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import (
    Holding,
    TopologyUsage,
    WorkloadRequest,
    admitted_requests,
    admitted_usage,
    effective_priority,
    queue_timestamp,
)
from gpuconsole.scheduling.kueue.podset import (
    capped_reclaimable_pods,
    counts_of,
    is_fewer,
    with_counts,
    with_reclaimable_pods,
)
from gpuconsole.scheduling.kueue.topology.demand import is_explicit
from gpuconsole.scheduling.kueue.workloads import is_same_for_scheduling
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, NotModelled, Table, compare


def check_timestamp(table: Table, case: Case) -> Iterator[str]:
    """TestGetQueueOrderTimestamp: when a workload counts as queued, by the configured ordering."""
    workload = world.decode_workload(case.input["wl"])
    for entry in case.want["want"]:
        config = world.ordered_by(entry["key"]["PodsReadyRequeuingTimestamp"], case.gates)
        yield from compare(str(entry["key"]), queue_timestamp(workload, config), world.clock(entry["value"]))


def check_priority(table: Table, case: Case) -> Iterator[str]:
    """TestEffectivePriority: priority and boost."""
    got = effective_priority(world.decode_workload(case.input["workload"]), KueueConfig(gates=case.gates))
    yield from compare("wantPriority", got, case.want["wantPriority"])


def check_info(table: Table, case: Case) -> Iterator[str]:
    """TestNewInfo: counts, requests and flavors of every pod set."""
    if case.input.get("infoOptions"):
        raise NotModelled("resource transformations and excluded prefixes as options")
    workload = _named(case.input["workload"])
    config = KueueConfig(gates=case.gates)
    wanted = {
        entry["Name"]: (entry.get("Count", 0), entry.get("Requests") or {}, entry.get("Flavors") or {})
        for entry in case.want["wantInfo"].get("TotalRequests") or ()
    }
    yield from compare("TotalRequests", _requests(workload, config), wanted)
    for entry in case.want["wantInfo"].get("TotalRequests") or ():
        if entry.get("TopologyRequest"):
            yield from _compare_places(workload, config, entry)
    yield from compare("ClusterQueue", workload.cluster_queue, case.want["wantInfo"].get("ClusterQueue", ""))


def _compare_places(workload: Workload, config: KueueConfig, entry: Document) -> Iterator[str]:
    """What a pod set with places uses in every domain, for each of its flavors."""
    request = entry["TopologyRequest"]
    given = next(a for a in workload.admission.pod_sets if a.name == entry["Name"]) if workload.admission else None
    assert given is not None
    yield from compare("Levels", list(given.levels), request["Levels"])
    flavors = sorted(set(given.flavors.values()))
    session = world.session(
        config,
        [
            *(ResourceFlavor(name=name, topology="t") for name in flavors),
            Topology(name="t", levels=given.levels),
            ClusterQueue(name=workload.cluster_queue),
            workload,
        ],
        0,
    )
    holding = session._apply_noted_changes.workload_index.get(workload.key)
    assert isinstance(holding, Holding)
    wanted = [
        TopologyUsage(flavor, tuple(domain["Values"]), domain["Count"], domain["SinglePodRequests"])
        for flavor in flavors
        for domain in request["DomainRequests"]
    ]
    yield from compare("DomainRequests", sorted(holding.topology_usage, key=lambda place: place.flavor), wanted)


def _requests(workload: Workload, config: KueueConfig) -> dict[str, tuple[int, dict[str, int], dict[str, str]]]:
    if workload.admission is None:
        pod_sets = WorkloadRequest(workload, 0, "", config).pod_sets
        return {needs.pod_set.name: (needs.count, dict(needs.total), {}) for needs in pod_sets}
    return {
        assignment.name: (count, dict(usage), dict(assignment.flavors))
        for assignment, count, usage in admitted_requests(workload, config)
    }


def _named(document: Document) -> Workload:
    metadata = {"name": "any", **(document.get("metadata") or {})}
    return world.decode_workload({**document, "metadata": metadata})


def check_rebuild(table: Table, case: Case) -> Iterator[str]:
    """TestUpdateWithRebuild: a change of the workload changes what it asks for, or what it uses."""
    first, second = _named(case.input["initial"]), _named(case.input["updated"])
    config = KueueConfig(gates=case.gates)
    session = world.session(
        config,
        [
            ClusterQueue(name="cq"),
            LocalQueue(namespace=first.namespace, name=first.queue, cluster_queue="cq"),
            first,
        ],
        0,
    )
    session.apply(second, 0)
    record = session._apply_noted_changes.workload_index.get(second.key)
    assert isinstance(record, WorkloadRequest | Holding)
    wanted = {
        entry["Name"]: (entry.get("Count", 0), entry.get("Requests") or {}, entry.get("Flavors") or {})
        for entry in case.want["wantRequests"]
    }
    yield from compare("wantRequests", _requests(record.workload, config), wanted)


def check_usage(table: Table, case: Case) -> Iterator[str]:
    """TestFlavorResourceUsage: what pod sets use, summed by flavor and resource."""
    listed = (case.input.get("info") or {}).get("TotalRequests") or ()
    assignments = tuple(
        PodSetAssignment(name=f"p{n}", flavors=entry.get("Flavors") or {}, usage=entry.get("Requests") or {})
        for n, entry in enumerate(listed)
    )
    workload = Workload(name="w", admission=Admission(cluster_queue="cq", pod_sets=assignments))
    total: dict[str, int] = {}
    for flavor, resource, amount in admitted_usage(workload, KueueConfig(gates=case.gates)):
        total[f"{flavor}/{resource}"] = total.get(f"{flavor}/{resource}", 0) + amount
    yield from compare("want", total, case.want["want"])


def check_pending_flavors(table: Table, case: Case) -> Iterator[str]:
    """TestAssignmentClusterQueueState: are there flavors left to try?"""
    assignment = Assignment()
    for tried in case.input["state"].get("LastTriedFlavorIdx") or ():
        result = PodSetResult(PodSet(), 1, {})
        for resource, index in tried.items():
            result.choices[resource] = FlavorAssignment("", 0, FlavorAssignmentMode.FIT, 0)
            result.choices[resource].tried = index
        assignment.append(result)
    yield from compare("wantPendingFlavors", assignment.resume_position is not None, case.want["wantPendingFlavors"])


def check_counts(table: Table, case: Case) -> Iterator[str]:
    """TestExtractPodSetCounts, TestExtractPodSetCountsFromWorkload: how many pods each pod set has."""
    given = case.input.get("args") or {}
    pod_sets = given.get("podSets") or ((given.get("workload") or {}).get("spec") or {}).get("podSets") or []
    got = counts_of(_named({"spec": {"podSets": pod_sets}}).pod_sets)
    yield from compare("want", got, case.want.get("want") or {})


def check_new_counts(table: Table, case: Case) -> Iterator[str]:
    """TestApplyPodSetCounts: pod sets that are named get another number of pods."""
    got = with_counts(_named(case.input["args"]["wl"]), case.input["args"].get("counts") or {})
    yield from compare("want", got, _named(case.want["want"]))


def check_fewer(table: Table, case: Case) -> Iterator[str]:
    """TestPodSetsCounts_HasFewerReplicasThan: does some pod set have fewer pods?"""
    yield from compare("want", is_fewer(case.input["c"], case.input["args"].get("in") or {}), case.want["want"])


def check_reclaimed(table: Table, case: Case) -> Iterator[str]:
    """TestLimitReclaimablePodsToPodSetSizes: no more pods are given back than there are."""
    document = table.fixtures["wl"]
    got = capped_reclaimable_pods(_named(document), _reported(case.input.get("reclaimablePods")))
    yield from compare("want", got, _reported(case.want.get("want")))


def check_reclaiming(table: Table, case: Case) -> Iterator[str]:
    """TestUpdateReclaimablePods: what is reported as done replaces what was."""
    if case.want.get("wantErr"):
        raise NotModelled("an API server that refuses a write")
    before = _named({**table.shared["workload"], "status": case.input.get("oldStatus") or {}})
    wanted = _named({**table.shared["workload"], "status": case.want["wantStatus"]})
    yield from compare("wantStatus", with_reclaimable_pods(before, _reported(case.input["reclaimablePods"])), wanted)


def _reported(documents: Any) -> dict[str, int]:
    return dict(_named({"status": {"reclaimablePods": documents or []}}).reclaimable)


def check_same_reclaimed(table: Table, case: Case) -> Iterator[str]:
    """TestReclaimablePodsAreEqual: a waiting workload is looked at anew if other pods are given back."""
    first, second = (_named({"status": {"reclaimablePods": case.input.get(name) or []}}) for name in ("a", "b"))
    yield from compare("wantResult", is_same_for_scheduling(first, second), case.want["wantResult"])


def check_topology_request(table: Table, case: Case) -> Iterator[str]:
    """TestIsExplicitlyRequestingTAS: does any pod set ask for a place?"""
    listed = [{"name": f"p{n}", **pods} for n, pods in enumerate(case.input["podSets"])]
    workload = _named({"spec": {"podSets": listed}})
    yield from compare("want", any(map(is_explicit, workload.pod_sets)), case.want["want"])


def check_shape(table: Table, case: Case) -> Iterator[str]:
    """TestSchedulingHash: can the scheduler tell two workloads apart?"""
    config = KueueConfig(gates=case.gates)
    first, second = (WorkloadRequest(_named(case.input[name]), 0, "", config) for name in ("wl1", "wl2"))
    yield from compare("wantSame", first.scheduling_hash == second.scheduling_hash, case.want["wantSame"])


def check_hold(table: Table, case: Case) -> Iterator[str]:
    """TestIsOnHold: is the workload kept out of the queues?"""
    yield from compare("want", conditions.is_on_hold(_named(case.input["wl"])), case.want["want"])


def check_reservation(table: Table, case: Case) -> Iterator[str]:
    """TestSetQuotaReservation: the whole workload after it was given its quota."""
    given = case.input["args"]
    want = _named(case.want["want"])
    reserved = want.condition("QuotaReserved")
    now = reserved.since if reserved is not None else 0
    before = _named(given["workload"])
    got = conditions.reserve_quota(before, world.admission(given["admission"]), _clock(before, want, now))
    yield from compare("want", world.comparable(got), world.comparable(want))


def _clock(before: Workload, want: Workload, otherwise: int) -> int:
    """The moment of the call: the latest transition that was not there before."""
    known = {condition.since for condition in before.conditions}
    return max((c.since for c in want.conditions if c.since not in known), default=otherwise)


def check_admitted(table: Table, case: Case) -> Iterator[str]:
    """TestSyncAdmittedCondition: Admitted follows from the reservation and the checks."""
    given = case.input
    status: dict[str, Any] = {
        "conditions": list(given.get("conditions") or ()),
        "admissionChecks": given.get("checkStates") or [],
        "accumulatedPastExecutionTimeSeconds": given.get("pastAdmittedTime") or 0,
        **({"admission": given["admission"]} if given.get("admission") else {}),
    }
    before = _named({"status": status})
    granular = KueueConfig(gates=case.gates).has_granular_reasons
    after = conditions.sync_admitted(before, world.clock(table.fixtures["testTime"]), granular=granular)
    yield from compare("wantChange", after is not before, case.want["wantChange"])
    if case.want.get("wantAdmittedTime"):
        yield from compare("wantAdmittedTime", after.past_execution // SECOND, case.want["wantAdmittedTime"])
    wanted = world.conditions(case.want.get("wantConditions") or [])
    got = [(condition.type, condition.status, condition.reason) for condition in after.conditions]
    yield from compare("wantConditions", got, [(c.type, c.status, c.reason) for c in wanted])


CHECKS: dict[str, Check] = {
    "workload/TestGetQueueOrderTimestamp": lambda table, case: list(check_timestamp(table, case)),
    "workload/TestIsExplicitlyRequestingTAS": lambda table, case: list(check_topology_request(table, case)),
    "workload/TestIsOnHold": lambda table, case: list(check_hold(table, case)),
    "workload/TestNewInfo": lambda table, case: list(check_info(table, case)),
    "workload/TestSchedulingHash": lambda table, case: list(check_shape(table, case)),
    "workload/TestSetQuotaReservation": lambda table, case: list(check_reservation(table, case)),
    "workload/TestApplyPodSetCounts": lambda table, case: list(check_new_counts(table, case)),
    "workload/TestAssignmentClusterQueueState": lambda table, case: list(check_pending_flavors(table, case)),
    "workload/TestExtractPodSetCounts": lambda table, case: list(check_counts(table, case)),
    "workload/TestExtractPodSetCountsFromWorkload": lambda table, case: list(check_counts(table, case)),
    "workload/TestFlavorResourceUsage": lambda table, case: list(check_usage(table, case)),
    "workload/TestLimitReclaimablePodsToPodSetSizes": lambda table, case: list(check_reclaimed(table, case)),
    "workload/TestPodSetsCounts_HasFewerReplicasThan": lambda table, case: list(check_fewer(table, case)),
    "workload/TestReclaimablePodsAreEqual": lambda table, case: list(check_same_reclaimed(table, case)),
    "workload/TestUpdateReclaimablePods": lambda table, case: list(check_reclaiming(table, case)),
    "workload/TestUpdateWithRebuild": lambda table, case: list(check_rebuild(table, case)),
    "workload/TestSyncAdmittedCondition": lambda table, case: list(check_admitted(table, case)),
    "util_priority/TestEffectivePriority": lambda table, case: list(check_priority(table, case)),
}
