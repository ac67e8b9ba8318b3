"""What a preemption tells of how its victim was chosen: who was considered, in which order, and why some stayed."""

from gpuconsole.model.events import CandidateVerdict, ConsideredCandidate, Preempt, PreemptionTrace
from gpuconsole.model.queues import BorrowWithinCohort
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.support.kueue_cluster import ANY, LOWER, NEVER, World, cohort, queue, workload

FAIR = KueueConfig(fair_sharing=True)


def choices(world: World) -> list[PreemptionTrace | None]:
    """Those of the next cycle's preemptions."""
    world.now += 1
    decisions = world.session.run_cycle(world.now, with_traces=True)
    return [decision.choice for decision in decisions if isinstance(decision, Preempt)]


def considered(choice: PreemptionTrace | None) -> list[tuple[str, str]]:
    assert choice is not None
    return [(one.workload.removeprefix("team/"), one.verdict.value) for one in choice.considered]


def test_nobody_tells_who_was_not_asked() -> None:
    world = World(queue("a", 4, within=LOWER)).run(workload("low", "a", 4, priority=-5), admitted=True)
    world.apply(workload("new", "a", 4))
    (decision,) = (d for d in world.cycle() if isinstance(d, Preempt))
    assert decision.choice is None


def test_candidates_come_in_order_then_those_that_the_rules_spare() -> None:
    world = World(queue("a", 6, within=LOWER))
    running = (("high", 2, 9), ("middle", 1, 3), ("low", 2, -5), ("lowest", 1, -9))
    world.run(*(workload(name, "a", gpus, priority=priority) for name, gpus, priority in running), admitted=True)
    world.apply(workload("new", "a", 2, priority=5))

    assert choices(world) == [
        PreemptionTrace(
            considered=(
                ConsideredCandidate("team/lowest", "a", CandidateVerdict.PUT_BACK, -9),
                ConsideredCandidate("team/low", "a", CandidateVerdict.CHOSEN, -5),
                ConsideredCandidate("team/middle", "a", CandidateVerdict.NOT_NEEDED, 3),
                ConsideredCandidate("team/high", "a", CandidateVerdict.PRIORITY, 9),
            )
        )
    ]


def test_shares_are_those_before_anybody_left_and_queues_within_their_quota_keep_theirs() -> None:
    queues = (queue("a", 4, cohort="c", reclaim=ANY), queue("b", 4, cohort="c"), queue("d", 4, cohort="c"))
    world = World(*queues)
    world.run(workload("d0", "d", 4), workload("b0", "b", 4), workload("b1", "b", 4), admitted=True)
    world.apply(workload("new", "a", 4))
    (choice,) = choices(world)

    assert choice is not None
    assert (choice.share, choice.by_share) == ("333.333333", "0")
    assert considered(choice) == [("b1", "chosen"), ("b0", "not-needed"), ("d0", "not-borrowing")]


def test_a_queue_stops_yielding_where_it_borrows_no_more() -> None:
    queues = (queue("a", 8, cohort="c", reclaim=ANY), queue("b", 4, cohort="c"), queue("d", 4, cohort="c"))
    world = World(*queues)
    arrivals = (workload("b0", "b", 4), workload("b1", "b", 4, created=1), workload("d0", "d", 4, created=2))
    world.run(*arrivals, workload("d1", "d", 4, created=3), admitted=True)
    world.apply(workload("new", "a", 8))
    found = choices(world)

    # d1 is newest, then d0, whose queue by then is within its quota; and so on.
    expected = [("d1", "chosen"), ("d0", "not-borrowing"), ("b1", "chosen"), ("b0", "not-needed")]
    assert [considered(choice) for choice in found] == [expected, expected]


def test_policies_that_take_from_nobody_are_named() -> None:
    queues = (queue("a", 4, cohort="c", within=LOWER), queue("b", 4, cohort="c", reclaim=NEVER))
    world = World(*queues)
    world.run(workload("a0", "a", 4, priority=-1), workload("b0", "b", 4, priority=-1), admitted=True)
    world.apply(workload("new", "a", 4))
    assert [considered(choice) for choice in choices(world)] == [[("a0", "chosen"), ("b0", "policy-never")]]


def test_higher_priorities_of_others_go_only_for_one_that_does_not_borrow() -> None:
    borrow = BorrowWithinCohort(LOWER, None)
    asking = queue("a", 2, cohort="c", within=LOWER, reclaim=ANY, borrow=borrow)
    world = World(asking, queue("b", 2, cohort="c"), queue("d", 4, cohort="c"))
    world.run(workload("a0", "a", 4, priority=-1), workload("b0", "b", 4, priority=9), admitted=True)
    world.apply(workload("new", "a", 4))
    assert [considered(choice) for choice in choices(world)] == [[("b0", "not-while-borrowing"), ("a0", "chosen")]]


def test_fair_sharing_spares_those_whose_share_would_fall_below() -> None:
    queues = [queue(name, 0, cohort="c", reclaim=ANY) for name in ("a", "b", "d")]
    world = World(cohort("c", 9), *queues, config=FAIR)
    world.run(*(workload(f"b{number}", "b", 3, created=number) for number in range(2)), admitted=True)
    world.run(workload("d0", "d", 3, created=3), admitted=True)
    world.apply(workload("new", "a", 3, created=9))
    (choice,) = choices(world)

    assert choice is not None
    assert (choice.share, choice.by_share) == ("666.666667", "0")
    assert considered(choice) == [("d0", "not-needed"), ("b1", "chosen"), ("b0", "not-needed")]


def test_telling_changes_no_decision() -> None:
    def contended() -> World:
        world = World(queue("a", 6, cohort="c", within=LOWER, reclaim=ANY), queue("b", 2, cohort="c", within=LOWER))
        world.run(*(workload(f"b{n}", "b", 2, priority=n % 3) for n in range(4)), admitted=True)
        world.apply(*(workload(f"a{n}", "a", 3, priority=n) for n in range(3)))
        return world

    silent, told = contended(), contended()
    bare = [
        Preempt(d.workload, d.by, d.rule, d.message) if isinstance(d, Preempt) else d
        for d in told.session.run_cycle(told.now, with_traces=True)
    ]
    assert bare == silent.session.run_cycle(silent.now)


def test_of_very_many_a_few_are_told_with_all_victims() -> None:
    world = World(queue("a", 40, within=LOWER))
    world.run(*(workload(f"w{number:02}", "a", 1, priority=-number) for number in range(40)), admitted=True)
    world.apply(workload("new", "a", 3))
    (first, *_) = choices(world)

    assert first is not None
    assert [one.verdict.value for one in first.considered[:4]] == ["chosen", "chosen", "chosen", "not-needed"]
    assert (len(first.considered), first.left_out) == (24, 16)
