"""What borrowed and lent quota costs: parts of the cost rates of workloads, and equal within each cohort."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.insight.cost.report import NO_LOANS, LoanRates, loan_rates
from gpuconsole.insight.sharing.fair_shares import over_nominal
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, Quota
from gpuconsole.model.resources import GPU
from gpuconsole.model.workloads import Workload
from tests.support.snapshots import A100, ORG, cluster_queue, cohort, group, running, world

PRICE = 2.5
"""USD per GPU-hour."""


def rates(*objects: Object) -> LoanRates:
    """The rates where each workload holds all the GPUs of its quota."""
    return loan_rates(world(objects), cost(*objects))


def cost(*objects: Object) -> dict[str, float]:
    found = {}
    for one in objects:
        if isinstance(one, Workload) and one.admission is not None:
            found[one.key] = PRICE * sum(pods.usage[GPU] for pods in one.admission.pod_sets)
    return found


def test_the_gpus_above_nominal_quota_cost_what_their_workload_costs_per_gpu() -> None:
    # Research uses 12 of its 8 GPUs; 4 of the 6 of rlhf are prod's.
    assert rates(*ORG) == LoanRates(borrowed={"research/rlhf": 4 * PRICE}, lent={"cq-prod": 4 * PRICE})


def test_two_lenders_share_the_cost_in_proportion_to_what_they_lend() -> None:
    found = rates(
        A100,
        cluster_queue("a", "org", Quota(nominal=4)),
        cluster_queue("b", "org", Quota(nominal=8)),
        cluster_queue("c", "org", Quota(nominal=2)),
        running("w", "c/lq", 8, "c"),
    )
    assert found == LoanRates(borrowed={"c/w": 6 * PRICE}, lent={"a": 2 * PRICE, "b": 4 * PRICE})


def test_the_own_quota_of_a_cohort_is_lent_first() -> None:
    found = rates(
        A100, cohort("org", quota=Quota(nominal=3)), cluster_queue("c", "org", Quota()), running("w", "c/lq", 2, "c")
    )
    assert found == LoanRates(borrowed={"c/w": 2 * PRICE}, lent={"org": 2 * PRICE})


def test_usage_that_nobody_lends_is_not_borrowed() -> None:
    alone = (A100, cluster_queue("c", "", Quota(nominal=2)), running("w", "c/lq", 8, "c"))
    assert rates(*alone) == NO_LOANS
    reduced = (
        A100,
        cluster_queue("a", "org", Quota(nominal=1)),
        cluster_queue("c", "org", Quota(nominal=2)),
        running("w", "c/lq", 8, "c"),
    )
    assert rates(*reduced) == LoanRates(borrowed={"c/w": PRICE}, lent={"a": PRICE})


def test_quota_of_pods_that_hold_no_gpus_yet_costs_nothing() -> None:
    assert loan_rates(world(ORG), {}) == NO_LOANS


def test_borrowed_rates_add_up_by_a_name_of_the_workload() -> None:
    found = LoanRates(borrowed={"a/x": 1.0, "a/y": 2.0, "b/z": 4.0}, lent={})
    assert found.borrowed_by(lambda key: key.partition("/")[0]) == {"a": 3.0, "b": 4.0}


@st.composite
def shared_clusters(draw: st.DrawFn) -> list[Object]:
    """Two trees of cohorts with queues and running workloads in two flavors, which may use more than all quota."""
    amounts = st.integers(0, 9)
    objects: list[Object] = [A100]
    for root in ("x", "y"):
        objects += [cohort(root, quota=Quota(nominal=draw(amounts))), cohort(f"{root}-child", root)]
        for number in range(draw(st.integers(1, 4))):
            name = f"{root}{number}"
            quotas = {flavor: Quota(nominal=draw(amounts)) for flavor in ("a100", "l4")}
            parent = draw(st.sampled_from([root, f"{root}-child"]))
            objects.append(cluster_queue(name, parent, resource_groups=(group(quotas),)))
            for work, gpus in enumerate(draw(st.lists(st.integers(1, 9), max_size=3))):
                objects.append(running(f"w{work}", f"{name}/lq", gpus, name, minutes_ago=work))
    return objects


@given(shared_clusters())
def test_what_is_borrowed_is_lent_in_each_cohort_and_is_a_part_of_the_cost(objects: list[Object]) -> None:
    whole, found, over = cost(*objects), rates(*objects), over_nominal(world(objects))
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for place, amounts in enumerate((found.borrowed, found.lent)):
        for name, usd in amounts.items():
            sums[name[0]][place] += usd
    for borrowed, lent in sums.values():
        assert borrowed == pytest.approx(lent)
    assert all(0 < usd <= whole[key] + 1e-9 for key, usd in found.borrowed.items())
    by_queue = found.borrowed_by(lambda key: key.partition("/")[0])
    for queue, usd in by_queue.items():
        assert usd <= PRICE * sum(over[queue].values()) + 1e-9
    nominal = {one.name: one.quotas() for one in objects if isinstance(one, ClusterQueue)}
    for lender, usd in found.lent.items():
        if lender in nominal:
            assert usd <= PRICE * sum(quota.nominal for quota in nominal[lender].values()) + 1e-9
