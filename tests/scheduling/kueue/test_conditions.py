"""What a Workload's conditions say in each stage of its life."""

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.events import PreemptionRule, Refuse
from gpuconsole.model.workloads import Admission, CheckState, Condition, EvictionCount, PodSetNeeds, Workload
from gpuconsole.scheduling.kueue import conditions
from tests.support.kueue_cluster import workload

GRANTED = Admission(cluster_queue="q")
NOW = 100 * SECOND


def said(workload: Workload) -> dict[str, tuple[bool, str, str, int]]:
    return {c.type: (c.status, c.reason, c.message, c.since // SECOND) for c in workload.conditions}


def running() -> Workload:
    return conditions.sync_admitted(conditions.reserve_quota(workload("w", "q"), GRANTED, NOW), NOW)


def test_a_refusal_says_why_and_a_repeated_one_changes_nothing() -> None:
    told = conditions.set_pending_reason(workload("w", "q"), "Pending", "no room", NOW)
    assert said(told) == {"QuotaReserved": (False, "Pending", "no room", 100)}
    assert conditions.set_pending_reason(told, "Pending", "no room", NOW + SECOND) is told


def test_another_message_moves_no_transition_time() -> None:
    told = conditions.set_pending_reason(workload("w", "q"), "Pending", "no room", NOW)
    again = conditions.set_pending_reason(told, "Pending", "still none", NOW + SECOND)
    assert said(again) == {"QuotaReserved": (False, "Pending", "still none", 100)}


def test_a_refusal_notes_what_was_looked_for_until_quota_is_given() -> None:
    needs = (PodSetNeeds("main", {"cpu": 1000}),)
    told = conditions.apply_refusal(workload("w", "q"), Refuse("ns/w", "no room", requests=needs), NOW)
    assert told.resource_requests == needs
    assert conditions.with_resource_requests(told, needs) is told
    assert conditions.reserve_quota(told, GRANTED, NOW).resource_requests == ()


def test_reservation_and_admission() -> None:
    assert said(running()) == {
        "QuotaReserved": (True, "QuotaReserved", "Quota reserved in ClusterQueue q", 100),
        "Admitted": (True, "Admitted", "The workload is admitted", 100),
    }
    assert running().admission == GRANTED


def test_checks_that_are_not_ready_hold_admission_up() -> None:
    waiting = replace(workload("w", "q"), checks=(CheckState(name="prov"),))
    reserved = conditions.sync_admitted(conditions.reserve_quota(waiting, GRANTED, NOW), NOW)
    assert not reserved.admitted
    ready = replace(reserved, checks=(CheckState(name="prov", state="Ready"),))
    assert conditions.sync_admitted(ready, NOW + SECOND).admitted


def test_an_eviction_keeps_the_quota_until_it_is_released() -> None:
    evicted = conditions.mark_evicted(
        running(), "Preempted", "make room", NOW + SECOND, PreemptionRule.IN_COHORT_RECLAMATION
    )
    assert (evicted.reserved, evicted.admitted, evicted.admission, evicted.evictions) == (True, True, GRANTED, 1)
    assert said(evicted)["Preempted"] == (True, "InCohortReclamation", "make room", 101)
    assert said(evicted)["Evicted"] == (True, "Preempted", "make room", 101)
    released = conditions.release_quota(evicted, NOW + 11 * SECOND)
    assert released.admission is None
    assert said(released) == {
        "QuotaReserved": (False, "Pending", "make room", 111),
        "Admitted": (False, "NoReservation", "The workload has no reservation", 111),
        "Preempted": (True, "InCohortReclamation", "make room", 101),
        "Evicted": (True, "Preempted", "make room", 101),
        "Requeued": (True, "Preempted", "make room", 111),
    }
    assert released.past_execution == 11 * SECOND


def test_after_other_evictions_it_waits_to_be_requeued() -> None:
    evicted = conditions.mark_evicted(running(), "ClusterQueueStopped", "The ClusterQueue is stopped", NOW)
    released = conditions.release_quota(evicted, NOW)
    assert said(released)["Requeued"] == (False, "ClusterQueueStopped", "The ClusterQueue is stopped", 100)
    back = conditions.mark_requeued(released, "ClusterQueueRestarted", "The ClusterQueue was restarted", NOW + SECOND)
    assert said(back)["Requeued"] == (True, "ClusterQueueRestarted", "The ClusterQueue was restarted", 101)


def test_the_next_reservation_says_that_the_eviction_is_past() -> None:
    evicted = conditions.mark_evicted(running(), "Preempted", "make room", NOW, PreemptionRule.IN_CLUSTER_QUEUE)
    again = conditions.reserve_quota(conditions.release_quota(evicted, NOW), GRANTED, NOW + 5 * SECOND)
    assert said(again)["Evicted"] == (False, "QuotaReserved", "Previously: make room", 105)
    assert said(again)["Preempted"] == (False, "QuotaReserved", "Previously: make room", 105)


def test_an_eviction_resets_checks_and_unhealthy_nodes() -> None:
    checks = (
        CheckState(name="a", state="Ready"),
        CheckState(name="b", state="Retry", retry_count=1),
        CheckState(name="c", message="as it was"),
    )
    evicted = conditions.mark_evicted(
        replace(running(), checks=checks, unhealthy_nodes=("n1",)), "AdmissionCheck", "", NOW
    )
    assert evicted.unhealthy_nodes == ()
    assert evicted.checks == (
        CheckState(name="a", message="Reset to Pending after eviction. Previously: Ready", since=NOW),
        CheckState(name="b", message="Reset to Pending after eviction. Previously: Retry", retry_count=2, since=NOW),
        CheckState(name="c", message="as it was"),
    )


def test_evictions_are_counted_by_reason_and_cause() -> None:
    victim = running()
    for reason, cause in (("Preempted", ""), ("PodsReadyTimeout", "WaitForStart"), ("Preempted", "")):
        victim = conditions.mark_evicted(victim, reason, "", NOW, cause=cause)
    assert victim.scheduling_stats.evictions == (
        EvictionCount(reason="Preempted", count=2),
        EvictionCount(reason="PodsReadyTimeout", underlying_cause="WaitForStart", count=1),
    )
    assert victim.evictions == 3


def test_what_was_behind_a_deactivation_is_part_of_its_reason() -> None:
    stopped = conditions.mark_evicted(running(), "Deactivated", "", NOW, cause="RequeuingLimitExceeded")
    assert said(stopped)["Evicted"] == (True, "DeactivatedDueToRequeuingLimitExceeded", "", 100)
    assert conditions.is_deactivated(stopped)
    assert stopped.scheduling_stats.evictions == (
        EvictionCount(reason="Deactivated", underlying_cause="RequeuingLimitExceeded", count=1),
    )


def test_time_spent_admitted_is_counted_in_whole_seconds() -> None:
    evicted = conditions.mark_evicted(running(), "Preempted", "", NOW)
    assert conditions.release_quota(evicted, NOW + 2 * SECOND + 999_999).past_execution == 2 * SECOND


def test_an_eviction_takes_until_the_quota_is_given_back() -> None:
    evicted = conditions.mark_evicted(running(), "Preempted", "", NOW)
    released = conditions.release_quota(evicted, NOW + 30 * SECOND)
    assert conditions.eviction_latency(evicted, released, NOW + 30 * SECOND) == ("q", "Preempted", 30 * SECOND)
    assert conditions.eviction_latency(running(), evicted, NOW) is None
    assert conditions.eviction_latency(released, released, NOW) is None


def test_the_first_finish_stands() -> None:
    done = conditions.mark_finished(running(), "Succeeded", "Job finished successfully", NOW)
    assert done.condition("Finished") == Condition("Finished", True, "Succeeded", "Job finished successfully", NOW)
    assert conditions.mark_finished(done, "Failed", "", NOW) is done
