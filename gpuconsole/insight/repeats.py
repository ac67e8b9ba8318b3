"""Repeated lines of history, folded into one with a count."""

from collections.abc import Iterable

from msgspec import Struct

from gpuconsole.model.clock import MINUTE, Span, Time
from gpuconsole.model.events import Happened, What

WITHIN: Span = 10 * MINUTE
"""Between two lines that count as one (client-go's EventAggregator: defaultAggregateIntervalInSeconds)."""


class Repeated(Struct, frozen=True):
    """A line of history, and how often it was said."""

    line: Happened
    """The newest one."""
    count: int = 1
    first: Time = 0
    """When it was said first."""

    @property
    def span(self) -> Span:
        """From the first to the newest."""
        return self.line.time - self.first


_Said = tuple[What, str, str, str, str, str, str, str]


def _said(line: Happened) -> _Said:
    """All that a line says but when, and how much was lost or waited for."""
    about = line.what, line.workload, line.pod, line.node, line.queue
    return *about, line.by, line.reason, line.message


def folded(lines: Iterable[Happened]) -> list[Repeated]:
    """Fold lines (oldest first) that say the same within ten minutes of each other; each stands where it was said last.

    Lines about one workload may alternate: each of them is folded with its like.
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
