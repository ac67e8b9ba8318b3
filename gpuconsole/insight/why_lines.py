"""The answer to why, as plain lines: the same for the command and the pane."""

from collections.abc import Iterator
from typing import Literal, assert_never

from gpuconsole.insight.considered import Considered
from gpuconsole.insight.reasons import Code
from gpuconsole.insight.room import Keeper, Level, Room
from gpuconsole.insight.unblock.landing import Landing, Nodes
from gpuconsole.insight.unblock.search import Suggestions
from gpuconsole.insight.unblock.words import in_words
from gpuconsole.insight.why import ENGINE, PLACES, Evidence, Why
from gpuconsole.model.clock import Time, format_span
from gpuconsole.model.quantity import format_quantity
from gpuconsole.model.snapshot import Snapshot

Mark = Literal["✓", "⚠", ""]
"""It works; it works, and more is missing; only said."""
MOST_USERS = 4
MOST_KEEPERS = 4


def flavor_lines(answer: Why) -> Iterator[str]:
    """The flavors in the order in which they were tried; the pod set only where there are several."""
    several = len({one.pod_set for one in answer.considered}) > 1
    width = max((len(_of(one, several)) for one in answer.considered), default=0)
    for one in answer.considered:
        borrows = f", borrowing at height {one.borrows}" if one.borrows else ""
        why = f": {'; '.join(one.reasons)}" if one.reasons else ""
        yield f"{_of(one, several):<{width}}  {one.mode}{borrows}{why}"


def _of(one: Considered, several: bool) -> str:
    return f"{one.pod_set} · {one.flavor}" if several else one.flavor


def room_lines(room: Room) -> Iterator[str]:
    """What is needed and what is left, then level by level, then who keeps some back, and who uses it."""

    def plain(amount: int) -> str:
        return format_quantity(room.resource, amount)

    never = f", never more than {plain(room.ceiling)}" if room.needed > room.ceiling else ""
    yield (
        f"{room.flavor} {room.resource}: needs {plain(room.needed)}, gets {plain(room.available)}{never}"
        f" · {plain(room.short)} short at {room.blocked_at}"
    )
    for level in room.levels:
        yield f"  {_level(level, room.resource)}"
    for keeper in room.keepers[:MOST_KEEPERS]:
        yield f"  {_keeper(keeper, room.resource)}"
    others = room.keepers[MOST_KEEPERS:]
    if others:
        yield f"  {len(others)} more keep {plain(sum(keeper.withheld for keeper in others))}"
    users = [f"{user.workload} {plain(user.amount)}" for user in room.users[:MOST_USERS]]
    more = len(room.users) - MOST_USERS
    if users:
        yield f"  used by {', '.join(users)}{f' and {more} more' if more > 0 else ''}"


def _level(level: Level, resource: str) -> str:
    def plain(amount: int) -> str:
        return format_quantity(resource, amount)

    limit = f", borrowing limit {plain(level.borrowing_limit)}" if level.borrowing_limit is not None else ""
    withheld = f", {plain(level.withheld)} of them never lent" if level.withheld else ""
    return (
        f"{level.kind} {level.name}: quota {plain(level.quota)}, used {plain(level.used)},"
        f" unused {plain(level.unused)}{withheld}{limit} → gives {plain(level.available)}"
    )


def _keeper(keeper: Keeper, resource: str) -> str:
    def plain(amount: int) -> str:
        return format_quantity(resource, amount)

    return (
        f"{keeper.kind} {keeper.name} keeps {plain(keeper.withheld)} unused:"
        f" quota {plain(keeper.quota)}, lending limit {plain(keeper.lending_limit)}"
    )


def suggestion_texts(answer: Why, found: Suggestions, snapshot: Snapshot) -> Iterator[tuple[Mark, str]]:
    """What would unblock it, each of which was tried; below it, where its pods are not seen to find nodes then."""
    if found.admitted_anyway:
        yield "", "nothing is needed: it gets in as it is"
        yield from _landing(found.landing)
    for suggestion in found.found:
        yield "✓", in_words(suggestion.steps, snapshot, answer.short)
        yield from _landing(suggestion.landing)
    if not found.found and not found.admitted_anyway:
        yield "", "no change that was tried lets it in"
    if not found.complete:
        yield "", f"not everything was tried: {found.tried} tries are the bound"


def _landing(landing: Landing) -> Iterator[tuple[Mark, str]]:
    match landing.nodes:
        case Nodes.NONE:
            yield "⚠", f"admitted, but a minute later {landing.text}"
        case Nodes.EVICTED:
            yield "⚠", f"admitted, and {landing.text}"
        case Nodes.CHECKS:
            yield "⚠", f"it gets its quota, and a minute later {landing.text}"
        case Nodes.UNSEEN:
            yield "⚠", "whether its pods find nodes then is not seen within a minute"
        case Nodes.FOUND | Nodes.UNTRIED:
            pass
        case _:
            assert_never(landing.nodes)


def evidence_lines(answer: Why, now: Time) -> Iterator[str]:
    """Who says so, and how old that is; who say the same share a line, and what the cluster has overtaken is marked."""
    codes = {one.code for one in answer.evidence if one.code is not Code.NOT_WAITING}
    said: dict[tuple[Code, str], list[str]] = {}
    for one in answer.evidence:
        said.setdefault((one.code, one.text), []).append(f"{one.source}{_age(one, now)}")
    for (code, text), sources in said.items():
        # A gang, or a pod, that finds no node is what a budget that keeps others looks like to its scheduler.
        differs = " (overtaken)" if len(codes) > 1 and code is not answer.code and code not in PLACES else ""
        yield f"{' and '.join(sources)}: {code}{differs}: {text}"


def _age(one: Evidence, now: Time) -> str:
    """A condition tells since when it is so; its words may be newer."""
    if one.since is None:
        return ""
    return f", {'' if one.source == ENGINE else 'at most '}{format_span(max(0, now - one.since))} old"
