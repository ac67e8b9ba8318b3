"""Charts of the history as numbers: preemptions by pair of queues, waits, allocations of GPUs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.insight.history_charts import (
    Allocation,
    QueuePair,
    WaitDistribution,
    allocations,
    gpus_over_time,
    preemption_matrix,
    wait_distributions,
)
from gpuconsole.insight.preemption.history import rows
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import EMPTY
from gpuconsole.model.workloads import Workload
from tests.support.console_clusters import NOW, org_cohort, recorded

ADMITTED, EVICTED, FINISHED = HistoryEventKind.ADMITTED, HistoryEventKind.EVICTED, HistoryEventKind.FINISHED


def event(minute: int, what: HistoryEventKind, workload: str = "ns/a", **fields: Any) -> HistoryEvent:
    return HistoryEvent(time=minute * MINUTE, what=what, workload=workload, **{"queue": "q", "gpus": 4, **fields})


def preempted(victim: str, by: str, lost: float = 0.0) -> HistoryEvent:
    names = {"queue": victim, "by": "ns/p", "by_queue": by, "reason": "InCohortReclamation"}
    return event(1, HistoryEventKind.PREEMPTED, lost_gpu_seconds=3600 * lost, cost=lost, **names)


def test_preemptions_are_counted_by_pair_of_queues_the_most_frequent_first() -> None:
    history = [preempted("a", "b", 1.0), preempted("b", "a"), preempted("a", "b", 2.0), preempted("a", "a")]
    found = preemption_matrix(rows(history))
    assert [(pair.victim, pair.by, pair.times) for pair in found.pairs] == [("a", "b", 2), ("a", "a", 1), ("b", "a", 1)]
    assert found.pairs[0] == QueuePair(victim="a", by="b", times=2, lost_gpu_hours=3.0, cost=3.0)
    assert found.queues == ["a", "b"]
    assert found.counts["b", "a"] == 1


def test_waits_are_those_of_admissions_of_all_queues_and_of_each() -> None:
    waits = (("a", 3), ("b", 1), ("a", 2))
    history = [event(1, ADMITTED, queue=queue, waited=wait * SECOND) for queue, wait in waits]
    found = wait_distributions([*history, event(2, FINISHED, waited=9 * SECOND)])
    assert found == (
        WaitDistribution("", (SECOND, 2 * SECOND, 3 * SECOND)),
        WaitDistribution("a", (2 * SECOND, 3 * SECOND)),
        WaitDistribution("b", (SECOND,)),
    )


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(0, 100), st.integers(0, 100))
def test_the_fraction_rises_with_the_wait_up_to_one(waits: list[int], shorter: int, more: int) -> None:
    found = WaitDistribution("q", tuple(sorted(waits)))
    assert found.fraction(shorter) <= found.fraction(shorter + more) <= 1.0
    assert found.fraction(100) == (1.0 if waits else 0.0)


def spans(found: tuple[Allocation, ...]) -> list[tuple[str, int, int, HistoryEventKind | None]]:
    return [(one.workload, one.begin // MINUTE, one.end // MINUTE, one.outcome) for one in found]


def test_an_allocation_lasts_from_the_admission_to_the_eviction_or_the_end() -> None:
    history = [
        event(10, EVICTED, "ns/before"),
        event(12, ADMITTED, "ns/a"),
        event(15, EVICTED, "ns/a"),
        event(20, ADMITTED, "ns/a"),
        event(21, ADMITTED, "ns/no-gpus", gpus=0),
        event(25, FINISHED, "ns/a"),
        event(26, ADMITTED, "ns/runs"),
    ]
    assert spans(allocations(history, EMPTY, 5 * MINUTE, 30 * MINUTE)) == [
        ("ns/before", 5, 10, EVICTED),
        ("ns/a", 12, 15, EVICTED),
        ("ns/a", 20, 25, FINISHED),
        ("ns/runs", 26, 30, None),
    ]


def test_what_runs_since_before_the_window_is_known_from_the_snapshot() -> None:
    console = recorded(org_cohort())
    console.tick(0.0)
    running = [one for one in console.snapshot.workloads.all() if one.admitted and not one.finished and one.gpus]
    found = allocations([], console.snapshot, NOW - HOUR, NOW)
    assert {one.workload: one.gpus for one in found} == {one.key: one.gpus for one in running}
    assert all(NOW - HOUR <= one.begin < one.end == NOW for one in found)
    assert isinstance(running[0], Workload)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 50), st.integers(1, 8)), max_size=8), st.integers(1, 40))
def test_the_columns_have_the_gpu_time_of_the_window(parts: list[tuple[int, int, int]], columns: int) -> None:
    found = [
        Allocation(workload="ns/a", queue="q", gpus=gpus, begin=begin, end=min(100, begin + length))
        for begin, length, gpus in parts
    ]
    total = sum(one.gpus * (one.end - one.begin) for one in found)
    values = gpus_over_time(found, 0, 100, columns)
    assert sum(values) * 100 / columns == pytest.approx(total)
