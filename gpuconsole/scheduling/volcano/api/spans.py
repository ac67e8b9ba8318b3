"""Go durations in annotations and arguments of Volcano (`1h30m`); unreadable ones count as missing."""

from gpuconsole.model.clock import Span, parse_span


def span_of(text: str) -> Span | None:
    """A duration in microseconds; None if it is invalid. Days are no unit here (Go's time.ParseDuration)."""
    try:
        return None if "d" in text else parse_span(text)
    except ValueError:
        return None
