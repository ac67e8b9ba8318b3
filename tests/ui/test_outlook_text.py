"""What probably comes for a workload, in the words of its page."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.insight.forecast.estimates import Estimate, Interval
from gpuconsole.insight.forecast.eta import SimulatedStarts
from gpuconsole.insight.forecast.expected_start import CohortPosition, Eta
from gpuconsole.insight.forecast.forecast import WorkloadOutlook
from gpuconsole.insight.preemption.risk import EvictionCause, ReclaimPosition, WorkloadRisk
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND, parse_time
from gpuconsole.model.workloads import PLACED, WorkloadPhase
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.workload_text import ahead_lines, start_range, still_open

NOW = parse_time("2026-01-05T13:00:00Z")
START = Estimate(
    workload="a/w",
    asked=NOW,
    horizon=NOW + DAY,
    past=7 * DAY,
    runs=9,
    never=0,
    median=NOW + 90 * MINUTE,
    raw=Interval(NOW + 75 * MINUTE, NOW + 100 * MINUTE),
    interval=Interval(NOW + 65 * MINUTE, NOW + 150 * MINUTE),
    calibrated_by=40,
)
ETA = Eta(
    workload="a/w",
    queue="a",
    gpus=8,
    phase=WorkloadPhase.PENDING,
    time=NOW,
    position=None,
    cohort=CohortPosition("org", 3, 7),
    start=START,
    by_runs=SimulatedStarts(
        workload="a/w",
        asked=NOW,
        horizon=NOW + 12 * HOUR,
        past=7 * DAY,
        times=tuple(NOW + minutes * MINUTE for minutes in (75, 78, 81, 84, 90, 94, 96, 98, 100)),
    ),
    goes_by="queue a",
    samples=31,
    arrivals=12,
    arrivals_span=6 * HOUR,
)
DANGER = WorkloadRisk(
    workload="a/w",
    queue="a",
    gpus=8,
    borrowed=4,
    priority=0,
    probability=0.25,
    median=HOUR,
    causes=(EvictionCause("reclaim in cohort", "b", 2),),
    turns=(ReclaimPosition("b", "a100", 1),),
    lost_gpu_hours=3.25,
    cost=7.5,
)


def texts(lines: Sequence[Painted]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def test_a_start_is_a_range_with_its_chance_and_what_it_goes_by() -> None:
    found = WorkloadOutlook(time=NOW, until=NOW + DAY, runs=9, eta=ETA)
    assert texts(ahead_lines(found, NOW + 30 * SECOND))[1:] == [
        "ESTIMATED START",
        "  14:05–15:30 (80% interval)  calibrated with 40 earlier estimates",
        "  within 1h: 0% · within 6h: 100%",
        "  rank 3 of 7 in cohort org, by priority and age only",
        "  based on 31 run times of queue a, 12 arrivals in 6h",
        "  9 simulation runs, 1d ahead, started 30s ago, based on past run times and arrivals: "
        "an estimate, not a guarantee",
    ]


def test_a_range_may_reach_into_other_days() -> None:
    found = replace(START, interval=Interval(START.interval.first, NOW + 13 * HOUR))
    assert start_range(found, NOW) == "14:05–02:00 +1d (80% interval)"


def test_of_who_waits_still_only_what_is_left_of_the_range_is_told() -> None:
    assert [start_range(START, NOW + after) for after in (65 * MINUTE, 80 * MINUTE, 151 * MINUTE)] == [
        "14:05–15:30 (80% interval)",
        "14:20–15:30 (80% interval)",
        "later than 15:30 (80% interval)",
    ]


def test_of_what_no_run_saw_start_there_is_no_range() -> None:
    found = WorkloadOutlook(time=NOW, until=NOW + DAY, runs=9, eta=replace(ETA, start=replace(START, never=9)))
    assert texts(ahead_lines(found, NOW))[2] == "  not before 13:00 +1d in any of 9 runs"


def test_a_danger_names_its_causes_and_whose_turn_it_is() -> None:
    found = WorkloadOutlook(time=NOW, until=NOW + 6 * HOUR, runs=8, risk=DANGER)
    assert texts(ahead_lines(found, NOW + 30 * SECOND))[1:-1] == [
        "PREEMPTION RISK",
        "  25% probability of eviction within 6h",
        "    reclaim in cohort by b: 2 of 8 runs",
        "    preemption rank 1 if b reclaims its a100",
        "  lost work if evicted now: 3.2 GPU-hours, $7.50",
    ]


def test_nothing_foretold_takes_no_line() -> None:
    assert ahead_lines(WorkloadOutlook(time=NOW, until=NOW, runs=0), NOW) == []


def test_what_was_foretold_goes_when_it_has_come() -> None:
    start = WorkloadOutlook(time=NOW, until=NOW + DAY, runs=9, eta=ETA)
    risk = WorkloadOutlook(time=NOW, until=NOW + 6 * HOUR, runs=8, risk=DANGER)
    kept = [[phase for phase in WorkloadPhase if still_open(found, phase) is found] for found in (start, risk)]
    others = [phase for phase in WorkloadPhase if phase not in (*PLACED, WorkloadPhase.FINISHED, WorkloadPhase.FAILED)]
    assert kept == [others, [*PLACED]]
    assert still_open(None, WorkloadPhase.PENDING) is None
