"""Durations as Go writes them: `1h30m0s`, `1.5s`, `-1s`. Kueue's Configuration accepts no other format."""

import re
from fractions import Fraction
from typing import Annotated

from msgspec import Meta

from gpuconsole.model.clock import Span

Duration = Annotated[str, Meta(title="duration")]
"""Text of a duration; `reading` normalizes it to Go's format."""

Nanoseconds = int

_MICROSECOND = 1_000
_SECOND = 1_000_000_000
_UNITS = {
    "ns": 1,
    "us": _MICROSECOND,
    "µs": _MICROSECOND,
    "μs": _MICROSECOND,
    "ms": 1_000_000,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"[-+]?(?:0|(?:{_PART.pattern})+)")


def nanoseconds(text: str) -> Nanoseconds:
    """Read a duration in nanoseconds. Raises ValueError with Go's message."""
    if len(text) > 100 or not _WHOLE.fullmatch(text):
        raise ValueError(f'time: invalid duration "{text[:100]}"')
    total = int(sum(Fraction(f"0{number}") * _UNITS[unit] for number, unit in _PART.findall(text)))
    return -total if text.startswith("-") else total


def parse(text: str) -> Span:
    """Read a duration in microseconds, rounded away from zero. Raises ValueError."""
    exact = nanoseconds(text)
    return -(-exact // _MICROSECOND) if exact > 0 else exact // _MICROSECOND


def write(exact: Nanoseconds) -> str:
    """Write a duration as Go's Duration.String does: from hours down to seconds; below 1 s in one smaller unit."""
    if exact == 0:
        return "0s"
    sign, left = ("-", -exact) if exact < 0 else ("", exact)
    if left < _SECOND:
        unit = next(unit for unit in ("ms", "µs", "ns") if left >= _UNITS[unit])
        return f"{sign}{_decimal(left, _UNITS[unit])}{unit}"
    minutes, left = divmod(left, 60 * _SECOND)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(left, _SECOND)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else sign + seconds


def _decimal(amount: int, size: int) -> str:
    whole, rest = divmod(amount, size)
    digits = f"{rest:0{len(str(size)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)
