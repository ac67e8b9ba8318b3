"""Text of the explanation of why a workload is pending, shared by the command and the console.

Text of the explanation of why a workload is pending, shared by the command and the console.
"""

from collections.abc import Iterator
from typing import Literal, assert_never

from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.why import (
    ENGINE,
    PLACES,
    ConsideredFlavor,
    Evidence,
    LendingLimitGap,
    QuotaBreakdown,
    QuotaLevel,
    WhyPending,
)
from gpuconsole.insight.unblock.changes import in_words
from gpuconsole.insight.unblock.placement_trial import PlacementResult, PlacementStatus
from gpuconsole.insight.unblock.search import Suggestions
from gpuconsole.model.clock import Time, format_span
from gpuconsole.model.resources import format_quantity
from gpuconsole.model.snapshot import Snapshot

Mark = Literal["✓", "⚠", ""]
"""Mark of a suggestion's line: it works; it works, but more is missing; or a remark."""
MOST_USERS = 4
MOST_KEEPERS = 4


def flavor_lines(answer: WhyPending) -> Iterator[str]:
    """Yield the flavors in the order in which they were tried, with the pod set if there are several."""
    several = len({one.pod_set for one in answer.considered}) > 1
    width = max((len(_of(one, several)) for one in answer.considered), default=0)
    for one in answer.considered:
        borrows = f", borrowing level {one.borrows}" if one.borrows else ""
        why = f": {'; '.join(one.reasons)}" if one.reasons else ""
        yield f"{_of(one, several):<{width}}  {one.mode}{borrows}{why}"


def _of(one: ConsideredFlavor, several: bool) -> str:
    return f"{one.pod_set} · {one.flavor}" if several else one.flavor


def room_lines(room: QuotaBreakdown) -> Iterator[str]:
    """Yield needed and available quota, each level, members that withhold quota, and the workloads that use it."""

    def plain(amount: int) -> str:
        return format_quantity(room.resource, amount)

    never = f", maximum capacity {plain(room.ceiling)}" if room.needed > room.ceiling else ""
    yield (
        f"{room.flavor} {room.resource}: needs {plain(room.needed)}, available {plain(room.available)}{never}"
        f" · {plain(room.short)} more needed, limited by {room.blocked_at}"
    )
    for level in room.levels:
        yield f"  {_level(level, room.resource)}"
    for keeper in room.keepers[:MOST_KEEPERS]:
        yield f"  {_keeper(keeper, room.resource)}"
    others = room.keepers[MOST_KEEPERS:]
    if others:
        yield f"  {len(others)} more withhold {plain(sum(keeper.withheld for keeper in others))}"
    users = [f"{user.workload} {plain(user.amount)}" for user in room.users[:MOST_USERS]]
    more = len(room.users) - MOST_USERS
    if users:
        yield f"  used by {', '.join(users)}{f' and {more} more' if more > 0 else ''}"


def _level(level: QuotaLevel, resource: str) -> str:
    def plain(amount: int) -> str:
        return format_quantity(resource, amount)

    limit = f", borrowing limit {plain(level.borrowing_limit)}" if level.borrowing_limit is not None else ""
    withheld = f" ({plain(level.withheld)} withheld by lending limits)" if level.withheld else ""
    return (
        f"{level.kind} {level.name}: quota {plain(level.quota)}, used {plain(level.used)},"
        f" unused {plain(level.unused)}{withheld}{limit} → available {plain(level.available)}"
    )


def _keeper(keeper: LendingLimitGap, resource: str) -> str:
    def plain(amount: int) -> str:
        return format_quantity(resource, amount)

    return (
        f"{keeper.kind} {keeper.name} withholds {plain(keeper.withheld)} unused:"
        f" quota {plain(keeper.quota)}, lending limit {plain(keeper.lending_limit)}"
    )


def suggestion_texts(answer: WhyPending, found: Suggestions, snapshot: Snapshot) -> Iterator[tuple[Mark, str]]:
    """Yield the suggestions, each with a warning below it if its pods were not scheduled in the trial."""
    if found.admitted_anyway:
        yield "", "no change needed: it is admitted as it is"
        yield from _landing(found.landing)
    for suggestion in found.found:
        yield "✓", in_words(suggestion.steps, snapshot, answer.short)
        yield from _landing(suggestion.landing)
    if not found.found and not found.admitted_anyway:
        yield "", "no change that was tried admits it"
    if not found.complete:
        yield "", f"search limit reached after {found.tried} trials: other changes may work"


def _landing(landing: PlacementResult) -> Iterator[tuple[Mark, str]]:
    match landing.nodes:
        case PlacementStatus.NONE:
            yield "⚠", f"admitted, but after 1m: {landing.text}"
        case PlacementStatus.EVICTED:
            yield "⚠", f"admitted, and {landing.text}"
        case PlacementStatus.CHECKS:
            yield "⚠", f"reserves quota, but after 1m: {landing.text}"
        case PlacementStatus.UNSEEN:
            yield "⚠", "no pods after 1m: whether they find nodes is unknown"
        case PlacementStatus.FOUND | PlacementStatus.UNTRIED:
            pass
        case _:
            assert_never(landing.nodes)


def evidence_lines(answer: WhyPending, now: Time) -> Iterator[str]:
    """Yield each piece of evidence with its sources and their age; messages that are out of date are marked."""
    codes = {one.code for one in answer.evidence if one.code is not PendingReason.NOT_WAITING}
    said: dict[tuple[PendingReason, str], list[str]] = {}
    for one in answer.evidence:
        said.setdefault((one.code, one.text), []).append(f"{one.source}{_age(one, now)}")
    for (code, text), sources in said.items():
        # If a disruption budget protects victims, the scheduler only reports a gang or pod without a node.
        differs = " (out of date)" if len(codes) > 1 and code is not answer.code and code not in PLACES else ""
        coded = "" if code is PendingReason.NOT_WAITING else f"{code}{differs}: "
        yield f"{' and '.join(sources)}: {coded}{text}"


def _age(one: Evidence, now: Time) -> str:
    """Format an age; a condition has the time of its last transition, and its message may be newer."""
    if one.since is None:
        return ""
    return f", {'' if one.source == ENGINE else 'at most '}{format_span(max(0, now - one.since))} old"
