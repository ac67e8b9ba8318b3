"""Moments and spans are exact integers of microseconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.model import clock
from gpuconsole.model.clock import DAY, HOUR, MILLISECOND, MINUTE, SECOND

SPANS = {
    "90s": 90 * SECOND,
    "1h30m": 90 * MINUTE,
    "250ms": 250 * MILLISECOND,
    "2d": 2 * DAY,
    "1.5h": 90 * MINUTE,
    "0": 0,
}


@pytest.mark.parametrize(("text", "want"), SPANS.items())
def test_durations_are_read_as_go_writes_them(text: str, want: int) -> None:
    assert clock.parse_span(text) == want


@pytest.mark.parametrize("text", ["", "300", "5 m", "m", "1h2", "-3s"])
def test_a_duration_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        clock.parse_span(text)


WRITTEN = {
    0: "0s",
    250 * MILLISECOND: "250ms",
    12 * SECOND: "12s",
    90 * MINUTE: "1h30m",
    2 * DAY + 4 * HOUR + 5 * MINUTE: "2d4h",
    HOUR + 5 * SECOND: "1h",
    -90 * SECOND: "-1m30s",
}


@pytest.mark.parametrize(("span", "want"), WRITTEN.items())
def test_durations_are_written_with_their_two_largest_units(span: int, want: str) -> None:
    assert clock.format_span(span) == want


EXACTLY = {
    0: "0s",
    HOUR + 5 * SECOND: "1h5s",
    2 * DAY + 4 * HOUR + 5 * MINUTE: "52h5m",
    12 * SECOND + 250 * MILLISECOND: "12s250ms",
    -90 * MINUTE - SECOND: "-1h30m1s",
}


@pytest.mark.parametrize(("span", "want"), EXACTLY.items())
def test_durations_that_are_read_again_are_written_with_all_their_units(span: int, want: str) -> None:
    assert clock.format_exactly(span) == want


@pytest.mark.parametrize(
    ("span", "want"),
    [
        (13 * MINUTE + 29 * SECOND + 482 * MILLISECOND, "13m29s"),
        (SECOND, "1s"),
        (482 * MILLISECOND, "482ms"),
        (0, "0s"),
    ],
)
def test_people_read_spans_to_the_second(span: int, want: str) -> None:
    assert clock.format_seconds(span) == want


@given(st.integers(0, 100 * 365 * DAY // MILLISECOND))
def test_a_duration_survives_to_the_millisecond(count: int) -> None:
    assert clock.parse_span(clock.format_exactly(count * MILLISECOND)) == count * MILLISECOND


@given(st.integers(0, 4_000_000_000 * SECOND))
def test_a_moment_survives_rfc_3339(time: int) -> None:
    assert clock.parse_time(clock.format_time(time)) == time


def test_a_zone_is_understood_and_a_missing_one_is_utc() -> None:
    assert clock.parse_time("2026-01-05T09:00:00+01:00") == clock.parse_time("2026-01-05T08:00:00")


@pytest.mark.parametrize("text", ["99999999999d", "9" * 400 + "h"])
def test_a_duration_of_centuries_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the limit is 292 years"):
        clock.parse_span(text)


def test_a_moment_after_all_years_is_written_as_the_last_one() -> None:
    assert clock.format_time(10**20) == "9999-12-31T23:59:59.999999Z"
    assert clock.format_time(-(10**20)).endswith("1-01-01T00:00:00Z")
