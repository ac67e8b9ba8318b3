"""Order of queues: compares two queues for which one is served first (KAI 0.13 proportion/queue_order)."""

from collections.abc import Sequence

from msgspec import Struct

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.fair_share.quantities import RESOURCES, Quantities, less, minus, of_amounts, plus, within
from gpuconsole.scheduling.kai.fair_share.shares import QueueShares


class Contender(Struct, frozen=True):
    """A queue with the request of its next job, and the jobs that would be its victims."""

    queue: QueueShares
    needed: Quantities
    victims: Sequence[PodGroupInfo] = ()

    @property
    def with_job(self) -> Quantities:
        return plus(self.queue.allocated, self.needed)

    @property
    def over_fair_share(self) -> bool:
        return less(self.queue.fair, self.queue.allocated)

    @property
    def within_quota(self) -> bool:
        return within(self.with_job, self.queue.deserved)

    @property
    def without_share(self) -> bool:
        """True if it would hold a resource of which its share is zero."""
        held, allowed = self.with_job, self.queue.allocatable
        return any(allowed[name] == 0 and held[name] > 0 for name in RESOURCES)

    def share(self, total: Quantities) -> float:
        """Its dominant share with the job and without the victims."""
        extra = self.needed
        for victim in self.victims:
            extra = minus(extra, of_amounts(victim.allocated))
        return self.queue.dominant(total, extra)


def compare(left: Contender, right: Contender, total: Quantities) -> int:
    """-1 if the left queue comes first, else 1: the first rule in which they differ decides.

    Not above the fair share; within quota with the job; higher priority; not without a share; the smaller dominant
    share with the job, then without; the smaller allocatable share; older.
    """
    for mine, theirs in (
        (left.over_fair_share, right.over_fair_share),
        (not left.within_quota, not right.within_quota),
        (-left.queue.priority, -right.queue.priority),
        (left.without_share, right.without_share),
        (left.share(total), right.share(total)),
        (left.queue.dominant(total), right.queue.dominant(total)),
    ):
        if mine != theirs:
            return -1 if mine < theirs else 1
    one, other = left.queue.allocatable, right.queue.allocatable
    if within(one, other) != within(other, one):
        return -1 if within(one, other) else 1
    return -1 if left.queue.created < right.queue.created else 1
