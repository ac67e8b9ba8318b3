"""KAI's actions, in the order in which a session runs them."""

from collections.abc import Callable, Mapping

from gpuconsole.scheduling.kai.actions.allocate import allocate
from gpuconsole.scheduling.kai.actions.consolidation import consolidate
from gpuconsole.scheduling.kai.actions.preempt import preempt
from gpuconsole.scheduling.kai.actions.reclaim import reclaim
from gpuconsole.scheduling.kai.actions.stale_gangs import evict_stale_gangs
from gpuconsole.scheduling.kai.session import KaiSession

ACTIONS: Mapping[str, Callable[[KaiSession], None]] = {
    "allocate": allocate,
    "consolidation": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
    "stalegangeviction": evict_stale_gangs,
}
