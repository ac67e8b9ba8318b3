"""What cycles keep of what they found changes no decision: without it they decide the same."""

from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.model.events import AdmissionDecision, Preempt, Refuse
from gpuconsole.model.queues import BorrowWithinCohort, ClusterQueue, ClusterQueuePreemption, Quota
from gpuconsole.scheduling.kueue import context as cycle_context
from gpuconsole.scheduling.kueue import nomination, nomination_cache
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.scheduling.kueue.test_preemption_upper_bound import members
from tests.support.kueue_cluster import ANY, LOWER, World, cohort, queue, workload

Change = tuple[str, int, int, int]
changes = st.tuples(
    st.sampled_from(("submit", "submit", "submit", "finish", "release", "priority", "quota", "fork")),
    st.integers(0, 30),
    st.integers(1, 5),
    st.integers(0, 2),
)


def queues_of(listed: list[tuple[Quota, ClusterQueuePreemption, str]]) -> list[ClusterQueue]:
    return [
        queue(
            f"q{number}",
            {"f": quota, "g": quota.nominal},
            cohort=where,
            within=preemption.within_cluster_queue,
            reclaim=preemption.reclaim_within_cohort,
            borrow=preemption.borrow_within_cohort,
        )
        for number, (quota, preemption, where) in enumerate(listed)
    ]


def change(world: World, queues: list[ClusterQueue], step: int, what: Change) -> None:
    """Something happens to a workload or to a queue; a fork lives for a while and is forgotten."""
    kind, which, size, priority = what
    target = queues[which % len(queues)]
    names = sorted(name for name, known in world.workloads.items() if not known.finished)
    match kind:
        case "submit":
            for number, door in enumerate((target, queues[size % len(queues)], target)):
                rank = (priority + number) % 3
                world.apply(workload(f"w{step}-{number}", door.name, size, priority=rank, created=step // 4))
        case "finish" if names:
            world.finish(names[which % len(names)])
        case "priority" if names:
            name = names[which % len(names)]
            world.apply(replace(world.workloads[name], priority=priority))
        case "quota":
            flavors = queue(target.name, {"f": size, "g": priority}).resource_groups
            world.apply(replace(target, resource_groups=flavors))
            world.session.requeue_inadmissible(world.now)
        case "release":
            world.release()
        case "fork":
            twin = world.session.fork()
            twin.apply(workload("other", target.name, size, priority=2), world.now)
            for _ in range(3):
                twin.run_cycle(world.now)


def decided(
    listed: list[tuple[Quota, ClusterQueuePreemption, str]], steps: list[Change], config: KueueConfig
) -> list[AdmissionDecision]:
    queues = queues_of(listed)
    cohorts = cohort("r", 2), cohort("x", parent="r"), cohort("y", parent="x")
    world = World(*cohorts, *queues, config=config, flavors="fg", victims_keep_quota=True)
    found: list[AdmissionDecision] = []
    for step, what in enumerate(steps):
        change(world, queues, step, what)
        for _ in range(3):
            found += world.cycle()
    return found


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(members, min_size=2, max_size=4),
    st.lists(changes, min_size=4, max_size=20),
    st.booleans(),
    st.booleans(),
)
def test_what_was_found_earlier_is_what_would_be_found_anew(
    listed: list[tuple[Quota, ClusterQueuePreemption, str]], steps: list[Change], fair: bool, again: bool
) -> None:
    gates = {"RecomputeAssignmentUponPreemptionTargetsOverlap": again}
    config = KueueConfig(fair_sharing=fair, gates=gates)
    with (
        patch.object(cycle_context, "_entries_of", lambda kept, key: {}),
        patch.object(nomination_cache, "put_bounded", lambda known, key, proposal: None),
    ):
        anew = decided(listed, steps, config)
    assert decided(listed, steps, config) == anew


def test_a_head_that_waits_for_its_victims_is_not_looked_at_anew() -> None:
    world = World(queue("a", 4, cohort="c", reclaim=ANY), queue("b", 4, cohort="c", within=LOWER))
    world.run(workload("over", "b", 6), admitted=True)
    world.apply(workload("p", "a", 4))
    with patch.object(nomination, "compute_nomination", wraps=nomination.compute_nomination) as looked:
        first = world.session.run_cycle(world.now)
        told = [decision for decision in first if isinstance(decision, Refuse)]
        again = [world.session.run_cycle(world.now) for _ in range(3)]
        assert looked.call_count == 1
        world.apply(workload("small", "b", 1))
        world.finish("over")
        after = world.session.run_cycle(world.now)
    assert [decision.workload for decision in first] == ["team/over", "team/p"]
    assert again == [told, told, told]
    assert [decision.workload for decision in after] == ["team/p", "team/small"]


def test_of_two_heads_alike_only_one_may_have_somebody_to_evict() -> None:
    # The queues are equal, and so is what is used of them; only who uses it differs.
    world = World(queue("a", 4, cohort="c", within=LOWER), queue("b", 4, cohort="c", within=LOWER))
    world.run(workload("urgent", "a", 4, priority=5), workload("idle", "b", 4), admitted=True)
    world.apply(workload("p", "a", 4, priority=3), workload("q", "b", 4, priority=3))
    decisions = world.session.run_cycle(world.now)
    assert [d.workload for d in decisions if isinstance(d, Preempt)] == ["team/idle"]


def test_what_cannot_be_freed_for_a_large_one_may_be_for_a_smaller() -> None:
    may_borrow = BorrowWithinCohort(LOWER)
    world = World(queue("a", 6, cohort="c", reclaim=ANY, borrow=may_borrow), queue("b", 4, cohort="c"))
    # b may lose one of its two, then it borrows nothing: of ten a can have four beside its own three.
    world.run(workload("own", "a", 3), workload("over", "b", 3), workload("more", "b", 3), admitted=True)
    world.apply(workload("large", "a", 5, priority=1), workload("smaller", "a", 4, priority=1, created=1))
    found = [decision for _ in range(2) for decision in world.session.run_cycle(world.now)]
    assert [(d.workload, d.by) for d in found if isinstance(d, Preempt)] == [("team/more", "team/smaller")]


def test_what_is_found_while_somebody_is_taken_for_gone_is_not_kept() -> None:
    world = World(queue("a", 4, cohort="c"), queue("b", 4, cohort="c"))
    world.run(workload("w", "a", 3), admitted=True)
    state = world.session._apply_noted_changes
    context, node = state.context(), state.setup.queues["a"].node
    with context.without_holdings(state.workload_index.holdings_in_preemption_order("a")):
        context.cohort_cache(node)["found"] = "without w"
        context.cluster_queue_cache("a")["found"] = "without w"
    assert (context.cohort_cache(node).get("found"), context.cluster_queue_cache("a").get("found")) == (None, None)
    context.cohort_cache(node)["found"] = "with w"
    assert state.context().cohort_cache(node) == {**context.cohort_cache(node)} != {}
