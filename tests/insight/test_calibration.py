"""Intervals that learn from what became of earlier ones."""

from gpuconsole.insight.calibration import ENOUGH, Calibrated, Interval, Told, calibrated
from gpuconsole.model.clock import HOUR, MINUTE

NOW = 1000 * HOUR
HOURS = Interval(NOW + HOUR, NOW + 2 * HOUR)


def told(n: int, started: int | None, queue: str = "a") -> Told:
    """An hour from now to two hours from now, as was said n hours ago, and when it started after that, in minutes."""
    asked = NOW - n * HOUR
    return Told(
        workload="a/w",
        queue=queue,
        asked=asked,
        interval=Interval(asked + HOUR, asked + 2 * HOUR),
        started=asked + started * MINUTE if started is not None else None,
    )


def minutes(found: Calibrated) -> tuple[int, int]:
    return round((found.interval.first - NOW) / MINUTE), round((found.interval.last - NOW) / MINUTE)


def test_few_earlier_estimates_say_nothing() -> None:
    assert calibrated(HOURS, "a", NOW, [told(9, 500)] * (ENOUGH - 1)) == Calibrated(HOURS, 0)


def test_who_was_always_late_gets_later_intervals() -> None:
    # All started after 241 minutes, where 120 were said; an end is as far off as it was, in ratio.
    found = calibrated(HOURS, "a", NOW, [told(9, 241)] * 30)
    assert (minutes(found), found.by) == ((241, 241), 30)


def test_too_wide_intervals_shrink_to_what_happens() -> None:
    earlier = [told(9, 85 + n % 10) for n in range(40)]
    assert minutes(calibrated(HOURS, "a", NOW, earlier)) == (85, 94)


def test_what_is_not_known_yet_does_not_count() -> None:
    waiting_too_long = [told(3, None)] * 30
    assert minutes(calibrated(HOURS, "a", NOW, waiting_too_long))[1] == 180
    assert calibrated(HOURS, "a", NOW, [told(1, None)] * 30) == Calibrated(HOURS)
    assert calibrated(HOURS, "a", NOW, [told(1, 600)] * 30) == Calibrated(HOURS)


def test_a_queue_of_its_own_speaks_for_itself() -> None:
    earlier = [*[told(9, 90) for _ in range(30)], *[told(9, 400, "b") for _ in range(30)]]
    assert minutes(calibrated(HOURS, "a", NOW, earlier)) == (90, 90)
    assert minutes(calibrated(HOURS, "c", NOW, earlier))[1] == 400
