"""workload, workload_evict, workload_finish, workload_patching, util_wait: what happens to a workload in its life."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.clock import Time, parse_span
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import CheckState, Condition, PodSetNeeds, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.admission_checks import skips_nomination
from gpuconsole.scheduling.kueue.conditions import (
    AdmissionStatus,
    backoff,
    required_checks,
    retry_at,
    set_requeue_time,
    with_check,
)
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import priority_changed
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, NotModelled, Table, compare

_GO_ZERO = "0001-01-01T00:00:00Z"


def _workload(document: Document) -> Workload:
    metadata = {"name": "any", **(document.get("metadata") or {})}
    return world.decode_workload({**document, "metadata": metadata})


def _of_status(status: Document) -> Workload:
    return _workload({"status": status})


def _refuse_errors(case: Case) -> None:
    """Writes do not fail here."""
    if case.want.get("err") or case.want.get("wantErr"):
        raise NotModelled("an API server that refuses a write")


def check_selection(table: Table, case: Case) -> Iterator[str]:
    """TestAdmissionChecksForWorkload, TestFilterChecksForAdmission: which checks a workload has to pass."""
    queue = world.decode(case.input.get("cq") or table.shared["cq"])
    assert isinstance(queue, ClusterQueue)
    got = required_checks(_workload(case.input["wl"]), queue)
    yield from compare("wantAdmissionChecks", got, sorted(case.want.get("wantAdmissionChecks") or ()))


def check_retry_time(table: Table, case: Case) -> Iterator[str]:
    """TestGetMaxRetryTime: when the checks let a workload be tried again."""
    got = retry_at(_of_status({"admissionChecks": case.input.get("checkStates") or []}))
    wanted = case.want.get("wantRetryTime")
    yield from compare("wantRetryTime", got, world.clock(wanted) if wanted and wanted != _GO_ZERO else None)


def check_state(table: Table, case: Case) -> Iterator[str]:
    """TestSetCheckState: what a check's controller says joins what is known of the checks."""
    now = world.clock(table.fixtures["fakeClock"])
    checks = _checks(case.input.get("origStates"))
    got = with_check(checks, _checks([case.input["state"]])[0], now)
    yield from compare("wantStates", got, _checks(case.want.get("wantStates"), now))


def _checks(documents: Any, absent: Time | None = None) -> tuple[CheckState, ...]:
    """States of checks; a time that is not written is the moment of the change."""
    found = _of_status({"admissionChecks": documents or []}).checks
    return tuple(_at(check, absent) for check in found)


def _at(check: CheckState, moment: Time | None) -> CheckState:
    return replace(check, since=moment) if check.since is None else check


def check_requeue_state(table: Table, case: Case) -> Iterator[str]:
    """TestSetRequeueState: a requeue time only moves forward; retries are counted."""
    given = case.input
    before = _workload(given["workload"])
    after = set_requeue_time(before, world.clock(given["waitUntil"]), count=given["incrementCount"])
    at, count = case.want.get("wantRequeueAt"), case.want.get("wantCount")
    yield from compare("wantUpdated", after is not before, case.want["wantUpdated"])
    yield from compare("wantRequeueAt", after.requeue.at, world.clock(at) if at else None)
    yield from compare("wantCount", after.requeue.count, count or 0)


def check_standing(table: Table, case: Case) -> Iterator[str]:
    """TestFromQuotaReservedOrAdmittedToPending: is this a loss of quota?"""
    got = conditions.lost_quota(AdmissionStatus(case.input["prev"]), AdmissionStatus(case.input["new"]))
    yield from compare("want", got, case.want["want"])


def check_latency(table: Table, case: Case) -> Iterator[str]:
    """TestEvictionPendingLatency: how long an eviction took until the quota was free."""
    if not case.input.get("oldWl") or not case.input.get("newWl"):
        raise NotModelled("a change from or to no workload")
    before, after = _workload(case.input["oldWl"]), _workload(case.input["newWl"])
    got = conditions.eviction_latency(before, after, world.clock(case.input["now"]))
    want = case.want
    wanted = (want["wantCQ"], want["wantReason"], parse_span(want["wantLatency"])) if want["wantOK"] else None
    yield from compare("want", got, wanted)


def check_condition(table: Table, case: Case) -> Iterator[str]:
    """TestSetConditionAndUpdate: one condition is set or replaced."""
    _refuse_errors(case)
    given = case.input
    condition = Condition(
        given["condType"],
        given["condStatus"] == "True",
        given["reason"],
        given["message"],
        world.clock(table.fixtures["now"]),
    )
    got = _of_status(given.get("oldStatus") or {}).with_condition(condition)
    yield from compare("wantStatus", _untimed(got), _untimed(_of_status(case.want["wantStatus"])))


def _untimed(workload: Workload) -> Workload:
    return replace(workload, created=0, conditions=tuple(replace(c, since=0) for c in workload.conditions))


