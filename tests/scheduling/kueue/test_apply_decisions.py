"""What decisions make of Workloads: quota with its checks, a slice that ends, a victim that is marked."""

from msgspec.structs import replace

from gpuconsole.model.events import AdmissionDecision, Admit, Evict, KeepWaiting, Preempt, PreemptionRule, Refuse
from gpuconsole.model.queues import CheckRule
from gpuconsole.model.resources import GPU
from gpuconsole.model.workloads import Admission, CheckState, Condition, PodSetAssignment
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from tests.support.kueue_cluster import queue, workload

NOW = 5
PREEMPT = Preempt("team/b", "team/by", PreemptionRule.IN_CLUSTER_QUEUE, "for the other")
EVICT = Evict("team/a", "NodeFailures", "its node is lost")


def test_victims_go_by_name_whatever_else_the_cycle_decided() -> None:
    decided: list[AdmissionDecision] = [Refuse("team/c", "no room"), PREEMPT, KeepWaiting("team/d", "no place"), EVICT]

    assert apply_decisions.victims_of(decided) == [EVICT, PREEMPT]


def test_quota_comes_with_the_checks_that_the_queue_asks_for() -> None:
    part = PodSetAssignment(name="main", flavors={GPU: "f"}, usage={GPU: 1}, count=1)
    admission = Admission(cluster_queue="q", pod_sets=(part,))
    checked = replace(queue("q", 4), checks=(CheckRule("budget"), CheckRule("elsewhere", ("other",))))
    given = apply_decisions.with_reservation(workload("w", "q", 1), Admit("team/w", admission), checked, NOW)

    assert (given.admission, given.checks) == (admission, (CheckState(name="budget", since=NOW),))
    assert apply_decisions.with_reservation(given, Admit("team/w", admission), None, NOW).checks == ()


def test_a_slice_that_another_one_replaces_ends_with_that_reason() -> None:
    ended = apply_decisions.with_finished_slice(workload("old", "q", 1), workload("new", "q", 2), NOW)
    condition = ended.condition(conditions.FINISHED)

    assert condition is not None
    assert (condition.reason, condition.message[:23]) == ("WorkloadSliceReplaced", "Replaced to accommodate")


def test_a_preempted_victim_says_by_which_rule_and_any_other_only_why() -> None:
    running = workload("w", "q", 1)

    assert apply_decisions.with_eviction(running, PREEMPT, NOW).conditions == (
        Condition("Preempted", True, "InClusterQueue", "for the other", NOW),
        Condition("Evicted", True, "Preempted", "for the other", NOW),
    )
    assert apply_decisions.with_eviction(running, EVICT, NOW).conditions == (
        Condition("Evicted", True, "NodeFailures", "its node is lost", NOW),
    )


def test_the_cause_of_a_deactivation_is_part_of_its_reason_and_its_event() -> None:
    decision = Evict("team/w", conditions.DEACTIVATED, "too many retries", cause="RequeuingLimitExceeded")
    evicted = apply_decisions.with_eviction(workload("w", "q", 1), decision, NOW)

    reason = "DeactivatedDueToRequeuingLimitExceeded"
    assert evicted.conditions == (Condition("Evicted", True, reason, "too many retries", NOW),)
    assert apply_decisions.evicted_event(evicted, decision).reason == f"EvictedDueTo{reason}"
    assert apply_decisions.evicted_event(evicted, PREEMPT).reason == "EvictedDueToPreempted"
