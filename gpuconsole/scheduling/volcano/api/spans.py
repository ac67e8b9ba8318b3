"""Durations as Go writes them in annotations and arguments: `1h30m`, `90s`, `1.5h`."""

import re

from gpuconsole.model.clock import Span

_UNITS = {"ns": 0.001, "us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")


def parse_span(text: str) -> Span | None:
    """A duration in microseconds; None if it is none (time.ParseDuration)."""
    sign = -1 if text.startswith("-") else 1
    rest = text.lstrip("+-") if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total, position = 0.0, 0
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None:
            return None
        total += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    return sign * round(total) if rest else None
