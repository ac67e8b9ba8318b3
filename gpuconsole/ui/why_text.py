"""Lines about a pending workload: the admission attempt, and the changes that would unblock it."""

from collections.abc import Iterator

from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.why import PLACES, Tried
from gpuconsole.insight.pending.why_text import flavor_lines, room_lines, suggestion_texts
from gpuconsole.insight.unblock.search import Suggestion
from gpuconsole.model.clock import Time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import named
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import BLANK, Pick, heading, text_line


def tried_lines(tried: Tried) -> Iterator[Painted]:
    """The flavors with their assignment modes, and the quota at each level."""
    for text in flavor_lines(tried.why) if tried.why.considered else tried.why.explanation.lines:
        yield text_line(f"    {named(text)}")
    for room in tried.why.rooms:
        for number, text in enumerate(room_lines(room)):
            yield text_line((f"    {named(text)}", "" if not number else "dim"))
    condition = next((one for one in tried.why.evidence if one.source != "engine"), None)
    if condition is not None and condition.code not in (tried.why.code, PendingReason.OTHER, *PLACES):
        yield text_line((f"    that condition is stale ({condition.code}): now {tried.why.code}", "pending"))


def pick_of(suggestion: Suggestion) -> str:
    """The key of a suggestion, so that the cursor stays on it when more are found."""
    return str(suggestion.steps)


def unblocking_lines(tried: Tried, snapshot: Snapshot, now: Time) -> Iterator[Painted]:
    """Changes that would admit it, each tested in a fork."""
    if tried.suggestions is None:
        return
    yield BLANK
    yield heading("WOULD UNBLOCK")
    search = tried.under_way
    found = iter(tried.suggestions.found)
    for mark, text in suggestion_texts(tried.why, tried.suggestions, snapshot):
        match mark:
            case "✓":
                yield Pick(text_line("  ", ("✓ ", "good"), named(text)), pick_of(next(found)))
            case "⚠":
                yield text_line("    ", ("⚠ ", "pending"), named(text))
            case "" if search is None:
                yield text_line("    ", named(text))
    if search is not None:
        done = f"{search.done} of {search.of} kinds done, {tried.suggestions.tried} changes tested"
        yield text_line((f"  … testing {search.kind}: {done}", "pending"))
        return
    yield text_line((f"  {tried.suggestions.tried} changes tested, {fmt.since(now, tried.time)} ago", "dim"))
