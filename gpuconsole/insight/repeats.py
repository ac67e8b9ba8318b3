"""Folding of repeated history events into one line with a count."""

from collections.abc import Iterable

from msgspec import Struct

from gpuconsole.model.clock import MINUTE, Span, Time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind

WITHIN: Span = 10 * MINUTE
"""Longest time between two repeated lines (client-go's EventAggregator: defaultAggregateIntervalInSeconds)."""


class Repeated(Struct, frozen=True):
    """A history line and its number of occurrences."""

    line: HistoryEvent
    """The newest occurrence."""
    count: int = 1
    first: Time = 0
    """Time of the first occurrence."""

    @property
    def span(self) -> Span:
        """Time from the first to the newest occurrence."""
        return self.line.time - self.first


_Said = tuple[HistoryEventKind, str, str, str, str, str, str, str]


def _said(line: HistoryEvent) -> _Said:
    """Return the fields of a line by which it equals another: all except its time, lost work and wait."""
    about = line.what, line.workload, line.pod, line.node, line.queue
    return *about, line.by, line.reason, line.message


def folded(lines: Iterable[HistoryEvent]) -> list[Repeated]:
    """Fold equal lines (oldest first) within ten minutes of each other; each keeps the position of its last occurrence.

    Lines about one workload may alternate: each is folded with the lines that equal it.
    """
    found: dict[int, Repeated] = {}
    newest: dict[_Said, int] = {}
    for place, line in enumerate(lines):
        said = _said(line)
        before = newest.get(said)
        known = found[before] if before is not None else None
        if before is None or known is None or line.time - known.line.time > WITHIN:
            found[place] = Repeated(line, 1, line.time)
        else:
            del found[before]
            found[place] = Repeated(line, known.count + 1, min(known.first, line.time))
        newest[said] = place
    return list(found.values())
