"""One look of Kueue's workload controller: what a Workload is to become, what is told, and when to look again."""

from collections.abc import Mapping

import pytest
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.queues import CheckRule, ClusterQueue, FlavorQuotas, LocalQueue, Quota, ResourceGroup, StopPolicy
from gpuconsole.model.workloads import Admission, CheckState, Condition, PodSetAssignment, RequeueState, Workload
from gpuconsole.scheduling.kueue.admissibility import QueueLookup
from gpuconsole.scheduling.kueue.config import KueueConfig, ObjectRetention, RequeuingStrategy, WaitForPodsReady
from gpuconsole.scheduling.kueue.workload_controller import (
    pods_ready_timeout,
    reconcile,
    time_until_deletion,
    with_pods_ready_condition,
)

NOW = 100 * HOUR
GROUP = ResourceGroup(("cpu",), (FlavorQuotas("f", {"cpu": Quota(1)}),))
QUEUE = ClusterQueue(name="cq", resource_groups=(GROUP,))
DOOR = LocalQueue(namespace="ml", name="lq", cluster_queue="cq")
OPEN = QueueLookup(local_queue=DOOR, cluster_queue=QUEUE)
LIMITED = KueueConfig(wait_for_pods_ready=WaitForPodsReady(requeuing_strategy=RequeuingStrategy(backoff_limit_count=2)))
TRAIN = Workload(namespace="ml", name="train", queue="lq")


def said(kind: str, status: bool, reason: str = "Why", since: Span = 0, message: str = "") -> Condition:
    """A condition that is so for a span."""
    return Condition(kind, status, reason, message, NOW - since)


RESERVED, ADMITTED = said("QuotaReserved", True), said("Admitted", True)
GIVEN = Admission(cluster_queue="cq", pod_sets=(PodSetAssignment(name="main", flavors={"cpu": "f"}),))
HELD = replace(TRAIN, admission=GIVEN, conditions=(RESERVED,))
RUNS = replace(HELD, conditions=(RESERVED, ADMITTED, said("PodsReady", True, "Started")))


def waits(reason: str, **changes: object) -> Workload:
    """A workload that waits since an eviction."""
    return replace(TRAIN, conditions=(said("Requeued", False, reason),), **changes)


def checked(state: str, message: str = "", after: int | None = None) -> Workload:
    check = CheckState(name="dws", state=state, message=message, since=NOW, requeue_after=after)
    return replace(HELD, checks=(check,))


CHECKED = replace(QUEUE, checks=(CheckRule(name="dws"),))
ASKING = replace(OPEN, cluster_queue=CHECKED)


class Case(Struct, frozen=True, kw_only=True):
    """A workload and its surroundings, and what is to come of it."""

    workload: Workload
    outlook: QueueLookup = OPEN
    config: KueueConfig = KueueConfig()
    conditions: Mapping[str, str] = {}
    """`status reason: message` of conditions afterwards."""
    evicted: str = ""
    told: tuple[str, ...] = ()
    again: Span = 0
    active: bool = True
    requeue: RequeueState = RequeueState()


def stopped(policy: StopPolicy, *, door: bool = False) -> QueueLookup:
    if door:
        return replace(OPEN, local_queue=replace(DOOR, stop_policy=policy))
    return replace(OPEN, cluster_queue=replace(QUEUE, stop_policy=policy))


