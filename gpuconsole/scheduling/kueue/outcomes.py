"""What cycles made of the heads of a cohort tree, kept by what the tree was like and who its heads were.

Trees do not see each other. Where nothing but quota, and who uses it, decides, a tree that is as it was once, with
heads that cannot be told from those of that time, comes to the same end, in whatever fork: a cycle after which nothing
happened there repeats itself, and the second future of a what-if repeats the first, except where its change is felt.
"""

from collections.abc import Hashable, Iterable, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kueue.assignment import Assignment, Resume
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import Entry, Status
from gpuconsole.scheduling.kueue.findings import keep
from gpuconsole.scheduling.kueue.likeness import amounts_decide
from gpuconsole.scheduling.kueue.pending import Requeue
from gpuconsole.scheduling.kueue.preemption import Target
from gpuconsole.scheduling.kueue.reasons import Reason
from gpuconsole.scheduling.kueue.stories import Told


class Outcome(Struct, frozen=True):
    """What became of one head; the names are those of `Entry`."""

    assignment: Assignment
    targets: Sequence[Target]
    status: Status
    requeue: Requeue
    message: str
    cause: Reason
    resume: Resume | None
    turn: int
    told: Sequence[Told]
    """How its victims were chosen, where that was asked for."""


class Heads(Struct, frozen=True):
    """The heads of one tree in a cycle that has to find out what becomes of them."""

    entries: list[Entry]
    key: Hashable
    """None if that is not to be kept."""
    anew: bool
    """Nobody's search goes on where it stopped."""


def by_tree(context: Context, entries: Iterable[Entry]) -> list[Heads]:
    """The heads of a cycle, tree by tree."""
    root, trees = context.accounts.usage.tree.root, dict[int, list[Entry]]()
    for entry in entries:
        trees.setdefault(root(entry.rules.node), []).append(entry)
    return [_heads(context, at, members) for at, members in trees.items()]


def recall(context: Context, heads: Heads) -> bool:
    """Settle the heads of a tree, if it is known what becomes of them."""
    outcomes: tuple[Outcome, ...] | None = context.outcomes.get(heads.key)
    if heads.key is None or outcomes is None:
        return False
    for entry, outcome in zip(heads.entries, outcomes, strict=True):
        entry.assignment, entry.targets = outcome.assignment, outcome.targets
        entry.status, entry.requeue = outcome.status, outcome.requeue
        entry.message, entry.cause = outcome.message, outcome.cause
        entry.resume, entry.turn = outcome.resume, outcome.turn
        if context.stories is not None and outcome.told:
            context.stories[entry.request.id] = [*outcome.told]
    return True


def remember(context: Context, heads: Heads) -> None:
    """Keep what became of the heads of a tree, in the cycle that is over now."""
    if heads.key is not None:
        outcomes = tuple(_outcome(context, entry) for entry in heads.entries)
        keep(context.outcomes, heads.key, outcomes)


def _heads(context: Context, root: int, entries: list[Entry]) -> Heads:
    findings, apart = context.findings, not (context.one_by_one or context.gates.overlap_recompute)
    if findings is None or not (findings.book.shared and apart):
        return Heads(entries, None, anew=False)
    if not all(amounts_decide(context, entry) for entry in entries):
        return Heads(entries, None, anew=False)
    marks = tuple(_marks(entry) for entry in entries)
    key = findings.state_of(root), context.stories is None, marks
    return Heads(entries, key, not any(entry.resume for entry in entries))


def _marks(entry: Entry) -> tuple[object, ...]:
    """All of a head that decides about it."""
    request, resume = entry.request, entry.resume
    return (
        entry.rules.node,
        request.shape,
        request.timestamp,
        entry.preemptor,
        request.workload.gated,
        resume and tuple(tuple(tried.items()) for tried in resume),
    )


def _outcome(context: Context, entry: Entry) -> Outcome:
    return Outcome(
        assignment=entry.assignment,
        targets=entry.targets,
        status=entry.status,
        requeue=entry.requeue,
        message=entry.message,
        cause=entry.cause,
        resume=entry.resume,
        turn=entry.turn,
        told=() if context.stories is None else context.stories.get(entry.request.id, ()),
    )
