"""Queues whose next heads would only hear, one a cycle, what they heard before: they are parked together.

The cycles that would try them are counted, and nothing else is done in them. When something happens in the tree
meanwhile, those whose turn has not come go back to the queue, unless they still lack the same.
"""

from collections.abc import Iterable, Iterator
from itertools import takewhile

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.ground import Ground, ground_of
from gpuconsole.scheduling.kueue.likeness import last_alike
from gpuconsole.scheduling.kueue.pending import PendingQueue
from gpuconsole.scheduling.kueue.quiet import heard_before
from gpuconsole.scheduling.kueue.reasons import Reason
from gpuconsole.scheduling.kueue.requests import Request
from gpuconsole.scheduling.kueue.rules import QueueRules, Setup
from gpuconsole.scheduling.kueue.shortage import Shortage, lack, persists
from gpuconsole.scheduling.kueue.state import State

Head = tuple[Request, Reason, Shortage]
"""One that may pass: why it is parked, and what it lacks."""


class Run(Struct, frozen=True):
    """Heads of a queue, in their order, of whom no one gets anything as long as these amounts are short."""

    heads: tuple[Head, ...]
    short: tuple[tuple[Request, int, int], ...]
    """One of each priority, or age, with a column, and the least that any of them lacks."""
    bounds: tuple[tuple[Request, int, int], ...]
    """By column the one who may evict the most, and the least that anybody lacks: if that is short, so are all."""
    there: tuple[tuple[int, int], ...]
    """Column, and the most that any of them needs of what is there."""


class Survey(Struct, frozen=True):
    """The heads that could pass when all lanes of a queue are open, as long as these are its members."""

    run: Run
    members: int
    setup: Setup


class Passing:
    """Heads of a run on their way. Mutated by every cycle."""

    __slots__ = ("done", "ground", "heads", "run", "version")

    def __init__(
        self, heads: tuple[Head, ...], ground: Ground, version: int, run: Run | None = None, done: int = 0
    ) -> None:
        self.heads = heads
        self.run = run
        """What they come to, once that was needed."""
        self.done = done
        """How many of them count as tried."""
        self.ground = ground
        self.version = version
        """Of the queue, with all of them parked."""

    def copy(self) -> "Passing":
        return Passing(self.heads, self.ground, self.version, self.run, self.done)

    def end(self, queue: PendingQueue) -> None:
        """Take those back whose turn has not come."""
        queue.open(request for request, _, _ in self.heads[self.done :])


def goes_on(state: State, context: Context, rules: QueueRules) -> bool:
    """True if it is the turn of one of the run of this queue: its cycle is counted."""
    passing = state.passing[rules.name]
    queue, ground = state.roster.look_at(rules.name), ground_of(context, rules.node)
    same = queue is not None and queue.version == passing.version
    if same and passing.ground is not ground:
        passing.run = passing.run or _run(rules, passing.heads)
        same = _lack(context, rules, passing.run)
    if not same:
        del state.passing[rules.name]
        passing.end(state.roster.queue(rules.name))
        return False
    passing.ground = ground
    _count(state, rules.name)
    return True


def begins(state: State, context: Context, rules: QueueRules, first: Request) -> bool:
    """True if a run begins with the first head of the queue: its cycle is counted."""
    queue = state.roster.look_at(rules.name)
    if queue is None or not queue.closes_lanes or queue.is_sticky(first.id) or not _lacks(context, rules, first):
        return False
    run = _surveyed(state, context, rules, queue)
    heads, whole = run.heads, _lack(context, rules, run)
    if not whole:
        heads = tuple(takewhile(lambda head: persists(context, rules, head[0], head[2]), heads))
    if not heads:
        return False
    queue = state.roster.queue(rules.name)
    queue.close([(request, reason) for request, reason, _ in heads])
    state.passing[rules.name] = Passing(heads, ground_of(context, rules.node), queue.version, run if whole else None)
    _count(state, rules.name)
    return True


def go_on_alone(state: State, context: Context) -> int:
    """Where no other queue has a head: count at once the cycles to come in which runs go on; how many they are."""
    for name, passing in state.passing.items():
        rules, queue = state.setup.queues[name], state.roster.look_at(name)
        if queue is None or queue.version != passing.version or passing.ground is not ground_of(context, rules.node):
            return 0
    cycles = min(len(passing.heads) - passing.done for passing in state.passing.values())
    for name in list(state.passing):
        _count(state, name, cycles)
    return cycles


def _count(state: State, name: str, cycles: int = 1) -> None:
    passing = state.passing[name]
    passing.done += cycles
    if passing.done == len(passing.heads):
        del state.passing[name]


def _surveyed(state: State, context: Context, rules: QueueRules, queue: PendingQueue) -> Run:
    """The first heads of the open lanes that would hear what they heard before, as long as they lack the same."""
    survey = state.surveys.get(rules.name)
    if survey is None or survey.members != queue.members or survey.setup is not context.setup:
        run = _run(rules, _able(state, context, rules, queue))
        if queue.all_open:
            state.surveys[rules.name] = Survey(run, queue.members, context.setup)
        return run
    if queue.all_open:
        return survey.run
    return _run(rules, (head for head in survey.run.heads if not queue.is_parked(head[0].id)))


def _able(state: State, context: Context, rules: QueueRules, queue: PendingQueue) -> Iterator[Head]:
    for request in queue.first_of_lanes():
        last = heard_before(state, context, rules, request) if request.id not in state.progress else None
        if last is None or last.shortage is None:
            return
        yield request, last.wanting[1], last.shortage


def _run(rules: QueueRules, heads: Iterable[Head]) -> Run:
    taken = tuple(heads)
    least: dict[tuple[int, int, int], tuple[Request, int]] = {}
    most: dict[int, int] = {}
    for request, _, shortage in taken:
        _add(rules, request, shortage, least, most)
    short = tuple((request, column, amount) for (_, _, column), (request, amount) in least.items())
    return Run(taken, short, tuple(_bounds(short)), tuple(most.items()))


def _bounds(short: Iterable[tuple[Request, int, int]]) -> Iterator[tuple[Request, int, int]]:
    """Whoever has more priority, or at the same came earlier, may evict everybody whom the others may."""
    found: dict[int, tuple[Request, int]] = {}
    for request, column, amount in short:
        known, least = found.get(column, (request, amount))
        found[column] = min(known, request, key=_rank), min(least, amount)
    return ((request, column, amount) for column, (request, amount) in found.items())


def _rank(request: Request) -> tuple[int, Time]:
    return -request.priority, request.timestamp


def _lack(context: Context, rules: QueueRules, run: Run) -> bool:
    """True if all of them lack the same on the accounts as they are."""
    return any(lack(context, rules, short, run.there) for short in (run.bounds, run.short))


def _add(
    rules: QueueRules,
    request: Request,
    shortage: Shortage,
    least: dict[tuple[int, int, int], tuple[Request, int]],
    most: dict[int, int],
) -> None:
    age = request.timestamp if rules.looks_at_age else 0
    for column, amount in shortage.short:
        key = request.priority, age, column
        if key not in least or amount < least[key][1]:
            least[key] = request, amount
    for column, amount in shortage.there:
        most[column] = max(amount, most.get(column, 0))


def _lacks(context: Context, rules: QueueRules, request: Request) -> bool:
    last = last_alike(context, rules, request)
    return last is not None and last.shortage is not None and persists(context, rules, request, last.shortage)
