"""The quick answer that evictions cannot help is never given where a search finds victims."""

from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuconsole.model.queues import BorrowWithinCohort, ClusterQueuePreemption, PreemptionPolicy, Quota
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.preemption import classical
from gpuconsole.scheduling.kueue.preemption.classical import classical_targets
from gpuconsole.scheduling.kueue.preemption.search import PreemptionSearch, cannot_fit_by_preemption
from tests.support.kueue_cluster import ANY, LOWER, NEVER, World, cohort, queue, workload

LIMITS = st.one_of(st.none(), st.integers(0, 6))
quotas = st.builds(Quota, st.integers(0, 6), LIMITS, LIMITS)
policies = st.builds(
    lambda within, reclaim, borrow: ClusterQueuePreemption(
        within, reclaim, BorrowWithinCohort(borrow if reclaim != NEVER else NEVER)
    ),
    st.sampled_from((NEVER, LOWER, PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)),
    st.sampled_from((NEVER, LOWER, ANY)),
    st.sampled_from((NEVER, LOWER)),
)
members = st.tuples(quotas, policies, st.sampled_from(("r", "x", "y")))
held = st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 2), st.integers(0, 3))


def world_of(
    queues: list[tuple[Quota, ClusterQueuePreemption, str]], running: list[tuple[int, int, int, int]]
) -> World:
    """A cluster in which those run that found room when they came."""
    listed = [
        queue(
            f"q{number}",
            {"f": quota},
            cohort=where,
            within=preemption.within_cluster_queue,
            reclaim=preemption.reclaim_within_cohort,
            borrow=preemption.borrow_within_cohort,
        )
        for number, (quota, preemption, where) in enumerate(queues)
    ]
    world = World(cohort("r", 2), cohort("x", parent="r"), cohort("y", parent="x"), *listed)
    for number, (where, size, priority, age) in enumerate(running):
        world.apply(workload(f"w{number}", f"q{where % len(queues)}", size, priority=priority, created=age))
        world.cycle()
    return world


def removable(search: PreemptionSearch) -> bool:
    """True if the search, made in full, ends with victims."""
    with patch.object(classical, "cannot_fit_by_preemption", lambda search: False):
        return bool(classical_targets(search))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(members, min_size=2, max_size=4),
    st.lists(held, max_size=8),
    st.integers(1, 12),
    st.integers(0, 2),
)
def test_no_victims_are_missed(
    queues: list[tuple[Quota, ClusterQueuePreemption, str]],
    running: list[tuple[int, int, int, int]],
    size: int,
    priority: int,
) -> None:
    world = world_of(queues, running)
    state = world.session._apply_noted_changes
    context = state.context()
    column = state.setup.tree.numbers["f", "nvidia.com/gpu"]
    for name, rules in state.setup.queues.items():
        preemptor: Workload = workload("p", name, size, priority=priority, created=2)
        request = WorkloadRequest(preemptor, 10_000, name, state.config)
        search = PreemptionSearch(context, rules, request, frozenset((column,)), [(column, size)])
        assert not (cannot_fit_by_preemption(search) and removable(search))


def test_a_tree_that_could_only_give_too_little_is_known_at_once() -> None:
    world = World(cohort("c"), queue("a", 4, cohort="c", reclaim=ANY), queue("b", 4, cohort="c"))
    world.run(workload("over", "b", 3), workload("more", "b", 3), admitted=True)
    state = world.session._apply_noted_changes
    column = state.setup.tree.numbers["f", "nvidia.com/gpu"]
    request = WorkloadRequest(workload("p", "a", 8), 10_000, "a", state.config)

    def asked(size: int) -> PreemptionSearch:
        return PreemptionSearch(
            state.context(), state.setup.queues["a"], request, frozenset((column,)), [(column, size)]
        )

    # Once one of b's workloads is gone, b borrows nothing and keeps the other one: 5 of 8 can be had, 4 of them without
    # borrowing. The bound does not know of that, but that the last to go leaves b at most 2 below its quota.
    assert [size for size in range(1, 9) if not removable(asked(size))] == [5, 6, 7, 8]
    assert [size for size in range(1, 9) if cannot_fit_by_preemption(asked(size))] == [7, 8]


def test_a_queue_that_borrows_has_nobody_to_hope_for_but_its_own() -> None:
    world = World(
        cohort("c"),
        queue("a", 4, cohort="c", within=LOWER, reclaim=ANY),
        queue("b", 4, cohort="c"),
        queue("d", 4, cohort="c"),
    )
    world.run(workload("mine", "a", 2), workload("own", "a", 3, priority=1), workload("over", "b", 6), admitted=True)
    state = world.session._apply_noted_changes
    column = state.setup.tree.numbers["f", "nvidia.com/gpu"]
    request = WorkloadRequest(workload("p", "a", 1, priority=1), 10_000, "a", state.config)

    def asked(size: int) -> PreemptionSearch:
        return PreemptionSearch(
            state.context(), state.setup.queues["a"], request, frozenset((column,)), [(column, size)]
        )

    # One is free, two more come with the only workload of lower priority: b borrows, but so does a.
    assert [size for size in range(2, 6) if not removable(asked(size))] == [4, 5]
    assert [size for size in range(2, 6) if cannot_fit_by_preemption(asked(size))] == [4, 5]
