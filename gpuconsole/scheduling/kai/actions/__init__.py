"""KAI's actions by the names used in a scheduler configuration, in the default order."""

from collections.abc import Callable, Mapping

from gpuconsole.scheduling.kai.actions.actions import allocate, consolidate, evict_stale_gangs, preempt, reclaim
from gpuconsole.scheduling.kai.session import KaiSession

ACTIONS: Mapping[str, Callable[[KaiSession], None]] = {
    "allocate": allocate,
    "consolidation": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
    "stalegangeviction": evict_stale_gangs,
}
