"""Flavors that the engine tried for a pending workload, with the result of each."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.blockers import cause
from gpuconsole.insight.pending_reasons import PendingReason
from gpuconsole.scheduling.kueue.assignment import FlavorAssignmentMode
from gpuconsole.scheduling.kueue.entry import CycleEntry

_MODES = {
    FlavorAssignmentMode.NO_FIT: "no fit",
    FlavorAssignmentMode.NO_CANDIDATES: "no preemption candidates",
    FlavorAssignmentMode.PREEMPT: "by preemption",
    FlavorAssignmentMode.RECLAIM: "by reclaim",
    FlavorAssignmentMode.FIT: "fits",
}


class ConsideredFlavor(Struct, frozen=True, kw_only=True):
    """A flavor that was tried for a pod set, and the worst result over its resources."""

    pod_set: str
    flavor: str
    mode: str
    borrows: int = 0
    """Borrowing level: levels up to the cohort that it would borrow from; 0 = it does not borrow."""
    code: PendingReason = PendingReason.NOT_WAITING
    reasons: tuple[str, ...] = ()


def considered(entry: CycleEntry) -> Iterator[ConsideredFlavor]:
    """Yield the flavors pod set by pod set, in the order in which they were tried."""
    for result in entry.assignment.pod_sets:
        seen: dict[str, ConsideredFlavor] = {}
        for search in result.searches:
            for noted in search.noted:
                known = seen.get(noted.flavor)
                one = ConsideredFlavor(
                    pod_set=result.pod_set.name,
                    flavor=noted.flavor,
                    mode=_MODES[noted.mode],
                    borrows=noted.height,
                    code=cause(noted),
                    reasons=noted.reasons,
                )
                seen[noted.flavor] = one if known is None else _worse(known, one)
        yield from seen.values()


def _worse(known: ConsideredFlavor, other: ConsideredFlavor) -> ConsideredFlavor:
    order = list(_MODES.values())
    worse = min(known, other, key=lambda one: order.index(one.mode))
    reasons = tuple(dict.fromkeys((*known.reasons, *other.reasons)))
    return replace(worse, borrows=max(known.borrows, other.borrows), reasons=reasons)
