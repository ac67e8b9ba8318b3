"""Intervals that learn from what became of earlier ones."""

from itertools import chain

import pytest

from gpuconsole.insight.forecast.estimates import (
    ENOUGH,
    LOOKS,
    YOUNG,
    Calibration,
    CoverageRecord,
    Interval,
    PastEstimate,
    calibrate,
    coverage,
    stretched,
)
from gpuconsole.model.clock import HOUR, MINUTE

NOW = 1000 * HOUR
OLD = 7 * YOUNG


def told(n: int, started: int | None, looks: int = LOOKS) -> PastEstimate:
    """Ten minutes to 50, most likely 30, as was said three hours ago, and when it started after that, in minutes."""
    asked = NOW - 3 * HOUR - n % looks
    interval = Interval(asked + 10 * MINUTE, asked + 50 * MINUTE)
    start = asked + started * MINUTE if started is not None else None
    return PastEstimate(workload=f"a/{n}", asked_at=asked, median=asked + 30 * MINUTE, interval=interval, started=start)


def learned(*started: int | None) -> Calibration:
    found = calibrate([told(n, minutes) for n, minutes in enumerate(started)], NOW)
    return Calibration(round(found.off, 2), found.looks, found.by)


def test_few_earlier_estimates_say_nothing() -> None:
    assert learned(*[70] * (ENOUGH - 1)) == Calibration()


def test_a_burst_of_a_moment_is_not_many_earlier_estimates() -> None:
    assert calibrate([told(n, 70, LOOKS - 1) for n in range(ENOUGH)], NOW) == Calibration()


def test_starts_as_far_off_as_the_ends_would_leave_intervals_as_they_are() -> None:
    assert learned(*[10, 50] * 15) == Calibration(1.0, LOOKS, 30)


def test_who_was_twice_as_far_off_would_have_needed_twice_as_wide_intervals_whether_early_or_late() -> None:
    assert learned(*[70] * 30) == Calibration(2.0, LOOKS, 30)
    assert learned(*[0] * 30) == Calibration(1.5, LOOKS, 30)


def test_a_fifth_of_all_misses_stays_outside_or_less_where_there_are_few() -> None:
    assert learned(*[50] * 81, *[10_000] * 19).off == 1.0
    # They wait three hours by now, whatever comes of them.
    assert learned(*[50] * 80, *[10_000] * 20).off == 7.5


def test_what_is_not_known_yet_does_not_count() -> None:
    assert learned(*[30] * 30, *[200] * 30).by == 60
    # What waits for three hours now waits no less than that: 150 minutes after the median.
    assert learned(*[None] * 30) == Calibration(7.5, LOOKS, 30)
    later = [told(n, 10_000) for n in range(30)]
    assert calibrate(later, NOW - 2 * HOUR - 15 * MINUTE) == Calibration()


@pytest.mark.parametrize(
    ("off", "looks", "past", "want"),
    [
        pytest.param(1.0, 0, OLD, 2.0, id="nobody knows: twice"),
        pytest.param(1.0, 0, YOUNG - 1, 3.0, id="nor is the past long: three times"),
        pytest.param(0.5, 3, OLD, 1.0, id="three moments are believed as much as the doubt"),
        pytest.param(0.5, 3, YOUNG - 1, 1.22, id="in a young cluster as much, too"),
        pytest.param(1.2, 10**6, OLD, 1.2, id="many moments alone"),
        pytest.param(0.0, 10**6, OLD, 0.5, id="no less than half"),
        pytest.param(40.0, 10**6, OLD, 3.0, id="no more than three times"),
    ],
)
def test_experience_is_believed_by_the_number_of_its_moments(off: float, looks: int, past: int, want: float) -> None:
    assert round(Calibration(off, looks, 30).stretch(past), 2) == want


@pytest.mark.parametrize(
    ("off", "want"), [(1.0, (10, 30, 50)), (1.25, (5, 30, 55)), (2.0, (0, 30, 70)), (0.5, (20, 30, 40))]
)
def test_an_interval_is_stretched_about_its_median_and_not_into_the_past(off: float, want: tuple[int, ...]) -> None:
    one = told(0, None)
    found = stretched(one.interval, one.median, one.asked_at, Calibration(off, 10**9, 30), OLD)
    assert tuple(round((time - one.asked_at) / MINUTE) for time in (found.first, one.median, found.last)) == want


def test_an_interval_of_no_width_is_stretched_as_one_of_a_fifth_of_the_wait() -> None:
    found = stretched(Interval(NOW + HOUR, NOW + HOUR), NOW + HOUR, NOW, Calibration(2.0, 10**9, 30), OLD)
    assert (round((found.first - NOW) / MINUTE), round((found.last - NOW) / MINUTE)) == (48, 72)


class TestRecord:
    def test_ranges_are_judged_as_they_were_given(self) -> None:
        """Without experience twice as wide as the runs said: up to 70 minutes."""
        assert coverage([told(n, minutes) for n, minutes in enumerate((70, 71, 0, 200))], NOW) == CoverageRecord(4, 2)

    def test_what_waits_within_its_range_is_not_judged_yet_and_what_waits_longer_was_missed(self) -> None:
        waits = [told(0, None)]
        assert [coverage(waits, waits[0].asked_at + minutes * MINUTE) for minutes in (70, 71)] == [
            CoverageRecord(),
            CoverageRecord(1, 0),
        ]

    def test_a_range_is_judged_by_what_was_known_when_it_was_given(self) -> None:
        """What was far off at five moments widens the ranges of the sixth, to three times; not those before."""
        moments = [
            [replaced(told(n, 110), (number - 6) * 24 * HOUR) for n in range(number * 10, number * 10 + 10)]
            for number in range(LOOKS + 1)
        ]
        assert coverage(chain.from_iterable(moments), NOW) == CoverageRecord(60, 0)
        last = [replaced(told(n, 80), 0) for n in range(100, 110)]
        assert coverage([*chain.from_iterable(moments), *last], NOW) == CoverageRecord(70, 10)


def replaced(one: PastEstimate, by: int) -> PastEstimate:
    """The same at another moment, at which all its look was asked."""
    asked = NOW - 3 * HOUR
    assert one.started is not None
    wait = one.started - one.asked_at
    return PastEstimate(
        workload=one.workload,
        asked_at=asked + by,
        median=asked + by + 30 * MINUTE,
        interval=Interval(asked + by + 10 * MINUTE, asked + by + 50 * MINUTE),
        started=asked + by + wait,
    )
