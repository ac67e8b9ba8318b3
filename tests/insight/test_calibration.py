"""Intervals that learn from what became of earlier ones."""

import pytest

from gpuconsole.insight.calibration import ENOUGH, LOOKS, Experience, Interval, Told, experience, stretched
from gpuconsole.model.clock import HOUR, MINUTE

NOW = 1000 * HOUR


def told(n: int, started: int | None, looks: int = LOOKS) -> Told:
    """Seven minutes to 31, most likely 15, as was said three hours ago, and when it started after that, in minutes.

    On the scale of ratios these are as far apart: 8, 16 and 32 minutes, plus one.
    """
    asked = NOW - 3 * HOUR - n % looks
    interval = Interval(asked + 7 * MINUTE, asked + 31 * MINUTE)
    start = asked + started * MINUTE if started is not None else None
    return Told(workload=f"a/{n}", asked=asked, median=asked + 15 * MINUTE, interval=interval, started=start)


def learned(*started: int | None) -> Experience:
    found = experience([told(n, minutes) for n, minutes in enumerate(started)], NOW)
    return Experience(round(found.stretch, 2), found.by)


def test_few_earlier_estimates_say_nothing() -> None:
    assert learned(*[63] * (ENOUGH - 1)) == Experience(1.0, 0)


def test_a_burst_of_a_moment_is_not_many_earlier_estimates() -> None:
    assert experience([told(n, 63, LOOKS - 1) for n in range(ENOUGH)], NOW) == Experience()


def test_starts_as_far_off_as_the_ends_leave_intervals_as_they_are() -> None:
    assert learned(*[7, 31] * 15) == Experience(1.0, 30)


def test_who_was_twice_as_far_off_gets_intervals_twice_as_wide_whether_early_or_late() -> None:
    # In ratios: 64 is to 32 as 32 to 16, and 4 to 8 as 8 to 16.
    assert learned(*[63] * 30) == learned(*[3] * 30) == Experience(2.0, 30)


def test_a_fifth_of_all_misses_stays_outside_or_less_where_there_are_few() -> None:
    assert learned(*[31] * 81, *[10_000] * 19).stretch == 1.0
    # They wait three hours by now, whatever comes of them.
    assert learned(*[31] * 80, *[10_000] * 20).stretch == 3.5


def test_too_wide_intervals_shrink_to_what_happens() -> None:
    assert learned(*[15] * 30) == Experience(0.0, 30)


def test_what_is_not_known_yet_does_not_count() -> None:
    assert learned(*[15] * 30, *[200] * 30).by == 60
    # What waits for three hours now waits no less than that: 181 to 16 are three and a half halvings.
    assert learned(*[None] * 30) == Experience(3.5, 30)
    later = [told(n, 10_000) for n in range(30)]
    assert experience(later, NOW - 2 * HOUR - 45 * MINUTE) == Experience()


@pytest.mark.parametrize(
    ("stretch", "want"),
    [(1.0, (7, 15, 31)), (2.0, (3, 15, 63)), (0.0, (15, 15, 15)), (9.0, (0, 15, 8191))],
)
def test_an_interval_is_stretched_about_its_median_in_ratios(stretch: float, want: tuple[int, ...]) -> None:
    one = told(0, None)
    found = stretched(one.interval, one.median, one.asked, Experience(stretch, 30))
    assert tuple(round((time - one.asked) / MINUTE) for time in (found.first, one.median, found.last)) == want


def test_without_experience_an_interval_stays_as_it_is() -> None:
    one = told(0, None)
    assert stretched(one.interval, one.median, one.asked, Experience()) == one.interval
