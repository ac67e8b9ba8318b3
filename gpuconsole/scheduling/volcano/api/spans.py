"""Durations as annotations and arguments of Volcano write them (`1h30m`): what cannot be read is none."""

from gpuconsole.model.clock import Span, parse_span


def span_of(text: str) -> Span | None:
    """A duration in microseconds; None if it is none. Days are no unit here (Go's time.ParseDuration)."""
    try:
        return None if "d" in text else parse_span(text)
    except ValueError:
        return None
