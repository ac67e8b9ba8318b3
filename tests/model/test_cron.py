"""Cron schedules: when they come true next, and what is none."""

import pytest

from gpuconsole.model.clock import format_time, parse_cron, parse_time

NEXT: dict[str, tuple[str, str, str]] = {
    "every minute, never now itself": ("* * * * *", "2026-01-05T08:00:00Z", "2026-01-05T08:01:00Z"),
    "within a minute": ("* * * * *", "2026-01-05T08:00:30Z", "2026-01-05T08:01:00Z"),
    "at nine on weekdays": ("0 9 * * 1-5", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"),
    "names of days": ("0 9 * * sun", "2026-01-05T08:00:00Z", "2026-01-11T09:00:00Z"),
    "names of months": ("0 0 1 feb *", "2026-03-01T00:00:00Z", "2027-02-01T00:00:00Z"),
    "steps": ("*/20 * * * *", "2026-01-05T08:20:00Z", "2026-01-05T08:40:00Z"),
    "steps from a number go to the end": ("10/20 8 * * *", "2026-01-05T08:31:00Z", "2026-01-05T08:50:00Z"),
    "lists": ("5,35 * * * *", "2026-01-05T08:05:00Z", "2026-01-05T08:35:00Z"),
    "either day, where both are said": ("0 0 13 * 5", "2026-01-05T08:00:00Z", "2026-01-09T00:00:00Z"),
    "both days, where one is any": ("0 0 13 * *", "2026-01-05T08:00:00Z", "2026-01-13T00:00:00Z"),
    "@daily": ("@daily", "2026-01-05T08:00:00Z", "2026-01-06T00:00:00Z"),
    "@hourly": ("@hourly", "2026-01-05T08:00:00Z", "2026-01-05T09:00:00Z"),
    "@every, so long after now": ("@every 1h30m", "2026-01-05T08:00:05Z", "2026-01-05T09:30:05Z"),
    "@every, one second at least": ("@every 10ms", "2026-01-05T08:00:00Z", "2026-01-05T08:00:01Z"),
    "a leap day": ("0 0 29 2 *", "2026-01-05T08:00:00Z", "2028-02-29T00:00:00Z"),
    "over the end of a year": ("30 23 31 12 *", "2026-12-31T23:30:00Z", "2027-12-31T23:30:00Z"),
}


@pytest.mark.parametrize("name", NEXT)
def test_a_schedule_comes_true(name: str) -> None:
    schedule, now, wanted = NEXT[name]
    found = parse_cron(schedule).next_after(parse_time(now))
    assert found is not None
    assert format_time(found) == wanted


def test_the_thirtieth_of_february_never_comes() -> None:
    assert parse_cron("0 0 30 2 *").next_after(0) is None


WRONG = ("", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 7", "a * * * *", "5-3 * * * *")


@pytest.mark.parametrize("text", [*WRONG, "*/0 * * * *", "@never", "0 0 1 foo *", "1,,2 * * * *", "* " * 500])
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no"):
        parse_cron(text)