CASES: Mapping[str, Case] = {
    "who runs well is left alone": Case(workload=RUNS),
    "a workload without an open check is admitted": Case(
        workload=replace(HELD, conditions=(said("QuotaReserved", True, since=90 * SECOND),)),
        conditions={"Admitted": "True Admitted: The workload is admitted"},
        told=("Normal Admitted: Admitted by ClusterQueue cq, wait time since reservation was 90s",),
        # Half an hour for its pods.
        again=30 * MINUTE,
    ),
    "checks that the queue asks for are listed first": Case(workload=HELD, outlook=ASKING),
    "an open check keeps it from being admitted": Case(workload=checked("Pending"), outlook=ASKING),
    "a rejected check marks it": Case(
        workload=checked("Rejected", "no room"),
        outlook=ASKING,
        conditions={"DeactivationTarget": 'True AdmissionCheck: AdmissionCheck in Rejected state: "dws" (no room)'},
        told=('Warning AdmissionCheckRejected: Deactivated due to AdmissionCheck in Rejected state: "dws" (no room)',),
    ),
    "a check that wants to be asked again evicts it": Case(
        workload=checked("Retry"),
        outlook=ASKING,
        evicted='AdmissionCheck: Evicted due to AdmissionCheck in Retry state: "dws"',
        told=('Normal EvictedDueToAdmissionCheck: Evicted due to AdmissionCheck in Retry state: "dws"',),
    ),
    "when to ask again is noted first": Case(
        workload=checked("Retry", after=60), outlook=ASKING, requeue=RequeueState(0, NOW + MINUTE)
    ),
    "who is marked is deactivated": Case(
        workload=replace(RUNS, conditions=(*RUNS.conditions, said("DeactivationTarget", True, "AnyReason"))),
        conditions={"DeactivationTarget": "True AnyReason: "},
        active=False,
    ),
    "who is deactivated is evicted, for the reason that it was marked with": Case(
        workload=replace(
            RUNS,
            active=False,
            requeue=RequeueState(3, NOW),
            conditions=(*RUNS.conditions, said("DeactivationTarget", True, "AnyReason", message="some reason")),
        ),
        evicted="Deactivated: The workload is deactivated due to some reason (AnyReason)",
        told=("Normal EvictedDueToDeactivatedDueToAnyReason: The workload is deactivated due to some reason",),
        active=False,
    ),
    "a deactivated workload that had nothing is evicted without a word": Case(
        workload=replace(TRAIN, active=False), evicted="Deactivated: The workload is deactivated", active=False
    ),
    "its retries are forgotten even where it was evicted before": Case(
        workload=replace(TRAIN, active=False, requeue=RequeueState(3), conditions=(said("Evicted", True),)),
        active=False,
    ),
    "a back-off is waited for": Case(
        workload=waits("PodsReadyTimeout", requeue=RequeueState(1, NOW + MINUTE)),
        again=MINUTE,
        requeue=RequeueState(1, NOW + MINUTE),
        conditions={"Requeued": "False PodsReadyTimeout: "},
    ),
    "a back-off that is over is taken back": Case(
        workload=waits("PodsReadyTimeout", requeue=RequeueState(1, NOW)),
        requeue=RequeueState(1),
        conditions={"Requeued": "False PodsReadyTimeout: "},
    ),
    "then it may be tried again": Case(
        workload=waits("AdmissionCheck", requeue=RequeueState(1)),
        requeue=RequeueState(1),
        conditions={"Requeued": "True BackoffFinished: The workload backoff was finished"},
    ),
    "who is active again may be tried again": Case(
        workload=waits("Deactivated"),
        conditions={"Requeued": "True Reactivated: The workload was reactivated"},
    ),
    "who left when its ClusterQueue stopped comes back with it": Case(
        workload=waits("ClusterQueueStopped"),
        conditions={
            "Requeued": "True ClusterQueueRestarted: The ClusterQueue was restarted after being stopped",
        },
    ),
    "who left when its LocalQueue stopped comes back with it": Case(
        workload=waits("LocalQueueStopped"),
        conditions={"Requeued": "True LocalQueueRestarted: The LocalQueue was restarted after being stopped"},
    ),
    "not before": Case(
        workload=waits("ClusterQueueStopped"),
        outlook=stopped(StopPolicy.HOLD),
        conditions={"Requeued": "False ClusterQueueStopped: "},
    ),
    "Hold leaves who runs": Case(workload=RUNS, outlook=stopped(StopPolicy.HOLD)),
    "HoldAndDrain evicts who runs": Case(
        workload=RUNS,
        outlook=stopped(StopPolicy.HOLD_AND_DRAIN),
        evicted="ClusterQueueStopped: The ClusterQueue is stopped",
        told=("Normal EvictedDueToClusterQueueStopped: The ClusterQueue is stopped",),
    ),
    "HoldAndDrain of a LocalQueue, too": Case(
        workload=RUNS,
        outlook=stopped(StopPolicy.HOLD_AND_DRAIN, door=True),
        evicted="LocalQueueStopped: The LocalQueue is stopped",
        told=("Normal EvictedDueToLocalQueueStopped: The LocalQueue is stopped",),
    ),
    "who goes already is not told twice": Case(
        workload=replace(RUNS, conditions=(*RUNS.conditions, said("Evicted", True))),
        outlook=stopped(StopPolicy.HOLD_AND_DRAIN),
    ),
    "Hold takes quota back from who is not admitted yet": Case(
        workload=checked("Pending"),
        outlook=replace(ASKING, cluster_queue=replace(CHECKED, stop_policy=StopPolicy.HOLD)),
        conditions={"QuotaReserved": "False Inadmissible: ClusterQueue cq is stopped"},
    ),
    "pods have their time from the admission": Case(
        workload=replace(HELD, conditions=(RESERVED, said("Admitted", True, since=10 * MINUTE))), again=20 * MINUTE
    ),
    "pods that are not ready in time send it back": Case(
        workload=replace(HELD, conditions=(RESERVED, said("Admitted", True, since=30 * MINUTE))),
        evicted="PodsReadyTimeout: Exceeded the PodsReady timeout ml/train (WaitForStart)",
        told=("Normal EvictedDueToPodsReadyTimeout: Exceeded the PodsReady timeout ml/train",),
        requeue=RequeueState(1, NOW + MINUTE),
    ),
    "pods that do not recover, too": Case(
        workload=replace(
            HELD,
            requeue=RequeueState(4),
            conditions=(RESERVED, ADMITTED, said("PodsReady", False, "WaitForRecovery", since=30 * MINUTE)),
        ),
        evicted="PodsReadyTimeout: Exceeded the PodsReady timeout ml/train (WaitForRecovery)",
        told=("Normal EvictedDueToPodsReadyTimeout: Exceeded the PodsReady timeout ml/train",),
        requeue=RequeueState(5, NOW + 16 * MINUTE),
    ),
    "once too often marks it": Case(
        workload=replace(
            HELD, requeue=RequeueState(2), conditions=(RESERVED, said("Admitted", True, since=30 * MINUTE))
        ),
        config=LIMITED,
        conditions={
            "DeactivationTarget": "True RequeuingLimitExceeded: exceeding the maximum number of re-queuing retries"
        },
        requeue=RequeueState(2),
    ),
    "time that is left is counted over earlier stays": Case(
        workload=replace(RUNS, max_execution_time=HOUR, past_execution=45 * MINUTE), again=15 * MINUTE
    ),
    "time that is over marks it": Case(
        workload=replace(RUNS, max_execution_time=HOUR, past_execution=HOUR),
        conditions={"DeactivationTarget": "True MaximumExecutionTimeExceeded: exceeding the maximum execution time"},
        told=("Warning MaximumExecutionTimeExceeded: The maximum execution time (3600s) exceeded",),
    ),
    "the sooner of two times counts": Case(
        workload=replace(
            HELD,
            max_execution_time=5 * MINUTE,
            conditions=(RESERVED, said("Admitted", True, since=MINUTE)),
        ),
        again=4 * MINUTE,
    ),
    "a finished workload is kept for ever": Case(workload=replace(TRAIN, conditions=(said("Finished", True),))),
    "a finished workload is kept for a while": Case(
        workload=replace(TRAIN, conditions=(said("Finished", True, since=MINUTE),)),
        config=KueueConfig(object_retention=ObjectRetention(after_finished=HOUR)),
        again=59 * MINUTE,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_look(name: str) -> None:
    case = CASES[name]
    outcome = reconcile(case.workload, case.outlook, case.config, NOW)
    after, why = outcome.workload, outcome.eviction
    assert after is not None
    texts = {c.type: f"{c.status} {c.reason}: {c.message}" for c in after.conditions}
    assert {kind: texts.get(kind) for kind in case.conditions} == case.conditions
    eviction = "" if why is None else f"{why.reason}: {why.message}" + (f" ({why.cause})" if why.cause else "")
    assert eviction == case.evicted
    told = [f"{'Warning' if event.warning else 'Normal'} {event.reason}: {event.message}" for event in outcome.events]
    assert (tuple(told), outcome.reconcile_after) == (case.told, case.again)
    assert (after.active, after.requeue) == (case.active, case.requeue)


def test_checks_of_the_queue_are_listed() -> None:
    listed = reconcile(HELD, ASKING, KueueConfig(), NOW).workload
    assert listed is not None
    assert listed.checks == (CheckState(name="dws", since=NOW),)


def test_a_finished_workload_that_was_kept_long_enough_is_deleted() -> None:
    done = replace(TRAIN, conditions=(said("Finished", True, since=HOUR),))
    outcome = reconcile(done, OPEN, KueueConfig(object_retention=ObjectRetention(after_finished=HOUR)), NOW)
    assert outcome.workload is None
    assert [event.message for event in outcome.events] == ["Deleted finished workload due to elapsed retention"]


def test_the_marks_of_an_eviction_are_on_the_workload_when_it_is_carried_out() -> None:
    outcome = reconcile(checked("Retry"), ASKING, KueueConfig(), NOW)
    marked = outcome.with_deactivation(NOW)
    assert marked is not None
    assert marked.is_true("Evicted")
    assert marked.checks[0].message == "Reset to Pending after eviction. Previously: Retry"


def test_readiness_tells_a_start_from_a_recovery() -> None:
    stages = [replace(HELD, conditions=(RESERVED, ADMITTED))]
    for ready in (False, True, False, False, True):
        stages.append(with_pods_ready_condition(stages[-1], ready, NOW))
    reasons = [condition.reason for stage in stages if (condition := stage.condition("PodsReady")) is not None]
    assert reasons == ["WaitForStart", "Started", "WaitForRecovery", "WaitForRecovery", "Recovered"]
    assert stages[3] is stages[4]
    back = with_pods_ready_condition(replace(stages[-1], conditions=(said("PodsReady", True, "Started"),)), False, NOW)
    assert [condition.reason for condition in back.conditions] == ["WaitForStart"]


def test_a_recovery_may_take_for_ever() -> None:
    lost = replace(HELD, conditions=(RESERVED, ADMITTED, said("PodsReady", False, "WaitForRecovery", since=HOUR)))
    assert pods_ready_timeout(lost, WaitForPodsReady(recovery_timeout=0), NOW) is None
    assert pods_ready_timeout(lost, None, NOW) is None
    assert pods_ready_timeout(TRAIN, WaitForPodsReady(), NOW) is None


def test_only_what_kueue_deactivated_is_deleted_in_time() -> None:
    by_kueue = replace(TRAIN, active=False, conditions=(said("Evicted", True, "DeactivatedDueToAnything", MINUTE),))
    by_hand = replace(TRAIN, active=False, conditions=(said("Evicted", True, "Deactivated", MINUTE),))
    assert [time_until_deletion(one, HOUR, NOW) for one in (by_kueue, by_hand)] == [59 * MINUTE, None]
    assert time_until_deletion(replace(by_kueue, active=True), HOUR, NOW) is None
    assert time_until_deletion(by_kueue, SECOND, NOW) == 0
