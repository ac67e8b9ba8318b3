"""Heads that are alike get one proposal: the same head in the next cycle, and others while the same is used.

A proposal is made of what is used on the way from the queue up to its root, and of whom the preemptor may evict. While
the former is equal, and still nobody is found for it to evict, what was proposed once would be proposed again.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import Assignment
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import Entry
from gpuconsole.scheduling.kueue.findings import Asked, keep
from gpuconsole.scheduling.kueue.ground import ground_of
from gpuconsole.scheduling.kueue.modes import Mode
from gpuconsole.scheduling.kueue.pending import Requeue
from gpuconsole.scheduling.kueue.preemption import Search, Target, find_targets
from gpuconsole.scheduling.kueue.reasons import Reason
from gpuconsole.scheduling.kueue.requests import Request
from gpuconsole.scheduling.kueue.reservation import can_always_reclaim
from gpuconsole.scheduling.kueue.rules import QueueRules
from gpuconsole.scheduling.kueue.shortage import Shortage, shortage_of
from gpuconsole.scheduling.kueue.slices import replacement_for
from gpuconsole.scheduling.kueue.stories import Told

Proposal = tuple[Assignment, Sequence[Target]]
Propose = Callable[[Context, QueueRules, Request], Proposal]


class _Last(Struct, frozen=True):
    """What was proposed to the last head of a queue."""

    shape: bytes
    timestamp: Time
    proposal: Proposal
    told: Sequence[Told] | None
    """How its victims were chosen, where that was asked for."""


class Alike(Struct, frozen=True):
    """What was proposed where nobody could be evicted, to all that are alike while the same is used."""

    assignment: Assignment
    asked: tuple[Asked, ...]
    """For what somebody was looked for."""
    amounts: tuple[tuple[int, int], ...]
    """Of each of these the column that is short, and what is needed of it; -1 where that says too little."""
    wanting: tuple[Requeue, Reason]
    """What becomes of them if they do not fit."""
    said: str
    """What they are told then, but for how much is missing."""
    shortage: Shortage | None
    """What they lack, where that is plain."""
    traceless: bool
    """They do not fit, keep no capacity from others, and have no flavors left to try."""


def proposal_for(context: Context, entry: Entry, propose: Propose) -> Proposal:
    """What is proposed to the entry; a head that comes again, before anything happened in its tree, gets the same."""
    request, stories = entry.request, context.stories
    if not amounts_decide(context, entry):
        return propose(context, entry.rules, request)
    known, key = context.known_of_tree(entry.rules.node), ("last", entry.rules.name)
    last: _Last | None = known.get(key)
    same = last is not None and last.timestamp == request.timestamp and last.shape == request.shape
    if last is None or not same or (stories is not None and last.told is None):
        proposal = _alike(context, entry, propose)
        told = stories.get(request.id, ()) if stories is not None else None
        last = known[key] = _Last(request.shape, request.timestamp, proposal, told)
    elif stories is not None and last.told:
        stories[request.id] = [*last.told]
    return last.proposal


def amounts_decide(context: Context, entry: Entry) -> bool:
    """True if nothing but quota, and who uses it, decides about the entry."""
    workload = entry.request.workload
    return not (
        entry.round
        or not context.gates.hashing
        or context.gates.concurrent_admission
        or context.setup.topologies
        or workload.unhealthy_nodes
        or replacement_for(workload) is not None
    )


def alike_to(context: Context, rules: QueueRules, request: Request) -> Alike | None:
    """What was proposed to one that is alike; it holds as long as nobody can be evicted for this one, either."""
    found: Alike | None = context.proposals.get(_key(context, rules, request))
    return found


def last_alike(context: Context, rules: QueueRules, request: Request) -> Alike | None:
    """What was proposed to the last one that is alike and was plainly short of something, whatever is used now."""
    found: Alike | None = context.proposals.get(_last_key(rules, request))
    return found


def _last_key(rules: QueueRules, request: Request) -> tuple[object, ...]:
    return request.shape, rules.likeness


def _key(context: Context, rules: QueueRules, request: Request) -> tuple[object, ...]:
    """What decides about a head besides who could be evicted for it."""
    return request.shape, rules.likeness, ground_of(context, rules.node).rows


def _as_before(context: Context, entry: Entry, alike: Alike) -> bool:
    """True if for this entry, too, there is nobody to evict."""
    return not any(
        find_targets(Search(context, entry.rules, entry.request, columns, uses)) for columns, uses in alike.asked
    )


def _alike(context: Context, entry: Entry, propose: Propose) -> Proposal:
    """What was proposed to one that is alike, else what is proposed now."""
    rules, request = entry.rules, entry.request
    alike = alike_to(context, rules, request)
    if alike is not None and _as_before(context, entry, alike):
        return alike.assignment, ()
    context.asked = []
    assignment, targets = propose(context, rules, request)
    if context.asked is not None:
        asked = tuple(dict.fromkeys(context.asked))
        wanting = assignment.wanting(rules.groups, granular=context.gates.granular)
        kept = Alike(
            assignment=assignment,
            asked=asked,
            amounts=tuple(map(_amount, asked)),
            wanting=wanting,
            said=messages.without_amounts(assignment.message),
            # Only forks that look ahead ask for it.
            shortage=shortage_of(context, rules, request, assignment) if context.forked else None,
            traceless=_leaves_no_trace(rules, assignment),
        )
        if kept.shortage is not None:
            keep(context.proposals, _last_key(rules, request), kept)
        keep(context.proposals, _key(context, rules, request), kept)
    return assignment, targets


def _leaves_no_trace(rules: QueueRules, assignment: Assignment) -> bool:
    keeps_nothing = can_always_reclaim(rules) or not rules.queue.cohort
    mode = assignment.mode
    return assignment.resume is None and (mode == Mode.NO_FIT or (mode == Mode.PREEMPT and keeps_nothing))


def _amount(asked: Asked) -> tuple[int, int]:
    columns, uses = asked
    column = min(columns)
    amount = dict(uses).get(column, 0)
    return (column, amount) if amount and len(columns) == 1 else (-1, 0)
