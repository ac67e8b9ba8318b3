"""Heads of whom it is known beforehand that they are refused, are told nothing new, and that no other head notices.

When a tree wakes, most of those who wait in it are tried only to hear once more what they heard before: what they need
is not there, and there is nobody to evict. They need no part in the cycle that tries them.
"""

from msgspec import Struct

from gpuconsole.model.decisions import KeepWaiting
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED, take_refusal
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import Entry
from gpuconsole.scheduling.kueue.findings import Asked
from gpuconsole.scheduling.kueue.likeness import Alike, alike_to, amounts_decide, last_alike
from gpuconsole.scheduling.kueue.nomination import eligible
from gpuconsole.scheduling.kueue.preemption import Search, find_targets
from gpuconsole.scheduling.kueue.preemption.hope import most_for
from gpuconsole.scheduling.kueue.requests import Request
from gpuconsole.scheduling.kueue.returning import refusal
from gpuconsole.scheduling.kueue.rules import QueueRules
from gpuconsole.scheduling.kueue.state import State


class Audience(Struct, frozen=True):
    """Those who are told why they wait, where nobody asks about the others."""

    since: int
    """Everybody with this id or a later one: who came since."""
    named: frozenset[int]


def may_be_quiet(context: Context) -> bool:
    """True if heads of a cycle can be looked at one by one.

    Under fair sharing each takes part in the tournament of its tree, even if it gets nothing.
    """
    return not (
        context.findings is None or context.config.fair_sharing or context.one_by_one or context.gates.overlap_recompute
    )


def quiet(state: State, context: Context, rules: QueueRules, request: Request, *, amounts: bool) -> Alike | None:
    """The proposal to the head of this queue, if it is refused, knows it already, and takes nothing from the others.

    With `amounts` it does not know it unless it knows how much is missing; whom nobody asks about need not know.
    """
    if request.ordinary is not context.setup and not _is_ordinary(context, rules, request):
        return None
    alike = alike_to(context, rules, request)
    if alike is None or not alike.traceless:
        return None
    heard = request.heard is alike if amounts else request.heard_of == alike.said
    if not heard and listens(state, request) and not _has_heard(state, rules, request, alike, amounts=amounts):
        return None
    for asked, (column, amount) in zip(alike.asked, alike.amounts, strict=True):
        # What is certain without a search: most heads are refused by it.
        certain = column >= 0 and amount > most_for(context, rules, request, column)
        if not certain and _finds_somebody(context, rules, request, asked):
            return None
    return alike


def heard_before(state: State, context: Context, rules: QueueRules, request: Request) -> Alike | None:
    """What was proposed to the last one that is alike, if this one knows what it would be told then, but for amounts.

    Whether that would be proposed now, too, its `shortage` tells, if that is plain.
    """
    if request.ordinary is not context.setup and not _is_ordinary(context, rules, request):
        return None
    last = last_alike(context, rules, request)
    if last is None or last.shortage is None or not last.traceless:
        return None
    heard = request.heard_of == last.said or not listens(state, request)
    return last if heard or _has_heard(state, rules, request, last, amounts=False) else None


def listens(state: State, request: Request) -> bool:
    """True if somebody asks why this one waits."""
    audience = state.audience
    return audience is None or request.id >= audience.since or request.id in audience.named


def _is_ordinary(context: Context, rules: QueueRules, request: Request) -> bool:
    entry = Entry(request, rules)
    if not (amounts_decide(context, entry) and eligible(context, entry)):
        return False
    request.ordinary = context.setup
    return True


def _has_heard(state: State, rules: QueueRules, request: Request, alike: Alike, *, amounts: bool) -> bool:
    """True if what the workload was told last is what it would be told now; noted, as heads come again and again."""
    entry = Entry(request, rules)
    entry.record(alike.assignment, ())
    entry.requeue, entry.cause = alike.wanting
    said = request.workload.condition(QUOTA_RESERVED)
    if not amounts and said is not None and messages.without_amounts(said.message) == alike.said:
        entry.message = said.message
    answer, workload = refusal(state, entry), request.workload
    granular = state.gates.granular
    if isinstance(answer, KeepWaiting) or take_refusal(workload, answer, state.now, granular=granular) is not workload:
        return False
    if amounts:
        request.heard = alike
    else:
        request.heard_of = alike.said
    return True


def _finds_somebody(context: Context, rules: QueueRules, request: Request, asked: Asked) -> bool:
    columns, uses = asked
    return bool(find_targets(Search(context, rules, request, columns, uses)))
