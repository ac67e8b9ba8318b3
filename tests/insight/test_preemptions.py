"""The history of preemptions: whom for whom, by which rule, at what cost, how quickly, how often."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.preemption.history import PreemptionRow, preemption_stats, rows, rule_in_words
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from tests.support.snapshots import START

RLHF = "research/rlhf"
SERVE = "prod/serve-2"


def chosen(at: Time, victim: str = RLHF, by: str = SERVE) -> list[HistoryEvent]:
    """What a preemption leaves in history at once: the choice, and the eviction with its loss."""
    common = {"workload": victim, "queue": "cq-research", "gpus": 6, "by": by, "by_queue": "cq-prod", "cost": 6.41}
    return [
        HistoryEvent(
            time=at,
            what=HistoryEventKind.PREEMPTED,
            reason="InCohortReclamation",
            message="Preempted to accommodate a workload",
            priority=500,
            by_priority=10_000,
            lost_gpu_seconds=2.9 * 3600,
            **common,  # type: ignore[arg-type]
        ),
        HistoryEvent(time=at, what=HistoryEventKind.EVICTED, reason="Preempted", lost_gpu_seconds=2.9 * 3600, **common),  # type: ignore[arg-type]
    ]


def test_a_row_tells_the_whole_story() -> None:
    history = [
        *chosen(START),
        HistoryEvent(time=START + 31 * SECOND, what=HistoryEventKind.REQUEUED, workload=RLHF),
        HistoryEvent(time=START + 32 * SECOND, what=HistoryEventKind.ADMITTED, workload=SERVE),
        HistoryEvent(time=START + HOUR, what=HistoryEventKind.ADMITTED, workload=RLHF),
    ]

    assert rows(history) == [
        PreemptionRow(
            time=START,
            victim=RLHF,
            victim_queue="cq-research",
            gpus=6,
            by=SERVE,
            by_queue="cq-prod",
            rule="reclaim in cohort",
            reason="InCohortReclamation",
            priority=500,
            by_priority=10_000,
            lost_gpu_hours=2.9,
            cost=6.41,
            latency=31 * SECOND,
            nth=1,
            thrash=False,
            admitted_at=START + 32 * SECOND,
            message="Preempted to accommodate a workload",
        )
    ]


def test_a_victim_that_holds_quota_again_was_gone_when_its_preemptor_came() -> None:
    """A live cluster remembers the last eviction only: of an earlier one nobody knows when its quota was free."""
    history = [
        *chosen(START),
        HistoryEvent(time=START + SECOND, what=HistoryEventKind.ADMITTED, workload=SERVE),
        HistoryEvent(time=START + MINUTE, what=HistoryEventKind.ADMITTED, workload=RLHF),
    ]
    later = [
        *chosen(START + HOUR),
        HistoryEvent(time=START + HOUR + MINUTE, what=HistoryEventKind.REQUEUED, workload=RLHF),
    ]

    assert [row.latency for row in rows(history)] == [SECOND]
    assert [row.latency for row in rows([*history, *later])] == [MINUTE, SECOND]
    # Without a word of the preemptor it was gone when it came back.
    assert [row.latency for row in rows([*history[:2], history[3]])] == [MINUTE]
    assert [row.at_most for row in rows(history)] == [True]


def test_a_victim_that_is_not_gone_and_a_preemptor_that_never_came() -> None:
    row = rows(chosen(START))[0]

    assert (row.latency, row.admitted_at) == (None, None)


TOLD = (
    "Preempted to accommodate a workload (UID: a26fc345, JobUID: x) due to prioritization in the ClusterQueue;"
    " preemptor path: /org/research; preemptee path: /org/dev;"
    " preemptor effective priority: 1000 (base: 1000, boost: 0);"
    " preemptee effective priority: 10 (base: 10, boost: 0)"
)


def test_of_who_was_gone_before_anybody_looked_only_the_event_tells() -> None:
    """Deleted objects have no GPUs and no priority that could be looked up: unknown, never 0."""
    line = HistoryEvent(time=START, what=HistoryEventKind.PREEMPTED, workload=RLHF, by="a26fc345", lost_unknown=True)
    for message, priorities, queue in ((TOLD, (10, 1000), "dev"), ("", (None, None), "")):
        (row,) = rows([replace(line, message=message)])
        assert (row.priority, row.by_priority) == priorities
        assert (row.gpus, row.victim_queue, row.by_known, row.unseen) == (None, queue, False, True)
        assert preemption_stats([row]).unplaced == 0


def test_the_newest_come_first_and_circles_are_seen() -> None:
    history = [
        *chosen(START),
        *chosen(START + 20 * MINUTE),
        *chosen(START + 30 * MINUTE, victim="dev/notebook"),
        *chosen(START + 59 * MINUTE),
        *chosen(START + 3 * HOUR),
    ]
    found = rows(history)

    assert [(row.victim, row.nth, row.thrash) for row in found] == [
        (RLHF, 4, False),
        (RLHF, 3, True),
        ("dev/notebook", 1, False),
        (RLHF, 2, False),
        (RLHF, 1, False),
    ]


def test_on_nodes_the_victims_are_pods_and_the_loss_is_that_of_their_eviction() -> None:
    pods = ["team/dev-0", "team/dev-1"]
    history = []
    for name in pods:
        victim = {"workload": name, "pod": name, "by": "Job/team/serve", "gpus": 1}
        history += [
            HistoryEvent(time=START, what=HistoryEventKind.PREEMPTED, reason="Preempted", **victim),  # type: ignore[arg-type]
            HistoryEvent(
                time=START,
                what=HistoryEventKind.EVICTED,
                reason="Preempted",
                lost_gpu_seconds=1800,
                cost=1.1,
                **victim,  # type: ignore[arg-type]
            ),
        ]

    assert [(row.victim, row.rule, row.lost_gpu_hours, row.cost) for row in rows(history)] == [
        ("team/dev-1", "Preempted", 0.5, 1.1),
        ("team/dev-0", "Preempted", 0.5, 1.1),
    ]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("InClusterQueue", "priority in the queue"),
        ("InCohortReclamation", "reclaim in cohort"),
        ("InCohortFairSharing", "fair sharing in cohort"),
        ("InCohortReclaimWhileBorrowing", "reclaim while borrowing"),
        ("NodeFailures", "NodeFailures"),
    ],
)
def test_rules_are_put_into_words(reason: str, words: str) -> None:
    assert rule_in_words(reason) == words


def test_a_pod_that_nothing_queues_is_gone_at_the_latest_when_its_preemptor_has_a_node() -> None:
    """No line tells when its grace period is over."""
    old, new = "team/old-0", "team/new-0"
    gone = [
        HistoryEvent(time=START, what=what, workload=old, pod=old, by=new, reason="Preempted")
        for what in (HistoryEventKind.PREEMPTED, HistoryEventKind.EVICTED)
    ]
    placed = HistoryEvent(time=START + 30 * SECOND, what=HistoryEventKind.POD_BOUND, workload=new, pod=new)

    assert [(row.latency, row.admitted_at) for row in rows(gone)] == [(None, None)]
    assert [(row.latency, row.admitted_at) for row in rows([*gone, placed])] == [(30 * SECOND, START + 30 * SECOND)]
