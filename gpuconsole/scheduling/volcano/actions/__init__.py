"""Volcano's actions, by the name that volcano-scheduler.conf gives them."""

from collections.abc import Callable, Mapping

from gpuconsole.scheduling.volcano.actions.allocate import allocate, backfill, enqueue
from gpuconsole.scheduling.volcano.actions.gang_eviction import gangpreempt, gangreclaim
from gpuconsole.scheduling.volcano.actions.preempt import preempt, reclaim, shuffle
from gpuconsole.scheduling.volcano.session import VolcanoSession

ACTIONS: Mapping[str, Callable[[VolcanoSession], None]] = {
    "enqueue": enqueue,
    "allocate": allocate,
    "backfill": backfill,
    "preempt": preempt,
    "reclaim": reclaim,
    "shuffle": shuffle,
    "gangpreempt": gangpreempt,
    "gangreclaim": gangreclaim,
}
