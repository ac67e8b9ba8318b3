"""Processing of nominated entries, one after the other (Kueue 0.19 scheduler.processEntry).

All were nominated against the same state; each changes the accounts that the next is judged by, so several may be
admitted as long as they still fit.
"""

from collections.abc import Iterable, Iterator

from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import Entry, Status
from gpuconsole.scheduling.kueue.modes import Mode
from gpuconsole.scheduling.kueue.pending import Requeue
from gpuconsole.scheduling.kueue.preemption import Target
from gpuconsole.scheduling.kueue.reservation import can_always_reclaim, capacity_to_reserve
from gpuconsole.scheduling.kueue.tournament import in_fair_order


def process(context: Context, entries: list[Entry]) -> Iterator[Entry]:
    """Decide on the nominated entries, in order; each ends up assumed, or with a message and a reason to requeue."""
    chosen: dict[int, Target] = {}
    ordered = in_fair_order(context, entries) if context.config.fair_sharing else _in_order(context, entries)
    for entry in ordered:
        _process_entry(context, entry, chosen)
        yield entry


def _in_order(context: Context, entries: list[Entry]) -> list[Entry]:
    """Least borrowing first, then the highest priority, then the oldest; ties by the queue's name."""
    sorting = context.gates.priority_sorting
    return sorted(
        entries,
        key=lambda entry: (
            entry.assignment.borrows,
            -entry.request.priority if sorting else 0,
            entry.request.timestamp,
            entry.rules.name,
        ),
    )


def _process_entry(context: Context, entry: Entry, chosen: dict[int, Target]) -> None:
    """The numbered steps of the specification (§4.4), as far as they concern admission itself."""
    accounts, assignment, node = context.accounts, entry.assignment, entry.rules.node
    fits = _fits(context, entry, chosen.values())
    if assignment.mode == Mode.NO_FIT:
        entry.requeue = Requeue.NO_FIT
        return
    if assignment.mode == Mode.PREEMPT and not entry.targets:
        entry.requeue = Requeue.PREEMPTION_NO_CANDIDATES
        if not can_always_reclaim(entry.rules):
            accounts.usage.add(node, capacity_to_reserve(accounts.usage, entry.rules, assignment))
        return
    if any(target.holding.id in chosen for target in entry.targets):
        entry.skip(messages.OVERLAPPING_TARGETS)
        return
    if not fits:
        entry.skip(messages.NO_LONGER_FITS)
        return
    chosen.update({target.holding.id: target for target in entry.targets})
    accounts.usage.add(node, assignment.uses)
    if assignment.mode == Mode.PREEMPT:
        entry.message = messages.pending_preemption(entry.message, len(entry.targets))
        entry.requeue = Requeue.PENDING_PREEMPTION
        entry.resume = None
        return
    entry.status = Status.ASSUMED


def _fits(context: Context, entry: Entry, chosen: Iterable[Target]) -> bool:
    """True if the entry fits once all victims chosen so far, and its own, are gone."""
    victims = {target.holding.id: target.holding for target in (*chosen, *entry.targets)}
    with context.accounts.trial():
        context.accounts.remove_all(victims.values())
        return context.accounts.usage.fits(entry.rules.node, entry.assignment.uses)
