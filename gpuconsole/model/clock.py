"""Times and durations as integer microseconds; the model and the simulation never read a real clock.

`Time` is microseconds since the Unix epoch, `Span` is microseconds. Both are plain ints, so that a heap of events, a
fork and a replay are exact.

Here are also cron schedules: five fields, a name such as @daily, or @every 30m (as in robfig/cron's standard parser).
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

Time = int
Span = int

MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

LONGEST = 292 * 365 * DAY
"""Longest duration, about that of Go."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_UNITS = {"ns": 0.001, "us": 1, "µs": 1, "ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)")


def parse_time(text: str) -> Time:
    """Parse an RFC 3339 timestamp, such as `2026-01-05T08:00:00Z`; UTC without an offset. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def format_time(time: Time) -> str:
    """Format a timestamp as RFC 3339 in UTC; fractions of a second appear only if there are any.

    A time outside the years 1 to 9999 becomes the first or last time in them.
    """
    moment = _EPOCH + timedelta(microseconds=min(max(time, _FIRST), _LAST))
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{moment.microsecond:06d}Z" if moment.microsecond else f"{text}Z"


def next_multiple(now: Time, interval: Span) -> Time:
    """The first multiple of the interval after now."""
    return (now // interval + 1) * interval


def parse_span(text: str) -> Span:
    """Parse a duration as Go and Kubernetes write it (`90s`, `1h30m`, `500ms`), days allowed. Raises ValueError."""
    stripped = text.strip()
    if stripped == "0":
        return 0
    position, total = 0, 0.0
    for match in _PART.finditer(stripped):
        if match.start() != position:
            break
        total += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    if not stripped or position != len(stripped):
        raise ValueError(f"{text!r} is not a duration; write it as 90s, 30m, 1h30m or 2d")
    if total > LONGEST:
        raise ValueError(f"{text[:40]!r} is too long to simulate; the limit is 292 years")
    return round(total)


def format_span(span: Span) -> str:
    """Format a duration with its two largest units, such as `1h30m`, `2d4h`, `12s` or `250ms`."""
    if span < 0:
        return "-" + format_span(-span)
    if span < SECOND:
        return f"{span // MILLISECOND}ms" if span else "0s"
    parts = []
    for name, size in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)):
        amount, span = divmod(span, size)
        if amount:
            parts.append(f"{amount}{name}")
        elif parts:
            break
    return "".join(parts[:2])


def format_seconds(span: Span) -> str:
    """Format a duration as `format_exactly`, truncated to whole seconds from one second on."""
    return format_exactly(span - span % SECOND if span >= SECOND else span)


def format_tenths(span: Span) -> str:
    """Format a duration as `format_seconds`, but below 10 s to the tenth of a second: `0.6s`, `2s`, `1m30s`."""
    if not 0 <= span < 10 * SECOND:
        return format_seconds(span)
    return f"{10 * span // SECOND / 10:g}s"


def format_exactly(span: Span) -> str:
    """Format a duration to the millisecond, in a form that Go can parse (no days): `25h30s`, `1m30s`, `12s`.

    For durations that are parsed again or compared with each other.
    """
    if span < 0:
        return "-" + format_exactly(-span)
    parts = []
    for name, size in (("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", MILLISECOND)):
        amount, span = divmod(span, size)
        if amount:
            parts.append(f"{amount}{name}")
    return "".join(parts) or "0s"


def in_seconds(span: Span | None) -> float | None:
    """Return a duration in seconds; None stays None."""
    return span / SECOND if span is not None else None


def quantile(spans: Sequence[Span], part: float) -> Span | None:
    """Return the quantile `part` (0 to 1) of sorted spans, interpolated; None without spans."""
    if not spans:
        return None
    place = part * (len(spans) - 1)
    below = int(place)
    return round(spans[below] + (spans[min(below + 1, len(spans) - 1)] - spans[below]) * (place - below))


_NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 6))
_WORDS: tuple[dict[str, int], ...] = (
    *({}, {}, {}),
    {name: number + 1 for number, name in enumerate(_MONTHS)},
    {name: number for number, name in enumerate(_DAYS)},
)
_CRON_PART = re.compile(r"(\*|\?|[0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?(?:/([0-9]{1,2}))?")
_EVERY = "@every "
_TICK = timedelta(microseconds=1)
_MOST_DAYS = 5 * 366
"""A schedule that does not fire within five years never fires (30 February)."""


class Cron(Struct, frozen=True):
    """Times at which a cron schedule fires. Days of month and of week are alternatives if both are restricted."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def next_after(self, time: Time) -> Time | None:
        """Return the first time strictly after `time` at which it fires in UTC; None if it never does."""
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        moment = epoch + timedelta(minutes=time // MINUTE + 1)
        for _ in range(_MOST_DAYS):
            if self._on(moment):
                for hour in range(moment.hour, 24):
                    first = moment.minute if hour == moment.hour else 0
                    minute = min((m for m in self.minutes if m >= first), default=None)
                    if hour in self.hours and minute is not None:
                        hit = moment.replace(hour=hour, minute=minute)
                        return (hit - epoch) // timedelta(seconds=1) * SECOND
            moment = (moment + timedelta(days=1)).replace(hour=0, minute=0)
        return None

    def next_in(self, time: Time, zone: str) -> Time | None:
        """Return the first time after `time` at which it fires by a time zone's clock; empty means UTC.

        A local time that a clock change skips is converted with the offset before the change.
        """
        if not zone:
            return self.next_after(time)
        clocks, epoch = ZoneInfo(zone), datetime(1970, 1, 1)
        shown = (datetime.fromtimestamp(time // SECOND, UTC).astimezone(clocks).replace(tzinfo=None) - epoch) // _TICK
        while (hit := self.next_after(shown)) is not None:
            local = (epoch + timedelta(microseconds=hit)).replace(tzinfo=clocks)
            moment = (local.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // _TICK
            if moment > time:
                return moment
            shown = hit
        return None

    def _on(self, moment: datetime) -> bool:
        if moment.month not in self.months:
            return False
        day, weekday = moment.day in self.days, moment.isoweekday() % 7 in self.weekdays
        return (day and weekday) if self.any_day or self.any_weekday else (day or weekday)


class Every(Struct, frozen=True):
    """Schedule with a constant delay (robfig/cron ConstantDelaySchedule)."""

    delay: Span

    def next_after(self, time: Time) -> Time:
        """Return `time` plus the delay, in whole seconds."""
        return (time + self.delay) // SECOND * SECOND

    def next_in(self, time: Time, zone: str) -> Time:
        """Return the same as `next_after`: time zones make no difference."""
        return self.next_after(time)


def parse_cron(text: str) -> Cron | Every:
    """Parse a schedule. Raises ValueError that names the invalid field."""
    written = text.strip().lower()
    if written.startswith(_EVERY):
        return Every(max(SECOND, parse_span(written.removeprefix(_EVERY)) // SECOND * SECOND))
    fields = _NAMES.get(written, written).split()
    if len(fields) != len(_FIELDS) or len(text) > 200:
        raise ValueError(
            f"{text[:60]!r} is not a cron schedule; write minute, hour, day, month and weekday, such as 0 9 * * 1-5"
        )
    minutes, hours, days, months, weekdays = (_field(field, number) for number, field in enumerate(fields))
    return Cron(minutes, hours, days, months, weekdays, any_day=fields[2][0] in "*?", any_weekday=fields[4][0] in "*?")


def _field(text: str, number: int) -> frozenset[int]:
    name, low, high = _FIELDS[number]
    found: set[int] = set()
    for part in text.split(","):
        match = _CRON_PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not a valid {name}")
        first, last, step = match[1], match[2], int(match[3] or 1)
        every = first in "*?"
        start = low if every else _number(first, number)
        end = high if every or (match[3] and last is None) else start if last is None else _number(last, number)
        if not low <= start <= end <= high or not step:
            raise ValueError(f"{part!r} is not a valid {name}; the range is {low} to {high}")
        found.update(range(start, end + 1, step))
    return frozenset(found)


def _number(text: str, field: int) -> int:
    if text.isdigit():
        return int(text)
    if text not in _WORDS[field]:
        raise ValueError(f"{text!r} is not a valid {_FIELDS[field][0]}")
    return _WORDS[field][text]
