"""Spot machines that are taken back: notice, drain, what is saved and lost, and where the work goes on."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from gpuconsole.insight.preemption.history import lost_by
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.cluster import PodDisruptionBudget
from gpuconsole.model.commands import InterruptSpot
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import FIXED, Expander, ScalingGroup, SpotPolicy
from tests.support.autoscaled_clusters import (
    EITHER,
    ON_DEMAND,
    SPOT,
    after,
    begin,
    groups,
    job,
    machines,
    member,
    policy,
    pool,
    said,
    types,
    where,
)
from tests.support.sim_cluster import submit

NOTICE = 2 * MINUTE


def lines(simulation: Simulation) -> list[HistoryEvent]:
    return [event for event in simulation.drain() if isinstance(event, HistoryEvent)]


def interrupted(name: str, simulation: Simulation) -> Simulation:
    simulation.submit(InterruptSpot(name))
    return simulation


def test_a_node_is_drained_at_once_and_its_replacement_bought_meanwhile() -> None:
    simulation = begin([pool("p", SPOT, types("s.1", "t.1")), member("n", "s.1", spot=True)])
    submit(simulation, job("a"))
    interrupted("n", simulation)
    assert said(simulation)[0] == "0:00 n SpotInterrupted: Spot interruption warning was triggered"
    assert [taint.key for taint in simulation.snapshot().nodes["n"].taints] == ["karpenter.sh/disrupted"]
    # Not the offering that was just taken back.
    assert machines(after(simulation, SECOND)) == {
        "n": "s.1 a spot leaving",
        "p-1": "t.1 a spot starting",
    }
    after(simulation, 29 * SECOND)
    assert "n" not in machines(simulation)
    assert where(after(simulation, 16 * SECOND)) == {"a-0": "p-1"}


def test_what_does_not_leave_in_time_is_lost_with_the_machine() -> None:
    simulation = begin([pool("p", SPOT), member("n", "s.1", spot=True)])
    submit(simulation, job("a", pod_notes={"karpenter.sh/do-not-disrupt": "true"}))
    interrupted("n", simulation)
    assert where(after(simulation, NOTICE - SECOND)) == {"a-0": "n"}
    simulation.drain()
    failed = [line for line in lines(after(simulation, SECOND)) if line.what is HistoryEventKind.POD_FAILED]
    assert [(line.pod, line.reason, line.lost_gpu_seconds) for line in failed] == [("ml/a-0", "NodeLost", 120.0)]
    assert "n" not in simulation.snapshot().nodes


def test_budgets_hold_the_drain_back_but_not_the_cloud() -> None:
    budget = PodDisruptionBudget(namespace="ml", name="b", selector=LabelSelector(), max_unavailable="0")
    simulation = begin([pool("p", SPOT), member("n", "s.1", spot=True), budget])
    submit(simulation, job("a"))
    interrupted("n", simulation)
    assert where(after(simulation, NOTICE - SECOND)) == {"a-0": "n"}
    assert "n" not in after(simulation, SECOND).snapshot().nodes


def _lost(told: Iterable[HistoryEvent]) -> tuple[float, float]:
    """GPU-hours and USD of work, whoever lost it."""
    found = lost_by(told).values()
    return sum(lost.gpu_hours for lost in found), sum(lost.cost for lost in found)


@pytest.mark.parametrize(("checkpoint", "lost"), [(None, 35.0), (10 * MINUTE, 5.0), (7 * MINUTE, 0.0)])
def test_what_was_done_since_the_last_checkpoint_is_lost(checkpoint: Span | None, lost: float) -> None:
    simulation = begin([pool("p", SPOT), member("n", "s.4", spot=True)])
    submit(simulation, job("a", 4, checkpoint=checkpoint))
    interrupted("n", after(simulation, 35 * MINUTE))
    assert _lost(line for line in lines(simulation) if line.reason == "SpotInterruption")[0] == pytest.approx(
        lost * 4 / 60
    )


@pytest.mark.parametrize(("takes", "lost"), [("20s", 0.0), ("30s", 0.0), ("31s", 35.0)])
def test_a_checkpoint_on_notice_saves_all_if_there_is_time_to_write_it(takes: str, lost: float) -> None:
    """The pod is killed 30 s after it is told."""
    simulation = begin([pool("p", SPOT), member("n", "s.1", spot=True)])
    submit(simulation, job("a", notes={"gpuconsole.io/checkpoint-on-notice": takes}))
    interrupted("n", after(simulation, 35 * MINUTE))
    assert _lost(lines(simulation))[0] == pytest.approx(lost / 60)


def test_lost_work_is_paid_at_the_price_of_the_machine() -> None:
    """A spot machine of 4 GPUs in zone a is 1.50 USD an hour; it ran half an hour for nothing."""
    simulation = begin([pool("p", SPOT, types("s.4"))])
    submit(simulation, job("a", 4))
    interrupted("p-1", after(simulation, 46 * SECOND + 30 * MINUTE))
    assert _lost(lines(simulation))[1] == pytest.approx(0.75)


@pytest.mark.parametrize(("priority", "kind"), [(99, "t.1 a spot"), (100, "s.1 a on-demand")])
def test_critical_work_goes_on_on_demand_once_it_lost_a_spot_machine(priority: int, kind: str) -> None:
    spot = SpotPolicy(interruptions=0, critical=100)
    simulation = begin([pool("p", EITHER, types("s.1", "t.1"))], policy(spot=spot))
    submit(simulation, job("a", priority=priority))
    assert machines(after(simulation, MINUTE)) == {"p-1": "s.1 a spot ready"}
    interrupted("p-1", simulation)
    after(simulation, MINUTE)
    assert machines(simulation) == {"p-2": f"{kind} ready"}
    assert where(simulation) == {"a-0": "p-2"}


def test_where_spot_is_not_to_be_had_it_is_bought_on_demand() -> None:
    capacity = policy().capacity
    nothing = replace(capacity, unavailable=("*/*/spot",))
    simulation = begin([pool("p", EITHER, types("s.1"))], policy(nothing))
    submit(simulation, job("a"))
    assert machines(after(simulation, MINUTE)) == {"p-1": "s.1 a on-demand ready"}


def test_fixed_nodes_stay_until_the_cloud_takes_them() -> None:
    simulation = begin([member("n", "s.1", spot=True), member("m", "s.1")], policy(FIXED))
    submit(simulation, job("a"), job("b"))
    interrupted("n", simulation)
    after(simulation, NOTICE - SECOND)
    assert simulation.snapshot().nodes["n"].unschedulable
    assert list(after(simulation, SECOND).snapshot().nodes) == ["m"]


def test_a_group_grows_again_for_what_its_machine_ran() -> None:
    simulation = begin([], groups(ScalingGroup(name="g", type="s.1", capacity_type="spot")))
    submit(simulation, job("a"))
    after(simulation, 5 * MINUTE)
    interrupted("g-1", simulation)
    after(simulation, NOTICE)
    assert machines(simulation) == {"g-2": "s.1 a spot starting"}
    assert simulation.snapshot().node_groups["g"].interrupted == 1


REFUSED = {
    "m": "node m is not spot capacity: it lacks a label such as karpenter.sh/capacity-type: spot",
    "x": "there is no node x",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_spot_node_is_not_taken_back(name: str) -> None:
    simulation = begin([pool("p", ON_DEMAND), member("m", "s.1")])
    interrupted(name, simulation)
    (line,) = lines(simulation)
    assert (line.what, line.reason, line.message) == (HistoryEventKind.COMMAND_REFUSED, "InterruptSpot", REFUSED[name])


def test_a_node_is_taken_back_once() -> None:
    simulation = begin([pool("p", SPOT), member("n", "s.1", spot=True)])
    submit(simulation, job("a"))
    interrupted("n", interrupted("n", simulation))
    assert lines(simulation)[-1].message == "node n is already being reclaimed"


def test_chance_takes_machines_back_by_the_catalogues_rate_and_the_seed() -> None:
    """A tenth a month is taken back; here a hundred times as often: on average after three days."""
    things: list[Object] = [pool("p", SPOT, types("s.1"), expire_after=None)]

    def moments(seed: int, rate: float) -> list[int]:
        simulation = begin(things, policy(spot=SpotPolicy(interruptions=rate)), seed)
        submit(simulation, job("a", duration=9000 * HOUR))
        after(simulation, 60 * 24 * HOUR)
        return [line.time for line in lines(simulation) if line.reason == "SpotInterrupted"]

    assert moments(1, 100) == moments(1, 100) != moments(2, 100)
    assert 8 < len(moments(1, 100)) < 40
    assert moments(1, 0) == []


@pytest.mark.parametrize(("priority", "second"), [(99, "spot-2"), (100, "sure-1")])
def test_a_group_on_demand_grows_for_critical_work_that_lost_a_spot_machine(priority: int, second: str) -> None:
    both = groups(
        ScalingGroup(name="spot", type="s.1", capacity_type="spot"),
        ScalingGroup(name="sure", type="s.1"),
        expander=Expander.PRICE,
    )
    simulation = begin([], replace(both, spot=SpotPolicy(interruptions=0, critical=100)))
    submit(simulation, job("a", priority=priority))
    assert where(after(simulation, 5 * MINUTE)) == {"a-0": "spot-1"}
    interrupted("spot-1", simulation)
    assert where(after(simulation, 10 * MINUTE)) == {"a-0": second}
