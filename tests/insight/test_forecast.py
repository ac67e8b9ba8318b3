"""What Kueue's next cycles would do to all that waits, and that asking changes nothing."""

from msgspec.structs import replace

from gpuconsole.insight.forecast.forecast import (
    NO_KUEUE,
    Forecast,
    ForecastAction,
    WorkloadForecast,
    forecast,
    in_words,
)
from gpuconsole.model.queues import Quota, StopPolicy
from gpuconsole.model.resources import GPU
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import ArrivalStream
from tests.support.snapshots import ORG, ORG_QUEUES, START, cluster_queue, node, pod, running, waiting, world

POLICY = SimPolicy()
FITS = waiting("fits", "prod/lq", 8, priority=10)
HUGE = waiting("huge", "prod/lq", 64)


def test_what_fits_is_admitted_in_its_cycle_on_its_flavors() -> None:
    second = waiting("second", "prod/lq", 4, minutes_ago=5)
    first = waiting("first", "prod/lq", 4, minutes_ago=9)
    foreseen = forecast(world([*ORG_QUEUES, second, first]), POLICY)
    assert [(one.workload, one.fate, one.cycle, one.given) for one in foreseen.in_order()] == [
        ("prod/first", ForecastAction.ADMITTED, 1, (f"main×1 {GPU}=a100",)),
        ("prod/second", ForecastAction.ADMITTED, 2, (f"main×1 {GPU}=a100",)),
    ]
    assert in_words(foreseen.in_order()[1]) == "admitted in cycle 2 on a100"


def test_what_does_not_fit_waits_with_kueues_own_text() -> None:
    [huge] = forecast(world([*ORG_QUEUES, HUGE]), POLICY).in_order()
    assert (huge.fate, huge.reason, huge.queue, huge.gpus) == (ForecastAction.WAITS, "Pending", "cq-prod", 64)
    assert huge.message == (
        f"couldn't assign flavors to pod set main: insufficient quota for {GPU} in flavor a100, "
        "previously considered podsets requests (0) + current podset request (64) > maximum capacity (16)"
    )
    assert in_words(huge) == f"pending: {huge.message}"


def test_victims_are_named_on_both_sides() -> None:
    owner = waiting("owner", "prod/lq", 8, priority=10_000)
    llm = pod("llm-0", "n1", gpus=(0, 1, 2, 3), workload="research/rlhf")
    foreseen = forecast(world([*ORG, node("n1"), llm, owner]), POLICY)
    assert foreseen.prospects["prod/owner"].fate is ForecastAction.AFTER_VICTIMS
    [victim] = foreseen.prospects["prod/owner"].victims
    assert foreseen.prospects[victim].by == "prod/owner"
    assert in_words(foreseen.prospects[victim]) == "preempted by prod/owner (InCohortReclamation)"
    assert in_words(foreseen.prospects["prod/owner"]) == f"preempts {victim}"
    assert foreseen.expected.keys() == {"prod/owner"}


def test_a_held_queue_admits_nobody() -> None:
    held = cluster_queue("cq-prod", "org-cohort", Quota(16), stop_policy=StopPolicy.HOLD)
    [one] = forecast(world([*ORG_QUEUES, held, FITS]), POLICY).in_order()
    assert one.fate is ForecastAction.WAITS


def test_those_that_run_are_stopped_or_ended_are_not_foreseen() -> None:
    stopped = replace(FITS, active=False)
    assert forecast(world([*ORG, stopped]), POLICY).prospects == {}


def test_asking_changes_nothing_and_no_job_arrives_meanwhile() -> None:
    snapshot = world([*ORG_QUEUES, FITS])
    busy = replace(POLICY, arrivals=(ArrivalStream(name="s", namespace="prod", queue="lq", per_hour=1e9, at_start=9),))
    assert forecast(snapshot, busy) == forecast(snapshot, POLICY)
    assert snapshot.workloads["prod/fits"] == FITS


def test_without_kueue_nothing_is_foreseen() -> None:
    assert forecast(world(ORG_QUEUES), SimPolicy(kueue=None)) == Forecast(time=START, assumed=(NO_KUEUE,))


def test_many_victims_are_counted() -> None:
    many = WorkloadForecast(workload="a", fate=ForecastAction.AFTER_VICTIMS, victims=("v1", "v2", "v3", "v4", "v5"))
    assert in_words(many) == "preempts v1, v2, v3 and 2 more"


def test_what_was_assumed_is_said() -> None:
    assert forecast(world([running("r", "prod/lq", 1, "cq-prod"), *ORG_QUEUES]), POLICY, assumed=["x"]).assumed == (
        "x",
    )