def check_propagation(table: Table, case: Case) -> Iterator[str]:
    """TestPropagateResourceRequests: is what was looked for noted already?"""
    before = _workload(case.input["wl"])
    listed = (case.input.get("info") or {}).get("TotalRequests") or ()
    needs = tuple(PodSetNeeds(entry.get("Name", ""), entry.get("Requests") or {}) for entry in listed)
    after = conditions.with_resource_requests(before, needs)
    yield from compare("want", after is not before, case.want["want"])
    yield from compare("noted", after.resource_requests, needs)


def check_class(table: Table, case: Case) -> Iterator[str]:
    """TestWorkloadPriorityClassChanged: did the priority change?"""
    old, new = _workload(case.input["oldWorkload"]), _workload(case.input["newWorkload"])
    got = priority_changed(old, new, KueueConfig(gates=case.gates))
    yield from compare("wantChanged", got, case.want["wantChanged"])


def check_nomination(table: Table, case: Case) -> Iterator[str]:
    """TestShouldSkipClusterNomination: is there anything to offer to worker clusters?"""
    given = case.input
    check = _checks([{"name": "any", **given["acs"]}])[0] if given.get("acs") else None
    got = skips_nomination(_workload(given["wl"]), check, elastic=given["isElastic"])
    yield from compare("want", got, case.want["want"])


def check_deactivated(table: Table, case: Case) -> Iterator[str]:
    """TestIsEvictedByDeactivation: is the workload evicted because it was deactivated?"""
    yield from compare("want", conditions.is_deactivated(_workload(case.input["workload"])), case.want["want"])


def check_timeout(table: Table, case: Case) -> Iterator[str]:
    """TestIsEvictedByPodsReadyTimeout: is it evicted because its pods were not ready in time?"""
    got = conditions.eviction_condition(_workload(case.input["workload"]), conditions.PODS_READY_TIMEOUT)
    yield from compare("wantEvictedByTimeout", got is not None, case.want["wantEvictedByTimeout"])
    wanted = case.want.get("wantCondition")
    if wanted:
        yield from compare("wantCondition", got, world.conditions([wanted])[0])


def check_finish(table: Table, case: Case) -> Iterator[str]:
    """TestFinish: the first finish stands."""
    wanted = case.want["want"]
    if wanted.get("err"):
        raise NotModelled("an API server that refuses a write")
    given = case.input["args"]
    now = world.clock(table.shared["fakeClock"])
    got = conditions.mark_finished(_workload(given["wl"]), given["reason"], given["message"], now)
    yield from compare("want", world.comparable(got), world.comparable(_workload(wanted["wl"])))


def check_backoff(table: Table, case: Case) -> Iterator[str]:
    """TestBackoff_WaitTime, TestBackoff_WaitTime_Consecutive: how long to wait after an attempt."""
    given = case.input
    settings = given["backoff"]["backoff"]
    attempts = given["iterations"] if "iterations" in given else [given["iteration"]]
    spans = [
        backoff(parse_span(settings["Duration"]), parse_span(settings["Cap"]), attempt, settings["Factor"])
        for attempt in attempts
    ]
    wanted = case.want["want"]
    yield from compare("want", spans, [parse_span(span) for span in (wanted if isinstance(wanted, list) else [wanted])])


CHECKS: dict[str, Check] = {
    "workload/TestAdmissionChecksForWorkload": lambda table, case: list(check_selection(table, case)),
    "workload/TestFilterChecksForAdmission": lambda table, case: list(check_selection(table, case)),
    "workload/TestGetMaxRetryTime": lambda table, case: list(check_retry_time(table, case)),
    "workload/TestSetRequeueState": lambda table, case: list(check_requeue_state(table, case)),
    "workload/TestFromQuotaReservedOrAdmittedToPending": lambda table, case: list(check_standing(table, case)),
    "workload/TestEvictionPendingLatency": lambda table, case: list(check_latency(table, case)),
    "workload/TestSetConditionAndUpdate": lambda table, case: list(check_condition(table, case)),
    "workload/TestPropagateResourceRequests": lambda table, case: list(check_propagation(table, case)),
    "workload/TestWorkloadPriorityClassChanged": lambda table, case: list(check_class(table, case)),
    "workload/TestShouldSkipClusterNomination": lambda table, case: list(check_nomination(table, case)),
    "workload_evict/TestIsEvictedByDeactivation": lambda table, case: list(check_deactivated(table, case)),
    "workload_evict/TestIsEvictedByPodsReadyTimeout": lambda table, case: list(check_timeout(table, case)),
    "workload_finish/TestFinish": lambda table, case: list(check_finish(table, case)),
    "workload_patching/TestSetCheckState": lambda table, case: list(check_state(table, case)),
    "util_wait/TestBackoff_WaitTime": lambda table, case: list(check_backoff(table, case)),
    "util_wait/TestBackoff_WaitTime_Consecutive": lambda table, case: list(check_backoff(table, case)),
}
