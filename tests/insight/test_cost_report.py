"""What the cluster costs and in whose name: autoscaled pools, fixed nodes, shared machines, lost work."""

import pytest

from gpuconsole.insight.cost.rates import FIXED, By, Cost, cost_report
from gpuconsole.insight.preemption.history import LostWork, lost_by
from gpuconsole.model.autoscaling import ON_DEMAND, PRICE, SPOT, NodeGroup, NodePool, ProvisionedInstance
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.objects import Object
from gpuconsole.model.prices import Prices
from gpuconsole.model.resources import GPU
from tests.support.snapshots import START, node, pod, world

PRICES = Prices(gpu_hour={"a100-80gb": 2.0}, other=1.0)


def shares(objects: list[Object], by: By) -> dict[str, tuple[int, object]]:
    found = cost_report(world(objects), PRICES, {})
    return {one.name: (one.gpus, pytest.approx(one.hourly)) for one in found.by[by]}


def test_a_fixed_node_costs_what_its_gpus_do_and_idle_ones_are_nobodys() -> None:
    things: list[Object] = [node("n1"), pod("p", "n1", (0, 1, 2), job="Job/team/train")]
    found = cost_report(world(things), PRICES, {})
    (fixed,) = found.pools
    assert (fixed.pool.name, fixed.pool.nodes, fixed.pool.gpus, fixed.pool.used) == (FIXED, 1, 8, 3)
    assert (found.hourly, found.idle_hourly) == (16.0, 10.0)
    assert found.by[By.TEAM] == (
        Cost(name="", hourly=10.0),
        Cost(name="team", gpus=3, hourly=6.0),
    )
    assert [one.name for one in found.by[By.WORKLOAD]] == ["", "Job/team/train"]
    assert [one.name for one in found.by[By.QUEUE]] == ["", "(no queue)"]


def test_a_machine_without_gpus_is_shared_in_equal_parts_by_its_pods() -> None:
    machine = node("cpu", 0, annotations={PRICE: "3.0"})
    things: list[Object] = [machine, *(pod(name, "cpu", job=f"Job/team/{name}") for name in ("a", "b"))]
    assert shares(things, By.WORKLOAD) == {"Job/team/a": (0, 1.5), "Job/team/b": (0, 1.5)}
    assert shares([machine], By.WORKLOAD) == {"": (0, 3.0)}


def test_autoscaled_machines_cost_what_was_paid_and_pools_tell_their_limits() -> None:
    def machine(name: str, kind: str, price: float) -> ProvisionedInstance:
        return ProvisionedInstance(
            name=name, type="s.8", capacity_type=kind, price=price, list_price=10.0, gpus=8, launched=START, ready=START
        )

    machines = (machine("m1", ON_DEMAND, 10.0), machine("m2", SPOT, 4.0))
    things: list[Object] = [
        NodePool(name="p", limits={GPU: 32}),
        NodeGroup(name="p", instances=machines, interrupted=2, spent=7.0),
        node("m1"),
        node("m2"),
        pod("p0", "m2", (0, 1, 2, 3)),
    ]
    found = cost_report(world(things), PRICES, {})
    (row,) = found.pools
    assert (row.on_demand_hourly, row.spot_hourly, row.limits) == (10.0, 4.0, {GPU: 32})
    assert (found.hourly, found.idle_hourly, found.saved_hourly, found.interrupted) == (14.0, 12.0, 6.0, 2)
    assert found.spent == 7.0
    assert shares(things, By.TEAM) == {"": (0, 12.0), "team": (4, 2.0)}


def test_the_parts_add_up_to_the_whole() -> None:
    things: list[Object] = [
        node("n1"),
        node("n2"),
        *(pod(f"p{number}", "n1", (number,), job=f"Job/team/{number % 3}") for number in range(7)),
        pod("q", "n2", (0, 1)),
    ]
    found = cost_report(world(things), PRICES, {})
    for by in By:
        assert sum(one.hourly for one in found.by[by]) == pytest.approx(found.hourly)


def test_lost_work_stands_beside_the_cost_of_who_lost_it() -> None:
    def gone(what: HistoryEventKind, queue: str, workload: str) -> HistoryEvent:
        return HistoryEvent(time=START, what=what, queue=queue, workload=workload, lost_gpu_seconds=7200.0, cost=4.0)

    lines = [
        gone(HistoryEventKind.EVICTED, "cq", "team/a"),
        gone(HistoryEventKind.PREEMPTED, "cq", "team/a"),
        gone(HistoryEventKind.FAILED, "cq", "team/b"),
    ]
    found = cost_report(world([]), PRICES, lost_by(lines))
    assert found.lost == LostWork(4.0, 8.0, 2)
    assert found.by[By.QUEUE] == (Cost(name="cq", lost=LostWork(4.0, 8.0, 2)),)
    assert [(one.name, one.lost.cost) for one in found.by[By.WORKLOAD]] == [("team/a", 4.0), ("team/b", 4.0)]


def test_work_whose_loss_is_unknown_is_no_nought() -> None:
    """It ran before anybody looked; a sum with it is at least what is known."""
    known = HistoryEvent(
        time=START, what=HistoryEventKind.EVICTED, queue="cq", workload="team/a", lost_gpu_seconds=7200.0, cost=4.0
    )
    unknown = HistoryEvent(time=START, what=HistoryEventKind.EVICTED, queue="cq", workload="team/b", lost_unknown=True)
    unpriced = HistoryEvent(
        time=START, what=HistoryEventKind.EVICTED, queue="other", workload="team/c", lost_gpu_seconds=3600.0
    )
    found = cost_report(world([]), PRICES, lost_by([known, unknown, unpriced]))
    assert {one.name: (one.lost.hours_text(), one.lost.cost_text("4.00 $")) for one in found.by[By.QUEUE]} == {
        "cq": ("at least 2.0", "at least 4.00 $"),
        "other": ("1.0", "unknown"),
    }
    told = {one.name: one.lost for one in found.by[By.WORKLOAD]}
    assert (told["team/b"].hours_text(), told["team/b"].cost_text("0.00 $")) == ("unknown", "unknown")


def test_a_gpu_that_pods_share_is_paid_once_in_equal_parts() -> None:
    halves = [pod(name, "n1", (0,), wants=0, job=f"Job/team/{name}") for name in ("a", "b")]
    things: list[Object] = [node("n1"), *halves, pod("c", "n1", (1, 2), job="Job/team/c")]
    assert shares(things, By.TEAM) == {"": (0, 10.0), "team": (3, 6.0)}
    assert {name: cost for name, (_, cost) in shares(things, By.WORKLOAD).items()} == {
        "": 10.0,
        "Job/team/a": 1.0,
        "Job/team/b": 1.0,
        "Job/team/c": 4.0,
    }
    assert cost_report(world(things), PRICES, {}).pools[0].pool.used == 3
