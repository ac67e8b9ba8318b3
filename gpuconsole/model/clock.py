"""Times and durations as integer microseconds; the model and the simulation never read a real clock.

`Time` is microseconds since the Unix epoch, `Span` is microseconds. Both are plain ints, so that a heap of events, a
fork and a replay are exact.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

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


def quantile(spans: Sequence[Span], part: float) -> Span | None:
    """Return the quantile `part` (0 to 1) of sorted spans, interpolated; None without spans."""
    if not spans:
        return None
    place = part * (len(spans) - 1)
    below = int(place)
    return round(spans[below] + (spans[min(below + 1, len(spans) - 1)] - spans[below]) * (place - below))
