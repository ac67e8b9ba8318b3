"""Who preempts whom: counts, chains, circles, and evictions for nothing."""

from msgspec.structs import replace

from gpuconsole.insight.preemption.history import (
    EvictionCycle,
    PreemptionCount,
    PreemptionPair,
    PreemptionRow,
    PreemptionStats,
    about,
    at_least,
    chain,
    preemption_stats,
    rows,
)
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.events import HistoryEvent, HistoryEventKind, PreemptionTrace
from tests.support.snapshots import START

MESSAGE = (
    "Preempted to accommodate a workload (UID: u, JobUID: j) due to reclamation within the cohort;"
    " preemptor path: /org/team-b/cq-b; preemptee path: /org/cq-a"
)


def evicted(
    victim: str, by: str, at: int, queues: tuple[str, str] = ("cq-a", "cq-b"), **fields: object
) -> HistoryEvent:
    """A workload that loses an hour of a GPU, worth 2 USD, some minutes after START."""
    given: dict[str, object] = {"reason": "InClusterQueue", "gpus": 1, **fields}
    return HistoryEvent(
        time=START + at * MINUTE,
        what=HistoryEventKind.PREEMPTED,
        workload=victim,
        by=by,
        queue=queues[0],
        by_queue=queues[1],
        lost_gpu_seconds=3600,
        cost=2.0,
        **given,  # type: ignore[arg-type]
    )


def seen(*lines: HistoryEvent) -> list[PreemptionRow]:
    return rows(sorted(lines, key=lambda line: line.time))


def test_everything_is_summed_up_by_name_and_queue() -> None:
    found = seen(
        evicted("r/a", "p/x", 10),
        evicted("r/a", "p/x", 20),
        evicted("r/b", "p/y", 30, reason="InCohortReclamation"),
        HistoryEvent(time=START + 11 * MINUTE, what=HistoryEventKind.ADMITTED, workload="p/x"),
        HistoryEvent(time=START + 40 * MINUTE, what=HistoryEventKind.DELETED, workload="p/y"),
    )

    assert preemption_stats(found) == PreemptionStats(
        preemptions=3,
        lost_gpu_hours=3.0,
        cost=6.0,
        unplaced=1,
        in_vain=1,
        rules=(
            PreemptionCount("priority in the queue", 2, 2.0, 4.0),
            PreemptionCount("reclaim in cohort", 1, 1.0, 2.0),
        ),
        victims=(PreemptionCount("r/a", 2, 2.0, 4.0), PreemptionCount("r/b", 1, 1.0, 2.0)),
        victim_queues=(PreemptionCount("cq-a", 3, 3.0, 6.0),),
        causers=(PreemptionCount("p/x", 2, 2.0, 4.0), PreemptionCount("p/y", 1, 1.0, 2.0)),
        causing_queues=(PreemptionCount("cq-b", 3, 3.0, 6.0),),
    )


def test_a_loss_that_nobody_knows_is_no_nought_and_sums_are_at_least_the_others() -> None:
    """The second ran before anybody looked; what the third lost is known, and has no price."""
    found = seen(
        evicted("r/a", "p/x", 10),
        replace(evicted("r/a", "p/x", 20), lost_gpu_seconds=0.0, cost=0.0, lost_unknown=True),
        replace(evicted("r/b", "p/x", 30), cost=0.0),
    )
    assert [(row.lost_gpu_hours, row.cost) for row in found] == [(1.0, None), (None, None), (1.0, 2.0)]
    summed = preemption_stats(found)
    assert (summed.lost_gpu_hours, summed.cost, summed.unknown, summed.unpriced) == (2.0, 2.0, 1, 2)
    assert summed.victims == (
        PreemptionCount("r/a", 2, 1.0, 2.0, False, 1, 1),
        PreemptionCount("r/b", 1, 1.0, 0.0, False, 0, 1),
    )


def test_the_loss_of_a_later_eviction_is_not_that_of_a_preemption_without_one() -> None:
    """Evictions without a loss are left out of a history of a week."""
    found = seen(
        replace(evicted("r/a", "p/x", 10), lost_gpu_seconds=0.0, cost=0.0),
        HistoryEvent(time=START + 20 * MINUTE, what=HistoryEventKind.ADMITTED, workload="r/a"),
        HistoryEvent(
            time=START + 80 * MINUTE, what=HistoryEventKind.EVICTED, workload="r/a", lost_gpu_seconds=3600, cost=2.0
        ),
    )
    assert [(row.lost_gpu_hours, row.cost) for row in found] == [(0.0, 0.0)]


