"""Reduction of a change to its smallest sufficient size, step by step, verified as a whole."""

from collections.abc import Sequence
from typing import Protocol

from gpuconsole.insight.unblock.steps import Step, Steps, reductions, size, sized


class TriedEnough(Exception):
    """The limit on trials was reached."""


class Tries(Protocol):
    """Tries changes for a pending workload, or for pending pods, in forks."""

    def works(self, steps: Sequence[Step]) -> bool:
        """True if these changes together unblock it; may be False for a change that does. Raises TriedEnough."""

    def fails(self, steps: Sequence[Step]) -> bool:
        """True if these changes certainly do not unblock it. Raises TriedEnough."""


def minimal_changes(tries: Tries, steps: Sequence[Step]) -> Steps:
    """Return the changes, each as small as is still enough; empty if they do not work or none is needed.

    Every returned step is needed in its full size. Raises TriedEnough.
    """
    if not tries.works(steps):
        return ()
    kept: Steps = ()
    for place, step in enumerate(steps):
        kept += _smallest(tries, step, (*kept, *steps[place + 1 :]))
    # A smaller change may be enough where a greater one is not, so the sizes are verified.
    return kept if kept and all(tries.fails(reduced) for reduced in reductions(kept)) else ()


def _smallest(tries: Tries, step: Step, rest: Sequence[Step]) -> Steps:
    """Return the smallest size that is enough with the other steps, as found by doubling from 1; one less is not.

    With more quota other workloads may be admitted first, so that a small size is enough and a greater one is not.
    """
    low, high = -1, size(step)
    while high - low > 1:
        doubled = 0 if low < 0 else max(1, 2 * low)
        tried = doubled if doubled < high else (low + high) // 2
        if tries.works((*rest, *sized(step, tried))):
            high = tried
        else:
            low = tried
    return sized(step, high)
