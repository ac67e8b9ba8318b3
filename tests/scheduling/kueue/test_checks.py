"""Admission checks: which a workload has to pass, what it is told of them, and when it may be tried again."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.queues import CheckRule, ClusterQueue, FlavorQuotas, ResourceGroup
from gpuconsole.model.workloads import Admission, CheckState, PodSetAssignment, RequeueState, Workload
from gpuconsole.scheduling.kueue.conditions import (
    backoff,
    count_retry,
    required_checks,
    retry_at,
    retry_delay_end,
    set_requeue_time,
    state_messages,
    sync_checks,
    with_check,
)
from gpuconsole.scheduling.kueue.config import RequeuingStrategy

NOW = 1_000 * SECOND
QUEUE = ClusterQueue(
    name="q",
    resource_groups=(ResourceGroup(("cpu",), (FlavorQuotas("spot", {}), FlavorQuotas("reserved", {}))),),
    checks=(
        CheckRule("for-spot", ("spot",)),
        CheckRule("for-both", ("reserved", "spot")),
        CheckRule("for-all"),
        CheckRule("for-none", ("gone",)),
    ),
)
WAITING = Workload(name="w")
ON_RESERVED = replace(
    WAITING, admission=Admission(cluster_queue="q", pod_sets=(PodSetAssignment(flavors={"cpu": "reserved"}),))
)


def test_before_a_reservation_only_checks_of_every_flavor_hold() -> None:
    assert required_checks(WAITING, QUEUE) == ["for-all", "for-both"]


def test_after_it_those_of_the_flavors_that_were_given() -> None:
    assert required_checks(ON_RESERVED, QUEUE) == ["for-all", "for-both"]
    on_spot = replace(
        ON_RESERVED, admission=Admission(cluster_queue="q", pod_sets=(PodSetAssignment(flavors={"cpu": "spot"}),))
    )
    assert required_checks(on_spot, QUEUE) == ["for-all", "for-both", "for-spot"]


def test_known_states_stay_and_checks_that_no_longer_hold_are_dropped() -> None:
    states = (CheckState(name="b", state="Ready", since=1), CheckState(name="old", state="Ready"))
    assert sync_checks(states, ["b", "a"], NOW) == (
        CheckState(name="a", since=NOW),
        CheckState(name="b", state="Ready", since=1),
    )


def test_an_answer_moves_the_time_only_with_the_state_and_keeps_the_retries() -> None:
    states = (CheckState(name="a", since=1, retry_count=2),)
    same = with_check(states, CheckState(name="a", message="soon", since=NOW), NOW)
    assert same == (CheckState(name="a", message="soon", since=1, retry_count=2),)
    ready = with_check(same, CheckState(name="a", state="Ready"), NOW)
    assert ready == (CheckState(name="a", state="Ready", since=NOW, retry_count=2),)


TOLD: dict[str, tuple[tuple[CheckState, ...], str]] = {
    "one check, with its message": (
        (CheckState(name="a", message="no nodes"),),
        'AdmissionCheck in Retry state: "a" (no nodes)',
    ),
    "several, by name, without what they do not say": (
        (CheckState(name="b"), CheckState(name="a", message="no nodes")),
        'AdmissionChecks in Retry state: "a" (no nodes); "b"',
    ),
}


@pytest.mark.parametrize(("checks", "want"), TOLD.values(), ids=TOLD)
def test_what_is_told_of_checks(checks: tuple[CheckState, ...], want: str) -> None:
    assert state_messages(checks, "Retry") == want


def retrying(name: str, since: Time | None, seconds: int | None, state: str = "Retry") -> CheckState:
    return CheckState(name=name, state=state, since=since, requeue_after=seconds)


RETRIES: dict[str, tuple[tuple[CheckState, ...], Time | None]] = {
    "no check asks for a pause": ((retrying("a", NOW, None),), None),
    "the longest pause counts": ((retrying("a", NOW, 60), retrying("b", NOW, 120)), NOW + 120 * SECOND),
    "pauses begin when the check said so": (
        (retrying("a", NOW, 60), retrying("b", NOW + 30 * SECOND, 60)),
        NOW + 90 * SECOND,
    ),
    "one that is not known to have said so does not count": ((retrying("a", None, 60),), None),
    "one that passed does not count": ((retrying("a", NOW, 60, "Ready"),), None),
}


@pytest.mark.parametrize(("checks", "want"), RETRIES.values(), ids=RETRIES)
def test_when_checks_let_a_workload_be_tried_again(checks: tuple[CheckState, ...], want: Time | None) -> None:
    assert retry_at(replace(WAITING, checks=checks)) == want


def test_a_workload_waits_for_its_checks_only_if_it_does_not_wait_as_long_already() -> None:
    waiting = replace(WAITING, checks=(retrying("a", NOW, 60),))
    assert retry_delay_end(waiting, NOW) == NOW + 60 * SECOND
    assert retry_delay_end(waiting, NOW + 60 * SECOND) is None
    assert retry_delay_end(set_requeue_time(waiting, NOW + 60 * SECOND), NOW) is None


def test_a_requeue_time_only_moves_forward() -> None:
    later = set_requeue_time(WAITING, NOW + 60 * SECOND, count=True)
    assert later.requeue == RequeueState(1, NOW + 60 * SECOND)
    assert set_requeue_time(later, NOW) is later
    assert set_requeue_time(later, NOW, count=True).requeue == RequeueState(2, NOW + 60 * SECOND)
    assert set_requeue_time(later, NOW + 90 * SECOND).requeue == RequeueState(1, NOW + 90 * SECOND)


def test_each_retry_waits_twice_as_long_up_to_an_hour() -> None:
    delays = []
    for retries in range(8):
        waited = count_retry(replace(WAITING, requeue=RequeueState(retries)), RequeuingStrategy(), NOW)
        assert waited.requeue.at is not None
        delays.append((waited.requeue.at - NOW) // SECOND)
    assert delays == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_a_backoff_starts_with_its_first_span_whatever_the_most_is() -> None:
    assert [backoff(10, 4, attempt) for attempt in (-3, 0, 1, 2, 1000)] == [0, 0, 10, 4, 4]