def test_a_circle_counts_whose_losses_are_unknown() -> None:
    lost = evicted("r/a", "r/b", 10)
    found = seen(lost, replace(evicted("r/b", "r/a", 20), lost_gpu_seconds=0.0, cost=0.0, lost_unknown=True))
    pairs = (PreemptionPair("r/a", "r/b", 1), PreemptionPair("r/b", "r/a", 1))
    assert preemption_stats(found).cycles == (EvictionCycle(("r/a", "r/b"), 2, 1.0, 2.0, 1, 1, pairs),)


def test_a_sum_is_at_least_what_is_known_of_it() -> None:
    assert [at_least("1.2", unknown, 3) for unknown in (0, 1, 3)] == ["1.2", "at least 1.2", "unknown"]


def test_a_preemptor_that_had_its_place_and_ended_did_not_preempt_in_vain() -> None:
    (row,) = seen(
        evicted("r/a", "p/x", 10),
        HistoryEvent(time=START + 11 * MINUTE, what=HistoryEventKind.ADMITTED, workload="p/x"),
        HistoryEvent(time=START + 40 * MINUTE, what=HistoryEventKind.FINISHED, workload="p/x"),
    )
    assert (row.in_vain, row.by_gone_at) == (False, None)


def test_paths_are_read_from_the_message_and_the_choice_is_kept() -> None:
    choice = PreemptionTrace(share="166.7")
    (told, old) = seen(evicted("r/a", "p/x", 2, message=MESSAGE, choice=choice), evicted("r/b", "p/x", 1))
    assert (told.by_path, told.path, told.choice) == ("/org/team-b/cq-b", "/org/cq-a", choice)
    assert (old.by_path, old.path, old.choice) == ("", "", None)


def test_of_a_workload_both_sides_are_told() -> None:
    found = seen(evicted("r/a", "r/b", 1), evicted("r/b", "r/c", 2), evicted("r/d", "r/c", 3))
    assert [(row.victim, row.by) for row in about(found, "r/b")] == [("r/b", "r/c"), ("r/a", "r/b")]


def test_a_chain_follows_the_preemptor_until_it_closes() -> None:
    found = seen(evicted("r/a", "r/b", 1), evicted("r/b", "r/c", 2), evicted("r/c", "r/a", 3))
    assert chain(found[-1], found) == ("r/a", "r/b", "r/c", "r/a")
    assert chain(found[0], found) == ("r/c", "r/a")


def test_two_that_evict_each_other_are_a_circle_and_so_are_three_in_a_ring() -> None:
    found = seen(
        evicted("r/a", "r/b", 1),
        evicted("r/b", "r/a", 2),
        evicted("r/a", "r/b", 3),
        evicted("r/k", "r/l", 4),
        evicted("r/l", "r/m", 5),
        evicted("r/m", "r/k", 6),
        evicted("r/a", "r/k", 7),
    )
    assert preemption_stats(found).cycles == (
        EvictionCycle(
            ("r/a", "r/b"), 3, 3.0, 6.0, pairs=(PreemptionPair("r/a", "r/b", 2), PreemptionPair("r/b", "r/a", 1))
        ),
        EvictionCycle(
            ("r/k", "r/l", "r/m"),
            3,
            3.0,
            6.0,
            pairs=(PreemptionPair("r/k", "r/l", 1), PreemptionPair("r/l", "r/m", 1), PreemptionPair("r/m", "r/k", 1)),
        ),
    )


def test_queues_go_in_circles_though_no_workload_does() -> None:
    found = seen(evicted("r/a", "r/b", 1), evicted("r/c", "r/d", 2, ("cq-b", "cq-a")))
    assert (preemption_stats(found).cycles, preemption_stats(found).queue_cycles) == (
        (),
        (
            EvictionCycle(
                ("cq-a", "cq-b"),
                2,
                2.0,
                4.0,
                pairs=(PreemptionPair("cq-a", "cq-b", 1), PreemptionPair("cq-b", "cq-a", 1)),
            ),
        ),
    )


def test_one_queue_that_evicts_its_own_is_no_circle() -> None:
    found = seen(evicted("r/a", "r/b", 1, ("cq-a", "cq-a")), evicted("r/b", "r/c", 2, ("cq-a", "cq-a")))
    assert (preemption_stats(found).cycles, preemption_stats(found).queue_cycles) == ((), ())


def test_nobody_was_preempted() -> None:
    assert preemption_stats([]) == PreemptionStats()
