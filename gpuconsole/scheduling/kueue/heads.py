"""Who is tried in a cycle: the heads of all open queues, and of those the ones that take part in it."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from gpuconsole.scheduling.kueue import rest
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import Entry
from gpuconsole.scheduling.kueue.ledgers import usage_in
from gpuconsole.scheduling.kueue.passing import begins, go_on_alone, goes_on
from gpuconsole.scheduling.kueue.quiet import may_be_quiet, quiet
from gpuconsole.scheduling.kueue.requests import Request
from gpuconsole.scheduling.kueue.rules import QueueRules
from gpuconsole.scheduling.kueue.second_pass import take_due
from gpuconsole.scheduling.kueue.state import State
from gpuconsole.scheduling.kueue.workloads import request_of


class Refusals(Enum):
    """Who is told that it is refused."""

    ALL = auto()
    """Every head, in every cycle."""
    NEW = auto()
    """Those who do not know it already."""
    OTHER = auto()
    """Those, of them, who would not only hear that another amount is missing."""


def head(state: State, rules: QueueRules) -> Request | None:
    """The workload of a queue that the next cycle would try."""
    queue = state.roster.look_at(rules.name)
    return queue.head(usage_in(state, rules)) if rules.active and queue is not None else None


def anybody_next(state: State) -> bool:
    """True if the next cycle would try anybody."""
    return bool(state.passing) or _anybody(state, state.roster.awake())


def _anybody(state: State, names: Iterable[str]) -> bool:
    return any(head(state, state.setup.queues[name]) is not None for name in names)


def take_heads(
    state: State, context: Context, given: Iterable[Entry] = (), *, told: Refusals = Refusals.ALL
) -> tuple[list[Entry], bool]:
    """The entries of a cycle, taken out of their queues, beside those that are `given`; and whether others were parked.

    Unless all are `told`, those are left out who need not be: trees at rest, and quiet heads.
    """
    entries = [*given, *_second_passes(state)]
    passes_over = told is not Refusals.ALL and may_be_quiet(context)
    together = passes_over and told is Refusals.OTHER
    if not together:
        state.end_passes()
    resting = rest.resting(state)
    served = {entry.rules.name for tried in (*resting.values(), entries) for entry in tried if not entry.round}
    parked = False
    for name in _awake(state):
        rules = state.setup.queues[name]
        if name in served or not rules.active:
            continue
        if name in state.passing and goes_on(state, context, rules):
            parked = True
            continue
        first = head(state, rules)
        if first is None:
            continue
        if (together and begins(state, context, rules, first)) or (
            passes_over and _pass_over(state, context, rules, first, amounts=not together)
        ):
            parked = True
        else:
            entries.append(_taken(state, rules, first))
    root = state.setup.tree.root
    stirred = {root(entry.rules.node) for entry in entries}
    for tree, rested in resting.items():
        if tree in stirred:
            # Whoever came may change what becomes of the others.
            del state.resting[tree]
            entries += [_taken(state, entry.rules, entry.request) for entry in rested]
        elif told is Refusals.ALL:
            entries += rested
    return entries, parked


def pass_by(state: State) -> int:
    """Count the cycles to come that would only count heads of runs, as long as nothing else happens; how many."""
    if not state.passing or state.second_passes:
        return 0
    resting = {entry.rules.name for tried in rest.resting(state).values() for entry in tried}
    others = (name for name in state.roster.awake() if name not in resting and name not in state.passing)
    if _anybody(state, others):
        return 0
    cycles = go_on_alone(state, state.context())
    state.cycles += cycles
    return cycles


def _awake(state: State) -> Iterable[str]:
    names = state.roster.awake()
    return sorted({*names, *state.passing}) if state.passing else names


def _second_passes(state: State) -> Iterator[Entry]:
    for holding, round in take_due(state):
        request = request_of(state, holding.workload, holding.id, holding.cluster_queue).as_admitted(state.config)
        state.stir(holding.cluster_queue)
        yield Entry(request, state.setup.queues[holding.cluster_queue], round=round)


def _taken(state: State, rules: QueueRules, first: Request) -> Entry:
    queue = state.roster.queue(rules.name)
    queue.take(first)
    return Entry(first, rules, preemptor=queue.is_sticky(first.id))


def _pass_over(state: State, context: Context, rules: QueueRules, first: Request, *, amounts: bool) -> bool:
    """Park the head and all of its shape, if that is all that would come of trying it."""
    queue = state.roster.look_at(rules.name)
    if queue is None or not queue.closes_lanes or queue.is_sticky(first.id) or first.id in state.progress:
        return False
    alike = quiet(state, context, rules, first, amounts=amounts)
    if alike is None:
        return False
    state.roster.queue(rules.name).close([(first, alike.wanting[1])])
    return True
