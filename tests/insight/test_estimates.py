"""Estimates of starts: what the runs say, what earlier estimates make of it, and what is remembered of them."""

from msgspec.structs import replace

from gpuconsole.insight.forecast.estimates import (
    KEPT,
    Calibration,
    Estimate,
    EstimateHistory,
    Interval,
    PastEstimate,
    corrected,
    estimate,
    probability,
)
from gpuconsole.insight.forecast.eta import SimulatedStarts
from gpuconsole.model.clock import DAY, HOUR, MINUTE
from gpuconsole.model.events import Applied
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload
from tests.support.snapshots import START, running, waiting

NOW = 1000 * HOUR


def found(*hours: float | None) -> SimulatedStarts:
    """Starts so many hours from now, looked for a day ahead."""
    times = tuple(NOW + round(after * HOUR) if after is not None else None for after in hours)
    return SimulatedStarts(workload="a/w", asked=NOW, horizon=NOW + DAY, past=7 * DAY, times=times)


def told(key: str, asked: int = NOW, started: int | None = None) -> PastEstimate:
    interval = Interval(asked, asked + HOUR)
    return PastEstimate(workload=key, asked_at=asked, median=asked + HOUR // 2, interval=interval, started=started)


def seen(*workloads: Workload) -> Snapshot:
    state = ClusterState(START)
    for workload in workloads:
        state.apply(Applied(START, workload))
    return state.freeze()


def ends(one: Estimate) -> tuple[float, ...]:
    """Early, median and late, in hours from now."""
    return tuple(round((time - NOW) / HOUR, 2) for time in (one.interval.first, one.median, one.interval.last))


def test_nine_runs_are_enough_for_eight_of_ten_cases() -> None:
    one = estimate(found(11, 12, 13, 14, 15, 16, 17, 18, 19))
    assert (one.raw, one.runs, one.never) == (Interval(NOW + 11 * HOUR, NOW + 19 * HOUR), 9, 0)


def test_without_earlier_estimates_it_is_twice_as_wide_and_three_times_where_little_of_the_past_is_known() -> None:
    known = found(11, 12, 13, 14, 15, 16, 17, 18, 19)
    assert (ends(estimate(known)), estimate(known).calibrated_by) == ((7, 15, 23), 0)
    assert ends(estimate(replace(known, past=DAY))) == (3, 15, 27)


def test_how_probable_a_start_is_by_some_moment_agrees_with_the_range() -> None:
    known = replace(found(11, 12, 13, 14, 15, 16, 17, 18, 19), past=DAY)
    one = estimate(known)
    assert ends(one) == (3, 15, 27)
    chances = {hours: probability(known, one, NOW + round(hours * HOUR)) for hours in (2, 3, 6, 9, 15, 18, 21, 27)}
    # Three times as wide: 6 hours, 9 before the median, stand for a moment 3 before it, by which 2 of 9 had started.
    assert chances == {2: 0.0, 3: 1 / 9, 6: 2 / 9, 9: 3 / 9, 15: 5 / 9, 18: 6 / 9, 21: 7 / 9, 27: 1.0}


def test_a_range_that_begins_now_has_its_tenth_within_any_span() -> None:
    known = replace(found(4, 5, 6, 6, 7, 8), past=DAY)
    one = estimate(known)
    assert (ends(one)[0], known.by(NOW + HOUR), probability(known, one, NOW + HOUR)) == (0, 0.0, 1 / 6)
    still = replace(found(*[10] * 9), past=DAY)
    assert [probability(still, estimate(still), NOW + hours * HOUR) for hours in (6, 8, 12, 14)] == [0.0, 0.1, 0.9, 1.0]


def test_what_had_not_started_by_the_horizon_starts_later_than_that() -> None:
    one = estimate(found(1, 2, 3, 4, None, None, None, None, None))
    assert (one.never, ends(one)[1], round((one.raw.last - NOW) / HOUR, 2)) == (5, 26.29, 58.79)


def test_earlier_estimates_make_it_wider_or_narrower_about_its_median() -> None:
    one = estimate(found(1, 2, 3))
    many = 10**9
    assert ends(corrected(one, Calibration(1.5, many, 30))) == (0.5, 2, 3.5)
    assert ends(corrected(one, Calibration(0.1, many, 30))) == (1.5, 2, 2.5)
    assert corrected(one, Calibration(2.0, many, 30)).calibrated_by == 30
    assert corrected(one, Calibration()) == one


def test_the_first_estimate_of_a_workload_is_remembered() -> None:
    memory = EstimateHistory([told("a/1")])
    later = told("a/1", NOW + HOUR)
    assert memory.note([later, told("a/2"), told("a/2", NOW + HOUR)]) == [told("a/2")]
    assert memory.earlier == (told("a/1"), told("a/2"))


def test_what_became_of_an_estimate_is_read_from_later_snapshots() -> None:
    memory = EstimateHistory()
    memory.note([told("a/one", START), told("a/two", START), told("a/gone", START)])
    came = [told("a/one", START, START + MINUTE)]
    snapshot = seen(running("one", "a/lq", 8, "a", minutes_ago=-1), waiting("two", "a/lq", 8))
    assert memory.record_starts(snapshot) == came
    assert memory.earlier == (came[0], told("a/two", START))
    # It is known by now, and stays so, whatever comes after it.
    assert memory.record_starts(seen()) == []
    assert list(memory.earlier) == came


def test_only_the_newest_are_remembered() -> None:
    memory = EstimateHistory()
    memory.note([told(f"a/{n}") for n in range(KEPT + 5)])
    assert (len(memory.earlier), memory.earlier[0].workload) == (KEPT, "a/5")
