"""Node pools and what they cost, as the console shows them."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.cost.rates import By, MachinePool, cost_report, node_hourly, pools
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.commands import Finish, InterruptSpot
from gpuconsole.model.prices import Prices
from gpuconsole.sim.policy import FIXED
from tests.support.autoscaled_clusters import SPOT, after, begin, job, member, policy, pool, types, where
from tests.support.sim_cluster import submit


def test_a_pool_is_told_with_its_money() -> None:
    """An hour of a machine of 4 GPUs at 3.60 USD, of which one GPU is in use; another one starts."""
    simulation = begin([pool("p", types("s.4")), member("n", "s.4")])
    submit(simulation, job("a"))
    after(simulation, HOUR)
    submit(simulation, job("b", 4))
    after(simulation, SECOND)
    (row,) = pools(simulation.snapshot())
    assert row.spent == pytest.approx(3.6 * 3601 / 3600)
    assert row.idle_hourly == pytest.approx(7.2 - 0.9)
    assert row == MachinePool(
        name="p",
        autoscaler="karpenter",
        nodes=1,
        starting=1,
        leaving=0,
        spot=0,
        gpus=8,
        used=1,
        hourly=7.2,
        saved_hourly=0,
        idle_hourly=row.idle_hourly,
        spent=row.spent,
        launched=1,
        gone=0,
        interrupted=0,
    )


def test_money_for_machines_that_are_gone_is_not_forgotten() -> None:
    simulation = begin([pool("p", SPOT, consolidate_after="1m"), member("n", "s.1", spot=True)])
    submit(simulation, job("a"))
    after(simulation, HOUR)
    simulation.submit(InterruptSpot("n"))
    after(simulation, 50 * SECOND)
    simulation.submit(Finish("Job/ml/a"))
    after(simulation, 10 * MINUTE)
    (row,) = pools(simulation.snapshot())
    assert (row.nodes, row.launched, row.gone, row.interrupted, row.hourly) == (0, 1, 2, 1, 0)
    first, second = 0.4 * (3600 + 30) / 3600, row.spent - 0.4 * (3600 + 30) / 3600
    assert 0 < second < 0.1
    assert row.spent == pytest.approx(first + second)


def test_teams_and_idle_machines_add_up_to_what_all_cost() -> None:
    simulation = begin([pool("p", types("s.4", "s.1")), member("n", "s.4"), member("m", "s.1")])
    submit(simulation, replace(job("a", 2), namespace="red"), replace(job("b", 1), namespace="blue"))
    after(simulation, MINUTE)
    paid = cost_report(simulation.snapshot(), Prices(), {})
    parts = {one.name: one.hourly for one in paid.by[By.TEAM]}
    assert set(where(simulation).values()) <= {"m", "n"}
    assert sum(parts.values()) == pytest.approx(paid.hourly) == pytest.approx(4.6)
    assert parts["red"] == pytest.approx(1.8)
    assert parts["blue"] in (pytest.approx(0.9), pytest.approx(1.0))


def test_spot_saves_what_the_same_machine_costs_more_on_demand() -> None:
    simulation = begin([pool("p", SPOT, types("s.1")), member("n", "s.4", spot=True)])
    submit(simulation, job("a", 4), job("b"))
    (row,) = pools(after(simulation, MINUTE).snapshot())
    assert row.saved_hourly == pytest.approx(3.6 - 1.5 + 1.0 - 0.4)


def test_a_cluster_without_autoscaler_has_no_pools() -> None:
    assert pools(begin([member("n", "s.1")], policy(FIXED)).snapshot()) == ()


def test_a_node_that_says_its_price_costs_that() -> None:
    simulation = begin([pool("p", types("s.4"))])
    submit(simulation, job("a"))
    (node,) = after(simulation, MINUTE).snapshot().nodes.all()
    assert node_hourly(node, Prices()) == pytest.approx(3.6)
    assert node_hourly(member("n", "s.4"), Prices(other=2.0)) == 8.0
