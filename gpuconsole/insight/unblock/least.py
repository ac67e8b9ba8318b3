"""The smallest change of a kind that is enough: each step by itself, and all played through when it is found."""

from collections.abc import Sequence
from typing import Protocol

from gpuconsole.insight.unblock.steps import Step, Steps, reductions, size, sized


class TriedEnough(Exception):
    """The bound on what is tried was reached."""


class Tries(Protocol):
    """Somebody who waits, and the forks in which changes are tried for it."""

    def works(self, steps: Sequence[Step]) -> bool:
        """True if these changes together let it in; some that do may be missed. Raises TriedEnough."""

    def fails(self, steps: Sequence[Step]) -> bool:
        """True if they surely do not. Raises TriedEnough."""


def least(tries: Tries, steps: Sequence[Step]) -> Steps:
    """The changes, each made as small as is still enough; nothing where they do not work, or nothing is needed.

    Of what is returned every step is needed in its full size. Raises TriedEnough.
    """
    if not tries.works(steps):
        return ()
    kept: Steps = ()
    for place, step in enumerate(steps):
        kept += _smallest(tries, step, (*kept, *steps[place + 1 :]))
    # A smaller change may be enough where a greater one is not, so the sizes are not taken on trust.
    return kept if kept and all(tries.fails(reduced) for reduced in reductions(kept)) else ()


def _smallest(tries: Tries, step: Step, rest: Sequence[Step]) -> Steps:
    """The smallest size that is enough beside the rest, as far as doubling from 1 finds it; the next smaller is not.

    With more of something others may be let in before, so that a small size is enough and a greater one is not.
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
