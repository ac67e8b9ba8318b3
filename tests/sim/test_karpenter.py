"""Karpenter buys nodes for pods that wait, and lets nodes go that cost more than they need."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.autoscaling import NodePool, NodePoolBudget, load
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, parse_time
from gpuconsole.model.cluster import Pod, PodDisruptionBudget, PodPhase
from gpuconsole.model.commands import Delete
from gpuconsole.model.labels import LabelSelector, Taint
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.sim.autoscaling.disruption import EvictionAllowances, allowed_disruptions
from gpuconsole.sim.autoscaling.provisioning import choose_offering, offerings_of
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SpotPolicy
from gpuconsole.sim.run_times import LogNormal
from tests.support.autoscaled_clusters import (
    ALL,
    EITHER,
    KARPENTER,
    ON_DEMAND,
    SPOT,
    after,
    begin,
    job,
    machines,
    member,
    policy,
    pool,
    said,
    types,
    where,
)
from tests.support.sim_cluster import START, queue, start, submit
from tests.support.sim_cluster import job as team_job

SPREAD = PlacementPolicy(score="spread")


# Buying


def test_a_node_takes_its_pod_46_seconds_after_it_came() -> None:
    simulation = begin([pool()])
    submit(simulation, job("a"))
    assert machines(after(simulation, SECOND)) == {"p-1": "s.1 a on-demand starting"}
    assert where(after(simulation, 44 * SECOND)) == {"a-0": ""}
    assert where(after(simulation, SECOND)) == {"a-0": "p-1"}


def test_pods_that_come_within_a_second_of_each_other_are_one_batch_of_ten_seconds_at_most() -> None:
    simulation = begin([pool()])
    for number in range(40):
        submit(simulation, job(f"j{number}"))
        simulation.advance(simulation.now + SECOND // 2)
        assert bool(machines(simulation)) == (number >= 19), number


def test_pods_go_together_on_the_cheapest_machine_that_takes_them_all() -> None:
    simulation = begin([pool()])
    submit(simulation, job("a", pods=3))
    assert machines(after(simulation, SECOND)) == {"p-1": "s.4 a on-demand starting"}


def test_a_pod_that_fits_on_a_machine_on_its_way_buys_none() -> None:
    simulation = begin([pool("p", ON_DEMAND, types("s.4"))])
    submit(simulation, job("a"))
    after(simulation, 10 * SECOND)
    submit(simulation, job("b"))
    assert where(after(simulation, 40 * SECOND)) == {"a-0": "p-1", "b-0": "p-1"}
    assert list(machines(simulation)) == ["p-1"]


def test_the_pool_of_higher_weight_is_tried_first() -> None:
    simulation = begin([pool("cheap"), pool("loved", ON_DEMAND, types("t.1"), weight=50)])
    submit(simulation, job("a"), job("wide", 4))
    assert machines(after(simulation, SECOND)) == {
        "cheap-1": "s.4 a on-demand starting",
        "loved-1": "t.1 a on-demand starting",
    }


def test_a_pool_without_a_word_of_capacity_types_buys_on_demand() -> None:
    simulation = begin([pool("p", types("s.1"))])
    submit(simulation, job("a"))
    assert machines(after(simulation, SECOND)) == {"p-1": "s.1 a on-demand starting"}


def test_spot_comes_before_on_demand_where_both_may_be() -> None:
    simulation = begin([pool("p", EITHER)])
    submit(simulation, job("a"))
    assert machines(after(simulation, SECOND)) == {"p-1": "s.1 a spot starting"}


def test_spot_machines_are_spread_over_families_and_zones() -> None:
    simulation = begin([pool("p", SPOT, types("s.1", "t.1"))], policy(spot=SpotPolicy(interruptions=0, diversity=0.3)))
    for number in range(3):
        submit(simulation, job(f"j{number}"))
        after(simulation, 2 * SECOND)
    assert [text.rpartition(" spot")[0] for text in machines(simulation).values()] == ["s.1 a", "t.1 a", "s.1 b"]


def test_limits_bound_what_a_pool_buys() -> None:
    simulation = begin([pool("p", ON_DEMAND, types("s.1"), limits={"nvidia.com/gpu": 2})])
    submit(simulation, job("a"), job("b"), job("c"))
    after(simulation, MINUTE)
    assert sorted(where(simulation).values()) == ["", "p-1", "p-2"]
    assert said(simulation)[0] == (
        "0:01 ml/c-0 FailedScheduling: Failed to schedule pod, "
        'all available instance types exceed limits for nodepool: "p"'
    )


def test_a_pod_that_no_machine_holds_is_told_so() -> None:
    simulation = begin([pool("p", ON_DEMAND, types("s.1"))])
    submit(simulation, job("a", 4))
    assert said(after(simulation, MINUTE)) == [
        '0:01 ml/a-0 FailedScheduling: Failed to schedule pod, incompatible with nodepool "p", '
        'no instance type has enough resources, requests={"nvidia.com/gpu":"4", "cpu":"1", "memory":"1Gi"}'
    ]


def test_a_taint_of_the_pool_keeps_pods_away_that_do_not_tolerate_it() -> None:
    simulation = begin([pool("p", taints=(Taint("gpu", "yes"),))])
    submit(simulation, job("a"))
    assert said(after(simulation, MINUTE)) == [
        '0:01 ml/a-0 FailedScheduling: Failed to schedule pod, incompatible with nodepool "p", '
        "incompatible requirements"
    ]


def test_what_cannot_be_had_is_shunned_and_the_next_best_taken() -> None:
    capacity = replace(KARPENTER, unavailable=("s.1/a/*", "s.1/b/on-demand"))
    simulation = begin([pool("p", ON_DEMAND, types("s.1", "t.1"))], policy(capacity))
    submit(simulation, job("a"))
    assert machines(after(simulation, SECOND)) == {"p-1": "t.1 a on-demand starting"}


def test_nothing_to_be_had_is_tried_again_after_three_minutes() -> None:
    simulation = begin([pool()], policy(replace(KARPENTER, unavailable=("*/*/*",))))
    submit(simulation, job("a"))
    lines = said(after(simulation, 10 * MINUTE))
    assert machines(simulation) == {}
    assert lines == [
        "0:01  InsufficientCapacityError: insufficient capacity, all requested instance types were unavailable during "
        "launch"
    ]


@pytest.mark.parametrize(("quota", "bought"), [(0, []), (1, ["p-1"])])
def test_a_job_moves_something_only_when_kueue_lets_it_have_pods(quota: int, bought: list[str]) -> None:
    things = [ResourceFlavor(name="a100"), pool(), *queue("red", quota)]
    simulation = start(things, replace(policy(), kueue=KueueConfig()))
    submit(simulation, team_job("a"))
    assert list(machines(after(simulation, MINUTE))) == bought


# Budgets

MONDAY_NOON = parse_time("2026-01-05T12:00:00Z")
BUDGETS: dict[str, tuple[tuple[NodePoolBudget, ...], str, int, int, int]] = {
    "ten percent of nine nodes is one": ((NodePoolBudget(),), "Empty", 9, 0, 1),
    "a part is rounded up": ((NodePoolBudget("20%"),), "Empty", 11, 0, 3),
    "those that go already count": ((NodePoolBudget("3"),), "Empty", 9, 2, 1),
    "never below none": ((NodePoolBudget("1"),), "Empty", 9, 4, 0),
    "the strictest counts": ((NodePoolBudget("5"), NodePoolBudget("2")), "Empty", 9, 0, 2),
    "a budget for drift says nothing of emptiness": ((NodePoolBudget("0", ("Drifted",)),), "Empty", 9, 0, 2**31 - 1),
    "a budget for drift says something of drift": ((NodePoolBudget("0", ("Drifted",)),), "Drifted", 9, 0, 0),
    "within its window": ((NodePoolBudget("0", (), "0 9 * * 1-5", 8 * HOUR),), "Empty", 9, 0, 0),
    "at the moment when its window ends": (
        (NodePoolBudget("0", (), "0 9 * * 1-5", 3 * HOUR),),
        "Empty",
        9,
        0,
        2**31 - 1,
    ),
    "at the moment when its window begins": ((NodePoolBudget("0", (), "0 12 * * *", HOUR),), "Empty", 9, 0, 0),
    "on another day": ((NodePoolBudget("0", (), "0 9 * * sat", 8 * HOUR),), "Empty", 9, 0, 2**31 - 1),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_budget(name: str) -> None:
    budgets, reason, total, disrupting, wanted = BUDGETS[name]
    assert allowed_disruptions(NodePool(name="p", budgets=budgets), reason, total, disrupting, MONDAY_NOON) == wanted


# Letting go


def test_an_empty_node_goes_after_its_peace_the_next_look_and_the_check() -> None:
    simulation = begin([pool(consolidate_after="1m"), member("n", "s.1")])
    assert machines(after(simulation, 74 * SECOND)) == {"n": "s.1 a on-demand ready"}
    assert machines(after(simulation, SECOND)) == {}
    assert said(simulation) == ["1:15 n DisruptionTerminating: Disrupting Node: Empty"]


def test_a_pod_that_comes_while_an_empty_node_is_checked_keeps_it() -> None:
    simulation = begin([pool(consolidate_after="1m"), member("n", "s.1")])
    after(simulation, 65 * SECOND)
    submit(simulation, job("a"))
    assert machines(after(simulation, HOUR)) == {"n": "s.1 a on-demand ready"}


@pytest.mark.parametrize(("policy_name", "gone"), [("WhenEmpty", False), ("WhenEmptyOrUnderutilized", True)])
def test_a_node_with_little_on_it_goes_only_where_the_policy_says_so(policy_name: str, gone: bool) -> None:
    pools = pool(consolidate_after="1m", consolidation_policy=policy_name)
    simulation = begin([pools, member("n", "s.4")])
    submit(simulation, job("a"))
    after(simulation, 5 * MINUTE)
    assert (list(machines(simulation)) == ["p-1"]) == gone
    if not gone:
        assert said(simulation) == [
            '1:00 n Unconsolidatable: NodePool "p" has consolidation policy WhenEmpty, but node is not empty'
        ]


def test_a_cheaper_node_is_ready_before_the_dear_one_is_drained() -> None:
    simulation = begin([pool(consolidate_after="1m"), member("n", "s.4")])
    submit(simulation, job("a", duration=HOUR))
    assert machines(after(simulation, 75 * SECOND)) == {
        "n": "s.4 a on-demand leaving",
        "p-1": "s.1 a on-demand starting",
    }
    node = simulation.snapshot().nodes["n"]
    assert [taint.key for taint in node.taints] == ["karpenter.sh/disrupted"]
    assert where(after(simulation, 44 * SECOND)) == {"a-0": "n"}
    after(simulation, 31 * SECOND)
    assert where(simulation) == {"a-0": "p-1"}
    assert machines(simulation) == {"p-1": "s.1 a on-demand ready"}
    assert said(simulation) == [
        "1:15 p-1 DisruptionLaunching: Launching NodeClaim: Underutilized",
        "2:00 n DisruptionTerminating: Disrupting Node: Underutilized",
    ]


def test_a_node_that_costs_no_more_than_the_next_best_stays() -> None:
    simulation = begin([pool(consolidate_after="1m"), member("n", "s.1")])
    submit(simulation, job("a"))
    assert said(after(simulation, 10 * MINUTE)) == ["1:00 n Unconsolidatable: Can't replace with a cheaper node"]
    assert machines(simulation) == {"n": "s.1 a on-demand ready"}


def test_several_nodes_become_one_that_is_cheaper() -> None:
    things: list[Object] = [pool(consolidate_after="1m"), *(member(f"n{number}", "t.4") for number in range(3))]
    simulation = begin(things)
    submit(simulation, *(job(f"j{number}", 3, cpu=1000) for number in range(3)))
    after(simulation, 30 * SECOND)
    assert set(where(simulation).values()) == {"n0", "n1", "n2"}
    # 3 GPUs each do not fit together: one by one each becomes the cheaper family.
    after(simulation, 20 * MINUTE)
    assert set(machines(simulation).values()) == {"s.4 a on-demand ready"}
    assert len(machines(simulation)) == 3


def test_ten_percent_of_three_nodes_go_one_at_a_time() -> None:
    things: list[Object] = [
        pool(consolidate_after="1m", budgets=(NodePoolBudget(),)),
        *(member(f"n{number}", "s.1") for number in range(3)),
    ]
    simulation = begin(things)
    assert len(machines(after(simulation, 75 * SECOND))) == 2
    assert len(machines(after(simulation, 19 * SECOND))) == 2
    assert len(machines(after(simulation, SECOND))) == 1


def test_a_budget_of_none_blocks_and_says_so() -> None:
    simulation = begin([pool(consolidate_after="1m", budgets=(NodePoolBudget("0"),)), member("n", "s.1")])
    lines = said(after(simulation, HOUR))
    assert lines == [
        "1:00  DisruptionBlocked: No allowed disruptions for disruption reason Empty due to blocking budget"
    ]
    assert list(machines(simulation)) == ["n"]


def test_a_budget_with_a_schedule_lets_nodes_go_when_its_window_is_over() -> None:
    window = (NodePoolBudget("0", (), "0 8 * * *", 30 * MINUTE), NodePoolBudget("100%"))
    simulation = begin([pool(consolidate_after="1m", budgets=window), member("n", "s.1")])
    assert list(machines(after(simulation, 30 * MINUTE))) == ["n"]
    assert list(machines(after(simulation, 90 * SECOND))) == []


def test_spot_is_not_replaced_by_spot_unless_the_gate_says_so() -> None:
    things: list[Object] = [pool("p", SPOT, consolidate_after="1m"), member("n", "s.4", spot=True)]
    refusal = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
    few = (
        "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, "
        "got 2"
    )
    for gate, why in ((False, refusal), (True, few)):
        simulation = begin(things, policy(replace(KARPENTER, spot_to_spot=gate)))
        submit(simulation, job("a"))
        assert said(after(simulation, 10 * MINUTE)) == [f"1:00 n Unconsolidatable: {why}"]
        assert list(machines(simulation)) == ["n"]


def test_on_demand_becomes_spot_where_both_may_be() -> None:
    simulation = begin([pool("p", EITHER, consolidate_after="1m"), member("n", "s.1")])
    submit(simulation, job("a"))
    assert machines(after(simulation, 5 * MINUTE)) == {"p-1": "s.1 a spot ready"}


def test_two_spot_nodes_may_become_one_with_the_gate() -> None:
    things: list[Object] = [
        pool("p", SPOT, consolidate_after="1m"),
        *(member(n, "t.4", spot=True, zone="b") for n in ("m", "n")),
    ]
    simulation = begin(things, replace(policy(replace(KARPENTER, spot_to_spot=True)), placement=SPREAD))
    submit(simulation, job("a", 2), job("b", 2, cpu=2000))
    assert set(where(simulation).values()) == {"m", "n"}
    # Both pods fit on either node: one goes, nothing is bought.
    assert len(machines(after(simulation, 5 * MINUTE))) == 1


def test_a_pod_that_must_not_be_disrupted_keeps_its_node() -> None:
    simulation = begin([pool(consolidate_after="1m"), member("n", "s.4")])
    submit(simulation, job("a", pod_notes={"karpenter.sh/do-not-disrupt": "true"}))
    assert said(after(simulation, 10 * MINUTE))[0].endswith(
        'n DisruptionBlocked: Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=ml/a-0)'
    )
    assert list(machines(simulation)) == ["n"]


def test_a_disruption_budget_of_pods_keeps_a_node() -> None:
    budget = PodDisruptionBudget(namespace="ml", name="b", selector=LabelSelector({"app": "a"}), max_unavailable="0")
    simulation = begin([pool(consolidate_after="1m"), member("n", "s.4"), budget])
    submit(simulation, job("a", labels={"app": "a"}))
    assert said(after(simulation, 10 * MINUTE))[0].endswith(
        "n DisruptionBlocked: PDB prevents pod evictions (PodDisruptionBudget=ml/b)"
    )
    simulation.submit(Delete("pod_disruption_budgets", "ml/b"))
    assert list(machines(after(simulation, 10 * MINUTE))) == ["p-1"]


def test_a_node_that_is_not_what_its_pool_says_any_more_is_replaced() -> None:
    simulation = begin([pool("p", types("s.1", "t.1")), member("n", "s.1")])
    submit(simulation, job("a"))
    after(simulation, MINUTE)
    assert list(machines(simulation)) == ["n"]
    submit(simulation, pool("p", types("t.1")))
    assert machines(after(simulation, 10 * SECOND)) == {
        "n": "s.1 a on-demand leaving",
        "p-1": "t.1 a on-demand starting",
    }
    assert machines(after(simulation, 2 * MINUTE)) == {"p-1": "t.1 a on-demand ready"}


def test_an_old_node_expires_whatever_budgets_say() -> None:
    simulation = begin([pool(expire_after=HOUR, budgets=(NodePoolBudget("0"),)), member("n", "s.1")])
    submit(simulation, job("a"))
    assert list(machines(after(simulation, HOUR - SECOND))) == ["n"]
    assert said(after(simulation, SECOND))[-1] == "60:00 n DisruptionTerminating: Disrupting Node: Expired"
    after(simulation, 46 * SECOND)
    assert where(simulation) == {"a-0": "p-1"}


def test_the_balanced_policy_weighs_what_is_saved_against_what_is_disturbed() -> None:
    """Two of four GPUs in use by two pods: 1.4 of 3.6 USD saved for all of the disruption is 0.39, less than a half."""
    costs = pool(consolidate_after="1m", consolidation_policy="Balanced")
    simulation = begin([costs, member("n", "t.4"), member("m", "s.1", zone="b")])
    submit(simulation, job("a", 4), job("b"))
    assert said(after(simulation, 5 * MINUTE))[0] == (
        "1:00 n ConsolidationRejected: score 0.16 < threshold 0.50 (k: 2, savings 8.0%, disruption 50.0%)"
    )
    assert sorted(machines(simulation)) == ["m", "n"]


def test_a_pool_with_a_fixed_number_of_nodes_is_left_alone() -> None:
    simulation = begin([pool(consolidate_after="1m", replicas=1, budgets=ALL), member("n", "s.1")])
    assert list(machines(after(simulation, HOUR))) == ["n"]


def test_what_a_look_costs_nobody_is_not_looked_at() -> None:
    """Without anything that could happen, no timer is left."""
    simulation = begin([pool(expire_after=None)])
    after(simulation, MINUTE)
    assert simulation.next_time is None
    assert simulation.now == START + MINUTE


@pytest.mark.parametrize(("grace", "gone"), [(None, False), (10 * MINUTE, True)])
def test_a_drain_ends_when_the_pools_grace_is_over(grace: int | None, gone: bool) -> None:
    """The node expires after an hour; a pod that must not be disrupted stays until then, and goes down with it."""
    simulation = begin([pool(expire_after=HOUR, termination_grace=grace), member("n", "s.1")])
    submit(simulation, job("a", pod_notes={"karpenter.sh/do-not-disrupt": "true"}))
    assert where(after(simulation, HOUR + 10 * MINUTE - SECOND)) == {"a-0": "n"}
    assert ("n" not in machines(after(simulation, SECOND))) == gone


@pytest.mark.parametrize(("grace", "gone"), [(None, False), (10 * MINUTE, True)])
def test_drift_overrules_pods_that_must_not_be_disrupted_only_with_a_grace(grace: int | None, gone: bool) -> None:
    simulation = begin([pool("p", types("s.1", "t.1"), termination_grace=grace), member("n", "s.1")])
    submit(simulation, job("a", pod_notes={"karpenter.sh/do-not-disrupt": "true"}))
    submit(simulation, pool("p", types("t.1"), termination_grace=grace))
    assert ("n" not in machines(after(simulation, 15 * MINUTE))) == gone


def test_a_cluster_goes_on_from_its_snapshot() -> None:
    """A machine that was starting joins, a node that was being drained is drained."""
    simulation = begin([pool("p", types("s.1"), expire_after=HOUR), member("n", "s.1")])
    submit(simulation, job("a", pod_notes={"karpenter.sh/do-not-disrupt": "true"}))
    after(simulation, HOUR)
    submit(simulation, job("b"))
    after(simulation, SECOND)
    starting = {"p-1": "s.1 a on-demand starting", "p-2": "s.1 a on-demand starting"}
    assert machines(simulation) == {"n": "s.1 a on-demand leaving", **starting}
    later = Simulation.from_snapshot(simulation.snapshot(), policy=simulation.policy, seed=1)
    simulation.submit(Delete("jobs", "Job/ml/a"))
    later.submit(Delete("jobs", "Job/ml/a"))
    ready = {"p-1": "s.1 a on-demand ready", "p-2": "s.1 a on-demand ready"}
    assert machines(after(later, MINUTE)) == machines(after(simulation, MINUTE)) == ready


def test_why_a_node_stays_is_said_every_quarter_of_an_hour_at_most() -> None:
    simulation = begin([pool(consolidate_after="1m"), member("n", "s.1")])
    submit(simulation, job("a"))
    after(simulation, 2 * MINUTE)
    submit(simulation, pool(consolidate_after="Never"))
    after(simulation, 10 * MINUTE)
    submit(simulation, job("b", 9))
    after(simulation, 10 * MINUTE)
    submit(simulation, job("c", 9))
    lines = [line for line in said(after(simulation, MINUTE)) if "Unconsolidatable" in line]
    assert lines == [
        "1:00 n Unconsolidatable: Can't replace with a cheaper node",
        '22:10 n Unconsolidatable: NodePool "p" has consolidation disabled',
    ]


def test_pods_are_not_moved_to_a_machine_that_still_starts() -> None:
    slow = replace(KARPENTER, startup=LogNormal(median=10 * MINUTE))
    simulation = begin([pool("p", ON_DEMAND, types("s.4"), consolidate_after="1m"), member("n", "s.4")], policy(slow))
    submit(simulation, job("a"), job("b", selector={"topology.kubernetes.io/zone": "b"}))
    lines = said(after(simulation, 2 * MINUTE))
    assert (
        lines[-1]
        == "1:00 n Unconsolidatable: Not all pods would schedule, ml/a-0 => would schedule against uninitialized "
        "node"
    )


def test_a_node_is_not_consolidated_to_two() -> None:
    large = member("n", "s.4")
    room = {**large.allocatable, "cpu": 64_000}
    simulation = begin([pool(consolidate_after="1m"), replace(large, allocatable=room, capacity=room)])
    submit(simulation, job("a", cpu=20_000), job("b", cpu=20_000))
    assert said(after(simulation, 5 * MINUTE)) == [
        "1:00 n Unconsolidatable: Can't remove without creating 2 candidates"
    ]


def test_a_drifted_node_may_be_replaced_by_several() -> None:
    simulation = begin([pool("p", types("s.4", "s.1")), member("n", "s.4")])
    submit(simulation, job("a"), job("b"))
    submit(simulation, pool("p", types("s.1")))
    assert machines(after(simulation, 2 * MINUTE)) == {"p-1": "s.1 a on-demand ready", "p-2": "s.1 a on-demand ready"}


def test_of_drifted_nodes_an_empty_one_goes_first() -> None:
    one = (NodePoolBudget("1"),)
    simulation = begin([pool("p", types("s.1", "t.1"), budgets=one), member("m", "s.1"), member("n", "s.1")])
    submit(simulation, job("a"))
    assert where(simulation) == {"a-0": "m"}
    submit(simulation, pool("p", types("t.1"), budgets=one))
    assert machines(after(simulation, 10 * SECOND)) == {"m": "s.1 a on-demand ready"}


def test_small_pods_go_on_the_emptiest_planned_node() -> None:
    simulation = begin([pool("p", ON_DEMAND, types("s.4"))])
    submit(simulation, job("a", cpu=20_000), job("b", cpu=20_000), job("c", 2), job("d", 2))
    assert len(machines(after(simulation, MINUTE))) == 2
    homes = where(simulation)
    assert sorted(homes.values()) == ["p-1", "p-1", "p-2", "p-2"]


def test_spot_that_is_rarely_taken_back_is_preferred_to_what_is_hardly_cheaper() -> None:
    sold = load(
        "zones: [a]\ntypes:\n"
        "  s.1: {cpu: 8, memory: 8Gi, onDemand: 9, spot: 0.40, interrupted: 20}\n"
        "  t.1: {cpu: 8, memory: 8Gi, onDemand: 9, spot: 0.42, interrupted: 5}\n"
    )
    best = choose_offering(offerings_of(pool("p", SPOT), sold), (), lambda offer: True, SpotPolicy())
    assert best is not None
    assert best.offering.key == "t.1/a/spot"


def test_a_drain_takes_no_more_pods_at_once_than_a_budget_allows() -> None:
    budget = PodDisruptionBudget(namespace="ml", name="b", selector=LabelSelector({"app": "a"}), max_unavailable="1")
    simulation = begin([pool(expire_after=HOUR), member("n", "s.4"), budget])
    submit(simulation, *(job(name, labels={"app": "a"}) for name in "abc"))
    assert set(where(after(simulation, HOUR)).values()) == {"n"}
    leaving = [pod.name for pod in simulation.snapshot().pods.all() if pod.deleted]
    assert leaving == ["a-0"]
    after(simulation, 5 * MINUTE)
    assert "n" not in machines(simulation)


ALLOWED = {
    "half of three, rounded up, stay": ("50%", "", 1),
    "half of three, rounded up, may go": ("", "50%", 2),
    "two stay": ("2", "", 1),
    "none stays": ("", "100%", 3),
    "more than there are": ("9", "", 0),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_a_budget_of_pods_lets_so_many_go(name: str) -> None:
    least, most, wanted = ALLOWED[name]
    budget = PodDisruptionBudget(
        namespace="ml", name="b", selector=LabelSelector(), min_available=least, max_unavailable=most
    )
    pods = [Pod(namespace="ml", name=f"p{n}", phase=PodPhase.RUNNING) for n in range(3)]
    allowances = EvictionAllowances((budget,), [*pods, Pod(namespace="other", name="x", phase=PodPhase.RUNNING)])
    gone = 0
    for pod in pods:
        if not allowances.blocker(pod):
            allowances.note_eviction(pod)
            gone += 1
    assert gone == wanted


FAMILY = "karpenter.k8s.aws/instance-family"


def test_a_pool_that_wants_a_choice_buys_only_where_there_is_one() -> None:
    """Of two families either would do for one GPU; with a requirement of one family there is no choice of two."""
    wide = pool(min_values={FAMILY: 2})
    simulation = begin([wide])
    submit(simulation, job("a"))
    assert len(machines(after(simulation, MINUTE))) == 1
    narrow = begin([replace(wide, requirements=(ON_DEMAND, (FAMILY, "In", ("s",))))])
    submit(narrow, job("a"))
    lines = said(after(narrow, MINUTE))
    assert machines(narrow) == {}
    assert any("minValues requirement is not met for label(s)" in line for line in lines)
