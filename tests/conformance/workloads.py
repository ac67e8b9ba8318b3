"""workload, util_priority, scheduler ordering: what is read from one workload, and what its conditions become."""

from collections.abc import Iterator
from typing import Any

from gpuconsole.model.clock import SECOND
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.requests import (
    Request,
    admitted_requests,
    effective_priority,
    queue_timestamp,
)
from gpuconsole.scheduling.kueue.topology.demand import is_explicit
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
    yield from compare("ClusterQueue", workload.cluster_queue, case.want["wantInfo"].get("ClusterQueue", ""))


def _requests(workload: Workload, config: KueueConfig) -> dict[str, tuple[int, dict[str, int], dict[str, str]]]:
    if workload.admission is None:
        pod_sets = Request(workload, 0, "", config).pod_sets
        return {needs.pod_set.name: (needs.count, dict(needs.total), {}) for needs in pod_sets}
    return {
        assignment.name: (count, dict(usage), dict(assignment.flavors))
        for assignment, count, usage in admitted_requests(workload, config)
    }


def _named(document: Document) -> Workload:
    metadata = {"name": "any", **(document.get("metadata") or {})}
    return world.decode_workload({**document, "metadata": metadata})


def check_topology_request(table: Table, case: Case) -> Iterator[str]:
    """TestIsExplicitlyRequestingTAS: does any pod set ask for a place?"""
    listed = [{"name": f"p{n}", **pods} for n, pods in enumerate(case.input["podSets"])]
    workload = _named({"spec": {"podSets": listed}})
    yield from compare("want", any(map(is_explicit, workload.pod_sets)), case.want["want"])


def check_shape(table: Table, case: Case) -> Iterator[str]:
    """TestSchedulingHash: can the scheduler tell two workloads apart?"""
    config = KueueConfig(gates=case.gates)
    first, second = (Request(_named(case.input[name]), 0, "", config) for name in ("wl1", "wl2"))
    yield from compare("wantSame", first.shape == second.shape, case.want["wantSame"])


def check_hold(table: Table, case: Case) -> Iterator[str]:
    """TestIsOnHold: is the workload kept out of the queues?"""
    yield from compare("want", conditions.on_hold(_named(case.input["wl"])), case.want["want"])


def check_reservation(table: Table, case: Case) -> Iterator[str]:
    """TestSetQuotaReservation: the whole workload after it was given its quota."""
    given = case.input["args"]
    want = _named(case.want["want"])
    reserved = want.condition("QuotaReserved")
    now = reserved.since if reserved is not None else 0
    before = _named(given["workload"])
    got = conditions.reserve(before, world.admission(given["admission"]), _clock(before, want, now))
    yield from compare("want", world.comparable(got), world.comparable(want))


def _clock(before: Workload, want: Workload, otherwise: int) -> int:
    """The moment of the call: the latest transition that was not there before."""
    known = {condition.since for condition in before.conditions}
    return max((c.since for c in want.conditions if c.since not in known), default=otherwise)


def check_admitted(table: Table, case: Case) -> Iterator[str]:
    """TestSyncAdmittedCondition: Admitted follows from the reservation and the checks."""
    given = case.input
    if case.gates.get("UnadmittedWorkloadsObservability"):
        raise NotModelled("gate UnadmittedWorkloadsObservability")
    status: dict[str, Any] = {
        "conditions": list(given.get("conditions") or ()),
        "admissionChecks": given.get("checkStates") or [],
        "accumulatedPastExecutionTimeSeconds": given.get("pastAdmittedTime") or 0,
        **({"admission": given["admission"]} if given.get("admission") else {}),
    }
    before = _named({"status": status})
    after = conditions.admit(before, world.clock(table.fixtures["testTime"]))
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
    "workload/TestSyncAdmittedCondition": lambda table, case: list(check_admitted(table, case)),
    "util_priority/TestEffectivePriority": lambda table, case: list(check_priority(table, case)),
}
