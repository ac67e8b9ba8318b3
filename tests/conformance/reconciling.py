"""controller_core: one look of the workload controller at a Workload, and how long pods may take to become ready."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from gpuconsole.model.clock import Span, parse_span
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue.conditions import required_checks, sync_checks
from gpuconsole.scheduling.kueue.config import KueueConfig, WaitForPodsReady
from gpuconsole.scheduling.kueue.workload_controller import ReconcileResult, pods_ready_timeout, reconcile
from tests.conformance import world
from tests.conformance.events import Seen
from tests.conformance.tables import Case, Check, Table, compare

_LEGACY = {"WaitingForPodsReady": "Waiting", "AdmissionGated": "AdmissionGated"}
_INADMISSIBLE = ("Misconfigured", "Suspended", "Inadmissible")


def check_reconcile(table: Table, case: Case) -> Iterator[str]:
    """TestReconcile…: the Workload after one look, what is told, and when to look again. Times are not compared."""
    for variant in case.variants or ({},):
        yield from _look(table, case, {**case.gates, **variant})


def _look(table: Table, case: Case, gates: Mapping[str, bool]) -> Iterator[str]:
    now = world.clock(table.fixtures["fakeClock"])
    config = KueueConfig(wait_for_pods_ready=None, gates=gates)
    before = world.decode_workload(case.input["workload"])
    session = world.session(config, [*_around(case, before), before], now)
    outcome = reconcile(before, session.look_up_queues(before), config, now)
    # The test's API server keeps what an apply leaves out; only the other way of writing shows what is removed.
    wanted = case.want.get("wantWorkloadUseMergePatch") or case.want.get("wantWorkload")
    if wanted is not None:
        want = world.decode_workload(wanted)
        expected = want if config.has_granular_reasons else unobserved(want, before)
        got = outcome.with_deactivation(now)
        yield from compare("wantWorkload", None if got is None else comparable(got), comparable(expected))
    yield from compare("wantEvents", _told(outcome), _expected(case))
    again = (case.want.get("wantResult") or {}).get("RequeueAfter", "0s")
    yield from compare("wantResult", outcome.reconcile_after, parse_span(again))
    if case.want.get("wantWorkloadsInQueue") is not None:
        pending = [waiting for waiting in session.pending_workloads("cq") if waiting.workload.key == before.key]
        yield from compare("wantWorkloadsInQueue", len(pending), case.want["wantWorkloadsInQueue"])


def _around(case: Case, workload: Workload) -> list[Object]:
    given = case.input
    queues = [
        given[name]
        for name, gone in (("cq", "shouldDeleteCQ"), ("lq", "shouldDeleteLQ"))
        if given.get(name) and not given[gone]
    ]
    return [Namespace(name=workload.namespace), *world.decode_all(queues)]


def _told(outcome: ReconcileResult) -> list[Seen]:
    return [
        Seen(event.workload, "Warning" if event.warning else "Normal", event.reason, event.message)
        for event in outcome.events
    ]


def _expected(case: Case) -> list[Seen]:
    return [
        Seen(event["Key"], event["EventType"], event["Reason"], event["Message"])
        for event in case.want.get("wantEvents") or ()
    ]


def comparable(workload: Workload) -> Workload:
    plain = world.comparable(workload)
    return replace(
        plain,
        conditions=tuple(replace(condition, since=0) for condition in plain.conditions),
        requeue=replace(plain.requeue, at=None),
        preemption_gates=tuple(replace(gate, since=None) for gate in plain.preemption_gates),
    )


def unobserved(want: Workload, before: Workload) -> Workload:
    """What the gate UnadmittedWorkloadsObservability, on in the table, leaves when it is off."""
    kept = (_legacy(condition, before.admitted) for condition in want.conditions)
    return replace(want, conditions=tuple(condition for condition in kept if condition is not None))


def _legacy(condition: Condition, was_admitted: bool) -> Condition | None:
    if condition.status or condition.type not in ("Admitted", "QuotaReserved"):
        return condition
    if condition.type == "QuotaReserved":
        inadmissible = condition.reason in _INADMISSIBLE
        return replace(condition, reason="Inadmissible" if inadmissible else _LEGACY.get(condition.reason, "Pending"))
    if not was_admitted or condition.reason in ("NoReservation", "NoReservationUnsatisfiedChecks"):
        return None
    unsatisfied = condition.reason == "UnsatisfiedAdmissionChecks"
    return replace(condition, reason="UnsatisfiedChecks") if unsatisfied else condition


def check_patience(table: Table, case: Case) -> Iterator[str]:
    """TestAdmittedNotReadyWorkload: what a workload waits for, and how much longer it may."""
    given = case.input.get("waitForPodsReady")
    settings = None
    if given is not None:
        recovery = given.get("recoveryTimeout")
        settings = WaitForPodsReady(
            timeout=_span(given.get("timeout", "0s")), recovery_timeout=0 if recovery is None else _span(recovery)
        )
    body = {**case.input["workload"], "metadata": {"name": "wl"}}
    found = pods_ready_timeout(world.decode_workload(body), settings, world.clock(table.fixtures["now"]))
    got = ("", 0) if found is None else (found[0].value, found[1])
    yield from compare("want", got, (case.want["wantUnderlyingCause"], _span(case.want["wantRecheckAfter"])))


def _span(text: str | int) -> Span:
    return parse_span(text) if isinstance(text, str) else text


def check_synced(table: Table, case: Case) -> Iterator[str]:
    """TestReconcileSyncAdmissionChecks: the checks that a workload has, by its queue."""
    workload, queue = world.decode_workload(case.input["wl"]), world.decode(case.input["cq"])
    assert isinstance(queue, ClusterQueue)
    got = sync_checks(workload.checks, required_checks(workload, queue), 0)
    body = {"metadata": {"name": "any"}, "status": {"admissionChecks": case.want.get("wantChecks") or []}}
    wanted = world.decode_workload(body).checks
    yield from compare("wantChecks", [replace(c, since=None) for c in got], [replace(c, since=None) for c in wanted])


CHECKS: dict[str, Check] = {
    **dict.fromkeys(
        (f"controller_core/Test{name}" for name in ("Reconcile", "ReconcileEviction", "ReconcileRequeue")),
        lambda table, case: list(check_reconcile(table, case)),
    ),
    "controller_core/TestReconcileInadmissible": lambda table, case: list(check_reconcile(table, case)),
    "controller_core/TestAdmittedNotReadyWorkload": lambda table, case: list(check_patience(table, case)),
    "controller_core/TestReconcileSyncAdmissionChecks": lambda table, case: list(check_synced(table, case)),
}
