"""Who holds quota and does not run: on the dashboard's numbers, and among what needs attention."""

from gpuconsole.insight.health.alerts import AlertKind, alerts
from gpuconsole.insight.index.queues import checking
from gpuconsole.insight.overview import waiting
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.model.objects import Object
from gpuconsole.model.workloads import CheckState, Condition, Workload
from tests.support.snapshots import START, running, world


def holding(name: str, *checks: CheckState, gpus: int = 4, ago: int = 12 * MINUTE) -> Workload:
    """A workload with quota that is not admitted."""
    reserved = Condition("QuotaReserved", True, "QuotaReserved", "Quota reserved", START - ago)
    return running(name, "team/lq", gpus, "cq", conditions=(reserved,), checks=checks)


BUDGET, READY = CheckState(name="budget"), CheckState(name="capacity", state="Ready")


def test_quota_that_waits_for_checks_is_counted_apart() -> None:
    things: list[Object] = [
        holding("a", BUDGET, READY),
        holding("b", ago=20 * MINUTE),
        running("run", "team/lq", 2, "cq"),
    ]
    snapshot = world(things)
    assert [(one.workload, one.gpus, one.names) for one in checking(snapshot)] == [
        ("team/b", 4, "topology assignment"),
        ("team/a", 4, "budget"),
    ]
    numbers = waiting(snapshot)
    assert (numbers.workloads, numbers.checking, numbers.checking_units) == (0, 2, {WHOLE_GPU: 8})


def test_each_is_told_of_by_name_while_they_are_few() -> None:
    told = [one for one in alerts(world([holding("a", BUDGET)])) if one.trouble is AlertKind.CHECKS]
    assert [(one.text, one.table, one.key) for one in told] == [
        ("team/a: 4 GPUs reserved, waiting for budget for 12m", "workloads", "team/a")
    ]
    many = world([holding(f"w{number}", BUDGET) for number in range(6)])
    told = [one for one in alerts(many) if one.trouble is AlertKind.CHECKS]
    assert [one.text for one in told] == ["6 workloads have 24 GPUs reserved and wait for admission checks"]
